/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `kvbench run` that help to find a fault: --only, --dump, and the knob gdb. */
#ifndef KVB_RUN_DEBUG_H
#define KVB_RUN_DEBUG_H

#include "harness/command_line.h"
#include "harness/replay/only.h"

typedef struct kvb_run_debug {
    const char *only_text, *dump;
    kvb_only only;
} kvb_run_debug;

/* Checks what was typed, makes the folder of --dump, and prints what the knob gdb asks for: then nothing is to be run.
 * check: is --check said? An exit code. */
int kvb_run_debug_check(kvb_run_debug *debug, bool gdb, bool check, const kvb_usage *usage, int argc, char **argv);

#endif
