#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one test for prove, with a time limit and its own temporary folder, which is removed after it. cmocka's skipped
# tests ("not ok 3 # SKIP name") are printed as in TAP ("ok 3 # SKIP name").
set -uo pipefail

TMPDIR=$(mktemp -d)
export TMPDIR
trap 'chmod -R u+w "$TMPDIR"; rm -rf "$TMPDIR"' EXIT

case $1 in
*.t) run=(bash "$@") ;;
*.py) run=(python3 "$@") ;;
*) read -ra run <<<"${KVB_TEST_RUNNER-}" && run+=("$@") ;; # an emulator, for programs of another architecture
esac
export CMOCKA_MESSAGE_OUTPUT=TAP
limit=${KVB_TEST_SECONDS:-1800} # ends a hang; slow machines need less
timeout --kill-after=5 "$limit" "${run[@]}" | sed -u 's/^not ok \([0-9]*\) # SKIP/ok \1 # SKIP/'
code=${PIPESTATUS[0]}
if [ "$code" -ge 124 ]; then
    echo "# $1: ended with status $code (124: the time limit)" >&2
fi
exit "$code"
