/* SPDX-License-Identifier: Apache-2.0 */
/* Which layer is what: from an explicit list in the config, else by the family's rule. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "results/sizing/layers.h"

/* Words of layer_types and its like. */
static const struct {
    const char *word;
    char letter;
} words[] = {
    {"full_attention", 'F'},
    {"attention", 'F'},
    {"deepseek_sparse_attention", 'F'},
    {"sliding_attention", 'W'},
    {"chunked_attention", 'C'},
    {"linear_attention", 'S'},
    {"mamba", 'S'},
    {"mamba2", 'S'},
    {"recurrent", 'S'},
    {"conv", 'S'},
    {"hybrid", 'B'},
    {"moe", '-'},
    {"mlp", '-'},
};

/* The letter, if the family has it; of "attention", its one kind of attention. */
static char letter_of_word(const kvb_layer_family *family, const char *word)
{
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) {
            if (strchr(family->letters, words[i].letter))
                return words[i].letter;
            if (strcmp(word, "attention") == 0 && strchr(family->letters, 'W'))
                return 'W';
        }
    return 0;
}

/* Entry i of a list: a word, a letter of a pattern, or a number. 0: unknown. */
static char letter_of_entry(const kvb_reading *reading, const char *field, const json_t *entry)
{
    bool flags = strcmp(field, "attn_type_list") == 0;         /* MiniMax: 1 softmax, 0 lightning */
    bool windows = strcmp(field, "hybrid_layer_pattern") == 0; /* MiMo: 1 window, 0 full */
    bool ropes = strcmp(field, "no_rope_layers") == 0;         /* Llama 4: 1 rope and chunks, 0 neither */

    if (!flags && !windows && !ropes)
        return letter_of_word(reading->family, json_string_value(entry));
    if (!json_is_integer(entry) || (json_integer_value(entry) != 0 && json_integer_value(entry) != 1))
        return 0;
    bool one = json_integer_value(entry) == 1;
    return flags ? (one ? 'F' : 'S') : one ? (windows ? 'W' : 'C') : 'F';
}

/* An entry for each layer; block_types repeats. */
static void list_lay(kvb_reading *reading, const char *field, const json_t *list)
{
    kvb_config *c = &reading->config;
    size_t n = json_array_size(list);

    if (n != reading->n_layers && (strcmp(field, "block_types") != 0 || n == 0)) {
        kvb_config_fail(c, -EINVAL, "%s%s: %zu entries, but num_hidden_layers is %u", c->place, field, n,
                        reading->n_layers);
        return;
    }
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        const json_t *entry = json_array_get(list, i % n);
        reading->letters[i] = letter_of_entry(reading, field, entry);
        if (!reading->letters[i]) {
            char *text = json_dumps(entry, JSON_ENCODE_ANY | JSON_COMPACT);
            kvb_config_fail(c, -EINVAL, "%s%s[%zu]: %.40s is no layer of %s", c->place, field, i % n,
                            text ? text : "this", c->model_class);
            free(text);
            return;
        }
    }
}

/* Nemotron-H: "M-M*E"; EXAONE 4: "LLLG", repeated. */
static void string_lay(kvb_reading *reading, const char *field, const char *pattern)
{
    static const struct {
        char sign, letter;
    } signs[] = {{'M', 'S'}, {'*', 'F'}, {'-', '-'}, {'E', '-'}, {'L', 'W'}, {'G', 'F'}};
    kvb_config *c = &reading->config;
    size_t n = strlen(pattern);

    if (n == 0 || (n != reading->n_layers && strcmp(field, "hybrid_override_pattern") == 0)) {
        kvb_config_fail(c, -EINVAL, "%s%s: %zu layers, but num_hidden_layers is %u", c->place, field, n,
                        reading->n_layers);
        return;
    }
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        char letter = 0;
        for (size_t s = 0; s < sizeof signs / sizeof *signs; s++)
            if (signs[s].sign == pattern[i % n] && strchr(reading->family->letters, signs[s].letter))
                letter = signs[s].letter;
        if (!letter) {
            kvb_config_fail(c, -EINVAL, "%s%s: character %zu is no layer of %s", c->place, field, i % n + 1,
                            c->model_class);
            return;
        }
        reading->letters[i] = letter;
    }
}

