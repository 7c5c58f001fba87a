#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the CI templates that users copy do what they say: each of their command lines is run, over a small repository
# that holds the example plug-in in two commits. What `make install` puts in place is what they run.
. "$(dirname "$0")/lib.sh"

python=/usr/bin/python3 # Debian's, whose package this is
$python -c 'import yaml' 2>"$err" || skip_all "not installed: python3-yaml"

# In place of kvbench's own repository: one that installs what is built already.
tree=$PWD
mkdir -p "$TMPDIR/kvbench/ci"
cp ci/deps.sh "$TMPDIR/kvbench/ci"
printf 'install:\n\t$(MAKE) --no-print-directory -s -C "%s" -o all install BUILD="%s" PREFIX="%s/usr" DESTDIR=\n' \
    "$tree" "$BUILD" "$TMPDIR" >"$TMPDIR/kvbench/Makefile"
git() { command git -c user.name=test -c user.email=test@localhost -c init.defaultBranch=main -c commit.gpgsign=false "$@"; }
committed() { git -C "$1" add -A && git -C "$1" commit -q -m "$2"; }
git init -q "$TMPDIR/kvbench" && committed "$TMPDIR/kvbench" "kvbench"
mkdir "$TMPDIR/bin" # nothing is installed here
printf '#!/bin/sh\necho "apt-get $*"\n' >"$TMPDIR/bin/apt-get"
chmod +x "$TMPDIR/bin/apt-get"
export HOME=$TMPDIR KVB_DEPS_SKIP=1 KVBENCH_REPOSITORY=file://$TMPDIR/kvbench KVBENCH_VERSION=main
export KVB_INCLUDE=$TMPDIR/usr/include/kvbench PATH=$TMPDIR/bin:$TMPDIR/usr/bin:$PATH MAKEFLAGS=''
export SELECT='--workload plain-decode --cache seq --pool f32 --sample-ms 20'

# The user's repository: the example plug-in, and a second commit that changes it as sed is told.
repository() { # folder, sed script
    rm -rf "$1"
    git init -q "$1"
    cp kernels/example-plugin/* "$1"
    committed "$1" "the plug-in" && git -C "$1" tag base
    sed -i "$2" "$1/online.c"
    committed "$1" "a change"
}

# job STATUS NAME SERVICE TEMPLATE
job() {
    expect_exit "$1" "$2" env -C "$TMPDIR/mine" $python "$tree/ci/tests/cli/fixtures/ci_job.py" "$3" "$tree/ci/templates/$4" base
}

for template in github:github-actions.yml gitlab:gitlab-ci.yml; do
    service=${template%%:*} file=${template#*:}
    repository "$TMPDIR/mine" 's|^#define TILE.*|& // a comment|'
    job 0 "$service: a change that changes nothing passes" "$service" "$file"
    holds "  its records are there" '"kernel": "online".*"status": "pass"' "$TMPDIR/mine/kvbench.jsonl"
    holds "  and what JUnit's readers show" '<testcase name="plain-decode/seq/f32/online/1/double"' "$TMPDIR/mine/kvbench.xml"
    holds "  and the comparison" '^## kvbench: (no regression|nothing decided)' "$TMPDIR/mine/compare.md"
    if [ $service = github ]; then
        holds "  and the summary of the job holds the table" '^\| plain-decode +\| seq +\| f32 +\| online' "$TMPDIR/mine/summary.md"
    fi
    git -C "$TMPDIR/mine" worktree remove -f .base
    for code in 4 1; do # in place of kvbench: one whose comparison ends so
        rm "$TMPDIR/mine/compare.md"
        printf '#!/bin/sh\n[ "$1" != compare ] || { echo "## kvbench: nothing decided"; exit %s; }\nexec %s/usr/bin/kvbench "$@"\n' \
            $code "$TMPDIR" >"$TMPDIR/bin/kvbench"
        chmod +x "$TMPDIR/bin/kvbench"
        job $((code == 1)) "$service: a comparison that ends with $code" "$service" "$file"
        [ $service$code != github4 ] || holds "  warns" '^::warning::## kvbench: nothing decided'
        git -C "$TMPDIR/mine" worktree remove -f .base
    done
    rm "$TMPDIR/bin/kvbench"
    git -C "$TMPDIR/mine" tag -f base "$(git -C "$TMPDIR/mine" commit-tree -m nothing "$(git -C "$TMPDIR/mine" mktree </dev/null)")" >"$out"
    rm "$TMPDIR/mine/compare.md"
    job 0 "$service: the first plug-in of a repository passes" "$service" "$file"
    holds "  with nothing to compare it with" '^The base builds no plug-in' "$TMPDIR/mine/compare.md"
    repository "$TMPDIR/mine" 's|p->scale|1.01f * &|'
    job 1 "$service: a kernel that became wrong fails" "$service" "$file"
    holds "  as the records say" '"kernel": "online".*"status": "fail"' "$TMPDIR/mine/kvbench.jsonl"
    holds "  and the JUnit file" '<failure message="rho' "$TMPDIR/mine/kvbench.xml"
    holds "  and the comparison" 'plain-decode/seq/f32/online.*BROKEN|BROKEN.*plain-decode' "$TMPDIR/mine/compare.md"
done

mapfile -t commands < <(kvbench --help | sed -n '/^usage/,/^first/s/^  \([a-z]\+\) .*/\1/p')
[ ${#commands[@]} -ge 5 ]
report $? "what is installed lists its commands"
for command in "${commands[@]}"; do
    ok "  kvbench $command --help" kvbench "$command" --help
done
done_testing
