#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what the README tells a reader to type works: the kernel skeleton compiles and loads, the example plug-in
# computes, the trace written by hand replays.
. "$(dirname "$0")/lib.sh"

# block LANGUAGE PATTERN: the first fenced block of that language in which a line matches.
block() {
    awk -v fence="\`\`\`$1" -v pattern="$2" '
        /^```/ { if (open && wanted && found) { printf "%s", text; exit }
                 open = !open; wanted = open && $0 == fence; found = 0; text = ""; next }
        wanted { text = text $0 "\n"; if ($0 ~ pattern) found = 1 }' README.md
}

{
    echo '#include "attend.h"'
    echo 'static int my_attention(const kvb_attend *args) { (void)args; return -38; }'
    block c kvb_plugin_v1
} >"$TMPDIR/mine.c"
ok "the kernel skeleton compiles" gcc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -Ikernels "$TMPDIR/mine.c" \
    -o "$TMPDIR/mine.so"
ok "  and loads" "$KVBENCH" list kernels --plugin "$TMPDIR/mine.so"
holds "  and is listed" '^kernel +mine +mine +yes'
expect_exit 1 "  and a run says that it gave up" "$KVBENCH" run --plugin "$TMPDIR/mine.so" --kernel mine \
    --workload plain-decode --cache seq --pool f32
holds "  by name" 'mine: attend\(\) failed'

ok "the example plug-in passes the quick suite" "$KVBENCH" run --suite quick --plugin "$BUILD/example-plugin/online.so" \
    --kernel online --pool f32 --check
holds "  all of it" '^32 passed, 0 failed'

block '' '"name":"mine"' >"$TMPDIR/mine.jsonl"
ok "the trace written by hand is valid" "$KVBENCH" show "$TMPDIR/mine.jsonl"
ok "  and replays" "$KVBENCH" run --workload "$TMPDIR/mine.jsonl" --cache seq --pool f16
holds "  and passes" '^[45] passed, 0 failed' # flash-f16 where the CPU has FP16
done_testing
