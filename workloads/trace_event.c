/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event and its line: keys, types and ranges. A table gives the fields of each kind of line to reader and writer.
 * What is alive is not known here (history.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"
#include "workloads/trace.h"
#include "workloads/trace_internal.h"
#include "workloads/files.h"

/* ---- events and sets of small numbers in words ----------------------------------------------------------- */

#define MOST_RANGES 6u /* most ranges of a set that are listed */

static bool has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> i % 64 & 1;
}

/* "queries" of "query". */
static void plural(const char *what, char text[32])
{
    const size_t n = strlen(what), stem = n - (what[n - 1] == 'y');
    snprintf(text, 32, "%.*s%s", (int)stem, what, what[stem] ? "ies" : "s");
}

void kvb_set_words(const char *what, const uint64_t *set, uint32_t n, char *text, size_t bytes)
{
    char list[160] = "", several[32];
    size_t used = 0, ranges = 0, members = 0;
    for (uint32_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && has(set, end); end++)
            members++;
        if (end == i)
            continue;
        const char *form = end - i == 1 ? "%s%u" : end - i == 2 ? "%s%u, %u" : "%s%u to %u";
        if (ranges < MOST_RANGES)
            used += (size_t)snprintf(list + used, sizeof list - used, form, ranges ? ", " : "", i, end - 1);
        else if (ranges == MOST_RANGES)
            used += (size_t)snprintf(list + used, sizeof list - used, ", …");
        ranges++;
    }
    plural(what, several);
    snprintf(text, bytes, "%s %s", members == 1 ? what : several, list);
}

void kvb_set_pattern(const char *what, const uint64_t *set, uint32_t n, char *text, size_t bytes)
{
    static const char *const endings[] = {"th", "st", "nd", "rd"};
    uint32_t members = 0, first = 0, last = 0, step = 0;
    char several[32];
    bool even = true; /* members are equally far apart */
    for (uint32_t i = 0; i < n; i++) {
        if (!has(set, i))
            continue;
        first = members ? first : i;
        even &= members < 2 || i - last == step;
        step = members ? i - last : 0;
        last = i;
        members++;
    }
    plural(what, several);
    const char *ending = endings[step % 10 <= 3 && step / 10 % 10 != 1 ? step % 10 : 0];
    if (members == n)
        snprintf(text, bytes, "every %s", what);
    else if (members == 1 && last + 1 == n)
        snprintf(text, bytes, "the last %s", what);
    else if (members > 1 && even && step > 1 && first < step && n - last <= step)
        snprintf(text, bytes, "every %u%s %s", step, ending, what);
    else if (members == 1 || (even && step == 1))
        kvb_set_words(what, set, n, text, bytes);
    else
        snprintf(text, bytes, "%u of %u %s", members, n, several);
}

