# `make quickstart` and `make test` set up everything they need in .venv; nothing else is installed or changed.
PYTHON ?= python3
VENV   := .venv
# the folder and the suffix of programs in a virtual environment, on Windows and elsewhere
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
EXE    := $(if $(filter Windows_NT,$(OS)),.exe)
# defined before INSTALL, which expands CONSTRAINTS at once
CONSTRAINTS ?= constraints.txt
UV     := $(shell command -v uv 2>/dev/null)
# pip reads PIP_FIND_LINKS, uv needs the option; without --use-pep517 old versions of pip ignore build requirements
INSTALL := $(if $(UV),uv pip install --quiet --python $(BIN)/python $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)),$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517) --constraint $(CONSTRAINTS)

TESTS  ?=
DIST   ?= dist
# tests that use much of each required package
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

# write bytecode, so that not every test process compiles the modules
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

slow: $(VENV)/.installed-parity  ## the slow tests (of TESTS), with real data if ../shared/data exists; PART=2/4 runs a quarter
	@ENSUE_TEST_PART=$(PART) $(BIN)/python -m pytest -m slow --numprocesses 2 --dist worksteal $(TESTS)

fuzz: $(VENV)/.installed-test  ## N malformed inputs (20,000), drawn by SEED (0), for all readers and commands
	@PYTHONPATH=tests $(BIN)/python -m fuzz --cases $(N) --seed $(SEED)

mutants: $(VENV)/.installed-mutants  ## mutation tests: COUNT small changes (8) to each part of the code, drawn by SEED
	@PYTHONPATH=tests $(BIN)/python -m mutants --count $(COUNT) --seed $(SEED) --out mutants.jsonl

format: $(VENV)/.installed-dev  ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

check: check-static test  ## format, lint, types and tests, as in CI

check-static: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

docs: $(VENV)/.installed-docs  ## the documentation as pages in docs/_build
	@$(BIN)/sphinx-build -q -W -b html docs docs/_build

notebooks: $(VENV)/.installed-notebooks  ## execute the notebooks, and save their outputs
	@$(BIN)/python notebooks/execute.py

dist: $(VENV)/.installed-release  ## build and check the files of a release in the folder DIST (dist), without uploading
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

bench: $(VENV)/.installed  ## two of the benchmarks of the documentation (benchmarks/README.md)
	@$(BIN)/python benchmarks/training_speed.py && $(BIN)/python benchmarks/generation.py

clean:  ## remove the files of make
	rm -rf $(VENV) docs/_build build dist

build/ziglang: $(VENV)/.installed-test
	@$(INSTALL) --target $@ ziglang

# make does not see the packages of a virtual environment, so each set of packages has a stamp file
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
