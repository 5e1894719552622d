# Each target sets up all that it needs in .venv, the first time (tools/venv.sh).
#   make test ARGS="-k band -x"      arguments for the command behind a target
#   make PYTHON=python3.12 test      another Python (>= 3.11)
.DEFAULT_GOAL := help
.PHONY: help demo test lint bench setup clean

python := .venv/bin/python
ARGS ?=
export PYTHON

help: ## this list
	@echo "Watersmeet: joins of two streams over sliding windows. Targets:"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## join two streams on local Spark that Spark itself will not, and check every result
	@JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME && $(python) -m watersmeet demo $(ARGS)

test: setup ## run the tests
	@$(python) -m watersmeet warm  # once, not in each of the test processes
	@JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME && $(python) -m pytest -q --numprocesses auto --maxprocesses 4 --dist loadgroup $(ARGS)

lint: setup ## ruff and mypy
	@$(python) -m ruff check $(ARGS) .
	@$(python) -m mypy

bench: setup ## measure the embedded engine against DuckDB, Polars and DataFusion
	@$(python) -m watersmeet bench embedded $(ARGS)

setup: ## set up .venv only
	@tools/venv.sh

clean: ## remove .venv and all caches
	rm -rf .venv .pytest_cache .hypothesis .mypy_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
