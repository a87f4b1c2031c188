# Every target sets up what it needs: a virtual environment in .venv, with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: quickstart test test-fast lint format bench clean

quickstart: $(VENV)/toolkit.stamp  ## see the library at work
	$(BIN)/qknorm quickstart

test: $(VENV)/dev.stamp  ## all tests
	$(BIN)/python -m pytest -n auto

test-fast: $(VENV)/dev.stamp  ## without the slow ones
	$(BIN)/python -m pytest -n auto -m "not slow"

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/bench.stamp  ## speed and memory against the alternatives, in one interleaved run
	$(BIN)/python -m benchmarks.attention
	$(BIN)/python -m benchmarks.language $(if $(NANOGPT),--nanogpt $(NANOGPT))

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and pinned: an open version range would bring several gigabytes of GPU libraries.
$(VENV)/torch.stamp: $(VENV)/bin/python constraints.txt
	$(PIP) torch
	@touch $@

$(VENV)/%.stamp: $(VENV)/torch.stamp pyproject.toml constraints.txt
	$(PIP) -e ".[$*]"
	@touch $@
