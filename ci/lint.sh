#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs no build: format, layering, headers alone, shell scripts, lengths, licence lines, cppcheck.
# Each check prints what it finds; the last line says which failed. `ci/lint.sh NAME…` runs only those.
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
    shellcheck -S warning -x -P ci/tests/cli "${scripts[@]}"
}

check_lengths() {
    awk -v most=$max_lines 'FNR > most && !told[FILENAME]++ { print FILENAME ": more than " most " lines"; bad = 1 }
        END { exit bad }' "${sources[@]}" "${headers[@]}" "${scripts[@]}"
}

check_licence() {
    # but for the examples' Makefiles, which are to be three lines
    ci/files.sh '*.c' '*.h' '*.sh' '*.t' '*.py' '*Makefile' '.ci/run' | grep -v '^[a-z]*/example-plugin/Makefile$' |
        xargs -d '\n' awk 'FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { has[FILENAME] = 1 }
            END { for (i = 1; i < ARGC; i++) if (!has[ARGV[i]]) { print ARGV[i] ": no SPDX line on top"; bad = 1 }
                  exit bad }'
}

# The tests are left out: it takes their deliberate nonsense for mistakes. And some of its checks misread C (compound
# literals on the right of an assignment, loops that fill an array, structures that a function fills in). The
# compilers and the sanitizers see to what those look for; clang reads each file at each level.
check_cppcheck() {
    printf '%s\n' "${sources[@]}" | grep -v '^ci/' |
        xargs -P "$(nproc)" -n 20 cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr \
            --error-exitcode=1 --max-configs=1 --suppress=missingIncludeSystem --suppress=unknownEvaluationOrder \
            --suppress=uninitvar --suppress=legacyUninitvar --suppress=ctuuninitvar --suppress=memleak \
            --suppress=toomanyconfigs '-DKVB_PLUGIN_KERNEL(...)=struct kvb_none' -I .
}

checks=(format layering headers scripts lengths licence cppcheck)
if [ $# -gt 0 ]; then
    checks=("$@")
fi
failed=()
for check in "${checks[@]}"; do
    if ! declare -F "check_$check" >/dev/null; then
        echo "ci/lint.sh: \"$check\" is not known: format layering headers scripts lengths licence cppcheck" >&2
        exit 2
    fi
    "check_$check" || failed+=("$check")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: failed: ${failed[*]}"
    exit 1
fi
echo "lint: all well: ${checks[*]}"
