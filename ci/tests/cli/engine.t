#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: kvbench engine plays histories of calls over engines: this program's runner passes; each planted fault is found, the first
# wrong call right, and shrunk; an engine that dies, hangs, prints or starts threads costs a row; of llama.cpp, where it is installed
# (make engines), all that differs is known, in three builds, a damaged model and an unknown layout are refused, and what an old build
# did wrong the current one does right.
. "$(dirname "$0")/lib.sh"

refuse() { # STATUS NAME PATTERN OPTION…
    local status=$1 name=$2 pattern=$3
    shift 3
    expect_exit "$status" "$name" "$KVBENCH" engine "$@"
    one_line "  in one line"
    holds "  saying: $pattern" "$pattern" "$err"
}
refuse 2 "no histories" 'no histories: --random N, --script CALLS, --workload NAME or --known' --engine live
refuse 2 "an unknown engine" "unknown engine 'lama'; did you mean 'llama'\?" --engine lama --random 1
refuse 2 "an unknown family" "unknown word 'lama'; did you mean 'llama'\?" --engine live --family lama --random 1
refuse 2 "an unknown format of the cache" "unknown word 'q9'; known: f32, f16" --engine live --kv q9 --random 1
refuse 2 "an unknown fault" "unknown fault 'remove-swalowed'; did you mean 'remove-swallowed'" --engine live --fault remove-swalowed --random 1
refuse 2 "a call that is none" "call 2, 'rn 0', is none of: d SEQ N" --engine live --script 'd 0 1; rn 0'
refuse 2 "a sequence that is none" "call 1, 'd 32 1', is none of" --engine live --script 'd 32 1'
refuse 2 "a history that cannot be" "call 2: nothing was saved" --engine live --script 'd 0 1; load 0'
refuse 2 "positions below 0" "call 2: a token is moved onto or across one that stays, or below 0" --engine live --script 'd 0 2; add 0 0 end -1'
refuse 2 "an unknown workload" "unknown workload 'plain-decod'; did you mean 'plain-decode'" --engine live --workload plain-decod
refuse 2 "a workload that no engine can be given" 'self-extend: line 5: engines are not given this: seq_div' --engine live --workload self-extend
refuse 2 "one of too many sequences" 'many-holders: line [0-9]*: engines are not given this: more than 32 sequences' --engine live --workload many-holders
refuse 2 "a plug-in that is none" 'cannot open shared object' --engine ./none.so --random 1
refuse 3 "a folder that is not there" 'none: No such file or directory' --lib "$TMPDIR/none" --random 1
mkdir "$TMPDIR/empty"
refuse 3 "a folder without the library" 'empty: holds no libllama\*\.so' --lib "$TMPDIR/empty" --random 1
gcc -shared -fPIC -x c /dev/null -o "$TMPDIR/empty/libllama.so"
refuse 3 "a library that lacks a function" 'libllama\.so lacks llama_backend_init' --lib "$TMPDIR/empty" --random 1
printf '\xb7\0' | dd of="$TMPDIR/empty/libllama.so" bs=1 seek=18 conv=notrunc 2>"$err" # e_machine: AArch64
[ "$(uname -m)" = aarch64 ] && printf '\x3e\0' | dd of="$TMPDIR/empty/libllama.so" bs=1 seek=18 conv=notrunc 2>"$err"
refuse 3 "a library of another architecture" 'libllama\.so: (wrong ELF class|cannot open|.*ELF)' --lib "$TMPDIR/empty" --random 1
ok "engines, families, faults and known differences are listed" "$KVBENCH" engine --list
holds "  with what to do" "advice: remove the other sequences one by one"

# ---- this program's runner, and planted faults
live=("$KVBENCH" engine --engine live)
ok "the live runner passes" "${live[@]}" --family llama,llama-deep,windows,hybrid --kv f32,q8_0 --random 6
[ "$(grep -c '^[a-z-]* *unified [fq0-9_]* *flash off *0 wrong of 6 ' "$out")" = 8 ]
report $? "  over four families and two formats"

