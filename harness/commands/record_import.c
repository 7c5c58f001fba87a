/* SPDX-License-Identifier: Apache-2.0 */
/* `kvbench record --import`: read the requests, write the workload, read it back, show its row. */
#include "harness/commands/record_import.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/command_line.h"
#include "harness/progress.h"

enum { DEFAULT_REQUESTS = 100, DEFAULT_SHRINK = 16, DEFAULT_SEQUENCES = 8, MAX_NAME = 100 };

bool kvb_record_import_asked(const kvb_record_import *import)
{
    return import->from || import->name || import->requests || import->shrink || import->sequences;
}

/* A name must do as a file's name and as a word of the command line. */
static bool name_good(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return *name != '.' && *name != '-' && strlen(name) <= MAX_NAME && name[strspn(name, letters)] == 0;
}

static int row_print(const char *name, const char *path, size_t requests, const kvb_import_outcome *outcome,
                     const kvb_trace_needs *needs, kvb_table_format format)
{
    static const char *const headings[] = {"workload", ">requests", ">events", ">tokens", ">prompt",
                                           ">shared",  ">cells",    "file",    NULL};
    const uint64_t numbers[] = {
        requests, needs->events, needs->tokens, outcome->prompt_tokens, outcome->shared_tokens, needs->cells};
    char texts[sizeof numbers / sizeof *numbers][24];
    const char *cells[] = {name, texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], path};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        snprintf(texts[i], sizeof texts[i], "%llu", (unsigned long long)numbers[i]);
    kvb_progress_end();
    kvb_table *table = kvb_table_new(headings);
    int exit_code = KVB_EXIT_OK;
    if (!table || kvb_table_row(table, cells))
        exit_code = kvb_complain("record", KVB_EXIT_MACHINE, "no memory for the table");
    else
        exit_code = kvb_printed("record", kvb_table_print(table, format, stdout));
    kvb_table_free(table);
    return exit_code;
}

int kvb_record_import_run(const kvb_record_import *import, const char *directory, uint64_t seed,
                          kvb_table_format format)
{
    char why[512], path[4096];
    kvb_import_requests requests = {0};
    kvb_import_outcome outcome;
    kvb_trace *trace = NULL;
    kvb_import_options options = {
        .requests = import->requests ? (uint32_t)import->requests : DEFAULT_REQUESTS,
        .shrink = import->shrink ? (uint32_t)import->shrink : DEFAULT_SHRINK,
        .sequences = import->sequences ? (uint32_t)import->sequences : DEFAULT_SEQUENCES,
        .seed = seed,
    };
    const char *file;
    if (!import->from)
        return kvb_complain("record", KVB_EXIT_USAGE, "--name, --requests, --shrink and --sequences need --import");
    if (!directory)
        return kvb_complain("record", KVB_EXIT_USAGE, "--import needs -o DIR");
    if (kvb_import_choose(import->from, &options.format, &file, why, sizeof why))
        return kvb_complain("record", KVB_EXIT_USAGE, "--import: %s", why);
    const char *name = import->name ? import->name : options.format->name;
    if (!name_good(name))
        return kvb_complain(
            "record", KVB_EXIT_USAGE,
            "--name: expected at most %d letters, digits, '-', '_' or '.', beginning with neither '-' nor '.'",
            MAX_NAME);
    if ((size_t)snprintf(path, sizeof path, "%s/%s.jsonl", directory, name) >= sizeof path)
        return kvb_complain("record", KVB_EXIT_USAGE, "%s: %s", directory, strerror(ENAMETOOLONG));

    int exit_code = KVB_EXIT_OK;
    kvb_progress_start("record", 0);
    kvb_progress_now("importing %s", file);
    int err = kvb_import_read(file, &options, &requests, why, sizeof why);
    if (!err && mkdir(directory, 0777) && errno != EEXIST) {
        err = -errno;
        snprintf(why, sizeof why, "%s: %s", directory, strerror(errno));
    }
    if (!err)
        err = kvb_import_write(&requests, &options, name, path, &outcome, why, sizeof why);
    if (err)
        exit_code = kvb_complain("record", err == -ENOMEM ? KVB_EXIT_MACHINE : KVB_EXIT_USAGE, "%s", why);
    else if (kvb_trace_load(path, 0, &trace, why, sizeof why))
        exit_code = kvb_complain("record", KVB_EXIT_FAILED, "what was written does not read back: %s", why);
    else
        exit_code = row_print(name, path, requests.n, &outcome, &trace->needs, format);
    kvb_trace_free(trace);
    kvb_import_requests_free(&requests);
    return exit_code;
}
