#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `kvbench record --import` makes a workload of recorded requests that replays and passes, and refuses what is
# wrong in one line, leaving nothing half-written.
. "$(dirname "$0")/lib.sh"

import() { "$KVBENCH" record --import "$@"; }
dir=$TMPDIR/imported
replay=(--cache seq --kernel witness --pool f32 --check)
moon=$TMPDIR/moon.jsonl
csv=$TMPDIR/azure.csv
for i in 1 2 3; do
    echo "{\"timestamp\": $i, \"input_length\": 1200, \"output_length\": 64, \"hash_ids\": [1, 2, 1$i]}"
done >"$moon"
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n' >"$csv"

ok "--help" "$KVBENCH" record --help
holds "--help teaches with an example" 'kvbench record --import mooncake:'

ok "mooncake" import "mooncake:$moon" -o "$dir"
holds "its row: workload, requests, events, tokens, prompt, shared, cells" '^mooncake +3 +12 +109 +225 +128 +109 '
ok "  replays" "$KVBENCH" run --workload "$dir/mooncake.jsonl" "${replay[@]}"
holds "  and passes" '^1 passed, 0 failed'
ok "azure, with a name" import "azure:$csv" -o "$dir" --name mine --shrink 4 --seed 5
holds "its row" '^mine +1 +13 +104 +93 +0 +104 '
holds "the seed is in the header" '"profile":"llama","seed":5' "$dir/mine.jsonl"
ok "fewer requests, one at a time, as JSON" import "mooncake:$moon" -o "$dir" --name two --requests 2 --sequences 1 \
    --format json
holds "nothing is shared with the dead" '"?shared"?: *"?0"?'

# refuse NAME PATTERN ARGUMENT…: into a folder of its own, which is not to be
refuse() {
    local name=$1 pattern=$2
    shift 2
    expect_exit 2 "$name" import "$@"
    one_line "$name: one line"
    holds "$name: says so" "$pattern" "$err"
    ok "$name: nothing is written" test ! -e "$TMPDIR/none"
}

none=(-o "$TMPDIR/none")
refuse "unknown format" "no format 'nope'; known: mooncake, azure" "nope:$moon" "${none[@]}"
refuse "no format" "expected FORMAT:FILE; known formats: mooncake, azure" "$moon" "${none[@]}"
refuse "no such file" "$TMPDIR/nofile: cannot be read: " "azure:$TMPDIR/nofile" "${none[@]}"
refuse "no folder" "needs -o DIR" "azure:$csv"
refuse "a model's option" "--import plays no model" "azure:$csv" "${none[@]}" --cache seq
refuse "a name that leads elsewhere" "--name: expected " "azure:$csv" "${none[@]}" --name ../x
refuse "no sequences" "--sequences: '0' is not" "azure:$csv" "${none[@]}" --sequences 0
refuse "too many sequences" "--sequences: '4097' is not" "azure:$csv" "${none[@]}" --sequences 4097
refuse "no requests" "--requests: '0' is not" "azure:$csv" "${none[@]}" --requests 0
refuse "no division" "--shrink: '0' is not" "azure:$csv" "${none[@]}" --shrink 0
refuse "the other format" "moon.jsonl:1: expected the header TIMESTAMP" "azure:$moon" "${none[@]}"
refuse "the other format, the other way" "azure.csv:1: expected a JSON object" "mooncake:$csv" "${none[@]}"
refuse "an empty file" "/dev/null:1: expected a request" "mooncake:/dev/null" "${none[@]}"
refuse "a folder that cannot be" "/dev/null/x" "azure:$csv" -o /dev/null/x
refuse "a folder for a file" "$TMPDIR:1: cannot be read: " "azure:$TMPDIR" "${none[@]}"

expect_exit 2 "without --import" "$KVBENCH" record --shrink 4
holds "  says so" 'need --import' "$err"

# a line that is bad, and a disk that is full after 8 KiB: the old file stays whole, and nothing else is left
cp "$dir/mine.jsonl" "$TMPDIR/before"
echo '2023-11-16 18:15:47,1' >>"$csv"
expect_exit 2 "a bad line late in the file" import "azure:$csv" -o "$dir" --name mine
one_line "  one line"
holds "  names it" 'azure.csv:3: expected the three fields' "$err"
echo '{"timestamp": 4, "input_length": 10, "output_length": 60000, "hash_ids": []}' >>"$moon"
expect_exit 2 "full disk" bash -c "trap '' XFSZ; ulimit -f 8; $KVBENCH record --import mooncake:$moon -o $dir --name mine"
one_line "  one line"
ok "  the old file is whole" cmp "$TMPDIR/before" "$dir/mine.jsonl"
ok "  nothing half-done is left" test -z "$(find "$dir" -name '*tmp*')"

# the recordings themselves, where they are at hand
for file in mooncake/conversation_first4000.jsonl azure/AzureLLMInferenceTrace_conv.csv; do
    format=${file%%/*}
    if [ ! -r "../shared/data/$file" ]; then
        tests=$((tests + 1))
        echo "ok $tests - 60 recorded requests of $format # SKIP ../shared/data/$file is missing"
        continue
    fi
    ok "60 recorded requests of $format" import "$format:../shared/data/$file" --requests 60 --shrink 64 -o "$dir/real"
    ok "  replay" "$KVBENCH" run --workload "$dir/real/$format.jsonl" "${replay[@]}"
    holds "  and pass" '^1 passed, 0 failed'
done
done_testing
