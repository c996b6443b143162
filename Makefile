# Needs Go and make; everything else comes through the Go module proxy.
# A target has one or two lines: anything longer is a program under internal/tools.
SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory

TOOL := go tool -modfile=internal/tools/go.mod
LINT := go tool -modfile=internal/tools/lint/go.mod golangci-lint
TEST := $(TOOL) gotestsum --format pkgname-and-test-fails

# One seed for all packages, so that one that runs again runs in the same order.
SHUFFLE ?= $(shell date +%s)
RETEST  := go -C internal/tools run ./retest $(CURDIR)

BENCH     ?= .
SOAK_JOBS ?= 1000000
COUNT     ?= 10
FUZZTIME  ?= 20s
KILLS     ?= 100
INSTANCES ?= 20000
FAULTS    ?= 12
COMPOSE   ?= docker compose
ARMADA_TESTS := ./internal/test/armadabox
RECORDING ?= testdata/recordings/plain.jsonl.gz

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 14

# The build settings of the programs, in the image too. Without cgo they are static, need
# no C compiler, and build faster, because libzstd in C is not compiled. Everything that
# make builds has the same flags, so that tests share the compiled packages. gRPC's traces
# would link the template package of the standard library, and then every exported
# method, into the ingester too.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath -tags=grpcnotrace
BUILD := go build -tags=grpcnotrace -ldflags='-s -w -X github.com/refloat/refloat/cmd/internal/version.version=$(VERSION)'

.PHONY: build run
BIN ?= bin
build: ## build the three programs into BIN (bin)
	$(BUILD) -o $(BIN)/ ./cmd/evaluator ./cmd/ingester ./cmd/refloatctl

bin/refloatctl: FORCE
	$(BUILD) -o bin/ ./cmd/refloatctl

FORCE:

run: bin/refloatctl ## decide a recorded Armada history by the example policies, in .refloat-run/
	rm -rf .refloat-run
	bin/refloatctl up --data .refloat-run --policies examples/policies --feed $(RECORDING) --exit-when-drained

.PHONY: unit test race nightly properties histories group-histories sim schedules conformance fuzz soak audit lists bench bench-once peers crash crash-restarts
unit: ## run the quick tests, in less than a minute
	$(TEST) -- -shuffle=on -short ./...

# Those that take longest begin first, so that none of them runs alone in the end.
LONGEST := ./cmd/refloatctl ./internal/armada/writer ./internal/armada/cutover ./internal/test/e2e ./internal/evaluator
test: ## run every test that this machine has the parts for, in the order of SHUFFLE; REQUIRE_INTEGRATION=1 fails instead of skipping
	$(RETEST) "$(LONGEST) ./..." -shuffle=$(SHUFFLE) -timeout=30m

nightly: FUZZTIME = 60s
nightly: KILLS = 20
nightly: LONG = 1
nightly: properties histories group-histories sim schedules fuzz crash crash-restarts chaos secure upgrade brokers e2e-armada bench-once peers ## the long tier, for which each change need not wait: about three hours on 2 cores; -k goes on after a failure

properties: ## run the tests by random cases with CHECKS (3000) cases each, where `make test` has 100
	go test $(shell grep -rl --include='*_test.go' pgregory.net/rapid internal | xargs -n1 dirname | sort -u | sed 's,^,./,') -count=1 -timeout=2h -rapid.checks=$(or $(CHECKS),3000)

histories: ## compare HISTORIES (100000) random histories of jobs with the reference model, and as many with that of budgets, breakers and orders: 10 minutes on 2 cores
	HISTORIES=$(or $(HISTORIES),100000) go test ./internal/evaluator -run='^TestAgainstNaiveModel$$' -count=1 -timeout=2h
	HISTORIES=$(or $(HISTORIES),100000) go test ./internal/test/independent -run='^TestIndependently$$' -count=1 -timeout=2h

group-histories: ## compare GROUP_HISTORIES (100000) random histories of groups with the reference model: 8 minutes of one processor
	GROUP_HISTORIES=$(or $(GROUP_HISTORIES),100000) go test ./internal/evaluator -run='^TestGroupsAgainstNaiveModel$$' -count=1 -timeout=2h

sim: ## simulate the protocol under SEEDS (100000) seeds
	SIM_SEEDS=$(or $(SEEDS),100000) go test ./internal/test/sim -run='^TestSim$$' -count=1 -timeout=4h

