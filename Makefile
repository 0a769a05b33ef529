# Everything runs inside .venv; nothing but Python >= 3.11 and pip is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-slow bench lint build clean

demo: $(VENV)/.installed-demo
	mkdir -p demo-output
	$(BIN)/kernelgrad demo --output-dir demo-output

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.run roofline
	$(BIN)/python -m benchmarks.run time_to_error

build: $(VENV)/.installed-dev
	$(BIN)/python -m build

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[cli,io,plot]"
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.installed-demo

clean:
	rm -rf $(VENV) dist build demo-output
