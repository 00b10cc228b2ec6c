# Everything runs in .venv, made from pyproject.toml on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TEST_READY := $(VENV)/.ready-test
PORT ?= 8080
PLAIN := not clients and not services and not vllm and not audit and not ray and not faults
# What has a mark of its own throughout is not even imported.
OTHERS := tests/audit tests/clients tests/vllm
# All characters of Unicode, hundreds of layouts of a key, every cut of whole streams: `make test` runs these, too.
SLOW := tests/automata/test_charset.py tests/censor/test_private_keys.py tests/censor/test_detectors.py \
	tests/censor/test_spellings.py tests/censor/test_patterns.py tests/guard/test_bytes_path.py \
	tests/censor/test_window.py tests/guard/test_responses.py tests/guard/test_events_hostile.py \
	tests/guard/test_hostile.py tests/guard/test_amplification.py tests/wire/test_jsontext.py
PURE := tests/automata tests/censor tests/guard tests/policy tests/wire tests/observe
# Hundreds of processes are started: what they import is compiled once, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
# What share of its examples each property is tried with, other ones in each run: `make test EXAMPLES=3` looks longer.
export EXAMPLES ?= 0.25
# One more than there are processors: tests also wait, for processes that start and streams that end.
WORKERS = $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')
# `make vllm-test VLLM_TESTS="vllm and not starts and not audit"` leaves out what starts a server of its own.
VLLM_TESTS ?= vllm and not audit

.PHONY: run test test-fast lint cover clients services faults faults-short soak fuzz vllm-test audit-test ray-test bench bench-peers request-bench bounds decode-bench audit-bench docs chart lock advisories clean help

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

run: $(READY)    ## start the gateway (embedded demo upstream, or UPSTREAM_BASE_URL) on 127.0.0.1:$(PORT)
	@$(BIN)/portcullis serve --port $(PORT)

test: $(TEST_READY) lint    ## every check that needs nothing but Python
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "$(PLAIN)" $(OTHERS:%=--ignore=%)

test-fast: $(TEST_READY)    ## the pure core with few random examples: about two minutes on two cores
	EXAMPLES=$(or $(filter-out 0.25,$(EXAMPLES)),0.02) $(BIN)/pytest -n auto -m "$(PLAIN)" $(PURE) $(SLOW:%=--ignore=%)

lint: $(TEST_READY)    ## ruff, mypy, the import table
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

cover: $(TEST_READY)    ## the tests, with coverage of the pure core
	$(BIN)/pytest -m "$(PLAIN)" $(OTHERS:%=--ignore=%) --cov=gateway --cov-report=term-missing:skip-covered

clients: $(TEST_READY)    ## SDKs and frameworks, Python and (where node is present) Node, against a real gateway (1.9 GB of packages)
	tests/clients/install
	$(BIN)/pytest -n auto -m clients tests/clients

services: $(TEST_READY)    ## what needs Debian's redis-server, prometheus and nginx, and node: limits, dashboards, alerts, manifests, chart, packages
	tests/install-services
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[chart,openapi,release]'
	$(BIN)/pytest -m services tests/deploy tests/limits

# `make faults SEED=17` repeats a run; without a seed, each run draws its own.
faults: $(TEST_READY)    ## every fault against real processes, an exception at every line of the guard; writes docs/faults.md
	tests/install-services
	$(BIN)/python -m tests.faults --write $(SEED:%=--seed %)

faults-short: $(TEST_READY)    ## a sample of them
	tests/install-services
	$(BIN)/pytest -n $(WORKERS) --dist load -m faults tests/faults

# `make soak SCALE=0.1 SPEED=60`: a tenth of the requests, with a clock that is 60 times as fast.
SCALE ?= 1
SPEED ?= 1
soak: $(TEST_READY)    ## a million requests and a hundred thousand streams, no two alike: memory that stays
	tests/install-services
	$(BIN)/python -m loadtest.soak --scale $(SCALE) --speed $(SPEED)

