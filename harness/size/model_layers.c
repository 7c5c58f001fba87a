/* SPDX-License-Identifier: Apache-2.0 */
/* The letter of each layer, and groups of layers of equal memory. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/model_reading.h"
#include "workloads/files.h"

/* ---- letters of layers: a list in the config, else the rule of the family --------------------------------- */

/* Words in layer_types and similar lists. */
static const struct {
    char letter;
    const char *words;
} kinds[] = {
    {'F', "full_attention attention deepseek_sparse_attention qwen_sparse_attention"},
    {'W', "sliding_attention hybrid_sliding compressed_sparse_attention heavily_compressed_attention"},
    {'C', "chunked_attention"},
    {'S', "linear_attention mamba mamba2 recurrent conv"},
    {'B', "hybrid"},
    {'-', "moe mlp"},
};

/* The letter of a word, if the family has it. "attention" means the only kind of attention that the family has. */
static char letter_of_word(const kvb_layer_family *family, const char *word)
{
    for (size_t i = 0; word && i < sizeof kinds / sizeof *kinds; i++)
        if (kvb_names_have(kinds[i].words, word)) {
            if (strchr(family->letters, kinds[i].letter))
                return kinds[i].letter;
            if (strcmp(word, "hybrid") == 0 && family->beside) /* Inkling: each layer also has convolutions */
                return 'F';
            if (strcmp(word, "attention") == 0 && strchr(family->letters, 'W'))
                return 'W';
        }
    return 0;
}

/* Lists of numbers 0 and 1, and their letters. */
static const struct {
    const char *field, *letters;
} numbers[] = {
    {"attn_type_list", "SF"},       /* MiniMax: lightning, softmax */
    {"hybrid_layer_pattern", "FW"}, /* MiMo */
    {"no_rope_layers", "FC"},       /* Llama 4: 1 has rope and chunks */
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* The letter of a list's entry: a word or a number. 0: unknown. */
static char letter_of_entry(const kvb_model_reading *reading, const char *field, const json_t *entry)
{
    const json_int_t number = json_integer_value(entry);
    size_t i = 0;

    while (i < NUMBERS && strcmp(numbers[i].field, field) != 0)
        i++;
    if (i == NUMBERS)
        return letter_of_word(reading->family, json_string_value(entry));
    if (!json_is_integer(entry) || (number != 0 && number != 1))
        return 0;
    return strchr(reading->family->letters, numbers[i].letters[number]) ? numbers[i].letters[number] : 0;
}

/* Lays a list with an entry for each layer; block_types repeats. */
static void list_lay(kvb_model_reading *reading, const char *field, const json_t *list)
{
    kvb_config_json *c = &reading->config;
    size_t n = json_array_size(list);

    if (n != reading->n_layers && n != reading->n_layers + (size_t)reading->model->mtp_layers &&
        (strcmp(field, "block_types") != 0 || n == 0)) {
        kvb_config_fail(c, -EINVAL, "%s%s: %zu entries, but num_hidden_layers is %u", c->place, field, n,
                        reading->n_layers);
        return;
    }
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        const json_t *entry = json_array_get(list, i % n);
        reading->letters[i] = letter_of_entry(reading, field, entry);
        if (!reading->letters[i]) {
            char *text = json_dumps(entry, JSON_ENCODE_ANY | JSON_COMPACT);
            kvb_config_fail(c, -EINVAL, "%s%s[%zu]: %.40s is not a layer of %s", c->place, field, i % n,
                            text ? text : "this", c->model_class);
            free(text);
            return;
        }
    }
}

/* Lays a string with a character for each layer (Nemotron-H: "M-M*E"), or one that repeats (EXAONE 4: "LLLG"). */
static void string_lay(kvb_model_reading *reading, const char *field, const char *pattern)
{
    static const struct {
        char sign, letter;
    } signs[] = {{'M', 'S'}, {'*', 'F'}, {'-', '-'}, {'E', '-'}, {'L', 'W'}, {'G', 'F'}};
    kvb_config_json *c = &reading->config;
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
            kvb_config_fail(c, -EINVAL, "%s%s: character %zu is not a layer of %s", c->place, field, i % n + 1,
                            c->model_class);
            return;
        }
        reading->letters[i] = letter;
    }
}

