# The first target that needs it installs everything into .venv, and again only if the versions change.
PYTHON ?= python3
ARGS ?= model=rum task=copy
CORPORA ?= ptb text8 enwik8 babi
GPU ?= json=benchmarks/records/gpu.json
SWEEP ?= out=outputs
SEED ?= 0
ATTACKS ?= tests/faults
CASES ?= cluster
ENGINES := slurm-wlm slurmdbd munge mariadb-server postgresql
VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install train test test-all test-faults test-mutations test-cluster test-cluster-install wheel lint format docs results bench gpu gpu-wheels gpu-sweep data clean

help:  ## print these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

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

test: $(INSTALLED)  ## run the tests without the slow ones
	@$(RUN) -m pytest -n auto --dist loadfile -m 'not slow and not cluster'

test-all: $(INSTALLED)  ## run all tests
	@$(RUN) -m pytest -n auto --dist loadfile -m 'not cluster'

test-faults: $(INSTALLED)  ## run all attacks of tests/faults; SEED=7 makes others, ATTACKS="<file> -k attack3" some
	@SEED=$(SEED) $(RUN) -m pytest $(ATTACKS) -n auto --attacks=whole -q

test-mutations: $(INSTALLED)  ## plant faults one at a time, and report those that make test misses; SEED=7 plants others
	@$(RUN) -m tests.mutations seed=$(SEED) places=36 cpp=4 json=outputs/mutations-$(SEED).json

test-cluster: $(INSTALLED)  ## run the tests on the real engines that are installed; CASES="not slow" runs some
	@$(RUN) -m pytest tests/cluster -m '$(CASES)' -n 2 --dist loadfile

test-cluster-install: $(INSTALLED)  ## install the engines of test-cluster, packages of Debian (as root) and of Python
	@echo "Installing with apt-get: $(ENGINES)"
	@apt-get update -qq
	@DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -qq $(ENGINES)
	@echo "Installing into $(VENV): ray, psycopg, PyMySQL"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray,databases]'

wheel: $(INSTALLED)  ## build a wheel with kernels for x86-64 in dist/, for machines without a C++ compiler
	@$(RUN) -m gyral.ops.native.build
	@$(RUN) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

lint: $(INSTALLED)  ## check style, types and the direction of imports
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(RUN) -m gyral.nn.stubs
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

format: $(INSTALLED)  ## format the code
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

docs: $(INSTALLED)  ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

results: $(INSTALLED)  ## fill in the tables of docs/results from results/records
	@$(RUN) docs/results.py

bench: $(INSTALLED)  ## measure speed and memory of all cells and of torch.nn
	@$(RUN) -m benchmarks.cells

gpu:  ## test and measure on a CUDA GPU with torch, triton and pytest of $(PYTHON), in 500 seconds
	@PYTHONPATH=src:.fla $(PYTHON) -m benchmarks.gpu $(GPU)

gpu-wheels: $(INSTALLED)  ## download the packages of gpu-sweep into .wheels
	@$(RUN) -m benchmarks.gpu_sweep collect

gpu-sweep:  ## train on a GPU, 16 runs at a time, with torch of $(PYTHON) and .wheels; SWEEP="out=outputs jobs=8"
	@PYTHONPATH=src $(PYTHON) -m benchmarks.gpu_sweep run $(SWEEP)

data: $(INSTALLED)  ## download the corpora into data/ or DATA_DIR; CORPORA=ptb downloads one
	@$(VENV)/bin/gyral fetch $(CORPORA)

clean:  ## remove .venv and caches, not runs and data
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache site build src/*.egg-info *.egg-info
