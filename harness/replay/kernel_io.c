/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/replay/kernel_io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay/guard.h"
#include "kernels/convert.h"
#include "workloads/array.h"
#include "workloads/files.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define POISON    0x7fa5c35au /* a signalling NaN of f32 */
#define POISON_16 0x7fa5u     /* a NaN of f16 and of bf16 */
#define PIECE     128u        /* outputs that are checked together */

enum { Q, OUT, LSE, BUFFERS };
static const char *const names[BUFFERS] = {"q", "out", "lse"};

/* ---- memory ------------------------------------------------------------------------------------------ */

#define TOUCH_BYTES (1u << 20) /* smaller blocks are not touched by the team */
#define PAGE        4096u

static const kvb_team *toucher;

void kvb_first_touch(const kvb_team *team)
{
    toucher = team;
}

typedef struct touch {
    volatile char *block;
    size_t bytes;
} touch;

static void touch_part(void *ctx, uint32_t i, uint32_t n)
{
    const touch *t = ctx;
    for (size_t at = t->bytes / n * i, end = i + 1 == n ? t->bytes : t->bytes / n * (i + 1); at < end; at += PAGE)
        t->block[at] = 0;
}

static void *touched(void *block, size_t bytes)
{
    if (block && toucher && bytes >= TOUCH_BYTES)
        toucher->run(toucher, touch_part, &(touch){block, bytes});
    return block;
}

static void *guarded_take(const char *name, size_t bytes)
{
    return touched(kvb_guard_alloc(name, bytes), bytes);
}

static void *plain_take(const char *name, size_t bytes)
{
    return touched(kvb_memory_take(NULL, name, bytes), bytes);
}

