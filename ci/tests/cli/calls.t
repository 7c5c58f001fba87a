#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: a plug-in's kernel that is wrong where no history looks is found by single calls, its call is shrunk and can be made again; what
# a kernel declines is said, and can be asked for; words that are no axis are bad input.
. "$(dirname "$0")/lib.sh"

mkdir -p "$TMPDIR/mine"
# The README's kernel, which knows no softcap, and a mistake in it at the place that SED names.
kernel() { # NAME SED
    sed -n '/^#include "attend.h"/,/^```$/p' README.md | sed '/^```$/d' | sed "$2" >"$TMPDIR/mine/$1.c"
    gcc -std=c11 -O3 -fassociative-math -fno-signed-zeros -fno-trapping-math -fPIC -shared -Ikernels "$TMPDIR/mine/$1.c" -o "$TMPDIR/mine/$1.so" -lm
}
calls() { # NAME OPTION…: single calls of that plug-in's kernel, so few that none is large
    local name=$1
    shift
    "$KVBENCH" run --check --suite calls --set calls="${most-30}" --plugin "$TMPDIR/mine/$name.so" --kernel mine -o "$TMPDIR/$name.jsonl" "$@"
}

ok "the README's kernel builds" kernel right ''
most=150 ok "  and single calls of it are right" calls right
holds "  which says what was covered" '^mine +150 +[0-9]+ of [0-9]+ +[0-9]+ %'
holds "  and what it declines" '^mine .*softcap=30,5'
holds "  as its record does" '"axes": \{"calls": 150, "wrong": 0, .*"declined": ".*softcap=30,5' "$TMPDIR/right.jsonl"
expect_exit 1 "a value that it declines can be required" calls right --set require-axes=softcap=30
holds "  and is named" 'no call of mine had softcap=30: it declines that' "$err"
ok "what it takes can be required, too, and the same bits" calls right --set require-axes=head_dim=80 --set require-axes=mask --set require-axes=threads=8 \
    --set require-invariant=batch --set require-invariant=threads
holds "  which are in its record" '"same": \{"calls": [1-9][0-9]*, "batch": 0.0, "steps": null, "threads": 0.0, "pages": 0.0, "alignment": 0.0, "again": 0.0\}' "$TMPDIR/right.jsonl"
expect_exit 2 "a way that is none" calls right --set require-invariant=moon
holds "  is named, with those that there are" "unknown way 'moon'.*known: batch, steps, threads, pages, alignment, again" "$err"
for way in 'batch:p->n_tok == 1' 'threads:p->deterministic ? 0 : x->team->n > 1' 'again:p->deterministic ? 0 : calls++ % 2' 'alignment:(size_t)x->q % 64' \
    'pages:x->mask.kind == KVB_MASK_PAGES ? x->mask.pages[x->mask.row_start[0]] % 2 : 0'; do
    ok "one whose rounding depends on ${way%%:*} builds" kernel "${way%%:*}" \
        "s|&x->problem;|& static unsigned calls; const float nudge = (${way#*:}) ? 1 + 0x1p-22f : 1; (void)calls;|; s|s \\*= p->scale|s *= p->scale * nudge|"
    expect_exit 1 "  and can be refused" calls "${way%%:*}" --set require-invariant="${way%%:*}"
    holds "  by name" "mine gives other bits: ${way%%:*}, by" "$err"
    holds "  though it is right" '^1 passed, 0 failed'
    holds "  but with other bits" "\"${way%%:*}\": [0-9.e-]*[1-9]" "$TMPDIR/${way%%:*}.jsonl"
done
ok "  other bits alone are no failure" calls batch

# Single calls of the example scan kernel, with rounding that depends on a condition, or a factor in its place.
scans() { # CONDITION OPTION…
    sed "s|team, part, &copy);|&\n    const kvb_scan_problem *p = \&args->problem;\n    *(float *)args->out *= ($1) \&\& p->n_tok ? ${factor:-1 + 0x1p-23f} : 1;|" \
        kernels/example-plugin/running.c >"$TMPDIR/mine/running.c"
    gcc -std=c11 -O3 -ffp-contract=off -fPIC -shared -Ikernels "$TMPDIR/mine/running.c" -o "$TMPDIR/mine/running.so" -lm &&
        "$KVBENCH" run --check --suite calls --set calls=40 --plugin "$TMPDIR/mine/running.so" --kernel running -o "$TMPDIR/running.jsonl" "${@:2}"
}
required=()
for way in batch steps threads pages alignment again; do required+=(--set require-invariant="$way"); done
ok "a scan kernel keeps its bits in each way" scans 0 "${required[@]}"
holds "  which its record says" '"same": \{"calls": [1-9][0-9]*, "batch": 0.0, "steps": 0.0, "threads": 0.0, "pages": 0.0, "alignment": 0.0, "again": 0.0\}' "$TMPDIR/running.jsonl"
sed -i 's|p->out_elem == KVB_F32|& \&\& p->n_tok < 9|' "$TMPDIR/mine/running.c"
ok "  and one that takes few calls builds" gcc -std=c11 -O3 -ffp-contract=off -fPIC -shared -Ikernels "$TMPDIR/mine/running.c" -o "$TMPDIR/mine/running.so" -lm
ok "  which check judges" "$KVBENCH" check "$TMPDIR/mine/running.so"
holds "  in a line" '^same\? +the same bits: batch, steps, threads, pages, alignment, again'
for way in 'batch:p->n_tok > p->run' 'steps:p->n_tok == 1' 'pages:args->from[0] % 2' 'alignment:(size_t)args->v % 64'; do
    expect_exit 1 "one whose rounding depends on ${way%%:*} can be refused" scans "${way#*:}" --set require-invariant="${way%%:*}"
    holds "  by name" "running gives other bits: ${way%%:*}, by" "$err"
    holds "  though it is right" '^1 passed, 0 failed'
