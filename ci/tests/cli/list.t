#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `list kernels` says what each kernel takes and declines, as its supports() answers, and at which level it runs.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/picky.so
ok "a plug-in of picky kernels builds" plugin picky "$so"

# Rows of these kernels only, without the padding: others may come.
these() {
    grep -E '^(kernel|takes|declines) +(reference|openblas|witness|picky|none) ' | sed 's/  */ /g; s/ $//'
}

ok "list kernels" "$KVBENCH" list kernels --plugin "$so" --cpu-mask portable
golden "  what each takes" list-kernels.golden these
[ "$(awk '{ if (length > most) most = length } END { print most }' "$out")" -le 160 ]
report $? "  in lines that can be read"
holds "  and what this level does not have" '^kernel +flash-bf16 .*no avx512(f|bf16)'
holds "  nor this" '^kernel +flash-f16 .*no avx512f(p16)?'
holds "  nor tiles" '^kernel +flash-amx .*no (avx512|amx)'
"$KVBENCH" list kernels --format json --plugin "$so" >"$TMPDIR/list.json"
ok "json is json" python3 -m json.tool "$TMPDIR/list.json"
ok "list" "$KVBENCH" list --plugin "$so"
lacks "  in short where everything is listed" '^(takes|declines) '
ok "list scans" "$KVBENCH" list scans --plugin "$BUILD/example-plugin/running.so" --cpu-mask portable
holds "  the built-in ones" '^scan +scan-reference +built-in +yes +plain scalar'
holds "  and a plug-in's" '^scan +running +running +yes '
lacks "  and nothing else" '^(kernel|cache) '
cat >"$TMPDIR/both.c" <<'EOF'
#include "attend.h"
#include "scan.h"
static int attend(const kvb_attend *args) { return (void)args, 0; }
static int scan(const kvb_scan *args) { return (void)args, 0; }
static const kvb_scan_face face = {.scan = scan};
KVB_PLUGIN_KERNEL("both", "a kernel of two faces", .flags = KVB_KERNEL_PLAIN, .attend = attend, .scan = &face);
EOF
ok "a kernel of two faces builds" gcc -std=c11 -Wall -Wextra -Werror -shared -fPIC -Ikernels "$TMPDIR/both.c" -o "$TMPDIR/both.so"
ok "list kernels" "$KVBENCH" list kernels --plugin "$TMPDIR/both.so"
holds "  has it" '^kernel +both +both +yes '
holds "  which declines what is not plain" '^declines +both +also: softcap sinks \(no softcap\)'
ok "list scans" "$KVBENCH" list scans --plugin "$TMPDIR/both.so"
holds "  has it, too" '^scan +both +both +yes '
expect_exit 1 "over a hybrid model it is judged" "$KVBENCH" run --plugin "$TMPDIR/both.so" --workload hybrid-decode \
    --kernel both --cache contiguous --pool f32 --check --set no-witness -o "$TMPDIR/both.jsonl"
lacks "  in all layers, no other beside it" '"beside": *"[a-z]' "$TMPDIR/both.jsonl"
sed 's/kvb_scan_face face = {.scan = scan}/kvb_scan_face face = {0}/' "$TMPDIR/both.c" >"$TMPDIR/hollow.c"
ok "one without scan() builds" gcc -std=c11 -w -shared -fPIC -Ikernels "$TMPDIR/hollow.c" -o "$TMPDIR/hollow.so"
expect_exit 2 "  and is refused" "$KVBENCH" list scans --plugin "$TMPDIR/hollow.so"
holds "  by name" "hollow.so: kernel 'both' has no attend\\(\\) or scan\\(\\)" "$err"
expect_exit 2 "an unknown level" "$KVBENCH" list --cpu-mask high
holds "  with what is known" "unknown level 'high'; known: portable, avx2" "$err"
done_testing
