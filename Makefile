# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-all lint types chromium docs wheel release setup clean test-asan test-asan-kernels test-engines bench-peers bench-cpu bench-mesh bench-mesh-peers

setup: $(READY)

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/criteo.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# The documentation site, in build/site; a warning is an error.
docs: $(READY)
	$(BIN)/python -m pip install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

# A wheel in build/wheels, installed and tried in environments of their own, with and without a compiler.
wheel: $(READY)
	rm -rf build/wheels
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheels .
	$(PYTHON) tests/smoke/wheel.py build/wheels/*.whl

# The files of a release in build/release: a source distribution, and a manylinux wheel for every supported Python.
# Both are checked, installed in empty environments of each Python that is here, and tried. Nothing is uploaded.
release: .venv-release/.ready
	rm -rf build/release
	.venv-release/bin/python -m build --outdir build/release/made .
	PATH="$(CURDIR)/.venv-release/bin:$$PATH" .venv-release/bin/auditwheel repair --wheel-dir build/release build/release/made/*.whl
	mv build/release/made/*.tar.gz build/release && rm -r build/release/made
	.venv-release/bin/twine check --strict build/release/*
	$(PYTHON) tests/smoke/wheel.py build/release/*
	@ls -l build/release

.venv-release/.ready: pyproject.toml
	test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	.venv-release/bin/python -m pip install --quiet --group release
	touch $@

# The quick tests, on two cores in minutes; test-all adds the slow and rare ones, as CI does. The tests of a file go to
# one worker, which share what they compiled and trained; files stay in order, so that short doctests are the last.
# Types are checked beside them. Tests start many programs: modules are compiled once, whatever the environment asks for.
unexport PYTHONDONTWRITEBYTECODE
# Three workers for the quick ones: some tests wait for programs that they started.
WORKERS = 2
test: WORKERS = 3
PYTEST = $(BIN)/mypy & types=$$!; $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
AND_TYPES = && wait $$types

test: lint chromium
	$(PYTEST) -m "not slow" $(AND_TYPES)

test-all: lint chromium
	$(PYTEST) $(AND_TYPES)

# The browser that the tests open reports with. Where it cannot be had, those tests are skipped.
chromium:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
		if command -v $$name > /dev/null; then exit 0; fi; \
	done; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	echo "installing Chromium, for the tests of reports"; \
	($$as_root apt-get install -qq -y chromium || ($$as_root apt-get update -qq && $$as_root apt-get install -qq -y chromium)) \
		> /dev/null 2>&1 || echo "Chromium cannot be installed here; the tests that need it are skipped"

# Tests of compiled code once more, with AddressSanitizer and UBSan: a read or write outside an array ends the run.
# The feed's readers of files, in about a minute; test-asan-kernels: the CPU kernels.
ASAN = LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 SPARROW_CACHE_DIR=$(CURDIR)/build/asan \
	SPARROW_CXXFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1" \
	$(BIN)/python -m pytest

test-asan: $(READY)
	$(ASAN) tests/data/test_fuzzing.py tests/data/test_hostile_files.py tests/data/test_pages.py tests/data/test_parsed_text.py

test-asan-kernels: $(READY)
	$(ASAN) tests/kernels/native --ignore tests/kernels/native/test_memory.py --ignore tests/kernels/native/test_compiler.py

# Runs and predictions inside Ray and Spark, in an environment of their own; Spark needs Java.
test-engines: $(READY)
	test -x .venv-engines/bin/python || $(PYTHON) -m venv .venv-engines
	.venv-engines/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	.venv-engines/bin/python -m pip install --quiet --editable . --group dev --group engines
	.venv-engines/bin/python -m pytest tests/test_engines.py

# FBGEMM and PyTorch, in an environment of their own. Any other torch brings gigabytes of CUDA.
bench-peers: .venv-peers/.ready

.venv-peers/.ready:
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet torch==2.13.0 numpy pyarrow
	.venv-peers/bin/python -m pip install --quiet --no-deps fbgemm-gpu-cpu==1.8.0
	touch $@

# TorchRec besides, for benchmarks/mesh.py.
bench-mesh-peers: bench-peers
	.venv-peers/bin/python -m pip install --quiet --no-deps torchrec==1.8.0
	.venv-peers/bin/python -m pip install --quiet torchmetrics tensordict iopath pyre-extensions tqdm psutil

bench-mesh: $(READY) bench-mesh-peers
	$(BIN)/python benchmarks/mesh.py

bench-cpu: $(READY) bench-peers
	$(BIN)/python benchmarks/cpu.py

clean:
	rm -rf $(VENV) build *.egg-info
