# Everything a contributor runs. `make test` is exactly what CI runs. tests/README.md says what runs where and why.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
NODE_STAMP := tools/node_modules/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick test-all test-foreign soak check fix gen figures bench bench-scale bench-check bench-accept docs release-check clean \
	servers bytecode check-format check-lint check-types check-imports check-spelling check-words \
	check-generated check-lua check-lua-format

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

setup: $(STAMP) ## Create .venv and install the package with everything needed to work on it

$(STAMP): pyproject.toml
	@echo "Installing into .venv; this takes a few minutes the first time"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup ## Show the queue at work
	$(BIN)/duly demo

servers: ## Install the servers that the tests run against
	@tools/install_servers.sh

# Two passes: all tests, more at a time than there are processors, since many wait for processes and leases; and tests
# that need a quiet machine. The second names its folders, since collecting all tests takes a while. Its groups are those
# tests that one process runs: they share a browser.
PYTEST = $(BIN)/python -m pytest
PARALLEL = -n 6 --dist worksteal
QUIET = tests/worker tests/web
define run-tests
	$(PYTEST) $(PARALLEL) -m 'not quiet and not measure $(1)'
	$(PYTEST) -n 4 --dist loadgroup -m 'quiet and not measure $(1)' $(QUIET)
endef

# In a new clone, each of the processes that run the tests would compile all of them. Errors are reported by the tests.
bytecode: setup
	-@$(PYTEST) --collect-only >/dev/null

test: setup servers ## Run all checks and the tests that CI runs: 10 minutes
	$(MAKE) --jobs 2 --output-sync check bytecode
	$(call run-tests,and not long)

quick: setup servers ## Run the tests that need no faults, on Valkey and in memory
	DULY_TEST_MATRIX=quick $(PYTEST) $(PARALLEL) -m 'not fault and not quiet and not measure and not long and not slow' \
		tests/unit tests/lua tests/client tests/worker tests/acl tests/model tests/testing

test-all: export DULY_TEST_MATRIX = whole
test-all: setup servers ## Run the whole matrix of servers, users, mutants and Pythons: more than half an hour
	$(MAKE) --jobs 2 --output-sync check bytecode
	$(call run-tests,)
	tools/test_other_pythons.sh

test-foreign: setup servers ## Run the tests of kombu, Celery and Dramatiq, from the package index, on Duly: half an hour (estimated)
	PYTHONPATH=. $(BIN)/python tools/test_foreign.py $(SUITES)
	PYTHONPATH=. $(BIN)/python tools/test_foreign_dramatiq.py

SOAK_SECONDS ?= 3600
soak: setup servers ## Run random histories and the recirculation of messages for hours
	DULY_RECIRCULATION_SECONDS=$(SOAK_SECONDS) DULY_SOAK_FILE=benchmarks/soaks/recirculation.json \
		$(PYTEST) tests/fault/test_recirculation.py
	DULY_MODEL_SEED=random DULY_MODEL_EXAMPLES=20000 \
		$(PYTEST) tests/model/test_machine.py tests/model/test_topics.py

bench-check: setup servers ## Run everything that measures, and compare it with its targets
	$(PYTEST) -m measure tests/fault tests/scale
	$(BIN)/python -m benchmarks.instructions
	$(BIN)/python -m benchmarks wire engine topic worker --peers none

bench-accept: setup ## Store the instruction counts of this version: a rise is accepted with its commit
	$(BIN)/python -m benchmarks.instructions --accept

check: check-format check-lint check-types check-imports check-spelling check-words check-generated check-lua check-lua-format ## Run all checks that run no code

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

check-words: setup
	$(BIN)/python tools/check_words.py

check-generated: setup
	$(BIN)/python tools/unasync.py --check

check-lua: setup
	$(BIN)/python tools/check_lua.py

check-lua-format: $(NODE_STAMP)
	node tools/format_lua.mjs --check

$(NODE_STAMP): tools/package.json
	npm install --prefix tools --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

fix: setup gen $(NODE_STAMP) ## Fix what can be fixed by a tool
	node tools/format_lua.mjs
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

gen: setup figures ## Write the sync client and its tests, docs/conformance.md, pictures, and the figures of the pages
	$(BIN)/python tools/unasync.py
	$(BIN)/python -m tests.client.conformance
	$(BIN)/python tools/picture.py
	$(BIN)/python -m tools.diagrams

figures: setup ## Write the figures and plots of all pages from benchmarks/results
	$(BIN)/python -m benchmarks.report

bench: setup ## Measure Duly beside all peers, and write the figures of the pages: 40 minutes (estimated)
	$(BIN)/python -m benchmarks; missed=$$?; $(BIN)/python -m benchmarks.report; exit $$missed

bench-scale: setup ## Measure growth: 10,000,000 messages, 10,000 queues, 8 worker processes: 15 minutes (estimated)
	$(BIN)/python -m benchmarks scale && $(BIN)/python -m benchmarks.report

release-check: setup ## Check what a release needs: changelog, links, licences, site, wheel, clean install
	$(BIN)/python -m tools.release_check

docs: setup ## Build the documentation as a site, in site/
	$(BIN)/mkdocs build --strict --quiet

clean: ## Remove all that these commands made
	rm -rf .venv .venv-* tools/node_modules dist build site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
