#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what a failing run says is enough to find the fault: the worst element, the first, what fails beside it, the event in words,
# what the witness makes of the cache; the command of the first failure alone can be pasted into a shell; one call can be run alone,
# dumped, and stopped at; what a plug-in's name breaks is said.
. "$(dirname "$0")/lib.sh"

odd=$TMPDIR/"it's odd"
mkdir -p "$odd"
so=$odd/'my $crimes.so'
ok "a plug-in of a file name for shells" plugin crimes "$so" -g
trace=$odd/$'tab\tand @profile.jsonl'
cp workloads/recorded/agent-fork.jsonl "$trace"
cp workloads/recorded/agent-fork.safetensors "$odd"

# replayed FILE: pastes the command of the first failure that $out names into bash; its records go to FILE.
replayed() {
    local command
    command=$(sed -n 's/^the first failure alone: //p' "$out")
    [ -n "$command" ] && bash -c "$command -o '$1'" >"$out" 2>"$err"
}
# same FILE OTHER: the first failure of FILE is the only record of OTHER, but for measured numbers.
same() {
    python3 - "$1" "$2" <<'PY'
import json, sys
(manifest, *many), (again, *one) = ([json.loads(line) for line in open(f)] for f in sys.argv[1:3])
failed = [r for r in many if r["status"] not in ("pass", "skip")]
assert len(many) > 1 and len(one) == 1, (len(many), len(one))
keys = "cache pool_k pool_v kernel threads growth out status reason rho error".split()
assert {k: failed[0][k] for k in keys} == {k: one[0][k] for k in keys}, [(k, failed[0][k], one[0][k]) for k in keys]
assert one[0]["workload"].startswith(failed[0]["workload"]) # which options of a setting, once typed, are added to
assert all("replay" in r for r in failed) and not any("replay" in r for r in many if r not in failed)
assert (manifest["seed"], manifest["isa"]) == (again["seed"], again["isa"])
PY
}

# pasted NAME OPTION…: a run of a kernel that scales scores fails; so does what it prints, alone, with the same record.
pasted() {
    local name=$1
    shift
    expect_exit 1 "$name: fails" "$KVBENCH" run --plugin "$so" --kernel 'crime-[ns][oc]*' --kernel flash "$@" -o "$TMPDIR/many.jsonl"
    replayed "$TMPDIR/one.jsonl"
    [ $? -eq 1 ]
    report $? "  and so does what is pasted"
    ok "  the same way, alone" same "$TMPDIR/many.jsonl" "$TMPDIR/one.jsonl"
}
pasted "a file with spaces, pools apart, growth, values, seed" --workload "$trace" --values qwen --seed 7 --check \
    --pool k=f32,v=f32 --pool k=f16,v=f32 --cache 'sl*' --set growth='r*' --set oversubscribe --threads 3,1
pasted "settings that pairs chose" --check --set pairs --workload plain-decode --workload 'beam*' --cache seq --cache paged --pool f32
pasted "a suite's sample, softcap, sinks, mask" --suite quick --workload 'plain-decode-2*' --cache contiguous --pool 'f*' \
    --set softcap=20.5 --set sinks --cpu-mask portable --check --product --junit "$TMPDIR/f.xml"
holds "  which JUnit has too" '^alone: .* --kernel crime-scaled ' "$TMPDIR/f.xml"
pasted "a timed run" --workload agent-fork --cache seq --cache slab --pool f32 --set no-null --set sample-ms=1
ok "show prints it of the file" "$KVBENCH" show "$TMPDIR/many.jsonl"
holds "  too" '^the first failure alone: .* --cache slab .*--kernel crime-scaled'

# reason FILE PATTERN: the only record that failed says so.
reason() {
    grep -oE '"reason": "[^"]*"' "$1" | grep -qE -- "$2"
    report $? "  it says: $2"
}
fork=(--workload agent-fork --pool f32 --check)
expect_exit 1 "a kernel that is wrong" "$KVBENCH" run --plugin "$so" --kernel crime-half "${fork[@]}" --cache seq -o "$TMPDIR/half.jsonl"
reason "$TMPDIR/half.jsonl" '^"reason": "rho [0-9.e+]+ at line 3, layer 0, query 0, head 2, (channel 0|log-sum-exp): got [-0-9.e]+, exact [-0-9.e]+, bound [-0-9.e]+; line 3: step of 1 token in sequence 0'
reason "$TMPDIR/half.jsonl" '; in its call [0-9]+ of [0-9]+ elements fail: heads 2, 3, query 0; in all '
reason "$TMPDIR/half.jsonl" '; the witness: each query saw the right tokens; the worst: rho [0-9.e+]+ at line [0-9]+, layer [01], query [0-9]+, head [23], '

sed 's|\* PAGE + pos % PAGE;|* PAGE + (pos == 17 ? 16 : pos) % PAGE;|' caches/example-plugin/pages.c >"$TMPDIR/pages.c"
ok "a cache that writes a row over another" gcc -std=c11 -O1 -shared -fPIC -fvisibility=hidden -I. "$TMPDIR/pages.c" -o "$TMPDIR/pages.so"
expect_exit 1 "  fails" "$KVBENCH" run --plugin "$TMPDIR/pages.so" --kernel flash "${fork[@]}" --cache pages -o "$TMPDIR/pages.jsonl"
reason "$TMPDIR/pages.jsonl" '; the witness: line 2: visible set: query 16, layer 0, KV head 0 saw token 17, which it must not see'

