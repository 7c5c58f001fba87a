#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the dependency installer installs what is missing, and where it cannot says so with exit 3.
# The machine is played by stand-ins for dpkg-query, apt-get and id, which come first (or alone) in PATH.
. "$(dirname "$0")/lib.sh"

fakes=$TMPDIR/fakes
mkdir "$fakes"

# fake NAME BODY: a command of that name
fake() {
    printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$fakes/$1"
    chmod +x "$fakes/$1"
}

# Every package but those in $MISSING is installed; apt-get writes down how it was called.
fake dpkg-query 'for p in "${@:3}"; do [[ " ${MISSING-} " == *" $p "* ]] || echo -n "installed:$p "; done'
fake apt-get 'echo "$*" >>"$APT_LOG"; exit "${APT_STATUS-0}"'
fake id 'echo "${FAKE_UID-0}"'
export APT_LOG=$TMPDIR/apt.log
export PATH_BEFORE=$PATH
unset KVB_DEPS_SKIP KVB_DEPS_EXTRA

deps() { # VARIABLE=VALUE… [ARGUMENT…]
    rm -f "$APT_LOG"
    env PATH="$fakes:$PATH_BEFORE" "${@:1:$#-1}" ci/deps.sh "${@: -1}"
}

ok "nothing is missing" deps MISSING= check
lacks "  says nothing" . "$out"
lacks "  on stderr either" . "$err"
ok "  and does not ask who runs it" test ! -e "$APT_LOG"
ok "nothing is missing, without root" deps MISSING= FAKE_UID=1000 check

ok "two are missing: root installs them" deps MISSING="libhwloc-dev cppcheck" check
ok "  apt-get update first" grep -qx -- 'update -q' "$APT_LOG"
ok "  then just these" grep -qx -- 'install -q -y --no-install-recommends libhwloc-dev cppcheck' "$APT_LOG"
ok "a build needs no cppcheck" deps MISSING=cppcheck build
ok "  so nothing is installed" test ! -e "$APT_LOG"

expect_exit 3 "not root" deps MISSING="gcc perl" FAKE_UID=1000 check
holds "  says which are missing" '^packages: gcc perl$' "$err"
holds "  and the command" '^run: +apt-get update && apt-get install -y --no-install-recommends gcc perl$' "$err"
ok "  and tries nothing" test ! -e "$APT_LOG"

expect_exit 3 "apt-get fails" deps MISSING=gcc APT_STATUS=100 check
holds "  is told" 'apt-get failed' "$err"

expect_exit 3 "a further package" deps MISSING=kvb-none KVB_DEPS_EXTRA=kvb-none FAKE_UID=1 build
holds "  is asked for" '^packages: kvb-none$' "$err"

# Another distribution: no dpkg-query in PATH at all.
mkdir "$TMPDIR/bare"
for tool in bash env dirname cat id; do
    ln -s "$(command -v $tool)" "$TMPDIR/bare/$tool"
done
expect_exit 3 "another distribution" env PATH="$TMPDIR/bare" ci/deps.sh build
holds "  says so" 'this is not Debian' "$err"
holds "  names every package" '^packages: gcc .*libpapi-dev$' "$err"
ok "  unless told to trust the machine" env PATH="$TMPDIR/bare" KVB_DEPS_SKIP=1 ci/deps.sh build

expect_exit 2 "an unknown word" ci/deps.sh everything
ok "the list" ci/deps.sh --list build
holds "  one a line" '^libopenblas-pthread-dev$'
done_testing
