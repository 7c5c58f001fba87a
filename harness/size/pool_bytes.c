/* SPDX-License-Identifier: Apache-2.0 */
/* Codes, scales and zeros of so many cells, and the room that a growth policy makes for them. */
#include "harness/size/pool_bytes.h"

#include <unistd.h>

/* Bytes of 32 elements: whole for every encoding, blocks with what they carry (attend.h). */
static const uint32_t bytes_of_32[KVB_ELEM_COUNT] = {
    [KVB_F32] = 128, [KVB_F16] = 64,  [KVB_BF16] = 64,  [KVB_E4M3] = 32,  [KVB_E5M2] = 32,   [KVB_E2M1] = 16,
    [KVB_E8M0] = 32, [KVB_INT8] = 32, [KVB_UINT8] = 32, [KVB_UINT4] = 16, [KVB_UINT2] = 8,   [KVB_Q8_0] = 34,
    [KVB_Q5_1] = 24, [KVB_Q5_0] = 22, [KVB_Q4_1] = 20,  [KVB_Q4_0] = 18,  [KVB_IQ4_NL] = 18,
};

enum { CODES, SCALES, ZEROS, LANES };

static uint64_t ceil_to(uint64_t n, uint64_t grain)
{
    return (n + grain - 1) / grain * grain;
}

static uint64_t elements_bytes(const kvb_format *f, kvb_elem elem, uint64_t n)
{
    uint64_t of_32 = elem == KVB_CODEBOOK ? 4u * f->level_bits : bytes_of_32[elem];
    return (n * of_32 + 31) / 32;
}

/* Of one KV head, for so many cells. */
static void head_bytes(const kvb_format *f, uint32_t dim, uint64_t cells, uint64_t lane[LANES])
{
    uint64_t scales = 0; /* elements, and as many zeros where there are any */
    if (f->group && !kvb_elem_is_block(f->elem))
        scales = f->axis == KVB_AXIS_TOKENS ? ceil_to(cells, f->group) / f->group * dim
                                            : cells * (f->group == KVB_GROUP_ROW ? 1 : dim / f->group);
    lane[CODES] = cells * elements_bytes(f, f->elem, dim);
    lane[SCALES] = scales ? elements_bytes(f, f->scale_elem, scales) : 0;
    lane[ZEROS] = scales && kvb_format_has_zeros(f) ? elements_bytes(f, f->zero_elem, scales) : 0;
}

/* Cells that there is room for: asked ones, or the first chunk times a power of two, at most the capacity. */
static uint64_t room(const kvb_pool_options *o, uint64_t cells, bool doubles)
{
    uint64_t held = o->min_chunk;
    if (!cells || !doubles)
        return cells;
    while (held < cells)
        held *= 2;
    return held < o->capacity ? held : o->capacity;
}

bool kvb_size_state_pool(const kvb_group *g, bool conv, const kvb_pool_type **type, kvb_pool_options *o)
{
    const kvb_group_scan *s = &g->scan;
    const uint64_t n =
        conv ? (uint64_t)s->conv_width * s->conv_channels - s->conv_channels : (uint64_t)s->heads * s->d_k * s->d_v;
    const kvb_elem elem = conv ? s->conv_elem : s->state_elem;
    const uint32_t line = KVB_ALIGNMENT * 32 / bytes_of_32[elem]; /* elements: slots begin with one */
    for (const kvb_pool_type *const *pool = kvb_builtin_pools; *pool; pool++)
        if ((*pool)->format->elem == elem)
            *type = *pool;
    o->n_kv_heads = o->min_chunk = 1;
    o->dim = (uint32_t)ceil_to(n, line);
    return conv ? s->conv_width : true;
}

uint64_t kvb_size_pool_bytes(const kvb_pool_type *type, const kvb_pool_options *o, uint64_t cells)
{
    const bool doubles = o->growth == KVB_GROWTH_DOUBLE || o->growth == KVB_GROWTH_DOUBLE_THP,
               blocks = doubles || o->growth == KVB_GROWTH_EXACT;
    static const uint64_t grains[KVB_GROWTHS] = {[KVB_GROWTH_DOUBLE] = 1,
                                                 [KVB_GROWTH_EXACT] = 1,
                                                 [KVB_GROWTH_DOUBLE_THP] = KVB_HUGE_PAGE,
                                                 [KVB_GROWTH_RESERVE_THP] = KVB_HUGE_PAGE};
    const uint64_t grain = grains[o->growth] ? grains[o->growth] : (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t lane[LANES], bytes = type->bytes(type, o, 0);
    head_bytes(type->format, o->dim, room(o, cells, doubles), lane);
    for (int l = 0; l < LANES; l++) /* one block for all heads, or address space for each */
        bytes += blocks ? ceil_to(o->n_kv_heads * lane[l], grain) : o->n_kv_heads * ceil_to(lane[l], grain);
    return bytes;
}

double kvb_size_row_bytes(const kvb_pool_type *type, uint32_t dim)
{
    enum { MANY = 4096 };
    uint64_t lane[LANES];
    head_bytes(type->format, dim, MANY, lane);
    return (double)(lane[CODES] + lane[SCALES] + lane[ZEROS]) / MANY;
}
