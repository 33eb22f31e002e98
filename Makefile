# The commands of this repository; `make` alone lists them.

# Nothing here needs a C compiler, save the race detector.
export CGO_ENABLED = 0

TOOL      = go tool -modfile=tools/go.mod
GOVERSION = go$(shell sed -n 's/^go //p' go.mod)
VERSION   = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# The time of the commit, for what is packed: the same commit makes the same packages.
export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# The tests with clients of Redis, a module of its own.
CLIENTS = internal/server/resp/clienttest

# The client in TypeScript. Its tests build the server with Go.
TYPESCRIPT = sdk/typescript

# The tests that break what many nodes stand on, another.
FAULTS = internal/faults

# The figures, a third.
BENCH = bench

# What makes packages, a fourth.
PACK = tools/pack

# A build without what is never called: see tools/slim.
SLIM = bin/slim/slim.mod

# The tests of the dashboard in a browser, a fifth.
BROWSER = internal/server/dash/browsertest

# What the tests start besides our own programs, each with the package that Debian
# has it in. Only what is missing is installed: Node of another origin brings its
# own npm, with which Debian's can't be.
PROGRAMS = redis-server:redis-server redis-cli:redis-tools pgbouncer:pgbouncer gcc:gcc node:nodejs npm:npm promtool:prometheus buildah:buildah chromium:chromium

FUZZTIME ?= 30s
CYCLES   ?= 50
ROUNDS   ?= 5

.PHONY: help setup servers run build stage package image chart test announce test-faults test-others test-short race lint fuzz crash faults redis-suite bench bench-peers generate screenshots site

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## check for Go, download the modules, build the linter
	@command -v go >/dev/null || { echo "Go is missing: see https://go.dev/dl"; exit 1; }
	@printf '%s\n' $(GOVERSION) "$$(go env GOVERSION)" | sort -VC || \
		{ echo "$$(go env GOVERSION) is too old, $(GOVERSION) is needed: see https://go.dev/dl"; exit 1; }
	@command -v cc >/dev/null || echo "no C compiler: only 'make race' and the tests with hiredis need one"
	@$(MAKE) --no-print-directory servers || true
	go mod download
	go -C $(CLIENTS) mod download
	go -C $(FAULTS) mod download
	go -C $(BENCH) mod download
	go -C $(PACK) mod download
	go -C $(BROWSER) mod download
	go mod download -modfile=tools/go.mod
	$(TOOL) golangci-lint version

servers: ## install what the tests start, as root on Debian or with CI=true; elsewhere say what is missing
	@missing=; for p in $(PROGRAMS); do command -v $${p%:*} >/dev/null || missing="$$missing $${p#*:}"; done; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$$missing postgresql"; \
	/usr/bin/python3 -c 'import redis' 2>/dev/null || missing="$$missing python3-redis"; \
	echo '#include <hiredis/hiredis.h>' | gcc -E - >/dev/null 2>&1 || missing="$$missing libhiredis-dev"; \
	test -n "$$missing" || exit 0; \
	if test -e /etc/debian_version && { test "$$(id -u)" = 0 || test "$$CI" = true; }; \
	then apt-get update -qq && apt-get install -y -qq $$missing; \
	else echo "the tests need what Debian has in$$missing"; exit 1; fi

run: ## serve from ./quipu-data
	go run ./cmd/quipu serve

$(SLIM): go.mod go.sum tools/slim/main.go tools/slim/patch.go
	go -C tools run ./slim -source ..

build: $(SLIM) ## build bin/quipu, small and stamped with the version
	go build -trimpath -tags grpcnotrace -modfile=$(SLIM) -ldflags '-s -w -X main.version=$(VERSION)' -o bin/quipu ./cmd/quipu

stage: build
	go -C $(PACK) run . stage -source ../..

package: stage ## make a .deb, an .rpm and the list of what is in them, in bin/dist
	@rm -rf bin/dist
	go -C $(PACK) run . linux -source ../.. -version '$(VERSION)'
	go -C $(PACK) run . sbom -source ../.. -version '$(VERSION)'

image: stage ## build the container image quipudb/quipu, with buildah or docker; needs no network
	if command -v buildah >/dev/null; then build="buildah build --format docker --isolation chroot"; else build="docker build"; fi; \
	$$build --file deploy/container/Containerfile --tag quipudb/quipu:latest --tag 'quipudb/quipu:$(VERSION)' bin/image

