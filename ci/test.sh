#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `ci/test.sh BUILD TEST…`: runs test programs and scripts through prove, from the project's root.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD=$(realpath "${1:?usage: ci/test.sh BUILD TEST…}")
shift
export PATH=/usr/bin:$PATH # Debian's python3 first, whose packages ci/deps.sh installs
export BUILD KVB_WORKLOADS=$PWD/workloads/recorded KVB_PLOTS=$PWD/plots # BUILD may lie anywhere
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export LSAN_OPTIONS="suppressions=$PWD/ci/leaks.txt:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="halt_on_error=1:die_after_fork=0" # children of a run start threads
# A sanitizer makes a program many times slower; the limit is only for hangs.
grep -qE '__(asan|tsan)_init' "$BUILD/kvbench" 2>/dev/null && export KVB_TEST_SECONDS="${KVB_TEST_SECONDS:-14400}"
export KVB_PROGRESS=0                                  # no progress lines in compared output
export KVB_TUNING=none                                 # no test depends on this machine's tuning
export OPENBLAS_NUM_THREADS=1                           # OpenBLAS starts no threads in tests

# One more than cores: single-threaded parts leave none idle.
exec prove --timer --jobs "${KVB_TEST_JOBS:-$(($(nproc) + 1))}" --exec ci/tap.sh "$@"
