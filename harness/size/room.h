/* SPDX-License-Identifier: Apache-2.0 */
/* How the room of a table grows: the rule of caches/allocator.c, written a second time. */
#ifndef KVB_SIZE_ROOM_H
#define KVB_SIZE_ROOM_H

#include <errno.h>
#include <stdint.h>

/* Room for n items: 16 at first, then twice the room before, or n if that is more. */
static inline void need(uint64_t *room, uint64_t n)
{
    uint64_t want = *room < 16 ? 16 : *room * 2;
    if (*room < n || !*room)
        *room = want < n ? n : want;
}

/* The same; `all`: the room of all tables of its kind. */
static inline void need_of(uint64_t *room, uint64_t n, uint64_t *all)
{
    uint64_t had = *room;
    need(room, n);
    *all += *room - had;
}

/* The same as need() for from + step, from + 2 step, … n times one after the other. */
static inline void climb(uint64_t *room, uint64_t from, uint64_t step, uint64_t n)
{
    if (n)
        need(room, from + step);
    while (*room < from + n * step)
        need(room, from + ((*room - from) / step + 1) * step);
}

/* n times so many bytes more: 0 or -EOVERFLOW. */
static inline int kvb_size_add(uint64_t *sum, uint64_t n, uint64_t each)
{
    uint64_t bytes;
    return __builtin_mul_overflow(n, each, &bytes) || __builtin_add_overflow(*sum, bytes, sum) ? -EOVERFLOW : 0;
}

#endif
