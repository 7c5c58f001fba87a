# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# TAP for tests in bash. A test script begins with
#
#   . "$(dirname "$0")/lib.sh"
#
# runs from the project's root with BUILD (the build folder) and TMPDIR (its own, removed after it) in the
# environment, and ends with `done_testing`. Golden files lie in ci/tests/cli/golden/; KVB_UPDATE_GOLDEN=1 rewrites
# them from what is printed (the test then passes and says so).

set -u
: "${BUILD:?the build folder}" "${TMPDIR:=/tmp}"
# shellcheck disable=SC2034 # for the scripts
KVBENCH=$BUILD/kvbench
GOLDEN=$(dirname "${BASH_SOURCE[0]}")/golden
out=$(mktemp "$TMPDIR/out.XXXXXX")
err=$(mktemp "$TMPDIR/err.XXXXXX")
tests=0
failures=0
# A sanitizer in the program makes it many times slower: whole suites then judge few rows in full (ORACLE_PAIRS), and what
# shows nothing new about memory or threads is left out.
sanitized=$(grep -qE '__(asan|tsan)_init' "$KVBENCH" && echo yes)
# shellcheck disable=SC2034
ORACLE_PAIRS=$([ "$sanitized" ] && echo 500 || echo 20000)

# report GOOD NAME: one line of TAP; GOOD is 0 for well. On failure what the last command printed is shown.
report() {
    tests=$((tests + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $tests - $2"
        return 0
    fi
    failures=$((failures + 1))
    { # for the reader of a log, too: prove keeps standard output to itself
        echo "not ok $tests - $2"
        sed 's/^/# stdout: /' "$out" | head -n 40
        sed 's/^/# stderr: /' "$err" | head -n 40
    } | tee /dev/stderr
    return 1
}

# ok NAME COMMAND…: well when the command succeeds. Its output goes to the files $out and $err.
ok() {
    local name=$1
    shift
    "$@" >"$out" 2>"$err"
    report $? "$name"
}

# expect_exit STATUS NAME COMMAND…: well when the command ends with this status.
expect_exit() {
    local want=$1 name=$2 got
    shift 2
    "$@" >"$out" 2>"$err"
    got=$?
    if [ $got -ne "$want" ]; then
        echo "# ended with $got, expected $want: $*"
    fi
    [ $got -eq "$want" ]
    report $? "$name"
}

# holds NAME PATTERN [FILE]: well when a line of FILE ($out unless told) matches the extended regular expression.
# For what is not part of the last command's standard output: holds NAME PATTERN "$err".
holds() {
    grep -qE -- "$2" "${3-$out}"
    local good=$?
    if [ $good -ne 0 ]; then
        echo "# no line matches: $2"
    fi
    report $good "$1"
}

# lacks NAME PATTERN [FILE]: the opposite.
lacks() {
    ! grep -qE -- "$2" "${3-$out}"
    report $? "$1"
}

# one_line NAME [FILE]: well when FILE ($err unless told) is one line: what every refusal is to print.
one_line() {
    [ "$(wc -l <"${2-$err}")" -eq 1 ]
    report $? "$1"
}

# golden NAME FILE [FILTER…]: $out, through the filter (a command that takes out times and names of the machine),
# equals the golden FILE.
golden() {
    local name=$1 file=$GOLDEN/$2
    shift 2
    local got=$TMPDIR/golden.$$
    if [ $# -gt 0 ]; then
        "$@" <"$out" >"$got"
    else
        cp "$out" "$got"
    fi
    if [ -n "${KVB_UPDATE_GOLDEN-}" ]; then
        mkdir -p "$GOLDEN"
        cp "$got" "$file"
        report 0 "$name # updated $file"
        return
    fi
    diff -u "$file" "$got" | sed 's/^/# /'
    [ "${PIPESTATUS[0]}" -eq 0 ]
    report $? "$name"
}

# plugin NAME FILE [FLAG…]: builds the plug-in of that name in ci/tests/cli/plugins.
plugin() {
    gcc -std=c11 -O1 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -Ikernels "ci/tests/cli/plugins/$1.c" -o "$2" -lm "${@:3}"
}

# small_trace HEADS: a trace of rows of 128 channels, which the groups of every format divide; few, for the sake of time. Of five
# blocks of 32 cells KIVI encodes one.
small_trace() {
    cat <<TRACE
{"kvbench_trace":1,"name":"small","source":"by hand","model":{"kv_cache.schema_version":1,"kv_cache.layers":1,"kv_cache.heads":$1,"kv_cache.kv_heads":1,"kv_cache.k_dim":128,"kv_cache.v_dim":128},"values":{"profile":"llama","seed":1}}
{"prefill":{"seq":0,"from":0,"n":130}}
{"step":{"pos":[130],"seq":[0]}}
{"step":{"pos":[131],"seq":[0]}}
TRACE
}

# stopped PATTERN COMMAND…: runs it until a line of its stderr matches, then asks it to stop. Sets status.
rows=$TMPDIR/rows said=$TMPDIR/said
stopped() {
    local pattern=$1
    shift
    : >"$said" # or the last run's lines would be taken for this one's
    KVB_PROGRESS=1 "$@" >"$rows" 2>"$said" &
    local pid=$!
    until grep -qE "$pattern" "$said" || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
    cp "$rows" "$rows.before"
    kill -TERM $pid
    wait $pid
    # shellcheck disable=SC2034 # for the scripts
    status=$?
}

# skip_all WHY: the whole script does not apply here.
skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}

done_testing() {
    echo "1..$tests"
    exit $((failures > 0))
}
