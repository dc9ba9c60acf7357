# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint types setup clean

setup: $(READY)

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/click_model.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest --numprocesses 2

clean:
	rm -rf $(VENV) build *.egg-info
