#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the CI templates that users copy do what they say: each of their command lines is run, over a small repository
# that holds the example plug-in in two commits; and they are what GitHub and GitLab read, and pin what they build.
# What `make install` puts in place is what they run.
. "$(dirname "$0")/lib.sh"

[ "$sanitized" ] && skip_all "Valgrind runs no program that has a sanitizer in it"
python3 -c 'import yaml' 2>"$err" || skip_all "not installed: python3-yaml"
command -v valgrind >/dev/null || skip_all "not installed: valgrind"
tree=$PWD

# planted FILE NAME SED-SCRIPT MESSAGE: a mistake that is to be found, for one call that looks at all of them
schema() { python3 ci/tests/cli/fixtures/ci_schema.py "$@"; }
mkdir "$TMPDIR/planted"
names=() messages=()
planted() {
    sed "$3" "ci/templates/$1" >"$TMPDIR/planted/${1%.yml}-${#names[@]}"
    messages+=("/${1%.yml}-${#names[@]}: .*$4")
    names+=("${1%%-*}: $2 is refused by name")
}
if python3 -c 'import jsonschema' 2>"$err"; then
    ok "the templates are what their services read" schema ci/templates/github-actions.yml ci/templates/gitlab-ci.yml
    for file in github-actions.yml gitlab-ci.yml; do
        planted $file "a branch" 's/^\( *KVBENCH_VERSION:\).*/\1 main/' "KVBENCH_VERSION: 'main' does not match"
    done
    planted github-actions.yml "a misspelt key" 's/timeout-minutes/timeout-minuets/' "counts: .*'timeout-minuets'"
    planted github-actions.yml "a step with uses and run" 's/^\( *\)uses: actions.cache.*/&\n\1run: make/' 'counts.steps.2: .*not valid under any'
    planted github-actions.yml "a step with neither" '/^      - &install/,/^      - /{/run:/,/install$/d}' 'counts.steps.3: .* is not valid under any'
    planted github-actions.yml "a job that runs nowhere" '/runs-on: ubuntu/d' "counts: 'runs-on' is a required property"
    planted github-actions.yml "a job that needs none of these" 's/^  duel:/&\n    needs: cuonts/' 'duel: needs cuonts: there is no such job'
    planted gitlab-ci.yml "a misspelt key" 's/before_script/befor_script/' "kvbench: .*'befor_script'"
    planted gitlab-ci.yml "a report that GitLab does not know" 's/junit:/junits:/' "kvbench.artifacts.reports: 'junits'"
    planted gitlab-ci.yml "a rule of another shape" 's/when: manual/whenn: manual/' "kvbench-duel.rules.0: .*'whenn'"
    planted gitlab-ci.yml "a job that extends none" 's/extends: .kvbench/extends: .kvbanch/' 'kvbench: extends .kvbanch: there is no such job'
    expect_exit 1 "mistakes planted in them are found" schema "$TMPDIR"/planted/*
    for i in "${!names[@]}"; do
        holds "  ${names[i]}" "${messages[i]}"
    done
else
    report 0 "the templates by their schemas # SKIP not installed: python3-jsonschema"
fi

# pin_exists FILE: its KVBENCH_VERSION is a tag of this repository, or a commit that HEAD is built on
pin_exists() {
    local pin
    pin=$(sed -n 's/^ *KVBENCH_VERSION: *\([^ ]*\).*/\1/p' "$1")
    command git rev-parse -q --verify "refs/tags/$pin^{commit}" || command git merge-base --is-ancestor "$pin" HEAD
}
if [ "$(command git rev-parse --is-shallow-repository 2>"$err")" = false ]; then
    for file in github-actions.yml gitlab-ci.yml; do
        ok "$file: what it pins exists" pin_exists ci/templates/$file
        sed 's/^\( *KVBENCH_VERSION:\).*/\1 efc14118b1ce99086a7a385860f541038b71ef23/' ci/templates/$file >"$TMPDIR/planted.yml"
        expect_exit 128 "  a commit that nothing holds is refused" pin_exists "$TMPDIR/planted.yml"
    done