/* Lays a list of the numbers of layers with this letter, counted from `first`. The other layers keep their letters. */
static void indices_lay(kvb_model_reading *reading, const char *field, const json_t *list, uint32_t first, char letter,
                        bool once)
{
    kvb_config_json *c = &reading->config;

    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *entry = json_array_get(list, k);
        json_int_t i = json_is_integer(entry) ? json_integer_value(entry) - first : -1;
        if (i < 0 || i >= reading->n_layers || (once && reading->letters[i])) {
            kvb_config_fail(c, -EINVAL, "%s%s[%zu]: the number of a layer, from %u to %u and only once, was expected",
                            c->place, field, k, first, reading->n_layers - 1 + first);
            return;
        }
        reading->letters[i] = letter;
    }
}

/* Kimi and GLM-5-Next: two lists of numbers that together name every layer once. */
static void two_lists_lay(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    static const char full[] = "linear_attn_config.full_attn_layers", kda[] = "linear_attn_config.kda_layers";

    indices_lay(reading, full, kvb_config_list(c, full, 0), reading->family->lists_first, 'F', true);
    indices_lay(reading, kda, kvb_config_list(c, kda, 0), reading->family->lists_first, 'S', true);
    for (uint32_t i = 0; i < reading->n_layers; i++)
        if (!reading->letters[i])
            kvb_config_fail(c, -EINVAL, "%slinear_attn_config: layer %u is in neither full_attn_layers nor kda_layers",
                            c->place, i + reading->family->lists_first);
}

/* Lays the list of the file. False: it has none of the family's lists. */
static bool explicit_lay(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    char lists[192], field[KVB_NAME_BYTES];
    bool laid = false;

    snprintf(lists, sizeof lists, "layer_types %s", reading->family->lists ? reading->family->lists : "");
    for (const char *rest = lists; *rest;) {
        rest = kvb_names_next(rest, field);
        const json_t *value = kvb_config_find(c, field, NULL);
        if (!value || laid || json_is_integer(value)) /* a sliding_window_pattern that is a number is a period */
            continue;
        if (json_is_array(value) && json_array_size(value) == 0 && strcmp(field, "layer_types") != 0)
            continue; /* as in transformers: "list or default" */
        laid = true;
        snprintf(reading->letters_source, sizeof reading->letters_source, "%s%s", c->place, field);
        if (json_is_string(value))
            string_lay(reading, field, json_string_value(value));
        else if (strcmp(field, "linear_attn_config") == 0)
            two_lists_lay(reading);
        else if (!kvb_config_list(c, field, 0))
            break;
        else if (strcmp(field, "block_configs") == 0) { /* objects, which block_config_vary reads */
            if (kvb_config_list(c, field, reading->n_layers))
                memset(reading->letters, 'F', reading->n_layers);
        } else if (strcmp(field, "full_attn_idxs") == 0 || strcmp(field, "attn_layer_indices") == 0) {
            memset(reading->letters, 'S', reading->n_layers);
            indices_lay(reading, field, value, 0, 'F', false);
        } else if (strcmp(field, "local_layer_ids") == 0) {
            memset(reading->letters, 'F', reading->n_layers);
            indices_lay(reading, field, value, 0, 'W', false);
        } else
            list_lay(reading, field, value);
    }
    return laid;
}

static void rule_lay(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    kvb_config_fact period = {.value = family->period};

    snprintf(period.source, sizeof period.source, "%s's code", c->model_class);
    if (family->period_must && kvb_config_has(c, family->period_in))
        period = kvb_config_count(c, family->period_in);
    else if (family->period_must) /* names the list, which users know better than the period */
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
        bool full = !family->other || (period.value && i % period.value == offset) ||
                    (family->rest_full && period.value && i >= reading->n_layers / period.value * period.value);
        reading->letters[i] = full ? 'F' : family->other;
    }
    snprintf(reading->letters_source, sizeof reading->letters_source, "%s", period.source);
}

static void layers_lay(kvb_model_reading *reading)
{
    const kvb_layer_family *family = reading->family;

    /* the family knows these fields, even if a list comes first, or gives no layer a mixer */
    kvb_config_has(&reading->config, family->period_in);
    kvb_config_has(&reading->config, family->mamba ? family->mamba->state : NULL);
    if (!explicit_lay(reading))
        (family->lay ? family->lay : rule_lay)(reading);
    if (family->last_full && !reading->config.error)
        reading->letters[reading->n_layers - 1] = 'F';
}

/* ---- windows that are switched off, and shared rows ----------------------------------------------------------- */

static uint32_t letters_replace(kvb_model_reading *reading, char old, char letter)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < reading->n_layers; i++)
        if (reading->letters[i] == old) {
            reading->letters[i] = letter;
            n++;
        }
    return n;
}

