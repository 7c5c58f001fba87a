/* SPDX-License-Identifier: Apache-2.0 */
#include "results/reasons.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kvb_reason_reduce(const kvb_result *r, char text[KVB_REASON])
{
    const char *at = r->reason, *end = at + strcspn(at, "\r\n");
    size_t used = 0, cache = strlen(r->cache);

    if (strncmp(at, "line ", 5) == 0 && isdigit((unsigned char)at[5]) && strstr(at, ": "))
        at = strstr(at, ": ") + 2;
    if (strncmp(at, "cache ", 6) == 0 && strncmp(at + 6, r->cache, cache) == 0 && at[6 + cache] == ' ') {
        used = (size_t)snprintf(text, KVB_REASON, "the cache");
        at += 6 + cache;
    }
    while (at < end) {
        const char *colon = strstr(at, ": ");
        size_t n = (size_t)((colon && colon < end ? colon : end) - at), step = colon && colon < end ? n + 2 : n;
        bool is_pool = n > 0 && step > n &&
                       ((strlen(r->pool_k) == n && strncmp(at, r->pool_k, n) == 0) ||
                        (strlen(r->pool_v) == n && strncmp(at, r->pool_v, n) == 0));

        if (!is_pool) {
            size_t room = KVB_REASON - 1 - used, taken = step < room ? step : room;

            memcpy(text + used, at, taken);
            used += taken;
        }
        at += step;
    }
    text[used] = 0;
}

/* Passes over a number that stands alone: 12, -3.5e-7, 8x128. */
static const char *number_skip(const char *start, const char *at)
{
    bool stands_alone = at == start || at[-1] == ' ' || at[-1] == '(';
    const char *digit = at + (*at == '-' || *at == '+');

    if (!stands_alone || !isdigit((unsigned char)*digit))
        return at;
    while (isalnum((unsigned char)*digit) || (*digit && strchr(".+-", *digit)))
        digit++;
    return digit;
}

/* Is it the same text but for its numbers? */
static bool is_alike(const char *a, const char *b)
{
    const char *x = a, *y = b;

    for (;;) {
        const char *after_x = number_skip(a, x), *after_y = number_skip(b, y);

        if ((after_x == x) != (after_y == y))
            return false;
        if (after_x > x) {
            x = after_x;
            y = after_y;
            continue;
        }
        if (*x != *y)
            return false;
        if (!*x)
            return true;
        x++;
        y++;
    }
}

kvb_reason_group *kvb_reason_groups(const kvb_result *results, size_t n, bool skips, size_t *n_groups)
{
    kvb_reason_group *groups = malloc((n + 1) * sizeof *groups);
    char text[KVB_REASON], other[KVB_REASON];

    *n_groups = 0;
    for (size_t i = 0; i < n && groups; i++) {
        const kvb_result *r = &results[i];
        size_t g = 0;

        if (skips ? r->status != KVB_STATUS_SKIP : !kvb_status_is_bad(r->status))
            continue;
        kvb_reason_reduce(r, text);
        text[skips ? strlen(text) : strcspn(text, ";")] = 0; /* of a failure what follows are details */
        for (; g < *n_groups; g++) {
            kvb_reason_reduce(groups[g].first, other);
            other[skips ? strlen(other) : strcspn(other, ";")] = 0;
            if (groups[g].first->status == r->status && is_alike(text, other))
                break;
        }
        if (g == *n_groups)
            groups[(*n_groups)++] = (kvb_reason_group){.first = r};
        else
            groups[g].varies |= strcmp(text, other) != 0;
        groups[g].n++;
    }
    return groups;
}
