#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: a foreign kernel may allocate and have threads, its record says so, and its own project's rule judges it, with --strict the
# bound too; ggml's kernels are refused with the name of what their library lacks, and pass over what they read in place where there
# is one (make engines); what is installed is what is pinned.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/foreign.so
built() { plugin foreign "$so" "$@"; }
run=("$KVBENCH" run --check --set no-witness)
foreign=("${run[@]}" --plugin "$so" --kernel 'foreign-*' --workload plain-decode --cache contiguous --pool f32)

# said NAME STATUS PATTERN FILE: the record of foreign-NAME has this status, and matches.
said() {
    grep "\"foreign-$1\"" "$4" | grep -E "\"status\": *\"$2\"" | grep -qE "$3"
    report $? "  foreign-$1: $2, $3"
}
ok "the plug-in of foreign kernels builds" built
expect_exit 1 "kernels that call an engine are judged" "${foreign[@]}" -o "$TMPDIR/own.jsonl"
said right pass '"foreign": \{"calls": [1-9][0-9]*, "allocations": [1-9][0-9]*, "engine": "an engine of a test", "rule": "nmse", "limit": 0.0005' "$TMPDIR/own.jsonl"
said near pass '"rho": [1-9].*"share": 0\.[12][0-9]*, "outputs": [1-9][0-9]+, "source": "a test"' "$TMPDIR/own.jsonl"
holds "  what the bound would have refused is counted" "^3 of the passed by the rule of their kernel's own project; 2 of these with rho above 1\$"
said far fail '1\.[0-9]+ times what its own project tolerates \(nmse 0\.0005\) at line [0-9]+, layer [0-9]+; line [0-9]+: .*; the worst: rho [0-9]' "$TMPDIR/own.jsonl"
said close pass '"rule": "close", "limit": 0.001, "relative": 0.01, "share": 0\.[0-9]+' "$TMPDIR/own.jsonl"
said bound fail '"reason": "rho [1-9].*"rule": "none"' "$TMPDIR/own.jsonl"
said tame fail 'a thread was started in attend\(\) or before it: pthread_create, called by .*foreign\.so' "$TMPDIR/own.jsonl"
grep '"foreign-tame"' "$TMPDIR/own.jsonl" | grep -q '"foreign":'
report $((! $?)) "  who does not say that it is foreign has no such record"
expect_exit 1 "with --strict the bounds decide" "${foreign[@]}" --strict -o "$TMPDIR/strict.jsonl"
said right pass '"rho": 0' "$TMPDIR/strict.jsonl"
said near fail '"reason": "rho [1-9].*"share": 0\.[12]' "$TMPDIR/strict.jsonl"
ok "records are read again" "$KVBENCH" show "$TMPDIR/own.jsonl"
ok "what an engine is says the list" "$KVBENCH" list kernels --plugin "$so" --format csv
holds "  there" '^kernel,foreign-right,,foreign,yes: an engine of a test,'
ok "a rule of a kernel that is not foreign builds" built -DRULE_OF_TAME
expect_exit 2 "  and is refused" "$KVBENCH" list kernels --plugin "$so"
holds "  by name" "kernel 'foreign-no-rule' has no flag KVB_KERNEL_FOREIGN" "$err"