/* Turns layers with their window switched off into F. */
static void window_settle(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    const kvb_layer_family *family = reading->family;
    const char *names = family->window_in ? family->window_in : "sliding_window sliding_window_size", *name;
    bool listed = strstr(reading->letters_source, "layer_types") != NULL;
    bool on = kvb_config_flag(c, "use_sliding_window", !family->window_off);
    const json_t *window = NULL;
    char text[KVB_CONFIG_SOURCE];

    if (!on) /* every family knows a sliding_window that is switched off */
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
        letters_replace(reading, 'W', 'F');
        return kvb_sized_model_note_add(reading, -1,
                                        on ? "sliding_window is absent or null" : "use_sliding_window is not true",
                                        "no sliding window");
    }
    uint64_t n = kvb_config_number(c, names);
    if (n == 0)
        return kvb_config_fail(c, -EINVAL, "%s%s: 0 tokens: a window of at least 1 was expected", c->place, text);
    if (reading->model->max_context && n >= reading->model->max_context)
        kvb_sized_model_note_add(reading, -1, "sliding_window, max_position_embeddings",
                                 "the window of %ju tokens limits no context of up to %ju", (uintmax_t)n,
                                 (uintmax_t)reading->model->max_context);
    if (family->window_from && !listed) {
        uint64_t from = kvb_config_count(c, family->window_from).value;
        for (uint32_t i = 0; i < reading->n_layers && i < from; i++)
            reading->letters[i] = reading->letters[i] == 'W' ? 'F' : reading->letters[i];
    }
}

static void chunk_settle(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;

    if (!strchr(reading->family->letters, 'C'))
        return;
    if (!kvb_config_has(c, "attention_chunk_size") && letters_replace(reading, 'C', 'F') > 0)
        kvb_sized_model_note_add(reading, -1, "attention_chunk_size is null", "no chunks");
}

/* Gemma 3n and 4: the last layers read the rows of earlier layers of their kind. Hunyuan: the layers of a group read
 * the rows of its first layer. */
static void sharing_settle(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;

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
        if (i >= reading->n_layers - last || (cla && i % factor != 0)) {
            if (!memchr(reading->letters, reading->letters[i], i))
                return kvb_config_fail(c, -EINVAL, "%snum_kv_shared_layers: no earlier layer has rows for layer %u",
                                       c->place, i);
            reading->letters[i] = (char)tolower((unsigned char)reading->letters[i]);
        }
    if (last)
        kvb_sized_model_note_add(reading, -1, "num_kv_shared_layers",
                                 "the last %ju layers read the rows of earlier ones", (uintmax_t)last);
    else if (cla && factor > 1)
        kvb_sized_model_note_add(reading, -1, "cla_share_factor", "one layer of %ju has rows, the others read them",
                                 (uintmax_t)factor);
}

/* ---- groups of equal layers --------------------------------------------------------------------------------- */

#define RUNS_MOST 5u /* runs of layer numbers in a note; more are "…" */

void kvb_sized_model_note_add(kvb_model_reading *reading, int group, const char *source, const char *format, ...)
{
    kvb_sized_model *model = reading->model;
    kvb_sized_model_note *notes = realloc(model->notes, (model->n_notes + 1) * sizeof *notes);
    va_list args;

    if (!notes)
        return kvb_config_fail(&reading->config, -ENOMEM, "no memory");
    model->notes = notes;
    notes += model->n_notes++;
    *notes = (kvb_sized_model_note){.group = group, .source = strdup(source)};
    va_start(args, format);
    if (vasprintf(&notes->text, format, args) < 0)
        notes->text = NULL;
    va_end(args);
    if (!notes->text || !notes->source)
        kvb_config_fail(&reading->config, -ENOMEM, "no memory");
}

/* memcmp is right: shapes are zeroed before they are filled, so their padding is equal. */
static bool is_same(const kvb_sized_group *a, const kvb_sized_group *b)
{
    size_t from = offsetof(kvb_sized_group, kind);

    return memcmp((const char *)a + from, (const char *)b + from, sizeof *a - from) == 0;
}

/* Finds the group of such layers, or makes it. */
static int group_find(kvb_model_reading *reading, const kvb_layer_shape *shape)
{
    kvb_sized_model *model = reading->model;

    for (size_t g = 0; g < model->n_groups; g++)
        if (is_same(&model->groups[g], &shape->group))
            return (int)g;
    kvb_sized_group *groups = realloc(model->groups, (model->n_groups + 1) * sizeof *groups);
    if (!groups) {
        kvb_config_fail(&reading->config, -ENOMEM, "no memory");
        return -1;
    }
    model->groups = groups;
    memcpy(&groups[model->n_groups], &shape->group, sizeof *groups);
    int group = (int)model->n_groups++;
    for (uint32_t f = 0; f < shape->n_facts; f++)
        kvb_sized_model_note_add(reading, group, shape->facts[f].fact.source, "%s = %ju", shape->facts[f].what,
                                 (uintmax_t)shape->facts[f].fact.value);
    return group;
}

