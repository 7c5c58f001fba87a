/* SPDX-License-Identifier: Apache-2.0 */
/* A machine profile as one JSON object; its keys are in profile_print.h. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "harness/machine/profile_print.h"

static json_t *rate_json(const kvb_rate *rate)
{
    if (!rate->samples)
        return json_null();
    return json_pack("{s:f, s:f, s:f, s:i}", "median", rate->median, "low", rate->low, "high", rate->high, "samples",
                     (int)rate->samples);
}

static json_t *levels_rates_json(const kvb_machine_profile *p, const kvb_rate *rates)
{
    json_t *object = json_object();
    for (size_t i = 0; i < KVB_LEVELS; i++)
        json_object_set_new(object, p->level[i].name, rate_json(&rates[i]));
    return object;
}

static json_t *row_json(const kvb_machine_profile *p, const kvb_profile_row *row)
{
    json_t *peaks = json_object();
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS; k++)
        json_object_set_new(peaks, kvb_peak_names[k], rate_json(&row->peak[k]));
    return json_pack("{s:i, s:o, s:o, s:o}", "threads", (int)row->threads, "read_gb_per_s",
                     levels_rates_json(p, row->read), "triad_gb_per_s", levels_rates_json(p, row->triad),
                     "peak_g_op_per_s", peaks);
}

static json_t *level_json(const kvb_cache_level *level)
{
    return json_pack("{s:s, s:I, s:i, s:I, s:s}", "name", level->name, "bytes", (json_int_t)level->bytes, "instances",
                     (int)level->instances, "working_set_bytes", (json_int_t)level->working_set, "note", level->note);
}

static json_t *words_json(const char *words)
{
    json_t *array = json_array();
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        json_array_append_new(array, json_stringn_nocheck(words, n));
    }
    return array;
}

int kvb_profile_json_print(const kvb_machine_profile *p, const kvb_manifest *host, FILE *out)
{
    json_t *levels = json_array(), *rows = json_array(), *unavailable = json_object();
    for (size_t i = 0; i < KVB_LEVELS; i++)
        json_array_append_new(levels, level_json(&p->level[i]));
    for (uint32_t r = 0; r < p->n_rows; r++)
        json_array_append_new(rows, row_json(p, &p->row[r]));
    for (kvb_peak_kind k = 0; k < KVB_PEAK_KINDS; k++)
        if (p->peak_unavailable[k][0])
            json_object_set_new(unavailable, kvb_peak_names[k], json_string(p->peak_unavailable[k]));
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "schema",
        "kvbench.machine/1", "cpu_model", host->cpu_model, "cpu_features", words_json(host->cpu_features), "isa",
        host->isa, "os", host->os, "memory_bytes", (json_int_t)host->memory_bytes, "sockets", (int)p->sockets, "cores",
        (int)p->cores, "threads", (int)p->threads, "numa_nodes", (int)p->numa_nodes, "virtual_machine",
        p->virtual_machine, "governor", p->governor, "huge_pages", p->huge_pages, "read_isa", p->read_isa, "counters",
        p->counters, "levels", levels, "rows", rows, "peak_unavailable", unavailable);
    if (!object)
        return -ENOMEM;
    int error = json_dumpf(object, out, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) || putc('\n', out) == EOF ||
                        fflush(out) || ferror(out)
                    ? -EIO
                    : 0;
    json_decref(object);
    return error;
}