void kvb_event_words(const kvb_event *e, char *text, size_t bytes)
{
    char what[256] = "", range[64] = "", refused[48] = "";
    const kvb_event_kind kind = e->kind == KVB_EVENT_REFUSED ? e->call : e->kind;
    uint64_t set[KVB_TRACE_MAX_SEQS / 64] = {0};
    if (e->kind == KVB_EVENT_REFUSED)
        snprintf(refused, sizeof refused, ", to be refused with %s", kvb_refusal_name(e->error));
    if (e->seq) {
        for (uint32_t i = 0; i < e->n; i++)
            set[e->seq[i] / 64] |= UINT64_C(1) << e->seq[i] % 64;
        kvb_set_words("sequence", set, KVB_TRACE_MAX_SEQS, what, sizeof what);
    }
    if (e->p1 != KVB_TRACE_POS_END)
        snprintf(range, sizeof range, ", positions %u to %u", e->p0, e->p1 - 1);
    else if (e->p0)
        snprintf(range, sizeof range, ", positions from %u on", e->p0);
    const char *name = kvb_event_kind_name(kind), *s = e->n == 1 ? "" : "s";
    int used = snprintf(text, bytes, "line %" PRIu64 ": %s", e->line, name);
    text += used;
    bytes -= (size_t)used;
    switch (kind) {
    case KVB_EVENT_COMMIT:
        snprintf(what, sizeof what, "sequence %u", e->src);
        snprintf(text, bytes, " of %u node%s in %s%s", e->n, s, what, refused);
        break;
    case KVB_EVENT_PROPOSE:
        snprintf(text, bytes, " of %u node%s in %s%s", e->n, s, what, refused);
        break;
    case KVB_EVENT_SEQ_CP:
        snprintf(text, bytes, " from sequence %u to %u%s%s", e->src, e->dst, range, refused);
        break;
    case KVB_EVENT_SEQ_RM:
    case KVB_EVENT_SEQ_KEEP:
        snprintf(text, bytes, " of sequence %u%s%s", e->src, range, refused);
        break;
    case KVB_EVENT_SEQ_ADD:
        snprintf(text, bytes, " of %+d to sequence %u%s%s", (int)e->delta, e->src, range, refused);
        break;
    case KVB_EVENT_SEQ_DIV:
        snprintf(text, bytes, " by %u of sequence %u%s%s", e->divisor, e->src, range, refused);
        break;
    case KVB_EVENT_REWIND:
        snprintf(text, bytes, " to %u token%s%s", e->len, e->len == 1 ? "" : "s", refused);
        break;
    case KVB_EVENT_REORDER:
        snprintf(text, bytes, " of %u sequence%s%s", e->n, s, refused);
        break;
    case KVB_EVENT_SAVE:
    case KVB_EVENT_LOAD:
        snprintf(what, sizeof what, "sequence %u", e->src);
        snprintf(text, bytes, " of %s %s slot %u%s", e->src == KVB_TRACE_ALL ? "all" : what,
                 kind == KVB_EVENT_SAVE ? "in" : "from", e->slot, refused);
        break;
    case KVB_EVENT_CLEAR:
    case KVB_EVENT_DEFRAG:
        break;
    default:
        snprintf(text, bytes, " of %u token%s in %s%s", e->n, s, what, refused);
    }
}

/* ---- what the lines look like ------------------------------------------------------------------------ */

/* Members of an event that are filled by one field each: arrays of 32-bit numbers, then single ones. */
#define ARRAYS(X)                                                                                                      \
    X(POS, pos) X(SEQ, seq) X(ACCEPTED, accepted) X(TOK, tok) X(PARENTS, parents) X(DSTS, dsts) X(SRCS, srcs)
#define NUMBERS(X)                                                                                                     \
    X(SRC, src) X(DST, dst) X(P0, p0) X(P1, p1) X(LEN, len) X(DELTA, delta) X(DIVISOR, divisor) X(SLOT, slot)
#define NAME(SLOT, MEMBER)   SLOT,
#define MEMBER(SLOT, MEMBER) [SLOT] = offsetof(kvb_event, MEMBER),

/* The place of a field: arrays first, then what fills no single member (the fields that prefill and fill have in place of
 * pos, seq and n, and the extra key); numbers last. */
typedef enum slot { ARRAYS(NAME) SEQ_ID, FROM, COUNT, REUSE, NUMBERS(NAME) SLOTS } slot;
#define N_ARRAYS (SRCS + 1)

static const size_t members[SLOTS + 1] = {ARRAYS(MEMBER) NUMBERS(MEMBER)}; /* 0: no single member */

static inline bool is_signed(slot s)
{
    return s == TOK || s == PARENTS || s == DELTA;
}

/* Of an array: it may have no elements; an element, or the value in place of the array, may be a list of sequences. */
#define MAY_BE_EMPTY 1u
#define MAY_BE_LIST  2u

typedef struct field {
    const char *key;
    slot slot;
    bool optional;
    unsigned may;     /* arrays: MAY_ flags */
    int64_t min, max; /* of the number, or of each element */
    int64_t absent;   /* the number for an absent field */
} field;