static void layer_add(kvb_model_reading *reading, uint32_t layer, const kvb_layer_shape *shape, int member)
{
    int group = group_find(reading, shape);

    if (group >= 0)
        reading->model->groups[group].n++;
    reading->groups[member][layer] = (int16_t)group;
}

/* "0-4, 6-10, 12, …, 47" */
static void layers_tell(const kvb_model_reading *reading, int group, char *text, size_t bytes)
{
    uint32_t runs = 0, last = 0;

    *text = '\0';
    for (uint32_t i = 0; i < reading->n_layers; i++) {
        uint32_t from = i;
        while (i < reading->n_layers && (reading->groups[0][i] == group || reading->groups[1][i] == group))
            i++;
        if (i == from)
            continue;
        last = i - 1;
        if (runs++ < RUNS_MOST)
            kvb_list_add(text, bytes, ", ", last > from ? "%u-%u" : "%u", from, last);
    }
    if (runs > RUNS_MOST)
        kvb_list_add(text, bytes, ", ", "\xe2\x80\xa6, %u", last);
}

static void members_note(kvb_model_reading *reading)
{
    kvb_sized_model *model = reading->model;
    const char *vary_in = reading->family->vary_in;
    char layers[160];

    if (vary_in && kvb_config_has(&reading->config, vary_in))
        snprintf(reading->letters_source, sizeof reading->letters_source, "%s%s", reading->config.place, vary_in);
    for (size_t g = 0; g < model->n_groups; g++) {
        layers_tell(reading, (int)g, layers, sizeof layers);
        kvb_sized_model_note_add(reading, (int)g, reading->letters_source, "%u of %u layers: %s", model->groups[g].n,
                                 reading->n_layers, layers);
    }
}

/* Reads the shape of a layer with this letter. A layer B has two: attention (member 0) and a mixer (member 1). */
static void shape_read(kvb_model_reading *reading, char letter, int member, kvb_layer_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    if (letter == 'R' || letter == '-') {
        shape->group.kind = KVB_SIZED_NONE;
        shape->group.name = letter == 'R' ? "reads another layer's rows" : "feed-forward";
    } else if (letter == 'S' || member == 1)
        reading->family->mixer(reading, shape);
    else
        kvb_attention_read(reading, letter, shape);
}

static void layers_group(kvb_model_reading *reading)
{
    static const char all[] = "FWCSBR-";
    const kvb_layer_family *family = reading->family;
    kvb_layer_shape shapes[sizeof all - 1], second, varied;
    bool known[sizeof all - 1] = {false};

    memset(reading->groups, 0xff, sizeof reading->groups); /* -1 */
    for (uint32_t i = 0; i < reading->n_layers && !reading->config.error; i++) {
        bool reads = islower((unsigned char)reading->letters[i]);
        if (reads)
            reading->model
                ->groups[reading->groups[0][strchr(reading->letters, toupper(reading->letters[i])) - reading->letters]]
                .readers++;
        char letter = reads ? 'R' : reading->letters[i];
        size_t l = (size_t)(strchr(all, letter) - all);
        if (!known[l]) {
            shape_read(reading, letter, 0, &shapes[l]);
            known[l] = true;
            if (letter == 'B')
                shape_read(reading, letter, 1, &second);
        }
        memcpy(&varied, &shapes[l], sizeof varied);
        if (family->vary && strchr("FW", letter) && !reading->config.error)
            family->vary(reading, i, &varied);
        layer_add(reading, i, &varied, 0);
        bool two = letter == 'B';
        if (family->beside && strchr("FWS", letter) && !reading->config.error) {
            memset(&second, 0, sizeof second);
            family->beside(reading, i, &varied.group, &second);
            two = second.group.name != NULL;
        }
        if (two)
            layer_add(reading, i, &second, 1);
    }
    if (!reading->config.error)
        members_note(reading);
}

void kvb_layers_read(kvb_model_reading *reading)
{
    static void (*const steps[])(kvb_model_reading *) = {layers_lay, window_settle, chunk_settle, sharing_settle,
                                                         layers_group};

    for (size_t i = 0; i < sizeof steps / sizeof *steps && !reading->config.error; i++)
        steps[i](reading);
    if (!reading->config.error)
        kvb_config_unasked(&reading->config);
}
