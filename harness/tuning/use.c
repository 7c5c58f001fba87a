/* SPDX-License-Identifier: Apache-2.0 */
/* Which settings a command's kernels use. */
#include "harness/tuning/tuning.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/machine/team.h"
#include "harness/progress.h"

#define SECONDS 1.2 /* of measuring without a file; with the memory for it less than two */

static kvb_tuning in_use;

static void take(kvb_manifest *machine, const char *from)
{
    kvb_prefetch_set(&in_use.prefetch);
    snprintf(machine->tuning, sizeof machine->tuning, "%s", from);
}

/* Measures the most important choices, and keeps them where that can be written. */
static void measure_and_keep(const char *path, kvb_manifest *machine)
{
    char why[KVB_TUNING_PATH + 128];
    const kvb_tuning_options few = {.seconds = SECONDS, .few = true, .threads = kvb_cores()};
    kvb_progress_now("measuring how memory is best read");
    if (kvb_tuning_measure(&few, &in_use))
        return;
    const bool kept = path && !kvb_tuning_write(path, machine, &in_use, why, sizeof why);
    take(machine, kept ? path : "measured, not kept");
}

int kvb_tuning_use(const char *command, const kvb_tuning_choice *choice, kvb_manifest *machine)
{
    char why[KVB_TUNING_PATH + 256], usual[KVB_TUNING_PATH];
    const char *said = getenv("KVB_TUNING"), *path = choice->path;
    *machine->tuning = '\0';
    if (choice->path && choice->none)
        return kvb_complain(command, KVB_EXIT_USAGE, "--tuning or --no-tuning, not both");
    if (!path && said && *said && strcmp(said, "none"))
        path = said;
    if (choice->none || (!choice->path && said && !strcmp(said, "none")))
        return KVB_EXIT_OK;
    if (path) {
        if (kvb_tuning_read(path, machine, &in_use, why, sizeof why))
            return kvb_complain(command, KVB_EXIT_USAGE, "%s: %s", choice->path ? "--tuning" : "KVB_TUNING", why);
        take(machine, path);
        return KVB_EXIT_OK;
    }
    const bool place = !kvb_tuning_path(machine, usual);
    const int error = place ? kvb_tuning_read(usual, machine, &in_use, why, sizeof why) : -ENOENT;
    if (!error)
        take(machine, usual);
    else if (error != -ENOENT)
        kvb_complain(command, KVB_EXIT_OK, "note: not used: %s", why);
    else if (choice->measures)
        measure_and_keep(place ? usual : NULL, machine);
    return KVB_EXIT_OK;
}
