#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the layering check passes on this tree and sees each kind of breach, naming file and line.
. "$(dirname "$0")/lib.sh"

ok "this tree" ci/layering.sh

# breach WHAT FILE INCLUDE: a tree of one file whose second line is that include is refused at that line.
breach() {
    local root=$TMPDIR/tree
    rm -rf "$root"
    mkdir -p "$root/$(dirname "$2")"
    printf '/* one */\n#include %s\n' "$3" >"$root/$2"
    expect_exit 1 "$1" ci/layering.sh "$root"
    holds "  names the line" "^$2:2: "
}

# allowed FILE INCLUDE
allowed() {
    local root=$TMPDIR/tree
    rm -rf "$root"
    mkdir -p "$root/$(dirname "$1")"
    printf '#include %s\n' "$2" >"$root/$1"
    ok "$1 may include $2" ci/layering.sh "$root"
}

breach "a kernel that knows a cache" kernels/a.c '"caches/cache.h"'
breach "a cache that knows a kernel's source" caches/a.c '"kernels/softmax.h"'
breach "a cache that knows a workload" caches/pools/a.c '"workloads/trace.h"'
breach "a workload that knows a cache" workloads/a.c '"caches/cache.h"'
breach "a workload that knows the live runner" workloads/a.c '"workloads/live/live.h"'
breach "the live runner and bookkeeping" workloads/live/a.c '"caches/bookkeeping/plan.h"'
breach "the live runner and a kernel" workloads/live/a.c '"kernels/kernels.h"'
breach "an oracle that knows a cache" oracle/a.c '"caches/cache.h"'
breach "an oracle that knows a kernel" oracle/a.h '"kernels/witness.h"'
breach "an oracle that knows trace internals" oracle/a.c '"workloads/trace_internal.h"'
breach "results that know the contract" results/a.c '"kernels/attend.h"'
breach "somebody who includes the harness" oracle/a.c '"harness/replay/replay.h"'
breach "an include in angle brackets" results/a.c '<kernels/attend.h>'
breach "an include with spaces" results/a.c '   "caches/cache.h"'
breach "a source that includes a source" results/a.c '"results/b.c"'
breach "an include that is not from the root" results/a.c '"b.h"'
breach "a way round through .." kernels/a.c '"../caches/cache.h"'
breach "an oracle test that knows a kernel" ci/tests/oracle/test_a.c '"kernels/kernels.h"'

mkdir -p "$TMPDIR/folder/utils"
expect_exit 1 "a folder that the house has not" ci/layering.sh "$TMPDIR/folder"
holds "  names it" '^utils/: '

allowed caches/a.c '"kernels/attend.h"'
allowed workloads/live/a.c '"caches/cache.h"'
allowed oracle/a.c '"workloads/values.h"'
allowed harness/a.c '"oracle/oracle.h"'
allowed results/a.c '<jansson.h>'
ok "lists of mutants and of coverage quote lines that the sources have" ci/lint.sh quotes
done_testing
