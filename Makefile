# What one can do here; each target sets up what it needs by itself, given
# Python 3.11 or newer. Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
EXAMPLES ?= 1000
VENV := .venv
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check
SMALL := $(VENV)/.small
DEV := $(VENV)/.dev
TEMPLATES := $(shell find groupqueue demo -name '*.html' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo demo-admin test model lint format bench fairness build clean
.NOTPARALLEL:

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(SMALL) ## a month of real flights through the queue, checked; ends with a line of JSON
	@$(RUN) manage.py demo_flights

demo-admin: $(SMALL) ## the same data on a running site with its admin, to look at
	@$(RUN) manage.py demo_admin

test: $(DEV) ## all tests, against real servers, with branch coverage
	$(RUN) -m pytest --cov --cov-report=term

model: $(DEV) ## random lives of a queue against a model of it; make EXAMPLES=5000 model
	MODEL_EXAMPLES=$(EXAMPLES) $(RUN) -m pytest tests/model -p no:randomly --no-header -q

lint: $(DEV) ## format, lint, types, layers and templates
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(if $(TEMPLATES),$(RUN) -m djlint --lint --check $(TEMPLATES))

format: $(DEV) ## write the format that lint asks for
	$(RUN) -m ruff check --fix --exit-zero .
	$(RUN) -m ruff format .
	$(if $(TEMPLATES),-$(RUN) -m djlint --reformat --quiet $(TEMPLATES))

bench: $(DEV) ## measure; prints a table and writes benchmarks/latest.json
	@$(RUN) -m benchmarks.run

fairness: $(DEV) ## simulate floods, fresh groups and tiers; prints who waits how long
	@$(RUN) -m benchmarks.fairness

build: $(DEV) ## sdist and wheel, in dist/
	$(RUN) -m build

clean: ## remove what the other targets made
	rm -rf $(VENV) $(VENV).tools build dist htmlcov .coverage .coverage.*
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps say for which pyproject.toml the environment was made. Their
# output goes to stderr: stdout is for what was asked for.

$(SMALL): pyproject.toml scripts/bootstrap
	@{ sh scripts/bootstrap "$(PYTHON)" $(VENV) \
		&& echo "Installing groupqueue for the demo into $(VENV) ..." \
		&& $(PIP_INSTALL) --editable '.[django-redis,embedded,hiredis]' \
		&& touch $@; } >&2

$(DEV): pyproject.toml scripts/bootstrap
	@{ sh scripts/bootstrap "$(PYTHON)" $(VENV) \
		&& echo "Installing groupqueue and its development tools into $(VENV) ..." \
		&& $(PIP_INSTALL) --editable '.[dev]' \
		&& touch $@ $(SMALL); } >&2
