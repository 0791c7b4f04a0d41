# make demo: identify the cascaded tanks. make test: check, then test. Both set up all they need in .venv.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test test-slow check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   identify the cascaded tanks, from data to a model, scores and a picture"
	@echo "make test   the demo, linters, and the fast test suite"

# A stamp per set of extras, renewed when the dependencies change.
.venv/demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tausid needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[plots]"
	@touch $@

.venv/test: .venv/demo
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

demo: .venv/demo
	$(BIN)/tausid demo --out demo

check: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: demo check
	$(BIN)/python -m pytest -q -n 2

test-slow: .venv/test
	$(BIN)/python -m pytest -q -n 2 -m slow

clean:
	rm -rf .venv demo build .mypy_cache .ruff_cache .pytest_cache
