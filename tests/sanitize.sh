#!/usr/bin/env bash
# The compiled engine's kernels under AddressSanitizer and UndefinedBehaviorSanitizer, and what shares them among threads
# under ThreadSanitizer; any finding ends it with an error. Less than a minute of one core. Only what this processor can run is compiled; the rest could not be looked at.
#   bash tests/sanitize.sh
set -euo pipefail
cd "$(dirname "$0")"
compiler=${CXX:-g++}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
sources=../src/tausid/engine/csrc
flags="-std=c++17 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -I $sources"
if ! echo 'int main() {}' | $compiler $flags -x c++ - -o "$out/empty" 2>/dev/null; then
  echo "sanitize: skipped, as there is no C++ compiler with sanitizers ($compiler)"
  exit 0
fi
has() { for name in "$@"; do grep -qw "$name" /proc/cpuinfo 2>/dev/null || return 1; done; }
sets=""
kernel() { # name, options
  for part in kernel second_order; do
    $compiler $flags -DTAUSID_ISA="$1" "${@:2}" -c $sources/$part.cpp -o "$out/${part}_$1.o"
  done
  sets="$sets -DTAUSID_HAVE_$(echo "$1" | tr '[:lower:]' '[:upper:]')"
}
kernel plain
if has avx2 fma; then kernel avx2 -mavx2 -mfma; fi
if has avx512f avx512dq avx512bw avx512vl; then
  kernel avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma
fi
$compiler $flags $sets sanitize.cpp "$out"/kernel_*.o -o "$out/sanitize"
"$out/sanitize"
$compiler $flags $sets sanitize_second_order.cpp $sources/second_order_calls.cpp $sources/recursion.cpp "$out"/second_order_*.o -pthread -o "$out/second"
"$out/second"
# Kernels share nothing among threads, so one instruction set is enough.
threads="-std=c++17 -O1 -g1 -fsanitize=thread -I $sources"
if ! { echo 'int main() {}' | $compiler $threads -x c++ - -o "$out/empty" && "$out/empty"; } 2>/dev/null; then
  echo "clean; threads: skipped, as programs with ThreadSanitizer do not run here"
  exit 0
fi
$compiler $threads -DTAUSID_ISA=plain -c $sources/second_order.cpp -o "$out/threads.o"
$compiler $threads -DTAUSID_HAVE_PLAIN sanitize_second_order.cpp $sources/second_order_calls.cpp $sources/recursion.cpp "$out/threads.o" -pthread -o "$out/threads"
TSAN_OPTIONS=halt_on_error=1 "$out/threads" 12
echo "clean"
