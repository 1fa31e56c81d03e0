# make demo   the main job: a three-stage pipeline over a volume published by real CSI calls
# make test   everything that must pass
# make test-files   the file tests at length: thousands of model cases, every program, the load of 64 processes, the bench
# make bench  ratios on this machine's host memory
# make gpu    what must hold on a real GPU (where one is)
# make help   the rest

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help build venv wheel demo test test-files lint unit files python sanity proto-check fuzz bench gpu-bundle gpu clean

VENV := .venv
PY := $(VENV)/bin/python
export GPUVOL_TEST_PYTHON := $(CURDIR)/$(PY)
export GPUVOL_PYTHON := $(CURDIR)/$(PY)
# The packages that run without a Python interpreter to link with.
RUST := --workspace --exclude gpuvol-python

help:
	@sed -n 's/^# //p' $(MAKEFILE_LIST)
	@grep -hoE '^[a-z-]+:' $(MAKEFILE_LIST) | tr -d : | xargs echo targets:

build:
	cargo build $(RUST)

# The Python environment of the tests and the demo.
venv: $(VENV)/.made
$(VENV)/.made: client-lib/python/requirements-dev.txt
	python3 -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed, this is " + sys.version'
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# The wheel, in dist/.
wheel: venv
	mkdir -p dist
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin build --quiet --release --manifest-path client-lib/python/Cargo.toml --out dist
	$(PY) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/gpuvol-*.whl

demo: wheel
	cargo build --release -p gpuvol-store -p gpuvol-csi -p gpuvol-cli
	target/release/gpuvol demo $(DEMO)

test: lint unit files python proto-check sanity fuzz
	@echo "make test: everything passed"

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

unit: build venv
	cargo test $(RUST) --quiet
ifeq ($(shell id -u),0)
	cargo test --quiet -p gpuvol-process-tests --features root --test cgroup
else
	@echo "not run: tests/process cgroup (needs root to make a cgroup)"
endif
	@echo "not run: client-lib/memory cuda_real and tests/gpu (need a GPU: make gpu)"

python: build wheel
	$(PY) -m pytest -q client-lib/python/tests

# A node of its own, and programs on its mounts: against a reference on tmpfs, under load, with real programs.
files: build wheel
	tests/files/with-node.sh target/debug

test-files: wheel
	cargo build --release -p gpuvol-store -p gpuvol-csi -p gpuvol-cli -p gpuvol-files-tests
	FILES_LONG=1 tests/files/with-node.sh target/release

# The CSI interface of ours against the official one.
proto-check:
	tests/csi/proto-check.sh

sanity: build
	tests/csi/sanity.sh

# Bounded: finds what it finds in the time it has.
fuzz:
	tests/fuzz/run.sh

bench:
	cargo build --release -p gpuvol-store -p gpuvol-process-tests
	GPUVOL_BIN=$(CURDIR)/target/release target/release/gpuvol-bench

# The binaries of the GPU suite, in target/gpu-bundle, to be taken to a machine with a GPU.
gpu-bundle:
	cargo build --release -p gpuvol-store -p gpuvol-process-tests -p gpuvol-csi -p gpuvol-cli
	cargo test --release --no-run -p gpuvol-memory --features real-gpu --test cuda_real
	rm -rf target/gpu-bundle && mkdir -p target/gpu-bundle
	cp target/release/{gpuvol,gpuvol-dev,gpuvol-csi,gpuvol-mounter,gpuvol-keeper,gpuvol-store,gpuvol-copier,gpuvol-test-client,gpuvol-gpu-suite} target/gpu-bundle/
	cp $$(ls -t target/release/deps/cuda_real-* | grep -v '\.d$$' | head -n 1) target/gpu-bundle/cuda_real

gpu: gpu-bundle
	tests/gpu/run.sh target/gpu-bundle

clean:
	cargo clean
	rm -rf dist $(VENV)
