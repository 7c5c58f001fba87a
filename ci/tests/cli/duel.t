#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: two builds of a plug-in are run in turns and compared: a slower one is named, the same one is not; a crash, a hang
# or a part that is gone is a row; what cannot be compared is refused with one line.
. "$(dirname "$0")/lib.sh"

# build NAME SED: the example plug-in with a change.
build() {
    sed -E "$2" kernels/example-plugin/online.c >"$TMPDIR/$1.c"
    ! cmp -s kernels/example-plugin/online.c "$TMPDIR/$1.c" || [ -z "$2" ] || return 1
    gcc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -Ikernels "$TMPDIR/$1.c" -lm -o "$TMPDIR/$1.so"
}
row='row_attend\(x, row \/ x->problem.n_heads, row % x->problem.n_heads\);'
ok "the old build" build old ''
ok "  a copy of it" cp "$TMPDIR/old.so" "$TMPDIR/copy.so"
ok "  one that does its work three times" build slow "s/^ *$row/for (uint32_t i = 0; i < 3; i++) &/"
ok "  one that crashes" build crash 's/^( *)kvb_attend copy = /\1*(volatile int *)0 = 1;\n&/'
ok "  one that hangs" build hang 's/^( *)kvb_attend copy = /\1for (volatile int i = 1; i;)\n;\n&/'
ok "  one that ends in its constructor, but not at first" build once \
    's/^static int attend/#include <stdlib.h>\n__attribute__((constructor)) static void begin(void)\n{\nif (getenv("ONCE"))\n_Exit(9);\nsetenv("ONCE", "1", 1);\n}\n&/'
ok "  one that tells where it lies" build where \
    's/^static int attend/#include <stdlib.h>\n__attribute__((constructor)) static void tell(void)\n{\nFILE *f = fopen(getenv("WHERE"), "a");\nfprintf(f, "%p\\n", (void *)\&tell);\nfclose(f);\n}\n&/'
ok "  one of another contract" build abi 's/^KVB_PLUGIN_KERNEL/#undef KVB_ABI_VERSION\n#define KVB_ABI_VERSION 1u\n&/'
ok "  one with another kernel" build renamed 's/"online"/"other"/'
ok "  one that brings nothing" build empty \
    's/^KVB_PLUGIN_KERNEL.*/KVB_PLUGIN_EXPORT const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "none"};/
     /^ +\.arithmetic = arithmetic.*\);$/d'

# duel STATUS NAME BASE NEW WORD…: compares two of these builds over one short workload. On a busy machine a copy may seem
# slower by what a short run cannot tell apart: only the half of a time is a matter here.
echo '{"kvbench_thresholds": 1, "time": 0.5}' >"$TMPDIR/thresholds.json"
duel() {
    local want=$1 name=$2 base=$3 new=$4
    shift 4
    expect_exit "$want" "$name" "$KVBENCH" compare --base-plugin "$TMPDIR/$base.so" --new-plugin "$TMPDIR/$new.so" \
        --workload plain-decode --cache contiguous --pool f32 --set sample-ms=50 --timeout 20 \
        --thresholds "$TMPDIR/thresholds.json" "$@"
}
duel 1 "a slower build ends with 1" old slow --cache seq --pool k=f32+had,v=f16 --set sample-ms=200
holds "  names a combination" '^SLOWER +plain-decode +(contiguous +f32|seq +k=f32\+had,v=f16) +online +1 +time'
holds "  one in the first cache" '^(SLOWER|UNDECIDED) +plain-decode +contiguous +f32 +online +1 +time'
# a sanitizer slows the transform down more than the kernel
[ "$sanitized" ] || holds "  one behind a transform, in another cache" '^(SLOWER|UNDECIDED) +plain-decode +seq +k=f32\+had,v=f16 +online +1 +time'
holds "  told by what the base differs from itself, not by that" 'smallest difference these runs can resolve: [0-9]{1,2}\.[0-9] % \(4 null comparisons\)'
lacks "  and nothing of built-in parts alone" 'flash|reference|openblas'
duel 0 "a copy of the old build is no regression" old copy --all
holds "  its time is judged" '^(SAME|UNDECIDED|FASTER) +plain-decode +contiguous +f32 +online +1 +time'
duel 0 "a file against itself" old old
cp "$TMPDIR/where.so" "$TMPDIR/there.so"
export WHERE=$TMPDIR/addresses
duel 0 "two builds that tell where they lie" where there
[ "$(tail -n 3 "$WHERE" | sort -u | wc -l)-$(wc -l <"$WHERE")" = 1-5 ]
report $? "  base, new and base again lie at the same address"
duel 1 "a crash of the new build is a row" old crash
holds "  with the signal and the place" "^BROKEN .*SIGSEGV .*in the kernel's attend\(\)"
duel 0 "a crash of the old build is put right" crash old
holds "  and said" '^FIXED '
duel 1 "a hang is a row" old hang --timeout 1
holds "  with the time limit" '^BROKEN .*no end within 1 s'
duel 1 "an end in the constructor is a row" old once
holds "  with the exit code" '^BROKEN .*exit 9 before the replay'
duel 1 "a kernel that the new build lacks is a row" old renamed
holds "  gone" '^GONE +plain-decode +contiguous +f32 +online'
holds "  and the other one new" '^NEW +plain-decode +contiguous +f32 +other'
duel 1 "a new build that brings nothing" old empty
holds "  has all gone" '^GONE +plain-decode +contiguous +f32 +online'
duel 2 "an old build that brings nothing" empty old
holds "  is said" 'empty.so: lists no kernel, cache or pool' "$err"
duel 2 "another contract" old abi
holds "  is refused by its number" 'abi.so: built for attend.h version [0-9]+, this kvbench speaks version' "$err"
duel 2 "a word that matches nothing" old copy --kernel nosuch
holds "  is told what is known" "unknown kernel 'nosuch'; known: .*online" "$err"
duel 2 "--kernel best" old copy --kernel best
holds "  is refused" 'goes by an earlier run' "$err"
duel 2 "words that leave no part of the plug-ins" old copy --kernel reference
holds "  are refused" 'none of these combinations uses the plug-ins' "$err"
one_line "  in one line"

expect_exit 2 "one plug-in is not enough" "$KVBENCH" compare --base-plugin "$TMPDIR/old.so"
one_line "  in one line"
expect_exit 2 "plug-ins and programs at once" "$KVBENCH" compare --base-plugin a.so --new-program b
expect_exit 2 "files and plug-ins at once" "$KVBENCH" compare a.jsonl --base-plugin a.so --new-plugin b.so
expect_exit 2 "no such plug-in" "$KVBENCH" compare --base-plugin "$TMPDIR/none.so" --new-plugin "$TMPDIR/old.so"
holds "  is named" 'none.so' "$err"

done_testing
