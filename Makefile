PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: help setup demo test coverage lint format bench peers docs docs-check results index architecture wheel fresh sbom

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# torch goes first: its CPU build satisfies every later requirement
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[$(EXTRAS)]'
	@touch $@

setup: $(VENV)/ready ## make .venv with everything in it (EXTRAS=dev,peers,text,tensorboard,onnx for all the tests)

demo: setup ## install and run the main job on embedded real data
	$(BIN)/fedchord demo

test: setup ## install and run the tests (ARGS="-n 3" and the like go to pytest)
	$(BIN)/python -m pytest $(ARGS)

coverage: setup ## the tests, and which lines of each room they reach
	$(BIN)/python -m pytest --cov=fedchord --cov-report=term:skip-covered

lint: setup ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## the speed and memory benchmark, ratios in one run
	$(BIN)/python benchmarks/run.py --memory

peers: setup ## environments of the libraries that fedchord is timed against, in .peers/ (run.py --peers .peers)
	$(BIN)/python benchmarks/peers.py .peers

$(VENV)/docs: $(VENV)/ready
	$(PIP) -e '.[docs]'
	@touch $@

docs: $(VENV)/docs ## build the documents as a site: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-check: docs ## the site, looked at in a real browser
	FEDCHORD_SITE=site $(BIN)/python -m pytest -n 0 tests/test_site_browser.py

results: setup ## write the claims of docs/results.md anew from what is kept in results/
	$(BIN)/python docs/generate/results_page.py

index: setup ## write what `fedchord list` and `study list` answer, after a change of the catalogue
	$(BIN)/python -m fedchord.cli.index

architecture: setup ## draw docs/architecture.svg anew from the imports
	$(BIN)/python docs/draw_architecture.py

wheel: setup ## build a wheel into dist/
	rm -rf build dist
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .

fresh: wheel ## try the wheel in an empty environment elsewhere, as a user would
	PYTHON=$(PYTHON) .ci/fresh dist/*.whl

sbom: ## a bill of materials of what fedchord runs with, dist/fedchord.cdx.json (CycloneDX; needs EXTRAS=dev,bill)
	$(BIN)/python .ci/bill dist/fedchord.cdx.json
