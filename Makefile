# Each target works from a bare clone: the first one that runs makes .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

export OMP_NUM_THREADS := 1

.PHONY: fuzz test lint format benchmark op-coverage versions gpu-wheels clean

# Fuzz the project's own AOT autograd. Seed 3: its programs agree; those of seeds 0, 1 and 2 show one difference each. ARGS="--backend inductor --time 10m" goes to aotcheck.
fuzz: $(STAMP)
	$(BIN)/aotcheck fuzz --backend aotcheck --examples 1000 --seed 3 $(ARGS)

# The README's test command.
test: $(STAMP)
	$(BIN)/pytest -n auto -q $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.private_names
	$(BIN)/python -m tools.module_rules

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Rewrites docs/performance.md and docs/memory.md.
benchmark: $(STAMP)
	$(BIN)/python -m benchmarks.performance
	$(BIN)/python -m benchmarks.memory

# Runs torch's databases of ops and modules and writes docs/op_coverage.md; goes on where the last run stopped.
# ARGS="--ops 'linalg_*' --dtype float32 --side ours" runs a slice.
op-coverage: $(STAMP)
	$(BIN)/python -W ignore -m tools.op_coverage $(ARGS)

# Checks our AOT autograd on every torch from 2.11 on, in .versions/; what is done is not done again. Writes
# docs/versions.md. ARGS="--versions 2.11.0 --checks programs,corpus" runs a slice.
versions: $(STAMP)
	$(BIN)/python -m tools.versions $(ARGS)

# Wheels for a machine with Python 3.12 and torch but without network, in wheels/: see docs/gpu.md.
WHEELS := hypothesis click rich pebble jinja2 pytest pytest-xdist pytest-timeout
gpu-wheels: $(STAMP)
	grep -v '^torch==' constraints.txt > $(VENV)/without-torch.txt
	$(BIN)/pip download --quiet --disable-pip-version-check --dest wheels --only-binary=:all: --python-version 3.12 \
		--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 -c $(VENV)/without-torch.txt $(WHEELS)

# torch comes pinned: without the constraints a newer torch, with all of CUDA, would be installed.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,dev]'
	touch $@

clean:
	rm -rf $(VENV) .versions