ok "  and recorded workloads" "${live[@]}" --workload evict-rollback --workload context-shift --workload save-restore --workload spec-batch
for fault in remove-swallowed shift-short copy-elsewhere; do
    expect_exit 1 "wrong histories as traces: $fault" "${live[@]}" --random 6 --fault $fault --traces "$TMPDIR/wrong"
    trace=$TMPDIR/wrong/llama-unified-f32-new-1.jsonl
    ok "  engines play them" "${live[@]}" --workload "$trace"
    expect_exit 1 "  and show the same" "${live[@]}" --workload "$trace" --fault $fault
    ok "  our caches replay them" "$KVBENCH" run --check --workload "$trace" --cache seq --pool f32 --kernel flash
done
expect_exit 1 "a restore into what is not empty" "${live[@]}" --script 'd 0 2; save 0; d 0 1; load 0; rm 0' --fault remove-swallowed --traces "$TMPDIR/wrong"
ok "  is a removal and a restore" grep -A1 '"seq_rm":{"seq":0}' "$TMPDIR/wrong/llama-unified-f32-new-1.jsonl"
refuse 2 "a folder that cannot be made" '--traces: .*/none/none: No such file or directory' --engine live --script 'd 0 1' --traces "$TMPDIR/none/none"
cat >"$TMPDIR/drafts.jsonl" <<'END'
{"kvbench_trace":1,"name":"drafts","source":"here","model":{"kv_cache.schema_version":1,"kv_cache.layers":1,"kv_cache.heads":1,"kv_cache.kv_heads":1,"kv_cache.k_dim":16,"kv_cache.v_dim":16,"scale":0.25},"values":{"profile":"llama","seed":1}}
{"step":{"pos":[0,1,0],"seq":[0,0,70]}}
{"propose":{"parents":[-1,0,0,2,2,-1]}}
{"propose":{"parents":[1]}}
{"commit":{"accepted":[0,2,4]}}
{"propose":{"parents":[-1,-1],"seq":[70,70]}}
{"commit":{"accepted":[],"seq":70}}
{"reorder":{"dst":[0,70],"src":[70,0]}}
{"seq_keep":{"seq":70}}
END
expect_exit 1 "a draft tree is a sequence for each path, and swapped sequences are copies" "${live[@]}" --workload "$TMPDIR/drafts.jsonl" \
    --fault keep-swallowed
two='d 0 2 1 1; cp 0 2; d 0 1 2 1; cp 0 3; d 0 1 3 1; cp 3 4; d 3 1 4 1; d 0 1; rm 3; rm 2; rm 0; cp 4 0; rm 4'
none='cp 1 2; d 1 1 2 1; rm 2; rm 1 1 end'
holds "  to the call" "--script '$two; $none; cp 1 2; cp 0 3; rm 0; rm 1; cp 2 0; rm 2; cp 3 1; rm 3; keep 1'"

# fault NAME CALL SCRIPT: the first wrong call of the script, and of what random histories are shrunk to at most six calls.
fault() {
    expect_exit 1 "planted: $1" "${live[@]}" --fault "$1" --script "$3"
    holds "  call $2 of '$3' is the first wrong one" "^  NEW: call $2, "
    ok "  which is right without it" "${live[@]}" --script "$3"
    expect_exit 1 "  it is found at random" "${live[@]}" --fault "$1" --random 10 --seed 5
    ! grep -oE "script '[^']*'" "$out" | grep -qE '(;.*){6}'
    report $? "  and shrunk to at most six calls"
}
fault remove-swallowed 2 'd 0 4; rm 0 2 end; d 0 1'
fault remove-short 3 'd 0 4; rm 0 1 3; d 0 1'
fault copy-elsewhere 2 'd 0 3; cp 0 1; d 1 1'
fault shift-short 2 'd 0 3; add 0 0 end 2; d 0 1'
fault load-swallowed 5 'd 0 2; save 0; d 1 2; load 1; d 1 1' # as many positions: seen by the logits
fault keep-swallowed 3 'd 0 2; d 1 3; keep 1; d 1 1'
fault save-stale 6 'd 0 2; save 0; d 1 2; save 1; load 2; d 2 1'
fault decode-another 1 'd 0 2'

