# Every target sets up what it needs: a virtual environment in .venv, with the versions of constraints.txt.
PYTHON ?= python3
TORCH ?= torch
VENV := .venv
BIN := $(VENV)/bin
JOEYNMT := .venv-joeynmt
INSTALL := python -m pip --disable-pip-version-check install --quiet
PIP := $(BIN)/$(INSTALL) -c constraints.txt

.PHONY: quickstart test test-fast lint format docs reference bench bench-attention bench-translation bench-language bench-step bench-quality trials clean

quickstart: $(VENV)/toolkit.stamp  ## train two small translators and compare them
	$(BIN)/qknorm quickstart

# Each worker keeps a stretch of neighbouring tests, which share fixtures, and takes from the others when it is done.
test: $(VENV)/dev.stamp  ## all tests
	$(BIN)/python -m pytest -n auto --dist worksteal

test-fast: $(VENV)/dev.stamp  ## without the slow ones
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/docs.stamp  ## the documentation as a site, build/site; to read it: python -m http.server -d build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

reference: $(VENV)/toolkit.stamp  ## the pages that are made from the code
	$(BIN)/python docs/recipes.py > docs/recipes.md
	$(BIN)/python -m typer qknorm.cli utils docs --name qknorm --title "Every command" > docs/commands.md

bench: bench-attention bench-translation bench-language bench-step  ## speed and memory against the alternatives, in interleaved runs

bench-attention: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks.attention

bench-translation: $(VENV)/bench.stamp  ## with REFERENCE=FOLDER also against a checkout of the first paper's code
	$(BIN)/python -m benchmarks.translation $(if $(REFERENCE),--reference $(REFERENCE))

bench-language: $(VENV)/bench.stamp  ## with NANOGPT=FOLDER also against a checkout of nanoGPT
	$(BIN)/python -m benchmarks.language $(if $(NANOGPT),--nanogpt $(NANOGPT))

bench-step: $(VENV)/toolkit.stamp  ## a training step; with OLD=FOLDER in turns with a checkout of another commit; [THREADS=2]
	$(BIN)/python -m benchmarks.step $(if $(OLD),--old $(OLD)) $(if $(THREADS),--threads $(THREADS))

bench-quality: $(VENV)/toolkit.stamp $(JOEYNMT)/joeynmt.stamp  ## DATA=FOLDER [PAIR=gl-en] [MINUTES=60] [OURS="20 10"] [THREADS=1] [REFERENCE=FOLDER]
	$(if $(DATA),,$(error say which text: make bench-quality DATA=FOLDER, with train, dev and test in two languages))
	$(BIN)/python -m benchmarks.quality $(DATA) --joeynmt $(JOEYNMT)/bin/python $(if $(PAIR),--pair $(PAIR)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(OURS),--ours $(OURS)) $(if $(THREADS),--threads $(THREADS)) $(if $(REFERENCE),--reference $(REFERENCE))

trials: $(VENV)/toolkit.stamp  ## settings tried on dev sets: [DATA=FOLDER] [JOBS=1]; goes on where it was killed
	$(BIN)/python -m benchmarks.trials $(if $(DATA),--data $(DATA)) $(if $(JOBS),--jobs $(JOBS))

clean:
	rm -rf $(VENV) $(JOEYNMT) build dist *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first, so that its build can be chosen: an ordinary package index gives Linux the one for GPUs, several gigabytes.
# For the CPU build: make quickstart TORCH="torch --index-url URL", with the URL that PyTorch's "Start Locally" page shows.
$(VENV)/torch.stamp: $(VENV)/bin/python constraints.txt
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/%.stamp: $(VENV)/torch.stamp pyproject.toml constraints.txt
	$(PIP) -e ".[$*]"
	@touch $@

# JoeyNMT in an environment of its own, with our versions but for protobuf, of which it asks for an older one. It imports
# importlib_metadata without asking for it.
$(JOEYNMT)/joeynmt.stamp: constraints.txt
	$(PYTHON) -m venv $(JOEYNMT)
	grep -v '^protobuf=' constraints.txt > $(JOEYNMT)/constraints.txt
	$(JOEYNMT)/bin/$(INSTALL) -c $(JOEYNMT)/constraints.txt $(TORCH)
	$(JOEYNMT)/bin/$(INSTALL) -c $(JOEYNMT)/constraints.txt joeynmt==2.3.0 importlib_metadata
	@touch $@
