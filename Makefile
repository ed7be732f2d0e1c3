# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint lock clean

.venv/.installed: requirements-dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

env: .venv/.installed

demo: .venv/.installed
	$(BIN)/conclave demo

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

lock:
	$(BIN)/uv pip compile --quiet --no-header pyproject.toml --extra demo --generate-hashes -o requirements.lock
	$(BIN)/uv pip compile --quiet --no-header pyproject.toml --extra demo --extra dev --generate-hashes -o requirements-dev.lock

clean:
	rm -rf .venv build *.egg-info