/* Numbers of the layers with a letter, counted from `first`; the others keep theirs. */
static void indices_lay(kvb_reading *reading, const char *field, const json_t *list, uint32_t first, char letter)
{
    kvb_config *c = &reading->config;

    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *entry = json_array_get(list, k);
        json_int_t i = json_is_integer(entry) ? json_integer_value(entry) - first : -1;
        if (i < 0 || i >= reading->n_layers || (reading->letters[i] && first == 1)) {
            kvb_config_fail(c, -EINVAL, "%s%s[%zu]: a layer's number of %u to %u, told once, was expected", c->place,
                            field, k, first, reading->n_layers - 1 + first);
            return;
        }
        reading->letters[i] = letter;
    }
}

/* Kimi: two lists of numbers from 1 that together name every layer once. */
static void two_lists_lay(kvb_reading *reading)
{
    kvb_config *c = &reading->config;
    static const char full[] = "linear_attn_config.full_attn_layers", kda[] = "linear_attn_config.kda_layers";

    indices_lay(reading, full, kvb_config_list(c, full, 0), 1, 'F');
    indices_lay(reading, kda, kvb_config_list(c, kda, 0), 1, 'S');
    for (uint32_t i = 0; i < reading->n_layers; i++)
        if (!reading->letters[i])
            kvb_config_fail(c, -EINVAL, "%slinear_attn_config: layer %u is in neither full_attn_layers nor kda_layers",
                            c->place, i + 1);
}

/* One entry for each layer, an object each (layers_vary.c reads them); all letters F. */
static void objects_lay(kvb_reading *reading, const char *field)
{
    if (kvb_config_list(&reading->config, field, reading->n_layers))
        memset(reading->letters, 'F', reading->n_layers);
}

/* false: the file has none of the family's lists. */
static bool explicit_lay(kvb_reading *reading)
{
    kvb_config *c = &reading->config;
    char lists[192];
    bool laid = false;

    snprintf(lists, sizeof lists, "layer_types %s", reading->family->lists ? reading->family->lists : "");
    char *rest = NULL;
    for (char *field = strtok_r(lists, " ", &rest); field; field = strtok_r(NULL, " ", &rest)) {
        const json_t *value = kvb_config_find(c, field, NULL);
        if (!value || laid || json_is_integer(value)) /* sliding_window_pattern is a period or a pattern */
            continue;
        laid = true;
        snprintf(reading->letters_source, sizeof reading->letters_source, "%s%s", c->place, field);
        if (json_is_string(value))
            string_lay(reading, field, json_string_value(value));
        else if (strcmp(field, "linear_attn_config") == 0)
            two_lists_lay(reading);
        else if (!kvb_config_list(c, field, 0))
            break;
        else if (strcmp(field, "block_configs") == 0)
            objects_lay(reading, field);
        else if (strcmp(field, "full_attn_idxs") == 0 || strcmp(field, "attn_layer_indices") == 0) {
            memset(reading->letters, 'S', reading->n_layers);
            indices_lay(reading, field, value, 0, 'F');
        } else
            list_lay(reading, field, value);
    }
    return laid;
}

static void rule_lay(kvb_reading *reading)
{
    kvb_config *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    kvb_fact period = {.value = family->period};

    snprintf(period.source, sizeof period.source, "%s's code", c->model_class);
    if (family->period_must && kvb_config_has(c, family->period_in))
        period = kvb_config_count(c, family->period_in);
    else if (family->period_must) /* the list is what the file should have: more telling than the period */
        kvb_config_fail(c, -EINVAL, "%slayer_types (or one of: %s): missing, which %s needs", c->place, family->lists,
                        c->model_class);
    else if (family->period_in)
        period = kvb_config_count_or(c, family->period_in, family->period, period.source);
    uint64_t offset = period.value - 1;
    if (family->offset_in)
        offset = kvb_config_number(c, family->offset_in);
    else if (family->offset >= 0)
        offset = (uint64_t)family->offset;
    if (period.value && offset >= period.value)
        kvb_config_fail(c, -EINVAL, "%s%s: %ju, but the period is %ju", c->place, family->offset_in, (uintmax_t)offset,
                        (uintmax_t)period.value);
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        bool full = !family->other || (period.value && i % period.value == offset);
        reading->letters[i] = full ? 'F' : family->other;
    }
    snprintf(reading->letters_source, sizeof reading->letters_source, "%s", period.source);
}

void kvb_layers_lay(kvb_reading *reading)
{
    const kvb_layer_family *family = reading->family;

    if (family->period_in) /* known, also where a list comes first */
        kvb_config_has(&reading->config, family->period_in);
    if (!explicit_lay(reading))
        rule_lay(reading);
}
