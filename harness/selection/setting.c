/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of settings, and a greedy choice over a table of pairs that have met. */
#include "harness/selection/selection.h"

#include "harness/knobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/machine/team.h"
#include "workloads/values.h"

static const struct {
    const char *name;
    kvb_elem elem;
} outs[] = {{"f32", KVB_F32}, {"f16", KVB_F16}, {"bf16", KVB_BF16}};

bool kvb_out_parse(const char *name, kvb_elem *elem)
{
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++)
        if (!strcmp(outs[i].name, name)) {
            *elem = outs[i].elem;
            return true;
        }
    return false;
}

const char *kvb_out_name(kvb_elem elem)
{
    size_t i = 0;
    while (outs[i].elem != elem)
        i++;
    return outs[i].name;
}

/* ---- the axes ------------------------------------------------------------------------------------------------ */

#define MANY_CORES 16u /* more threads only make small calls slow */

static uint32_t threads_of(const char *word)
{
    return strcmp(word, "all") ? (uint32_t)strtoul(word, NULL, 10) : kvb_cores();
}

static bool has_cores(const kvb_model *model, const kvb_cache_type *cache, const char *word)
{
    (void)model, (void)cache;
    return strcmp(word, "all") ? threads_of(word) <= kvb_cores() : kvb_cores() > 2 && kvb_cores() <= MANY_CORES;
}

static bool has_pages(const kvb_model *model, const kvb_cache_type *cache, const char *word)
{
    (void)model, (void)word;
    return cache->flags & KVB_CACHE_PAGES;
}

static bool grows(const kvb_model *model, const kvb_cache_type *cache, const char *word)
{
    (void)model, (void)word;
    return !(cache->flags & KVB_CACHE_PREALLOCATES);
}

static bool finds_prompts(const kvb_model *model, const kvb_cache_type *cache, const char *word)
{
    (void)model, (void)word;
    return cache->flags & KVB_CACHE_PREFIX;
}

static bool attends(const kvb_model *model, const kvb_cache_type *cache, const char *word)
{
    uint32_t g = 0;
    (void)cache, (void)word;
    while (g < model->n_groups && kvb_group_scans(&model->groups[g]))
        g++;
    return g < model->n_groups;
}

static bool profile_fits(const kvb_model *model, const kvb_cache_type *cache, const char *word)
{
    const kvb_profile *profile = kvb_profile_find(word);
    bool fits = attends(model, cache, word);
    char why[256];
    for (uint32_t g = 0; fits && profile->supports && g < model->n_groups; g++)
        fits = kvb_group_scans(&model->groups[g]) || profile->supports(model, &model->groups[g], why, sizeof why);
    return fits;
}

static void threads_set(kvb_setting *s, const char *word)
{
    s->threads = threads_of(word);
}

static void page_set(kvb_setting *s, const char *word)
{
    s->page_cells = (uint32_t)strtoul(word, NULL, 10);
}

static void chunk_set(kvb_setting *s, const char *word)
{
    s->min_chunk = (uint32_t)strtoul(word, NULL, 10);
}

static void hash_set(kvb_setting *s, const char *word)
{
    s->hash_bits = (uint32_t)strtoul(word, NULL, 10);
}

static void softcap_set(kvb_setting *s, const char *word)
{
    s->logits.softcap = strtof(word, NULL);
}

static void sinks_set(kvb_setting *s, const char *word)
{
    (void)word;
    s->logits.sinks = true;
}

static void before_rope_set(kvb_setting *s, const char *word)
{
    (void)word;
    s->logits.before_rope = true;
}

static void scale_set(kvb_setting *s, const char *word)
{
    s->logits.scale = strtod(word, NULL);
}

static void out_set(kvb_setting *s, const char *word)
{
    kvb_out_parse(word, &s->out_elem);
}

static void deterministic_set(kvb_setting *s, const char *word)
{
    (void)word;
    s->deterministic = true;
}