done
expect_exit 1 "one whose rounding depends on the team is wrong" scans 'args->team->n > 1'
holds "  by its contract" '^fail calls/none/any/running/.*: 1 and 3 threads give other bits'

ok "so are those of the example plug-in" "$KVBENCH" run --check --suite calls --set calls=30 --plugin "$BUILD/example-plugin/online.so" \
    --kernel online --set require-axes=softcap=30 --set require-axes=sinks=60 -o "$TMPDIR/online.jsonl"
holds "  each to the bit, in the order that it declares" '"exact": 30' "$TMPDIR/online.jsonl"
holds "  which is said" '^calls judged to the bit, in the order that the kernel declares: online 30$'
holds "  which declines all rows but f32" '^online +30 .* k=\([0-9]+\) v=\(7\) '

# The example plug-in with a mistake in it at the place that SED names.
for wrong in 'declares:{.cells = TILE, .dot.n = 1}:{.cells = 32, .dot.n = 1}' 'adds:for (uint32_t i = 0; i < n; i++) {$:for (uint32_t i = n; i-- > 0;) {'; do
    IFS=: read -r name from to <<<"$wrong"
    sed "s|$from|$to|" kernels/example-plugin/online.c >"$TMPDIR/mine/$name.c"
    ok "one that $name in another order builds" gcc -std=c11 -O3 -fPIC -shared -Ikernels "$TMPDIR/mine/$name.c" -o "$TMPDIR/mine/$name.so" -lm
    expect_exit 1 "  and is found" "$KVBENCH" run --check --suite calls --set calls=20 --plugin "$TMPDIR/mine/$name.so" --kernel online -o "$TMPDIR/$name.jsonl"
    holds "  at one bit" 'of query 0, head 0[^"]* is -?0x1[.][0-9a-f]+p[-+0-9]+, in the declared order -?0x1[.]' "$TMPDIR/$name.jsonl"
    holds "  which the bound lets pass" '"rho": 0[.]' "$TMPDIR/$name.jsonl"
done

silent() { # CALL NUMBER: does the record of that call alone say that outputs of 0 pass in so many calls?
    calls right --call "$1" && grep -q "\"axes\": {\"calls\": 1, .*\"silent\": $2," "$TMPDIR/right.jsonl"
}
ok "the record tells a call that outputs of 0 pass for" silent mask=explicit,blind=first 1
ok "  and one that they fail for" silent head_dim=128 0

ok "one that is wrong at 96 channels builds" kernel wrong 's|out\[d\] /= sum;|out[d] /= p->v_dim == 96 ? 2 * sum : sum;|'
expect_exit 1 "  and is found" calls wrong
holds "  at the simplest call that shows it" '^fail calls/none/any/mine/1/double: head_dim=96: out of query 0, head 0, channel '
again=$(sed -n "s/^the first failure alone: //p" "$out")
case $again in *"--call 'head_dim=96'"*) true ;; *) false ;; esac
report $? "  with its command"
expect_exit 1 "  which makes that call again" bash -c "$again"
holds "  alone" '1 of 1 calls are wrong'
ok "  and no other" calls wrong --call head_dim=128

ok "one that crashes at 3 KV heads builds" kernel crash 's|float \*out = |if (p->n_kv_heads == 3) *(volatile int *)0 = 0; float *out = |'
expect_exit 1 "  and is found" calls crash
holds "  too" '^crash calls/none/any/mine/1/double: kv_heads=3: write at byte 0 of NULL'

# Wrong where they are called twice with the same q, or only because they read what is hidden.
twice='static float last; const bool twice = last == \1[0]; last = \1[0];'
ok "one that is wrong when called again builds" kernel twice "s|&x->problem;|& ${twice//'\1'/x->q}|; s|s \\*= p->scale|s *= twice ? 1 : p->scale|"
ok "  and is right once" calls twice --call head_dim=64
expect_exit 1 "  but not repeated" calls twice --call order=repeated
holds "  which is said" ': order=repeated: called again: '
ok "one that multiplies a hidden row by 0 builds" kernel hidden 's|out\[d\] = 0;|out[d] = 0 * *(const float *)kvb_view_row(\&x->k, 0, 0);|'
ok "  and is right where it is visible" calls hidden --call head_dim=64
expect_exit 1 "  but not where it is hidden" calls hidden --call limits=window-8,mask=explicit,cells=63
holds "  which is said" 'only with NaN in cells that no query sees: ' "$TMPDIR/hidden.jsonl"
expect_exit 1 "a scan that gives other bits when called again" scans "({ ${twice//'\1'/args->q} twice \&\& args->team->n == 1; })" --call order=repeated
holds "  is wrong by its contract" ': order=repeated: called again, it gives other bits'
factor=2 expect_exit 1 "a scan that looks at a hidden slot" scans "isnan(*(float *)args->states.base)" --call from=zero,to=none
holds "  is, too" 'only with NaN in slots that it must not read: '

expect_exit 2 "an axis that is none" calls right --call softcaps=30
one_line "  is told in one line"
holds "  with the nearest" "did you mean 'softcap'" "$err"
expect_exit 2 "a value that is none" calls right --call softcap=31
one_line "  is told in one line"
expect_exit 2 "a call that the kernel declines" calls right --call softcap=30
one_line "  is told in one line"
expect_exit 2 "a workload has no single calls" calls right --workload plain-decode
one_line "  which is told in one line"
ok "the axes" "$KVBENCH" list axes
holds "  are listed with their values" '^axis +softcap +attention +yes +.*: 0 30 5$'
done_testing
