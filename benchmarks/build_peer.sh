#!/usr/bin/env bash
# Builds the peer that benchmarks/ measures against: llama.cpp's own programs, from the very sources
# that are inside the installed llama-cpp-python, with the flags of its wheel.
#
# Usage: build_peer.sh [DIR] [LCP_SOURCE]     (10 minutes on 2 cores; DIR defaults to /tmp/peer)
#   DIR/bin gets llama-server, llama-bench, llama-speculative-simple, llama-quantize and their libraries.
#   LCP_SOURCE is an unpacked llama-cpp-python sdist; without it the sdist is downloaded (77 MB).
#
# The wheel is built by scikit-build-core: Release, shared libraries, GGML_NATIVE and OpenMP on (their
# defaults), no curl. So is this. What is switched off (OpenSSL, web UI, tests, the unified binary) does
# not touch the code that decodes; without the two UI flags configure tries a download.
set -euo pipefail
dir=$(realpath -m "${1:-/tmp/peer}")
version=0.3.36
mkdir -p "$dir"
if [ -n "${2:-}" ]; then
    source=$(realpath "$2")
else
    source=$dir/lcp
    pip download -q --no-deps --no-binary :all: "llama-cpp-python==$version" -d "$dir/dl"
    mkdir -p "$source"
    tar xzf "$dir"/dl/llama_cpp_python-"$version".tar.gz -C "$source" --strip-components=1
fi
grep -q "\"$version\"" "$source/llama_cpp/__init__.py" || {
    echo "$source is not llama-cpp-python $version" >&2
    exit 1
}

cmake -S "$source/vendor/llama.cpp" -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_COMMON=ON -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_APP=OFF \
    "-DCMAKE_INSTALL_RPATH=\$ORIGIN" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
nice ninja -C "$dir/build" -j"${JOBS:-2}" llama-server llama-bench llama-speculative-simple llama-quantize
ln -sfn build/bin "$dir/bin"
"$dir/bin/llama-server" --version
