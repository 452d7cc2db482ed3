# Two commands matter: `make demo` and `make test`. Both do all set-up themselves, once.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
READY := $(VENV)/.ready
SOURCES := nrf export backends hw_configs

.PHONY: setup vendors browser lint format test bench fuzz demo frameworks goldens clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 on PATH; install one, or: make PYTHON=/path/to/python"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip "setuptools>=77"
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev,formats]"
	@touch $(READY)

# The simulators of the vendors, each in an environment of its own in the user's cache folder.
vendors: $(READY)
	@$(BIN)/nrf setup all || test "$$CI" != true

# The HTML report is tested in a real browser.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	     && { apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; }; } \
	|| echo "no browser: install chromium to test the HTML report"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf build/lib build/installed
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --target build/installed .
	MYPYPATH=build/installed $(BIN)/mypy -p nrf
	cd build/installed && $(abspath $(BIN))/lint-imports --config $(CURDIR)/pyproject.toml

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup vendors browser lint
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

# How fast everything is, side by side with others: writes docs/speed.md. Trained programs are those of
# `make demo`, which is run first (3.5 minutes) where they are missing.
bench: vendors
	@test -f demo/demo/loihi2/model.nir -a -f demo/speck2f/speck2f/model.nir || $(BIN)/nrf demo
	$(BIN)/python -m benchmarks.speed --write

# Mutated files of every format, until as many as are asked for were tried: make fuzz CASES=20000
CASES ?= 1000
fuzz: $(READY)
	OMP_NUM_THREADS=1 nice $(BIN)/python -m tests.fuzz --cases $(CASES)

demo: $(READY)
	$(BIN)/nrf demo

# Every framework against its dialect, from real runs: writes docs/frameworks.md.
frameworks: vendors
	$(BIN)/python -m tests.frameworks.write_table

# The same, and the recordings in tests/frameworks/goldens anew.
goldens: vendors
	$(BIN)/python -m tests.frameworks.write_table --goldens

clean:
	rm -rf build dist demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
