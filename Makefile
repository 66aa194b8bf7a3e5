# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup system demo test lint format bench bench-long clean

PY := .venv/bin/python
STAGE ?=
ONLY ?=
FAST ?=
# One OpenMP thread that spins beside a busy core makes the other 7-22x slower (docs/results.md).
export OMP_WAIT_POLICY ?= PASSIVE

help: ## this page
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.installed ## .venv with everything, from constraints.txt in one resolution

.venv/.installed: pyproject.toml constraints.txt .ci/setup
	@bash .ci/setup

demo: setup ## the main job on real human data; STAGE=train runs one stage
	@.venv/bin/robolearn demo --out runs/demo $(if $(STAGE),--stage $(STAGE))

test: setup ## all tests (reduced kill, fault and fuzz counts); FAST=1: units, contracts and golden numbers
	@bash .ci/system browser
	@$(if $(FAST),$(PY) -m pytest -q -n 2 --dist loadfile --fast,bash .ci/test)

lint: setup ## what CI checks before the tests
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/lint-imports --no-cache
	@.venv/bin/pyright
	@.venv/bin/codespell

format: setup ## rewrite the sources in the house format
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: setup ## benchmarks: ratios within one run, to runs/bench/; ONLY=store runs one area
	@$(PY) -m tests.benchmarks.run $(ONLY)

bench-long: setup ## full kill, fault and fuzz counts, soaks
	@$(PY) -m tests.benchmarks.run --long $(ONLY)
	@$(PY) -m pytest -q -m slow

clean: ## remove .venv and caches, keep runs/
	@rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
