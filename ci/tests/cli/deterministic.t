#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the record's digest tells outputs apart by their bits, and with --deterministic they are the same whatever the
# number of threads; a kernel that breaks this fails, by itself or beside its other combination.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/uneven.so
r=$TMPDIR/r.jsonl
ok "a plug-in whose sums depend on the number of threads builds" plugin uneven "$so"

run() { # run OPTION…: all kernels but the witness, with one thread and with two
    expect_exit 0 "$*" "$KVBENCH" run --set no-witness --plugin "$so" --workload plain-decode --workload eagle-tree --cache tree \
        --pool f32 --pool f16 --pool bf16 --pool int8 --kernel '[!wbc]*' --threads 1,2 --set oversubscribe --check \
        --set oracle-pairs=2000 -o "$r" \
        "$@"
}

# digests PYTHON: over {(workload, pool, kernel): set of digests} as `of`, of what was written.
digests() {
    python3 -c "import json
of = {}
for r in [json.loads(line) for line in open('$r')][1:]:
    if r['status'] == 'skip' and r['kernel'] in ('flash-int8', 'flash-bf16', 'flash-f16', 'flash-amx'): # each takes some formats
        continue
    assert r['status'] == 'pass' and len(r['out_digest']) == 16, r
    of.setdefault((r['workload'], r['pool_k'], r['kernel']), set()).add(r['out_digest'])
kernels = {key[2] for key in of}
assert {'reference', 'flash', 'flash-int8', 'uneven'} <= kernels
$1"
}

run
ok "  the digest sees that the bits differ" digests '
assert all(len(found) == 2 for key, found in of.items() if key[2] == "uneven"), of
assert all(len(found) == 1 for key, found in of.items() if key[2] == "reference"), of
assert len(set.union(*of.values())) >= len(of)'
run --deterministic
ok "  every kernel gives the same bits with one thread and with two" digests '
assert all(len(found) == 1 for found in of.values()), of'

broken() { # broken KERNEL OPTION…: over f32, with --deterministic
    local kernel=$1
    shift
    expect_exit 1 "$kernel $*" "$KVBENCH" run --set no-witness --plugin "$so" --workload plain-decode --cache seq --pool f32 \
        --kernel "$kernel" --set oversubscribe --check --deterministic -o "$r" "$@"
}
said() { # said REASON…: of one failing record, by python's `of`, the records
    python3 -c "import json, re
of = [json.loads(line) for line in open('$r')][1:]
failing = [x['reason'] for x in of if x['status'] == 'fail']
assert len(failing) == 1 and re.search('$1', failing[0]), of"
}
broken breaking --threads 1
ok "  one combination alone: made again by a team of another size" said \
    'other bits with 3 threads than with 1: layer 0, query .*, head'
broken counting --threads 1,2
ok "  one of two combinations: their digests" said 'other bits with .* threads than with .*: out_digest .* and'
done_testing
