#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Planted faults: `ci/faults/run.sh [--quick] [BUILD [NAME…]]` takes each ci/faults/NAME.patch, breaks a copy of the tree with
# it, builds the one test that it names, and demands that this test fails.
#
# A patch is a unified diff from the project's root (a/…, b/…) below two lines:
#
#   # shows: what goes wrong, in one line
#   # test: caches/test_plan          a test program, or a script: cli/layering.t
#   # opt: -O2                        optional: how the faulty source is compiled; -O1 unless told
#   # slow: a browser                 optional: what takes its time; --quick leaves it out
#   # needs: avx512_fp16              optional: a flag of /proc/cpuinfo; a CPU without it skips the fault, and says so
#
# BUILD is the sound build; what the tests need of it is made first. One worker a core copies its objects and the tree
# to BUILD/faults. So a fault costs the files that it touches, compiled anew, a link, and a test that stops where it
# first fails; then whatever is newer than the copy is taken from the sound tree and build again.
# TAP on stdout. A patch that does not apply, a copy that does not build, a named test that is not there or fails
# without the fault: each is an error ("not ok"), never a catch.
set -uo pipefail
quick=
if [ "${1-}" = --quick ]; then
    quick=yes
    shift
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath -m "${1:-$root/build}")
shift $(($# > 0))
export MAKEFLAGS='' KVB_DEPS_SKIP=1 KVB_TEST_SECONDS=60 KVB_TEST_JOBS=1
ulimit -c 0

header() { # patch, key
    sed -n "1,/^---/s/^# $2: *//p" "$1" 2>/dev/null | head -n 1
}

# What make is asked for, to have a test: the program, or for a script what scripts run.
target() { # build, test
    case $2 in
    cli/*) echo programs ;;
    *) echo "$1/tests/$2" ;;
    esac
}

# A test in the copy, built and run: 0 it passes, 1 it fails, 2 it does not build.
test_try() { # test, optimization
    local path=$objects/tests/$1
    [[ $1 == cli/* ]] && path=ci/tests/$1
    make OPT="$2" BUILD="$objects" FACTS=keep "$(target "$objects" "$1")" || return 2
    CMOCKA_TEST_ABORT=1 ci/test.sh "$objects" "$path" || return 1
}

# All times are kept, so that make finds nothing stale. Test programs are left out: each is linked anew.
tree_copy() {
    rm -rf "$place"
    mkdir -p "$tree" "$objects" || return
    (cd "$root" && ci/files.sh | xargs -d '\n' cp -p --parents -t "$tree") || return
    (cd "$build" && find . \( -path ./tests -o -path ./faults -o -path ./asan -o -path ./tsan \) -prune -o \
        -type f -print0 | xargs -0 cp -p --parents -t "$objects") || return
    # Some tests look for ../shared, and skip without it.
    if [ -d "$root/../shared" ]; then
        ln -sfn "$root/../shared" "$place/shared"
    fi
    touch "$place/stamp"
}

# What is newer than the copy comes from the sound folder again, or goes if it is not there.
restore() { # copied folder, sound folder
    (cd "$1" && find . -type f -newer "$place/stamp") | while IFS= read -r file; do
        cp -p "$2/$file" "$1/$file" 2>/dev/null || rm "$1/$file"
    done
}

# One fault, in the copy. Sets why when it was not caught.
fault_try() { # patch, test
    local opt
    opt=$(header "$1" opt)
    why="the patch does not apply"
    git apply --whitespace=nowarn "$1" || return
    test_try "$2" "${opt:--O1}"
    case $? in
    0) why="$2 does not see it" ;;
    1) why= ;;
    *) why="the faulty source does not build" ;;
    esac
    restore "$tree" "$root"
    restore "$objects" "$build"
}

# The tests that no other worker has claimed, each with all faults that name it. Verdicts go to $verdicts/NAME.
worker() { # k
    local place=$build/faults/$1 tree=$build/faults/$1/tree objects=$build/faults/$1/objects
    local log=$build/faults/$1.log test name patch sound why
    tree_copy && cd "$tree" || return
    for test in "${tests[@]}"; do
        mkdir "$claims/${test//\//.}" 2>/dev/null || continue
        test_try "$test" -O1 >"$log" 2>&1 && sound=yes || sound=
        for name in "${names[@]}"; do
            [ "${test_of[$name]-}" = "$test" ] || continue
            patch=$root/ci/faults/$name.patch
            why="$test is not there, does not build, or fails without the fault"
            [ -z "$sound" ] || fault_try "$patch" "$test" >"$log" 2>&1
            {
                echo "${why:-caught}"
                [ -z "$why" ] || tail -n 20 "$log" | sed 's/^/# /'
            } >"$verdicts/$name"
        done
    done
}

names=("$@")
left=0
if [ ${#names[@]} -eq 0 ]; then
    for patch in "$root"/ci/faults/*.patch; do
        if [ -n "$quick" ] && [ -n "$(header "$patch" slow)" ]; then
            left=$((left + 1))
        elif [ -e "$patch" ]; then
            names+=("$(basename "$patch" .patch)")
        fi
    done
fi
declare -A test_of=() lacks=()
for name in "${names[@]}"; do
    needs=$(header "$root/ci/faults/$name.patch" needs)
    if [ -n "$needs" ] && ! grep -qw "$needs" /proc/cpuinfo; then
        lacks[$name]=$needs
    else
        test_of[$name]=$(header "$root/ci/faults/$name.patch" test)
    fi
done
# Backwards: the faults of whole/ take the longest, and should not be what one worker ends with.
mapfile -t tests < <(printf '%s\n' "${test_of[@]}" | sort -ru | grep .)

claims=$build/faults/claims verdicts=$build/faults/verdicts
rm -rf "$claims" "$verdicts"
mkdir -p "$claims" "$verdicts"
# The copies must not be taken for a part of the repository around them: git apply would then skip their files.
export GIT_CEILING_DIRECTORIES=$build
mapfile -t targets < <(for test in "${tests[@]}"; do target "$build" "$test"; done)
(cd "$root" && make -k -j"$(nproc)" BUILD="$build" "${targets[@]}") >"$build/faults/log" 2>&1
for ((k = 0; k < $(nproc); k++)); do
    worker $k &
done
wait

echo "1..${#names[@]}"
number=0
failed=0
for name in "${names[@]}"; do
    number=$((number + 1))
    patch=$root/ci/faults/$name.patch
    verdict=
    if [ -n "${lacks[$name]-}" ]; then
        echo "ok $number - $name # SKIP the CPU has no ${lacks[$name]}"
        continue
    elif [ ! -e "$patch" ]; then
        verdict="there is no such patch"
    elif [ -z "${test_of[$name]}" ] || [ -z "$(header "$patch" shows)" ]; then
        verdict='its first lines are not "# shows: …" and "# test: …"'
    else
        verdict=$(cat "$verdicts/$name" || tail -n 20 "$build/faults/log" | sed 's/^/# /')
    fi
    if [ "$verdict" = caught ]; then
        echo "ok $number - $name: $(header "$patch" shows)"
    else
        echo "not ok $number - $name: $verdict"
        failed=$((failed + 1))
    fi
done
planted=$((${#names[@]} - ${#lacks[@]}))
echo "# faults: $planted planted, $((planted - failed)) caught${quick:+; $left slow ones left out}${lacks[*]:+; ${#lacks[@]} that need another CPU}"
exit $((failed > 0))
