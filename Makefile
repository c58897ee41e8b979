# Needs python3 (3.11 or newer, with pip) and make. Everything else comes from the lock files.

PYTHON  ?= python3
WORKERS ?= 3
MINUTES ?= 5
RUNS    ?= 100
SECONDS ?= 15
COUNT   ?= 200

# uv: the one on PATH, else our own copy, pinned with hashes in requirements-boot.lock.
# (The redirection makes old versions of make run this through a shell.)
UV    := $(or $(shell command -v uv 2>/dev/null),.boot/bin/uv)
BIN   := .venv/bin
READY := .venv/.ready

# pyright asks the network for a newer pyright before each run unless told not to.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# The interpreter is the machine's: uv must not fetch another one.
export UV_PYTHON_DOWNLOADS := never
# Compiled once, and not by the first processes that import it, all at the same time.
export UV_COMPILE_BYTECODE := 1
# Several checkouts may share one cache on another disk; hard links would only warn there.
export UV_LINK_MODE := copy

COMPILE := pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11

define NEEDS_PYTHON
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "OnceMQ needs Python 3.11 or newer; '$(PYTHON)' says: $$($(PYTHON) --version 2>&1)" >&2; \
  echo "Install one, or name one that you have: make PYTHON=python3.12 setup" >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-cluster demo-spark demo-declarative test check lint sim soak soak-cluster soak-spark soak-pipelines spark-cluster models etcd fuzz card bench bench-spark peers wheel coverage mutate format lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create .venv from the lock file (the targets below do it by themselves)
	@echo ".venv is ready"

demo: $(READY) ## see exactly-once survive crashes, in about ten seconds; then the same on Spark
	@$(BIN)/once demo

demo-cluster: $(READY) ## see exactly-once survive the crashes of a cluster's leaders, in under a minute
	@$(BIN)/once cluster demo $(if $(wildcard build/etcd/etcd),--etcd-program build/etcd/etcd)

demo-spark: $(READY) ## orders in, windowed revenue out, on a Spark that is killed in the middle
	@$(BIN)/python examples/spark/revenue.py

demo-declarative: $(READY) ## the same source and sink in a Spark Declarative Pipeline, run twice
	@$(BIN)/python examples/spark/declarative/demo.py

test: $(READY) ## run every test
	@$(BIN)/python -m simulator.proof make test
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal

check: lint ## lint, and the fast tests
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

lint: $(READY) ## lint, format, types, staircase
	@$(BIN)/ruff check --quiet . && echo "ruff check    ok"
	@$(BIN)/ruff format --quiet --check . && echo "ruff format   ok" || { echo "not formatted: run 'make format'" >&2; exit 1; }
	@$(BIN)/python -m tools.unasync --check && echo "shells        ok"
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-logo

sim: $(READY) ## simulate the history of SEED and shrink it if it fails; without SEED, fresh ones for MINUTES (5)
	@$(BIN)/python -m simulator.campaign $(if $(SEED),$(SEED),fresh $(MINUTES))

soak: $(READY) ## every fault on real processes, for MINUTES (5); exit code 6 on a finding
	@$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

soak-cluster: $(READY) ## every fault on three real servers and etcd, for MINUTES (5); exit code 6 on a finding
	@$(BIN)/python -m tests.faults.cluster_soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

soak-spark: $(READY) ## every fault on real Sparks, RUNS (100) of each; exit code 6 on a finding
	@$(BIN)/python -m tests.spark.soak --runs $(RUNS) $(if $(CHAIN),--chain $(CHAIN))

soak-pipelines: $(READY) ## archives and replays, killed before every step they take
	@ONCEMQ_EVERY_STEP=1 $(BIN)/pytest -q -x -k any_step tests/spark/test_archive.py tests/spark/test_replay.py tests/spark/test_archive_delta.py || exit 6

spark-cluster: $(READY) ## a Spark master and two workers on this machine, until Ctrl-C
	@$(BIN)/python -m oncemq.spark.runtime.cluster

models: $(READY) ## check the Spin models, clean and with each planted bug (apt install spin gcc)
	@$(BIN)/pytest -q -n $(WORKERS) --dist worksteal tests/models

etcd: build/etcd/etcd ## build the etcd that tests kill (needs go); without it they are skipped, all others use a wheel's
	@build/etcd/etcd --version | head -1

fuzz: $(READY) build/atheris/.ready ## fuzz each TARGET (all of them) for SECONDS (15)
	@PYTHONPATH=.:build/atheris $(BIN)/python fuzz/run.py --seconds $(SECONDS) $(if $(KEEP),--keep) $(TARGET)

