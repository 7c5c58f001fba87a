/* SPDX-License-Identifier: Apache-2.0 */
/* The greedy choice of calls. */
#include "harness/calls/pairwise.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "workloads/array.h"
#include "workloads/files.h"

/* ---- points and their words -------------------------------------------------------------------------------------- */

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
    const char *word = kvb_point_word(space, point, axis), *end = word;
    double whole = 0;
    for (; *end >= '0' && *end <= '9'; end++) /* asked for each point that is tried: faster than strtod() */
        whole = 10 * whole + (*end - '0');
    return *end ? strtod(word, NULL) : whole;
}

void kvb_point_text(const kvb_space *space, const kvb_point *point, char text[KVB_CALL_TEXT])
{
    text[0] = '\0';
    for (uint32_t a = 0; a < space->n_axes; a++)
        if (point->at[a])
            kvb_list_add(text, KVB_CALL_TEXT, ",", "%s=%s", space->axes[a].name, kvb_point_word(space, point, a));
}

/* "a, b, c": names of axes, or the values of one. */
static void known_list(const kvb_space *space, const kvb_call_axis *axis, char *text, size_t bytes)
{
    const uint32_t n = axis ? kvb_axis_values(axis) : space->n_axes;
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++)
        kvb_list_add(text, bytes, ", ", "%s", axis ? axis->values[i] : space->axes[i].name);
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
    if (!value)
        return kvb_why_set(-EINVAL, why, why_bytes, "expected AXIS=VALUE, found '%s'", word);
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

#define TRIES 40u  /* random points to try for a pair that no base takes */
#define BASES 24u  /* most points of kvb_space.bases, with the simplest call */
#define EASY  3e6  /* random calls that cost n times this are n * n times as rare */
#define CHEAP 20e6 /* pairs that have a cheaper call come first */
/* Before these come so many calls that cost even less: nearly as many pairs meet in them, in a fraction of the time. */
#define CHEAPEST       4e6
#define CHEAPEST_CALLS 400u
#define SWEEPS         2u /* over the axes of a call */

typedef struct choice {
    const kvb_call_subject *subject;
    const kvb_space *space;
    kvb_point_cover *cover;
    uint32_t first[KVB_CALL_AXES + 1]; /* number of an axis' first value among all values */
    uint32_t n_values;
    uint8_t *met; /* [values][values] 1: they meet in a chosen call, 2: no call with both was found */
    kvb_point bases[BASES];
    uint32_t n_bases;
    uint64_t rng;
    size_t room;
} choice;

static uint8_t *met_of(const choice *c, uint32_t a, uint32_t i, uint32_t b, uint32_t j)
{
    const uint32_t u = c->first[a] + i, v = c->first[b] + j;
    return &c->met[u < v ? (size_t)u * c->n_values + v : (size_t)v * c->n_values + u];
}

static bool fits(const kvb_call_subject *subject, const kvb_point *p)
{
    char why[256];
    return subject->fits(subject, p, why, sizeof why);
}

static double cost_of(const choice *c, const kvb_point *p)
{
    return c->subject->cost(c->subject, p);
}

static uint32_t values_of(const choice *c, uint32_t axis)
{
    return c->first[axis + 1] - c->first[axis];
}

static uint32_t mutes_of(const choice *c, const kvb_point *p)
{
    return c->subject->mutes ? c->subject->mutes(c->subject, p) : 0;
}

/* Does a call with these mutes test the values of two axes together? a = b: does it test the value of this axis? */
static bool shows(uint32_t mutes, uint32_t a, uint32_t b)
{
    return (mutes & ~(1u << a) & ~(1u << b)) == 0;
}

/* New pairs with this axis' value. */
static uint32_t axis_gain(const choice *c, const kvb_point *p, uint32_t axis)
{
    const uint32_t mutes = mutes_of(c, p);
    uint32_t gain = 0;
    for (uint32_t b = 0; b < c->space->n_axes; b++)
        gain += b != axis && *met_of(c, axis, p->at[axis], b, p->at[b]) == 0 && shows(mutes, axis, b);
    return gain;
}

/* Does the call test the values of the held axes? */
static bool held_shows(const choice *c, const kvb_point *p, const bool held[KVB_CALL_AXES])
{
    uint32_t mutes = mutes_of(c, p);
    for (uint32_t a = 0; a < c->space->n_axes; a++)
        mutes &= ~((uint32_t)held[a] << a);
    return mutes == 0;
}

/* Sets each axis that is not held to the value that gives the call the most new pairs for its cost. The call may cost
 * `dearest`, or what it cost before. */
