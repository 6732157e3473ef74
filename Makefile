# Every target works on a fresh machine: what it needs is installed once into .venv and the cache.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
ENGINE ?= simulated

.DEFAULT_GOAL := help
.PHONY: help check format crds chart-readme unit integration e2e e2e-vllm e2e-judged test demo demo-down bench-load bench-scale-out bench-live bench-tuner bench-twin bench-verdicts bench-diagnosis dashboard screenshots fuzz 

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/ready: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

check: .venv/ready ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready ## format the code and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crds: .venv/ready ## write crds/ and the CRD chart from the models
	$(BIN)/python -m kneekeeper.api.crds crds charts/kneekeeper-crds/templates

dashboard: .venv/ready ## the dashboard in Debian's Chromium, over recorded objects
	$(BIN)/python -m tests.dashboard.prepare
	$(PYTEST) tests/dashboard

screenshots: .venv/ready ## write docs/images, and measure the page with 500 replicas; 5 minutes
	$(BIN)/python -m tests.dashboard.prepare
	$(BIN)/python -m benchmarks.dashboard

chart-readme: .venv/ready ## write the charts' README.md from the comments of their values
	$(BIN)/python -m e2e.chart_readme

unit: .venv/ready ## pure tests, and contracts with vLLM, the CRDs and the charts
	$(PYTEST) -n 2 --dist loadfile tests/unit tests/contract tests/local

integration: .venv/ready ## against a real API server, without a node
	$(BIN)/python -m e2e.cluster prepare
	$(PYTEST) tests/integration

e2e: .venv/ready ## on a real node with simulated engines
	$(BIN)/python -m e2e.cluster prepare
	$(PYTEST) e2e -m "cluster and not vllm"

e2e-vllm: .venv/ready ## on a real node with real vLLM (CPU)
	$(BIN)/python -m e2e.cluster prepare
	$(BIN)/python -m e2e.realvllm prepare
	$(PYTEST) e2e -m "vllm and not judged"

e2e-judged: .venv/ready ## stories on real vLLM, tuned and judged by its own benchmark; wants a quiet machine
	$(BIN)/python -m e2e.cluster prepare
	$(BIN)/python -m e2e.realvllm prepare
	$(PYTEST) e2e -m judged

bench-twin: .venv/ready ## the twin: how fast, and how near to real vLLM; wants a quiet machine and 30 minutes
	$(BIN)/python -m benchmarks.twin

bench-tuner: .venv/ready ## the tuner against true capacities and against searches, on simulated engines; a quarter of an hour of two cores once
	$(BIN)/python -m benchmarks.tuner --page docs/how-it-chooses.md

bench-live: .venv/ready ## 400 changes of a running real vLLM's limits under load; about 4 minutes
	$(BIN)/python -m e2e.realvllm prepare
	$(BIN)/python -m benchmarks.live --page docs/results/live.md

bench-diagnosis: .venv/ready ## what is wrong with a deployment, on a simulated fleet with known truth; 5 minutes
	$(BIN)/python -m benchmarks.diagnosis

bench-verdicts: .venv/ready ## false passes and power of the verdict, with the evidence for the 1.2 rule
	$(BIN)/python -m benchmarks.verdicts --page docs/results/verdicts.md

test: check unit dashboard integration e2e e2e-vllm ## all of the above

demo: .venv/ready ## watch a deployment being tuned on a real cluster; ENGINE=vllm for real vLLM
	$(BIN)/python -m e2e.demo up --engine $(ENGINE)

demo-down: .venv/ready ## take the demo's cluster away
	$(BIN)/python -m e2e.demo down

bench-load: .venv/ready ## how exactly load generators measure; wants a quiet machine, Go and 10 minutes
	$(BIN)/python -m benchmarks.load --table docs/results/load.md

bench-scale-out: .venv/ready ## one stage of 5,000 streams over five agents; wants a quiet machine and Go
	$(BIN)/python -m benchmarks.load.scale_out

FUZZ_SECONDS ?= 60
fuzz: .venv/ready ## search for inputs that break a parser; FUZZ_SECONDS=60 for each target
	for target in $(notdir $(basename $(filter-out %/__init__.py,$(wildcard tests/fuzz/*.py)))); do \
		$(BIN)/python -m tests.fuzz.$$target -max_total_time=$(FUZZ_SECONDS) || exit 1; done
