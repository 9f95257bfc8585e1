# Five verbs: install, check, test, run, golden; and faults. Needs Python 3.11, make, a package index.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
JOBS ?= 2
# An index that is silent for a minute, or cuts a connection off now and then, is asked again.
PIP := pip install --quiet --disable-pip-version-check --timeout 60 --retries 10

.PHONY: install check test faults run golden lock format clean

# The environment, exactly as locked; a second call does nothing.
install: .venv/installed

.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "the lock is for Python 3.11; found %d.%d. Set PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	@echo "Installing what requirements.lock says: 7 GB in .venv, minutes, without a word until it is through."
	@$(BIN)/$(PIP) -r requirements.lock || (echo "Once more; what has come is kept."; sleep 10; $(BIN)/$(PIP) -r requirements.lock)
	$(BIN)/$(PIP) --no-deps --no-build-isolation -e .
	@touch .venv/installed

# Format, lint, types and the direction of imports.
check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every test, file by file in JOBS processes. ARGS="-k name" runs some, ARGS="FILE -n 0" in one process.
# Where there is no browser one is installed; where none can be, its tests are skipped (in CI: fail).
test: install
	@$(BIN)/python -m tests.install_browser
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Every kill at every moment, outages, and fifty random kills over one sweep: most of an hour.
faults: install
	FAULTS=all $(BIN)/pytest tests/faults $(ARGS)

# Start everything and run the quickstart; ONCE=1 ends when it is through.
run: install
	@$(BIN)/ndsweep quickstart $(if $(ONCE),--once)

# Make the golden values anew. A commit that moves them says so under Numerics in the changelog.
golden: install
	$(BIN)/python -m tests.worker.golden

# Lock what a new environment installs now. The project itself is not in it.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	(echo "# Made by 'make lock' with Python 3.11. Do not edit."; build/lock/bin/pip freeze --all --exclude-editable --exclude pip) > requirements.lock

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
