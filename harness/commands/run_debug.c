/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/commands/run_debug.h"

#include <errno.h>
#include <stdio.h>

#include "harness/replay/dump.h"
#include "results/table.h"

/* Appends the command line that stops at kvb_only_stop() in gdb: argv [argc] of `kvbench run`. False: no room. */
static bool gdb_words(const kvb_usage *usage, int argc, char **argv, char *text, size_t bytes)
{
    static const char *const first[] = {"gdb",
                                        "-ex",
                                        "set follow-fork-mode child",
                                        "-ex",
                                        "set breakpoint pending on",
                                        "-ex",
                                        "break kvb_only_stop",
                                        "-ex",
                                        "run",
                                        "--args"};
    static const char *const without[] = {"--gdb", "--timeout", "--jobs", NULL};
    static const char *const last[] = {"--jobs", "1", "--timeout", "86400"};
    bool fits = true;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        fits &= kvb_shell_add(text, bytes, first[i]);
    fits &= kvb_shell_add(text, bytes, program_invocation_name) && kvb_shell_add(text, bytes, "run") &&
            kvb_command_without(usage, without, argc, argv, text, bytes);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        fits &= kvb_shell_add(text, bytes, last[i]);
    return fits;
}

int kvb_run_debug_check(kvb_run_debug *d, bool gdb, bool check, const kvb_usage *usage, int argc, char **argv)
{
    char why[512], text[4096] = "";
    if ((d->only_text || d->dump) && !check)
        return kvb_complain("run", KVB_EXIT_USAGE, "--only and --dump are of --check: what is timed is whole");
    if (gdb && !d->only_text)
        return kvb_complain("run", KVB_EXIT_USAGE, "--set gdb needs --only: the call to stop at");
    if (kvb_only_parse(d->only_text, &d->only, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--only: %s", why);
    if (d->dump && !gdb && kvb_dump_folder(d->dump, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--dump: %s", why);
    if (!gdb)
        return KVB_EXIT_OK;
    if (!gdb_words(usage, argc, argv, text, sizeof text))
        return kvb_complain("run", KVB_EXIT_USAGE, "--set gdb: the command is longer than %zu bytes", sizeof text);
    puts(text + 1);
    return KVB_EXIT_OK;
}
