#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what the READMEs tell a reader to type works: their kernel, built from installed headers, passes the quick suite; the
# example plug-in computes; the traces written by hand replay.
. "$(dirname "$0")/lib.sh"

# block FILE LANGUAGE PATTERN: the first fenced block of that language in which a line matches.
block() {
    awk -v fence="\`\`\`$2" -v pattern="$3" '
        /^```/ { if (open && wanted && found) { printf "%s", text; exit }
                 open = !open; wanted = open && $0 == fence; found = 0; text = ""; next }
        wanted { text = text $0 "\n"; if ($0 ~ pattern) found = 1 }' "$1"
}

block README.md c kvb_plugin_v1 >"$TMPDIR/mine.c"
ok "the kernel compiles" gcc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -I"$BUILD/example-plugin/include" \
    "$TMPDIR/mine.c" -o "$TMPDIR/mine.so"
ok "  is listed" "$KVBENCH" list kernels --plugin "$TMPDIR/mine.so"
holds "  with its summary" '^kernel +mine +mine +yes +my kernel'
ok "  passes the quick suite in four formats" "$KVBENCH" run --check --suite quick --plugin "$TMPDIR/mine.so" --kernel mine \
    --pool f32 --pool f16 --pool q8_0 --pool kivi4
holds "  all of it" '^[1-9][0-9]+ passed, 0 failed, 0 crashed, 0 timed out'

ok "the example plug-in passes the quick suite" "$KVBENCH" run --check --suite quick --plugin "$BUILD/example-plugin/online.so" \
    --kernel online --pool f32
holds "  all of it" '^[1-9][0-9]+ passed, 0 failed, 0 crashed, 0 timed out'

for name in mine groups; do
    block workloads/README.md '' "\"name\":\"$name\"" >"$TMPDIR/$name.jsonl"
    ok "the trace '$name', written by hand, is valid" "$KVBENCH" show "$TMPDIR/$name.jsonl"
    ok "  and replays" "$KVBENCH" run --check --workload "$TMPDIR/$name.jsonl" --pool f16
    holds "  and passes" '^[1-9][0-9]* passed, 0 failed'
done
done_testing