# ---- one call: --only, --dump, --set gdb
half=("$KVBENCH" run --check --plugin "$so" --kernel crime-half --cache seq)
expect_exit 0 "--only a call that is right" "${half[@]}" --workload agent-fork --pool f32 --only line=2
expect_exit 1 "--only one that is wrong" "${half[@]}" --workload agent-fork --pool f32 --only line=4,layer=1 -o "$TMPDIR/only.jsonl"
reason "$TMPDIR/only.jsonl" '"rho [0-9.e+]+ at line 4, layer 1, query 0, head 2, .*; in all [0-9]+ of 68;'
expect_exit 1 "  the same by its number" "${half[@]}" --workload agent-fork --pool f32 --only layer=1,event=2 -o "$TMPDIR/event.jsonl"
ok "  alike" cmp <(tail -n 1 "$TMPDIR/only.jsonl" | sed 's/"replay": "[^"]*"//') <(tail -n 1 "$TMPDIR/event.jsonl" | sed 's/"replay": "[^"]*"//')
for bad in line=999 layer=2 line=x line=2,line=3 ''; do
    expect_exit 2 "--only '$bad' is refused" "${half[@]}" --workload agent-fork --pool f32 --only "$bad"
    one_line "  in one line"
done
expect_exit 2 "--gdb needs --only" "${half[@]}" --set gdb
expect_exit 2 "--only needs --check" "$KVBENCH" run --workload agent-fork --only line=2

expect_exit 1 "--dump" "${half[@]}" --workload agent-fork --pool f32 --dump "$odd/f32"
expect_exit 1 "  of rows that are staged" "${half[@]}" --workload plain-decode-8x128 --pool q8_0 --dump "$odd/q8_0"
expect_exit 2 "  no dump is overwritten" "${half[@]}" --workload agent-fork --pool f32 --dump "$odd/f32"
if python3 -c 'import numpy' 2>"$err"; then
    for dump in f32 q8_0; do
        ok "  its script shows the worst element of $dump" python3 "$odd/$dump/difference.py"
        holds "  in the upper half of the heads" '^query 0, head ([23]|1[6-9]|2[0-9]|3[01]), channel [0-9]+: got .* rho [0-9.e+]+; [1-9][0-9]* of [0-9]+ elements fail'
        ok "  and what it holds gives what is exact, and not what came out" python3 - "$odd/$dump" <<'PY'
import json, sys, numpy as np
call = np.load(sys.argv[1] + "/call.npz")
raw = open(sys.argv[1] + "/call.safetensors", "rb").read()
facts = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
q, k, v, mask = (call[name] for name in ("q", "k_decoded", "v_decoded", "mask"))
group = q.shape[1] // k.shape[0]
off = 0
for t, h in np.ndindex(q.shape[:2]):
    seen = mask[t]
    s = k[h // group, seen].astype(float) @ q[t, h].astype(float) * float(facts["scale"])
    w = np.exp(s - s.max())
    o = w @ v[h // group, seen].astype(float) / w.sum()
    if not np.isnan(call["exact"][t, h, 0]):
        assert np.allclose(o, call["exact"][t, h], rtol=1e-5, atol=1e-7), (t, h)
        assert abs(s.max() + np.log(w.sum()) - call["exact_lse"][t, h]) < 1e-5
        off += bool((abs(call["out"][t, h] - o) > call["bound"][t, h]).any())
assert off > 0 and facts["event"].endswith(": step of 1 token in sequence 0"), (off, facts)
assert call["k_stored"].shape[:2] == k.shape[:2]
PY
    done
else
    report 0 "what a dump holds # SKIP not installed: python3-numpy"
fi

ok "--gdb says how to stop at a call" "${half[@]}" --workload agent-fork --pool f32 --only line=4,layer=1 --set gdb
gdb=$(sed "s/^gdb /gdb -batch -nx /; s/-ex run /-ex run -ex bt -ex kill /" "$out")
if gdb -batch -nx -ex run true 2>&1 | grep -q 'exited normally'; then
    bash -c "$gdb" >"$out" 2>&1
    holds "  and it stops there" '^#0 .*kvb_only_stop'
else
    report 0 "  and it stops there # SKIP no gdb, or it may trace nothing here"
fi

# named NAME PATTERN: a plug-in with a kernel of this name is refused, in one line that says why.
named() {
    sed "s/\"crime-none\"/\"$1\"/" ci/tests/cli/plugins/crimes.c >"$TMPDIR/named.c"
    gcc -std=c11 -O1 -shared -fPIC -fvisibility=hidden -Ikernels "$TMPDIR/named.c" -o "$TMPDIR/named.so" -lm
    expect_exit 2 "a kernel called '$1' is refused" "$KVBENCH" run --plugin "$TMPDIR/named.so" --check
    holds "  in words: $2" "named\.so: kernel '.*': $2; a name has lower case letters, digits and dashes, at most 63" "$err"
    one_line "  in one line"
}
named 'My Kernel' "'M' in it"
named 'kern*' "'\*' in it"
named 'kernél' "'é' in it"
named '-k' 'a dash begins it'
named "$(printf 'k%.0s' {1..64})" 'it is 64 bytes long'
done_testing
