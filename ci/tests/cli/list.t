#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `list kernels` says what each kernel takes and declines, as its supports() answers, and at which level it runs.
. "$(dirname "$0")/lib.sh"

so=$TMPDIR/picky.so
ok "a plug-in of picky kernels builds" gcc -std=c11 -O1 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -Ikernels \
    ci/tests/cli/plugins/picky.c -o "$so"

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
"$KVBENCH" list kernels --format json --plugin "$so" >"$TMPDIR/list.json"
ok "json is json" python3 -m json.tool "$TMPDIR/list.json"
ok "list" "$KVBENCH" list --plugin "$so"
lacks "  in short where everything is listed" '^(takes|declines) '
ok "list scans" "$KVBENCH" list scans --plugin "$BUILD/example-plugin/running.so" --cpu-mask portable
holds "  the built-in ones" '^scan +scan-reference +built-in +yes +plain scalar'
holds "  and a plug-in's" '^scan +running +example-scan +yes '
lacks "  and nothing else" '^(kernel|cache) '
cat >"$TMPDIR/hollow.c" <<'EOF'
#include "scan.h"
static const kvb_scan_kernel hollow = {.name = "hollow", .summary = "lacks all"};
static const kvb_scan_kernel *const scans[] = {&hollow, NULL};
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "hollow", .scans = scans};
EOF
ok "a scan that lacks what it needs builds" gcc -std=c11 -shared -fPIC -Ikernels "$TMPDIR/hollow.c" -o "$TMPDIR/hollow.so"
expect_exit 2 "  and is refused" "$KVBENCH" list scans --plugin "$TMPDIR/hollow.so"
holds "  by name" "hollow.so: scan 'hollow' has no supports\\(\\), arithmetic\\(\\) or scan\\(\\)" "$err"
expect_exit 2 "an unknown level" "$KVBENCH" list --cpu-mask high
holds "  with what is known" "unknown level 'high'; known: portable, avx2" "$err"
done_testing
