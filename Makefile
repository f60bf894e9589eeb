# Each target makes .venv itself when it is missing. pip is used on purpose: constraints.txt pins the CPU build of torch.
# The demo installs what it and photos need; the tests need every extra, which is much more.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow test-again lint docs wheel bench mutants format clean

.venv/installed: EXTRAS = dev
.venv/demo: EXTRAS = baselines,pretrained,report
.venv/installed .venv/demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (PyTorch is large: this takes some minutes, without a word)"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

demo: .venv/demo
	$(BIN)/efcil demo

test: .venv/installed
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/pytest -n 2 --durations=8 -m "not slow"

test-slow: .venv/installed
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/pytest -n 2 --durations=8 -m slow

test-again: .venv/installed
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/pytest --last-failed --last-failed-no-failures none -m "slow or not slow"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html (its search needs a server: python -m http.server -d build/site)"

wheel: .venv/installed
	$(BIN)/python -m build --no-isolation

bench: .venv/installed
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/speed.py

mutants: .venv/installed
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python tools/mutants $(MUTANTS)

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mutants .pytest_cache .mypy_cache .ruff_cache build dist src/*.egg-info
