# `make demo` and `make test` set everything up themselves; `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SHARED ?= ../shared
MODELS ?= all
# one process more than cores: some tests wait for a server
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(8, 1 + (os.cpu_count() or 1)))')
# in the order of the folders: long files with few tests would otherwise start last
PARALLEL ?= -n $(WORKERS) --dist loadfile --no-loadscope-reorder
INSTALL = -m pip --disable-pip-version-check install -qq
PIP    := $(BIN)/python $(INSTALL) -c constraints.txt
SCHEMA := $(BIN)/check-jsonschema --builtin-schema
SPHINX := $(BIN)/sphinx-build -W --keep-going -q -d docs/_build/doctrees

.PHONY: help demo test coverage adapters page lint docs site bench acceptance cluster wheel slow fuzz worlds \
        versions lowest clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/core  ## run everything on the embedded data: set-up, then less than a minute
	$(BIN)/oodzoo demo --out oodzoo-demo

test: $(VENV)/dev  ## run the tests and doctests
	$(BIN)/python -m pytest $(PARALLEL) $(OPTIONS)

coverage:  ## run the tests and report their coverage
	$(MAKE) test OPTIONS='--cov=oodzoo --cov-report=term:skip-covered'

adapters: $(VENV)/adapters  ## install PyTorch, model and data libraries, MLflow, TensorBoard, Ray

page: $(VENV)/browser  ## test the report in Chromium, which must be installed
	$(BIN)/python -m pytest tests/page

lint: $(VENV)/dev  ## check style, types, imports and configuration files; show the size
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-forms .github/ISSUE_TEMPLATE/*_*.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.readthedocs .readthedocs.yaml
	$(SCHEMA) vendor.citation-file-format --default-filetype yaml CITATION.cff
	$(BIN)/python tools/size.py

docs: $(VENV)/dev  ## build the documentation in docs/_build/html and run its examples
	$(SPHINX) -b doctest docs docs/_build/doctest
	$(SPHINX) -a -b html docs docs/_build/html

site: docs $(VENV)/browser  ## build the documentation and test it: links, pages in Chromium
	$(BIN)/python -m pytest tests/site

notebooks: $(VENV)/adapters  ## execute the notebooks in examples/ and store their outputs
	$(BIN)/python tools/notebooks.py

bench: $(VENV)/dev  ## run the benchmarks: ratios against lower bounds and other libraries
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

acceptance: $(VENV)/dev  ## test real models on the images in ../shared; MODELS=small for six
	OODZOO_SHARED=$(SHARED) OODZOO_MODELS=$(MODELS) $(BIN)/python -m pytest tests/acceptance

cluster: $(VENV)/ray  ## test the engine ray on a cluster of two nodes; Linux, some need root
	$(BIN)/python -m pytest tests/cluster

wheel: $(VENV)/dev  ## build dist/*.whl and run the demo from it in an empty environment
	rm -rf dist build/wheel
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(BIN)/python -m venv build/wheel
	build/wheel/bin/python $(INSTALL) -c constraints.txt dist/*.whl
	cd build/wheel && ! bin/python -c 'import torch' 2> /dev/null && bin/oodzoo demo --out demo

slow: $(VENV)/backends acceptance cluster worlds fuzz versions lowest  ## run what takes too long for CI; hours

worlds: $(VENV)/dev  ## try what is recommended in all simulated zoos
	OODZOO_WORLDS=all $(BIN)/python -m pytest $(PARALLEL) tests/maths/test_worlds.py

fuzz: $(VENV)/dev  ## try 20,000 damaged files of each kind, 2,000 histories of a store, all kills
	OODZOO_FUZZ=20000 OODZOO_HISTORIES=2000 OODZOO_KILL_STEP=1 $(BIN)/python -m pytest \
	  tests/durability tests/store/test_histories.py tests/tuning/test_runs.py

versions:  ## run all tests but those of PyTorch on Python 3.12 and 3.13, where installed
	@for version in 3.12 3.13; do \
	  export PYENV_VERSION=$$version; \
	  if python$$version -c '' 2> /dev/null; then \
	    $(MAKE) PYTHON=python$$version VENV=build/python$$version test || exit 1; \
	  else echo "Python $$version is not installed: skipped"; fi; \
	done

# Old versions of packages warn about each other, so warnings are not errors here. Pillow before 13
# cannot read an uncompressed YCbCr TIFF that it wrote itself; oodzoo reports it as unreadable.
YCBCR := tests/data/test_images.py::test_every_usual_file_becomes_rgb[TIFF YCbCr]
lowest: build/lowest/core  ## run all tests on the lowest versions allowed (Python 3.11 or 3.12)
	build/lowest/bin/python -m pytest -W default --deselect '$(YCBCR)'

clean:  ## remove everything that make has created
	rm -rf $(VENV) build dist docs/_build oodzoo-demo .coverage

# Set-up has several steps, so that the demo need not wait for test tools. A step is repeated when
# the files that list the packages have changed.
$(VENV)/core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "oodzoo needs Python 3.11 or newer, but $(PYTHON) is `$(PYTHON) --version`;" \
	       "choose another with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/dev: $(VENV)/core
	@echo "Installing test tools ..."
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/adapters: $(VENV)/dev
	@echo "Installing PyTorch, model and data libraries ..."
	@$(PIP) -e '.[timm,torchvision,hf,open-clip,sentence-transformers,tune,hub,sources,mlflow,tensorboard,ray]'
	@touch $@

$(VENV)/browser: $(VENV)/dev
	@echo "Installing browser automation ..."
	@$(PIP) -e '.[browser]'
	@touch $@

$(VENV)/ray: $(VENV)/dev
	@echo "Installing Ray ..."
	@$(PIP) -e '.[ray]'
	@touch $@

$(VENV)/backends: $(VENV)/dev
	@echo "Installing Dask and Ray ..."
	@$(PIP) -e '.[backends]'
	@touch $@

build/lowest/core: pyproject.toml constraints-lowest.txt
	@echo "Setting up build/lowest ..."
	@test -x build/lowest/bin/python || $(PYTHON) -m venv build/lowest
	@build/lowest/bin/python $(INSTALL) -c constraints-lowest.txt -e '.[dev]'
	@touch $@
