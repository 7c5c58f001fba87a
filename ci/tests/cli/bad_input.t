#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: whatever is typed or fed, the answer is one clear line and exit 2 (or 3), and result files stay whole.
. "$(dirname "$0")/lib.sh"

run=("$KVBENCH" run --workload plain-decode --cache contiguous --pool f32 --kernel reference)

# refuse NAME PATTERN COMMAND…: exit 2, one line on stderr that matches.
refuse() {
    local name=$1 pattern=$2
    shift 2
    expect_exit 2 "$name" "$@"
    one_line "  in one line"
    holds "  saying: $pattern" "$pattern" "$err"
}

# ---- unknown names say which are known
refuse "unknown command" "unknown command 'fly'; known: run check judge bench list show record" "$KVBENCH" fly
refuse "unknown option" "unknown option '--fly'; kvbench run --help lists them" "$KVBENCH" run --fly
refuse "unknown suite" "unknown suite 'x'; known: quick, default, full" "$KVBENCH" run --suite x
refuse "unknown workload" "unknown workload 'nope'; known: agent-fork, " "$KVBENCH" run --workload nope
refuse "unknown cache" "unknown cache 'nope'; known: recompute, slab, contiguous, seq, window, paged, paged-prefix, shared-prefix, tree" "$KVBENCH" run --cache nope
refuse "unknown pool" "unknown pool 'f8'; known: f32, f16, bf16" "$KVBENCH" run --pool f8
refuse "unknown pool for V" "unknown pool 'f8'; known: f32" "$KVBENCH" run --pool k=f16,v=f8
refuse "a pair half named" "pool 'k=f16': the sides apart are written k=NAME,v=NAME" "$KVBENCH" run --pool k=f16
refuse "a transform on a pool that has one" "'tq4' has no form with \\+had: it transforms rows already" \
    "$KVBENCH" run --pool tq4+had
refuse "groups that do not divide the rows" "a4g128: groups of 128 do not divide rows of 16 channels; groups of up to 16 would" \
    "$KVBENCH" run --workload plain-decode --pool a4g128
refuse "unknown growth" "unknown growth 'slow'; known: double, double\\+thp, reserve" "$KVBENCH" run --set growth=slow
refuse "unknown kernel" "unknown kernel 'nope'; known: reference, openblas, flash, flash-int8, flash-bf16, flash-f16, flash-amx, witness" "$KVBENCH" run --kernel nope
refuse "unknown values" "unknown values 'nope'; known: own, gaussian" "$KVBENCH" run --values nope
refuse "unknown format" "unknown format 'xml'; known: table, md, csv, json" "${run[@]}" --format xml
refuse "unknown list" "cannot list 'planets'; known: kernels" "$KVBENCH" list planets
refuse "an empty value" "--kernel: is empty" "$KVBENCH" run --kernel ""
refuse "a value left out" "--suite needs a value" "$KVBENCH" run --suite
refuse "a number that is none" "capacity: '12x' is not a whole number" "$KVBENCH" run --set capacity=12x
refuse "more threads than cores" "threads on a machine of" "$KVBENCH" run --threads 4096
refuse "nothing to show" "name a workload or a file" "$KVBENCH" show
refuse "a folder that is not there" "No such file" "$KVBENCH" run --workloads "$TMPDIR/none"

# ---- a name that is nearly one that is known
while IFS='|' read -r pattern words; do
    read -r -a words <<<"$words"
    refuse "did you mean: ${words[*]}" "$pattern" "$KVBENCH" "${words[@]}"
