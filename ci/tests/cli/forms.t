#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: every form of call that engines make can be written in a trace of a few lines, and is judged over each cache, or skipped over
# those that cannot do it, for the face that they lack or the call that they answer with ENOTSUP: any other error of a call fails.
. "$(dirname "$0")/lib.sh"

group='"heads":4,"kv_heads":2,"k_dim":16,"v_dim":16,"rope":{"base":1e4,"dims":16,"first":0,"pairing":"halves"}'
P='{"prefill":{"seq":0,"from":0,"n":8}}'
F='{"seq_cp":{"src":0,"dst":1}}'
all="contiguous paged paged-prefix recompute seq shared-prefix slab tree"
seqs="paged paged-prefix recompute seq shared-prefix slab"

# What a form may need, and the caches that lack it; refusal: the call that is ENOTSUP there, where it is not the face that is missing.
lacks() {
    refusal=
    case $1 in
    several) face='several sequences' caches_without="contiguous tree" ;;
    trees) face='propose and commit' caches_without="contiguous paged-prefix shared-prefix slab" ;;
    saves) face='save and load' caches_without="shared-prefix" ;;
    reorders) face='reordering of sequences' caches_without="contiguous shared-prefix tree" ;;
    exact) face='an exact capacity, by which steps are to be refused' caches_without="paged paged-prefix shared-prefix slab window" ;;
    shifts) face='seq_add' caches_without="contiguous paged paged-prefix recompute shared-prefix tree" ;;
    batches) refusal='line 6: begin_step: a call reads one front, and sequences 1 and 3 have not the same' caches_without=shared-prefix ;;
    mixtures) refusal='line 7: seq_cp: a sequence reads one front, and sequences 2 and 1 have not the same' caches_without=shared-prefix ;;
    divides) face='seq_div' caches_without="contiguous paged paged-prefix recompute shared-prefix slab tree window" ;;
    esac
}

# Who is to skip a form, and why: the first thing it needs that the cache lacks; and window, where no layer has limits.
skips_expected() {
    local needs=$1 limits=$2 need cache told=' '
    for need in $needs; do
        lacks "$need"
        for cache in $caches_without; do
            [[ $told == *" $cache "* ]] || echo "$cache: ${refusal:-cache $cache cannot do $face}"
            told+="$cache "
        done
    done
    [[ $limits || $told == *' window '* ]] || echo "window: no layer has a window or chunks: cache window would be cache seq"
}

