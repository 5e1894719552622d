# Each target sets up all that it needs in .venv, the first time (tools/venv.sh).
#   make test ARGS="-k band -x"      arguments for the command behind a target
#   make PYTHON=python3.12 test      another Python (>= 3.11)
#   make SEED=2 test-long            other random examples (`make fuzz` has others every time)
.DEFAULT_GOAL := help
.PHONY: help demo broker test test-gpu test-long fuzz lint bench report docs setup clean

python := .venv/bin/python
ARGS ?=
MINUTES ?= 10
SEED ?= 1
pytest := $(python) -m pytest -q --numprocesses auto --maxprocesses 4 --dist loadgroup
export PYTHON

help: ## this list
	@echo "Watersmeet: joins of two streams over sliding windows. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## join two streams on local Spark that Spark itself will not, and check every result
	@JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME && $(python) -m watersmeet demo $(ARGS)

broker: setup ## a Kafka broker on localhost:9092 to try things with, until Ctrl-C
	@JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME && $(python) tools/broker.py broker $(ARGS)

test: setup ## run the tests
	@tools/opencl.sh
	@$(python) -m watersmeet warm  # once, not in each of the test processes
	@JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME && $(pytest) $(ARGS)

test-gpu: setup ## run the tests of joins on a GPU on the one of this machine (elsewhere `make test` simulates one)
	@WATERSMEET_TEST_GPU=1 $(python) -m pytest -q tests/device $(ARGS)

test-long: setup ## many kills, many examples, bounds checks, pages in a browser, some minutes of random joins
	@tools/chromium.sh
	@$(python) -m watersmeet warm
	@JAVA_HOME=$$(tools/java.sh) && export JAVA_HOME && \
	  WATERSMEET_CRASHES=7 $(pytest) -m "long or slow" tests/spark/test_crash.py $(ARGS) && \
	  $(pytest) -m long --deselect tests/spark/test_crash.py $(ARGS)
	@HYPOTHESIS_PROFILE=nightly HYPOTHESIS_EXAMPLES=30 $(pytest) --hypothesis-seed=$(SEED) tests/test_contract.py tests/test_self_join.py tests/test_failures.py \
	  tests/test_cores.py tests/test_core_processes.py tests/test_shared.py tests/test_order.py
	@$(python) tests/fuzz.py --minutes 3 --seed $(SEED)

fuzz: setup ## random joins against the brute-force answer: make fuzz MINUTES=30
	@$(python) tests/fuzz.py --minutes $(MINUTES) $(ARGS)

lint: setup ## ruff and mypy
	@$(python) -m ruff check $(ARGS) .
	@$(python) -m mypy

bench: setup ## measure the embedded engine against DuckDB, Polars and DataFusion
	@$(python) -m watersmeet bench embedded $(ARGS)

report: setup ## one page of all that was measured: report.html
	@$(python) -m watersmeet report $(ARGS)

docs: setup ## build the site in site/, to be opened from there; broken links fail
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict $(ARGS)  # with --quiet it would not see warnings
	@echo "site/index.html"

setup: ## set up .venv only
	@tools/venv.sh

clean: ## remove .venv and all caches
	rm -rf .venv site .pytest_cache .hypothesis .mypy_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
