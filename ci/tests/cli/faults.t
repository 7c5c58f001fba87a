#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: ci/faults/run.py calls a fault caught when its test fails because of it, and for no other reason.
. "$(dirname "$0")/lib.sh"

tree=$TMPDIR/project/tree # beside it, tests look for shared/
mkdir -p "$tree"
ci/files.sh | grep -v '^ci/faults/.*\.faults$' | xargs -d '\n' cp -p --parents -t "$tree"
known=$tree/ci/faults/known.faults
line=$(head -n 1 results/table.c)

fault() { # first line, what line 1 of results/table.c becomes
    printf '%s\nshown\nresults/table.c\n-%s\n+%s\n\n' "$1" "$line" "$2" >>"$known"
}
faults() { OPT=-O0 "$tree/ci/faults/run.py" "$TMPDIR/build" "$@"; }
verdict() { holds "  $1" "^$2 [0-9]+ - $3"; }

fault 'unseen results/test_write' '/* the licence */'
fault 'not-c results/test_table' 'no C at all'
fault 'nowhere results/test_gone' '/* the licence */'
line='a line that is not there' fault 'after-others results/test_table' '/* after the others */'
fault 'elsewhere results/test_write needs=no_such_flag' '/* the licence */'
printf '%s\n' 'real results/test_write' 'a result file that a full disk cut short replaces the old one' results/result_file.c \
    '-    int error = commit ? writer->failed : 0;' '+    int error = 0;' ' ' '     if (commit && !error)' '' >>"$known"
fault 'after-real results/test_write' '/* the licence */'

expect_exit 1 "faults that nothing catches" faults
verdict "one that no test sees" 'not ok' 'unseen: results/test_write does not see it'
verdict "one that does not compile" 'not ok' 'not-c: the faulty source does not build'
verdict "one whose test is not there" 'not ok' 'nowhere: results/test_gone is not there'
verdict "one that does not apply" 'not ok' 'after-others: its lines occur 0 times in results/table.c, expected once'
verdict "a real one is caught, after another of the same test" 'ok' 'real: '
verdict "nothing of it is left for the next" 'not ok' 'after-real: results/test_write does not see it'
verdict "one of another CPU is not tried" 'ok' 'elsewhere # SKIP the CPU has no no_such_flag'
holds "  the sum" '^# faults: 6 planted, 1 caught; 1 need another CPU$'

sed -i 's|^unseen .*|& slow|' "$known"
expect_exit 1 "the first of each test" faults --quick
verdict "a slow one is left out" 'ok' 'real: '
holds "  the others are counted" '^# faults: 3 planted, 1 caught; 4 left to make faults$'

echo 'static void __attribute__((constructor)) abort_early(void) { __builtin_abort(); }' >>"$tree/ci/tests/results/test_write.c"
expect_exit 1 "a test that fails without the fault catches nothing" faults real
holds "  which is said" '^not ok 1 - real: results/test_write .*without the fault'

expect_exit 2 "a fault that is not there" faults unreal
holds "  is named" 'there is no fault unreal' "$err"
fault 'real results/test_write' '/* the licence */'
expect_exit 2 "two of one name" faults
holds "  are named" 'more than one fault has the name real' "$err"
malformed() { # what is wrong, lines of a block
    printf '%s\n' "${@:2}" >"$known"
    expect_exit 2 "$1" faults
    holds "  is shown with its line" "^[^ ]*known.faults:1: expected a fault .*: $2$" "$err"
    one_line "  and nothing else"
}
malformed "one that names no test" bare
malformed "one with an unknown word" 'named results/test_write slowly' shown results/table.c -a +b
malformed "one without a change" 'named results/test_write' shown results/table.c
malformed "one that only adds" 'named results/test_write' shown results/table.c +b
malformed "one that changes nothing" 'named results/test_write' shown results/table.c ' a'
done_testing