#define MAX_FIELDS 5
typedef struct line_form {
    const char *name;
    field fields[MAX_FIELDS]; /* those with a key */
} line_form;

#define REFUSED "refused"
#define SEQ_MAX (KVB_TRACE_MAX_SEQS - 1)
#define POS_MAX (KVB_TRACE_MAX_CELLS - 1)
#define TOKENS                                                                                                         \
    {                                                                                                                  \
        "tok", TOK, true, 0, 0, INT32_MAX, 0                                                                           \
    }

static const line_form line_forms[] = {
    [KVB_EVENT_STEP] =
        {"step", {{"pos", POS, false, 0, 0, POS_MAX, 0}, {"seq", SEQ, false, MAY_BE_LIST, 0, SEQ_MAX, 0}, TOKENS}},
    [KVB_EVENT_PREFILL] = {"prefill",
                           {{"seq", SEQ_ID, false, MAY_BE_LIST, 0, SEQ_MAX, 0},
                            {"from", FROM, false, 0, 0, POS_MAX, 0},
                            {"n", COUNT, false, 0, 1, KVB_TRACE_MAX_STEP, 0},
                            TOKENS,
                            {"reuse", REUSE, true, 0, 0, INT64_MAX, -1}}},
    [KVB_EVENT_FILL] = {"fill",
                        {{"seq", SEQ_ID, false, MAY_BE_LIST, 0, SEQ_MAX, 0},
                         {"n", COUNT, false, 0, 1, KVB_TRACE_MAX_FILL, 0}}},
    [KVB_EVENT_PROPOSE] =
        {"propose", {{"parents", PARENTS, false, 0, -1, POS_MAX, 0}, {"seq", SEQ, true, 0, 0, SEQ_MAX, 0}, TOKENS}},
    [KVB_EVENT_COMMIT] = {"commit",
                          {{"accepted", ACCEPTED, false, MAY_BE_EMPTY, 0, POS_MAX, 0},
                           {"seq", SRC, true, 0, 0, SEQ_MAX, 0}}},
    [KVB_EVENT_SEQ_CP] = {"seq_cp",
                          {{"src", SRC, false, 0, 0, SEQ_MAX, 0},
                           {"dst", DST, false, 0, 0, SEQ_MAX, 0},
                           {"p0", P0, true, 0, 0, POS_MAX, 0},
                           {"p1", P1, true, 0, 0, KVB_TRACE_POS_END, KVB_TRACE_POS_END}}},
    [KVB_EVENT_SEQ_RM] = {"seq_rm",
                          {{"seq", SRC, false, 0, 0, SEQ_MAX, 0},
                           {"p0", P0, true, 0, 0, POS_MAX, 0},
                           {"p1", P1, true, 0, 0, KVB_TRACE_POS_END, KVB_TRACE_POS_END}}},
    [KVB_EVENT_SEQ_KEEP] = {"seq_keep", {{"seq", SRC, false, 0, 0, SEQ_MAX, 0}}},
    [KVB_EVENT_REWIND] = {"rewind", {{"len", LEN, false, 0, 0, KVB_TRACE_MAX_CELLS, 0}}},
    [KVB_EVENT_CLEAR] = {"clear", {{0}}},
    [KVB_EVENT_REORDER] = {"reorder", {{"dst", DSTS, false, 0, 0, SEQ_MAX, 0}, {"src", SRCS, false, 0, 0, SEQ_MAX, 0}}},
    [KVB_EVENT_SEQ_ADD] = {"seq_add",
                           {{"seq", SRC, false, 0, 0, SEQ_MAX, 0},
                            {"p0", P0, true, 0, 0, POS_MAX, 0},
                            {"p1", P1, true, 0, 0, KVB_TRACE_POS_END, KVB_TRACE_POS_END},
                            {"delta", DELTA, false, 0, -(int64_t)POS_MAX, POS_MAX, 0}}},
    [KVB_EVENT_SEQ_DIV] = {"seq_div",
                           {{"seq", SRC, false, 0, 0, SEQ_MAX, 0},
                            {"p0", P0, true, 0, 0, POS_MAX, 0},
                            {"p1", P1, true, 0, 0, KVB_TRACE_POS_END, KVB_TRACE_POS_END},
                            {"d", DIVISOR, false, 0, 1, POS_MAX, 0}}},
    [KVB_EVENT_DEFRAG] = {"defrag", {{0}}},
    [KVB_EVENT_SAVE] = {"save",
                        {{"slot", SLOT, false, 0, 0, KVB_TRACE_SLOTS - 1, 0},
                         {"seq", SRC, true, 0, 0, SEQ_MAX, KVB_TRACE_ALL}}},
    [KVB_EVENT_LOAD] = {"load",
                        {{"slot", SLOT, false, 0, 0, KVB_TRACE_SLOTS - 1, 0},
                         {"seq", SRC, true, 0, 0, SEQ_MAX, KVB_TRACE_ALL}}},
    [KVB_EVENT_REFUSED] = {REFUSED, {{0}}}, /* a key beside the call's */
};

