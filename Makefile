# make demo: identify the cascaded tanks. make test: the same, then linters and tests. Both set up all they need.
PYTHON ?= python3
BIN = .venv/bin
# Dependencies come as wheels: one that would be built from source is an error. Only errors are printed.
PIP = $(BIN)/python -m pip install -qq --disable-pip-version-check --only-binary :all:
EXTRAS = report,adaptive,files,cluster,export,control

.PHONY: help demo test test-slow torture check sanitize package docs clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   identify the cascaded tanks, from data to a model, scores, a picture and a report"
	@echo "make test   the demo, linters, and the fast test suite"
	@echo "make docs   the documentation as a site, in site/"

# What the package is built with lies in .venv before it, so that its build needs no second copy of JAX. Dependency
# groups need pip 25.1.
.venv/made: pyproject.toml CMakeLists.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tausid needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	@echo "Setting up .venv: downloads some 300 MB and takes a minute or two, once."
	@$(PYTHON) -m venv .venv
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) --group build
	@touch $@

# A stamp per set of dependencies, renewed when these or the compiled sources change.
SOURCES = .venv/made $(wildcard cmake/*.py) $(shell find src -path '*csrc*' -type f)
.venv/demo: $(SOURCES)
	@echo "Installing tausid."
	@$(PIP) --no-build-isolation -e ".[report]"
	@touch $@

.venv/test: $(SOURCES)
	@echo "Installing tausid with everything that its tests need."
	@$(PIP) --no-build-isolation -e ".[$(EXTRAS)]" --group dev
	@touch .venv/demo $@

.venv/docs: $(SOURCES)
	@$(PIP) --no-build-isolation -e . --group docs
	@touch $@

demo: .venv/demo
	@$(BIN)/tausid demo --out demo

check: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every warning, a broken link or an undocumented name among them, is an error.
docs: .venv/docs
	$(BIN)/zensical build --clean --strict

# The demo and the linters keep one core busy each; then the tests want both, also under make -j. Neighbours stay on one
# core (worksteal), as they share fixtures and compiled programs.
test: .venv/test
	$(MAKE) -j 2 demo check
	TAUSID_NO_FUSED=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "scan and not slow" tests/test_training.py tests/test_simulation.py
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

# With the optimisation that users get; the fast tests compile with less of it.
test-slow: .venv/test
	XLA_FLAGS=--xla_cpu_multi_thread_eigen=false $(BIN)/python -m pytest -q -n 2 -m slow

# Faults by the thousand, and the table of docs/reliability.md; under an hour on two cores.
torture: .venv/test
	$(BIN)/python tests/torture.py --write docs/reliability.md

# The compiled engine under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer; needs a C++ compiler.
sanitize:
	bash tests/sanitize.sh

# A wheel and an sdist in dist/; the wheel is built from the sdist.
package: .venv/test
	$(BIN)/python -m build --no-isolation .

clean:
	rm -rf .venv demo build dist site .mypy_cache .ruff_cache .pytest_cache