# A library made of the names that the plug-in looks for, but one.
plugin=(--plugin "$BUILD/plugins/ggml.so")
ggml=("${run[@]}" "${plugin[@]}" --kernel 'ggml*')
names=$(sed -n 's/^    X([^,]*, \([a-z0-9_]*\), .*/ggml_\1/p' kernels/ggml/ggml.c | grep -vE '_set_n_threads|threadpool(_new|_free)?$')
made() { # NAME LEFT OUT: a folder with that library
    mkdir -p "$TMPDIR/$1"
    echo "$names" | grep -vx "$2" | sed 's/.*/const char *&(void) { return 0; }/; s/ggml_version(void) { return 0/ggml_version(void) { return "0.1"/' >"$TMPDIR/$1/all.c"
    gcc -shared -fPIC "$TMPDIR/$1/all.c" -o "$TMPDIR/$1/libggml.so" && gcc -shared -fPIC -x c /dev/null -o "$TMPDIR/$1/libggml-base.so"
}
refused() { # FOLDER WHY
    KVB_GGML=$1 "$KVBENCH" list kernels "${plugin[@]}" --format csv >"$out" 2>"$err"
    grep -qE "^kernel,ggml,,ggml,\"?unavailable: .*$2" "$out" && [ ! -s "$err" ]
    report $? "  is refused: $2"
}
[ "$(echo "$names" | wc -l)" -gt 30 ] && made lacks ggml_soft_max_add_sinks
report $? "a library without a function"
refused "$TMPDIR/lacks" 'libggml lacks ggml_soft_max_add_sinks'
made other none
report $? "a library that is laid out otherwise"
refused "$TMPDIR/other" 'ggml 0\.1: its type 0 is not f32, in blocks of 4 bytes'
refused "$TMPDIR/nowhere" 'nowhere: No such file or directory; KVB_GGML names a folder with libggml'
mkdir "$TMPDIR/empty"
refused "$TMPDIR/empty" 'empty: no libggml-base\*\.so; KVB_GGML names a folder that has it'
KVB_GGML=$TMPDIR/empty expect_exit 3 "a run over it does nothing" "${ggml[@]}" --workload plain-decode --pool f32
holds "  and says why" '[1-9].*empty: no libggml-base'

# What is downloaded must be what is pinned.
mkdir "$TMPDIR/bin"
printf '#!/bin/sh\necho other >other.tgz && echo other.tgz\n' >"$TMPDIR/bin/npm"
chmod +x "$TMPDIR/bin/npm"
if [ "$(uname -m)" = x86_64 ]; then
    PATH=$TMPDIR/bin:$PATH expect_exit 3 "another archive is not installed" ci/engines.sh "$TMPDIR/engines"
    [ "$(grep -c 'other\.tgz has another checksum' "$err")" = 4 ] && [ "$(wc -l <"$err")" = 4 ]
    report $? "  as a line for each engine says"
    [ -z "$(ls "$TMPDIR/engines")" ]
    report $? "  and nothing is left"
fi

# The real one, over rows of 128 channels in three steps.
small_trace 8 >"$TMPDIR/small.jsonl"
if [ ! -d "$BUILD/engines/ggml" ]; then
    report 0 "ggml's kernels # SKIP $BUILD/engines/ggml is not there: make engines installs it, with npm"