static const struct {
    const char *name;
    int error;
} refusals[] = {{"ENOSPC", -ENOSPC}, {"EINVAL", -EINVAL}};
#define N_REFUSALS (sizeof refusals / sizeof *refusals)

const char *kvb_refusal_name(int error)
{
    for (size_t i = 0; i < N_REFUSALS; i++)
        if (refusals[i].error == error)
            return refusals[i].name;
    return NULL;
}

const char *kvb_event_kind_name(kvb_event_kind kind)
{
    return line_forms[kind].name;
}

/* ---- JSON helpers ------------------------------------------------------------------------------------ */

const char *kvb_json_type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null",
    };
    return value ? names[json_typeof(value)] : "nothing";
}

void kvb_json_keys_check(kvb_parsing *r, const json_t *object, const char *of, const char *const *known)
{
    for (void *i = json_object_iter((json_t *)object); i; i = json_object_iter_next((json_t *)object, i)) {
        const char *key = json_object_iter_key(i);
        size_t k = 0;
        while (known[k] && strcmp(known[k], key) != 0)
            k++;
        if (known[k])
            continue;
        char list[256] = "";
        for (k = 0; known[k]; k++)
            kvb_list_add(list, sizeof list, ", ", "%s", known[k]);
        kvb_parsing_fail(r, -EINVAL, "%sunknown key \"%.40s\", known: %s", of, key, *list ? list : "no keys");
    }
}

int64_t kvb_json_integer(kvb_parsing *r, const json_t *value, const char *what, int64_t min, int64_t max)
{
    const int64_t number = json_integer_value(value);
    if (!json_is_integer(value))
        kvb_parsing_fail(r, -EINVAL, "%s: expected an integer, found %s", what, kvb_json_type_name(value));
    else if (number < min || number > max)
        kvb_parsing_fail(r, -EINVAL, "%s: %lld is out of range %lld .. %lld", what, (long long)number, (long long)min,
                         (long long)max);
    return r->error ? 0 : number;
}

/* ---- one event --------------------------------------------------------------------------------------- */

/* The content of a line, by slot. */
typedef struct parsed {
    const json_t *arrays[N_ARRAYS];
    int64_t numbers[SLOTS];
    const json_t *list; /* of sequences in place of SEQ_ID, or NULL */
} parsed;

static bool is_list(const json_t *value, const field *f)
{
    return f->may & MAY_BE_LIST && json_is_array(value);
}

/* The number, or the first one of a list. */
static int64_t number_of(const json_t *value)
{
    return json_integer_value(json_is_array(value) ? json_array_get(value, 0) : value);
}

