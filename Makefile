# guestwire: everything a developer does, by name. Only `demo`, `test`, `bench` and `prepare` need root and (the first time) downloads.
GO          ?= go
FUZZTIME    ?= 20s
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION     ?= $(shell git describe --always --dirty 2>/dev/null || echo unreleased)
export CGO_ENABLED = 0

# Packages whose tests need nothing but Go; the rest are hostile inputs, kernel behaviour, real guests and benchmarks.
UNIT = $(shell $(GO) list ./... | grep -vE '/test/(e2e|hostile|platform|perf)(/|$$)')

.PHONY: all build prepare demo test test-unit test-hostile test-platform test-e2e bench fuzz lint clean

all: build

build:
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/guestwire ./cmd/guestwire

# What the tests with real guests need: Debian packages, and guests in ~/.cache/guestwire.
prepare:
	@$(GO) run ./test/harness/cmd/prepare

# A real VM on the network, step by step.
demo:
	@$(GO) run ./test/harness/cmd/demo

test: test-unit test-hostile test-platform test-e2e

test-unit:
	$(GO) vet ./...
	$(GO) test $(UNIT)

test-hostile:
	$(if $(wildcard test/hostile/*_test.go),$(GO) test -count=1 -timeout 10m ./test/hostile/...)

test-platform:
	$(GO) test -count=1 ./test/platform/...

test-e2e:
	GUESTWIRE_E2E=1 $(GO) test -count=1 -timeout 25m -v ./test/e2e/...

# guestwire against passt in the same guests, then the daemon alone at its limit. Prints Markdown.
bench:
	$(GO) run ./test/perf $(BENCHFLAGS)
	$(GO) test ./test/perf/saturate -run '^$$' -bench . -benchtime 3s -count 3

# Every fuzz target of the tree, one after another.
fuzz:
	@set -e; for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
	  done; done

lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not formatted:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

clean:
	rm -rf bin