# form: caches that judge it | what limits its layers | what it needs | lines
forms() {
    cat <<END
plain decoding|$all|||$P {"step":{"pos":[8],"seq":[0]}}
a copy into a living sequence|$seqs||several|$P {"seq_cp":{"src":0,"dst":1,"p1":4}} {"seq_cp":{"src":0,"dst":1,"p0":4,"p1":6}} {"step":{"pos":[6,8],"seq":[1,0]}}
a copy onto positions that are held|$seqs||several|$P $F {"seq_cp":{"src":0,"dst":1,"p0":2,"p1":4},"refused":"EINVAL"} {"step":{"pos":[8],"seq":[1]}}
a gap|$seqs||several|$P {"seq_rm":{"seq":0,"p0":2,"p1":5}} {"step":{"pos":[8,9],"seq":[0,0]}}
a gap that is filled again|$seqs||several|$P $F {"seq_rm":{"seq":1,"p0":2,"p1":5}} {"step":{"pos":[8],"seq":[1]}} {"seq_cp":{"src":0,"dst":1,"p0":2,"p1":5}} {"step":{"pos":[9],"seq":[1]}}
removal of nothing|$seqs||several|{"seq_rm":{"seq":3}} $P {"seq_rm":{"seq":0,"p0":8}} {"seq_rm":{"seq":0,"p0":3,"p1":3}} {"step":{"pos":[8],"seq":[0]}}
a copy of nothing|$seqs||several|{"seq_cp":{"src":5,"dst":0}} $P {"seq_cp":{"src":0,"dst":1,"p0":8}} {"step":{"pos":[8],"seq":[0]}}
one token in several sequences|$seqs||several|{"prefill":{"seq":[0,1],"from":0,"n":5}} {"step":{"pos":[5],"seq":[[0,1]]}} {"step":{"pos":[6,6],"seq":[0,1]}}
drafts of several sequences in one batch|paged recompute seq||several trees|$P $F {"propose":{"parents":[-1,0,-1,-1],"seq":[0,0,1,1]}} {"commit":{"seq":1,"accepted":[1]}} {"commit":{"seq":0,"accepted":[0,1]}} {"step":{"pos":[10,9],"seq":[0,1]}}
drafts while others decode|paged recompute seq||several trees|$P $F {"propose":{"parents":[-1,-1,0],"seq":[1,1,1]}} {"step":{"pos":[8],"seq":[0]}} {"commit":{"seq":1,"accepted":[1]}} {"step":{"pos":[9],"seq":[1]}}
back into what a commit brought|paged recompute seq tree||trees|$P {"propose":{"parents":[-1,0,0]}} {"commit":{"accepted":[0,2]}} {"rewind":{"len":9}} {"step":{"pos":[9],"seq":[0]}}
drafts proposed level by level|paged recompute seq tree||trees|$P {"propose":{"parents":[-1,-1]}} {"propose":{"parents":[0,1]}} {"commit":{"accepted":[1,3]}} {"step":{"pos":[10],"seq":[0]}}
ids of 64 and above|$seqs||several|$P {"seq_cp":{"src":0,"dst":64}} {"seq_cp":{"src":0,"dst":4095}} {"step":{"pos":[8,8],"seq":[64,4095]}}
a sliding window with sinks|$all window|"window":3,"sinks":1,||$P {"step":{"pos":[8],"seq":[0]}} {"step":{"pos":[9],"seq":[0]}}
chunks|$all window|"chunk":4,||$P {"step":{"pos":[8],"seq":[0]}} {"step":{"pos":[9],"seq":[0]}}
a sequence swapped out and in|paged paged-prefix recompute seq slab||several saves|$P $F {"save":{"slot":0,"seq":1}} {"seq_rm":{"seq":1}} {"step":{"pos":[8],"seq":[0]}} {"load":{"slot":0,"seq":2}} {"step":{"pos":[8],"seq":[2]}}
the whole cache swapped out and in|contiguous paged paged-prefix recompute seq slab tree||saves|$P {"save":{"slot":0}} {"step":{"pos":[8],"seq":[0]}} {"load":{"slot":0}} {"step":{"pos":[8],"seq":[0]}}
a step that a full cache must refuse|contiguous recompute seq tree|FULL|exact|$P {"step":{"pos":[8,9,10],"seq":[0,0,0]},"refused":"ENOSPC"} {"step":{"pos":[8,9],"seq":[0,0]}}
a rewind to 0 of an empty sequence|$all|||{"rewind":{"len":0}} $P {"rewind":{"len":0}} {"rewind":{"len":0}} $P
a rewind past the end|$all|||$P {"rewind":{"len":9},"refused":"EINVAL"} {"step":{"pos":[8],"seq":[0]}}
all but one dropped, then all|$seqs||several|$P $F {"step":{"pos":[8],"seq":[1]}} {"seq_keep":{"seq":1}} {"step":{"pos":[9],"seq":[1]}} {"clear":{}} $P
beams that end, swap and fork|paged paged-prefix recompute seq slab||several reorders|$P $F {"step":{"pos":[8,8],"seq":[0,1]}} {"reorder":{"dst":[0,1,2],"src":[1,0,1]}} {"step":{"pos":[9,9,9],"seq":[0,1,2]}}
two prompts, each of several sequences, in one batch|paged paged-prefix recompute seq slab||several batches|$P $F {"prefill":{"seq":2,"from":0,"n":6}} {"seq_cp":{"src":2,"dst":3}} {"step":{"pos":[8,6],"seq":[1,3]}}
a sequence put together from two such prompts|paged paged-prefix recompute seq slab||several mixtures|$P $F {"prefill":{"seq":2,"from":0,"n":6}} {"seq_cp":{"src":2,"dst":3}} {"seq_rm":{"seq":1,"p0":4}} {"seq_cp":{"src":2,"dst":1,"p0":4}} {"step":{"pos":[6],"seq":[1]}}
positions that move|seq slab||several shifts|$P {"seq_rm":{"seq":0,"p0":2,"p1":5}} {"seq_add":{"seq":0,"p0":5,"delta":-3}} {"step":{"pos":[5],"seq":[0]}}
positions that are divided|seq||shifts divides|$P {"seq_div":{"seq":0,"p0":0,"p1":8,"d":2}} {"step":{"pos":[4],"seq":[0]}}
compaction|$seqs||several|$P $F {"step":{"pos":[8],"seq":[1]}} {"seq_rm":{"seq":0,"p0":2,"p1":5}} {"defrag":{}} {"step":{"pos":[8,9],"seq":[0,1]}}
END
}

# The run before has judged these caches, and no others.
judged_over() {
    judged=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } $at["status"] == "pass" && $at["kernel"] == "flash" { print $at["cache"] }' "$out" | sort | tr '\n' ' ')
    [ "$(echo "$1" | tr ' ' '\n' | sort | tr '\n' ' ')" = "$judged" ]
    report $? "  judged over $1" || echo "# judged: $judged"
}

while IFS='|' read -r form caches limits needs lines; do
    capacity=
    [ "$limits" = FULL ] && limits='' && capacity=',"capacity":10'
    {
        echo "{\"kvbench_trace\":2,\"name\":\"form\",\"source\":\"by hand\",\"model\":{\"kv_cache.schema_version\":2,\"kv_cache.layers\":2,\"groups\":[{\"layers\":[0,1],$limits$group}]},\"values\":{\"profile\":\"gaussian\",\"seed\":3}$capacity}"
        echo "${lines//'} {'/$'}\n{'}"
    } >"$TMPDIR/form.jsonl"
    ok "$form" "$KVBENCH" run --check --workload "$TMPDIR/form.jsonl" --product --pool f32 --kernel flash --format csv
    judged_over "$caches"
    skips_expected "$needs" "$limits" | sort >"$TMPDIR/expected"
    sed -n '/,skip,/p' "$out" | awk -F, -v header="$(head -1 "$out")" '
        BEGIN { n = split(header, name, ","); for (i = 1; i <= n; i++) at[name[i]] = i }
        { reason = $at["reason"]; for (i = at["reason"] + 1; i <= NF; i++) reason = reason "," $i
          gsub(/"/, "", reason); print $at["cache"] ": " reason }' | sort -u >"$TMPDIR/skips"
    diff "$TMPDIR/expected" "$TMPDIR/skips" >"$err"
    report $? "  the others say what they lack"
done < <(forms)
for trace in ci/tests/caches/traces/*.jsonl; do
    ok "$(basename "$trace" .jsonl)" "$KVBENCH" run --check --workload "$trace" --product --pool f32 --kernel flash --format csv
    judged_over "$(sed -n '1s/.*"note":"\([^"]*\)".*/\1/p' "$trace")"
done
done_testing
