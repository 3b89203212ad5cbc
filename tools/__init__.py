"""Programs for developers, run by hand or by `make`."""