done <<'END'
unknown command 'comprae'; did you mean 'compare'\? known: run |comprae a b
unknown option '--kernle'; did you mean '--kernel'\? kvbench run --help lists them|run --kernle flash
unknown suite 'qiuck'; did you mean 'quick'\? known: quick, default, full|run --suite qiuck
unknown workload 'agent-frok'; did you mean 'agent-fork'\? known: |run --workload agent-frok
no workload or file 'eagletree'; did you mean 'eagle-tree'\? known: |show eagletree
unknown cache 'conitguous'; did you mean 'contiguous'\? known: |run --cache conitguous
unknown pool 'kivi'; did you mean 'kivi4-k'\? known: .*; each also with|run --pool kivi
unknown kernel 'flahs'; did you mean 'flash'\? known: |run --kernel flahs
unknown values 'gausian'; did you mean 'gaussian'\? known: own, |run --values gausian
unknown growth 'duoble'; did you mean 'double'\? known: |run --set growth=duoble
unknown state 'warm'; known: natural, hot, cold$|run --set cache-state=warm
unknown level 'avx-2'; did you mean 'avx2'\? known: portable, avx2|run --cpu-mask avx-2
unknown level 'avx-2'; did you mean 'avx2'\? known: portable, avx2|bench --cpu-mask avx-2
unknown format 'tabel'; did you mean 'table'\? known: table, md|list --format tabel
cannot list 'kernel'; did you mean 'kernels'\? known: kernels|list kernel
no scenario 'plain-decod'; did you mean 'plain-decode'\? known: |record --scenario plain-decod
unknown format 'q80'; did you mean 'q8_0'\? known: |size Llama-3.1-8B --kv q80
unknown engine 'vlm'; did you mean 'vllm'\? known: |size Llama-3.1-8B --engine vlm
similar: meta-llama/Llama-3.1-8B|size Llama-3.1-8C
END

# ---- the same twice
refuse "a thread count twice" "2 is given twice" "$KVBENCH" run --set oversubscribe --threads 1-3,2
refuse "all cores twice" "[0-9]+ is given twice" "$KVBENCH" run --threads all,1-64 --set oversubscribe --threads all
refuse "a range backwards" "'1' is not a whole number of 2 to" "$KVBENCH" machine --threads 2-1
refuse "an event twice" "events: 'PAPI_TOT_CYC' is given twice" "$KVBENCH" run --set events=PAPI_TOT_CYC --set events=PAPI_TOT_CYC
refuse "a kernel twice" "--kernel: 'flash' is given twice" "$KVBENCH" run --kernel flash --kernel flash
refuse "a plug-in twice" "there is a kernel 'online' already" "$KVBENCH" run --plugin "$BUILD/example-plugin/online.so" \
    --plugin "$BUILD/example-plugin/../example-plugin/online.so"
refuse "two workloads of one name" "two workloads are called 'plain-decode': " "$KVBENCH" run --workload plain-decode \
    --workload workloads/recorded/plain-decode.jsonl

# ---- traces
head='{"kvbench_trace":1,"name":"t","source":"test","model":{"kv_cache.schema_version":1,"kv_cache.layers":1,"kv_cache.heads":2,"kv_cache.kv_heads":1,"kv_cache.k_dim":16,"kv_cache.v_dim":16},"values":{"profile":"gaussian","seed":1}}'
# trace NAME PATTERN LINE…: a trace of the good header and these lines is refused, by run and by show.
trace() {
    local name=$1 pattern=$2
    shift 2
    printf '%s\n' "$head" "$@" >"$TMPDIR/t.jsonl"
    refuse "$name" "$pattern" "$KVBENCH" run --workload "$TMPDIR/t.jsonl"
    refuse "$name (show)" "$pattern" "$KVBENCH" show "$TMPDIR/t.jsonl"
}
trace "malformed JSON" 't\.jsonl:2: ' '{"step":{"pos":[0],"seq":[0]'
trace "an unknown event" "t\.jsonl:3: unknown event .leap., known: step" '{"prefill":{"seq":0,"from":0,"n":4}}' '{"leap":{}}'
trace "a copy over a position" 't\.jsonl:3: .*sequence 3' '{"prefill":{"seq":3,"from":0,"n":4}}' '{"seq_cp":{"src":3,"dst":3}}'
trace "a refusal of what may be done" 't\.jsonl:2: step: is to be refused with EINVAL, but may be done$' \
    '{"step":{"pos":[0],"seq":[0]},"refused":"EINVAL"}'
