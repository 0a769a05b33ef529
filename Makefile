# Everything runs inside .venv; nothing but Python >= 3.11 and pip is needed.
PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo docs test test-slow test-minimal test-newest test-wheel test-reproducible audit test-device test-recipes fuzz bench lint build clean

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

# the oldest versions that pyproject.toml allows, in an environment of their own; matplotlib 3.8
# calls what pyparsing 3.3 deprecates
test-minimal: OLD := .venv-minimal
test-minimal:
	$(PYTHON) -m venv $(OLD)
	grep -oE '"[a-z-]+(\[[a-z,]+\])?>=[0-9.]+"' pyproject.toml | tr -d '"' \
		| sed -E 's/\[.*\]//; s/>=/==/' | sort -u > $(OLD)/constraints.txt
	echo 'pyparsing<3.3' >> $(OLD)/constraints.txt
	$(OLD)/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check \
		--constraint $(OLD)/constraints.txt -e ".[test]"
	$(OLD)/$(SCRIPTS)/python -m pytest -n auto --dist loadfile

# as users get it: the wheel and what it needs, in a new environment, outside of this folder
test-wheel: build
	rm -rf .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check \
		"$$(ls -t dist/*.whl | head -1)[cli]"
	cd .venv-wheel && $(SCRIPTS)/python ../tests/release/first_steps.py

# the same files give the same wheel and source distribution, to the byte
test-reproducible: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow tests/test_release.py -k same_bytes

# the newest versions of what the package depends on, in an environment of their own
test-newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check \
		--upgrade --upgrade-strategy eager -e ".[test]"
	.venv-newest/$(SCRIPTS)/python -m pytest -n auto --dist loadfile

# known holes of what the package depends on; asks PyPI. A package that cannot be audited is
# an error, too
audit: $(VENV)/.installed-demo
	$(PIP) pip-audit
	$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/frozen.txt
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip -r $(VENV)/frozen.txt

# torch's CPU build is some 200 MB: the tests that need it are skipped without
test-device: $(VENV)/.installed-dev
	$(PIP) torch
	$(BIN)/python -m pytest tests/test_device.py

# the recipes of the manual, with the packages that they name, in an environment of their own
test-recipes:
	$(PYTHON) -m venv .venv-recipes
	.venv-recipes/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check \
		-e ".[cli,io,plot]" pytest mlflow-skinny shap mapie optuna fastapi httpx autogluon.tabular
	MPLBACKEND=Agg .venv-recipes/$(SCRIPTS)/python -m pytest -rs tests/test_docs.py -k recipes

# an hour of damaged and hostile inputs; goes on where the last run ended
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m fuzz all --minutes 60

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
	$(PIP) -e ".[demo]"
	touch $@

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[docs]"
	touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.installed-docs $(VENV)/.installed-demo

clean:
	rm -rf $(VENV) .venv-minimal .venv-newest .venv-wheel .venv-recipes dist build demo-output docs/_build docs/gallery docs/api/generated docs/api/backreferences
