/* SPDX-License-Identifier: Apache-2.0 */
/* What windows that are off or inert, and rows shared across layers, make of the letters. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/layers.h"

static uint32_t letters_replace(kvb_reading *reading, uint32_t from, char old, char letter)
{
    uint32_t n = 0;

    for (uint32_t i = from; i < reading->n_layers; i++)
        if (reading->letters[i] == old) {
            reading->letters[i] = letter;
            n++;
        }
    return n;
}

/* Windows that do not limit anything: the layers are F. */
static void window_settle(kvb_reading *reading)
{
    kvb_config *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    const char *names = family->window_in ? family->window_in : "sliding_window sliding_window_size", *name;
    bool listed = strstr(reading->letters_source, "layer_types") != NULL;
    bool on = kvb_config_flag(c, "use_sliding_window", !family->window_off);
    const json_t *window = NULL;
    char text[KVB_CONFIG_SOURCE];

    if (!on) /* known to every family: switched off, it changes nothing */
        kvb_config_has(c, "sliding_window");
    if (!strchr(family->letters, 'W'))
        return;
    window = kvb_config_find(c, names, &name);
    if (!strchr(reading->letters, 'W'))
        return;
    snprintf(text, sizeof text, "%s", name);
    if (listed && (!on || !window))
        return kvb_config_fail(c, -EINVAL, "%slayer_types: has sliding layers, but %s", c->place,
                               on ? "sliding_window is missing" : "use_sliding_window is false");
    if (!window && family->local_needed)
        return kvb_config_fail(c, -EINVAL, "%s%s: missing, which %s needs", c->place, name, c->model_class);
    if (!window || !on) {
        letters_replace(reading, 0, 'W', 'F');
        return kvb_model_note_add(reading, -1, "no sliding window",
                                  on ? "sliding_window is absent or null" : "use_sliding_window is not true");
    }
    uint64_t n = kvb_config_number(c, names);
    if (n == 0)
        return kvb_config_fail(c, -EINVAL, "%s%s: 0 tokens: a window of at least 1 was expected", c->place, text);
    if (reading->model->max_context && n >= reading->model->max_context) {
        letters_replace(reading, 0, 'W', 'F');
        snprintf(text, sizeof text, "the window of %ju tokens is inert: the longest context is %ju", (uintmax_t)n,
                 (uintmax_t)reading->model->max_context);
        kvb_model_note_add(reading, -1, text, "sliding_window, max_position_embeddings");
    }
    if (family->window_from && !listed) {
        uint64_t from = kvb_config_count(c, family->window_from).value;
        for (uint32_t i = 0; i < reading->n_layers && i < from; i++)
            reading->letters[i] = reading->letters[i] == 'W' ? 'F' : reading->letters[i];
    }
}

static void chunk_settle(kvb_reading *reading)
{
    kvb_config *c = &reading->config;

    if (!strchr(reading->family->letters, 'C'))
        return;
    if (!kvb_config_has(c, "attention_chunk_size") && letters_replace(reading, 0, 'C', 'F') > 0)
        kvb_model_note_add(reading, -1, "no chunks", "attention_chunk_size is null");
}

/* Gemma 3n and 4: the last layers read rows of earlier ones of their kind. Hunyuan: each group reads its first's. */
static void sharing_settle(kvb_reading *reading)
{
    kvb_config *c = &reading->config;
    char text[KVB_CONFIG_SOURCE];

    if (!reading->family->shares)
        return;
    uint64_t last = kvb_config_number(c, "num_kv_shared_layers");
    uint64_t factor = kvb_config_number(c, "cla_share_factor");
    bool cla = kvb_config_flag(c, "use_cla", false);
    if (last >= reading->n_layers)
        return kvb_config_fail(c, -EINVAL, "%snum_kv_shared_layers: %ju of %u layers leave none that has rows",
                               c->place, (uintmax_t)last, reading->n_layers);
    if (cla && factor == 0)
        return kvb_config_fail(c, -EINVAL, "%scla_share_factor: missing, which use_cla needs", c->place);
    for (uint32_t i = 0; i < reading->n_layers; i++)
        if (i >= reading->n_layers - last || (cla && i % factor != 0))
            reading->letters[i] = 'R';
    if (last)
        snprintf(text, sizeof text, "the last %ju layers read the rows of earlier ones", (uintmax_t)last);
    else
        snprintf(text, sizeof text, "one layer of %ju has rows, the others read them", (uintmax_t)factor);
    if (last || (cla && factor > 1))
        kvb_model_note_add(reading, -1, text, last ? "num_kv_shared_layers" : "cla_share_factor");
}

void kvb_layers_settle(kvb_reading *reading)
{
    window_settle(reading);
    chunk_settle(reading);
    sharing_settle(reading);
}