trace "a sequence past the last" 't\.jsonl:2: step: "seq"\[0\]: 4096 is out of range 0 \.\. 4095' '{"step":{"pos":[0],"seq":[4096]}}'
trace "a parent out of range" 't\.jsonl:3: .*parent' '{"prefill":{"seq":0,"from":0,"n":4}}' '{"propose":{"parents":[-1,5]}}'
trace "a position that is not the next" 't\.jsonl:2: .*position' '{"step":{"pos":[3],"seq":[0]}}'
printf '%s\n' "${head/trace\":1/trace\":9}" >"$TMPDIR/t.jsonl"
refuse "another trace version" 't\.jsonl:1: .*9' "$KVBENCH" show "$TMPDIR/t.jsonl"
printf '%s\n' "${head/version\":1/version\":2}" >"$TMPDIR/t.jsonl"
refuse "another metadata version" 't\.jsonl:1: .*schema_version' "$KVBENCH" show "$TMPDIR/t.jsonl"
for rest in '"clear":{}' '"fill":{"seq":0,"n":4}' ''; do
    printf '%s\n' "$head" >"$TMPDIR/t.jsonl"
    test -z "$rest" || echo "{$rest}" >>"$TMPDIR/t.jsonl"
    refuse "nothing but a header${rest:+ and $rest}" 't\.jsonl: expected a step, prefill or propose: there is nothing to attend' \
        "$KVBENCH" run --workload "$TMPDIR/t.jsonl"
    ok "  and it can be shown" "$KVBENCH" show "$TMPDIR/t.jsonl"
done
printf '%s\n%s' "$head" '{"step":{"pos":[0],"se' >"$TMPDIR/t.jsonl"
refuse "a truncated last line" 't\.jsonl:2: ' "$KVBENCH" show "$TMPDIR/t.jsonl"
refuse "a trace that is not there" 'No such file' "$KVBENCH" run --workload "$TMPDIR/none.jsonl"
: >"$TMPDIR/empty.jsonl"
refuse "an empty file" 'empty\.jsonl' "$KVBENCH" show "$TMPDIR/empty.jsonl"
head -c 4096 /dev/urandom >"$TMPDIR/noise.jsonl"
expect_exit 2 "noise" "$KVBENCH" show "$TMPDIR/noise.jsonl"
refuse "a step above the given capacity" 'plain-decode\.jsonl:[0-9]+: .*capacity' "${run[@]}" --set capacity=64

# ---- layers that differ: a good trace, then the same with one thing spoilt
cat >"$TMPDIR/groups.jsonl" <<'END'
{"kvbench_trace":2,"name":"g","source":"test","model":{"kv_cache.schema_version":2,"kv_cache.layers":3,"groups":[{"layers":[0,2],"heads":4,"kv_heads":2,"k_dim":16,"v_dim":32,"window":4,"sinks":1,"sink_logits":[0,0.5,1,2]},{"layers":[1],"heads":4,"kv_heads":1,"k_dim":48,"v_dim":32,"latent":true,"scale":0.2,"softcap":30}]},"values":{"profile":"gaussian","seed":1}}
{"prefill":{"seq":0,"from":0,"n":12}}
{"seq_cp":{"src":0,"dst":1,"p1":6}}
{"seq_cp":{"src":0,"dst":1,"p0":6}}
{"step":{"pos":[12,12],"seq":[0,1]}}
{"seq_rm":{"seq":0,"p0":10}}
{"step":{"pos":[10,13],"seq":[0,1]}}
END
ok "unlike groups, and a copy onto a living sequence" "$KVBENCH" run --workload "$TMPDIR/groups.jsonl" --cache seq \
    --cache window --cache recompute --pool f32 --kernel reference --kernel witness --check
