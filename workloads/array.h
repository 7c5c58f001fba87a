/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow. Every folder may include this header; memory that is counted grows by kvb_grow (caches/allocator.h). */
#ifndef KVB_ARRAY_H
#define KVB_ARRAY_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for n elements. array: the address of its pointer; room: for how many elements it has memory, which
 * doubles; bytes: of one element. 0, or -ENOMEM with the array as it was. */
static inline int kvb_array_reserve(void *array, size_t *room, size_t n, size_t bytes)
{
    size_t more = *room ? *room : 32;
    void *old;

    if (n <= *room)
        return 0;
    while (more < n)
        more *= 2;
    memcpy(&old, array, sizeof old);
    void *grown = realloc(old, more * bytes);
    if (!grown)
        return -ENOMEM;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return 0;
}

#endif
