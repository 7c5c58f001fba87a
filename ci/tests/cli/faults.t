#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: ci/faults/run.sh calls a fault caught when its test fails because of it, and for no other reason.
. "$(dirname "$0")/lib.sh"

tree=$TMPDIR/project/tree # beside it, tests look for shared/
mkdir -p "$tree"
ci/files.sh | grep -v '^ci/faults/' | xargs -d '\n' cp -p --parents -t "$tree"
mkdir "$tree/ci/faults"
cp ci/faults/run.sh "$tree/ci/faults"

patch_write() { # name, test, what line 1 of results/names.c becomes
    printf '# shows: %s\n# test: %s\n' "$1" "$2"
    sed "1s|.*|$3|" results/names.c | diff -u --label a/results/names.c --label b/results/names.c results/names.c -
} >"$tree/ci/faults/$1.patch"
faults() { OPT=-O0 "$tree/ci/faults/run.sh" "$TMPDIR/build" "$@"; }
faults_quick() { OPT=-O0 "$tree/ci/faults/run.sh" --quick "$TMPDIR/build"; }
verdict() { holds "  $1" "^$2 [0-9]+ - $3"; }

patch_write unseen results/test_write '/* the licence */' # tried after the real one: nothing of that is left
patch_write not-c results/test_stats 'no C at all'
patch_write nowhere results/test_gone '/* the licence */'
patch_write after-others results/test_stats '/* after the others */'
sed -i 's|^-/.*|-a line that is not there|' "$tree/ci/faults/after-others.patch"
printf -- '--- a/x\n' >"$tree/ci/faults/bare.patch"
patch_write elsewhere results/test_write '/* the licence */'
sed -i '2a # needs: no_such_flag' "$tree/ci/faults/elsewhere.patch"
cp ci/faults/results-commit-after-error.patch "$tree/ci/faults/real.patch"

expect_exit 1 "faults that nothing catches" faults
verdict "one that no test sees" 'not ok' 'unseen: results/test_write does not see it'
verdict "one that does not compile" 'not ok' 'not-c: the faulty source does not build'
verdict "one whose test is not there" 'not ok' 'nowhere: results/test_gone is not there'
verdict "one that does not apply" 'not ok' 'after-others: the patch does not apply'
verdict "one that names no test" 'not ok' 'bare: its first lines are not'
verdict "a real one is caught" 'ok' 'real: '
verdict "one of another CPU is not tried" 'ok' 'elsewhere # SKIP the CPU has no no_such_flag'
holds "  the sum" '^# faults: 6 planted, 1 caught; 1 that need another CPU$'

sed -i '2a # slow: not at all' "$tree/ci/faults/"{unseen,not-c,nowhere,after-others}.patch
rm "$tree/ci/faults/bare.patch"
expect_exit 0 "those that are not slow" faults_quick
holds "  the others are counted" '^# faults: 1 planted, 1 caught; 4 slow ones left out; 1 that need another CPU$'

echo 'static void __attribute__((constructor)) abort_early(void) { __builtin_abort(); }' >>"$tree/ci/tests/results/test_write.c"
expect_exit 1 "a test that fails without the fault catches nothing" faults real
holds "  which is said" '^not ok 1 - real: results/test_write .*without the fault'
done_testing