holds "  pass" '^6 passed, 0 failed'
while IFS='|' read -r line change pattern; do
    sed "$change" "$TMPDIR/groups.jsonl" >"$TMPDIR/t.jsonl"
    ok "$change changes it" test -n "$(cmp "$TMPDIR/groups.jsonl" "$TMPDIR/t.jsonl")"
    refuse "  and run refuses it" "t\\.jsonl:$line: $pattern" "$KVBENCH" run --workload "$TMPDIR/t.jsonl"
    refuse "  show too" "t\\.jsonl:$line: $pattern" "$KVBENCH" show "$TMPDIR/t.jsonl"
done <<'END'
1|s/"layers":\[1\]/"layers":[1,2]/|header: group 1: layer 2 is in group 0 already$
1|s/"layers":\[0,2\]/"layers":[0]/|header: layer 2 is in no group$
1|s/"layers":\[1\]/"layers":[3]/|header: group 1: "layers"\[0\]: expected a layer, 0 \.\. 2$
1|s/"window":4/"window":0/|header: group 0: "window": 0 is out of range 1 \.\.
1|s/"window":4,//|header: group 0: 1 sinks without a window$
1|s/"window":4/"window":4,"chunk":8/|header: group 0: window 4 and chunk 8: expected one of them$
1|s/"window":4/"window":"4"/|header: group 0: "window": expected an integer, found a string$
1|s/"k_dim":48/"k_dim":31/|header: group 1: latent rows of k_dim 31 cannot hold v_dim 32$
1|s/"latent":true/"latent":1/|header: group 1: "latent": expected true or false, found an integer$
1|s/\[0,0.5,1,2\]/[0,0.5,1]/|header: group 0: "sink_logits": expected an array of 4 numbers, one a head$
1|s/"softcap":30/"softcap":-30/|header: group 1: "softcap": expected a number above 0$
1|s/"window":4/"windw":4/|header: group 0: unknown key "windw", known: layers, kind, heads, kv_heads,
1|s/"kvbench_trace":2/"kvbench_trace":1/|header: "kv_cache.schema_version": 2 is out of range 1 \.\. 1$
4|s/"p0":6/"p0":5/|seq_cp: destination sequence 1 has position 5 already$
END

sed 's/_dim":16/_dim":17/g' <<<"$head" >"$TMPDIR/odd.jsonl"
printf '%s\n' '{"step":{"pos":[0],"seq":[0]}}' >>"$TMPDIR/odd.jsonl"
refuse "a transform on an odd dimension" "needs an even number of channels, not 17; without \\+had it works" \
    "$KVBENCH" run --workload "$TMPDIR/odd.jsonl" --pool f16+had

# ---- recorded tensors
cp workloads/recorded/plain-decode.jsonl "$TMPDIR/"
refuse "tensors that are not there" 'plain-decode\.safetensors' "$KVBENCH" show "$TMPDIR/plain-decode.jsonl"
head -c 100000 workloads/recorded/plain-decode.safetensors >"$TMPDIR/plain-decode.safetensors"
refuse "tensors cut short" 'plain-decode\.safetensors' "$KVBENCH" run --workload "$TMPDIR/plain-decode.jsonl"
cp workloads/recorded/plain-decode.safetensors "$TMPDIR/"
printf '\000\000\300\177' | dd of="$TMPDIR/plain-decode.safetensors" bs=1 seek=150000 conv=notrunc status=none
refuse "NaN in recorded values" 'NaN|not finite|not-a-number' "$KVBENCH" run --workload "$TMPDIR/plain-decode.jsonl"
sed 's/"kv_cache.kv_heads":2/"kv_cache.kv_heads":1/' workloads/recorded/plain-decode.jsonl >"$TMPDIR/plain-decode.jsonl"
cp workloads/recorded/plain-decode.safetensors "$TMPDIR/"
refuse "shapes that disagree with the model" 'shape' "$KVBENCH" show "$TMPDIR/plain-decode.jsonl"

