#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: tune measures and keeps a file, which runs use and name; whatever it says, results keep their bits; files that are no good,
# or another machine's, are refused in one line; without a file the first timed run makes one.
. "$(dirname "$0")/lib.sh"
unset KVB_TUNING
export XDG_CACHE_HOME=$TMPDIR/cache
usual() { find "$TMPDIR/cache" -name '*.json' 2>/dev/null; }

f=$TMPDIR/f.json
ok "tune" "$KVBENCH" tune --seconds 1 -o "$f"
holds "  a line a class" '^in long runs +256 +1 +[0-9]+ +(L1|L2|-) +(yes|no) +(yes|no) +by (cells|channels) +(by cells|by strips|beside K) +[0-9.]+x$'
holds "  also for rows apart" '^apart +more +4 +(next|-) +(L1|L2|-) +no +no +by channels +(by cells|by strips) +[0-9.]+x$'
[ "$(grep -cE '^(in long runs|in short runs|apart) +(128|256|512|more) ' "$out")" -eq 48 ]
report $? "  forty-eight of them"
holds "  and says where" "^kept in $f$"

# Every candidate, drawn at random: out_digest must not know of it.
run=("$KVBENCH" run --workload plain-decode-8x128 --workload agent-fork --workload sink-window --cache seq --pool f32
    --pool f16 --pool e4m3 --pool q8_0 --kernel 'flash*' --set no-witness --check --set oracle-pairs=1000 --set opinion-pairs=1)
ok "results without tuning" "${run[@]}" --no-tuning -o "$TMPDIR/plain.jsonl"
for seed in 1 2; do
    python3 - "$f" "$TMPDIR/drawn.json" $seed <<'PY'
import json, random, sys
tuning = json.load(open(sys.argv[1]))
draw = random.Random(int(sys.argv[3]))
for r in tuning["readings"]:
    r.update(ahead=draw.choice([0, 16, 32, 64, 96, 128, 256]), near=draw.random() < .5, again=draw.random() < .5, pages=draw.random() < .5, by_cells=draw.random() < .5, sums_by_cells=draw.random() < .5, beside=draw.random() < .5)
tuning["steadily"]["value"] = draw.random() < .5
json.dump(tuning, open(sys.argv[2], "w"))
PY
    ok "results of drawn settings" "${run[@]}" --tuning "$TMPDIR/drawn.json" -o "$TMPDIR/drawn.jsonl"
    ok "  have the same bits, and the record says whose settings" python3 - "$TMPDIR/plain.jsonl" "$TMPDIR/drawn.jsonl" "$TMPDIR/drawn.json" <<'PY'
import json, sys
plain, drawn = ([json.loads(line) for line in open(f)] for f in sys.argv[1:3])
assert "tuning" not in plain[0] and drawn[0]["tuning"] == sys.argv[3]
bits = [[r["out_digest"] for r in lines[1:]] for lines in (plain, drawn)]
assert bits[0] == bits[1], bits
assert sum(b is not None for b in bits[0]) >= 10, bits[0]
PY
done

# ---- this machine's own file
lists=("$KVBENCH" list kernels)
ok "list says what is used" "${lists[@]}"
holds "  nothing but what is built in" '^tuning +built-in '
timed=("$KVBENCH" run --workload plain-decode --cache seq --pool f16 --kernel flash --set no-witness --set sample-ms=1 --set no-null)
ok "what is only judged measures nothing" "${timed[@]:0:12}" --check
[ -z "$(usual)" ]
report $? "  and leaves no file"
ok "the first timed run" "${timed[@]}" -o "$TMPDIR/first.jsonl"
[ "$(usual | wc -l)" -eq 1 ]
report $? "  leaves a file"
before=$(cat "$(usual)")
ok "  which it says it used" grep -q "\"tuning\": *\"$(usual)\"" "$TMPDIR/first.jsonl"
ok "  and list" "${lists[@]}" --wide
holds "  too" "^tuning +file +$(usual) "
ok "the next run" "${timed[@]}"
[ "$before" = "$(cat "$(usual)")" ]
report $? "  uses it as it is"
KVB_TUNING=none ok "KVB_TUNING=none" "${lists[@]}"
holds "  takes what is built in" '^tuning +built-in '
echo '{' >"$(usual)"
ok "a usual file that is no good" "${lists[@]}"
holds "  is noted" 'note: not used: .*json:[0-9]+: ' "$err"
rm -r "$TMPDIR/cache" && : >"$TMPDIR/cache" # no folder can be made there
ok "where nothing can be kept" "${timed[@]}" -o "$TMPDIR/none.jsonl"
ok "  it is measured all the same" grep -q '"tuning": *"measured, not kept"' "$TMPDIR/none.jsonl"

# ---- what is refused: NAME PATTERN, then sed's change of a good file
refused() {
    sed -E "$3" "$f" >"$TMPDIR/bad.json"
    expect_exit 2 "$1" "${lists[@]}" --tuning "$TMPDIR/bad.json"
    one_line "  in one line"
    holds "  saying: $2" "--tuning: .*bad.json.*$2" "$err"
}
refused "another machine's" 'machine: expected .*, which this one is' 's/"machine": "[^"]*"/"machine": "z80-1c"/'
refused "another level's" 'isa: expected ' 's/"isa": "[^"]*"/"isa": "mmx"/'
refused "another version" 'expected "kvbench_tuning":4' 's/"kvbench_tuning": 4/"kvbench_tuning": 7/'
refused "too far ahead" 'ahead: a number of cells, 0 to 256' '0,/"ahead": [0-9]+/s//"ahead": 257/'
refused "no truth" 'near, again, pages, by_cells, sums_by_cells, beside: true or false' '0,/"near": [a-z]+/s//"near": 1/'
refused "a gain that is none" 'gain: a number of 1 to 1000' '0,/"gain": [0-9.]+/s//"gain": 0.5/'
refused "classes in another order" 'rows "in long runs", .*for each row_bytes 128, 256, 512, null' '0,/"query_rows": 1/s//"query_rows": 4/'
refused "rows apart first" 'rows "in long runs", "in short runs", "apart"' '0,/"in long runs"/s//"apart"/'
refused "no JSON" ':1: ' '1s/^/x/'
expect_exit 2 "a folder" "${lists[@]}" --tuning "$TMPDIR"
one_line "  in one line"
expect_exit 2 "a file that is not there" "${lists[@]}" --tuning "$TMPDIR/nowhere.json"
one_line "  in one line"
expect_exit 2 "both options" "${timed[@]}" --tuning "$f" --no-tuning
one_line "  in one line"
expect_exit 2 "no seconds" "$KVBENCH" tune --seconds 0
XDG_CACHE_HOME='' HOME='' expect_exit 2 "nobody says where" "$KVBENCH" tune --seconds 1
holds "  which is said" 'say where with -o' "$err"
: >"$TMPDIR/file"
XDG_CACHE_HOME="$TMPDIR/file" expect_exit 3 "where no folder can be" "$KVBENCH" tune --seconds 86400
holds "  which is said before anything is measured" 'cannot be kept: .*/file/kvbench/' "$err"
done_testing
