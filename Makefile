# `make test` is the one command that has to pass. `make` alone lists the others.

# Seeds that `make sim` runs.
SEEDS ?= 10000
# The first of them. Another start plays other worlds: make sim START=1000000
START ?= 0

.DEFAULT_GOAL := help
# The steps of `test` run in the order written, also under `make -j`: cargo uses every core by itself.
.NOTPARALLEL:
.PHONY: help test prepare venv examples fmt fmt-check lint unit docs licences deny sim bench

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

test: prepare venv examples fmt-check lint unit docs licences ## Run everything that has to pass, and stop at the first failure
	@echo "==> all passed"

prepare: ## Check that the needed tools are there (on Debian, as root, install what is missing)
	@echo "==> prepare"
	@tools/prepare

venv: ## Fetch the Python libraries that judge our signatures and our API, into .venv
	@echo "==> venv"
	@tools/venv

examples: ## Fetch GitHub's example payloads and makers of API clients, into e2e/node_modules
	@echo "==> examples"
	@tools/examples

fmt: ## Format the code
	cargo fmt --all

fmt-check:
	@echo "==> format"
	cargo fmt --all --check

lint: ## Run clippy; a warning is an error
	@echo "==> clippy"
	cargo clippy --workspace --all-targets --locked -- -D warnings

unit: venv examples ## Run the tests
	@echo "==> tests"
	cargo test --workspace --locked

docs: ## Build the code's documentation; a warning is an error
	@echo "==> docs"
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Building cargo-deny takes minutes, so `test` uses it only where it is installed.
licences:
	@echo "==> licences"
	@if cargo deny --version >/dev/null 2>&1; then \
		cargo deny --locked check licenses bans sources; \
	else \
		echo "skipped: cargo-deny is not installed (cargo install cargo-deny --locked)"; \
	fi

# Advisories come from a database on the network; without it the rest is still checked.
deny: ## Check the dependencies: licences, duplicates, sources and, with a network, advisories
	cargo deny --locked check licenses bans sources
	@if cargo deny --locked fetch db; then \
		cargo deny --locked check advisories; \
	else \
		echo "skipped: the advisory database could not be fetched"; \
	fi

sim: ## Run the simulator over many seeds (SEEDS=10000 START=0)
	cargo run --release --locked -p doorstep-sim -- --from $(START) --seeds $(SEEDS)

bench: ## Measure the whole (docs/benchmarks.md), then a decision, a request, a batch on this disk and an event on its way
	cargo run --release --locked -p doorstep -- bench
	cargo bench --locked -p doorstep-core --bench decisions
	cargo bench --locked -p doorstep-engine --bench sender
	cargo bench --locked -p doorstep-store --bench sqlite
	cargo bench --locked -p doorstep-engine --bench throughput
