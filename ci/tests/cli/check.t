#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: for each of six mistakes that the author of README's kernel could make, `kvbench check` shows where the kernel is wrong
# first, with a command that repeats the failure. A supports() that crashes is a verdict, too. A cache and a pool have verdicts of
# their own. Words that are no plug-in are bad input. (That README's kernel is right, stranger.t shows.)
. "$(dirname "$0")/lib.sh"

mkdir -p "$TMPDIR/mine"
vectors=(-O3 -fassociative-math -fno-signed-zeros -fno-trapping-math) # for the sake of time
# README's kernel with a mistake in it, at the place that SED names. '': none.
kernel() { # NAME SED
    sed -n '/^#include "attend.h"/,/^```$/p' README.md | sed '/^```$/d' >"$TMPDIR/mine/right.c"
    sed "$2" "$TMPDIR/mine/right.c" >"$TMPDIR/mine/$1.so.c"
    [ -z "$2" ] || ! cmp -s "$TMPDIR/mine/right.c" "$TMPDIR/mine/$1.so.c" || return 1
    gcc -std=c11 "${vectors[@]}" -fPIC -shared -Ikernels "$TMPDIR/mine/$1.so.c" -o "$TMPDIR/mine/$1.so" -lm
}
check() { # NAME OPTION…
    local name=$1
    shift
    "$KVBENCH" check "$TMPDIR/mine/$name.so" "$@"
}
# A sed that gives README's kernel a supports() of its own: f32 rows and out, no sinks, and EXPRESSION.
supports() { # EXPRESSION
    echo "s|^KVB_PLUGIN_KERNEL(\\(.*\\).flags = KVB_KERNEL_PLAIN|static bool supports(const kvb_problem *p, char *why, size_t n) {" \
        "return (void)why, (void)n, kvb_format_is_f32(p->k_format) \\&\\& kvb_format_is_f32(p->v_format) \\&\\&" \
        "p->out_elem == KVB_F32 \\&\\& !p->has_sinks \\&\\& $1; }\\nKVB_PLUGIN_KERNEL(\\1.supports = supports|"
}
again() { # the n-th command that the last check names
    sed -n 's/^again *//p' "$out" | sed -n "$1p"
}

ok "README's kernel builds" kernel right ''
ok "one builds that takes few single calls" kernel qwen "$(supports 'p->k_dim % 64 == 0 \&\& p->n_heads == 7 * p->n_kv_heads \&\& !(p->softcap > 0)')"
ok "  and is right at a model's shape" check qwen --model Qwen2-0.5B -o "$TMPDIR/qwen.jsonl"
holds "  in every history" '^RIGHT    [0-9]+ replays of [0-9]+ histories, [0-9]+ caches, 3 formats'
holds "  which is that of one layer" '"workload": "agent-fork\+Qwen2-0\.5B-Instruct".*"status": "pass"' "$TMPDIR/qwen.jsonl"
lacks "  and no twin" '"workload": "[^"]*8x128' "$TMPDIR/qwen.jsonl"
expect_exit 2 "  a model that is not there" check right --model Llama-3.2-9B
holds "  is guessed" '^kvbench check: --model: "Llama-3.2-9B": no built-in model of this name; similar: ' "$err"

# wrong NAME SED PATTERN…: what the check must say.
wrong() {
    local name=$1 first second
    ok "a kernel builds: $name" kernel "$name" "$2"
    expect_exit 1 "  and is wrong" check "$name"
    shift 2
    for pattern in "$@"; do
        holds "  with: $pattern" "$pattern"
    done
    lacks "  it is not right besides" '^RIGHT'
    first=$(again 1) second=$(again 2)
    expect_exit 1 "  its command repeats the failure" bash -c "$first"
    [ -z "$second" ] || expect_exit 1 "  and that of the simplest call" bash -c "$second"
}
SAW='each query saw the right tokens \(witness\)$'
wrong scale 's/s \*= p->scale/s/' '^WRONG    outputs are wrong: every query, every head$' "$SAW" '^in all   ([0-9]+) of \1 replays are wrong'
wrong softcap "$(supports true)" '^WRONG    outputs are wrong$' '^where    a call with softcap=30: '
wrong eighth 's|out\[d\] /= sum;|out[d] /= row / p->n_heads % 8 == 7 ? 1.1f * sum : sum;|' '^WRONG    outputs are wrong: every 8th query, every head$' \
    '^where    history agent-fork over cache ' 'query 7, head 0, channel 0: got ' "$SAW" '^simplest a call with tokens=8: out of query 7, '
