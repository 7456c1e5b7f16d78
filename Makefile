# make run    sets itself up in .venv and captures, in the foreground; ARGS="--once" for one pass
# make test   sets itself up and proves it
# make system the service under a real systemd, in a container; wants root, debootstrap and systemd-nspawn
# make check  types, style and format;  make bench  speed and memory;  make clean  as after a clone

VENV := .venv
BIN  := $(VENV)/bin
ARGS :=
# One more than there are cores: a test that talks to a daemon waits for it now and then.
WORKERS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: help run test check bench system clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make/make/p' Makefile

run: $(VENV)/.for-run
	@$(BIN)/coldtrail run $(ARGS)

test: $(VENV)/.for-dev
	@$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile $(ARGS)

check: $(VENV)/.for-dev
	@$(BIN)/mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

bench: $(VENV)/.for-dev
	@$(BIN)/python -m pytest -m bench -s $(ARGS) tests/bench

system: $(VENV)/.for-dev
	@$(BIN)/python -m pytest -m system -rs $(ARGS) tests/system

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find pipeline daemon tests -name __pycache__ -type d -prune -exec rm -rf {} +

# An install is done again when pyproject.toml has changed, and only then.

$(VENV)/.for-run: pyproject.toml $(VENV)/.made
	@$(BIN)/python -m pip install --quiet --editable '.[daemon]'
	@touch $@

$(VENV)/.for-dev: pyproject.toml $(VENV)/.made
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.for-run

# A name on PATH may be a stub that does not run, and a Python of a distribution may lack venv: each is tried before it is taken.
$(VENV)/.made:
	@enough=; for python in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    enough="$$python"; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || continue; \
	    echo "coldtrail: setting up $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV) && touch $@ && exit 0; \
	done; \
	if [ -n "$$enough" ]; then \
	    echo "coldtrail: $$enough is new enough, but cannot make a virtual environment (no venv or no ensurepip)." >&2; \
	    echo "coldtrail: install it (Debian, Ubuntu: apt install python3-venv), or say make PYTHON=/path/to/python" >&2; \
	else \
	    echo "coldtrail: needs Python 3.11 or newer; none of python3.13, python3.12, python3.11, python3 is." >&2; \
	    echo "coldtrail: install one, or say make PYTHON=/path/to/python" >&2; \
	fi; \
	exit 1
