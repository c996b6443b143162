# Needs Go and make; everything else comes through the Go module proxy.
# A target is one or two lines: what is longer is a program under internal/tools.
SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory

TOOL := go tool -modfile=internal/tools/go.mod
LINT := go tool -modfile=internal/tools/lint/go.mod golangci-lint
TEST := $(TOOL) gotestsum --format pkgname-and-test-fails

BENCH     ?= .
COUNT     ?= 10
FUZZTIME  ?= 20s
KILLS     ?= 100
FAULTS    ?= 12
COMPOSE   ?= docker compose
ARMADA_TESTS := ./internal/test/armadabox
RECORDING ?= testdata/recordings/plain.jsonl.gz

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 14

# What the programs are built with, in the image too. Without cgo they are static,
# need no C compiler, and are built sooner: libzstd in C is not compiled. All that
# make builds has the same paths cut off, so that tests share the compiled packages.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath
BUILD := go build -ldflags='-s -w -X github.com/refloat/refloat/cmd/internal/version.version=$(VERSION)'

.PHONY: build run
build: ## the three programs, into bin/
	$(BUILD) -o bin/ ./cmd/evaluator ./cmd/ingester ./cmd/refloatctl

bin/refloatctl: FORCE
	$(BUILD) -o bin/ ./cmd/refloatctl

FORCE:

run: bin/refloatctl ## decide a recorded Armada history under the example policies, in .refloat-run/
	rm -rf .refloat-run
	bin/refloatctl up --data .refloat-run --policies examples/policies --feed $(RECORDING) --exit-when-drained

.PHONY: unit test race fuzz bench crash
unit: ## the quick tests, under a minute
	$(TEST) -- -shuffle=on -short ./...

test: ## every test for which this machine has the parts; REQUIRE_INTEGRATION=1 lets none be skipped, HISTORIES=100000 asks for more, AGAIN=2 runs up to so many failed ones again
	$(TEST) $(if $(AGAIN),--rerun-fails=1 --rerun-fails-max-failures=$(AGAIN)) --packages=./... -- -shuffle=on -timeout=30m

race: ## the quick tests under the race detector (needs a C compiler); vet is in lint, and the house rules start no goroutine
	CGO_ENABLED=1 $(TEST) -- -shuffle=on -short -race -vet=off $$(go list ./events/... ./internal/... | grep -v '/internal$$')

fuzz: ## every Fuzz function for FUZZTIME (20s), as many at once as there are processors
	go -C internal/tools test ./fuzz
	go -C internal/tools run ./fuzz $(CURDIR) $(FUZZTIME)

bench: ## benchmarks matching BENCH, COUNT (10) times each, into bench.txt
	go test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) -timeout=2h ./... | tee bench.txt
	$(TOOL) benchstat bench.txt

crash: ## kill -9 `refloatctl up` KILLS (100) times and check that nothing was lost
	KILLS=$(KILLS) go test -vet=off -count=1 -v -timeout=30m -run='^TestKill9$$' ./cmd/refloatctl | tee /dev/stderr | grep -c '^--- PASS: TestKill9 ' >/dev/null

.PHONY: e2e e2e-armada chaos
e2e: ## our programs on a real Pulsar broker: take-over, refusals, strangers
	REQUIRE_INTEGRATION=1 $(TEST) -- -shuffle=on -count=1 -timeout=15m ./internal/test/e2e

e2e-armada: ## scenarios under a real Armada (ARMADA_BOX, or ../shared/armada): RUN=TestArmada/FILE/… for some, LONG=1 for the long ones too
	ARMADA_LONG=$(LONG) $(TEST) -- -count=1 -v -timeout=60m -run '$(or $(RUN),.)' $(ARMADA_TESTS)

chaos: ## FAULTS (12) faults at random on a real Pulsar broker; docs/chaos.md says what is looked at
	go run ./internal/test/chaos --limit 5m --faults $(FAULTS)

.PHONY: up down
up: ## a whole deployment with Docker Compose: Pulsar, two of each program, Prometheus, Grafana
	$(COMPOSE) up -d --build --wait

down: ## end it, and forget everything
	$(COMPOSE) --profile feed down -v

.PHONY: gen fmt lint check
gen: ## Go code from the .proto files
	go -C internal/tools run ./protogen $(CURDIR) $(sort $(wildcard events/pb/*.proto internal/*/pb/*.proto internal/*/*/pb/*.proto))

fmt: ## format the Go code
	$(LINT) fmt

lint: ## golangci-lint (go vet is one of its linters), and go.mod is tidy
	$(LINT) run
	go -C internal/tools vet ./... && go mod tidy -diff

check: ## what CI runs
	.ci/run