/* Zeroed, as reused memory may hold NaN. */
static void *zeroed_take(const char *name, size_t bytes)
{
    void *block = plain_take(name, bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

static void plain_give(void *block, size_t bytes)
{
    kvb_memory_give(NULL, block, bytes);
}

static void guarded_give(void *block, size_t bytes)
{
    (void)bytes;
    kvb_guard_free(block);
}

const kvb_memory_source kvb_guarded_source = {guarded_take, guarded_give};
const kvb_memory_source kvb_plain_source = {plain_take, plain_give};
const kvb_memory_source kvb_zeroed_source = {zeroed_take, plain_give};

/* ---- buffers ------------------------------------------------------------------------------------------ */

/* A larger block has twice the room: `recompute` asks for one token more at each step. */
void *kvb_buffer_fit(kvb_buffer *b, const kvb_memory_source *source, const char *name, size_t bytes)
{
    if (bytes > b->room) {
        const size_t room = bytes / 2 < b->room ? 2 * b->room : bytes;
        kvb_buffer_free(b, source);
        b->block = kvb_memory_take(source, name, room);
        b->room = b->bytes = b->block ? room : 0;
    }
    if (b->block && bytes != b->bytes && source == &kvb_guarded_source)
        b->block = kvb_guard_fit(b->block, bytes);
    b->bytes = b->block ? bytes : 0;
    return b->block;
}

void kvb_buffer_free(kvb_buffer *b, const kvb_memory_source *source)
{
    kvb_memory_give(source, b->block, b->room);
    *b = (kvb_buffer){0};
}

void kvb_kernel_io_free(kvb_kernel_io *io)
{
    for (int i = 0; i < BUFFERS; i++)
        kvb_buffer_free(&io->buffers[i], io->source);
    free(io->kept);
    io->kept = NULL;
    io->kept_room = 0;
}

int kvb_kernel_io_fill(kvb_kernel_io *io, const kvb_group *group, uint32_t n_tok, const float *q)
{
    const size_t rows = (size_t)n_tok * group->heads;
    const size_t bytes[BUFFERS] = {[Q] = rows * group->k_dim * sizeof *q,
                                   [OUT] = rows * group->v_dim * kvb_elem_bytes(io->out_elem),
                                   [LSE] = rows * sizeof *io->lse};
    for (int i = 0; i < BUFFERS; i++)
        if (!kvb_buffer_fit(&io->buffers[i], io->source, names[i], bytes[i]))
            return -ENOMEM;
    io->n_tok = n_tok;
    io->group = group;
    io->q = io->buffers[Q].block;
    io->out = io->buffers[OUT].block;
    io->lse = io->buffers[LSE].block;
    if (q)
        memcpy(io->q, q, bytes[Q]);
    return 0;
}

int kvb_kernel_io_keep(kvb_kernel_io *io)
{
    const size_t out = io->buffers[OUT].bytes, lse = io->buffers[LSE].bytes;
    int error = kvb_array_reserve(&io->kept, &io->kept_room, out + lse, 1);
    if (error)
        return error;
    memcpy(io->kept, io->out, out);
    memcpy(io->kept + out, io->lse, lse);
    return 0;
}

void kvb_kernel_io_restore(kvb_kernel_io *io)
{
    const size_t out = io->buffers[OUT].bytes;
    memcpy(io->out, io->kept, out);
    memcpy(io->lse, io->kept + out, io->buffers[LSE].bytes);
}

/* ---- poison --------------------------------------------------------------------------------------------- */

/* Elements of out, or of lse, in the current call. */
static size_t elements_of(const kvb_kernel_io *io, int buffer)
{
    return io->buffers[buffer].bytes / (buffer == OUT ? kvb_elem_bytes(io->out_elem) : sizeof(float));
}

void kvb_outputs_fill(void *block, size_t n, size_t element_bytes)
{
    uint32_t *wide = block;
    uint16_t *narrow = block;
    for (size_t i = 0; element_bytes == sizeof *wide && i < n; i++)
        wide[i] = POISON;
    for (size_t i = 0; element_bytes == sizeof *narrow && i < n; i++)
        narrow[i] = POISON_16;
}

void kvb_kernel_io_poison(kvb_kernel_io *io)
{
    kvb_outputs_fill(io->out, elements_of(io, OUT), kvb_elem_bytes(io->out_elem));
    if (io->no_lse)
        memset(io->lse, 0, io->buffers[LSE].bytes);
    else
        kvb_outputs_fill(io->lse, elements_of(io, LSE), sizeof(float));
}

size_t kvb_outputs_left(const void *block, size_t n, size_t element_bytes)
{
    const uint32_t *wide = block;
    const uint16_t *narrow = block;
    size_t i = 0;
    /* skips whole pieces without one, in loops that compilers vectorize; then searches the next piece, or the rest */
    for (uint32_t left = 0; i + PIECE <= n; i += PIECE) {
        for (size_t j = i; element_bytes == sizeof *wide && j < i + PIECE; j++)
            left |= wide[j] == POISON;
        for (size_t j = i; element_bytes == sizeof *narrow && j < i + PIECE; j++)
            left |= narrow[j] == POISON_16;
        if (left)
            break;
    }
    while (i < n && (element_bytes == sizeof *wide ? wide[i] != POISON : narrow[i] != POISON_16))
        i++;
    return i;
}

bool kvb_kernel_io_written(const kvb_kernel_io *io, char *why, size_t why_bytes)
{
    size_t heads = io->group->heads, dim = io->group->v_dim;
    size_t n = elements_of(io, OUT), i = kvb_outputs_left(io->out, n, kvb_elem_bytes(io->out_elem));
    if (i < n)
        return kvb_why_set(false, why, why_bytes, "left out unwritten at query %zu, head %zu, channel %zu",
                           i / (heads * dim), i / dim % heads, i % dim);
    n = elements_of(io, LSE);
    i = kvb_outputs_left(io->lse, n, sizeof(float));
    if (i < n)
        snprintf(why, why_bytes, "left lse unwritten at query %zu, head %zu", i / heads, i % heads);
    return i == n;
}

/* ---- reading the outputs ---------------------------------------------------------------------------------- */

const void *kvb_kernel_io_row(const kvb_kernel_io *io, uint32_t query, uint32_t head)
{
    size_t row = io->group->v_dim * kvb_elem_bytes(io->out_elem);
    return (const char *)io->out + ((size_t)query * io->group->heads + head) * row;
}

const float *kvb_kernel_io_lse(const kvb_kernel_io *io, uint32_t query, uint32_t head)
{
    return io->no_lse ? NULL : &io->lse[(size_t)query * io->group->heads + head];
}

/* FNV-1a over words. A product moves bits only up, so the high bits are folded down after each word. */
uint64_t kvb_digest_bytes(const void *from, size_t bytes, uint64_t digest)
{
    const char *at = from;
    for (size_t some; bytes; at += some, bytes -= some) {
        uint64_t word = 0;
        some = bytes < sizeof word ? bytes : sizeof word;
        memcpy(&word, at, some);
        digest = (digest ^ word) * UINT64_C(0x100000001b3);
        digest ^= digest >> 32;
    }
    return digest;
}

uint64_t kvb_kernel_io_digest(const kvb_kernel_io *io, uint32_t n, uint64_t digest)
{
    const char *of[] = {[OUT] = io->out, [LSE] = (const char *)io->lse};
    for (int i = OUT; i <= LSE; i++) {
        const size_t bytes = io->buffers[i].bytes / io->n_tok;
        digest = kvb_digest_bytes(of[i] + (io->n_tok - n) * bytes, n * bytes, digest);
    }
    return digest;
}

/* ---- flushing what a kernel is about to read ---------------------------------------------------------------------- */

#define LINE 64u /* bytes */

bool kvb_flush_available(char *why, size_t why_bytes)
{
#if defined(__x86_64__)
    (void)why, (void)why_bytes;
    return true; /* clflush came with SSE2 */
#else
    return kvb_why_set(false, why, why_bytes, "no instruction to flush a cache line is known for this processor");
#endif
}

void kvb_block_flush(const void *block, size_t bytes)
{
#if defined(__x86_64__)
    const char *at = (const char *)((uintptr_t)block & ~(uintptr_t)(LINE - 1)), *end = (const char *)block + bytes;
    for (; at < end; at += LINE)
        _mm_clflush(at);
    _mm_mfence();
#else
    (void)block, (void)bytes;
#endif
}

/* Flushes a table of n units for each of n_kv_heads heads, if there is one. */
static void table_flush(const void *base, size_t head_stride, size_t n, size_t unit_bytes, uint32_t n_kv_heads)
{
    for (uint32_t h = 0; h < n_kv_heads && base && n; h++)
        kvb_block_flush((const char *)base + h * head_stride, n * unit_bytes);
}

static void region_flush(const kvb_view *v, uint32_t n_kv_heads)
{
    const kvb_format *f = v->format;
    size_t groups = f->axis == KVB_AXIS_TOKENS ? (v->cells + (size_t)f->group - 1) / f->group : v->cells;
    size_t windows = f->residual_cells ? (v->cells + (size_t)f->residual_cells - 1) / f->residual_cells : 0;

    table_flush(v->base, v->head_stride, v->cells, v->cell_stride, n_kv_heads);
    table_flush(v->scales, v->scale_head_stride, groups, v->scale_cell_stride, n_kv_heads);
    table_flush(v->zeros, v->zero_head_stride, groups, v->zero_cell_stride, n_kv_heads);
    if (v->head_scales)
        kvb_block_flush(v->head_scales, n_kv_heads * sizeof *v->head_scales);
    if (windows)
        kvb_block_flush(v->recent_slot, windows * sizeof *v->recent_slot);
    for (size_t w = 0; w < windows && v->recent; w++)
        if (v->recent_slot[w] != KVB_SLOT_NONE)
            table_flush((const char *)v->recent + v->recent_slot[w] * v->recent_slot_stride, v->recent_head_stride,
                        f->residual_cells, v->dim * sizeof(uint16_t), n_kv_heads);
}

void kvb_view_flush(const kvb_view *v, uint32_t n_kv_heads)
{
    const kvb_view own = kvb_view_own(v);
    if (v->front)
        region_flush(v->front, n_kv_heads);
    region_flush(&own, n_kv_heads);
}

void kvb_view_protect(const kvb_view *view, bool read_only)
{
    const void *const lanes[] = {view->base, view->scales, view->zeros, view->recent};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        if (lanes[i])
            kvb_guard_protect(lanes[i], read_only);
    if (view->front)
        kvb_view_protect(view->front, read_only);
}