else
    report 0 "what the templates pin # SKIP not a whole git repository"
fi

# In place of kvbench's own repository: one that installs what is built already, and later breaks.
mkdir -p "$TMPDIR/kvbench/ci"
cp ci/deps.sh "$TMPDIR/kvbench/ci"
printf 'install:\n\t[ -x "%s/usr/bin/kvbench" ] || $(MAKE) --no-print-directory -s -C "%s" -o all install BUILD="%s" PREFIX="%s/usr" DESTDIR=\n' \
    "$TMPDIR" "$tree" "$BUILD" "$TMPDIR" >"$TMPDIR/kvbench/Makefile"
git() { command git -c user.name=test -c user.email=test@localhost -c init.defaultBranch=main -c commit.gpgsign=false "$@"; }
committed() { git -C "$1" add -A && git -C "$1" commit -q -m "$2"; }
git init -q "$TMPDIR/kvbench" && committed "$TMPDIR/kvbench" "kvbench" && git -C "$TMPDIR/kvbench" tag v0.0.1
pins=("$(git -C "$TMPDIR/kvbench" rev-parse HEAD)" v0.0.1)
printf 'install:\n\t@echo "main has moved"; exit 1\n' >"$TMPDIR/kvbench/Makefile"
committed "$TMPDIR/kvbench" "not what is pinned"
mkdir "$TMPDIR/bin" # nothing is installed here
printf '#!/bin/sh\necho "apt-get $*"\n' >"$TMPDIR/bin/apt-get"
chmod +x "$TMPDIR/bin/apt-get"
export HOME=$TMPDIR KVB_DEPS_SKIP=1 KVBENCH_REPOSITORY=file://$TMPDIR/kvbench
export KVB_INCLUDE=$TMPDIR/usr/include/kvbench PATH=$TMPDIR/bin:$TMPDIR/usr/bin:$PATH MAKEFLAGS=''
export SELECT='--workload plain-decode --cache seq --pool f32 --set sample-ms=20'
export COUNT_SELECT="--workload $TMPDIR/small.jsonl --cache seq --pool f32 --set oracle-pairs=100"
cat >"$TMPDIR/small.jsonl" <<'TRACE'
{"kvbench_trace":1,"name":"small","source":"by hand","model":{"kv_cache.schema_version":1,"kv_cache.layers":1,"kv_cache.heads":4,"kv_cache.kv_heads":2,"kv_cache.k_dim":64,"kv_cache.v_dim":64},"values":{"profile":"llama","seed":1}}
{"prefill":{"seq":0,"from":0,"n":20}}
TRACE
for pos in {20..39}; do echo "{\"step\":{\"pos\":[$pos],\"seq\":[0]}}"; done >>"$TMPDIR/small.jsonl"

