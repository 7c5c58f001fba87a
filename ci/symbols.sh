#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `ci/symbols.sh BUILD`: every global symbol of the archives carries kvb_, a plug-in exports only kvb_plugin, and kernels, caches and
# the oracle read nothing from the environment: a record would not say it.
# Names that begin with two underscores belong to the compiler and its sanitizers.
set -uo pipefail
build=${1:?usage: ci/symbols.sh BUILD}
failed=0

archives=("$build"/lib*.a)
if [ ! -e "${archives[0]}" ]; then
    echo "$build: holds no archives"
    exit 1
fi
# The heap watch stands in for the C library's functions: those names, in that file, are what it is for.
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
exit $failed
