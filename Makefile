# make run        the six hospitals of Fed-ISIC2019 in NVIDIA FLARE's simulator
# make jobs       a FLARE job for each dataset of the paper, in jobs/; four of them are checked in
# make test       lint, type check, all tests
# make test-fast  lint, type check, the tests without simulator runs and federations
# make docs       the documentation with the API from the docstrings, in build/docs
# make test-federation  the provisioned federation on loopback alone: kills, hostile jobs, resumption
# All of them make .venv first when it is missing or older than pyproject.toml or constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RUN := runs/isic_fedmr-$(shell date +%Y%m%d-%H%M%S)

.PHONY: run jobs test test-fast test-federation test-others lint docs install
.DELETE_ON_ERROR:

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedmr_med needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,docs]'
	@touch $@

run: $(INSTALLED)
	$(BIN)/nvflare simulator jobs/isic_fedmr -t 6 -w $(RUN)

jobs: $(INSTALLED)
	$(BIN)/fedmr-med jobs write

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One worker for each file of tests, since files share simulator runs. The federation waits more than it computes, so
# its tests run beside the others.
WORKERS ?= 2
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: lint
	$(MAKE) --jobs 2 --output-sync=target test-federation test-others

# The hostile jobs open the kits of their federation, so they have one of their own.
HOSTILE := tests/e2e/test_federation_hostile.py

test-federation: $(INSTALLED)
	$(BIN)/pytest -m federation --ignore $(HOSTILE)
	$(BIN)/pytest $(HOSTILE)

test-others: $(INSTALLED)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not federation"

test-fast: lint
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow"

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