conformance: ## run the rows of other systems' tests through conversion and engine; print how many passed, and why others are left out
	go test ./internal/convert/conformance -run='^TestConformance$$' -v -count=1 | grep -vE '^(=== |\s*--- PASS)'

# Without the house rules, which are the package ./internal itself, and without pure packages, of which only tests start goroutines.
CONCURRENT = $(shell grep -rlE --include='*.go' '^\s*go |"sync(/atomic)?"|errgroup' internal/* | xargs -n1 dirname | sort -u | sed 's,^,./,' | grep -vE '^./internal(/tools/.*|/evaluator|/policy/policyfile|/test/(peers|model|bench))?$$')
# SQLite is compiled from C by way of WebAssembly: its memory is one slice, of which the detector watches each word, for nine tenths of the time.
UNWATCHED := -gcflags='github.com/ncruces/go-sqlite3-wasm/...=-race=false -d=checkptr=0'
race: ## run the quick tests of the packages that start goroutines under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(RETEST) "$(CONCURRENT)" -shuffle=$(SHUFFLE) -short -race -vet=off $(UNWATCHED)
	CGO_ENABLED=1 go test -race -vet=off $(UNWATCHED) -count=1 -run='AtOnce$$' ./cmd/refloatctl

fuzz: ## run every Fuzz function for FUZZTIME (20s), one per processor at a time
	go -C internal/tools test ./fuzz
	go -C internal/tools run ./fuzz $(CURDIR) $(FUZZTIME)

soak: ## let SOAK_JOBS (1000000) jobs come and go through an ingester that prunes, on SQLite and on PostgreSQL
	SOAK_JOBS=$(SOAK_JOBS) go test ./internal/sink -run=TestSoak -v -count=1 -timeout=4h

audit: ## measure the memory of verify and whatif over logs of as many EVENTS (100000 1000000 10000000) each, of which the live heap may differ by 10 %
	EVENTS="$(or $(EVENTS),100000 1000000 10000000)" go test ./internal/audit/whatif -run='^TestMemory$$' -v -count=1 -timeout=3h

lists: ## measure every list with every filter and order, in both databases, over as many DECISIONS (10000 100000 1000000) each
	DECISIONS="$(or $(DECISIONS),10000 100000 1000000)" go test ./internal/jobdb -run='^TestScale$$' -v -count=1 -timeout=6h

schedules: ## compare the scheduler with its model, check its laws, and compare cycles with Schedule, on INSTANCES (20000) random instances each
	SEQUENCES=$(INSTANCES) go test ./internal/simulate/scheduling -run TestSchedulerIsSchedule -count=1 -timeout=1h
	go test ./internal/simulate/schedulingmodel -count=1 -timeout=1h -rapid.checks=$(INSTANCES)

bench: ## run benchmarks matching BENCH, COUNT (10) times each, into bench.txt
	go test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) -timeout=2h ./... | tee bench.txt
	$(TOOL) benchstat bench.txt

bench-once: ## run every benchmark once, so that none rots
	go test -run='^$$' -bench=. -benchtime=1x -timeout=2h ./...

peers: build ## compare the evaluator with PEERS (streams flink) on the recordings, as many TIMES (20) each; needs Maven and Java 17
	mvn -q -B -f internal/test/peers/java package -Dout=/tmp/peers/java
	go -C internal/test/peers run . -bin $(abspath $(BIN)) -times "$(or $(TIMES),20)" -live 20s $(or $(PEERS),streams flink)

crash: ## kill -9 `refloatctl up` KILLS (100) times and check that nothing was lost
	KILLS=$(KILLS) go test -vet=off -count=1 -v -timeout=30m -run='^TestKill9$$' ./cmd/refloatctl | tee -a /dev/stderr | grep -c '^--- PASS: TestKill9 ' >/dev/null

crash-restarts: ## kill -9 an ingester at each statement, or each KILL_EVERY-th, while it writes restarts of a group and a gang to PostgreSQL
	KILL_EVERY=$(or $(KILL_EVERY),1) REQUIRE_INTEGRATION=1 go test -vet=off -count=1 -v -timeout=1h -run='^TestKilledInRestart$$' ./internal/test/e2e

.PHONY: e2e e2e-armada upgrade brokers scale chaos secure
e2e: ## run our programs on a real Pulsar broker: take-over, refusals, foreign messages
	REQUIRE_INTEGRATION=1 $(TEST) -- -shuffle=on -count=1 -timeout=15m ./internal/test/e2e

e2e-armada: ## run scenarios under a real Armada (ARMADA_BOX, or ../shared/armada); RUN=TestArmada/FILE/… selects some, LONG=1 adds the long ones
	ARMADA_LONG=$(LONG) $(RETEST) "$(ARMADA_TESTS)" -shuffle=$(SHUFFLE) -count=1 -v -timeout=60m -run='$(or $(RUN),.)'

upgrade: ## share partitions between our programs and those of the commit FROM, under load on a real Pulsar broker
	UPGRADE_FROM=$(or $(FROM),c96f738c6719ee080dffb3a5840d5755ce86947d) REQUIRE_INTEGRATION=1 go test -count=1 -v -timeout=30m -run='^TestUpgrade$$' ./internal/test/e2e

brokers: ## run our programs on two brokers in one cluster: bundles and the leader move, one is gone, all are restored from an older backup
	BROKERS=1 REQUIRE_INTEGRATION=1 go test -count=1 -v -timeout=30m -run='^(TestTwoBrokers|TestOlderBackup)$$' ./internal/test/e2e

scale: ## restart SCALE (4) evaluators and ingesters one by one on 16 partitions each, under load on a real Pulsar broker; alone on the machine
	SCALE=$(or $(SCALE),4) REQUIRE_INTEGRATION=1 go test -count=1 -v -timeout=30m -run='^TestScale$$' ./internal/test/e2e

chaos: ## inject FAULTS (12) random faults on a real Pulsar broker; docs/internals/chaos.md describes the checks
	go run ./internal/test/chaos --limit 5m --faults $(FAULTS)

SECURITY := TestDenied|TestVerifyFull|TestFailOver|TestFailOverBehind|TestStatementTimeout|TestPgBouncer|TestGrants|TestS3Server
secure: ## try TLS, credentials, permissions, fail-over and poolers on a real Pulsar, PostgreSQL and S3 server; SECURE=permissions, secrets or rotation selects one of Pulsar
	SECURE=$(or $(SECURE),1) REQUIRE_INTEGRATION=1 go test -count=1 -v -timeout=1h -run='^($(SECURITY))$$' ./internal/test/e2e ./internal/app ./internal/checkpoint/storage

.PHONY: up down
up: ## start a whole deployment with Docker Compose: Pulsar, two of each program, Prometheus, Grafana
	$(COMPOSE) up -d --build --wait

down: ## stop it, and delete all its data
	$(COMPOSE) --profile feed down -v

.PHONY: chart chart-server release sign reproducible licences vuln
RELEASE := go -C internal/tools/release run . $(CURDIR)
chart: ## lint, render and check the Helm chart in deploy/chart
	go -C internal/tools/chart vet . && go -C internal/tools/chart test -count=1 .

chart-server: ## apply the chart to a real kube-apiserver, which this builds first: about 10 minutes on 2 cores, then seconds
	KUBERNETES=1 go -C internal/tools/chart test -count=1 -v -timeout=30m -run='^TestServerAccepts$$' .

release: ## build programs, Debian packages, a multi-arch image, SBOMs, chart and checksums of VERSION for linux and darwin into dist/
	go -C internal/tools/release test . && $(RELEASE) build $(VERSION)

sign: ## sign the checksums in dist/ with the minisign key in the file KEY, whose password is in SIGN_PASSWORD
	$(RELEASE) sign $(abspath $(KEY))

reproducible: ## build one platform of VERSION again, elsewhere and without a cache, and compare
	$(RELEASE) compare $(VERSION)

licences: ## check the licences of all modules in the programs
	$(RELEASE) licences

vuln: ## look for known vulnerabilities in what the programs call, in VULNDB, a directory or URL (the Go vulnerability database)
	$(TOOL) govulncheck $(if $(VULNDB),-db $(if $(findstring ://,$(VULNDB)),$(VULNDB),file://$(abspath $(VULNDB)))) ./cmd/...

.PHONY: gen fmt lint check
gen: ## generate Go code and the OpenAPI document from the .proto files
	go -C internal/tools run ./protogen $(CURDIR) $(sort $(wildcard events/pb/*.proto internal/*/pb/*.proto internal/*/*/pb/*.proto))

fmt: ## format the Go code
	$(LINT) fmt

lint: ## run golangci-lint (which includes go vet), and check that go.mod is tidy
	$(LINT) run
	go -C internal/tools vet ./... && go mod tidy -diff

check: ## run what CI runs
	.ci/run
