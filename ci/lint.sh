#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All checks that need no build: format, layering, headers alone, shell scripts, lengths, licence lines, quotes, cppcheck. Each
# prints its findings; the last line names those that failed. `ci/lint.sh NAME…` runs only the named checks.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

max_lines=1200

mapfile -t sources < <(ci/files.sh '*.c')
mapfile -t headers < <(ci/files.sh '*.h')
# scripts by their first line, wherever they are
mapfile -t scripts < <(ci/files.sh | xargs -d '\n' grep -lE -m1 '^#!.*\b(ba)?sh\b' | grep -v '\.\(patch\|golden\)$')

check_format() {
    printf '%s\n' "${sources[@]}" "${headers[@]}" | xargs -P "$(nproc)" -n 20 clang-format --dry-run -Werror
}

check_layering() {
    ci/layering.sh
}

check_headers() {
    ci/headers.sh
}

check_scripts() {
    printf '%s\n' "${scripts[@]}" | xargs -P "$(nproc)" -n 12 shellcheck -S warning -x -P ci/tests/cli
}

check_lengths() {
    awk -v most=$max_lines 'FNR > most && !told[FILENAME]++ { print FILENAME ": more than " most " lines"; bad = 1 }
        END { exit bad }' "${sources[@]}" "${headers[@]}" "${scripts[@]}"
}

check_licence() {
    # except the examples' Makefiles, which have only three lines
    ci/files.sh '*.c' '*.h' '*.sh' '*.t' '*.py' '*Makefile' '.ci/run' | grep -v '^[a-z]*/example-plugin/Makefile$' |
        xargs -d '\n' awk 'FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { has[FILENAME] = 1 }
            END { for (i = 1; i < ARGC; i++) if (!has[ARGV[i]]) { print ARGV[i] ": no SPDX line on top"; bad = 1 }
                  exit bad }'
}

# The sources have each line that a list of mutants or of coverage quotes.
check_quotes() {
    awk 'function quote(file, line) { sub(/^ +/, "", line); print file "\t" line }
        FILENAME ~ /mutants/ && of { quote(of, substr($0, 2)); of = "" }
        FILENAME ~ /mutants/ && /^[a-z].*\.c$/ { of = $0 }
        FILENAME ~ /coverage/ && /^[a-z]/ { file = substr($0, 1, index($0, ":") - 1) }
        FILENAME ~ /coverage/ && /^    / { quote(file, $0) }
    ' ci/mutants-alike.txt ci/coverage.txt | sort -u | awk -F '\t' '
        $1 != file { delete has; file = $1; while ((getline line < file) > 0) { sub(/^[ \t]+/, "", line); has[line] } close(file) }
        !($2 in has) { print file ": a list in ci/ quotes a line that is not there: " $2; bad = 1 }
        END { exit bad }'
}

# Tests are left out, since they make mistakes on purpose. Some of cppcheck's checks misread C and are off (compound
# literals on the right of an assignment, loops that fill an array, structures that a function fills). The compilers and
# the sanitizers find such mistakes; clang reads each file at each level.
check_cppcheck() {
    printf '%s\n' "${sources[@]}" | grep -v '^ci/' |
        xargs -P "$(nproc)" -n 20 cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr \
            --error-exitcode=1 --max-configs=1 --suppress=missingIncludeSystem --suppress=unknownEvaluationOrder \
            --suppress=uninitvar --suppress=legacyUninitvar --suppress=ctuuninitvar --suppress=memleak \
            --suppress=toomanyconfigs '-DKVB_PLUGIN_KERNEL(...)=struct kvb_none' -I .
}

known=(format layering headers scripts lengths licence quotes cppcheck) checks=("$@")
[ $# -gt 0 ] || checks=("${known[@]}")
failed=()
for check in "${checks[@]}"; do
    if ! declare -F "check_$check" >/dev/null; then
        echo "ci/lint.sh: \"$check\" is not known: ${known[*]}" >&2
        exit 2
    fi
    "check_$check" || failed+=("$check")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: failed: ${failed[*]}"
    exit 1
fi
echo "lint: all well: ${checks[*]}"
