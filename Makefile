# Everything a contributor runs. `make test` is exactly what CI runs.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix gen bench docs clean servers \
	check-format check-lint check-types check-imports check-spelling check-generated check-lua

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

setup: $(STAMP) ## Create .venv and install the package with everything needed to work on it

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup ## Show the queue at work
	$(BIN)/duly demo

servers: ## Install the servers that the tests run against
	@tools/install_servers.sh

# Three passes: what works most of the time, what mostly waits for processes and leases, and what measures.
test: setup servers check ## Run all checks and all tests
	$(BIN)/python -m pytest -n 4 --dist worksteal -m 'not serial and not fault'
	$(BIN)/python -m pytest -n 4 --dist worksteal -m 'fault and not serial'
	$(BIN)/python -m pytest -m serial

check: check-format check-lint check-types check-imports check-spelling check-generated check-lua ## Run all checks that run no code

check-format: setup
	$(BIN)/ruff format --check --quiet .

check-lint: setup
	$(BIN)/ruff check --quiet .

check-types: setup
	$(BIN)/mypy

check-imports: setup
	$(BIN)/lint-imports

check-spelling: setup
	$(BIN)/codespell

check-generated: setup
	$(BIN)/python tools/unasync.py --check

check-lua: setup
	$(BIN)/python tools/check_lua.py

fix: setup gen ## Fix what can be fixed by a tool
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

gen: setup ## Write the sync client from the async one, and the picture of the live view
	$(BIN)/python tools/unasync.py
	$(BIN)/python tools/picture.py

bench: setup ## Run the benchmarks
	$(BIN)/python -m benchmarks

docs: setup ## Build the documentation as a site, in site/
	$(BIN)/mkdocs build --strict --quiet

clean: ## Remove all that these commands made
	rm -rf .venv dist build site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
