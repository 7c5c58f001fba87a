#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what a failing run says is enough to find the fault: the command of the first failure alone can be pasted into a shell.
. "$(dirname "$0")/lib.sh"

odd=$TMPDIR/"it's odd"
mkdir -p "$odd"
so=$odd/'my $crimes.so'
ok "a plug-in of a file name for shells" gcc -std=c11 -O1 -g -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -Ikernels \
    ci/tests/cli/plugins/crimes.c -o "$so" -lm
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
keys = "workload cache pool_k pool_v kernel threads growth out status reason rho error".split()
assert {k: failed[0][k] for k in keys} == {k: one[0][k] for k in keys}, [(k, failed[0][k], one[0][k]) for k in keys]
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
    --pool k=f32,v=f32 --pool k=f16,v=f32 --cache 's*' --growth 'r*' --oversubscribe --threads 3,1
pasted "a suite's sample, softcap, sinks, mask" --suite quick --workload 'plain-decode*' --cache contiguous --pool 'f*' \
    --softcap 20.5 --sinks --cpu-mask portable --check --product --junit "$TMPDIR/f.xml"
holds "  which JUnit has too" '^alone: .* --kernel crime-scaled ' "$TMPDIR/f.xml"
pasted "a timed run" --workload agent-fork --cache seq --cache slab --pool f32 --no-null --sample-ms=1
ok "show prints it of the file" "$KVBENCH" show "$TMPDIR/many.jsonl"
holds "  too" '^the first failure alone: .* --cache slab .*--kernel crime-scaled'
done_testing
