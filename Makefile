# Every target works from a fresh clone with only Go installed; tests that need
# a redis-server are skipped without one.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# Tools are built from their modules at these versions; none has to be installed.
GOVULNCHECK   := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

FUZZTIME ?= 20s
SOAK ?= 1h
ROUNDS ?= 10

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: fmt vet lint test ## Run all checks of a change

.PHONY: fmt
fmt: ## Fail on files that gofmt would change
	@files=$$(gofmt -l .); if [[ -n $$files ]]; then echo "not formatted:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## Run go vet
	go vet work

.PHONY: lint
lint: ## Run golangci-lint
	$(GOLANGCI_LINT) run --timeout 20m $$(go list -m -f '{{.Dir}}/...')

.PHONY: test
test: ## Run the tests
	go test work

.PHONY: race
race: ## Run the tests under the race detector; a redis-server must be there
	RATELIMIT_TEST_REDIS=required go test -race work

.PHONY: bits
bits: ## Run the tests of the core where an int has 32 bits
	GOARCH=386 go test ./gcra/... ./keyfunc ./middleware/... ./outbound/httpclient
	GOARCH=arm go vet work

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (20s)
	@# By default the first new inputs are minimized for 60 s each, and nothing else is done meanwhile.
	@grep -rn --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file _ func; do \
		echo "$${func#func } in $$(dirname "$$file")"; \
		go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "./$$(dirname "$$file")" </dev/null; \
	done

.PHONY: chaos
chaos: ## Run the fault tests for longer and print a table; needs a redis-server
	RATELIMIT_TEST_REDIS=required RATELIMIT_CHAOS=long go test -count=1 -timeout 60m -v -run '^TestFault[0-9]' ./internal/test/faults
	RATELIMIT_TEST_REDIS=required RATELIMIT_CHAOS=long go test -count=1 -timeout 60m -v -run '^(TestSite|TestRenewalsAreCheap)$$' ./inflight

.PHONY: soak
soak: ## Run three servers through random faults for SOAK (1h) and print tables; needs a redis-server
	RATELIMIT_TEST_REDIS=required RATELIMIT_SOAK=$(SOAK) go test -count=1 -timeout 25h -v -run '^TestSoak$$' ./internal/test/faults

.PHONY: long
long: ## Tests that take minutes of a machine that does nothing else; needs a redis-server
	RATELIMIT_LONG=1 go test -count=1 -v -run '^TestInterleavings$$' ./gcra/internal/buckets
	RATELIMIT_TEST_REDIS=required RATELIMIT_LONG=1 go test -count=1 -v -timeout 60m ./internal/test/thirdparty/histories
	RATELIMIT_LONG=1 go test -count=1 -v -run '^(TestRandomRouters|TestRandomMounts)$$' ./internal/test/routes
	RATELIMIT_REPLAY_LINES=5000000 go test -count=1 -v -run '^TestMemory$$' ./cmd/ratelimit/replay
	RATELIMIT_TEST_REDIS=required RATELIMIT_CHAOS=long go test -count=1 -v -run '^TestServerUnderFaults$$' ./internal/test/faults

.PHONY: outbound
outbound: ## Tables of turns, windows and real servers as partners; needs a redis-server, nginx and npm
	RATELIMIT_TEST_REDIS=required RATELIMIT_TEST_PARTNERS=required RATELIMIT_LONG=1 go test -count=1 -v ./outbound/internal/test

.PHONY: vuln
vuln: ## Run govulncheck; needs the network
	for dir in $$(go list -m -f '{{.Dir}}'); do echo "$$dir"; $(GOVULNCHECK) -C "$$dir" ./...; done

.PHONY: bench
bench: ## Compare with other limiters in ROUNDS (10); needs a redis-server, writes benchmarks/RESULTS.md
	go -C benchmarks run . -rounds $(ROUNDS)

.PHONY: pictures
pictures: ## Draw the pictures of README.md again, into docs/img; takes 15 minutes, and needs a redis-server and chromium
	go run ./examples/internal/pictures

.PHONY: demo
demo: ## Start the quickstart server
	go run ./examples/quickstart

.PHONY: release-check
release-check: ## Check that each module can be released, and what a user compiles
	bash scripts/release-check

.PHONY: ci
ci: ## Run what CI runs; installs redis-server, nginx, nutcracker, npm, gcc and chromium where they are missing
	bash .ci/run
