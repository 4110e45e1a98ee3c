# `make quickstart` and `make test` set up everything they need in .venv; nothing else is installed or changed.
PYTHON ?= python3
VENV   := .venv
# where a virtual environment of Windows has its programs, and how they end
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
EXE    := $(if $(filter Windows_NT,$(OS)),.exe)
# INSTALL is made of it here and now, so it stands above
CONSTRAINTS ?= constraints.txt
UV     := $(shell command -v uv 2>/dev/null)
# pip reads PIP_FIND_LINKS by itself, uv has to be told; old pips build sdists without what these ask for unless PEP 517
INSTALL := $(if $(UV),uv pip install --quiet --python $(BIN)/python $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)),$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517) --constraint $(CONSTRAINTS)

TESTS  ?=
DIST   ?= dist
# tests that pass through much of every package that is used
WIDE   := $(addprefix tests/,test_recipe.py test_extension.py test_arguments.py training/test_pictures.py metrics text \
            extensions/serving/test_completions.py cli/test_startup.py extensions/experiments extensions/exporting/onnx)
# public data for `make models`: UD English-EWT, in a folder with this name
DATA   ?= ../shared/data
EWT    := $(DATA)/ud_english_ewt
# all-MiniLM-L6-v2 for `make vectors`: a folder of sentence-transformers
MINILM ?= build/all-MiniLM-L6-v2
N      ?= 20000
SEED   ?= 0
COUNT  ?= 8
PART   ?= 1/1

# modules are compiled once, and not again by every process of the tests
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help quickstart test slow fuzz mutants check check-static format docs notebooks dist models vectors lowest bench clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: $(VENV)/.installed  ## train a small language model on this machine, about a minute
	@$(BIN)/ensue quickstart

test: $(VENV)/.installed-test  ## the default tests (of TESTS) on two cores, about two minutes
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(TESTS)

lowest:  ## some tests with the lowest versions that pyproject.toml allows, in build/lowest
	@mkdir -p build && $(MAKE) --no-print-directory test VENV=build/lowest CONSTRAINTS=constraints-lowest.txt \
	  TESTS="-p no:cacheprovider $(WIDE)"

slow: $(VENV)/.installed-parity  ## the slow tests (of TESTS), on ../shared/data where it is there; PART=2/4 has a quarter of them
	@ENSUE_TEST_PART=$(PART) $(BIN)/python -m pytest -m slow --numprocesses 2 --dist worksteal $(TESTS)

fuzz: $(VENV)/.installed-test  ## N odd inputs (20,000) made of SEED (0) for everything that reads
	@PYTHONPATH=tests $(BIN)/python -m fuzz --cases $(N) --seed $(SEED)

mutants: $(VENV)/.installed-mutants  ## COUNT small changes (8) to each part of the code, drawn by SEED: do tests notice?
	@PYTHONPATH=tests $(BIN)/python -m mutants --count $(COUNT) --seed $(SEED) --out mutants.jsonl

format: $(VENV)/.installed-dev  ## put the code in the house style
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

check: check-static test  ## format, lint, types and tests, as in CI

check-static: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

docs: $(VENV)/.installed-docs  ## the documentation as pages in docs/_build
	@$(BIN)/sphinx-build -q -W -b html docs docs/_build

notebooks: $(VENV)/.installed-notebooks  ## the notebooks executed, their outputs kept in them
	@$(BIN)/python notebooks/execute.py

dist: $(VENV)/.installed-release  ## what a release uploads, in the folder DIST (dist), built and checked; nothing is uploaded
	@mkdir -p build && $(BIN)/python -m build --no-isolation --outdir $(DIST) . > build/dist.log || { cat build/dist.log >&2; exit 1; }
	@$(BIN)/twine check --strict $(DIST)/* && $(BIN)/cffconvert --validate

models: $(VENV)/.installed  ## the package of models ensue-en in models/en, trained on the data in DATA, about half an hour
	@test -f $(EWT)/en_ewt-ud-train.conllu.xz || { echo "no $(EWT)/en_ewt-ud-train.conllu.xz: make models DATA=FOLDER" >&2; exit 1; }
	@for run in cut-lstm tag-columns; do test -f build/models/$$run/README.md || $(BIN)/ensue train $$run --overwrite \
	  --train $(EWT)/en_ewt-ud-train.conllu.xz --valid $(EWT)/en_ewt-ud-dev.conllu.xz --out build/models/$$run --threads 1 || exit 1; done
	@cp models/en/card.md build/models/cut-lstm/README.md
	@PYTHONPATH=models/packing $(BIN)/python -m ensue_packing build/models/cut-lstm --tagger build/models/tag-columns --wheel en \
	  --out models/en --precision int8 --license CC-BY-SA-4.0 --license-file $(EWT)/LICENSE.txt \
	  --test $(EWT)/en_ewt-ud-test.conllu.xz --overwrite
	@rm -rf models/en/ensue_en models/en/*.dist-info && $(BIN)/python -m zipfile -e models/en/ensue_en-1.0-py3-none-any.whl models/en

vectors: $(VENV)/.installed  ## the package ensue-en-vectors in models/en-vectors, distilled from MINILM with texts of DATA, half an hour
	@test -f $(MINILM)/model.safetensors || { echo "no $(MINILM)/model.safetensors: make vectors MINILM=FOLDER, all-MiniLM-L6-v2" >&2; exit 1; }
	@test -f build/models/minilm/README.md || $(BIN)/ensue import $(MINILM) --out build/models/minilm
	@$(BIN)/python models/en-vectors/distill.py build/models/minilm $(DATA) build/models/en-vectors
	@cp models/en-vectors/card.md build/models/en-vectors/README.md
	@PYTHONPATH=models/packing $(BIN)/python -m ensue_packing build/models/en-vectors --wheel en-vectors --out models/en-vectors \
	  --precision int8 --license Apache-2.0 --license-file models/en-vectors/LICENSE.txt --overwrite
	@rm -rf models/en-vectors/ensue_en_vectors models/en-vectors/*.dist-info && \
	  $(BIN)/python -m zipfile -e models/en-vectors/ensue_en_vectors-1.0-py3-none-any.whl models/en-vectors

bench: $(VENV)/.installed  ## the measurements of the docs, one by one (benchmarks/README.md)
	@$(BIN)/python benchmarks/training_speed.py && $(BIN)/python benchmarks/generation.py

clean:  ## remove what make made
	rm -rf $(VENV) docs/_build build dist

build/ziglang: $(VENV)/.installed-test
	@$(INSTALL) --target $@ ziglang

# make cannot follow a venv's insides: one stamp for each set of packages
$(BIN)/python$(EXE):
	@echo "making $(VENV) and installing (about a minute; torch is large) ..."
	@$(if $(UV),uv venv --quiet --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV)) || \
	  { rm -rf $(VENV); echo "no virtual environment: on Debian install python3-venv, or have uv on the path" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/python$(EXE)
	@$(INSTALL) --editable '.[pictures,scores]' && $(BIN)/python -m compileall -q src && touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@$(INSTALL) --editable '.[test]' && touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[dev]' && touch $@

$(VENV)/.installed-parity: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[parity]' && touch $@

$(VENV)/.installed-browser: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[browser]' && touch $@

$(VENV)/.installed-notebooks: $(VENV)/.installed
	@$(INSTALL) --editable '.[notebooks]' && touch $@

$(VENV)/.installed-mutants: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[mutants]' && touch $@

$(VENV)/.installed-release: $(VENV)/.installed
	@mkdir -p build && $(INSTALL) --editable '.[release]' && touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@$(INSTALL) --editable '.[docs]' && touch $@
