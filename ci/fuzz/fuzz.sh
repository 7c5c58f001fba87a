#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `ci/fuzz/fuzz.sh BUILD SECONDS [TARGET…]` fuzzes each target, beginning with its corpus. New inputs go to
# BUILD/new/TARGET. Inputs that were answered wrongly go to BUILD/wrong/TARGET-…; prints the command that repeats them, exit 1.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

build=${1:?usage: ci/fuzz/fuzz.sh BUILD SECONDS [TARGET…]}
seconds=${2:?}
shift 2
mapfile -t targets < <(ls ci/fuzz/corpus)
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=1
export LSAN_OPTIONS=suppressions=ci/leaks.txt:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1
mkdir -p "$build/wrong"
bad=0
for target in "${@:-${targets[@]}}"; do
    mkdir -p "$build/new/$target"
    log=$build/wrong/$target.log
    if KVB_FUZZ_TARGET=$target "$build/fuzzer" -max_total_time="$seconds" -max_len=16384 -timeout=20 -rss_limit_mb=3000 \
        -malloc_limit_mb=2000 -artifact_prefix="$build/wrong/$target-" -print_final_stats=1 "$build/new/$target" \
        "ci/fuzz/corpus/$target" >"$log" 2>&1; then
        echo "$target: well: $(grep -E 'number_of_executed_units' "$log" | tr -s ' ') inputs"
    else
        bad=1
        grep -E '^wrong:|ERROR|SUMMARY|runtime error|Test unit written' "$log" | head -5
        echo "$target: wrong: see $log; again: KVB_FUZZ_TARGET=$target $build/fuzzer $build/wrong/$target-…"
    fi
done
exit $bad
