/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a replay that are made: --only. */
#include "harness/replay/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/command_line.h"

int kvb_only_parse(const char *text, kvb_only *only, char *why, size_t why_bytes)
{
    *only = (kvb_only){text, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    const struct {
        const char *name;
        uint64_t *value;
    } parts[] = {{"event=", &only->event}, {"line=", &only->line}, {"layer=", &only->layer}};
    char list[128], *at = list, *word, unused[128];
    snprintf(list, sizeof list, "%s", text ? text : "");
    while (text && (word = strsep(&at, ","))) {
        bool good = false;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!strncmp(word, parts[i].name, strlen(parts[i].name)) && *parts[i].value == UINT64_MAX)
                good = !kvb_number_parse(word + strlen(parts[i].name), 0, UINT32_MAX, parts[i].value, unused,
                                         sizeof unused);
        if (!good) {
            snprintf(why, why_bytes, "expected event=N, line=N, layer=N, each once at most, found '%s'", word);
            return -EINVAL;
        }
    }
    return 0;
}

bool kvb_only_has(const kvb_only *o, const kvb_trace *trace, uint32_t event, uint32_t layer)
{
    return !o->text ||
           ((o->event == UINT64_MAX || o->event == event) && (o->layer == UINT64_MAX || o->layer == layer) &&
            (o->line == UINT64_MAX || o->line == trace->events[event].line));
}

bool kvb_only_fits(const kvb_only *only, const kvb_trace *trace, char *why, size_t why_bytes)
{
    for (uint32_t i = 0; i < trace->n_events; i++)
        for (uint32_t layer = 0; layer < trace->header.model.n_layers; layer++)
            if (trace->events[i].kind <= KVB_EVENT_PROPOSE && trace->events[i].kind != KVB_EVENT_FILL &&
                kvb_only_has(only, trace, i, layer))
                return true;
    snprintf(why, why_bytes, "%s: --only %s: there is no such call: a step, prefill or propose, and a layer below %u",
             trace->path, only->text, trace->header.model.n_layers);
    return false;
}

__attribute__((noinline)) void kvb_only_stop(void)
{
    __asm__ volatile("");
}