# ---- somebody's engine
so=$TMPDIR/toy.so
toy() { gcc -std=gnu11 -O1 -Wall -shared -fPIC -I. ci/tests/cli/plugins/engine.c -o "$@" -lpthread; }
ok "an engine as a plug-in builds" toy "$so"
expect_exit 0 "  and passes" "$KVBENCH" engine --engine "$so" --model right --random 30
row() { # MODEL STATUS PATTERN
    expect_exit "$2" "an engine that does: $1" "$KVBENCH" engine --engine "$so" --model "$1" --seconds "$([ "$sanitized" ] && echo 20 || echo 1)" \
        --script 'd 0 2; d 0 3'
    holds "  $3" "$3"
}
row abort 1 'NEW: call 2, dies: it ends by signal ABRT$'
row exit 1 'NEW: call 2, dies: it ends itself$'
row hang 1 'NEW: call 2, dies: it hangs$'
row print 0 '0 wrong .*; it prints hello from the engine$'
row thread 0 '0 wrong .*; it starts threads$'
row open 3 'UNAVAILABLE: the engine crashes, ends itself or hangs as it is opened'
refuse 3 "one that is not for this machine" 'this machine has no such engine' --engine "$so" --model none --random 1
ok "one of another contract builds" toy "$so" -DABI=99
refuse 2 "  and is refused" 'has version 99 of the contract, not 1' --engine "$so" --random 1

# ---- llama.cpp
if [ ! -d "$BUILD/engines/ggml" ]; then
    report 0 "llama.cpp # SKIP $BUILD/engines/ggml is not there: make engines installs it, with npm"
    done_testing
    exit
fi
ok "all that differs in the current build is known, and still there" "$KVBENCH" engine --family llama,llama-96,latent,hybrid,delta,windows \
    --cache both --known
lacks "  none is gone or new" "NEW|GONE|BACK"
for name in shift-then-save copy-then-save keep-split restore-empty rollback-then-fork fork-then-rollback middle-of-state windows-forget \
    batch-then-rollback; do
    holds "  $name" "^  $name: call "
done
ok "random histories find nothing else" "$KVBENCH" engine --family llama,hybrid --cache both --random 6 --seed 1000
# found NAME SEED OPTION…: a random history shows it, and is shrunk to at most six calls.
found() {
    local name=$1 seed=$2
    shift 2
    ok "found at random: $name" "$KVBENCH" engine "$@" --random 1 --seed "$seed"
    grep -A1 "^  $name: call" "$out" | grep -E "script '([^;']*;){0,5}[^;']*'" >/dev/null
    report $? "  and shrunk"
}
found shift-then-save 20025
found restore-empty 20004
found keep-split 20003 --cache split
found copy-then-save 2 --cache split
found rollback-then-fork 1011 --family delta
found fork-then-rollback 1031 --family hybrid
found batch-then-rollback 1023 --family hybrid
found middle-of-state 1043 --family hybrid
found windows-forget 350 --family windows
found quantised-shift 20000 --family llama-96 --kv q8_0
# Several layers: removed and moved below what stays, against our own decoder
ok "several layers are judged in every history" "$KVBENCH" engine --family llama-deep,latent-deep,hybrid,delta --random 3
[ "$(grep -c ' [1-9][0-9]* logits judged, 0 not; ' "$out")" = 4 ]
report $? "  in all tokens"
renews=(--fault shift-renews --script 'd 0 8; rm 0 2 4; add 0 4 end -2; d 0 1')
expect_exit 1 "rows decoded anew are not those that were moved" "$KVBENCH" engine --family llama-deep "${renews[@]}"
holds "  by the logits" '^  NEW: call 4, logits'
ok "  in one layer they are" "$KVBENCH" engine "${renews[@]}"
ok "recorded workloads are right" "$KVBENCH" engine --family llama-deep --workload evict-rollback --workload save-restore \
    --workload preempt-resume --workload spec-batch --workload beam-search --workload engine-calls
holds "  in all tokens" '0 wrong of 6 histories, .*; [56][0-9][0-9] logits judged, 0 not'
# blamed PATTERN OPTION…: what attention's nodes show of a fault.
blamed() {
    "$KVBENCH" engine "${@:2}" >"$out" 2>"$err"
    holds "a fault's place: $1" "visible; $1"
}
right=', and attention of what they hold is right'
blamed "rows: as many cells are visible as must be$right" --flash on --cache split --script 'd 0 1; cp 0 1; save 1; load 2; d 2 1'
blamed "rows: the right cells are visible$right" --flash on --family llama-deep "${renews[@]}"
blamed "rows: the right cells are visible$right" --family latent-deep --kv f16 "${renews[@]}"
blamed 'visibility: position 4 of sequence 0 sees the token decoded as 1 of sequence 0, first of 2 wrong cells' --flash on \
    --fault remove-swallowed --script 'd 0 4; rm 0 1 3; d 0 1'
