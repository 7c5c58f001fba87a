#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the commands read no byte that was never written, at the level that Valgrind runs (portable), where a sanitizer does not
# look: forks, trees and windows over pools of each kind, by the vector kernels and the witness.
. "$(dirname "$0")/lib.sh"

command -v valgrind >/dev/null || skip_all "not installed: valgrind"
[ "$sanitized" ] && skip_all "a sanitizer is in the program"
# As `run --count` starts it (harness/counters/count.c). The heap is the program's own: heap_watch.c.
export HWLOC_COMPONENTS=-x86
watched() {
    valgrind -q --soname-synonyms=somalloc=NONE --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
        "$KVBENCH" "$@"
}
clean() { # NAME: what was run last complained of no memory
    lacks "  no byte that was never written, none lost" '==[0-9]+== ' "$err"
}

cat >"$TMPDIR/forks.jsonl" <<'EOT'
{"kvbench_trace":2,"name":"forks","source":"by hand","model":{"kv_cache.schema_version":2,"kv_cache.layers":2,"groups":[{"layers":[0],"heads":4,"kv_heads":2,"k_dim":32,"v_dim":32,"window":6,"sinks":1},{"layers":[1],"heads":4,"kv_heads":1,"k_dim":64,"v_dim":32,"latent":true,"softcap":20}]},"values":{"profile":"llama","seed":1}}
{"prefill":{"seq":0,"from":0,"n":17}}
{"seq_cp":{"src":0,"dst":1,"p0":0,"p1":12}}
{"step":{"pos":[17,12,18],"seq":[0,1,0]}}
{"seq_rm":{"seq":0,"p0":18}}
{"fill":{"seq":0,"n":9}}
{"seq_keep":{"seq":0}}
{"step":{"pos":[27],"seq":[0]}}
EOT
{
    head -n 1 "$TMPDIR/forks.jsonl" | sed 's/forks/drafts/; s/"latent":true,//'
    echo '{"prefill":{"seq":0,"from":0,"n":11}}'
    echo '{"propose":{"parents":[-1,0,0,1]}}'
    echo '{"commit":{"accepted":[0,2]}}'
    echo '{"step":{"pos":[13,14],"seq":[0,0]}}'
} >"$TMPDIR/drafts.jsonl"

run=(run --check --cpu-mask portable --jobs 1 --kernel flash)
ok "run" watched "${run[@]}" --workload "$TMPDIR/forks.jsonl" --cache window --cache slab --pool k=kivi4-k,v=nvfp4 \
    -o "$TMPDIR/a.jsonl"
holds "  all passes" '^4 passed, 0 failed, 0 crashed, 0 timed out'
clean
ok "run trees" watched "${run[@]}" --workload "$TMPDIR/drafts.jsonl" --cache tree --pool int8 --kernel flash-int8 --kernel witness
holds "  all passes" '^3 passed, 0 failed, 0 crashed, 0 timed out'
clean
ok "show results" watched show "$TMPDIR/a.jsonl" --all
clean
ok "compare" watched compare "$TMPDIR/a.jsonl" "$TMPDIR/a.jsonl"
clean
ok "size" watched size Llama-3.1-8B --context 4k --kv f16 --budget 80GiB
clean
done_testing