static void array_check(kvb_parsing *r, const json_t *array, const field *f, const char *what)
{
    const field plain = {.min = f->min, .max = f->max};
    const size_t n = json_array_size(array);
    if (!json_is_array(array))
        kvb_parsing_fail(r, -EINVAL, "%s: expected an array, found %s", what, kvb_json_type_name(array));
    else if (n > KVB_TRACE_MAX_STEP)
        kvb_parsing_fail(r, -EINVAL, "%s: %zu elements, at most %u are allowed", what, n, KVB_TRACE_MAX_STEP);
    else if (n == 0 && !(f->may & MAY_BE_EMPTY))
        kvb_parsing_fail(r, -EINVAL, "%s: is empty", what);
    for (size_t i = 0; i < n && !r->error; i++) {
        char element[64];
        const json_t *value = json_array_get(array, i);
        snprintf(element, sizeof element, "%s[%zu]", what, i);
        if (is_list(value, f))
            array_check(r, value, &plain, element);
        else
            kvb_json_integer(r, value, element, f->min, f->max);
    }
}

static void fields_parse(kvb_parsing *r, const json_t *body, const line_form *form, parsed *p)
{
    const char *known[MAX_FIELDS + 1] = {0};
    for (size_t i = 0; i < MAX_FIELDS && form->fields[i].key; i++)
        known[i] = form->fields[i].key;
    kvb_json_keys_check(r, body, "", known);
    for (size_t i = 0; known[i] && !r->error; i++) {
        const field *f = &form->fields[i];
        const json_t *value = json_object_get(body, f->key);
        char what[48];
        snprintf(what, sizeof what, "\"%s\"", f->key);
        if (!value && f->optional) {
            p->numbers[f->slot] = f->absent;
        } else if (!value) {
            kvb_parsing_fail(r, -EINVAL, "%s is missing", what);
        } else if (f->slot < N_ARRAYS) {
            p->arrays[f->slot] = value;
            array_check(r, value, f, what);
        } else if (is_list(value, f)) {
            p->list = value;
            p->numbers[f->slot] = number_of(value);
            array_check(r, value, f, what);
        } else {
            p->numbers[f->slot] = kvb_json_integer(r, value, what, f->min, f->max);
        }
    }
}

/* The common length of all arrays of a line. */
static uint32_t tokens_count(kvb_parsing *r, const line_form *form, const parsed *p)
{
    uint32_t n = (uint32_t)p->numbers[COUNT];
    for (size_t i = 0; i < MAX_FIELDS && form->fields[i].key; i++) {
        const field *f = &form->fields[i];
        if (f->slot >= N_ARRAYS || !p->arrays[f->slot])
            continue;
        uint32_t size = (uint32_t)json_array_size(p->arrays[f->slot]);
        if (n && size != n)
            kvb_parsing_fail(r, -EINVAL, "\"%s\" has %u elements, expected %u", f->key, size, n);
        n = size;
    }
    return n;
}

/* Notes that tokens at .. at + n - 1 belong to all sequences of a list; a mere number is no list. */
static int list_share(kvb_event_store *store, const json_t *list, uint32_t at, uint32_t n)
{
    const size_t others = json_is_array(list) ? json_array_size(list) - 1 : 0;
    if (kvb_array_reserve(&store->shares, &store->shares_room, store->n_shares + others, sizeof *store->shares))
        return -ENOMEM;
    for (size_t i = 0; i < others; i++)
        store->shares[store->n_shares++] =
            (kvb_trace_share){.at = at, .n = n, .dst = (uint32_t)json_integer_value(json_array_get(list, i + 1))};
    return 0;
}

static int shares_find(kvb_event_store *store, const parsed *p)
{
    int err = list_share(store, p->list, 0, store->event.n);
    for (uint32_t i = 0; i < json_array_size(p->arrays[SEQ]) && !err; i++)
        err = list_share(store, json_array_get(p->arrays[SEQ], i), i, 1);
    return err;
}

