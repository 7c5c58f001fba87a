/* SPDX-License-Identifier: Apache-2.0 */
/* Events and sets of small numbers in words. */
#include "workloads/trace.h"

#include <inttypes.h>
#include <string.h>

#define MOST_RANGES 6u /* that are named of a set */

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
    bool even = true; /* each member is as far from the one before */
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