static void values_set(kvb_setting *s, const char *word)
{
    s->values = word;
}

/* --values leaves out `flat`, which hides errors that others show. Single calls use the other profiles. */
const kvb_setting_axis kvb_setting_axes[KVB_SETTING_AXES] = {
    {"--threads", {"2", "all"}, .has_field = true, .of_outputs = true, .matters = has_cores, .set = threads_set},
    {"--page-cells", {"3", "48", "256"}, .matters = has_pages, .set = page_set},
    {"--min-chunk", {"8"}, .matters = grows, .set = chunk_set},
    {"--hash-bits", {"1"}, .matters = finds_prompts, .set = hash_set},
    {"--softcap",
     {"30", "5"},
     .of_truth = true,
     .of_kernel = true,
     .of_outputs = true,
     .matters = attends,
     .set = softcap_set},
    {"--sinks", {""}, .of_truth = true, .of_kernel = true, .of_outputs = true, .matters = attends, .set = sinks_set},
    {"--scale",
     {"1", "0.05"},
     .of_truth = true,
     .of_kernel = true,
     .of_outputs = true,
     .matters = attends,
     .set = scale_set},
    {"--out", {"f16", "bf16"}, .has_field = true, .of_kernel = true, .of_outputs = true, .set = out_set},
    {"--before-rope", {""}, .of_truth = true, .of_outputs = true, .matters = attends, .set = before_rope_set},
    {"--deterministic", {""}, .dear = true, .of_kernel = true, .of_outputs = true, .set = deterministic_set},
    {"--values",
     {"gaussian", "qwen", "peaked"},
     .of_truth = true,
     .of_outputs = true,
     .matters = profile_fits,
     .set = values_set},
};

kvb_setting kvb_setting_apply(const kvb_setting *usual, const uint8_t *choice)
{
    kvb_setting s = *usual;
    for (size_t a = 0; choice && a < KVB_SETTING_AXES; a++)
        if (choice[a])
            kvb_setting_axes[a].set(&s, kvb_setting_axes[a].words[choice[a] - 1]);
    return s;
}

static bool is_knob(const char *option)
{
    for (const kvb_knob *k = kvb_knobs_table; k->option.name; k++)
        if (!strcmp(k->option.name, option))
            return true;
    return false;
}

void kvb_setting_words(const uint8_t *choice, bool all, char *text, size_t bytes)
{
    for (size_t a = 1; choice && a < KVB_SETTING_AXES; a++) {
        const kvb_setting_axis *axis = &kvb_setting_axes[a];
        size_t used = strlen(text);
        if (!choice[a] || (axis->has_field && !all))
            continue;
        const char *word = axis->words[choice[a] - 1];
        const bool knob = is_knob(axis->option);
        snprintf(text + used, bytes - used, "%s%s%s%s%s", used ? " " : "", knob ? "--set " : "",
                 axis->option + (knob ? 2 : 0),
                 !*word ? ""
                 : knob ? "="
                        : " ",
                 word);
    }
}

#define VALUES (KVB_SETTING_WORDS + 1u) /* of an axis, with the run's own one */
#define PARTS  KVB_SETTLED_PARTS

uint64_t kvb_setting_bit(size_t axis, size_t value)
{
    _Static_assert(KVB_SETTING_AXES * VALUES <= KVB_SETTING_BITS, "a set of all values fits into its bits");
    return UINT64_C(1) << (axis * VALUES + value);
}

/* ---- the choice ---------------------------------------------------------------------------------------------- */

#define KERNEL_WEIGHS                                                                                                  \
    4u /* a value new to the kernel counts as so many new to other parts: some caches have fewer combinations than     \
        * there are pools and histories */
#define TRUTH_SHARED 3u /* combinations that share an oracle if they can: an oracle is costly */

/* The pairs that have met: values of axes with parts of combinations, and with values of other axes. */
typedef struct meetings {
    size_t first[PARTS]; /* index of the first history, kernel, cache, pair of pools among all parts */
    bool *parts;         /* [parts][axes * VALUES] */
    uint64_t values[KVB_SETTING_AXES * VALUES];
} meetings;