static void point_improve(choice *c, kvb_point *p, const bool held[KVB_CALL_AXES], double dearest)
{
    const uint32_t n = c->space->n_axes;
    const uint32_t start = kvb_draw_below(&c->rng, n);
    dearest = fmax(dearest, cost_of(c, p));
    for (uint32_t k = 0; k < SWEEPS * n; k++) {
        const uint32_t axis = (start + k) % n;
        if (held[axis])
            continue;
        kvb_point best = *p;
        uint32_t twice = 0; /* each new pair is counted for both of its axes */
        for (uint32_t a = 0; a < n; a++)
            twice += axis_gain(c, p, a);
        const uint32_t own = axis_gain(c, p, axis), rest = twice / 2 - own;
        double most = (rest + own) / cost_of(c, p);
        for (uint32_t v = 0; v < values_of(c, axis); v++) {
            kvb_point other = *p;
            other.at[axis] = (uint8_t)v;
            const double cost = cost_of(c, &other), worth = (rest + axis_gain(c, &other, axis)) / cost;
            if (worth > most && cost <= dearest && held_shows(c, &other, held) && fits(c->subject, &other)) {
                most = worth;
                best = other;
            }
        }
        *p = best;
    }
}

/* Finds a point that fits: one of the bases, or a base with random values on some axes. held: axes that keep *p's
 * values. */
static bool point_find(choice *c, const bool held[KVB_CALL_AXES], kvb_point *p)
{
    const kvb_point wanted = *p;
    for (uint32_t try = 0; try < c->n_bases + TRIES; try++) {
        const bool random = try >= c->n_bases;
        const kvb_point *base = &c->bases[random ? kvb_draw_below(&c->rng, c->n_bases) : try];
        const uint32_t some = 2 + kvb_draw_below(&c->rng, 7);
        for (uint32_t a = 0; a < c->space->n_axes; a++)
            p->at[a] = held[a] ? wanted.at[a]
                       : random && kvb_draw_below(&c->rng, c->space->n_axes) < some
                           ? (uint8_t)kvb_draw_below(&c->rng, values_of(c, a))
                           : base->at[a];
        if (held_shows(c, p, held) && fits(c->subject, p))
            return true;
    }
    *p = wanted;
    return false;
}

static int point_take(choice *c, const kvb_point *p)
{
    kvb_point_cover *cover = c->cover;
    if (kvb_array_reserve(&cover->points, &c->room, cover->n + 1, sizeof *cover->points))
        return -ENOMEM;
    const uint32_t mutes = mutes_of(c, p);
    cover->points[cover->n++] = *p;
    for (uint32_t a = 0; a < c->space->n_axes; a++) {
        if (shows(mutes, a, a))
            cover->state[a][p->at[a]] = 2;
        for (uint32_t b = a + 1; b < c->space->n_axes; b++)
            if (shows(mutes, a, b))
                *met_of(c, a, p->at[a], b, p->at[b]) = 1;
    }
    return 0;
}

/* Finds a call in which the values of the held axes meet, and takes it if it costs at most `dearest`. 1: found; 0: not
 * found; -ENOMEM. */
static int call_add(choice *c, kvb_point p, const bool held[KVB_CALL_AXES], double dearest)
{
    if (!point_find(c, held, &p))
        return 0;
    if (dearest >= CHEAP || cost_of(c, &p) <= dearest)
        point_improve(c, &p, held, fmin(dearest, CHEAP));
    if (cost_of(c, &p) > dearest)
        return 1;
    return point_take(c, &p) ? -ENOMEM : 1;
}

static bool is_full(const choice *c, size_t most)
{
    return most && c->cover->n >= most;
}

/* Covers every value once. Marks values that some call can have but no chosen one has. */
static int values_cover(choice *c, size_t most)
{
    for (uint32_t a = 0; a < c->space->n_axes; a++)
        for (uint32_t i = 0; i < values_of(c, a); i++) {
            bool held[KVB_CALL_AXES] = {false};
            kvb_point p = {{0}};
            held[a] = true;
            p.at[a] = (uint8_t)i;
            if (c->cover->state[a][i] == 2)
                continue;
            const int found = call_add(c, p, held, is_full(c, most) ? 0 : INFINITY);
            if (found < 0)
                return found;
            if (found && c->cover->state[a][i] == 0)
                c->cover->state[a][i] = 1;
        }
    return 0;
}

