# Everything a contributor runs. Needs only Python 3.11 or newer with pip; the rest is put into .venv by hash.
#
#   make PYTHON=python3.12 test      another interpreter (remove .venv first)
#   make CORPUS=some/dir test        another reference corpus for tests/corpus
#   make PYTEST_ARGS='-k quantity' pytest
#   make JOBS=0 test                 the tests in one process; otherwise in two more than there are processors

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# Compile every module once, and not again in each of the processes that tests start, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

# The first interpreter that is new enough. Each one is run, because a name on PATH is not yet a working Python.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	if $$p -c '$(NEW_ENOUGH)' 2>/dev/null; then echo $$p; break; fi; done)

UV ?= uv
CORPUS ?=
PYTEST_ARGS ?=
RELEASE_ARGS ?=
PYTHONS ?=
ARGS ?=
JOBS ?= auto
FUZZ_INPUTS ?= 200000
FAULTS ?= *
SECONDS ?= 600
SOAK_HOURS ?= 24
SOAK_SEED ?= 1
KEEP ?=

DEPS := $(VENV)/.deps-installed
READY := $(VENV)/.dray-installed
BENCH_DEPS := $(VENV)/.bench-installed
DOCS_DEPS := $(VENV)/.docs-installed

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z.]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The virtual environment. The stamps are written last, so that an interrupted installation is simply done again.
$(DEPS): requirements/dev.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@$(PY) -c '$(NEW_ENOUGH)' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing the pinned requirements into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(READY): $(DEPS) pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(BENCH_DEPS): $(READY) requirements/bench.txt
	@$(PIP) install --require-hashes -r requirements/bench.txt
	@touch $@

$(DOCS_DEPS): $(READY) requirements/docs.txt
	@$(PIP) install --require-hashes -r requirements/docs.txt
	@touch $@

.PHONY: .venv
.venv: $(READY) ## Create the virtual environment (the other targets do it when needed)

.PHONY: demo
demo: $(READY) ## Start a cluster, apply the examples, see who got what and why; it stays to play with
	@DRAY=$(BIN)/dray PYTHON=$(PY) DRAY_DEMO_STOP="make demo.stop" sh examples/demo.sh

.PHONY: demo.stop
demo.stop: ## Stop the cluster of the demo
	@sh examples/demo.sh stop

.PHONY: tour
tour: $(READY) ## See what dray does with plain files, without a cluster
	@DRAY=$(BIN)/dray sh examples/tour.sh

.PHONY: test
test: lint types pytest ## Lint, types, import contracts, tests, and the requirements the tests name

.PHONY: lint
lint: $(READY) ## Style, format and import contracts
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(BIN)/lint-imports --no-logo

.PHONY: types
types: $(READY) ## mypy, strict on src
	@$(PY) -m mypy

.PHONY: pytest
pytest: $(READY) ## The tests alone
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(if $(CORPUS),--corpus=$(CORPUS)) $(PYTEST_ARGS)

.PHONY: format
format: $(READY) ## Let ruff repair what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

.PHONY: coverage
coverage: $(READY) ## Branch coverage of src by package, without the tests that start processes
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder \
		--ignore=tests/e2e --ignore=tests/faults $(if $(CORPUS),--corpus=$(CORPUS)) $(PYTEST_ARGS)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage json --quiet -o coverage.json
	@$(PY) -m tools.coverage_report coverage.json

.PHONY: fuzz
fuzz: $(READY) ## Long fuzz run: 200,000 structured and 200,000 raw inputs
	@$(PY) -m tests.fuzz --structured $(FUZZ_INPUTS) --raw $(FUZZ_INPUTS)

.PHONY: laws
laws: $(READY) ## Long law run: 100,000 random problems against a plain search
	@$(PY) -m tests.brute --count 100000

.PHONY: fuzz.slow
fuzz.slow: $(READY) ## Look for slow searches for ten minutes (SECONDS=60 for less; KEEP=--keep keeps the worst)
	@$(PY) -m tests.fuzz_slow --seconds $(SECONDS) $(KEEP)

.PHONY: fuzz.cel
fuzz.cel: $(READY) requirements/oracle.txt ## Long differential fuzz of CEL against cel-expr-python
	@$(PIP) install --require-hashes -r requirements/oracle.txt
	@$(PY) -m tests.fuzz_cel --count 20000

