#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: every row of every call is looked at, whatever the sample: kernels that are wrong in one row, in one layer, from the
# second thread on fail, and the reason leads there; the record says what was judged how.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/seldom.so
ok "the plug-in of kernels that are seldom wrong builds" plugin seldom "$so"

# seldom KERNEL WORKLOAD PAIRS OPINIONS REASON: the run fails, and the reason matches.
seldom() {
    local f=$TMPDIR/$1-$4.jsonl
    expect_exit 1 "$1 over $2 fails" "$KVBENCH" run --check --set no-witness --plugin "$so" --kernel "seldom-$1" \
        --workload "$2" --cache contiguous --cache seq --pool f32 --threads 2 --set oversubscribe --set oracle-pairs="$3" --set opinion-pairs="$4" -o "$f"
    grep -qE "\"reason\": *\"[^\"]*$5" "$f"
    report $? "its reason: $5"
}
seldom nan plain-decode-8x128 20000 16000000 'second opinion: rho inf at line [0-9]+, layer 0, query 0, head 16, channel 0: got nan'
seldom nan plain-decode-8x128 20000 1 'line [0-9]+: seldom-nan: the output is not finite, as it must be, at layer 0, query 0, head 16, channel 0'
seldom keeps plain-decode-8x128 20000 16000000 'rho .*; in its call .*head [0-9]+, query'
seldom layer sliding-window-8x128 20000 16000000 'rho [0-9.e+]+ at line [0-9]+, layer 1, '
seldom thread plain-decode-8x128 20000 16000000 'rho'
expect_exit 1 "a kernel that is wrong from the second pass on fails, though the first one was judged" "$KVBENCH" run --set no-witness \
    --set no-null --set no-machine --plugin "$so" --kernel seldom-pass --workload plain-decode --cache contiguous --pool f32 --set sample-ms=20000
holds "  by the bound" 'seldom-pass.*rho [0-9.e+]+ at line'

for opinions in 16000000 1; do
    ok "scans of a hybrid that are sampled pass" "$KVBENCH" run --check --set no-witness --workload hybrid-batch --cache seq --pool f32 --kernel scan \
        --set oracle-pairs=20000 --set opinion-pairs=$opinions -o "$TMPDIR/scans-$opinions.jsonl"
done

python3 - "$TMPDIR" <<'PY'
import json, sys
def error_of(name):
    return [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.jsonl")][1]["error"]
for name, most in ("keeps-16000000", 0.25), ("scans-16000000", 0.9):
    error = error_of(name)
    looked = error["looked"]
    assert error["checked_rows"] < most * error["total_rows"] and looked["scanned"] == looked["opinion"] == error["total_rows"], error
error = error_of("scans-1")
assert error["looked"]["opinion"] < error["total_rows"] == error["looked"]["scanned"], error
PY
report $? "the record says how many rows were looked at"
done_testing
