#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: what the READMEs tell a reader to type works: their kernel, built from installed headers, passes the quick suite; the
# example plug-in computes; the traces written by hand replay, also over numbers that numpy wrote.
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

# Debian's numpy belongs to its own python3
python=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)
if ! "$python" -c 'import numpy' 2>"$err"; then
    report 0 "numpy writes tensors # SKIP no numpy: install the Debian package python3-numpy"
    done_testing
fi
block workloads/README.md '' '"name":"own"' >"$TMPDIR/own.jsonl"
block workloads/README.md python safetensors >"$TMPDIR/own.py"
digest() { # digest NAME: replays it, and prints the hash of what attention gave
    "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --cache seq --pool f32 --kernel reference -o "$TMPDIR/$1.jsonl" >&2 &&
        grep -o '"out_digest": "[0-9a-f]*"' "$TMPDIR/$1.jsonl"
}
expect_exit 2 "a trace without its tensors" "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --pool f16
one_line "  in one line"
holds "  names them" 'own.safetensors' "$err"
ok "numpy writes tensors" env -C "$TMPDIR" "$python" own.py
ok "  that a trace names" "$KVBENCH" show "$TMPDIR/own.jsonl"
ok "  and that replay" "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --pool f16
holds "  and pass" '^[1-9][0-9]* passed, 0 failed'
ok "  the numbers count" digest one
cp "$out" "$TMPDIR/digest"
sed -i 's/default_rng(1)/default_rng(2)/' "$TMPDIR/own.py"
ok "other numbers" env -C "$TMPDIR" "$python" own.py
ok "  replay too" digest two
ok "  and give another result" test -s "$TMPDIR/digest" -a "$(cat "$out")" != "$(cat "$TMPDIR/digest")"
sed -i 's/^tokens, layers, heads, kv_heads, dim = 40/tokens, layers, heads, kv_heads, dim = 30/' "$TMPDIR/own.py"
ok "too few rows" env -C "$TMPDIR" "$python" own.py
expect_exit 2 "  are refused" "$KVBENCH" run --check --workload "$TMPDIR/own.jsonl" --pool f16
holds "  with the tensor and its shape" "own.safetensors: tensor 'q.0'" "$err"
done_testing
