# `make` alone lists what there is. Pass arguments with ARGS: make test ARGS="-k feed -x".

PYTHON ?= python3
ARGS ?=
STORMS ?= tests/security tests/flow/push_model/test_storm.py tests/flow/message_model/test_storm.py tests/flow/bus_model/test_storm.py tests/chaos/test_storm.py tests/upgrade

# A test that hangs fails after so long, with its stack, and the others go on.
TEST_SECONDS ?= 300
SLOW_TEST_SECONDS ?= 1200

BIN := .venv/bin
RUN := $(BIN)/python -m
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCK := uv pip compile --quiet --generate-hashes --no-emit-index-url --universal --python-version 3.11 \
	--custom-compile-command "make lock"

# One environment that grows: the demo needs little, everything else the tools of development too.
DEMO_READY := .venv/.demo-ready
DEV_READY := .venv/.dev-ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo up test storm test-fast mutants lint checks bench bench-large docs screenshots stack down clean lock java-or-say

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(DEMO_READY) ## Send 100,000 pushes on this machine alone, show them arrive, and end (ARGS=--keep leaves it running)
	@$(BIN)/carillon demo $(ARGS)

up: $(DEMO_READY) ## Run all five services in one process, with servers of their own, until Ctrl-C; data stay in .carillon
	@$(BIN)/carillon up $(ARGS)

test: $(DEV_READY) java-or-say ## Run every test but the slow ones, on real servers that it starts itself (ARGS=-n0: one by one)
	$(RUN) pytest -n auto --timeout=$(TEST_SECONDS) -m "not slow and not storm" $(ARGS)

storm: $(DEV_READY) java-or-say ## Attack the API, simulate push, messages and the bus, kill processes: ten minutes each (ARGS="--seconds=60 --seed=7"); then the slow tests, and properties with all examples
	$(RUN) pytest -n0 -s --storm $(STORMS) $(ARGS)
	$(RUN) pytest -n auto --timeout=$(SLOW_TEST_SECONDS) -m slow
	$(RUN) pytest -n auto --storm -m "hypothesis and not storm"

test-fast: $(DEV_READY) ## Run the tests that need no server
	$(RUN) pytest -m "not native and not chaos and not slow and not storm" $(ARGS)

mutants: $(DEV_READY) ## Put small faults into the rules, and list those that no test finds (ARGS=shared/domain/rates.py: into these)
	$(RUN) tests.mutation $(ARGS)

lint: checks ## Check style, types, import rules, Dockerfile, compose file and Kubernetes manifests
	$(RUN) pytest --quiet tests/deploy tests/rules

checks: $(DEV_READY) ## Check of these what `make test` does not: style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(DEV_READY) java-or-say ## Measure jobs and the clock on real servers (ARGS=--write keeps the figures in tests/bench/RESULTS.md)
	$(RUN) tests.bench $(ARGS)

bench-large: $(DEV_READY) java-or-say ## An audience of 20 million, and 10 million schedules pending: over an hour, 45 GB of disk
	$(RUN) tests.bench --large $(ARGS)

stack: $(DEV_READY) java-or-say ## Start the servers of the tests, or find them running, and print where they are
	@$(RUN) tests.stack up

down: $(DEV_READY) ## End these servers and forget their data
	@$(RUN) tests.stack down

docs: $(DEV_READY) ## Build the documentation as a site, into site/; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --quiet
	@echo "make: site/index.html is the first page"

screenshots: $(DEV_READY) ## Take the pictures of the dashboard that docs/ and README.md show, from made-up data
	CARILLON_PICTURES=docs/pictures $(RUN) pytest -n0 -q -m slow tests/browser/test_pictures.py $(ARGS)

clean: ## End the servers of the tests and remove what make and the tests made here (.carillon stays)
	@if [ -e $(DEV_READY) ]; then $(RUN) tests.stack down; fi
	@rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock: ## Pin all dependencies anew after a change in a pyproject.toml (needs uv; ARGS=--upgrade takes newer versions)
	@command -v uv >/dev/null || { echo "make lock needs uv on the PATH: $(PYTHON) -m pip install uv" >&2; exit 1; }
	$(LOCK) $(ARGS) pyproject.toml client/pyproject.toml --all-extras -o requirements/dev.txt
	$(LOCK) pyproject.toml client/pyproject.toml --extra embedded -c requirements/dev.txt -o requirements/embedded.txt
	$(LOCK) pyproject.toml client/pyproject.toml -c requirements/dev.txt -o requirements/run.txt
	$(LOCK) pyproject.toml client/pyproject.toml --extra otel -c requirements/dev.txt -o requirements/otel.txt
	$(LOCK) --group build -c requirements/dev.txt -o requirements/build.txt

# Root on Debian needs no word: the stack installs them itself.
java-or-say:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then exit 0; fi; \
	version=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	if [ "$${version:-0}" -lt 17 ] || ! command -v mvn >/dev/null; then \
		echo "make: no Java 17 or later, or no Maven (java, mvn), on the PATH. Without them there is no Kafka here:" \
			"what needs one is skipped, and fails where CI=true." >&2; \
	fi

.venv/bin/pip:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: $(PYTHON) is not Python 3.11 or later with its venv module (Debian: python3-venv). Nothing works" \
			"without it; name another one with: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv

$(DEMO_READY): requirements/build.txt requirements/embedded.txt pyproject.toml client/pyproject.toml | .venv/bin/pip
	@echo "make: installing what the demo needs into .venv"
	@$(INSTALL) --require-hashes -r requirements/build.txt
	@$(INSTALL) --require-hashes -r requirements/embedded.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable . --editable ./client
	@touch $@

$(DEV_READY): requirements/dev.txt client/pyproject.toml $(DEMO_READY)
	@echo "make: installing the tools of development into .venv"
	@$(INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@
