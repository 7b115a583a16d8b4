# `make train` and `make test` do everything, set-up included. Python 3.11 or newer and make are all that must be there.

PYTHON ?= python3
VENV   := .venv
ifeq ($(OS),Windows_NT)
BIN    := $(VENV)/Scripts
else
BIN    := $(VENV)/bin
endif
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help install train test test-fast check format bench clean

help:
	@echo "make train      train PPO on CartPole until it is solved, look at the result"
	@echo "make test       all tests (15 minutes)"
	@echo "make test-fast  the quick ones (2 minutes)"
	@echo "make check      lint, format, types"
	@echo "make format     put the code into the project's format"
	@echo "make bench      speed against Stable-Baselines3 and SBX (half an hour; nothing else should run)"
	@echo "make install    set-up alone, with everything a developer needs"

# Two stages: what training needs, and what development needs on top. A stage is redone when its list changes.
$(VENV)/.train: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'spinup needs Python 3.11 or newer; say which: make PYTHON=python3.12 ...')"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[pytorch]"
	@touch $@

$(VENV)/.dev: $(VENV)/.train
	$(PIP) --editable ".[dev]"
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable ".[bench]"
	@touch $@

install: $(VENV)/.dev

train: $(VENV)/.train
	$(BIN)/python -m spinup.run ppo --env CartPole-v1 --exp_name first --epochs 25 --steps_per_epoch 2000 --pi_lr 0.001 --threads 1
	$(BIN)/python -m spinup.examples.first_look data/first/first_s0

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow"

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
