#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs engines of others, built, for kernels that call them: `ci/engines.sh FOLDER`.
#
#   FOLDER/ggml   libllama, libggml and its CPU backends, of the npm package that node-llama-cpp brings for Linux
#
# Pinned by version and checksum; what is there already is left alone. Exit 3, with one line, where there is no npm, no network,
# or no build for this machine.
set -euo pipefail

package=@node-llama-cpp/linux-x64@3.22.1
sha512=e6e0820cda9608d7da026f1a47f533c5ba381c1a4a80d17dd640873dea4a86032057638099ab6879f6ce94c8a1b2a0a21f639ddf913f7941d00856df44126e3a
folder=${1:?usage: ci/engines.sh FOLDER}

cannot() {
    echo "ci/engines.sh: $package is not installed: $1" >&2
    exit 3
}

if [ "$(cat "$folder/ggml/package" 2>/dev/null)" = "$package" ]; then
    exit 0
fi
[ "$(uname -sm)" = "Linux x86_64" ] || cannot "it is for Linux on x86-64"
command -v npm >/dev/null || cannot "there is no npm (Debian's package npm has it)"
mkdir -p "$folder"
new=$(mktemp -d "$folder/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
if ! archive=$(cd "$new" && npm pack "$package" --silent --fetch-retries=1 --fetch-timeout=60000 2>npm-said); then
    cannot "npm pack: $(grep -m1 . "$new/npm-said" || echo "the registry cannot be reached")"
fi
echo "$sha512  $new/$archive" | sha512sum --check --status || cannot "$archive has another checksum than is expected"
tar -xzf "$new/$archive" -C "$new"
mv "$new/package/bins/linux-x64" "$new/ggml"
mv "$new/package/LICENSE" "$new/ggml/LICENSE"
echo "$package" >"$new/ggml/package"
rm -rf "$folder/ggml"
mv "$new/ggml" "$folder/ggml"