blamed 'visibility: position 4 of sequence 2 sees the token decoded as 1 of sequence 0, first of 2 wrong cells' --cache split \
    --fault remove-swallowed --script 'd 0 4 1 3; cp 0 2; rm 2 1 3; d 1 2 2 1'
blamed 'visibility: position 1 of sequence 1 does not see the token decoded as 0 of sequence 0, first of 31 wrong cells' \
    --family windows-deep --script 'd 0 1; cp 0 1; d 1 256'
ok "with flash attention, over f16" "$KVBENCH" engine --family llama-deep,llama-128 --kv f16 --flash on --random 5
whole=(--cache split --script 'd 0 1 1 1; save all; load all; d 0 1 1 1')
ok "whole-state restore of a split cache is right now" "$KVBENCH" engine "${whole[@]}"
holds "  in all calls" "0 wrong of 1 histories, 4 calls"
for build in llama-b10361 llama-b6301; do
    if [ ! -d "$BUILD/engines/$build" ]; then
        report 0 "$build # SKIP $BUILD/engines/$build is not there: make engines installs it, where npm still has it"
        continue
    fi
    ok "$build: what differs is known" "$KVBENCH" engine --lib "$BUILD/engines/$build" --family llama,latent,hybrid --cache both --known
    ok "  and was wrong there" "$KVBENCH" engine --lib "$BUILD/engines/$build" "${whole[@]}"
    holds "  at the call that restores" "^  whole-state-split: call 3, positions"
done
"$KVBENCH" engine --family llama-deep --random 1000000 >/dev/null 2>&1 & # its seeded model lies in memory
own=$!
for _ in $(seq 100); do
    for fd in "/proc/$own/fd"/*; do
        [[ $(readlink "$fd") != /memfd:llama* ]] || cp "$fd" "$TMPDIR/mine.gguf" 2>/dev/null
    done
    [ ! -s "$TMPDIR/mine.gguf" ] || break
    sleep 0.1
done
kill $own
wait $own 2>/dev/null
ok "a model of one's own" "$KVBENCH" engine --model "$TMPDIR/mine.gguf" --cache both --random 3 --known
holds "  is judged" '^model +split +f32 +flash off [1-9].* 0 not; worst [0-9.]* of its limit$'
sed 's/llama\.rope\.freq_base/llama.rope.freq_bass/' "$TMPDIR/mine.gguf" >"$TMPDIR/bass.gguf"
ok "one that our decoder does not know" "$KVBENCH" engine --model "$TMPDIR/bass.gguf" --script 'd 0 8; rm 0 2 4; d 0 1'
holds "  is judged by fresh decodes alone" ' 1 logits judged, 1 not; .*; without our own decoder: .*llama\.rope\.freq_bass is not what the decoder knows$'
if [ -d "$BUILD/engines/llama-b6301" ]; then # an old build under the name of a newer one: news of both kinds
    mkdir "$TMPDIR/renamed"
    ln -s "$BUILD/engines/llama-b6301"/libggml* "$TMPDIR/renamed"
    ln -s "$BUILD/engines/llama-b6301/libllama.b6301.so" "$TMPDIR/renamed/libllama.v0.9.0.so"
    expect_exit 1 "what is known and gone, or fixed and back, is news" "$KVBENCH" engine --lib "$TMPDIR/renamed" --family llama,hybrid \
        --cache split --known
    holds "  gone" '^  GONE middle-of-state: '
    holds "  back" '^  BACK batch-with-gap: '
fi
printf 'GGUF\3\0\0\0damaged' >"$TMPDIR/damaged.gguf"
refuse 2 "a damaged model" 'the model is not loaded: ' --model "$TMPDIR/damaged.gguf" --random 1
refuse 2 "a model that is not there" 'the model is not loaded: ' --model "$TMPDIR/none.gguf" --random 1
expect_exit 3 "a layout that is not so" "$KVBENCH" engine --layout type_k=100 --random 1
holds "  is refused by the word that is not as expected" "UNAVAILABLE: .* are not understood: type_k is not where it is looked for"
expect_exit 3 "another one" "$KVBENCH" engine --layout threads=20 --random 1
holds "  by its getter" "UNAVAILABLE: .*(n_threads is not where it is looked for|no context|crashes)"
refuse 2 "a layout that is none" "'thread=20' is no NAME=OFFSET" --layout thread=20 --random 1
done_testing
