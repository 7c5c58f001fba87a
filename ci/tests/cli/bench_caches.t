#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: `kvbench bench --caches` tells what each cache holds, copies and takes over histories of real size, and what a cache saves; counts
# that the program gets by replaying caches are those of closed forms; a plug-in's cache takes part; options that mean nothing there are
# refused.
. "$(dirname "$0")/lib.sh"

caches() {
    "$KVBENCH" bench --caches --seconds 0.02 --threads 1 "$@"
}
ok "a short session" caches --cells 600
holds "  the history" "^an agent's session: one beginning, 8 branches, [0-9,]+ tokens in all, f16$"
holds "  a chat service" '^a chat service: 8 conversations of 3 requests, [0-9,]+ tokens in all, f16$'
holds "  draft trees" '^32 draft trees of 25 nodes behind a long context, [0-9,]+ tokens in all, f16$'
holds "  which the cache tree gathers" '^tree +[0-9.]+ MiB .* [0-9.]+ (KiB|MiB) '
holds "  caches are rows" '^seq +[0-9.]+ MiB +[0-9.]+ (KiB|B) +0 B '
holds "  what cannot replay it is named" '^  contiguous: cannot do several sequences$'
holds "  work without a cache" "^no cache: at least [0-9.,]+ x seq's token rows, [0-9.,]+ x its query-cell pairs$"
holds "  256.5 times fewer projections" '^ +512 +131,328 +512 +256\.5 '
holds "  171 times fewer pairs" '^ +512 .* 171\.3$'
holds "  slopes" '^rows grow as n\^2\.00 without a cache, n\^1\.00 with one; pairs as n\^2\.99, n\^2\.00$'
holds "  requests in a fixed memory" '^slab +2 +15,070 '
lacks "  nothing wrong" 'WRONG'
[ "$(wc -L <"$out")" -le 80 ]
report $? "  80 columns"

ok "for programs" caches --cells 600 --format json -o "$TMPDIR/caches.jsonl"
cp "$out" "$TMPDIR/caches.json"
holds "  records of replays" '"workload": "decode-512", "cache": "recompute".*"cells_written": 131328' "$TMPDIR/caches.jsonl"
holds "  what only counts was not judged" '"cache": "recompute".*"kernel": "counted".*"status": "counted".*"rho": null' "$TMPDIR/caches.jsonl"
lacks "  and did not pass" '"kernel": "counted".*"status": "pass"' "$TMPDIR/caches.jsonl"
lacks "  and of nothing else" chat-requests "$TMPDIR/caches.jsonl"
ok "  the terminal says so" "$KVBENCH" show "$TMPDIR/caches.jsonl"
holds "  beside what passed" '[0-9]+ passed, 0 failed, .*, [0-9]+ counted'
ok "  which is the same as itself" "$KVBENCH" compare "$TMPDIR/caches.jsonl" "$TMPDIR/caches.jsonl"
if command -v gnuplot >/dev/null; then
    ok "  which are drawn" "$KVBENCH" report "$TMPDIR/caches.jsonl" -o "$TMPDIR/pictures" --plots plots --pictures
    [ -s "$TMPDIR/pictures/caching.png" ] && [ -s "$TMPDIR/pictures/memory.png" ]
    report $? "  work that a cache saves, and memory"