# `make fuzz TARGET=sse SECONDS=600 SEED=17`; without a target, each of them.
SECONDS ?= 60
fuzz: $(TEST_READY)    ## coverage-guided fuzzing of what reads bytes, SECONDS for each target (35 MB of packages)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz $(TARGET) $(if $(RUNS),--runs $(RUNS),--seconds $(SECONDS)) $(SEED:%=--seed %)

vllm-test: $(TEST_READY)    ## the masks in a real vLLM on the CPU, with a tiny model that is trained here (2.5 GB of packages)
	tests/vllm/install
	$(BIN)/pytest -m "$(VLLM_TESTS)" tests/vllm

audit-test: $(TEST_READY)    ## what belongs to `portcullis audit`; takes as long as much of `make test`
	$(BIN)/pytest -n auto --dist loadfile -m "audit and not vllm and not ray" tests/audit

ray-test: $(TEST_READY)    ## `portcullis audit --ray` on a Ray that is started here (80 MB of packages)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray]'
	$(BIN)/pytest -m ray tests/audit

bench: $(TEST_READY)    ## one table: direct, byte copy, nginx when installed, Portcullis with 10, 1,000, 100,000 words
	$(BIN)/python -m loadtest

request-bench: $(TEST_READY)    ## CPU time of whole requests, plain ones and streams, beside nginx
	$(BIN)/python -m loadtest.request_bench

bench-peers: $(TEST_READY)    ## other gateways under the same load, each in an environment of its own (2 GB of packages)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m loadtest.peers

bounds: $(TEST_READY)   ## hostile input of every size, count and depth: callbacks, memory, bytes written
	$(BIN)/python -m loadtest.bounds

decode-bench: $(TEST_READY)    ## masks over vocabularies of 2,000 to 128,000 tokens; how true rollback stays, what it costs
	$(BIN)/python -m loadtest.mask_bench
	$(BIN)/python -m loadtest.distribution_bench
	@if [ -e .vllm/model/generation_config.json ]; then $(BIN)/python -m loadtest.rollback_bench; \
	else echo 'decode-bench: no rollback_bench, for it needs what make vllm-test installs'; fi

audit-bench: $(TEST_READY)    ## the audit's experiments, with models trained here: tables and charts in loadtest/results
	tests/vllm/install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	OMP_WAIT_POLICY=passive .vllm/venv/bin/python -W ignore -m experiments measure .audit-bench
	$(BIN)/python -m experiments write .audit-bench

docs: $(TEST_READY)     ## the documentation as a site in build/site; a link that leads nowhere fails
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python docs/site.py

chart: $(TEST_READY)    ## the manifests in deploy/kubernetes, made of the chart by Helm as a library (75 MB)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[chart]'
	$(BIN)/python -m tests.support.chart

# uv asks the index that it is configured with. Newer versions: `make lock UPGRADE=--upgrade`, and the tests again.
LOCK := --quiet --custom-compile-command 'make lock' --no-annotate --generate-hashes --python-version 3.13 \
	--python-platform x86_64-manylinux_2_28
lock: $(VENV)/bin/python    ## write the locks of the image anew
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile $(LOCK) $(UPGRADE) --extra redis --extra otel pyproject.toml -o deploy/requirements.lock
	$(BIN)/uv pip compile $(LOCK) --extra redis --extra otel --extra decode -c deploy/requirements.lock pyproject.toml \
	    -o deploy/decode.lock
	echo hatchling | $(BIN)/uv pip compile $(LOCK) $(UPGRADE) - -o deploy/build.lock

advisories: $(VENV)/bin/python    ## known vulnerabilities of what the image installs; asks pypi.org itself
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	for lock in deploy/*.lock; do $(BIN)/pip-audit --strict --disable-pip --require-hashes -r $$lock || exit 1; done

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $(READY)

# The tests run with the versions that the image has. Hashes would be asked of every other package, too.
$(TEST_READY): pyproject.toml deploy/requirements.lock | $(VENV)/bin/python
	grep -oE '^[a-z0-9_.-]+==[^ ]+' deploy/requirements.lock > $(VENV)/locked.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]' -c $(VENV)/locked.txt
	@touch $(READY) $(TEST_READY)

clean:           ## remove what was made
	rm -rf $(VENV) .clients .audit-bench build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .import_linter_cache
