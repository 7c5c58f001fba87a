#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: shards share out a matrix, each combination once, over all parts of a suite; merge puts them together again and
# refuses what is not of one run.
. "$(dirname "$0")/lib.sh"

# A suite of two parts, with skips, witnesses and judged kernels.
run=("$KVBENCH" run --suite quick --product --workload eagle-tree --kernel witness --kernel openblas --cache tree --set sample-ms=1
    --set no-null --set no-machine --set oracle-pairs=20000)
keys() { python3 -c 'import json, sys
for line in list(open(sys.argv[1]))[1:]:
    r = json.loads(line)
    print(*(r[k] for k in "workload cache pool_k pool_v kernel growth threads status".split()))' "$1"; }

ok "the whole" "${run[@]}" --check --format csv
python3 -c 'import csv, sys
for r in csv.DictReader(sys.stdin):
    print(r["workload"], r["cache"], r["pool"], r["kernel"], r["status"])' <"$out" >"$TMPDIR/whole"
ok "  has at least 40 combinations, some skipped" bash -c '[ $(wc -l <"$1") -ge 40 ] && grep -q skip "$1"' _ "$TMPDIR/whole"
for i in 1 2 3; do
    ok "shard $i of 3" "${run[@]}" --shard $i/3 -o "$TMPDIR/$i.jsonl"
done
a=$TMPDIR/1.jsonl b=$TMPDIR/2.jsonl c=$TMPDIR/3.jsonl m=$TMPDIR/m.jsonl
ok "no combination is in two" test -z "$({ keys "$a"; keys "$b"; keys "$c"; } | sort | uniq -d)"
ok "merge joins them, in any order" "$KVBENCH" merge "$c" "$a" "$b" -o "$m"
holds "  and says so" "^$(wc -l <"$TMPDIR/whole") combinations of 3 shards in .*m.jsonl"
ok "  the table of what it wrote" "$KVBENCH" show --format csv "$m"
python3 -c 'import csv, sys
rows = list(csv.reader(sys.stdin)); start = next(i for i, r in enumerate(rows) if r and r[0] == "workload")
at = {name: i for i, name in enumerate(rows[start])}
for r in rows[start + 1:]:
    print(*(r[at[k]] for k in "workload cache pool kernel status".split()))' <"$out" >"$TMPDIR/merged"
ok "  the whole, in its order" diff "$TMPDIR/whole" "$TMPDIR/merged"
ok "  and its manifest is that of the whole" python3 - "$m" "$a" <<'PY'
import json, sys
m, a = (json.loads(open(f).readline()) for f in sys.argv[1:])
assert m["shard"] == "" and a["shard"] == "1/3" and a["joined"] == []
assert [j["cpu_model"] for j in m["joined"]] == 3 * [a["cpu_model"]] and m["joined"][0]["date"] == a["date"]
assert "--shard" not in m["command"] and "-o" not in m["command"].split() and m["command"] in a["command"]
for key in "version commit cpu_model cores suite seed".split():
    assert m[key] == a[key], key
PY

sed '1s/"cpu_model": "[^"]*"/"cpu_model": "Z80"/; 1s/"cores": [0-9]*/"cores": 640/' "$b" >"$TMPDIR/there.jsonl"
ok "a shard of another machine is joined" "$KVBENCH" merge "$a" "$TMPDIR/there.jsonl" "$c" -o "$m"
ok "  which show tells" "$KVBENCH" show "$m"
holds "  of each shard" '^joined +shard 2/3, .*Z, Z80, 640 cores'
ok "  and the manifest says so" python3 - "$m" <<'PY'
import json, sys
m = json.loads(open(sys.argv[1]).readline())
assert (m["cpu_model"], m["cores"], m["machine"]) == ("several", 0, []), m
assert m["joined"][1]["cpu_model"] == "Z80" and m["joined"][1]["cores"] == 640 and m["joined"][0]["cores"] < 640
PY

# refuse NAME PATTERN COMMAND…: exit 2, one line on stderr that matches; what was there stays.
cp "$m" "$TMPDIR/before"
refuse() {
    local name=$1 pattern=$2
    shift 2
    expect_exit 2 "$name" "$@"
    one_line "  in one line"
    holds "  saying: $pattern" "$pattern" "$err"
}
merge=("$KVBENCH" merge -o "$m")
refuse "a shard is missing" "shard 2/3 is missing" "${merge[@]}" "$a" "$c"
refuse "a shard is there twice" "the same combinations twice: eagle-tree/.* is in .*1.jsonl and in .*1.jsonl, which are both shard 1/3" \
    "${merge[@]}" "$a" "$b" "$c" "$a"
refuse "a whole run" "is a whole run: there is nothing to join" "${merge[@]}" "$TMPDIR/before"
refuse "the output is one of the files" "-o .*1.jsonl is one of the files to join" "$KVBENCH" merge "$a" "$b" "$c" -o "$a"
ln "$b" "$TMPDIR/linked.jsonl"
refuse "  by another name" "-o .*linked.jsonl is one of the files to join" "$KVBENCH" merge "$a" "$b" "$c" -o "$TMPDIR/linked.jsonl"
refuse "no file" "name the files of all shards" "$KVBENCH" merge
refuse "no output" "and -o F.jsonl" "$KVBENCH" merge "$a" "$b" "$c"
for change in 's/"version": "[^"]*"/"version": "9"/' 's/"commit": "[^"]*"/"commit": "fed"/' 's/"flags": "[^"]*"/"flags": "-O0"/' \
    's/"suite": "[^"]*"/"suite": "full"/' 's/"seed": [0-9]*/"seed": 7/' 's/sample-ms=1/sample-ms=2/' 's/"shard": "[^"]*"/"shard": "2\/4"/'; do
    key=$(cut -d'"' -f2 <<<"$change")
    [[ $change == *sample* ]] && key="command"
    sed "1$change" "$b" >"$TMPDIR/other.jsonl"
    refuse "another $key" "not of one run: $key: .* in .*1.jsonl, .* in .*other.jsonl" "${merge[@]}" "$a" "$TMPDIR/other.jsonl" "$c"
done
sed '1s|kvbench.result/[0-9]*|kvbench.result/9|' "$b" >"$TMPDIR/other.jsonl"
refuse "another schema" 'other.jsonl:1: schema: "kvbench.result/9" is not known' "${merge[@]}" "$a" "$TMPDIR/other.jsonl" "$c"
head -n -2 "$b" >"$TMPDIR/other.jsonl"
refuse "a shard that lacks combinations" "1.jsonl has ([0-9]+) combinations, .*other.jsonl has [0-9]+: not of one matrix" \
    "${merge[@]}" "$a" "$TMPDIR/other.jsonl" "$c"
ok "the file that was there is as it was" cmp "$m" "$TMPDIR/before"
refuse "a full device" "/dev/full: cannot be written: No space left" "$KVBENCH" merge "$a" "$b" "$c" -o /dev/full
for bad in 0/3 4/3 3 1/65 x 1/2/3; do
    refuse "shard $bad" "--shard: '$bad' is no shard: expected I/N" "${run[@]}" --shard $bad
done
expect_exit 3 "a disk that fills up" bash -c 'ulimit -f 40; exec "$@"' _ "${merge[@]}" "$a" "$b" "$c"
ok "  leaves what was there, and nothing else" bash -c 'cmp "$1" "$2" && [ ! -e "$1.tmp" ]' _ "$m" "$TMPDIR/before"

expect_exit 0 "a shard in which nothing can run is no failure" "$KVBENCH" run --workload eagle-tree --cache contiguous --pool f16 \
    --shard 1/2
expect_exit 0 "nor is one without combinations" "$KVBENCH" run --workload eagle-tree --cache tree --pool f16 --kernel witness \
    --shard 2/2 -o "$TMPDIR/none.jsonl"
pairs=("$KVBENCH" run --suite quick --set pairs --workload plain-decode --workload agent-fork --pool f16 --pool f32 --check)
ok "pairs" "${pairs[@]}" -o "$TMPDIR/pairs.jsonl"
for i in 1 2; do ok "  shard $i of 2" "${pairs[@]}" --shard $i/2 -o "$TMPDIR/pairs$i.jsonl"; done
ok "  are joined" "$KVBENCH" merge "$TMPDIR/pairs1.jsonl" "$TMPDIR/pairs2.jsonl" -o "$TMPDIR/joined.jsonl"
ok "  to what one run judges, to the byte" cmp <(tail -n +2 "$TMPDIR/pairs.jsonl") <(tail -n +2 "$TMPDIR/joined.jsonl")
head -n 5 "$b" >"$TMPDIR/cut.jsonl.tmp"
sed -i 's/2\.jsonl/cut.jsonl/' "$TMPDIR/cut.jsonl.tmp"
ok "a shard is gone on with" "${run[@]}" --shard 2/3 --resume -o "$TMPDIR/cut.jsonl"
ok "  to its end" diff <(keys "$b") <(keys "$TMPDIR/cut.jsonl")
done_testing
