# Each target makes $(VENV) by itself when it is missing.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Each has a nats-server of its own; more than there are cores only fight over them.
WORKERS ?= 2

.PHONY: demo test test-slow bench lint format picture contract settings clean

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

demo: $(BIN)/.installed ## one agent session with three hooks, live
	$(BIN)/hookbus demo

test: $(BIN)/.installed ## the tests, under two minutes
	$(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(BIN)/.installed ## the long forms too
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow or not slow"

bench: $(BIN)/.installed ## the speed tables, as ratios
	$(BIN)/python -m benchmarks

lint: $(BIN)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BIN)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

picture: $(BIN)/.installed ## docs/demo.svg, from a real run
	$(BIN)/hookbus demo --svg docs/demo.svg

contract: $(BIN)/.installed ## schemas/json, schemas/asyncapi.yaml and schemas/vectors from the models
	$(BIN)/python schemas/generate.py

settings: $(BIN)/.installed ## docs/configuration.md from the settings
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv .hookbus dist build
