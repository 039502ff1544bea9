# What one can do here; each target sets up what it needs by itself, given
# Python 3.11 or newer. Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
EXAMPLES ?= 1000
SECONDS ?= 60
SEED ?= 1
SERVER ?= valkey
TIMES ?= 20
SESSIONS ?= suite servers drivers
# Tests wait as often as they compute.
AT_ONCE ?= $(shell $(PYTHON) -c 'import os; print(3 * os.cpu_count() // 2)')
VENV := .venv
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check
NOX := $(VENV).nox
SMALL := $(VENV)/.small
DEV := $(VENV)/.dev
TEMPLATES := $(shell find groupqueue demo -name '*.html' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo demo-admin test test-again model mutants fuzz soak matrix matrix-corners lint format bench scale bench-peers guard fairness build clean
.NOTPARALLEL:

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(SMALL) ## a month of real flights through the queue, checked; ends with a line of JSON
	@$(RUN) manage.py demo_flights

demo-admin: $(SMALL) ## the same data on a running site with its admin, to look at
	@$(RUN) manage.py demo_admin

test: $(DEV) ## all tests, against real servers, with branch coverage
	$(RUN) -m pytest --cov --cov-report=term --numprocesses=$(AT_ONCE) --dist=loadfile \
		--no-loadscope-reorder

test-again: $(DEV) ## the tests that failed, one at a time and with nothing beside them
	$(RUN) -m pytest --last-failed --last-failed-no-failures=none

model: $(DEV) ## random lives of a queue against a model of it; make EXAMPLES=5000 model
	MODEL_EXAMPLES=$(EXAMPLES) $(RUN) -m pytest tests/model -p no:randomly --no-header -q

mutants: $(DEV) ## break the scripts on purpose, in many ways, and see who finds each out
	@$(RUN) -m proof.killing $(NAMES)

soak: $(DEV) ## break everything around workers, then check; make soak SECONDS=3600 SEED=7 SERVER=redis KEEP=1
	@$(RUN) -m proof.soak --seconds $(SECONDS) --seed $(SEED) --server $(SERVER) $(if $(KEEP),--keep)

fuzz: $(DEV) ## random input, many times as much as the tests try; make TIMES=100 fuzz
	FUZZ_TIMES=$(TIMES) $(RUN) -m pytest tests/fuzz --no-header -q

matrix: $(NOX)/.made ## all tests on each Python with each Django, then on each server and driver
	$(NOX)/bin/nox --session $(SESSIONS) $(if $(TESTS),-- $(TESTS))

matrix-corners: $(NOX)/.made ## a selection of them on the oldest, and on the newest, of everything
	$(NOX)/bin/nox --session corners

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

scale: $(DEV) ## hold costs and memory at a million groups and messages against goals; writes benchmarks/scale.json
	@$(RUN) -m benchmarks.scale

bench-peers: $(DEV) ## measure beside other queues, installed for it; writes benchmarks/peers.json and .svg
	@$(RUN) -m benchmarks.peers

guard: $(DEV) ## hold what operations cost, in commands and bytes, against benchmarks/guard.json
	@$(RUN) -m benchmarks.guard

fairness: $(DEV) ## simulate floods, fresh groups and tiers; prints who waits how long
	@$(RUN) -m benchmarks.fairness

build: $(DEV) ## sdist and wheel, in dist/
	$(RUN) -m build

clean: ## remove what the other targets made
	rm -rf $(VENV) $(VENV).tools $(VENV).peers $(NOX) build dist htmlcov .coverage .coverage.*
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps say for which pyproject.toml the environment was made. Their
# output goes to stderr: stdout is for what was asked for.

$(SMALL): pyproject.toml scripts/bootstrap
	@{ sh scripts/bootstrap "$(PYTHON)" $(VENV) \
		&& echo "Installing groupqueue for the demo into $(VENV) ..." \
		&& $(PIP_INSTALL) --editable '.[django-redis,embedded,speed]' \
		&& touch $@; } >&2

$(DEV): pyproject.toml scripts/bootstrap
	@{ sh scripts/bootstrap "$(PYTHON)" $(VENV) \
		&& echo "Installing groupqueue and its development tools into $(VENV) ..." \
		&& $(PIP_INSTALL) --editable '.[dev]' \
		&& touch $@ $(SMALL); } >&2

# The sessions have environments of their own, below this one.
$(NOX)/.made: scripts/bootstrap
	@{ sh scripts/bootstrap "$(PYTHON)" $(NOX) \
		&& echo "Installing nox and uv into $(NOX) ..." \
		&& $(NOX)/bin/python -m pip install --quiet --disable-pip-version-check nox uv \
		&& touch $@; } >&2