static bool can_have(const kvb_settled *s, size_t axis, size_t value)
{
    return !value || s->allowed & kvb_setting_bit(axis, value);
}

static bool *part_met(const meetings *m, const kvb_settled *s, size_t part, size_t axis, size_t value)
{
    return &m->parts[(m->first[part] + s->parts[part]) * KVB_SETTING_AXES * VALUES + axis * VALUES + value];
}

/* Counts the pairs that would meet for the first time if the combination had this value. Only the axes before this one
 * have been chosen. */
static uint32_t news_count(const meetings *m, const kvb_settled *s, size_t axis, size_t value)
{
    uint32_t n = 0;
    for (size_t part = 0; part < PARTS; part++)
        n += *part_met(m, s, part, axis, value) ? 0 : part == KVB_SETTLED_KERNEL ? KERNEL_WEIGHS : 1;
    for (size_t b = 0; b < axis; b++)
        n += !(m->values[axis * VALUES + value] & kvb_setting_bit(b, s->choice[b]));
    return n;
}

static void value_take(meetings *m, const kvb_settled *s, size_t axis, size_t value)
{
    s->choice[axis] = (uint8_t)value;
    for (size_t part = 0; part < PARTS; part++)
        *part_met(m, s, part, axis, value) = true;
    for (size_t b = 0; b < axis; b++)
        m->values[axis * VALUES + value] |= kvb_setting_bit(b, s->choice[b]);
}

/* splitmix64 */
static uint64_t scatter(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Gives n combinations the value with the most new pairs; those that cannot have it keep the run's own. */
static void value_choose(meetings *m, const kvb_settled *s, size_t n, size_t axis)
{
    const uint64_t chance =
        scatter(s->block * KVB_SETTING_AXES + axis + ((uint64_t)s->parts[1] << 32) + ((uint64_t)s->parts[2] << 48));
    size_t best = 0, words = 0;
    uint32_t most = 0;
    for (size_t turn = 1; turn <= VALUES; turn++) { /* the run's own value, 0, comes last */
        const size_t v = turn % VALUES;
        uint32_t news = 0;
        for (size_t i = 0; i < n; i++)
            news += can_have(&s[i], axis, v) ? news_count(m, &s[i], axis, v) : 0;
        if (news > most) {
            most = news;
            best = v;
        }
    }
    while (words < KVB_SETTING_WORDS && kvb_setting_axes[axis].words[words])
        words++;
    best = most ? best : chance & (kvb_setting_axes[axis].dear ? 15 : 1) ? 0 : 1 + (chance >> 4) % words;
    for (size_t i = 0; i < n; i++)
        value_take(m, &s[i], axis, can_have(&s[i], axis, best) ? best : 0);
}

int kvb_settings_cover(kvb_settled *list, size_t n)
{
    meetings m = {.parts = NULL};
    size_t n_parts = 0;
    for (size_t part = 0; part < PARTS; part++) {
        size_t most = 0;
        for (size_t i = 0; i < n; i++)
            most = most > list[i].parts[part] + 1 ? most : list[i].parts[part] + 1;
        m.first[part] = n_parts;
        n_parts += most;
    }
    m.parts = calloc((n_parts + 1) * KVB_SETTING_AXES * VALUES, sizeof *m.parts);
    if (!m.parts)
        return -ENOMEM;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && end - i < TRUTH_SHARED && list[end].block == list[i].block;)
            end++;
        for (size_t axis = 0; axis < KVB_SETTING_AXES; axis++)
            if (kvb_setting_axes[axis].of_truth)
                value_choose(&m, &list[i], end - i, axis);
            else
                for (size_t j = i; j < end; j++)
                    value_choose(&m, &list[j], 1, axis);
    }
    free(m.parts);
    return 0;
}
