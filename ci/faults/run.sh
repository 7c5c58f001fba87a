#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Planted faults: `ci/faults/run.sh [BUILD [NAME…]]` takes each ci/faults/NAME.patch, breaks a copy of the tree with
# it, builds the one test that it names, and demands that this test fails. BUILD keeps the copy's objects between
# runs, so that each fault costs one file and one link.
#
# A patch is a unified diff from the project's root (a/…, b/…) below two lines:
#
#   # shows: what goes wrong, in one line
#   # test: caches/test_plan          a test program, or a script: cli/layering.t
#
# The faults are dealt out to one worker a core, each with a copy of its own, built with -O2.
# TAP on stdout. A patch that does not apply, a copy that does not build, a named test that is not there or fails
# without the fault: each is an error ("not ok"), never a catch.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath -m "${1:-$root/build/faults}")
shift $(($# > 0))
export MAKEFLAGS='' KVB_DEPS_SKIP=1

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for patch in "$root"/ci/faults/*.patch; do
        [ -e "$patch" ] && names+=("$(basename "$patch" .patch)")
    done
fi

# Copy what changed, remove what is gone; a file that is the same keeps its time, and its object.
tree_update() {
    mkdir -p "$tree"
    (cd "$root" && ci/files.sh) >"$place/files" || return
    (cd "$tree" && find . -type f -printf '%P\n' | sort) | comm -23 - "$place/files" | (cd "$tree" && xargs -r -d '\n' rm -f)
    while IFS= read -r file; do
        if ! cmp -s "$root/$file" "$tree/$file"; then
            mkdir -p "$tree/$(dirname "$file")" && cp "$root/$file" "$tree/$file" || return
        fi
    done <"$place/files"
}

# The test that a patch names: built, then run. 0 passed, 1 failed, 2 could not be built or is not there.
test_build() {
    case $1 in
    cli/*) (cd "$tree" && [ -e "ci/tests/$1" ] && make OPT=-O2 BUILD="$objects" programs) ;;
    *) (cd "$tree" && make OPT=-O2 BUILD="$objects" "$objects/tests/$1") ;;
    esac >"$log" 2>&1 || return 2
}

test_run() {
    local path=$objects/tests/$1
    [[ $1 == cli/* ]] && path=ci/tests/$1
    (cd "$tree" && KVB_TEST_SECONDS=60 ci/test.sh "$objects" "$path") >"$log" 2>&1
}

header() { # patch, key
    sed -n "1,/^---/s/^# $2: *//p" "$1" | head -n 1
}

# One fault. Sets why when it was not caught.
fault_try() { # patch
    local test
    : >"$log"
    test=$(header "$1" test)
    why=
    if [ -z "$test" ] || [ -z "$(header "$1" shows)" ]; then
        why='its first lines are not "# shows: …" and "# test: …"'
    elif [ -z "${sound[$test]-}" ]; then
        if ! test_build "$test"; then
            why="$test does not build without the fault"
        elif ! test_run "$test"; then
            why="$test fails without the fault"
        else
            sound[$test]=yes
        fi
    fi
    [ -z "$why" ] || return
    if ! (cd "$tree" && git apply --whitespace=nowarn "$1") >"$log" 2>&1; then
        why="the patch does not apply"
        return
    fi
    if ! test_build "$test"; then
        why="the faulty source does not build"
    elif test_run "$test"; then
        why="$test does not see it"
    fi
    # Undone by the patch itself: to compare the whole tree anew would take longer than most tests.
    (cd "$tree" && git apply --whitespace=nowarn --reverse "$1") >>"$log" 2>&1 || why="the tree cannot be restored"
}

# Every n-th fault from the k-th on; the verdicts go to $place/N, N being the fault's number.
worker() { # k, n
    declare -A sound=()
    place=$build/$1 tree=$build/$1/tree objects=$build/$1/objects log=$build/$1/log
    mkdir -p "$place/verdicts"
    rm -f "$place/verdicts"/*
    if ! tree_update; then
        echo "the tree cannot be copied to $tree" >&2
        return 1
    fi
    # Some tests look for ../shared, and skip without it.
    if [ -d "$root/../shared" ]; then
        ln -sfn "$root/../shared" "$place/shared"
    fi
    for ((i = $1; i < ${#names[@]}; i += $2)); do
        patch=$root/ci/faults/${names[i]}.patch
        if [ ! -e "$patch" ]; then
            why="there is no such patch"
        else
            fault_try "$patch"
        fi
        if [ -z "$why" ]; then
            echo "ok $((i + 1)) - ${names[i]}: $(header "$patch" shows)"
        else
            echo "not ok $((i + 1)) - ${names[i]}: $why"
            sed 's/^/# /' "$log" | tail -n 20
        fi >"$place/verdicts/$i"
    done
}

mkdir -p "$build"
# The copies must not be taken for a part of the repository around them: git apply would then skip their files.
export GIT_CEILING_DIRECTORIES=$build
workers=$(nproc)
for ((k = 0; k < workers; k++)); do
    worker $k "$workers" &
done
wait
failed=0
echo "1..${#names[@]}"
for i in "${!names[@]}"; do
    verdict=$build/$((i % workers))/verdicts/$i
    if [ -s "$verdict" ]; then
        cat "$verdict"
    else
        echo "not ok $((i + 1)) - ${names[i]}: no verdict"
    fi
    if ! grep -q '^ok' "$verdict" 2>/dev/null; then
        failed=$((failed + 1))
    fi
done
echo "# faults: ${#names[@]} planted, $((${#names[@]} - failed)) caught"
exit $((failed > 0))
