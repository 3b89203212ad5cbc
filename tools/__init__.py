"""What is run by hand or by `make`, and never by Coterie itself."""
