#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, with gcc and with clang, and has a guard. Building and `make clang` show the former of a header
# that its source includes before anything else; the others are compiled here. The plug-in contract also compiles as C++, and
# needs no other header.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

flags=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wstrict-prototypes -Werror -fsyntax-only -I.)
failed=0
mapfile -t headers < <(ci/files.sh '*.h' | grep -v '^ci/') # a test's header may lean on cmocka

# Its source's first directive includes it.
leads_its_source() { # header
    [ -f "${1%.h}.c" ] && [ "$(grep -m1 '^ *#' "${1%.h}.c")" = "#include \"$1\"" ]
}
others=()
for header in "${headers[@]}"; do
    leads_its_source "$header" || others+=("$header")
done

# The guard: #ifndef NAME (or #if !defined(NAME)) and #define NAME come first, and its #endif last.
awk 'function check() { if (file && (!guarded || depth || beyond)) { print file ": has no guard around all of it"; bad = 1 } }
    FNR == 1 { check(); file = FILENAME; guarded = directives = depth = closed = beyond = 0; name = "" }
    closed && NF || !directives && NF && !/^(#|\/\*| \*)/ { beyond = 1 }
    !/^ *#/ { next }
    ++directives == 1 && /^#(ifndef |if !defined\()/ { name = $0; sub(/^#(ifndef |if !defined\()/, "", name); sub(/[) ].*/, "", name) }
    directives == 2 && name != "" { guarded = $0 == "#define " name }
    /^ *#if/ { depth++ }
    /^ *#endif/ { closed = !--depth }
    END { check(); exit bad }' "${headers[@]}" || failed=1

headers_compile() { # compiler
    local bad=0
    for header in "${others[@]}"; do
        echo "#include \"$header\"" | "$1" "${flags[@]}" -x c - || {
            echo "$header: does not compile alone with $1"
            bad=1
        }
    done
    return $bad
}
headers_compile gcc &
gcc_job=$!
headers_compile clang || failed=1
wait $gcc_job || failed=1

if grep -n '#include "' kernels/view.h kernels/model.h || grep -n '#include "' kernels/attend.h kernels/scan.h | grep -v '"view.h"$'; then
    echo "kernels/view.h, model.h, attend.h, scan.h: must need nothing but the C library, and the last two view.h"
    failed=1
fi
for contract in kernels/view.h kernels/attend.h kernels/scan.h kernels/model.h harness/engine/adapter.h; do
    if ! echo "#include \"$contract\"" | clang -x c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I. -; then
        echo "$contract: does not compile as C++"
        failed=1
    fi
done
exit $failed
