# Needs only Python 3.11 or newer: everything else goes into a virtual environment, .venv.
#   make PYTHON=python3.12 test     another interpreter
#   make test ARGS="-k timeline"    ARGS are handed to the command

PYTHON ?= python3
ARGS ?=
DEMO_ARGS ?=

venv := .venv
python := $(venv)/bin/python
install := $(python) -m pip install --quiet --disable-pip-version-check

.DELETE_ON_ERROR:
.PHONY: help demo test stress simulate fuzz torture bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(venv)/run ## a server, Twip and Newp with a sample world, in the browser
	@$(python) -m pequod demo $(DEMO_ARGS)

test: $(venv)/dev ## format, lint, types and all tests
	$(python) -m ruff format --check .
	$(python) -m ruff check .
	$(python) -m mypy
	$(python) -m pytest -n auto $(ARGS)

stress: $(venv)/dev ## random scenarios against the oracle until interrupted
	$(python) -m tests.scenarios --forever $(ARGS)

simulate: $(venv)/dev ## clusters in virtual time, with faults, until one of them errs
	$(python) -m tests.cluster.simulation --first 2000 $(ARGS)

fuzz: $(venv)/dev ## hostile bytes against a live server until interrupted
	$(python) -m tests.server.fuzz $(ARGS)

torture: $(venv)/dev ## a database behind a server, under faults, for five minutes
	$(python) -m tests.backing.torture $(ARGS)

bench: $(venv)/dev ## Pequod beside its rivals, and all other figures of docs/benchmarks.md
	$(python) -m loadgen all --quick $(ARGS)
	$(python) -m loadgen report

clean: ## remove the environment, builds and caches
	rm -rf $(venv) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The two files mark an environment that is complete; a new pyproject.toml makes it afresh.
$(venv)/run: pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || \
	    { echo "There is no $(PYTHON). Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed, and $(PYTHON) is" \
	        "$$("$(PYTHON)" -V 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "$(PYTHON) has no venv module; on Debian and Ubuntu it is in" \
	        "the package python3-venv." >&2; exit 1; }
	@echo "Setting up $(venv) ..."
	@"$(PYTHON)" -m venv --clear $(venv)
	@$(install) --editable '.[apps]'
	@touch $@

$(venv)/dev: $(venv)/run
	@echo "Adding the tools for tests ..."
	@$(install) --editable '.[dev]'
	@touch $@