# ---- plug-ins
plugin() { # plugin NAME BODY: builds $TMPDIR/NAME.so
    printf '#include "attend.h"\n%s\n' "$2" >"$TMPDIR/$1.c"
    gcc -shared -fPIC -Ikernels "$TMPDIR/$1.c" -o "$TMPDIR/$1.so"
}
plugin other 'const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION + 1, .name = "other"};'
refuse "a plug-in of another ABI" 'other\.so: built for attend\.h version [0-9]+, this kvbench speaks version [0-9]+; rebuild it' \
    "${run[@]}" --plugin "$TMPDIR/other.so"
plugin nosym 'int something;'
refuse "a library that is no plug-in" "exports no symbol 'kvb_plugin'" "${run[@]}" --plugin "$TMPDIR/nosym.so"
refuse "a plug-in that is not there" 'No such file' "${run[@]}" --plugin "$TMPDIR/none.so"
refuse "a plug-in that is no library" 'noise\.jsonl' "${run[@]}" --plugin "$TMPDIR/noise.jsonl"
plugin hollow 'static const kvb_kernel k = {.name = "hollow", .summary = "x"}; static const kvb_kernel *const ks[] = {&k, 0};
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "hollow", .kernels = ks};'
refuse "a format that no kernel reads, and no staging" \
    "--set no-staging: no selected kernel reads pool k=q4_0,v=q4_0; kernels that do: reference, openblas, .*; pools that .* read: f32$" \
    "$KVBENCH" run --plugin "$BUILD/example-plugin/online.so" --kernel online --pool q4_0 --set no-staging
refuse "a kernel without functions" "kernel 'hollow' has no attend\\(\\) or scan\\(\\)" "$KVBENCH" list --plugin "$TMPDIR/hollow.so"

# ---- outputs
"${run[@]}" -o "$TMPDIR/kept.jsonl" >/dev/null 2>&1
cp "$TMPDIR/kept.jsonl" "$TMPDIR/before.jsonl"
refuse "an unwritable output path" 'no-folder.*No such file' "${run[@]}" -o "$TMPDIR/no-folder/x.jsonl"
expect_exit 2 "a full device" "${run[@]}" -o /dev/full
holds "  is said" 'No space left' "$err"
ok "  and is still a device" test -c /dev/full
expect_exit 3 "a disk that fills up" bash -c 'ulimit -f 4; exec "$@"' _ "${run[@]}" --cache '*' -o "$TMPDIR/kept.jsonl"
holds "  is said" 'File too large' "$err"
ok "  and the old file is whole" cmp "$TMPDIR/kept.jsonl" "$TMPDIR/before.jsonl"
ok "  and nothing is left lying about" test "$(find "$TMPDIR" -name 'kept*' | wc -l)" -eq 1

# ---- standard output: what is full is an error, a reader that has left is none, of whatever command
# "exec 3>…" makes a pipe whose reader has left before anything is written
while read -r -a words; do
    expect_exit 3 "a full standard output: ${words[*]}" bash -c '"$@" >/dev/full' _ "$KVBENCH" "${words[@]}"
    holds "  is said" '^kvbench.*: cannot write to standard output$' "$err"
    expect_exit 0 "a closed one" bash -c 'exec 3> >(:); wait $!; exec "$@" >&3' _ "$KVBENCH" "${words[@]}"
    ok "  says nothing" test ! -s "$err"
done <<END
--version
help
run --help
run --workload plain-decode --cache contiguous --pool f32 --kernel reference --check --format csv
list
show plain-decode
show $TMPDIR/before.jsonl --format benchmark
size Llama-3.1-8B
compare $TMPDIR/before.jsonl $TMPDIR/before.jsonl
machine --format xml
END
done_testing
