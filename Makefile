PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test lint format bench docs index wheel

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# torch goes first: its CPU build satisfies every later requirement
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(VENV)/ready ## make .venv with everything in it

demo: setup ## install and run the main job on embedded real data
	$(BIN)/fedchord demo

test: setup ## install and run the tests
	$(BIN)/python -m pytest

lint: setup ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## the speed and memory benchmark, ratios in one run
	$(BIN)/python benchmarks/run.py

docs: setup ## check that the commands and links in the documents hold
	$(BIN)/python -m pytest tests/test_docs.py

index: setup ## write what `fedchord list` and `study list` answer, after a change of the catalogue
	$(BIN)/python -m fedchord.cli.index

wheel: setup ## build a wheel into dist/
	$(BIN)/python -m pip wheel -q --no-deps -w dist .