static uint32_t *array_get(const kvb_event *e, slot s)
{
    uint32_t *array;
    memcpy(&array, (const char *)e + members[s], sizeof array);
    return array;
}

static void array_set(kvb_event *e, slot s, uint32_t *array)
{
    memcpy((char *)e + members[s], &array, sizeof array);
}

static int event_fill(kvb_event *e, const parsed *p)
{
    for (slot s = 0; s < N_ARRAYS; s++) {
        const size_t n = json_array_size(p->arrays[s]);
        const bool has = p->arrays[s] || (s <= SEQ && e->kind <= KVB_EVENT_PROPOSE);
        uint32_t *array = has ? malloc(e->n * sizeof *array + 1) : NULL;
        if (has && !array)
            return -ENOMEM;
        for (size_t i = 0; i < n; i++) /* -1, a root, is its two's complement */
            array[i] = (uint32_t)number_of(json_array_get(p->arrays[s], i));
        array_set(e, s, array);
    }
    for (uint32_t i = 0; i < e->n && e->seq && !p->arrays[SEQ]; i++) {
        e->pos[i] = (uint32_t)p->numbers[FROM] + i;
        e->seq[i] = (uint32_t)p->numbers[SEQ_ID];
    }
    for (slot s = N_ARRAYS; s < SLOTS; s++) {
        const uint32_t number = (uint32_t)p->numbers[s];
        if (members[s])
            memcpy((char *)e + members[s], &number, sizeof number);
    }
    e->reuse = p->numbers[REUSE] >= 0;
    e->extra_key = e->reuse ? (uint64_t)p->numbers[REUSE] : 0;
    return 0;
}

static kvb_event_kind kind_find(kvb_parsing *r, const char *name)
{
    char list[256] = "";
    for (unsigned k = 0; k < KVB_EVENT_REFUSED; k++) {
        if (strcmp(name, line_forms[k].name) == 0)
            return (kvb_event_kind)k;
        kvb_list_add(list, sizeof list, ", ", "%s", line_forms[k].name);
    }
    kvb_parsing_fail(r, -EINVAL, "unknown event \"%.40s\", known: %s", name, list);
    return KVB_EVENT_REFUSED;
}

/* The answer that the event must get; 0: none. */
static int refusal_parse(kvb_parsing *r, const json_t *value)
{
    const char *name = json_string_value(value);
    for (size_t i = 0; i < N_REFUSALS && name; i++)
        if (!strcmp(name, refusals[i].name))
            return refusals[i].error;
    if (value)
        kvb_parsing_fail(r, -EINVAL, "\"" REFUSED "\": expected \"%s\" or \"%s\"", refusals[0].name, refusals[1].name);
    return 0;
}

int kvb_event_parse(kvb_parsing *r, const json_t *line, kvb_event_store *store)
{
    const json_t *refused = json_object_get(line, REFUSED), *sees = json_object_get(line, KVB_TRACE_SEES);
    if (!json_is_object(line) || json_object_size(line) != (size_t)1 + (refused != NULL) + (sees != NULL))
        return kvb_parsing_fail(r, -EINVAL,
                                "expected an object with one key, the event's name, and perhaps \"" REFUSED
                                "\" or \"" KVB_TRACE_SEES "\"");
    void *member = json_object_iter((json_t *)line);
    while (!strcmp(json_object_iter_key(member), REFUSED) || !strcmp(json_object_iter_key(member), KVB_TRACE_SEES))
        member = json_object_iter_next((json_t *)line, member);
    const kvb_event_kind kind = kind_find(r, json_object_iter_key(member));
    const line_form *form = &line_forms[kind];
    const json_t *body = json_object_iter_value(member);
    parsed p = {.numbers[P1] = KVB_TRACE_POS_END, .numbers[REUSE] = -1};
    store->event = (kvb_event){.kind = kind, .error = refusal_parse(r, refused)};
    store->n_shares = 0;
    snprintf(r->where, sizeof r->where, "%s: ", form->name);
    if (!json_is_object(body))
        kvb_parsing_fail(r, -EINVAL, "expected an object, found %s", kvb_json_type_name(body));
    fields_parse(r, body, form, &p);
    store->event.n = tokens_count(r, form, &p);
    if (p.numbers[P0] > p.numbers[P1])
        kvb_parsing_fail(r, -EINVAL, "\"p0\" %lld is above \"p1\" %lld", (long long)p.numbers[P0],
                         (long long)p.numbers[P1]);
    if (!r->error && (event_fill(&store->event, &p) || shares_find(store, &p)))
        kvb_parsing_fail(r, -ENOMEM, "no memory");
    return r->error;
}

