# `make` alone lists what there is. Pass arguments with ARGS: make test ARGS="-k feed -x".

PYTHON ?= python3
ARGS ?=
STORMS ?= tests/security tests/models/push/test_storm.py tests/models/messages/test_storm.py tests/models/bus/test_storm.py tests/chaos/test_storm.py

# The gate takes a third of this. pytest ends a test that hangs after a minute; this ends a pytest that hangs.
GATE_SECONDS ?= 1500

BIN := .venv/bin
RUN := $(BIN)/python -m
PYTEST := $(RUN) pytest --max-worker-restart=5
INSTALL := VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --universal --python-version 3.11 \
	--custom-compile-command "make lock"

# Workers of the tests and the processes that they start share what one of them has compiled.
unexport PYTHONDONTWRITEBYTECODE

# One environment that grows: the demo needs little, everything else the tools of development too.
DEMO_READY := .venv/.demo-ready
DEV_READY := .venv/.dev-ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo up deps test test-all test-fast test-of storm mutants record lint bench bench-large docs screenshots stack stack-down clean lock

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(DEMO_READY) ## Send pushes, mails and events on this machine alone, kill Carillon twice, count what arrived (ARGS=--keep stays)
	@$(BIN)/carillon demo $(ARGS)

up: $(DEMO_READY) ## Run all services in one process, with servers of their own, until Ctrl-C; data stay in .carillon
	@$(BIN)/carillon up $(ARGS)

deps: $(DEV_READY) ## Fetch what the tests need beside Python: servers, jars, programs (root on Debian; others are told what is missing)
	@$(RUN) tests.stack deps

test: deps ## Run the gate: every quick test, and one proof of each promise, on real servers that it starts itself
	@$(RUN) compileall -q -j 0 services shared client/carillon contrib tests
	timeout --kill-after=60 $(GATE_SECONDS) $(PYTEST) -n auto --tier=gate --timeout=60 --maxfail=20 $(ARGS)

test-all: deps ## Run all other tests but storms: an hour; what fails runs once more, alone
	$(RUN) tests.everything $(ARGS)

test-fast: $(DEV_READY) ## Run those tests of the gate that need no server
	timeout --kill-after=60 $(GATE_SECONDS) $(PYTEST) -n auto --tier=gate --timeout=60 -m "not native" $(ARGS)

test-of: deps ## Run the tests that prove one mechanism, in all tiers but storms (PROOF=sender; without it: list all)
	@$(RUN) tests.proofs "$(PROOF)" $(ARGS)

storm: deps ## Attack the API, simulate push, messages and the bus, kill processes: ten minutes each (ARGS="--seconds=60 --seed=7")
	$(PYTEST) -n0 -s --storm $(STORMS) $(ARGS)

mutants: $(DEV_READY) ## Put small faults into the rules, and list those that no test finds (ARGS=shared/core/rates.py: into these)
	$(RUN) tests.mutation $(ARGS)

record: deps ## Write down anew what the product does (tests/recorded/answers), so that the difference can be reviewed
	CARILLON_RECORD=1 $(PYTEST) -n 2 -q --timeout=300 tests/recorded $(ARGS)
	@git --no-pager diff --stat -- tests/recorded/answers 2>/dev/null || true

lint: $(DEV_READY) ## Check style, types and import rules (the rules of manifests and of the code are tests of the gate)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: deps ## Measure jobs and the clock on real servers (ARGS=--write keeps the figures in tests/bench/RESULTS.md)
	$(RUN) tests.bench $(ARGS)

bench-large: deps ## An audience of 20 million, and 10 million schedules pending: over an hour, 45 GB of disk
	$(RUN) tests.bench --large $(ARGS)

stack: deps ## Start the servers of the tests, or find them running, and print where they are
	@$(RUN) tests.stack up

stack-down: $(DEV_READY) ## End these servers and forget their data
	@$(RUN) tests.stack down

docs: $(DEV_READY) ## Build the documentation as a site, into site/; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --quiet
	@echo "make: site/index.html is the first page; \`python3 -m http.server -d site\` serves the pages with their search"

screenshots: $(DEV_READY) ## Take the pictures of the dashboard that docs/ and README.md show, from made-up data
	CARILLON_PICTURES=docs/pictures $(PYTEST) -n0 -q tests/browser/test_pictures.py $(ARGS)

clean: ## End the servers of the tests and remove what make and the tests made here (.carillon stays)
	@if [ -e $(DEV_READY) ]; then $(RUN) tests.stack down; fi
	@rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock: $(DEMO_READY) ## Pin all dependencies anew after a change in a pyproject.toml (ARGS=--upgrade takes newer versions)
	$(LOCK) $(ARGS) pyproject.toml client/pyproject.toml --all-extras -o requirements/dev.txt
	$(LOCK) pyproject.toml client/pyproject.toml --extra embedded -c requirements/dev.txt -o requirements/embedded.txt
	$(LOCK) pyproject.toml client/pyproject.toml -c requirements/dev.txt -o requirements/run.txt
	$(LOCK) pyproject.toml client/pyproject.toml --extra otel -c requirements/dev.txt -o requirements/otel.txt
	$(LOCK) --group build -c requirements/dev.txt -o requirements/build.txt

.venv/bin/pip:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: $(PYTHON) is not Python 3.11 or later with its venv module (Debian: python3-venv). Nothing works" \
			"without it; name another one with: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv

$(DEMO_READY): requirements/build.txt requirements/embedded.txt pyproject.toml client/pyproject.toml contrib/pyproject.toml | .venv/bin/pip
	@echo "make: 1/3 the installer, into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@echo "make: 2/3 $$(grep -c == requirements/embedded.txt) packages; the first time this takes half a minute"
	@$(INSTALL) --require-hashes -r requirements/embedded.txt
	@echo "make: 3/3 Carillon itself"
	@$(INSTALL) --no-deps --no-build-isolation --editable . --editable ./client --editable ./contrib
	@touch $@

$(DEV_READY): requirements/dev.txt client/pyproject.toml $(DEMO_READY)
	@echo "make: installing the tools of development into .venv"
	@$(INSTALL) --compile-bytecode --require-hashes -r requirements/dev.txt
	@touch $@
