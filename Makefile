# Everything runs inside .venv; nothing but Python >= 3.11 and pip is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo docs test test-slow test-device bench lint build clean

demo: $(VENV)/.installed-demo
	mkdir -p demo-output
	$(BIN)/kernelgrad demo --output-dir demo-output

# the site, in docs/_build; every example runs
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build
	@echo "open docs/_build/index.html"

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow

# torch's CPU build is some 200 MB: the tests that need it are skipped without
test-device: $(VENV)/.installed-dev
	$(PIP) torch
	$(BIN)/python -m pytest tests/test_device.py

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

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[docs]"
	touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.installed-docs $(VENV)/.installed-demo

clean:
	rm -rf $(VENV) dist build demo-output docs/_build docs/gallery docs/api/generated docs/api/backreferences
