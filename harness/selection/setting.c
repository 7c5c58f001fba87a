/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of settings, and a greedy choice over a table of pairs that have met. */
#include "harness/selection/selection.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/knobs.h"
#include "harness/machine/team.h"
#include "harness/replay/replay.h"
#include "workloads/rng.h"
#include "workloads/values.h"

static const char *const outs[] = {[KVB_F32] = "f32", [KVB_F16] = "f16", [KVB_BF16] = "bf16"};

bool kvb_out_parse(const char *name, kvb_elem *elem)
{
    *elem = KVB_F32;
    while (*elem <= KVB_BF16 && strcmp(outs[*elem], name))
        ++*elem;
    return *elem <= KVB_BF16;
}

const char *kvb_out_name(kvb_elem elem)
{
    return outs[elem];
}

/* ---- the axes ------------------------------------------------------------------------------------------------ */

#define OF_LOGITS          (KVB_AXIS_TRUTH | KVB_AXIS_OUTPUTS | KVB_AXIS_ATTENDS)
#define SETS(TYPE, MEMBER) .sets = KVB_SETS_##TYPE, .member = offsetof(kvb_setting, MEMBER)

/* --values leaves out `flat`, which hides errors that others show. Single calls use the other profiles. */
const kvb_setting_axis kvb_setting_axes[KVB_SETTING_AXES] = {
    {"--threads", {"2", "all"}, SETS(COUNT, threads), KVB_AXIS_FIELD | KVB_AXIS_OUTPUTS},
    {"--page-cells", {"3", "48", "256"}, SETS(COUNT, page_cells), .cache_has = KVB_CACHE_PAGES},
    {"--min-chunk", {"8"}, SETS(COUNT, min_chunk), .cache_has_no = KVB_CACHE_PREALLOCATES},
    {"--growth", {"exact", "reserve"}, SETS(GROWTH, growth), .cache_has_no = KVB_CACHE_PREALLOCATES},
    {"--hash-bits", {"1"}, SETS(COUNT, hash_bits), .cache_has = KVB_CACHE_PREFIX},
    {"--prefix-bytes", {"60000"}, SETS(COUNT, prefix_bytes), .cache_has = KVB_CACHE_PREFIX},
    {"--restart", {""}, SETS(FLAG, restart), KVB_AXIS_FILE, .cache_has = KVB_CACHE_SAVES},
    {"--softcap", {"30", "5"}, SETS(FLOAT, logits.softcap), OF_LOGITS | KVB_AXIS_KERNEL},
    {"--sinks", {""}, SETS(FLAG, logits.sinks), OF_LOGITS | KVB_AXIS_KERNEL},
    {"--scale", {"1", "0.05"}, SETS(DOUBLE, logits.scale), OF_LOGITS | KVB_AXIS_KERNEL},
    {"--out", {"f16", "bf16"}, SETS(OUT, out_elem), KVB_AXIS_FIELD | KVB_AXIS_KERNEL | KVB_AXIS_OUTPUTS},
    {"--before-rope", {""}, SETS(FLAG, logits.before_rope), OF_LOGITS},
    {"--deterministic", {""}, SETS(FLAG, deterministic), KVB_AXIS_DEAR | KVB_AXIS_KERNEL | KVB_AXIS_OUTPUTS},
    {"--values", {"gaussian", "qwen", "peaked"}, SETS(PROFILE, values), OF_LOGITS},
};

#define MANY_CORES  16u    /* more threads only make small calls slow */
#define FILE_TOKENS 16384u /* a longer history does not restart: its file would be large */

static uint32_t count_of(const char *word)
{
    return strcmp(word, "all") ? (uint32_t)strtoul(word, NULL, 10) : kvb_cores();
}

bool kvb_setting_matters(const kvb_setting_axis *axis, const char *word, const kvb_trace *trace,
                         const kvb_cache_type *cache, const kvb_pool_pair *pools)
{
    const kvb_model *model = &trace->header.model;
    const kvb_profile *profile = axis->sets == KVB_SETS_PROFILE ? kvb_profile_find(word) : NULL;
    bool matters = (cache->flags & (axis->cache_has | axis->cache_has_no)) == axis->cache_has &&
                   (!(axis->traits & KVB_AXIS_ATTENDS) || kvb_model_layers(model) & KVB_LAYERS_ATTEND) &&
                   (!(axis->traits & KVB_AXIS_FILE) ||
                    (trace->needs.tokens <= FILE_TOKENS && kvb_restart_event(trace) < trace->n_events &&
                     pools->k->raw_bytes && pools->v->raw_bytes));
    char why[256];
    if (axis->member == offsetof(kvb_setting, threads))
        return strcmp(word, "all") ? count_of(word) <= kvb_cores() : kvb_cores() > 2 && kvb_cores() <= MANY_CORES;
    return matters && (!profile || !kvb_profile_supports(profile, model, why, sizeof why));
}

static void word_set(kvb_setting *s, const kvb_setting_axis *axis, const char *word)
{
    void *member = (char *)s + axis->member;
    switch (axis->sets) {
    case KVB_SETS_COUNT:
        *(uint32_t *)member = count_of(word);
        break;
    case KVB_SETS_FLAG:
        *(bool *)member = true;
        break;
    case KVB_SETS_FLOAT:
        *(float *)member = strtof(word, NULL);
        break;
    case KVB_SETS_DOUBLE:
        *(double *)member = strtod(word, NULL);
        break;
    case KVB_SETS_OUT:
        kvb_out_parse(word, member);
        break;
    case KVB_SETS_PROFILE:
        *(const char **)member = word;
        break;
    case KVB_SETS_GROWTH:
        for (int g = 0; g < KVB_GROWTHS; g++)
            if (!strcmp(kvb_growth_names[g], word))
                *(kvb_growth *)member = (kvb_growth)g;
        break;
    }
}

kvb_setting kvb_setting_apply(const kvb_setting *usual, const uint8_t *choice)
{
    kvb_setting s = *usual;
    for (size_t a = 0; choice && a < KVB_SETTING_AXES; a++)
        if (choice[a])
            word_set(&s, &kvb_setting_axes[a], kvb_setting_axes[a].words[choice[a] - 1]);
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
        if (!choice[a] || (axis->traits & KVB_AXIS_FIELD && !all))
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
#define TRUTH_SHARED 3u /* combinations that share an oracle if they can, if it is not dear */

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

/* Gives n combinations the value with the most new pairs; those that cannot have it keep the run's own. */
static void value_choose(meetings *m, const kvb_settled *s, size_t n, size_t axis)
{
    const uint64_t chance = kvb_rng_bits(
        s->block * KVB_SETTING_AXES + axis + ((uint64_t)s->parts[1] << 32) + ((uint64_t)s->parts[2] << 48), 0);
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
    best = most                                                                ? best
           : chance & (kvb_setting_axes[axis].traits & KVB_AXIS_DEAR ? 15 : 1) ? 0
                                                                               : 1 + (chance >> 4) % words;
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
        for (end = i; end < n && (list[i].dear || end - i < TRUTH_SHARED) && list[end].block == list[i].block;)
            end++;
        for (size_t axis = 0; axis < KVB_SETTING_AXES; axis++)
            if (kvb_setting_axes[axis].traits & KVB_AXIS_TRUTH)
                value_choose(&m, &list[i], end - i, axis);
            else
                for (size_t j = i; j < end; j++)
                    value_choose(&m, &list[j], 1, axis);
    }
    free(m.parts);
    return 0;
}
