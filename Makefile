# Every target works on a fresh machine: what it needs is installed once into .venv and the cache.
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
BY_FILE := --dist loadfile --no-loadscope-reorder
ENGINE ?= simulated

.DEFAULT_GOAL := help
.PHONY: help cluster-ready images-ready vllm-ready browser-ready twin-ready check format crds reference figures docs cli-docs chart-readme unit integration e2e e2e-vllm e2e-judged e2e-wide e2e-kills test demo demo-down bench-load bench-scale-out bench-live bench-grid bench-tuner bench-twin bench-verdicts bench-diagnosis bench-day bench-passive bench-passive-choice bench-passive-learned bench-scale chaos soak dashboard screenshots fuzz keep-corpora sbom audit keep-crds

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/ready: requirements/dev.txt requirements/uv.txt pyproject.toml
	@echo "Installing Python packages into .venv, once: a minute or two on an idle machine, without a word."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --require-hashes --no-deps --python $(BIN)/python -r requirements/dev.txt || \
	  $(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

cluster-ready: .venv/ready
	$(BIN)/python -m e2e.cluster prepare

images-ready: .venv/ready
	$(BIN)/python -m e2e.images

vllm-ready: .venv/ready
	$(BIN)/python -m e2e.realvllm prepare

browser-ready: .venv/ready
	$(BIN)/python -m tests.dashboard.prepare

twin-ready: .venv/ready
	$(BIN)/python -m kneekeeper.domain.twin

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

dashboard: browser-ready ## the dashboard in Debian's Chromium, over recorded objects
	$(PYTEST) tests/dashboard

screenshots: browser-ready cluster-ready ## write docs/images, of a run on the cluster and of 500 replicas, and measure the page; 10 minutes
	$(BIN)/python -m benchmarks.dashboard --page docs/dashboard.md
	KNEEKEEPER_IMAGES=docs/images $(PYTEST) e2e/test_dashboard.py -k watched_live

cli-docs: .venv/ready ## write the reference of all commands into docs/cli.md
	$(BIN)/python -m kneekeeper.cli.reference docs/cli.md

reference: .venv/ready ## write docs/reference from the code: fields, conditions and reasons
	$(BIN)/python -m e2e.docs

figures: .venv/ready ## draw the figures of docs/concepts.md from the twin; half a minute
	$(BIN)/python -m benchmarks.concepts

docs: .venv/ready ## the site of docs/ in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

chart-readme: .venv/ready ## write the charts' README.md from the comments of their values
	$(BIN)/python -m e2e.chart_readme

unit: cluster-ready twin-ready ## pure tests, and contracts with vLLM, the CRDs and the charts
	$(PYTEST) -n 2 $(BY_FILE) tests/local tests/contract tests/unit

integration: cluster-ready ## against a real API server, without a node
	$(PYTEST) -n 3 $(BY_FILE) tests/integration

e2e: cluster-ready ## the main stories on a real node with simulated engines
	$(PYTEST) e2e -m "cluster and not vllm"

e2e-vllm: cluster-ready vllm-ready ## on a real node with real vLLM (CPU)
	$(PYTEST) e2e -m "vllm and not judged"

e2e-judged: cluster-ready vllm-ready ## stories on real vLLM, tuned and judged by its own benchmark; wants a quiet machine
	$(PYTEST) e2e -m judged

e2e-wide: cluster-ready ## long scenarios on two nodes: examples, Helm, charts, GitOps, owners, autoscaler, budgets, drain, upgrades, edits, kills; two hours
	$(PYTEST) e2e -m wide

KNEEKEEPER_KILLS ?= 200
e2e-kills: cluster-ready ## kills of everything at each step of a run, and nothing borrowed stays borrowed; KNEEKEEPER_KILLS=200, half an hour
	KNEEKEEPER_KILLS=$(KNEEKEEPER_KILLS) $(PYTEST) e2e/wide/test_kills.py -s

bench-twin: .venv/ready ## the twin: how fast, and how near to real vLLM; wants a quiet machine and 30 minutes
	$(BIN)/python -m benchmarks.twin

bench-grid: .venv/ready ## the choice on real vLLM against a small exhaustive grid; wants a quiet machine and 40 minutes
	$(BIN)/python -m benchmarks.grid

bench-tuner: .venv/ready ## the tuner against true capacities and against searches, on simulated engines; a quarter of an hour of two cores once
	$(BIN)/python -m benchmarks.tuner --page docs/how-it-chooses.md

bench-live: vllm-ready ## 400 changes of a running real vLLM's limits under load; about 4 minutes
	$(BIN)/python -m benchmarks.live --page docs/results/live.md

bench-day: .venv/ready ## days with two traffic mixes: one setting against one for each mix's hours; 20 minutes of two cores
	$(BIN)/python -m benchmarks.day --page docs/results/day.md

bench-diagnosis: .venv/ready ## what is wrong with a deployment, on a simulated fleet with known truth; 5 minutes
	$(BIN)/python -m benchmarks.diagnosis

bench-passive: .venv/ready ## knees of replicas from production alone, on a simulated fleet with known truth; 5 minutes
	$(BIN)/python -m benchmarks.passive

bench-passive-choice: .venv/ready ## settings predicted from production alone against the truth, on the same fleet; half an hour
	$(BIN)/python -m benchmarks.passive.choice

bench-passive-learned: .venv/ready ## P99s predicted for learned workloads against those for the true ones, on the same fleet; 5 minutes
	$(BIN)/python -m benchmarks.passive.learned

bench-verdicts: .venv/ready ## false passes and power of the verdict, with the evidence for the 1.2 rule
	$(BIN)/python -m benchmarks.verdicts --page docs/results/verdicts.md

test: .venv/ready ## all of the above; what they need is made beside the checks
	$(MAKE) --jobs --output-sync check cluster-ready images-ready vllm-ready browser-ready twin-ready
	$(MAKE) unit dashboard integration e2e e2e-vllm

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

keep-corpora: ## keep what the searches of this machine found, as far as it is small, in tests/fuzz/corpus
	for found in $${KNEEKEEPER_CACHE:-$$HOME/.cache/kneekeeper}/fuzz/*/corpus; do \
		kept=tests/fuzz/corpus/$$(basename $$(dirname $$found)); mkdir -p $$kept; \
		find $$found -type f -size -8 ! -name 'seed-*' -exec cp -n -t $$kept {} +; done

CHAOS_RUNS ?= 1000
CHAOS_SEED ?= 0
chaos: cluster-ready ## lives of a profile under faults of the API server, and with an operator that is killed; CHAOS_RUNS=1000
	$(PYTEST) tests/chaos
	$(BIN)/python -m tests.chaos --runs $(CHAOS_RUNS) --seed $(CHAOS_SEED) --in-turn --kills --deaths --page docs/results/chaos.md

SOAK_DAYS ?= 14
SOAK_PROFILES ?= 20
SOAK_SEED ?= 0
SOAK_MINUTES ?= 600
soak: cluster-ready ## weeks of upgrades, traffic and faults on a virtual clock: leaks, and whether the promise is kept; SOAK_DAYS=14 SOAK_PROFILES=20 SOAK_MINUTES=600
	$(PYTEST) tests/soak
	$(BIN)/python -m tests.soak --days $(SOAK_DAYS) --profiles $(SOAK_PROFILES) --seed $(SOAK_SEED) --minutes $(SOAK_MINUTES) --page docs/results/soak.md

sbom: .venv/ready ## the software bill of materials of the image, CycloneDX JSON in build/sbom.json; offline
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.json

audit: .venv/ready ## pins, licences and bill of materials of what is shipped, the Dockerfile, hostile content; offline
	$(PYTEST) tests/unit/test_supply.py tests/unit/test_security.py

keep-crds: .venv/ready ## keep the present definitions for the tests of upgrades, with each release; NAME=0.2.0
	$(BIN)/python -m tests.integration.kept_crds $(NAME)

SCALE_PROFILES ?= 10,100,1000
bench-scale: cluster-ready ## the operator with SCALE_PROFILES=10,100,1000 profiles, 5 pods each; half an hour
	$(BIN)/python -m benchmarks.scale --profiles $(SCALE_PROFILES)