.PHONY: faults
faults: $(READY) ## Long fault runs, one after the other, in full size (FAULTS=store for one of them)
	@failed=0; for main in tests/faults/$(FAULTS)/__main__.py; do \
		package=$$(dirname $$main | tr / .); echo "== $$package"; \
		$(PY) -m $$package --full || failed=1; \
	done; exit $$failed

.PHONY: simulate.faults
simulate.faults: $(READY) ## 100,000 schedules of faults in a simulated cluster, and planted faults (ARGS=--minutes=10)
	@$(PY) -m tests.faults.simulated --full $(ARGS)

.PHONY: soak
soak: $(READY) ## A simulated day of steady work on one cluster: nothing may grow (SOAK_HOURS=2 for less, SOAK_SEED=7 for another)
	@$(PY) -m tests.soak.soak --hours $(SOAK_HOURS) --seed $(SOAK_SEED)

.PHONY: bench
bench: $(BENCH_DEPS) ## Measure in small sizes, in less than fifteen minutes
	@$(PY) -m bench
	@$(PY) -m bench.store
	@$(PY) -m bench.client
	@$(PY) -m bench.server --small --rounds 1
	@$(PY) -m bench.watches
	@$(PY) -m bench.scheduler --calls --seconds 5
	@$(PY) -m bench.specification
	@$(PY) -m bench.node
	@$(PY) -m bench.guard

.PHONY: bench.full
bench.full: $(BENCH_DEPS) ## Measure everything in full size, which takes most of an hour
	@$(PY) -m bench
	@$(PY) -m bench.store
	@$(PY) -m bench.client
	@$(PY) -m bench.writes
	@$(PY) -m bench.server
	@$(PY) -m bench.watches
	@$(PY) -m bench.scheduler --full --calls
	@$(PY) -m bench.specification --full
	@$(PY) -m bench.node
	@$(PY) -m bench.guard

.PHONY: protos
protos: $(READY) ## Compile the .proto files of src/dray/wire to the descriptors beside them
	@cd src/dray/wire/protos && $(CURDIR)/$(PY) -m grpc_tools.protoc -I. --descriptor_set_out=../kubelet.fds *.proto

.PHONY: reference
reference: $(READY) ## Generate docs/reference, the table of packages, the architecture diagram and the values of the chart
	@$(PY) -m dray.cli reference docs/reference
	@$(PY) -m tools.package_tables
	@$(PY) -m tools.architecture
	@$(PY) -m tools.chart_values

.PHONY: docs
docs: reference $(DOCS_DEPS) ## Build the documentation site into site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "site/index.html; with search: $(PY) -m http.server --directory site 8000"

.PHONY: image.replay
image.replay: $(READY) ## Carry out the steps of deploy/Containerfile without a builder, and start `dray up` in the result
	@$(PY) -m tests.deploy.replay

.PHONY: wheel.smoke
wheel.smoke: $(READY) ## Install the wheel into an empty environment of each Python that is found, and try its commands
	@$(PY) -m tools.wheel_smoke $(PYTHONS)

.PHONY: test.pythons
test.pythons: $(READY) ## Run the unit tests with each Python that is found (PYTHONS="python3.13 ..." for some)
	@PYTEST_ARGS="-n $(JOBS) $(PYTEST_ARGS)" $(PY) -m tools.python_tests $(PYTHONS)

.PHONY: release
release: $(READY) ## Check and build a release into dist/: wheel, sdist, bill of materials, licences
	@$(PY) -m tools.release $(RELEASE_ARGS)

.PHONY: lock
lock: ## Pin the newest allowed versions with hashes (needs uv on PATH, or UV=...)
	@cd requirements && for name in run dev build bench oracle docs; do \
		$(UV) pip compile --quiet --no-config --universal --python-version 3.11 --upgrade --generate-hashes \
			--no-header --no-emit-index-url --output-file $$name.txt $$name.in >/dev/null || exit 1; \
	done

.PHONY: clean
clean: ## Remove the virtual environment, caches and build output
	rm -rf $(VENV) .pythons build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage coverage.json htmlcov
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
