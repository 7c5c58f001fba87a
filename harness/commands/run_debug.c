/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/commands/run_debug.h"

#include <stdio.h>

#include "harness/replay/dump.h"

int kvb_run_debug_check(kvb_run_debug *d, bool check, const kvb_usage *usage, int argc, char **argv)
{
    char why[512], text[4096] = "";
    if ((d->only_text || d->dump) && !check)
        return kvb_complain("run", KVB_EXIT_USAGE, "--only and --dump are of --check: what is timed is whole");
    if (d->gdb && !d->only_text)
        return kvb_complain("run", KVB_EXIT_USAGE, "--gdb needs --only: the call to stop at");
    if (kvb_only_parse(d->only_text, &d->only, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--only: %s", why);
    if (d->dump && !d->gdb && kvb_dump_folder(d->dump, why, sizeof why))
        return kvb_complain("run", KVB_EXIT_USAGE, "--dump: %s", why);
    if (!d->gdb)
        return KVB_EXIT_OK;
    if (!kvb_only_gdb(usage, argc, argv, text, sizeof text))
        return kvb_complain("run", KVB_EXIT_USAGE, "--gdb: the command is longer than %zu bytes", sizeof text);
    puts(text + 1);
    return KVB_EXIT_OK;
}
