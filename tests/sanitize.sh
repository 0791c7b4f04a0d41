#!/usr/bin/env bash
# The fused engine's kernels under AddressSanitizer and UndefinedBehaviorSanitizer; any finding ends it with an error.
#   bash tests/sanitize.sh
set -euo pipefail
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sources=../src/tausid/engine/csrc
flags="-std=c++17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -I $sources"
objects="$out/plain.o"
${CXX:-g++} $flags -DTAUSID_ISA=plain -c $sources/kernel.cpp -o "$out/plain.o"
if [ "$(uname -m)" = x86_64 ]; then
  ${CXX:-g++} $flags -DTAUSID_ISA=avx2 -mavx2 -mfma -c $sources/kernel.cpp -o "$out/avx2.o"
  ${CXX:-g++} $flags -DTAUSID_ISA=avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -c $sources/kernel.cpp \
    -o "$out/avx512.o"
  objects="$objects $out/avx2.o $out/avx512.o"
fi
${CXX:-g++} $flags sanitize.cpp $objects -o "$out/sanitize"
"$out/sanitize"
echo "clean"
