/* SPDX-License-Identifier: Apache-2.0 */
/* A machine's settings as a JSON file, and their use by commands. */
#include "harness/tuning/tuning.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/command_line.h"
#include "harness/machine/team.h"
#include "harness/program.h"
#include "kernels/cpu.h"
#include "results/result.h"
#include "workloads/files.h"

#define FILE_BYTES_MAX 65536
#define VERSION        4
#define TEXT_OF(X)     #X
#define TEXT(X)        TEXT_OF(X)

const char *const kvb_spread_names[KVB_SPREADS] = {"in long runs", "in short runs", "apart"};
static const uint32_t size_bytes[KVB_READING_SIZES] = {128, 256, 512, UINT32_MAX},
                      row_counts[KVB_READING_ROWS] = {1, 2, 4, UINT32_MAX};

/* The members of a reading that are true or false. */
static const struct {
    const char *name;
    size_t at;
} truths[] = {{"near", offsetof(kvb_reading, near)},
              {"again", offsetof(kvb_reading, again)},
              {"pages", offsetof(kvb_reading, pages)},
              {"by_cells", offsetof(kvb_reading, by_cells)},
              {"sums_by_cells", offsetof(kvb_reading, sums_by_cells)},
              {"beside", offsetof(kvb_reading, beside)}};
enum { TRUTHS = sizeof truths / sizeof *truths };

int kvb_tuning_path(const kvb_manifest *machine, char path[KVB_TUNING_PATH])
{
    char name[KVB_FINGERPRINT_TEXT];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool own = cache && *cache == '/';
    kvb_fingerprint(machine, name);
    if (!own && (!home || *home != '/'))
        return -ENOENT;
    const int n = snprintf(path, KVB_TUNING_PATH, "%s%s/kvbench/%s-%s.json", own ? cache : home, own ? "" : "/.cache",
                           name, kvb_cpu_level_names[kvb_cpu()]);
    return n < (int)KVB_TUNING_PATH ? 0 : -ENOENT;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *limit_json(uint32_t limit)
{
    return limit == UINT32_MAX ? json_null() : json_integer(limit);
}

static json_t *tuning_json(const kvb_manifest *machine, const kvb_tuning *t)
{
    char name[KVB_FINGERPRINT_TEXT];
    json_t *list = json_array();
    kvb_fingerprint(machine, name);
    for (uint32_t i = 0; i < KVB_READINGS; i++) {
        const kvb_class class = kvb_class_at(i);
        const kvb_reading *x = &t->prefetch.reading[i];
        json_t *one = json_pack("{s:s, s:o, s:o, s:i}", "rows", kvb_spread_names[class.spread], "row_bytes",
                                limit_json(size_bytes[class.size]), "query_rows", limit_json(row_counts[class.rows]),
                                "ahead", (int)x->ahead);
        for (int k = 0; k < TRUTHS; k++)
            json_object_set_new(one, truths[k].name, json_boolean(*(const bool *)((const char *)x + truths[k].at)));
        json_object_set_new(one, "gain", json_real(t->gain[i]));
        json_array_append_new(list, one);
    }
    return json_pack("{s:i, s:s, s:s, s:o, s:{s:b, s:f}}", "kvbench_tuning", VERSION, "machine", name, "isa",
                     kvb_cpu_level_names[kvb_cpu()], "readings", list, "steadily", "value", t->prefetch.steadily,
                     "gain", t->steadily_gain);
}

static void folders_make(const char *path)
{
    char folder[KVB_TUNING_PATH];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(folder, 0777); /* opening the file shows a failure */
        *at = '/';
    }
}

int kvb_tuning_writable(const char *path, char *why, size_t why_bytes)
{
    kvb_output_file file;
    folders_make(path);
    const int error = kvb_output_file_open(path, false, &file, why, why_bytes);
    return error ? error : kvb_output_file_close(&file, false, why, why_bytes);
}

int kvb_tuning_write(const char *path, const kvb_manifest *machine, const kvb_tuning *tuning, char *why,
                     size_t why_bytes)
{
    json_t *json = tuning_json(machine, tuning);
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(4)) : NULL;
    kvb_output_file file;
    json_decref(json);
    if (!text)
        return kvb_why_set(-ENOMEM, why, why_bytes, "no memory");
    folders_make(path);
    int error = kvb_output_file_open(path, false, &file, why, why_bytes);
    if (!error) {
        fprintf(file.stream, "%s\n", text); /* a failure is found by close */
        error = kvb_output_file_close(&file, true, why, why_bytes);
    }
    free(text);
    return error;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool limit_is(const json_t *value, uint32_t limit)
{
    return limit == UINT32_MAX ? json_is_null(value) : json_is_integer(value) && json_integer_value(value) == limit;
}

static bool gain_read(const json_t *value, double *gain)
{
    *gain = json_number_value(value);
    return json_is_number(value) && *gain >= 1 && *gain <= 1000;
}

