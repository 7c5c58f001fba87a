#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `run --count` gives the same numbers for the same tree, `compare` names 2 % more work of a kernel or a cache in each
# combination that has it and in no other, and what cannot be counted is refused in one line.
. "$(dirname "$0")/lib.sh"

PATH=$TMPDIR expect_exit 3 "without valgrind nothing is counted" "$KVBENCH" run --count --workload plain-decode --cache seq
holds "  it is said why" 'unavailable: ' "$err"
one_line "  in one line"
expect_exit 2 "several threads are refused" "$KVBENCH" run --count --workload plain-decode --threads 2 --set oversubscribe
one_line "  in one line"
"$KVBENCH" run --count --workload plain-decode --cpu-mask avx512 >"$out" 2>"$err"
[ $? -ge 2 ]
report $? "AVX-512 is refused"
holds "  it is said why" 'no AVX-512|the CPU has no ' "$err"

if [ "$sanitized" ] || ! command -v valgrind >/dev/null; then
    report 0 "counts # SKIP no Valgrind, or a sanitizer in the program: Valgrind does not run those"
    done_testing
fi
KVBENCH=$(realpath "$KVBENCH")
cat >"$TMPDIR/small.jsonl" <<'TRACE'
{"kvbench_trace":1,"name":"small","source":"by hand","model":{"kv_cache.schema_version":1,"kv_cache.layers":2,"kv_cache.heads":4,"kv_cache.kv_heads":2,"kv_cache.k_dim":64,"kv_cache.v_dim":64},"values":{"profile":"llama","seed":1}}
{"prefill":{"seq":0,"from":0,"n":40}}
TRACE
for pos in {40..79}; do echo "{\"step\":{\"pos\":[$pos],\"seq\":[0]}}"; done >>"$TMPDIR/small.jsonl"

# The examples as they are, and with every 50th of these calls made twice.
call='row_attend(x,\|error = cells_find('
twice="1i static unsigned turn;
s/^ *\($call\)/for (unsigned n = turn++ % 50 ? 1 : 2; n--;) &/"
build() { # folder, sed script
    mkdir "$TMPDIR/$1"
    for source in kernels/example-plugin/online.c caches/example-plugin/pages.c; do
        sed "$2" $source >"$TMPDIR/$1/plugin.c"
        gcc -std=c11 -O2 -fPIC -shared -I"$BUILD/example-plugin/include" "$TMPDIR/$1/plugin.c" -lm \
            -o "$TMPDIR/$1/$(basename $source .c).so"
    done
}
count() { # folder, options…
    env -C "$TMPDIR/$1" "$KVBENCH" run --count --plugin ./online.so --plugin ./pages.so --product --pool f16 \
        --workload ../small.jsonl -o counts.jsonl "${@:2}"
}
matrix=(--cache seq --cache pages --kernel online --kernel flash)
build base '' && build same '' && build more "$twice"
expect_exit 0 "counts of the examples" count base "${matrix[@]}" --set oracle-pairs=1000
expect_exit 0 "  and again, with fewer checks: they do not count" count same "${matrix[@]:2}" --set oracle-pairs=1
expect_exit 0 "  and with more work" count more "${matrix[@]}" --set oracle-pairs=1
holds "the table has them" '^small +pages +f16 +flash +pass .* [0-9.]+ M +[0-9.]+ M +[0-9.]+ M'
holds "  and says what counted" '^counts cover the steps, exact, by callgrind [0-9.]+, level (avx2|portable), D1 32 KiB 8-way'
holds "  and what it cannot see" 'AVX-512, prefetching, bandwidth and threads are not seen'

sed '2,${/"cache": "pages"/!d}' "$TMPDIR/base/counts.jsonl" >"$TMPDIR/pages.jsonl"
expect_exit 0 "the same tree twice is the same" "$KVBENCH" compare "$TMPDIR/pages.jsonl" "$TMPDIR/same/counts.jsonl" --strict
holds "  all of it" '^2 combinations: ([12] LESS, )?2 SAME$' # rho is of other rows
ok "  within 0.03 %" python3 - "$TMPDIR"/{pages,same/counts}.jsonl <<'PY'
import json, sys
base, same = ([json.loads(line)["counts"] for line in list(open(path))[1:]] for path in sys.argv[1:])
assert len(base) == len(same) == 2
for a, b in zip(base, same):
    assert a["source"] == b["source"] and a["instructions"] > 1e5 and a["ll_misses"] <= a["l1_misses"] < a["data_reads"], a
    for key in "instructions", "data_reads", "data_writes":
        assert abs(b[key] / a[key] - 1) <= 3e-4, (key, a, b)
PY
expect_exit 1 "2 % more work is found" "$KVBENCH" compare "$TMPDIR/base/counts.jsonl" "$TMPDIR/more/counts.jsonl"
holds "  as a regression" '^REGRESSION: [0-9]+ MORE'
"$KVBENCH" compare "$TMPDIR/base/counts.jsonl" "$TMPDIR/more/counts.jsonl" --format csv >"$out"
for named in small,seq,f16,online small,pages,f16,flash small,pages,f16,online; do
    holds "  in $named" "^MORE,yes,$named,1,double,instructions,"
done
lacks "  and in none that has it not" '^(MORE|LESS|UNDECIDED),[a-z]+,small,seq,f16,flash,'
sed 's/level [a-z0-9]*,/level other,/' "$TMPDIR/base/counts.jsonl" >"$TMPDIR/other.jsonl"
ok "counts of another source are not compared" "$KVBENCH" compare "$TMPDIR/other.jsonl" "$TMPDIR/more/counts.jsonl"
holds "  as it says" 'UNDECIDED.*instructions.*counted by callgrind'

build zmm 's/^    kvb_attend copy.*/&\n__asm__ volatile("vpxord %%zmm0, %%zmm0, %%zmm0" ::: "xmm0");/'
expect_exit 1 "a kernel with AVX-512 code" count zmm --cache seq --kernel online
holds "  is told why it crashed" 'Valgrind runs no AVX-512'
done_testing