/* Covers every pair of values for which a call that costs at most `dearest` is found. */
static int pairs_cover(choice *c, size_t most, double dearest)
{
    int found = 0;
    for (uint32_t a = 0; a < c->space->n_axes; a++)
        for (uint32_t i = 0; i < values_of(c, a); i++)
            for (uint32_t b = a + 1; b < c->space->n_axes && c->cover->state[a][i]; b++)
                for (uint32_t j = 0; j < values_of(c, b); j++) {
                    bool held[KVB_CALL_AXES] = {false};
                    kvb_point p = {{0}};
                    uint8_t *met = met_of(c, a, i, b, j);
                    held[a] = held[b] = true;
                    p.at[a] = (uint8_t)i;
                    p.at[b] = (uint8_t)j;
                    if (*met || !c->cover->state[b][j])
                        continue;
                    if (is_full(c, most) && dearest < INFINITY) /* which other pairs exist is found at the end */
                        return 0;
                    found = call_add(c, p, held, is_full(c, most) ? 0 : dearest);
                    if (found < 0)
                        return found;
                    if (!found)
                        *met = 2;
                }
    return 0;
}

static void cover_count(choice *c)
{
    kvb_point_cover *cover = c->cover;
    for (uint32_t a = 0; a < c->space->n_axes; a++)
        for (uint32_t i = 0; i < values_of(c, a); i++) {
            cover->values_of += cover->state[a][i] > 0;
            cover->values += cover->state[a][i] == 2;
            for (uint32_t b = a + 1; b < c->space->n_axes; b++)
                for (uint32_t j = 0; j < values_of(c, b); j++) {
                    const bool possible = cover->state[a][i] && cover->state[b][j] && *met_of(c, a, i, b, j) != 2;
                    cover->pairs_of += possible;
                    cover->pairs += possible && *met_of(c, a, i, b, j) == 1;
                }
        }
}

/* Takes the bases that fit, unchanged: no value of another axis hides a fault at theirs. */
static int bases_take(choice *c, size_t most)
{
    int error = 0;
    for (uint32_t i = 1; i < c->n_bases && !error && !is_full(c, most); i++)
        error = fits(c->subject, &c->bases[i]) ? point_take(c, &c->bases[i]) : 0;
    return error;
}

static const kvb_call_subject *sorted;

static int by_cost(const void *a, const void *b)
{
    const double x = sorted->cost(sorted, a), y = sorted->cost(sorted, b);
    return (x > y) - (x < y);
}

int kvb_points_choose(const kvb_call_subject *subject, uint64_t seed, size_t most, bool only_cheap,
                      kvb_point_cover *cover)
{
    const kvb_space *space = subject->space;
    choice c = {.subject = subject, .space = space, .cover = cover, .rng = seed};
    char why[256];
    *cover = (kvb_point_cover){.points = NULL};
    for (uint32_t a = 0; a < space->n_axes; a++)
        c.first[a + 1] = c.first[a] + kvb_axis_values(&space->axes[a]);
    c.n_values = c.first[space->n_axes];
    c.n_bases = 1; /* the simplest call */
    for (uint32_t i = 0; space->bases && space->bases[i] && c.n_bases < BASES; i++)
        if (!kvb_point_parse(space, space->bases[i], &c.bases[c.n_bases], why, sizeof why))
            c.n_bases++;
    c.met = calloc((size_t)c.n_values * c.n_values + 1, 1);
    if (!c.met)
        return -ENOMEM;
    int error = bases_take(&c, most);
    if (!error)
        error = values_cover(&c, most);
    if (!error)
        error = pairs_cover(&c, most && most < CHEAPEST_CALLS ? most : CHEAPEST_CALLS, CHEAPEST);
    if (!error)
        error = pairs_cover(&c, most, CHEAP);
    if (!error)
        error =
            pairs_cover(&c, only_cheap ? 1 : most, INFINITY); /* only_cheap: takes none, but finds which pairs exist */
    cover_count(&c);
    free(c.met);
    sorted = subject;
    if (cover->n)
        qsort(cover->points, cover->n, sizeof *cover->points, by_cost);
    return error;
}

bool kvb_point_draw(const kvb_call_subject *subject, uint64_t *state, kvb_point *point)
{
    const kvb_space *space = subject->space;
    for (uint32_t try = 0; try < 100 * TRIES; try++) {
        /* some axes keep their simplest value: if all are random, few points fit */
        const uint32_t eighths = 1 + kvb_draw_below(state, 8);
        for (uint32_t a = 0; a < space->n_axes; a++)
            point->at[a] =
                (uint8_t)(kvb_draw_below(state, 8) < eighths ? kvb_draw_below(state, kvb_axis_values(&space->axes[a]))
                                                             : 0);
        if (fits(subject, point) &&
            kvb_draw_below(state, 1u << 20) < (1u << 20) * pow(EASY / subject->cost(subject, point), 2))
            return true;
    }
    return false;
}
