# Each target makes the virtual environment and installs what it needs when it is missing.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
SUDO := $(shell [ $$(id -u) = 0 ] || echo sudo)

.PHONY: demo docs test fuzz lint pytest browser clean

demo: $(VENV)/.installed
	$(BIN)/hurl demo --out runs/demo

# The site, in site/: it opens as it lies there, and asks no other host for anything.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Linting needs a minute of one core, which the tests leave free at times.
test: $(VENV)/.installed-dev browser
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Thousands of tries at breaking it; the table goes into the docs. FUZZ="--cases 500 --seed 1" for others.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz --page docs/reliability.md $(FUZZ)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The page of a report is tested in a real browser.
browser:
	@{ command -v chromium && command -v chromedriver; } >/dev/null || { $(SUDO) apt-get update && \
	  $(SUDO) apt-get install --yes --no-install-recommends chromium chromium-driver; }

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip uninstall --quiet --yes hurl  # what this distribution was called before
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[experiments]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) build site *.egg-info
