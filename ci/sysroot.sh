#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `ci/sysroot.sh DIR [ARCHITECTURE]` unpacks Debian's libraries for another architecture (default: arm64) into DIR, with all that they
# depend on, down to the C library. apt keeps its lists and packages there, too: this machine's packages are neither read nor changed,
# and no rights are needed. Does nothing if DIR is complete.
set -euo pipefail

DIR=${1:?usage: ci/sysroot.sh DIR [ARCHITECTURE]} ARCH=${2:-arm64}
packages=(libc6-dev libopenblas-pthread-dev libhwloc-dev libjansson-dev zlib1g-dev libpapi-dev libcmocka-dev)

wanted="$ARCH ${packages[*]}"
if [ "$(cat "$DIR/complete" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
rm -rf "$DIR"
mkdir -p "$DIR/apt/lists/partial" "$DIR/apt/archives/partial"
DIR=$(realpath "$DIR")
: >"$DIR/apt/status"
private=(-o APT::Architecture="$ARCH" -o APT::Architectures="$ARCH" -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none
    -o Dir::State="$DIR/apt" -o Dir::State::status="$DIR/apt/status" -o Dir::Cache="$DIR/apt" -o Debug::NoLocking=1 -q)
if ! { apt-get "${private[@]}" update &&
    apt-get "${private[@]}" install -y --no-install-recommends --download-only "${packages[@]}"; } >"$DIR/apt/log" 2>&1; then
    tail -n 5 "$DIR/apt/log" >&2
    echo "$0: apt-get could not bring Debian's $ARCH libraries (all it said: $DIR/apt/log)" >&2
    exit 3
fi
for package in "$DIR"/apt/archives/*.deb; do
    dpkg-deb -x "$package" "$DIR"
done
rm -rf "$DIR/apt"
echo "$wanted" >"$DIR/complete"
