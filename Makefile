# Few words: up, down, check, test, test-faults, test-agents, fuzz, lint, bench, docs, demo. Each prepares its own environment.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Tests start hundreds of processes: without compiled modules each of them would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up down demo check test test-faults test-agents fuzz lint bench docs lock clean
.DEFAULT_GOAL := up

# Everything is installed from the lock, with hashes; the project itself comes last, linked to src/.
$(READY): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Remit needs Python 3.11 or newer; name one with: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The Hub and the proxy, which stay, in the home of whoever runs this, and one governed session against them.
up: $(READY)
	@$(BIN)/remit up --background
	@$(BIN)/remit demo --live
	@echo; echo "The dashboard: $(BIN)/remit open. To stop the Hub and the proxy: make down"

down: $(READY)
	@$(BIN)/remit up --stop

demo: $(READY)
	@$(BIN)/remit demo

# What is signed is covered to the last branch, by its own tests; counting that would slow all others down.
CLAIMS := tests/claims tests/test_vectors.py
# Many of the others wait for processes that they start: more of them than processors run at once. Each worker takes
# neighbours, which share a service, and those that are done early take from the others.
AT_ONCE = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) * 2)')
test: $(READY)
	$(BIN)/python -m pytest -n auto --cov --cov-report=term $(CLAIMS)
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist worksteal $(CLAIMS:%=--ignore=%)

# The fast part, for daily work: a minute and a half on two cores, without processes, browsers and waiting. `make test` has all of it, too.
CHECKED := $(CLAIMS) tests/policy tests/profiles tests/governor tests/ledger tests/server tests/assistants/protection \
  tests/assistants/transcripts
check: $(READY)
	$(BIN)/python -m pytest -n auto -m "not slow" $(CHECKED)

# Everything that can break is broken, everywhere; takes some minutes, and root for some of it.
test-faults: $(READY)
	$(BIN)/python -m pytest tests/faults tests/proxy/test_stopping.py --full -n auto
	$(BIN)/python -m pytest tests/governor/test_machine.py --hypothesis-profile=thorough -n auto
	$(BIN)/python -m pytest tests/governor/test_lines.py --hypothesis-profile=thorough -n auto
	$(BIN)/python -m pytest tests/governor/test_against_slow.py --hypothesis-profile=thorough -n auto
	$(BIN)/python -m pytest tests/assistants/hooks/test_forged_events.py --hypothesis-profile=thorough -n auto

# Real coding assistants, against a scripted model; npm installs them into a cache, hundreds of megabytes.
test-agents: $(READY)
	$(BIN)/python -m pytest tests/agents -n auto

# Random scripts and mutations of them: what we read in them against what bash and dash run. FUZZ=N tries N of them.
FUZZ ?= 1000000
fuzz: $(READY)
	$(BIN)/python -m pytest tests/policy/shell/test_against_bash.py --fuzz $(FUZZ) -n auto --maxfail 20

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/build.py --check

bench: $(READY)
	$(BIN)/python -m bench

docs: $(READY)
	$(BIN)/python docs/build.py

# Chooses the newest versions that fit pyproject.toml. Needs uv (pip install uv).
lock:
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate --extra dev --output-file requirements-dev.lock pyproject.toml
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache dist
