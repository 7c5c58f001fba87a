#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: caches and pools load as plug-ins. Both examples build from nothing but installed headers, are replayed and judged;
# a codec that writes or reads wrong fails; one that nothing can judge is told; a plug-in that needs more than the program exports
# is refused in one line.
. "$(dirname "$0")/lib.sh"

ok "install" env -u MAKEFLAGS -u MFLAGS make -s -o all install BUILD="$BUILD" PREFIX=/usr DESTDIR="$TMPDIR"
ok "  what is installed finds what came with it, wherever it lies" env -u KVB_WORKLOADS "$TMPDIR/usr/bin/kvbench" list workloads
holds "  there" " $TMPDIR/usr/share/kvbench/workloads/agent-fork.jsonl +yes "
export KVB_INCLUDE=$TMPDIR/usr/include/kvbench
mkdir "$TMPDIR/mine"
cp caches/example-plugin/* "$TMPDIR/mine"
built() { env -u MAKEFLAGS -u MFLAGS make -s -C "$TMPDIR/mine" "$@"; }
ok "both examples build from installed headers" built pages.so lin12.so
[ "$(wc -l <caches/example-plugin/Makefile)" -eq 3 ]
report $? "their Makefile has three lines"

records=$TMPDIR/records.jsonl
replay() { # plug-ins and selection…
    rm -f "$records"
    "$KVBENCH" run --kernel reference --check -o "$records" "$@"
}
ok "the cache is judged" replay --plugin "$TMPDIR/mine/pages.so" --cache pages --pool f32 --pool q8_0 \
    --workload plain-decode --workload agent-fork --workload batched-multi-seq --workload sliding-window
for workload in plain-decode agent-fork batched-multi-seq sliding-window; do
    holds "  and passes on $workload" "\"workload\": \"$workload\".*\"cache\": \"pages\".*\"status\": \"pass\"" "$records"
done
ok "the pool is judged, in every cache" replay --plugin "$TMPDIR/mine/lin12.so" --pool lin12 --workload agent-fork
for cache in recompute seq slab; do
    holds "  and passes in $cache" "\"cache\": \"$cache\", \"pool_k\": \"lin12\".*\"status\": \"pass\"" "$records"
done
ok "  and where rows are dropped" replay --plugin "$TMPDIR/mine/lin12.so" --pool lin12 --cache window --workload sliding-window
small_trace 8 >"$TMPDIR/small.jsonl"
ok "  also beside a pool whose rows depend on their neighbours" replay --plugin "$TMPDIR/mine/lin12.so" --pool k=lin12,v=kivi4-v \
    --cache slab --workload "$TMPDIR/small.jsonl"
holds "  and is judged there" '"pool_k": "lin12", "pool_v": "kivi4-v".*"status": "pass".*"rho": [0-9]' "$records"
ok "  both together pass" replay --plugin "$TMPDIR/mine/pages.so" --plugin "$TMPDIR/mine/lin12.so" --cache pages \
    --pool k=lin12,v=f16 --workload agent-fork --workload sliding-window

# The same codec, in error by one part in a thousand, where it writes and where it reads.
wrong() { # NAME SED
    sed -i "$2" "$TMPDIR/mine/lin12.c" && ! cmp -s "$TMPDIR/mine/lin12.c" caches/example-plugin/lin12.c && built lin12.so
    report $? "a codec that is wrong: $1"
    expect_exit 1 "  fails" replay --plugin "$TMPDIR/mine/lin12.so" --pool lin12 --cache seq --workload plain-decode
    holds "  in its record" '"pool_k": "lin12".*"status": "fail"' "$records"
    cp caches/example-plugin/lin12.c "$TMPDIR/mine"
}
wrong "its scale is larger when written" 's|largest / LARGEST;|1.001f * &|'
wrong "its scale is larger when read" 's|code_of(codes) \* scale|1.001f * &|'
wrong "it drops the lowest bit" 's|to\[0\] = (unsigned char)codes|to[0] = (unsigned char)(codes \& 0xfe)|'

# The same pool by itself, wrong in what the workload does not meet: its rows have 16 channels.
ok "the right one again" built lin12.so
ok "  by itself" replay --plugin "$TMPDIR/mine/lin12.so" --pool lin12 --cache seq --workload plain-decode
holds "  is judged, and named" '^judged by themselves, too, at many dims: lin12$'
alone() { # NAME SED REASON POOL
    sed -i "$2" "$TMPDIR/mine/lin12.c" && ! cmp -s "$TMPDIR/mine/lin12.c" caches/example-plugin/lin12.c && built lin12.so
    report $? "a pool that is wrong by itself: $1"
    expect_exit 1 "  fails" replay --plugin "$TMPDIR/mine/lin12.so" --pool "$4" --cache seq --workload plain-decode
    holds "  for that" "\"status\": \"fail\", \"reason\": \"pool lin12 by itself, format lin12, $3" "$records"
    cp caches/example-plugin/lin12.c "$TMPDIR/mine"
}
alone "bytes() leaves out its struct" 's|return sizeof(lin12_pool) + cells|return cells|' \
    'dim 16, 3 KV heads, growth double: bytes\(\) says 0 for 0 cells of 3 x 16, and the allocator holds [0-9]+' lin12
alone "rows of 40 are taken to be as long as those of 32" 's|dim / 2 \* 3;|dim / 16 * 24;|' 'dim 40, .*: .* channel [0-9]+ .*reads as .*, expected' k=lin12,v=f32
alone "a copy takes the cell itself" 's|row_at(p, 0, cells\[i\]), cell_bytes|row_at(p, 0, base + i), cell_bytes|' \
    'dim 16, .*: after gather_into cell 10, head 0, channel [0-9]+ reads as' k=f32,v=lin12
sed -i 's|KVB_OPAQUE|KVB_E4M3|' "$TMPDIR/mine/lin12.c"
ok "a format with elements of a standard one builds" built lin12.so
expect_exit 3 "  is not judged under a name of its own" "$KVBENCH" run --check --set no-witness --plugin "$TMPDIR/mine/lin12.so" --pool lin12 \
    --cache seq --workload plain-decode --kernel reference
holds "  and is told which name is" "no reference codec for format 'lin12': a format of such rows is judged if its name is 'e4m3'"
cp caches/example-plugin/lin12.c "$TMPDIR/mine"
# A pool whose scales lie in a table apart: what it says of its memory is held against what it takes, whoever is judged over it.
apart() { # NAME PATTERN OPTION…: builds it with these. PATTERN: what it fails with in each combination; empty: it passes
    local name=$1 pattern=$2
    shift 2
    ok "a pool of scales apart builds: $name" gcc -std=c11 -O1 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden \
        -I"$KVB_INCLUDE" "$@" ci/tests/cli/plugins/apart.c -o "$TMPDIR/mine/apart.so" -lm
    local run=(replay --plugin "$TMPDIR/mine/apart.so" --pool apart --cache seq --cache slab --workload "$TMPDIR/small.jsonl")
    if [ -z "$pattern" ]; then
        ok "  and passes" "${run[@]}"
        lacks "  everywhere" '"status": "fail"' "$records"
    else
        expect_exit 1 "  and fails" "${run[@]}"
        lacks "  everywhere" '"status": "pass"' "$records"
        holds "  named as what is wrong" "\"reason\": \"line 2: pool: apart: $pattern" "$records"
    fi
}
apart "its format says what the scales are" ''
apart "only the pool knows" '' -DGROUP=0
apart "with bytes between rows" '' -DPAD=4
apart "which the last row has not, as if scales lay there" 'rows of [0-9]+ bytes by row_bytes\(\), pass the memory' -DPAD=4 -DGROUP=0
apart "row_bytes() is too many" 'row_bytes\(\) says [0-9]+ for rows of 128, which makes' -DROW_MORE=4
apart "row_bytes() is too few" 'row_bytes\(\) says .*, and scatter\(\) changes [0-9]+ bytes' -DROW_MORE=-2
apart "bytes() is too many" 'bytes\(\) says [0-9]+ for 0 cells of [0-9]+ x 128, and the allocator holds' -DBYTES_MORE=8

# A format that brings no reference is only witnessed, right or wrong: the run says so, and fails where it is told to.
sed -i 's|^    \.reference = .*||; s|^static void row_reference|__attribute__((unused)) &|' "$TMPDIR/mine/lin12.c"
ok "a format without a reference builds" built lin12.so
unjudged=(--plugin "$TMPDIR/mine/lin12.so" --pool lin12 --pool f16 --cache seq --workload plain-decode)
ok "  is witnessed" "$KVBENCH" run --check "${unjudged[@]}" --kernel reference --kernel witness
holds "  which is counted" '^2 of the passed only witnessed: '
holds "  and what nothing judged is named" '^nothing judged pool lin12: '
expect_exit 1 "  --require-judged fails" "$KVBENCH" run --check --require-judged "${unjudged[@]}" --kernel reference --kernel witness
holds "  with its name" '^kvbench run: --require-judged: nothing was judged over lin12$' "$err"
expect_exit 1 "  also where nothing ran over it" "$KVBENCH" run --check --require-judged "${unjudged[@]}" --kernel reference
expect_exit 0 "  and passes where all is judged" "$KVBENCH" run --check --require-judged --pool f16 --cache seq --workload plain-decode \
    --kernel reference --kernel witness
lacks "  with nothing to name" '^nothing judged'
expect_exit 2 "  and no shard can tell" "$KVBENCH" run --check --require-judged --shard 1/2 --suite quick
cp caches/example-plugin/lin12.c "$TMPDIR/mine"

# What the program exports is what the header promises.
exported=$(nm -D --defined-only "$BUILD/kvbench" | awk '$NF ~ /^kvb_/ { print $NF }' | sort)
promised=$(sed -n '/^ \*   kvb_/p' caches/plugin.h | grep -o 'kvb_[a-z_]*' | grep -vxE 'kvb_(alloc|free|grow)' | sort) # but macros
[ -n "$promised" ] && { [ "$sanitized" ] || [ "$exported" = "$promised" ]; } # a sanitizer's program exports all
report $? "the program exports what caches/plugin.h lists"
diff <(echo "$exported") <(echo "$promised") | sed 's/^/# /'

sed -i 's|largest = fmaxf(largest, fabsf(row\[c\]));|largest = fmaxf(largest, (float)kvb_json_number(row[c]));|
    s|^#define LARGEST|double kvb_json_number(double);\n&|' "$TMPDIR/mine/lin12.c"
ok "a plug-in that needs another function builds" built lin12.so
expect_exit 2 "  and is refused" replay --plugin "$TMPDIR/mine/lin12.so" --pool lin12 --workload plain-decode
holds "  in a line that says which and where to look" 'lin12\.so: undefined symbol: kvb_json_number; caches/plugin\.h' "$err"
[ "$(wc -l <"$err")" -eq 1 ] && [ ! -e "$records" ]
report $? "  and nothing is written"
done_testing
