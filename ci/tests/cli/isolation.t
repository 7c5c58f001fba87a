#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: a kernel that crashes, hangs, exits, leaves rows unwritten, computes something else or rounds more than it
# declares costs one row of the table, named; the run goes on.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/crimes.so
ok "the plug-in of crimes builds" plugin crimes "$so"
crimes=("$KVBENCH" run --plugin "$so" --kernel 'crime-*' --workload plain-decode --cache contiguous --pool f32 --timeout 2
    --format csv)
expect_exit 1 "a run over it ends with 1" "${crimes[@]}" -o "$TMPDIR/crimes.jsonl"

# said NAME STATUS REASON: the record of crime-NAME has this status and a reason that matches.
said() {
    grep "\"crime-$1\"" "$TMPDIR/crimes.jsonl" | grep -E "\"status\": *\"$2\"" | grep -qE "$3"
    report $? "crime-$1: $2, $3"
}
# a sanitizer's malloc stands between
by=$([ "$sanitized" ] && echo '.*lib.san\.so' || echo '.*crimes\.so') through=$([ "$sanitized" ] || echo ' > .*printf \(libc')
said none pass '"reason": *null'
said segfault crash 'SIGSEGV.*in the kernel.s attend\(\), line 2, layer 0'
said hang timeout 'no end within 2 s in the kernel.s attend\(\)'
said exit crash 'exit 0 in the kernel.s attend\(\)'
said unwritten fail 'left out unwritten at query 47, head 3, channel 0'
said partial-lse fail 'left lse unwritten at query [0-9]+, head 3'
said overrun crash 'write 0 bytes past the end of out: SIGSEGV'
said underrun crash 'write 4 bytes before the start of out: SIGSEGV'
said scratch crash 'write 0 bytes past the end of scratch: SIGSEGV'
said slack fail 'write 0 bytes past the end of lse'
said overread crash 'read [0-9]+ bytes past the end of cache memory: SIGSEGV'
said malloc fail 'line 2: crime-malloc: attend\(\) allocated or freed memory 2 times; the first: malloc of 64 bytes, called by '"$by"'.*; what it wrote is right'
said printf fail 'allocated or freed memory [2-9] times; the first: malloc of [0-9]+ bytes, called by '"$by"'.*'"$through"'.*; what it wrote is right'
said wrong-twice fail '"rho [0-9.e+]+ at line .*; besides, line 2: crime-wrong-twice: attend\(\) allocated .*: [cm]alloc of 24 bytes, called by '
said write-input fail 'attend\(\) wrote to q'
said write-rows crash 'write at byte 0 of cache memory, which is read-only: SIGSEGV'
said scaled fail 'rho [0-9.e+]+ at line'
said undeclared fail 'rho [0-9.e+]+ at line'
said declared pass '"reason": *null'
said steps pass '"reason": *null'
said neighbour fail 'cell 63 of those that each query sees is missing from, or has a wrong V row in, the outputs: z = [0-9.]+, above 8\.5'
said error fail 'attend\(\) returned -12 \(-ENOMEM, Cannot allocate memory\); line 2: '
said five fail 'attend\(\) returned 5: it is to return 0 or a negative errno'
said forgotten crash 'write at byte 8 of NULL; scratch is NULL, as the kernel has no scratch_bytes\(\): SIGSEGV'
said other-q fail 'crime-other-q: round_query\(\) moves q [0-9.e+]+ times as far as the kernel declares: query [0-9]+, head [0-9]+'
said no-q crash 'SIGSEGV.*in the check, line 2, layer 0'
said supports crash 'SIGSEGV.*in the kernel.s supports\(\)'

# endings FILE: what became of each kernel, and why.
endings() { python3 -c 'import json, sys
for line in list(open(sys.argv[1]))[1:]:
    r = json.loads(line)
    print(r["kernel"], r["status"], r["reason"])' "$1"; }
expect_exit 1 "and so does one that judges several at once" "${crimes[@]}" --check --jobs 4 -o "$TMPDIR/judged.jsonl"
ok "  with the same rows" diff <(endings "$TMPDIR/crimes.jsonl") <(endings "$TMPDIR/judged.jsonl")
expect_exit 1 "a kernel that crashes when asked what it accepts ends no run" "$KVBENCH" run --plugin "$so" --suite quick \
    --kernel crime-supports --kernel reference --workload plain-decode --pool f32 --check
holds "  but its own combinations" '^[1-9][0-9]* passed, 0 failed, [1-9][0-9]* crashed'

# A kernel that never ends costs its time limit three times, and no more.
hangs=("$KVBENCH" run --check --set no-witness --plugin "$so" --kernel crime-hang --workload plain-decode --workload agent-fork --pool f32
    --pool f16 --timeout 1)
for jobs in 1 3; do
    rm -f "$TMPDIR/hangs-$jobs.jsonl"
    expect_exit 1 "a kernel that always hangs, with $jobs at once" "${hangs[@]}" --jobs $jobs -o "$TMPDIR/hangs-$jobs.jsonl"
    holds "  is ended three times" '^0 passed, 0 failed, 0 crashed, 3 timed out, [0-9]+ skipped'
    holds "  and then skipped, which is said" '^ *[0-9]+  kernel crime-hang had no end in 3 combinations before this one'
done
ok "  the records are the same" cmp <(tail -n +2 "$TMPDIR/hangs-1.jsonl") <(tail -n +2 "$TMPDIR/hangs-3.jsonl")

expect_exit 0 "crimes that need f32 rows are skipped over f16 where something else runs" "$KVBENCH" run --plugin "$so" \
    --set no-staging --kernel crime-none --kernel reference --workload plain-decode --cache contiguous --pool f16
holds "  with what would work" 'kernel crime-none reads no f16 rows and staging is off; --pool f32 would work'
# Some products of a BLAS take memory: which, depends on shapes and on the CPU.
of_dim() { printf '{"kvbench_trace":2,"name":"head-%d","source":"by hand","model":{"kv_cache.schema_version":2,"kv_cache.layers":1,"groups":[{"layers":[0],"heads":4,"kv_heads":2,"k_dim":%d,"v_dim":%d}]},"values":{"profile":"llama","seed":1}}\n' "$1" "$1" "$1"
    printf '{"prefill":{"seq":%d,"from":0,"n":%d}}\n' 0 17 1 11 2 30
    echo '{"step":{"pos":[17,11,30],"seq":[0,1,2]}}'; }
for dim in 24 40 72 88 120; do of_dim $dim >"$TMPDIR/head-$dim.jsonl"; done
ok "what OpenBLAS takes for itself is not its caller's doing" "$KVBENCH" run --check --kernel openblas --pool f32 --cache seq \
    --set no-witness --workload "$TMPDIR/head-24.jsonl" --workload "$TMPDIR/head-40.jsonl" --workload "$TMPDIR/head-72.jsonl" \
    --workload "$TMPDIR/head-88.jsonl" --workload "$TMPDIR/head-120.jsonl"
holds "  at any head dim" '^5 passed, 0 failed'
done_testing
