#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `ci/symbols.sh BUILD` checks that every global symbol of the archives begins with kvb_; that a plug-in exports only kvb_plugin; that
# kernels, caches and the oracle do not read the environment, which no record would show; and that files in a folder of harness call
# each other in one direction. Names that begin with two underscores belong to the compiler and its sanitizers.
set -uo pipefail
build=${1:?usage: ci/symbols.sh BUILD}
failed=0

archives=("$build"/lib*.a)
if [ ! -e "${archives[0]}" ]; then
    echo "$build: holds no archives"
    exit 1
fi
# The heap watch replaces functions of the C library: only its file may define these names.
interposed='malloc|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|free|pthread_create|thrd_create'
strays=$(nm -A -g --defined-only "${archives[@]}" 2>/dev/null |
    awk -v interposed="^($interposed)\$" '$NF !~ /^(kvb_|__)/ && NF >= 3 &&
        !($0 ~ /libharness\.a:heap_watch\.o:/ && $NF ~ interposed)')
if [ -n "$strays" ]; then
    echo "symbols without kvb_:"
    echo "$strays"
    failed=1
fi
readers=$(nm -A -u "$build"/lib{kernels,caches,oracle}.a 2>/dev/null | grep -w getenv)
if [ -n "$readers" ]; then
    echo "reads the environment:" "$readers"
    failed=1
fi
for plugin in "$build"/*.so "$build"/*/*.so; do
    [ -e "$plugin" ] || continue
    exports=$(nm -D --defined-only "$plugin" | awk '$NF !~ /^__/ { print $NF }')
    if [ "$exports" != kvb_plugin ]; then
        echo "$plugin: exports more than kvb_plugin, or less:" "$exports"
        failed=1
    fi
done
# Calls between the files of a folder of harness must form no circle.
for folder in "$build"/harness/*/; do
    objects=()
    for object in "$folder"*.o; do
        source=${object#"$build"/}
        [ ! -e "${source%.o}.c" ] || objects+=("$object")
    done
    [ ${#objects[@]} -gt 1 ] || continue
    circle=$(nm -A -g "${objects[@]}" 2>/dev/null | awk '
        { file = $1; sub(/:.*/, "", file); sub(/.*\//, "", file) }
        $(NF - 1) == "U" { uses[file, $NF]; next }
        { of[$NF] = file }
        END { for (key in uses) { split(key, at, SUBSEP); if (at[2] in of && of[at[2]] != at[1]) print at[1], of[at[2]] } }' |
        sort -u | tsort 2>&1 >/dev/null | sed 's/^tsort: //' | tr '\n' ' ')
    if [ -n "$circle" ]; then
        echo "${folder#"$build"/}: files that call each other in a circle: $circle"
        failed=1
    fi
done
exit $failed