# The user's repository: the example plug-in, and a second commit that changes it as sed is told.
repository() { # folder, sed script
    rm -rf "$1"
    git init -q "$1"
    cp kernels/example-plugin/* "$1"
    committed "$1" "the plug-in" && git -C "$1" tag base
    sed -i "$2" "$1/online.c"
    committed "$1" "a change"
}

# job STATUS NAME JOB [BASE]: of the template at hand, in the repository at hand
job() {
    [ ! -e "$TMPDIR/mine/.base" ] || git -C "$TMPDIR/mine" worktree remove -f .base
    rm -f "$TMPDIR/mine/compare.md"
    expect_exit "$1" "$service: $2" env -C "$TMPDIR/mine" KVBENCH_VERSION="$pin" \
        python3 "$tree/ci/tests/cli/fixtures/ci_job.py" "$service" "$tree/ci/templates/$file" "$3" "${4-base}"
}

twice='1i static unsigned turn;
s/^ *row_attend(x,/for (unsigned n = turn++ % 50 ? 1 : 2; n--;) &/' # every 50th of these calls is made twice
for template in github:github-actions.yml:counts:duel gitlab:gitlab-ci.yml:kvbench:kvbench-duel; do
    IFS=: read -r service file counts duel <<<"$template"
    pin=${pins[0]}
    repository "$TMPDIR/mine" 's|^#define TILE.*|& // a comment|'
    job 0 "a change that changes nothing passes" $counts
    holds "  and what counts was installed" '^apt-get install .* valgrind'
    holds "  its records are there" '"kernel": "online".*"status": "pass"' "$TMPDIR/mine/kvbench.jsonl"
    holds "  and what JUnit's readers show" '<testcase name="plain-decode/seq/f32/online/1/double"' "$TMPDIR/mine/kvbench.xml"
    holds "  and the comparison, which decides" '^## kvbench: no regression' "$TMPDIR/mine/compare.md"
    holds "  by counts" '^1 combinations?: 1 SAME' "$TMPDIR/mine/compare.md"
    if [ $service = github ]; then
        holds "  and the summary of the job holds the table" '^\| plain-decode +\| seq +\| f32 +\| online' "$TMPDIR/mine/summary.md"
    fi
    ok "  it is what was pinned" test "$(git -C "$TMPDIR/mine/.kvbench" rev-parse HEAD)" = "${pins[0]}"
    rm -rf "$TMPDIR/mine/.kvbench"
    pin=${pins[1]}
    job 0 "a duel with what did not change passes, with a tag as well" $duel
    holds "  and the comparison is there" '^## kvbench: (no regression|nothing decided)' "$TMPDIR/mine/compare.md"
    for code in 4 1; do # in place of kvbench: one whose comparison ends so
        printf '#!/bin/sh\n[ "$1" != compare ] || { echo "## kvbench: nothing decided"; exit %s; }\nexec %s/usr/bin/kvbench "$@"\n' \
            $code "$TMPDIR" >"$TMPDIR/bin/kvbench"
        chmod +x "$TMPDIR/bin/kvbench"
        job $((code == 1)) "a duel that ends with $code" $duel
        [ $service$code != github4 ] || holds "  warns" '^::warning::## kvbench: nothing decided'
    done
    rm "$TMPDIR/bin/kvbench"
    git -C "$TMPDIR/mine" tag -f base "$(git -C "$TMPDIR/mine" commit-tree -m nothing "$(git -C "$TMPDIR/mine" mktree </dev/null)")" >"$out"
    for which in $counts $duel; do
        job 0 "the first plug-in of a repository passes ($which)" $which
        holds "  with nothing to compare it with" '^The base builds no plug-in: nothing to compare with' "$TMPDIR/mine/compare.md"
    done
    job 0 "the first push of a branch passes, too" $counts 0000000000000000000000000000000000000000
    holds "  with nothing to compare it with" '^The base builds no plug-in' "$TMPDIR/mine/compare.md"
    repository "$TMPDIR/mine" "$twice"
    job 1 "a kernel with 2 % more work fails" $counts
    holds "  which is right" '"kernel": "online".*"status": "pass"' "$TMPDIR/mine/kvbench.jsonl"
    holds "  and is named" 'MORE +\| small +\| seq +\| f32 +\| online +\| +1 \| instructions' "$TMPDIR/mine/compare.md"
    repository "$TMPDIR/mine" 's|p->scale|1.01f * &|'
    job 1 "a kernel that became wrong fails" $counts
    ok "  and is not counted" test ! -e "$TMPDIR/mine/compare.md"
    holds "  as the records say" '"kernel": "online".*"status": "fail"' "$TMPDIR/mine/kvbench.jsonl"
    holds "  and the JUnit file" '<failure message="rho' "$TMPDIR/mine/kvbench.xml"
done

mapfile -t commands < <(kvbench --help | sed -n '/^usage/,/^first/s/^  \([a-z]\+\) .*/\1/p')
[ ${#commands[@]} -ge 5 ]
report $? "what is installed lists its commands"
for command in "${commands[@]}"; do
    ok "  kvbench $command --help" kvbench "$command" --help
    [ "$(wc -L <"$out")" -le 100 ]
    report $? "    in 100 columns"
done
done_testing
