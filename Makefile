# `make demo` and `make test` do all set-up themselves; `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SHARED ?= ../shared
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt

.PHONY: help demo test adapters page lint docs bench acceptance wheel clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/core  ## the whole job on embedded data (some minutes on two cores, set-up included)
	$(BIN)/oodzoo demo --out oodzoo-demo

test: $(VENV)/dev  ## all tests
	$(BIN)/python -m pytest

adapters: $(VENV)/adapters  ## PyTorch, timm, torchvision, transformers, open_clip: their tests run too

page: $(VENV)/browser  ## the report in a real browser: Chromium must be installed
	$(BIN)/python -m pytest tests/report/test_browser.py

lint: $(VENV)/dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/dev  ## the documentation, its examples run, in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b doctest docs docs/_build/doctest
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

bench: $(VENV)/dev  ## ratios against a floor and against peers
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

acceptance: $(VENV)/dev  ## real networks on real images from $(SHARED), all of them
	OODZOO_SHARED=$(SHARED) OODZOO_NETWORKS=all $(BIN)/python -m pytest tests/acceptance

wheel: $(VENV)/dev  ## dist/*.whl, and the demo from it in an empty environment
	rm -rf dist build/wheel
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(BIN)/python -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check install -qq -c constraints.txt dist/*.whl
	cd build/wheel && ! bin/python -c 'import torch' 2> /dev/null && bin/oodzoo demo --out demo

clean:  ## remove what make made
	rm -rf $(VENV) build dist docs/_build oodzoo-demo

# Set-up happens in two steps, so that the demo waits for no test tool. A stamp is made anew when
# what decides about packages has changed.
$(VENV)/core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "oodzoo needs Python 3.11 or newer, and $(PYTHON) is `$(PYTHON) --version`;" \
	       "name another with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/dev: $(VENV)/core
	@echo "Adding what the tests need ..."
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/adapters: $(VENV)/dev
	@echo "Adding PyTorch and the libraries of networks ..."
	@$(PIP) -e '.[timm,torchvision,hf,open-clip,pandas]'
	@touch $@

$(VENV)/browser: $(VENV)/dev
	@echo "Adding what drives a browser ..."
	@$(PIP) -e '.[browser]'
	@touch $@
