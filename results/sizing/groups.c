/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of equal memory in groups, and what --explain tells of each: its factors and its layers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/sizing/groups.h"

#define RUNS_MOST 5u /* of layer numbers that a note lists before it says "…" */

void kvb_model_note_add(kvb_reading *reading, int group, const char *text, const char *source)
{
    kvb_model *model = reading->model;
    kvb_model_note *notes = realloc(model->notes, (model->n_notes + 1) * sizeof *notes);

    if (!notes)
        return kvb_config_fail(&reading->config, -ENOMEM, "no memory");
    model->notes = notes;
    notes[model->n_notes] = (kvb_model_note){.group = group, .text = strdup(text), .source = strdup(source)};
    if (!notes[model->n_notes].text || !notes[model->n_notes].source)
        kvb_config_fail(&reading->config, -ENOMEM, "no memory");
    model->n_notes++;
}

/* Shapes are zeroed before they are filled and copied whole, so that their padding is equal too. */
static bool is_same(const kvb_layer_group *a, const kvb_layer_group *b)
{
    size_t from = offsetof(kvb_layer_group, kind);

    return memcmp((const char *)a + from, (const char *)b + from, sizeof *a - from) == 0;
}

/* The group of such layers, made where there is none. */
static int group_find(kvb_reading *reading, const kvb_shape *shape)
{
    kvb_model *model = reading->model;
    char text[64];

    for (size_t g = 0; g < model->n_groups; g++)
        if (is_same(&model->groups[g], &shape->group))
            return (int)g;
    kvb_layer_group *groups = realloc(model->groups, (model->n_groups + 1) * sizeof *groups);
    if (!groups) {
        kvb_config_fail(&reading->config, -ENOMEM, "no memory");
        return -1;
    }
    model->groups = groups;
    memcpy(&groups[model->n_groups], &shape->group, sizeof *groups);
    int group = (int)model->n_groups++;
    for (uint32_t f = 0; f < shape->n_facts; f++) {
        snprintf(text, sizeof text, "%s = %ju", shape->facts[f].what, (uintmax_t)shape->facts[f].fact.value);
        kvb_model_note_add(reading, group, text, shape->facts[f].fact.source);
    }
    return group;
}

static void layer_add(kvb_reading *reading, uint32_t layer, const kvb_shape *shape, int member)
{
    int group = group_find(reading, shape);

    if (group >= 0)
        reading->model->groups[group].n++;
    reading->groups[member][layer] = (int16_t)group;
}

/* "0-4, 6-10, 12, …, 47" */
static void layers_tell(const kvb_reading *reading, int group, char *text, size_t bytes)
{
    uint32_t runs = 0, last = 0;
    size_t used = 0;

    for (uint32_t i = 0; i < reading->n_layers; i++) {
        uint32_t from = i;
        while (i < reading->n_layers && (reading->groups[0][i] == group || reading->groups[1][i] == group))
            i++;
        if (i == from)
            continue;
        last = i - 1;
        if (runs++ >= RUNS_MOST)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%u", runs > 1 ? ", " : "", from);
        if (last > from)
            used += (size_t)snprintf(text + used, bytes - used, "-%u", last);
    }
    if (runs > RUNS_MOST)
        snprintf(text + used, bytes - used, ", \xe2\x80\xa6, %u", last);
}

static void members_note(kvb_reading *reading)
{
    kvb_model *model = reading->model;
    const char *vary_in = reading->family->vary_in;
    char layers[160], text[224];

    if (vary_in && kvb_config_has(&reading->config, vary_in))
        snprintf(reading->letters_source, sizeof reading->letters_source, "%s%s", reading->config.place, vary_in);
    for (size_t g = 0; g < model->n_groups; g++) {
        layers_tell(reading, (int)g, layers, sizeof layers);
        snprintf(text, sizeof text, "%u of %u layers: %s", model->groups[g].n, reading->n_layers, layers);
        kvb_model_note_add(reading, (int)g, text, reading->letters_source);
    }
}

/* A layer without anything to keep. */
static void nothing_read(char letter, kvb_shape *shape)
{
    shape->group.kind = KVB_LAYER_NONE;
    shape->group.name = letter == 'R' ? "reads another layer's rows" : "feed-forward";
}

/* What one letter keeps: of B, the attention first (member 0), then the mixer (1). */
static void shape_read(kvb_reading *reading, char letter, int member, kvb_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    if (letter == 'R' || letter == '-')
        nothing_read(letter, shape);
    else if (letter == 'S' || member == 1)
        reading->family->mixer(reading, shape);
    else
        kvb_attention_read(reading, letter, shape);
}

void kvb_groups_build(kvb_reading *reading)
{
    static const char all[] = "FWCSBR-";
    const kvb_layer_family *family = reading->family;
    kvb_shape shapes[sizeof all - 1], second, varied;
    bool known[sizeof all - 1] = {false};

    memset(reading->groups, 0xff, sizeof reading->groups); /* -1: in none */
    for (uint32_t i = 0; i < reading->n_layers && !reading->config.error; i++) {
        char letter = reading->letters[i];
        size_t l = (size_t)(strchr(all, letter) - all);
        if (!known[l]) {
            shape_read(reading, letter, 0, &shapes[l]);
            known[l] = true;
            if (letter == 'B')
                shape_read(reading, letter, 1, &second);
        }
        memcpy(&varied, &shapes[l], sizeof varied);
        if (family->vary && letter == 'F')
            family->vary(reading, i, &varied);
        layer_add(reading, i, &varied, 0);
        if (letter == 'B')
            layer_add(reading, i, &second, 1);
    }
    if (!reading->config.error)
        members_note(reading);
}
