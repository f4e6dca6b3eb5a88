# The front door. Everything installs what it needs (Debian packages) and builds below build*/.
#
#   make demo     from a hub to an answer, on the model in models/pebble
#   make build    the program: build/tierpack
#   make install  the program below PREFIX (default /usr/local)
#   make release  the program for every GPU from Turing on: build-release/tierpack (needs the CUDA toolkit)
#   make gpu-check  builds for this machine's GPU and checks it, in under 8 minutes
#   make test     all tests          make asan / tsan   the tests under sanitizers
#   make fuzz     each fuzz target for FUZZ_SECONDS      make format / tidy   the formatter, the linter
#   make setup    every Debian package that any of these needs

PREFIX ?= /usr/local
FUZZ_SECONDS ?= 30
JOBS ?= $(shell nproc)

.PHONY: build release gpu-check demo test asan tsan fuzz format tidy setup install clean

build:
	@scripts/setup.sh build
	@cmake --preset release >/dev/null
	cmake --build build --target tierpack -j $(JOBS)

release:
	@scripts/setup.sh build
	@cmake --preset release-all-gpus >/dev/null
	cmake --build build-release --target tierpack -j $(JOBS)

gpu-check:
	bench/gpu_check.sh

demo:
	@scripts/setup.sh build
	@cmake --preset release >/dev/null
	cmake --build build --target tierpack hub_server -j $(JOBS)
	scripts/demo.sh build

test:
	@scripts/setup.sh build test
	@cmake --preset test >/dev/null
	cmake --build build -j $(JOBS)
	ctest --test-dir build --output-on-failure -j $(JOBS)

asan tsan:
	@scripts/setup.sh build test
	@cmake --preset $@ >/dev/null
	cmake --build build-$@ -j $(JOBS)
	ctest --test-dir build-$@ --output-on-failure -j $(JOBS) -LE unsanitized

fuzz:
	@scripts/setup.sh build dev
	@cmake --preset fuzz >/dev/null
	cmake --build build-fuzz --target fuzzers -j $(JOBS)
	scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)

format:
	@scripts/setup.sh dev
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

tidy:
	@scripts/setup.sh build test dev
	@cmake --preset test >/dev/null
	git ls-files '*.cpp' | grep -v -e '^tests/' -e '^bench/' | xargs clang-tidy -p build --quiet

setup:
	scripts/setup.sh build test dev

install: build
	cmake --build build --target install_files
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-release build-gpu build-asan build-tsan build-fuzz
