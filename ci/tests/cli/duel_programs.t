#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: two builds of the program are run in turns and compared by their rounds; what a program refuses, or writes that
# cannot be read, is said in one line.
. "$(dirname "$0")/lib.sh"

ok "a run to begin with" "$KVBENCH" run --workload plain-decode --cache contiguous --pool f32 --kernel reference --set no-null \
    --set sample-ms=50 -o "$TMPDIR/run.jsonl"
# fake NAME FACTOR [SED [RUN]]: a program that is no kvbench: it leaves that run's records with their times multiplied, up to
# 0.3 % more from run to run, and from RUN on changed by SED.
fake() {
    local program=$TMPDIR/$1
    printf '%s\n' '#!/usr/bin/env bash' 'for o; do :; done # the last word is the file' 'echo >>"$0.runs"' \
        "change='${3-}' from=${4-1}" '[ "$(wc -l <"$0.runs")" -ge "$from" ] || change=' \
        'sed "$change" "$0.$(($(wc -l <"$0.runs") % 4)).jsonl" >"$o"' >"$program"
    chmod +x "$program"
    python3 - "$TMPDIR/run.jsonl" "$program" "$2" <<'EOF'
import json, sys
source, program, factor = sys.argv[1:]
for run in range(4):
    with open(f"{program}.{run}.jsonl", "w") as records:
        for line in open(source):
            record = json.loads(line)
            if "time" in record:
                record["time"]["median"] = 1e5 * float(factor) * (1 + 0.001 * (run * 7 % 4))
            print(json.dumps(record), file=records)
EOF
}
fake base 1
fake same 1
fake slower 1.2
fake older 1 's/kvbench.result\/5/kvbench.result\/3/'
fake fails 1 's/"status": *"pass"/"status":"fail"/; s/"reason": *null/"reason":"rho 7"/'
programs() {
    local want=$1 name=$2
    expect_exit "$want" "$name" "$KVBENCH" compare --base-program "$3" --new-program "$4" --rounds 4 --all
}
programs 0 "programs of the same speed" "$TMPDIR/base" "$TMPDIR/same"
holds "  are the same" '^SAME +plain-decode +contiguous +f32 +reference +1 +time +100 us'
programs 1 "a slower program" "$TMPDIR/base" "$TMPDIR/slower"
holds "  is told by how much" '^SLOWER +plain-decode +contiguous +f32 +reference +1 +time +100 us +120 us +\+(19|20)\.[0-9] %'
programs 1 "a program that fails" "$TMPDIR/base" "$TMPDIR/fails"
holds "  is told with the reason" '^BROKEN .*rho 7'
fake later 1 's/"status": *"pass"/"status":"crash"/; s/"reason": *null/"reason":"SIGSEGV"/' 3
programs 1 "a program that crashes in its third run" "$TMPDIR/base" "$TMPDIR/later"
holds "  is told with the round" '^BROKEN .*round 3: SIGSEGV'
programs 2 "results of an older schema" "$TMPDIR/base" "$TMPDIR/older"
holds "  are refused" 'older: its results cannot be read by this kvbench: .*kvbench.result/3' "$err"
one_line "  in one line"
programs 2 "a program that is not there" "$TMPDIR/base" "$TMPDIR/none"
holds "  is named" 'none run: exit 127: No such file' "$err"
expect_exit 2 "words that a program refuses" "$KVBENCH" compare --base-program "$KVBENCH" --new-program "$KVBENCH" \
    --kernel nosuch
holds "  are refused with its own reason" "run: exit 2: kvbench run: unknown kernel 'nosuch'" "$err"
expect_exit 0 "the program against itself" "$KVBENCH" compare --base-program "$KVBENCH" --new-program "$KVBENCH" --rounds 4 \
    --workload plain-decode --cache contiguous --pool f32 --kernel reference --set sample-ms=20 --format json
holds "  both sides ran" '"kernel": *"reference"'
expect_exit 124 "a signal" timeout 1 "$KVBENCH" compare --base-program "$KVBENCH" --new-program "$KVBENCH" \
    --workload plain-decode --pool f32
holds "  stops the program too" 'stopped by a signal' "$err"
[ -z "$(find "$TMPDIR" -name 'kvbench-*')" ]
report $? "no file is left behind"
done_testing
