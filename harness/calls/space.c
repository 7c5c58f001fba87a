/* SPDX-License-Identifier: Apache-2.0 */
/* Points and their words. */
#include "harness/calls/space.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/near_name.h"
#include "workloads/rng.h"

uint32_t kvb_axis_values(const kvb_call_axis *axis)
{
    uint32_t n = 0;
    while (axis->values[n])
        n++;
    return n;
}

const char *kvb_point_word(const kvb_space *space, const kvb_point *point, uint32_t axis)
{
    return space->axes[axis].values[point->at[axis]];
}

double kvb_point_number(const kvb_space *space, const kvb_point *point, uint32_t axis)
{
    return strtod(kvb_point_word(space, point, axis), NULL);
}

void kvb_point_text(const kvb_space *space, const kvb_point *point, char text[KVB_CALL_TEXT])
{
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t a = 0; a < space->n_axes && n < KVB_CALL_TEXT; a++)
        if (point->at[a])
            n += (size_t)snprintf(text + n, KVB_CALL_TEXT - n, "%s%s=%s", n ? "," : "", space->axes[a].name,
                                  kvb_point_word(space, point, a));
}

/* "a, b, c": names of axes, or the values of one. */
static void known_list(const kvb_space *space, const kvb_call_axis *axis, char *text, size_t bytes)
{
    const uint32_t n = axis ? kvb_axis_values(axis) : space->n_axes;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "",
                                 axis ? axis->values[i] : space->axes[i].name);
}

static int unknown_say(const kvb_space *space, const kvb_call_axis *axis, const char *word, char *why, size_t why_bytes)
{
    char known[1024], what[96];
    known_list(space, axis, known, sizeof known);
    snprintf(what, sizeof what, axis ? "unknown value of %s" : "unknown axis of %s calls",
             axis ? axis->name : space->name);
    return kvb_name_unknown(what, word, known, why, why_bytes);
}

/* One "axis=value". */
static int value_parse(const kvb_space *space, char *word, kvb_point *point, char *why, size_t why_bytes)
{
    char *value = strchr(word, '=');
    uint32_t a = 0, v = 0;
    if (!value) {
        snprintf(why, why_bytes, "expected AXIS=VALUE, found '%s'", word);
        return -EINVAL;
    }
    *value++ = '\0';
    while (a < space->n_axes && strcmp(space->axes[a].name, word))
        a++;
    if (a == space->n_axes)
        return unknown_say(space, NULL, word, why, why_bytes);
    while (space->axes[a].values[v] && strcmp(space->axes[a].values[v], value))
        v++;
    if (!space->axes[a].values[v])
        return unknown_say(space, &space->axes[a], value, why, why_bytes);
    point->at[a] = (uint8_t)v;
    return 0;
}

int kvb_point_parse(const kvb_space *space, const char *text, kvb_point *point, char *why, size_t why_bytes)
{
    char *copy = strdup(text), *rest = copy;
    int error = copy ? 0 : -ENOMEM;
    *point = (kvb_point){{0}};
    for (char *word; !error && (word = strsep(&rest, ","));)
        if (*word)
            error = value_parse(space, word, point, why, why_bytes);
    free(copy);
    return error;
}

uint64_t kvb_point_key(const kvb_space *space, const kvb_point *point, uint64_t seed)
{
    char text[KVB_CALL_TEXT];
    uint64_t key = seed;
    kvb_point_text(space, point, text);
    for (const char *c = text; *c; c++)
        key = kvb_rng_key(key, (uint8_t)*c);
    return key;
}
