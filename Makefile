# make run        the six hospitals of Fed-ISIC2019 in NVIDIA FLARE's simulator
# make jobs       a FLARE job for each dataset of the paper, in jobs/; seven of them are checked in
# make test-fast  lint, type check, the tests that take less than half a second: two minutes on two cores
# make test       lint, type check, all tests but the nightly ones: ten minutes on two cores
# make test-all   every test, the documentation, the mutants; every night
# make test-flower  the adapter to Flower, in an environment of its own: build/flower
# make mutation   changes the code at 150 places; fails if no test sees one
# make coverage   how much of the core the tests of test-fast run; fails below 97 % of its lines
# make pictures   the pictures in docs/pictures: diagrams, and pages of a demo and a comparison; these need Chromium
# make advisories  the packages that are installed, in build/sbom.json, and their known vulnerabilities; needs a network
# make docs       the documentation with the API from the docstrings, in build/docs
# Each installs first what it needs into .venv, when that is missing or older than pyproject.toml or constraints.txt.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
TESTS := $(VENV)/.tests
NIGHTLY := $(VENV)/.nightly
DOCS := $(VENV)/.docs
PIP_INSTALL := $(BIN)/pip install --constraint constraints.txt --editable
RUN := runs/isic_fedmr-$(shell date +%Y%m%d-%H%M%S)
PICTURES := docs/pictures

.PHONY: run pictures jobs test test-fast test-all test-nightly test-flower pytest-fast pytest-day mutation coverage lint docs install advisories
.DELETE_ON_ERROR:

install: $(RUNTIME)

$(RUNTIME): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedmr_med needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP_INSTALL) .
	@touch $@

$(TESTS): $(RUNTIME)
	$(PIP_INSTALL) '.[test]'
	@touch $@

$(NIGHTLY): $(TESTS)
	$(PIP_INSTALL) '.[nightly]'
	@touch $@

$(DOCS): $(RUNTIME)
	$(PIP_INSTALL) '.[docs]'
	@touch $@

# What `nvflare simulator` runs, without its line that it is deprecated: a job folder is what hospitals get as well.
run: $(RUNTIME)
	$(BIN)/python -m nvflare.private.fed.app.simulator.simulator jobs/isic_fedmr -t 6 -w $(RUN)

# The diagrams, the picture of the claim, and screenshots of pages that the commands of the guides write; the latter need Chromium.
SCREENSHOT := $(BIN)/python -m tests.helpers.screenshot
pictures: $(TESTS)
	$(BIN)/python docs/diagrams.py
	$(BIN)/fedmr-med demo --out build/demo
	$(BIN)/fedmr-med predict build/demo/best_model.pt build/demo/images -o build/demo/predictions.csv --page build/demo/predictions.html
	$(BIN)/fedmr-med bench --dataset isic2019 --data demo --methods fedavg,fedmr --model small_cnn --rounds 10 --seeds 0,1 --out build/compared
	cp build/demo/claim.svg $(PICTURES)/claim.svg
	$(SCREENSHOT) build/demo/report.html $(PICTURES)/report.png
	$(SCREENSHOT) build/demo/predictions.html $(PICTURES)/predictions.png
	$(SCREENSHOT) build/compared/report.html $(PICTURES)/comparison.png

jobs: $(RUNTIME)
	$(BIN)/fedmr-med jobs write

lint: $(TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A process that outlives the tests makes them fail. Output comes as it is made, also into a file; at its end what took longest.
PYTEST := PYTHONUNBUFFERED=1 $(BIN)/python -m tests.helpers.leftovers $(BIN)/pytest --durations=20
WORKERS ?= 2
# The two halves of the federation wait more than they compute, so two more run beside the others.
BESIDE := $(shell expr $(WORKERS) + 2)
# Lint uses one core for some seconds, so it runs beside the tests.
WITH_LINT := $(MAKE) --no-print-directory --jobs=2 lint

test-fast: $(TESTS)
	$(WITH_LINT) pytest-fast

test: $(TESTS)
	$(WITH_LINT) pytest-day

pytest-fast: $(TESTS)
	$(PYTEST) -n $(WORKERS) -m "not slow and not nightly"

pytest-day: $(TESTS)
	$(PYTEST) -n $(BESIDE) -m "not nightly"

test-all: test-nightly docs mutation

# FLamby is not on PyPI: FLAMBY names a checkout. Without one, the tests that compare with it are skipped and say so.
FLAMBY ?=
test-nightly: lint $(NIGHTLY)
	$(if $(FLAMBY),FEDMR_MED_FLAMBY=$(abspath $(FLAMBY))) $(PYTEST) -n $(BESIDE)

# Flower asks for older releases of these than the other extras are tested with.
FLOWER := build/flower
test-flower:
	$(PYTHON) -m venv $(FLOWER)
	grep -vE '^(rich|typer|pycryptodome)==' constraints.txt > $(FLOWER)/constraints.txt
	$(FLOWER)/bin/pip install --constraint $(FLOWER)/constraints.txt --editable '.[flower]' pytest pytest-timeout pytest-xdist hypothesis
	$(FLOWER)/bin/python -m pytest tests/flower tests/exchange tests/test_examples.py -k 'flower or exchange'

# A sample of changed code, of which a test must see each. MUTANT names the only one to try, with what pytest prints.
SAMPLE ?= 150
MUTATED := losses.py methods privacy wire secure server
mutation: $(TESTS)
	$(BIN)/python -m tests.mutation --module $(MUTATED:%=fedmr_med/%) --sample $(SAMPLE) --seed 0 --workers $(WORKERS) $(if $(MUTANT),--mutant $(MUTANT))

CORE := losses prototypes statistics privacy wire secure exchange methods server site
coverage: $(TESTS)
	$(PYTEST) -n $(WORKERS) -m "not slow and not nightly" $(CORE:%=--cov=fedmr_med.%) --cov-report=term:skip-covered --cov-fail-under=97

# pip-audit in an environment of its own, so that what it needs is not among what it looks at.
ADVISORIES := build/advisories
advisories: $(RUNTIME)
	$(PYTHON) -m venv $(ADVISORIES)
	$(BIN)/python -c "import json; from fedmr_med.export.dossier import sbom; print(json.dumps(sbom(), indent=1))" > build/sbom.json
	$(ADVISORIES)/bin/pip install --quiet pip-audit
	$(ADVISORIES)/bin/pip-audit --skip-editable --path $(VENV)/lib/python*/site-packages

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m tests.helpers.built_docs build/docs
