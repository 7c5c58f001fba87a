#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: each planted fault is caught by the check that is to catch it, and by that one alone where it says so; without a check
# its faults are missed, and that is said.
. "$(dirname "$0")/lib.sh"
[ "$sanitized" ] && skip_all "hundreds of runs, each many times slower with a sanitizer in the program"

ok "every planted fault is caught, and every check catches some" "$KVBENCH" faults --format csv
! grep -q '^\(MISSED\|OTHERWISE\)' "$out"
report $? "  each by the check that is to"
grep -c '^caught' "$out" | awk '{ exit $1 < 240 }'
report $? "  two hundred and forty, and more"
expect_exit 1 "without the bound a dropped key is missed" "$KVBENCH" faults key-now-and-then --without bound
holds "  which is said" '^MISSED +key-now-and-then +plain-decode seq f32 flash +bound +- '
ok "what else would have caught it" "$KVBENCH" faults out-left --alone
holds "  is said" '^caught +out-left .* written +written +bound '
ok "a page" "$KVBENCH" faults --format html 'lse-*'
holds "  has the faults" '<td>caught</td><td>lse-off</td><td>plain-decode seq f32 flash</td><td>bound</td>'
holds "  and the checks" '<td>bound</td><td class="n">[1-9]'
lacks "  needs nothing beside itself" '(src|href)='
cp "$out" "$TMPDIR/faults.html"
ok "  is well-formed" xmllint --html --nofixup-base-uris --noout "$TMPDIR/faults.html"
ok "all of them" "$KVBENCH" faults --list --format csv
sed -n '/^## Bugs that/,/^## /p' caches/README.md | grep '^| [a-zA-Z]' | grep -o '`[a-z0-9_-]*`' | tr -d '`' | sort -u >"$TMPDIR/named"
unknown=0
while read -r name; do
    grep -q "^$name," "$out" || find ci/tests -name "$name.c" | grep -q . || { echo "# $name: neither a fault nor a test"; unknown=1; }
done <"$TMPDIR/named"
[ "$unknown" = 0 ] && [ "$(wc -l <"$TMPDIR/named")" -ge 40 ]
report $? "caches/README.md names a fault or a test for every bug of others"
ok "what there is to plant" "$KVBENCH" faults --list --format csv 'lse-*'
holds "  is listed" '^lse-off,bound,plain-decode seq f32 flash,'
expect_exit 2 "an unknown check" "$KVBENCH" faults --without witnes
holds "  is guessed" "did you mean 'witness'" "$err"
expect_exit 2 "an unknown fault" "$KVBENCH" faults key-frist
one_line "  in one line"
# A signal ends it with what there is.
stopped '^kvbench faults: [0-9]+ s' "$KVBENCH" faults
report $((status != 143)) "a signal ends it"
holds "  in one line" '^kvbench faults: stopped by a signal after [0-9]+ of [0-9]+$' "$said"
lacks "  and says nothing of checks that had no turn" 'caught nothing' "$rows"
done_testing
