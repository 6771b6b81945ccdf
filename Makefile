# Two commands are enough: `make demo` and `make test`. Each does all its own set-up in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PINS := requirements/pins.txt

.PHONY: demo test lint types contracts bench clean help

help:            ## Say what there is.
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.demo  ## Train a real pool, tune it, serve it, and show the table (about 3 minutes after installation).
	@$(BIN)/rheostat demo

test: $(VENV)/.dev   ## Run the test suite.
	@$(BIN)/python -m pytest

lint: $(VENV)/.dev   ## Check style.
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev  ## Check types.
	@$(BIN)/mypy

contracts: $(VENV)/.dev  ## Check who may import whom.
	@$(BIN)/lint-imports

clean:           ## Remove what was installed and made here.
	rm -rf $(VENV) demo-out bench-out .cache

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Rheostat needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "This Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml $(PINS)
	@echo "Installing Rheostat and what the demo needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) --editable '.[train,report]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml $(PINS)
	@echo "Installing Rheostat and what its tests need into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) --editable '.[train,report,dev]'
	@touch $@
