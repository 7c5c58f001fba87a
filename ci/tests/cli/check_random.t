#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: random histories of control calls go well on every cache; one that does not is shrunk to a trace that replays.
. "$(dirname "$0")/lib.sh"

random() { "$BUILD/check-random" "$@"; }

ok "each cache" random 40
for cache in $("$KVBENCH" list caches --format csv | tail -n +2 | cut -d, -f2); do
    holds "  $cache" "^$cache: 40 histories, seeds 1 to 40: all well"
done

ok "a history that found what was wrong: states of divided positions, loaded beside themselves" random 1 20002638 seq

expect_exit 1 "a history that goes wrong" env KVB_RANDOM_WRONG=1 "$BUILD/check-random" 60 1 seq "$TMPDIR/wrong.jsonl"
holds "  is told by its seed" '^seq: seed [0-9]+ goes wrong after [0-9]+ calls$'
holds "  is shrunk to the two calls that matter" '^2 calls are left of it:$'
holds "  with a command" "^as a trace: kvbench run --workload $TMPDIR/wrong.jsonl --cache seq --pool k="
ok "  which replays it" "$KVBENCH" run --check --workload "$TMPDIR/wrong.jsonl" --cache seq --pool f32
holds "  on every kernel" '^[1-9][0-9]* passed, 0 failed'

for fault in key-omits-extra collision-shared held-page-evicted part-of-a-page-found table-not-found found-page-written found-page-restored-over; do
    expect_exit 1 "$fault is found" env KVB_RANDOM_FAULT=$fault "$BUILD/check-random" 300 1 paged-prefix "$TMPDIR/$fault.jsonl"
done

pages=$BUILD/example-plugin/pages.so
ok "a plug-in's caches in place of the built-in ones" random 60 1 "" "$TMPDIR/pages.jsonl" "$pages"
holds "  pages" '^pages: 60 histories, seeds 1 to 60: all well'
mkdir "$TMPDIR/mine"
wrong() { # NAME SED: such a cache is found
    sed "$2" caches/example-plugin/pages.c >"$TMPDIR/mine/pages.c" && ! cmp -s "$TMPDIR/mine/pages.c" caches/example-plugin/pages.c &&
        env -u MAKEFLAGS -u MFLAGS make -s -C "$TMPDIR/mine" -f "$PWD/caches/example-plugin/Makefile" KVB_INCLUDE="$BUILD/example-plugin/include" pages.so
    report $? "a cache that is wrong: $1"
    expect_exit 1 "  is found" "$BUILD/check-random" 300 1 "" "$TMPDIR/pages.jsonl" "$TMPDIR/mine/pages.so"
}
wrong "it lets go of a page whose last cell is held" 's|first, first + PAGE)|first, first + PAGE - 1)|'
wrong "it lets go of no page" 's|p->used\[table->page\[entry\] - 1\] = 0;||'
expect_exit 2 "a plug-in without caches" "$BUILD/check-random" 60 1 "" "$TMPDIR/pages.jsonl" "$BUILD/example-plugin/lin12.so"

expect_exit 2 "no such cache" random 60 1 nope
expect_exit 2 "no histories" random 0
done_testing