/* ---- copies ------------------------------------------------------------------------------------------ */

void kvb_event_clear(kvb_event *event)
{
    for (slot s = 0; s < N_ARRAYS; s++)
        free(array_get(event, s));
}

int kvb_event_copy(kvb_event *copy, const kvb_event *event)
{
    const size_t bytes = event->n * sizeof(uint32_t);
    int err = 0;
    *copy = *event;
    for (slot s = 0; s < N_ARRAYS; s++) {
        const uint32_t *from = array_get(event, s);
        uint32_t *to = from && !err ? malloc(bytes + 1) : NULL;
        err = from && !to ? -ENOMEM : err;
        if (to)
            memcpy(to, from, bytes);
        array_set(copy, s, to);
    }
    if (err)
        kvb_event_clear(copy);
    return err;
}

/* ---- printing ---------------------------------------------------------------------------------------- */

static int64_t number_get(const kvb_event *e, slot s)
{
    uint32_t number;
    if (s == SEQ_ID || s == FROM)
        return s == FROM ? e->pos[0] : e->seq[0];
    if (s == COUNT || s == REUSE)
        return s == COUNT ? e->n : e->reuse ? (int64_t)e->extra_key : -1;
    memcpy(&number, (const char *)e + members[s], sizeof number);
    return is_signed(s) ? (int32_t)number : (int64_t)number;
}

/* May a field be left out of its line? An optional list of sequences may if all are 0. */
static bool is_absent(const kvb_event *e, const field *f)
{
    const uint32_t *array = f->slot < N_ARRAYS ? array_get(e, f->slot) : NULL;
    uint32_t others = 0;
    for (uint32_t i = 0; i < e->n && array && f->slot == SEQ; i++)
        others |= array[i];
    return f->optional && (f->slot >= N_ARRAYS ? number_get(e, f->slot) == f->absent
                           : f->slot == SEQ    ? !others
                                               : !array);
}

void kvb_event_print(FILE *out, const kvb_event *e)
{
    const bool refused = e->kind == KVB_EVENT_REFUSED;
    const line_form *form = &line_forms[refused ? e->call : e->kind];
    const char *comma = "";
    fprintf(out, "{\"%s\":{", form->name);
    for (size_t i = 0; i < MAX_FIELDS && form->fields[i].key; i++) {
        const field *f = &form->fields[i];
        if (is_absent(e, f))
            continue;
        fprintf(out, "%s\"%s\":", comma, f->key);
        comma = ",";
        if (f->slot >= N_ARRAYS) {
            fprintf(out, "%" PRId64, number_get(e, f->slot));
            continue;
        }
        const uint32_t *array = array_get(e, f->slot);
        for (uint32_t k = 0; k < e->n; k++)
            fprintf(out, "%s%" PRId64, k ? "," : "[", is_signed(f->slot) ? (int32_t)array[k] : (int64_t)array[k]);
        fputs(e->n ? "]" : "[]", out);
    }
    fputc('}', out);
    if (refused)
        fprintf(out, ",\"" REFUSED "\":\"%s\"", kvb_refusal_name(e->error));
    fputs("}\n", out);
}