card: $(READY) ## write docs/RELIABILITY.md from the results of the last runs
	@$(BIN)/python -m simulator.reliability_card

bench: $(READY) ## measure this machine, all of it, or only PART (put, get, latency, push …)
	@$(BIN)/python -m benchmarks $(if $(PART),$(PART),--all) --aims

peers: build/nats/nats-server build/peers/.ready ## have what PART=cluster measures beside (needs go; Kafka: mvn, java)
	@$(BIN)/python -m benchmarks.cluster.fetching && echo "the peers are there: make bench PART=cluster"

bench-spark: $(READY) ## Spark beside its own limits and Kafka (through Maven); QUICK=1 for a short one
	@$(BIN)/python -m benchmarks.spark $(if $(QUICK),--quick)

wheel: $(READY) ## build the wheel and try it in an environment of its own
	@rm -rf build/wheel dist
	@$(BIN)/hatchling build -t wheel
	@$(UV) venv --quiet --python $(BIN)/python build/wheel
	@$(UV) pip install --quiet --python build/wheel/bin/python --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python build/wheel/bin/python --no-deps dist/*.whl
	@cd build/wheel && bin/python -m oncemq --version && bin/once --help >/dev/null
	@echo "the wheel works: $$(ls dist/*.whl)"

coverage: $(READY) ## which lines of the pure packages and storage the fast tests leave out; fails below 98 %
	@$(BIN)/coverage run -m pytest -q -m "not slow"
	@$(BIN)/coverage report

mutate: $(READY) ## break COUNT (200) places of the source, one at a time: which test notices? SEED=n draws others
	@$(BIN)/python -m tools.mutate cover
	@$(BIN)/python -m tools.mutate run --count $(COUNT) $(if $(SEED),--seed $(SEED))

format: $(READY) ## format the code, mend what ruff can mend, write the blocking shells
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .
	@$(BIN)/python -m tools.unasync

lock: $(UV) ## renew the lock files: newest versions that pyproject.toml allows
	@$(UV) $(COMPILE) --upgrade pyproject.toml -o requirements.lock
	@$(UV) $(COMPILE) --upgrade --group dev pyproject.toml -o requirements-dev.lock
	@echo uv | $(UV) $(COMPILE) --upgrade - -o requirements-boot.lock
	@$(UV) $(COMPILE) --upgrade fuzz/requirements.in -o requirements-fuzz.lock
	@$(UV) $(COMPILE) --upgrade benchmarks/requirements.in -o requirements-bench.lock
	@! grep -n '://' requirements*.lock || { echo "a lock file names a host: see above" >&2; exit 1; }

clean: ## remove what make made
	@rm -rf .venv .boot build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage

$(READY): pyproject.toml requirements-dev.lock | $(UV)
	@$(NEEDS_PYTHON)
	@echo "setting up .venv ..."
	@rm -rf .venv
	@$(UV) venv --quiet --python "$$(command -v $(PYTHON))" .venv
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# Beside .venv, not in it: only Linux has wheels, and only `make fuzz` needs it.
build/atheris/.ready: requirements-fuzz.lock $(READY) | $(UV)
	@rm -rf build/atheris
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes --target build/atheris -r requirements-fuzz.lock
	@touch $@

build/nats/nats-server: tools/nats/go.mod tools/nats/go.sum
	@mkdir -p build/nats
	@cd tools/nats && GOFLAGS=-mod=readonly go build -ldflags '-s -w' -o ../../build/nats/nats-server github.com/nats-io/nats-server/v2

build/peers/.ready: requirements-bench.lock $(READY) | $(UV)
	@rm -rf build/peers
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes --target build/peers -r requirements-bench.lock
	@touch $@

build/etcd/etcd: tools/etcd/go.mod tools/etcd/go.sum tools/etcd/main.go
	@cd tools/etcd && GOFLAGS=-mod=readonly go build -ldflags '-s -w' -o ../../build/etcd/etcd .

.boot/bin/uv: requirements-boot.lock
	@$(NEEDS_PYTHON)
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || { \
	  echo "'$(PYTHON)' has no pip, which is needed once, to fetch uv. Install one of:" >&2; \
	  echo "  pip   Debian and Ubuntu: apt install python3-pip; Fedora: dnf install python3-pip; else: $(PYTHON) -m ensurepip" >&2; \
	  echo "  uv    any way you like; it is used when it is on PATH" >&2; exit 1; }
	@echo "fetching uv into .boot ..."
	@rm -rf .boot
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action ignore \
	  --require-hashes --target .boot -r requirements-boot.lock
	@touch $@