/* Reads entry i. Returns what was expected; NULL: the entry is valid. */
static const char *reading_read(const json_t *x, uint32_t i, kvb_tuning *t)
{
    const json_t *ahead = json_object_get(x, "ahead");
    const char *spread = json_string_value(json_object_get(x, "rows"));
    const kvb_class class = kvb_class_at(i);
    kvb_reading *reading = &t->prefetch.reading[i];
    if (!spread || strcmp(spread, kvb_spread_names[class.spread]) ||
        !limit_is(json_object_get(x, "row_bytes"), size_bytes[class.size]) ||
        !limit_is(json_object_get(x, "query_rows"), row_counts[class.rows]))
        return "rows \"in long runs\", \"in short runs\", \"apart\", for each row_bytes 128, 256, 512, null, and for "
               "each of them query_rows 1, 2, 4, "
               "null";
    if (!json_is_integer(ahead) || json_integer_value(ahead) < 0 || json_integer_value(ahead) > KVB_READING_AHEAD)
        return "ahead: a number of cells, 0 to 256";
    *reading = (kvb_reading){.ahead = (uint32_t)json_integer_value(ahead)};
    for (int k = 0; k < TRUTHS; k++) {
        const json_t *value = json_object_get(x, truths[k].name);
        if (!json_is_boolean(value))
            return "near, again, pages, by_cells, sums_by_cells, beside: true or false";
        *(bool *)((char *)reading + truths[k].at) = json_is_true(value);
    }
    return gain_read(json_object_get(x, "gain"), &t->gain[i]) ? NULL : "gain: a number of 1 to 1000";
}

/* Writes to why if the file belongs to another machine or level. */
static void machine_check(const char *path, const json_t *json, const kvb_manifest *machine, char *why,
                          size_t why_bytes)
{
    char name[KVB_FINGERPRINT_TEXT];
    const char *machine_name = json_string_value(json_object_get(json, "machine")),
               *isa = json_string_value(json_object_get(json, "isa"));
    kvb_fingerprint(machine, name);
    if (!machine_name || strcmp(machine_name, name))
        snprintf(why, why_bytes, "%s: machine: expected %s, which this one is; `kvbench tune` makes a file for it",
                 path, name);
    else if (!isa || strcmp(isa, kvb_cpu_level_names[kvb_cpu()]))
        snprintf(why, why_bytes, "%s: isa: expected %s, the level of this run", path, kvb_cpu_level_names[kvb_cpu()]);
}

int kvb_tuning_read(const char *path, const kvb_manifest *machine, kvb_tuning *tuning, char *why, size_t why_bytes)
{
    char text[FILE_BYTES_MAX];
    json_error_t at;
    FILE *file = fopen(path, "rb");
    *why = '\0';
    if (!file) {
        const int error = -errno;
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
        return error == -ENOENT || error == -ENOTDIR ? -ENOENT : -EINVAL;
    }
    const size_t n = fread(text, 1, sizeof text, file);
    const bool broken = ferror(file) || n == sizeof text;
    fclose(file);
    json_t *json = broken ? NULL : json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    const char *expected = NULL;
    const json_t *list = json_object_get(json, "readings"), *steadily = json_object_get(json, "steadily");
    *tuning = (kvb_tuning){.prefetch = *kvb_prefetch_here()};
    if (broken)
        snprintf(why, why_bytes, "%s: expected a file of less than 64 KiB that `kvbench tune` wrote", path);
    else if (!json)
        snprintf(why, why_bytes, "%s:%d: %s", path, at.line, at.text);
    else if (json_integer_value(json_object_get(json, "kvbench_tuning")) != VERSION)
        expected = "\"kvbench_tuning\":" TEXT(VERSION) " (`kvbench tune` makes a new file)";
    else if (json_array_size(list) != KVB_READINGS)
        expected = "readings: a list of 48 (`kvbench tune` makes a new file)";
    else if (!json_is_boolean(json_object_get(steadily, "value")) ||
             !gain_read(json_object_get(steadily, "gain"), &tuning->steadily_gain))
        expected = "steadily: {\"value\":true or false, \"gain\":a number of 1 to 1000}";
    else {
        for (uint32_t i = 0; i < KVB_READINGS && !expected; i++)
            expected = reading_read(json_array_get(list, i), i, tuning);
        tuning->prefetch.steadily = json_is_true(json_object_get(steadily, "value"));
    }
    if (!*why && !expected)
        machine_check(path, json, machine, why, why_bytes);
    if (expected)
        snprintf(why, why_bytes, "%s: expected %s", path, expected);
    json_decref(json);
    return *why ? -EINVAL : 0;
}

/* ---- the settings of a command's kernels ------------------------------------------------------------------------- */

#define SECONDS 1.2 /* of measuring without a file; less than two with allocating its memory */

static kvb_tuning in_use;

static void take(kvb_manifest *machine, const char *from)
{
    kvb_prefetch_set(&in_use.prefetch);
    snprintf(machine->tuning, sizeof machine->tuning, "%s", from);
}

/* Measures the most important choices, and writes them to the file if possible. */
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