chart: ## lint and render the chart of Helm (downloads much of Kubernetes the first time)
	go -C tools/chart vet ./...
	go -C tools/chart test ./...

announce:
	@echo "The tests take 10 to 15 minutes on two cores. The first time, some 5 minutes more go by until all is downloaded and compiled."
	@echo "They start servers of their own, on free ports, with data in temporary directories. make servers installs what is missing of:"
	@echo "  postgresql libhiredis-dev python3-redis $(foreach p,$(PROGRAMS),$(lastword $(subst :, ,$(p))))"
	@echo "npm puts clients of Redis into $(CLIENTS)/testdata/node. For tests without servers, in a minute: make test-short"

test-short: ## run the tests that need no servers, and long ones in short, in a minute: installs nothing
	go test -short $$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}} {{join .Imports " "}}' ./... | \
		awk '!/internal\/(pgtest|serving|load\/redisproc)( |$$)/ { print $$1 }')

test: announce servers $(CLIENTS)/testdata/node/node_modules $(TYPESCRIPT)/node_modules ## run the tests
	go test -timeout 10m ./...
	@$(MAKE) --no-print-directory -j 2 test-faults test-others

# The tests of the other modules. Those of faults wait most of their time, so the others run beside them.
test-faults:
	go -C $(FAULTS) test -timeout 10m ./...

test-others:
	go -C $(CLIENTS) test -timeout 10m ./...
	go -C $(BENCH) test -timeout 10m ./...
	go -C tools test ./site ./slim
	go -C $(PACK) test ./...
	npm test --silent --prefix $(TYPESCRIPT)
	go -C $(BROWSER) test -timeout 10m ./...

$(CLIENTS)/testdata/node/node_modules $(TYPESCRIPT)/node_modules: %/node_modules: %/package-lock.json
	npm ci --silent --no-audit --no-fund --prefix $(@D)
	@touch $@

race: ## run the tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -timeout 30m ./...
	CGO_ENABLED=1 go -C $(BENCH) test -race -timeout 30m ./...

lint: ## vet, lint, check the formatting and go.mod
	go vet ./...
	go -C $(BENCH) vet ./...
	go -C tools vet ./site ./slim
	go -C $(PACK) vet ./...
	go -C $(BROWSER) vet ./...
	$(TOOL) golangci-lint run ./...
	cd $(BENCH) && go tool -modfile=../tools/go.mod golangci-lint run ./...
	cd $(BROWSER) && go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./...
	$(TOOL) golangci-lint fmt --diff
	go mod tidy -diff
	go -C $(BENCH) mod tidy -diff
	go -C $(BROWSER) mod tidy -diff

fuzz: ## run each fuzz target for FUZZTIME (30s)
	@go test -run '^$$' ./... >/dev/null # a package that doesn't compile would list no targets
	@for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

crash: servers ## kill a serving process CYCLES times (50) and recount
	go test ./internal/crash -run TestCrash -count=1 -v -timeout 60m -args -cycles=$(CYCLES)

faults: servers ## make each fault of a network, a store and a node ROUNDS times (5) and recount, 30 minutes
	go -C $(FAULTS) test -count=1 -v -timeout 120m . -args -rounds=$(ROUNDS)

redis-suite: servers ## run Redis's own tests from the folder SUITE, the source of Redis 7.0 (needs tclsh)
	go run ./internal/redissuite -suite $(SUITE) $(SUITEFLAGS)

bench: ## measure beside the peers, into bench/results (BENCHFLAGS='-run add-hot')
	go -C $(BENCH) run . $(BENCHFLAGS)

bench-peers: ## measure beside Redis and PostgreSQL, 40 minutes (BENCHFLAGS='-sides bare,redis-always,quipu-synced')
	go -C $(BENCH) run . -run peers $(BENCHFLAGS)

generate: ## regenerate, and fail if that changed anything
	go generate ./...
	git diff --exit-code
	@test -z "$$(git status --porcelain)" || { git status --short; exit 1; }

screenshots: servers ## take the pictures of the dashboard that the documentation shows
	go -C $(BROWSER) test -count=1 -timeout 15m -run Screenshot . -args -shots=$(CURDIR)/docs/screenshots

site: ## make a website of the documentation, in bin/site
	go -C tools run ./site -source .. -out ../bin/site
