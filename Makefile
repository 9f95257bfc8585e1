# Five verbs: install, check, test, run, golden; and faults. Needs Python 3.11, 3.12 or 3.13 with its
# venv module, make, a package index. PYTHON=/path/to/one names a Python.

SERVED := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
comma := ,
PYTHON ?= $(shell for one in python3.11 python3.12 python3.13 python3; do $$one -c '$(SERVED)' 2>/dev/null && echo $$one && break; done)
BIN := .venv/bin
# One more than the cores: a test that waits for the processes that it started needs none.
JOBS ?= 3
# Modules stay compiled: the tests start hundreds of processes, and each would compile them again.
unexport PYTHONDONTWRITEBYTECODE
# Retry if the index does not answer for a minute or drops a connection.
PIP := pip install --quiet --disable-pip-version-check --timeout 60 --retries 10
# An index of torch's CPU builds, used for torch and torchvision. Without it they include CUDA.
TORCH_INDEX ?=

.PHONY: install check test faults run golden lock format clean

# The environment, exactly as locked; a second call does nothing.
install: .venv/installed

.venv/installed: requirements.lock pyproject.toml
	@$(or $(PYTHON),false) -c '$(SERVED)' 2>/dev/null || { echo "This needs Python 3.11, 3.12 or 3.13 with its venv module (python3-venv of Debian and Ubuntu)$(if $(PYTHON),$(comma) which $(PYTHON) is not), and PYTHON=/path/to/one names it."; exit 1; }
	$(PYTHON) -m venv .venv
ifeq ($(TORCH_INDEX),)
	@[ -e /proc/driver/nvidia/version ] || echo "No NVIDIA driver here, and 3 of the 7 GB are CUDA's: 'make TORCH_INDEX=address of torch's CPU builds' does without."
	@echo "Installing requirements.lock: 7 GB into .venv; takes several minutes and prints nothing until it is done."
	@cp requirements.lock .venv/asked.lock
else
	@echo "Installing requirements.lock, with torch and torchvision from $(TORCH_INDEX): 4 GB into .venv."
	@awk '/^[a-z]/ { kept = !/^(torch|torchvision|nvidia-[a-z0-9-]+|cuda-[a-z]+)==/ } kept' requirements.lock >.venv/asked.lock
endif
	@$(BIN)/$(PIP) --require-hashes -r .venv/asked.lock || (echo "Installing again; finished downloads are kept."; sleep 10; $(BIN)/$(PIP) --require-hashes -r .venv/asked.lock)
ifneq ($(TORCH_INDEX),)
	@# The lock has the hashes of the builds with CUDA, so these two are held to their versions only.
	$(BIN)/$(PIP) --no-deps --index-url $(TORCH_INDEX) $$(grep -oE '^torch(vision)?==[0-9.]+' requirements.lock)
endif
	$(BIN)/$(PIP) --no-deps --no-build-isolation -e .
	@touch .venv/installed

# Format, lint, types and the direction of imports.
check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every test, file by file in JOBS processes. ARGS="-k name" runs some, ARGS="FILE -n 0" in one process.
# Installs a browser if there is none; if that fails, the browser's tests are skipped (in CI: fail).
# A process that crashes ends the run: pytest-xdist gives its files to another, which then waits forever.
test: install
	@$(BIN)/python -m tests.install_browser
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 $(ARGS)

# Kill every process at every moment, simulate outages, and kill at random fifty times: most of an hour.
faults: install
	FAULTS=all $(BIN)/pytest tests/faults $(ARGS)

# Start everything and run the quickstart; ONCE=1 exits when the quickstart has finished.
run: install
	@$(BIN)/ndsweep quickstart $(if $(ONCE),--once)

# Regenerate the golden values. A commit that changes them lists them under Numerics in the changelog.
golden: install
	$(BIN)/python -m tests.worker.golden

# Lock what the project needs: one set of versions, with hashes, for every Python that is served.
# Locked versions stay unless pyproject.toml excludes them; ARGS=--upgrade takes the newest.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv
	build/lock/bin/uv pip compile pyproject.toml --extra dev --extra integrations --universal --python-version 3.11 --generate-hashes --no-annotate --quiet --custom-compile-command "make lock" --output-file requirements.lock $(ARGS)
	@# What the image installs: the same versions, without the tools of developers.
	build/lock/bin/uv pip compile pyproject.toml --constraint requirements.lock --universal --python-version 3.11 --generate-hashes --no-annotate --quiet --custom-compile-command "make lock" --output-file requirements-image.lock

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
