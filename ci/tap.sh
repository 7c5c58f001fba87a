#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs one test for prove: with a time limit, in a temporary folder of its own that goes with it, and with the
# skipped tests of cmocka ("not ok 3 # SKIP name") told as TAP has them ("ok 3 # SKIP name").
set -uo pipefail

TMPDIR=$(mktemp -d)
export TMPDIR
trap 'chmod -R u+w "$TMPDIR"; rm -rf "$TMPDIR"' EXIT

case $1 in
*.t) run=(bash "$@") ;;
*.py) run=(python3 "$@") ;;
*) read -ra run <<<"${KVB_TEST_RUNNER-}" && run+=("$@") ;; # an emulator, where programs are of another architecture
esac
export CMOCKA_MESSAGE_OUTPUT=TAP
limit=${KVB_TEST_SECONDS:-1800} # of a hang, not of a slow machine
timeout --kill-after=5 "$limit" "${run[@]}" | sed -u 's/^not ok \([0-9]*\) # SKIP/ok \1 # SKIP/'
code=${PIPESTATUS[0]}
if [ "$code" -ge 124 ]; then
    echo "# $1: ended with status $code (124: the time limit)" >&2
fi
exit "$code"