else
    ok "ggml is found" "$KVBENCH" list kernels "${plugin[@]}" --format csv
    holds "  with its version and CPU backend" '^kernel,ggml,,ggml,"?yes: ggml [0-9.]+ \([0-9a-f]+\), libggml-cpu-[a-z0-9]+\.so'
    formats=(f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl)
    mapfile -t pools < <(printf -- '--pool\n%s\n' "${formats[@]}")
    met=() # each kind of step and of group once
    for name in slab contiguous seq window paged paged-prefix shared-prefix tree; do
        met+=(--cache "$name")
    done
    for name in "$TMPDIR/small.jsonl" batched-multi-seq agent-fork eagle-tree sink-window gpt-oss-like mla-decode shared-prompt; do
        met+=(--workload "$name")
    done
    # One thread: where cores are busy, ggml's threads spin for most of the time until all of them have had a core.
    ok "workloads of the quick suite pass over all that its kernels read in place" "${ggml[@]}" --suite quick "${met[@]}" "${pools[@]}" \
        --threads 1 --set oracle-pairs=20000 --set no-staging -o "$TMPDIR/ggml.jsonl"
    for format in "${formats[@]}"; do
        holds "  $format" "\"pool_k\": \"$format\", \"pool_v\": \"$format\", \"kernel\": \"ggml\".*\"status\": \"pass\".*\"rho\": [0-9.e-]+,.*\"rule\": \"nmse\"" "$TMPDIR/ggml.jsonl"
    done
    holds "  ggml-mul" '"kernel": "ggml-mul".*"status": "pass".*"rule": "nmse"' "$TMPDIR/ggml.jsonl"
    ok "what it says of its roundings holds" "${ggml[@]}" --workload "$TMPDIR/small.jsonl" --cache contiguous --pool f32 --pool f16 --pool bf16 \
        -o "$TMPDIR/rounds.jsonl"
    grep -c '"rho": 0\.[0-9]*,' "$TMPDIR/rounds.jsonl" | grep -qx 6
    report $? "  no output is beyond the bound that follows from it"
    ok "K and V apart, two threads, softcap, sinks" "${ggml[@]}" --workload "$TMPDIR/small.jsonl" --cache seq \
        --pool k=q8_0,v=q4_0 --pool k=q5_1,v=f16 --pool k=iq4_nl,v=bf16 --threads 2 --set softcap=20 --set sinks --set oracle-pairs=200000 --set opinion-pairs=1000 --set no-staging \
        --set oversubscribe
    tiny=("$KVBENCH" bench --targets --work "decode-f16-*" --cells 512 --threads 2)
    if "${tiny[@]}" --kernel reference --seconds 0.01 >/dev/null 2>&1; then
        "${tiny[@]}" "${plugin[@]}" --kernel ggml --seconds 60 >/dev/null 2>&1 &
        bench=$!
        apart() { # three threads, the caller's CPU its own: the team's other one and ggml's are elsewhere
            cat /proc/$bench/task/*/status 2>/dev/null | awk '/^Cpus_allowed_list/ { n[$2]++; all++; first = first == "" ? $2 : first }
                END { exit !(all == 3 && n[first] == 1) }'
        }
        for _ in $(seq 150); do
            apart && break
            sleep 0.1
        done
        apart
        report $? "ggml's threads sit where the team's do"
        kill $bench
        wait $bench 2>/dev/null
    fi
    ok "in memory that others have used, too" "${ggml[@]}" --set no-guard --workload agent-fork --cache paged --pool f16 --threads 1 \
        --set oracle-pairs=20000
    expect_exit 1 "what its project does not promise, hidden cells that are not finite, --strict asks for" "${ggml[@]}" --strict \
        --workload batched-multi-seq --cache seq --pool f16
    holds "  and finds" 'only with hidden cells poisoned: the kernel reads'
fi

# ONNX Runtime.
plugin=(--plugin "$BUILD/plugins/onnx.so")
onnx=("${run[@]}" "${plugin[@]}" --set no-staging --set oracle-pairs=20000)
unavailable() {
    KVB_ONNX=$1 "$KVBENCH" list kernels "${plugin[@]}" --format csv >"$out" 2>"$err"
    grep -qE "^kernel,ort,,onnx,\"?unavailable: .*$2" "$out" && [ ! -s "$err" ]
    report $? "ONNX Runtime is refused: $2"
}
unavailable "$TMPDIR/none.so" 'none.so: No such file or directory; KVB_ONNX names a libonnxruntime.so'
unavailable "$BUILD/example-plugin/online.so" 'OrtGetApiBase'
echo 'struct { const void *(*get)(unsigned); const char *(*name)(void); } base; static const void *get(unsigned v) { (void)v; return 0; }
static const char *name(void) { return "0.1"; } void *OrtGetApiBase(void) { base.get = get; base.name = name; return &base; }' >"$TMPDIR/old.c"
gcc -shared -fPIC "$TMPDIR/old.c" -o "$TMPDIR/old.so" && unavailable "$TMPDIR/old.so" 'ONNX Runtime 0.1 is older'
if [ ! -d "$BUILD/engines/onnx" ]; then
    report 0 "its kernels # SKIP $BUILD/engines/onnx is not there: make engines installs it, with npm"
else
    ok "its kernels are right over what they read in place" "${onnx[@]}" --suite quick --kernel 'ort*' --pool f32 --threads 1,2 --workload "$TMPDIR/small.jsonl" \
        --workload batched-multi-seq --workload sink-window --workload hybrid-decode --cache contiguous --cache seq --cache slab -o "$TMPDIR/onnx.jsonl"
    for kernel in ort ort-gqa; do
        holds "  $kernel" "\"pool_k\": \"f32\", \"pool_v\": \"f32\", \"kernel\": \"$kernel\".*\"status\": \"pass\".*\"engine\": \"ONNX Runtime" "$TMPDIR/onnx.jsonl"
    done
    for type in f32 f16; do
        ok "rows of f16, outputs of $type" "${onnx[@]}" --kernel ort-gqa --pool f16 --set out=$type --workload plain-decode-8x128 --cache contiguous
    done
    ok "single calls" "$KVBENCH" run --check --suite calls --set calls=12 "${plugin[@]}" --kernel 'ort*'
fi
done_testing