wrong heads 's|kvb_walk_next(x, row,|kvb_walk_next(x, row - row % p->n_heads + row % p->n_kv_heads * (p->n_heads / p->n_kv_heads),|' '^WRONG    outputs are wrong: every query, heads 1, 2$' \
    "$SAW" '^simplest a call with kv_heads=2,group=2: '
wrong last 's|kvb_walk_next(x, row, &at)|& \&\& at.ahead.begin < at.ahead.end|' '^WRONG    outputs are wrong: every query, every head$' "$SAW" \
    '^simplest the simplest call: '
wrong crash 's|float \*out = |if (p->n_kv_heads == 3) *(volatile int *)0 = 0; float *out = |' '^WRONG    it crashes$' \
    '^in all   [0-9]+ of [0-9]+ replays are wrong: draft-calls, ' '^simplest a call with kv_heads=3: write at byte 0 of NULL'

expect_exit 1 "-x ends at the first failure" check eighth -x
holds "  which is told" '^again '
holds "  with what shows more of it" '^look     the same with --dump DIR '
lacks "  and nothing after it" '^(in all|simplest) '
ok "a kernel builds whose supports() crashes" kernel asked "$(supports '(*(volatile int *)0 = 0)')"
expect_exit 1 "  and is wrong" check asked
holds "  for that" '^WRONG    its supports\(\) crashes, or has no end'
ok "a kernel builds that reads no usual rows, and these wrongly" kernel small \
    "$(supports '!(p->softcap > 0) \&\& p->k_dim == 64');s/s \*= p->scale/s/"
expect_exit 1 "  and is wrong" check small
holds "  which begins with that" '^kernel   mine: reads no rows of 128 channels'
holds "  in all histories that have its rows" '^in all   ([0-9]+) of \1 replays are wrong'

# Caches and pools: the examples, and a mistake in each.
example() { # NAME SED
    sed "$2" "caches/example-plugin/$1.c" >"$TMPDIR/mine/$1.c"
    [ -z "$2" ] || ! cmp -s "$TMPDIR/mine/$1.c" "caches/example-plugin/$1.c" || return 1
    gcc -std=c11 -O3 -fPIC -shared -fvisibility=hidden -I"$TMPDIR/include" "$TMPDIR/mine/$1.c" -o "$TMPDIR/mine/$1.so" -lm
}
ok "headers" env -u MAKEFLAGS -u MFLAGS make -s -o all install BUILD="$BUILD" PREFIX=/usr DESTDIR="$TMPDIR/there"
ln -s "$TMPDIR/there/usr/include/kvbench" "$TMPDIR/include"
# One sequence takes less time than several, with which plugins.t and check_random.t judge this cache.
ok "the example cache builds, of one sequence" example pages 's/KVB_CACHE_SEQ,/0,/'
ok "  and is right" check pages
holds "  in four formats" '^RIGHT .* 1 cache, 4 formats'
holds "  with what it cannot do" '^skipped  [0-9]+, such as agent-fork: the cache cannot do several sequences'
ok "one that mistakes a position builds" example pages 's|\* PAGE + pos % PAGE;|* PAGE + (pos == 17 ? 16 : pos) % PAGE;|'
expect_exit 1 "  and is wrong" check pages -x
holds "  in a history" '^where    history .* over cache pages in '
ok "the example pool builds" example lin12 ''
ok "  and is right" check lin12
holds "  by itself, and in caches" '^RIGHT    by itself, at many dims, and in [0-9]+ replays of [0-9]+ histories'
ok "one that drops a bit builds" example lin12 's|to\[0\] = (unsigned char)codes|to[0] = (unsigned char)(codes \& 0xfe)|'
expect_exit 1 "  and is wrong" check lin12 -x
holds "  by itself" '^WRONG    the pool by itself is wrong$'

expect_exit 2 "no plug-in" "$KVBENCH" check
one_line "  is told in one line"
expect_exit 2 "a file that is none" "$KVBENCH" check README.md
one_line "  is told in one line"
expect_exit 2 "a kernel that it does not bring" check right --kernel yours
one_line "  is told in one line"
done_testing
