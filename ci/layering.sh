#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks which files include which (DESIGN.md, section 1), by the #include lines, and that there are no top-level
# folders but the listed ones. `ci/layering.sh [ROOT]` prints "file:line: …" for each breach and then exits 1.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

folders='kernels caches workloads oracle harness results plots ci'

# The first row with a pattern that matches a file's path gives the files that it may include (extended regular
# expressions). A test may include its subject, the same files as its subject, and files beside it ("fixture.h").
rules=(
    '^kernels/example-plugin/        ^(view|attend|scan)\.h$' # as outside the tree: with a copy of the contract's headers
    '^caches/example-plugin/         ^caches/plugin\.h$'
    '^kernels/(ggml|onnx)/           ^kernels/(view|attend|engines)\.h$' # a plug-in: only the contract
    '^kernels/                       ^kernels/|^(view|attend|scan)\.h$'
    '^caches/                        ^caches/|^kernels/(view|attend|scan|model)\.h$'
    '^workloads/live/                ^workloads/|^caches/[^/]*\.h$|^kernels/(view|attend|scan|model)\.h$'
    '^workloads/import/              ^workloads/(import/)?[^/]*$'
    '^workloads/                     ^workloads/[^/]*$|^kernels/(model|scan)\.h$'
    '^oracle/                        ^oracle/|^workloads/(history|trace|values|array|files)\.h$|^kernels/(view|attend|scan|model)\.h$'
    '^results/                       ^results/|^workloads/(array|files)\.h$'
    '^harness/                       ^(kernels|caches|workloads|oracle|results|harness)/'
    '^ci/tests/kernels/              ^kernels/|^(ci/tests/(kernels/)?)?[^/]*\.h$'
    '^ci/tests/caches/               ^(caches|kernels)/|^(ci/tests/(caches/)?)?[^/]*\.h$'
    '^ci/tests/workloads/            ^workloads/(import/)?[^/]*$|^kernels/scan\.h$|^(ci/tests/(workloads/)?)?[^/]*\.h$'
    '^ci/tests/live/                 ^(workloads|caches|kernels)/|^(ci/tests/(live/)?)?[^/]*\.h$'
    '^ci/tests/oracle/               ^(oracle|workloads)/|^kernels/(view|attend|scan)\.h$|^(ci/tests/(oracle/)?)?[^/]*\.h$'
    '^ci/tests/results/              ^results/|^workloads/(array|files)\.h$|^(ci/tests/(results/)?)?[^/]*\.h$'
    '^ci/tests/                      ^(kernels|caches|workloads|oracle|results|harness|ci)/|^[^/]*\.h$'
    '^ci/                            ^(kernels|caches|workloads|oracle|results|harness|ci)/'
)

breaches=$(
    find . -mindepth 1 -maxdepth 1 -type d ! -name '.*' ! -name build -printf '%f\n' | sort | while IFS= read -r folder; do
        if [[ " $folders " != *" $folder "* ]]; then
            echo "$folder/: not a folder of the house: $folders"
        fi
    done
    find . -name '.?*' -prune -o -path ./build -prune -o -name '*.[ch]' -printf '%P\n' | sort | {
        xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' || true # none at all
    } |
        RULES=$(printf '%s\n' "${rules[@]}") awk '
            BEGIN {
                n = split(ENVIRON["RULES"], lines, "\n")
                for (i = 1; i <= n; i++) {
                    split(lines[i], parts, /  +/)
                    files[i] = parts[1]
                    allowed[i] = parts[2]
                }
            }
            {
                match($0, /^[^:]*:[0-9]+:/)
                place = substr($0, 1, RLENGTH)
                file = place
                sub(/:.*/, "", file)
                rest = substr($0, RLENGTH + 1)
                match(rest, /["<][^">]*[">]/)
                name = substr(rest, RSTART + 1, RLENGTH - 2)
                ours = rest ~ /include[ \t]*"/ || name ~ /^(kernels|caches|workloads|oracle|results|harness)\//
                if (!ours || name == "version-facts.h") # written by the build
                    next
                if (name ~ /\.c$/) {
                    print place " a source includes the source " name
                    next
                }
                for (i = 1; i <= n && file !~ files[i]; i++)
                    ;
                if (i > n)
                    print place " lies in no folder of the house"
                else if (name !~ allowed[i])
                    print place " may not include " name
            }'
)
if [ -n "$breaches" ]; then
    printf '%s\n' "$breaches"
    exit 1
fi