fi
ok "  counts are those of closed forms" python3 -c '
import json, sys
rows = json.load(open(sys.argv[1]))
session = {r["cache"]: r for r in rows if r["history"] == "agent-session" and r["kernel"] == "flash"}
tokens = session["seq"]["tokens"]
cell = 2 * 8 * 128 * 2  # K and V, heads, channels, bytes of f16
played = {name for name, r in session.items() if r["status"] == "pass"}
assert played == {"slab", "seq", "paged", "paged-prefix", "shared-prefix"}, played
assert all(r["reason"] for r in session.values() if r["status"] == "skip"), session
assert all(session[name]["rho"] <= 1 for name in played), session
live = session["seq"]["live_bytes"]
assert live % cell == 0 and tokens - 32 <= live / cell <= tokens, (live, tokens)
assert all(session[name]["reserved_bytes"] >= live for name in played), session
trunk = session["slab"]["copied_bytes"] / cell / 8  # slab alone copies the whole beginning for each branch
assert trunk > 0.2 * tokens and trunk == int(trunk), trunk
assert session["seq"]["copied_bytes"] == 0, session
chat = {r["cache"]: r for r in rows if r["history"] == "chat-requests"}
assert chat["slab"]["alive"] == 262144 // (87169 + 402), chat  # rows for the longest of the requests
assert chat["slab"]["alive"] < chat["paged"]["alive"] <= chat["paged-prefix"]["alive"], chat
saved = 512 * (chat["paged"]["alive"] - 1)  # cells: one beginning in place of one each
assert chat["paged"]["used_cells"] - chat["paged-prefix"]["used_cells"] == saved, chat
assert chat["shared-prefix"]["tokens"] - chat["shared-prefix"]["used_cells"] == saved, chat
assert 0 <= chat["paged"]["used_cells"] - chat["paged"]["tokens"] < 16 * chat["paged"]["alive"], chat  # last pages
decode = {(r["history"], r["cache"], r["growth"]): r for r in rows if r["history"].startswith("decode-")}
assert all(r["status"] == "counted" for r in decode.values()), decode
service = {r["cache"]: r for r in rows if r["history"] == "chat-service" and r["kernel"] == "flash"}
assert {name for name, r in service.items() if r["status"] == "pass" and r["rho"] <= 1} == played, service
assert service["slab"]["copied_bytes"] > service["seq"]["copied_bytes"] == 0, service
drafts = {r["cache"]: r for r in rows if r["history"] == "draft-trees" and r["kernel"] == "flash"}
assert {name for name, r in drafts.items() if r["status"] == "pass" and r["rho"] <= 1} == {"seq", "paged", "tree"}, drafts
moved = sum(n for n in (4, 2, 4, 4, 1, 1, 3, 3, 3, 6, 4, 4, 5, 2, 2, 4, 2, 2, 5, 6, 4, 2, 1, 4, 4, 2, 6, 6, 3, 2, 2, 4))
assert 0 < drafts["tree"]["copied_bytes"] / cell < moved and drafts["seq"]["copied_bytes"] == 0, drafts
assert drafts["seq"]["tokens"] >= 32 * 26, drafts
for n in (256, 512):
    name = "decode-%d" % n
    none, one = decode[name, "recompute", "double"], decode[name, "contiguous", "double"]
    assert none["rows"] / one["rows"] == (n + 1) / 2, (n, none, one)
    assert none["pairs"] / one["pairs"] == (n + 2) / 3, (n, none, one)
    copied = {g: decode[name, "contiguous", g]["copied_bytes"] / (one["live_bytes"] / n) for g in ("exact", "double", "reserve")}
    assert copied == {"exact": n * (n - 1) / 2, "double": n - 256, "reserve": 0}, (n, copied)
assert not any(name == "decode-1024" for name, *_ in decode), decode.keys()' "$TMPDIR/caches.json"

refuse() { # NAME MESSAGE OPTION…
    local name=$1 message=$2
    shift 2
    expect_exit 2 "$name" caches "$@"
    holds "  says so" "$message" "$err"
}
if [ -e "$BUILD/example-plugin/pages.so" ]; then
    ok "a plug-in's cache" caches --cells 600 --work chat-service --plugin "$BUILD/example-plugin/pages.so"
    holds "  is a row" '^pages +[0-9.]+ [KM]iB '
    lacks "  of the history that was asked for" "agent's session|what a cache saves|draft trees"
fi
refuse "no such history" '^kvbench bench: --work: none of agent-session, chat-service, draft-trees, decode-\*, chat-requests$' --work chess
refuse "scenes" '^kvbench bench: --caches: goes with --work, --plugin, --threads, --seconds, --cells, -o and --format alone' --scene fork
refuse "targets" '^kvbench bench: --caches: goes with' --targets
if [ "$(nproc)" -gt 1 ]; then
    refuse "two teams" '^kvbench bench: --threads: of --caches: one number' --threads 1,2
fi
refuse "too few tokens" '^kvbench bench: --cells' --cells 3
done_testing
