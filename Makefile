# Everything installs itself into .venv on first use, and again only when the versions change.
PYTHON ?= python3
ARGS ?= model=rum task=copy
CORPORA ?= ptb text8 enwik8 babi
VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install train test test-all lint format bench data clean

help:  ## print these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(INSTALLED)  ## create .venv and install the tested versions

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "error: $(PYTHON) must be Python 3.11, 3.12 or 3.13 (choose one by PYTHON=...)"; exit 1; }
	@echo "Installing into $(VENV), once; this takes a few minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

train: $(INSTALLED)  ## train; ARGS="model=lstm task=recall" replaces the overrides
	@$(RUN) -m src.train $(ARGS)

test: $(INSTALLED)  ## run the tests but for the slow proofs
	@$(RUN) -m pytest -n auto -m 'not slow'

test-all: $(INSTALLED)  ## run all tests, the slow proofs too
	@$(RUN) -m pytest -n auto

lint: $(INSTALLED)  ## check style and types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

format: $(INSTALLED)  ## bring the code into form
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(INSTALLED)  ## measure speed and memory of all cells beside torch.nn
	@$(RUN) -m benchmarks.cells

data: $(INSTALLED)  ## fetch the corpora into data/, or where DATA_DIR says; CORPORA=ptb fetches one
	@$(RUN) -m gyral.fetch $(CORPORA)

clean:  ## remove .venv and caches; runs and data stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache *.egg-info
