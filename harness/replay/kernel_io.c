/* SPDX-License-Identifier: Apache-2.0 */
/* q, out and lse of a kernel call. */
#include "harness/replay/kernel_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/replay/guard.h"

#define POISON 0x7fa5c35au /* a signalling NaN */

enum { Q, OUT, LSE, BUFFERS };
static const char *const names[BUFFERS] = {"q", "out", "lse"};

/* ---- memory ------------------------------------------------------------------------------------------ */

#define TOUCH_BYTES (1u << 20) /* blocks below this stay with whoever writes first */
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

/* ---- buffers ------------------------------------------------------------------------------------------ */

static const kvb_memory_source *source_of(const kvb_kernel_io *io)
{
    return io->guarded ? &kvb_guarded_source : &kvb_plain_source;
}

void kvb_kernel_io_init(kvb_kernel_io *io, const kvb_trace_model *model, bool guarded)
{
    *io = (kvb_kernel_io){.guarded = guarded,
                          .row = {[Q] = (size_t)model->heads * model->k_dim,
                                  [OUT] = (size_t)model->heads * model->v_dim,
                                  [LSE] = model->heads}};
}

void kvb_kernel_io_free(kvb_kernel_io *io)
{
    for (int i = 0; i < BUFFERS; i++) {
        kvb_memory_give(source_of(io), io->block[i], io->room * io->row[i] * sizeof(float));
        io->block[i] = NULL;
    }
    io->room = 0;
}

static int room_ensure(kvb_kernel_io *io, uint32_t n_tok)
{
    if (n_tok <= io->room)
        return 0;
    kvb_kernel_io_free(io);
    for (int i = 0; i < BUFFERS; i++) {
        io->block[i] = kvb_memory_take(source_of(io), names[i], n_tok * io->row[i] * sizeof(float));
        if (!io->block[i])
            return -ENOMEM;
    }
    io->room = n_tok;
    io->n_tok = 0;
    return 0;
}

int kvb_kernel_io_fill(kvb_kernel_io *io, uint32_t n_tok, const float *q)
{
    int error = room_ensure(io, n_tok);
    if (error)
        return error;
    if (io->guarded)
        kvb_guard_protect(io->block[Q], false);
    for (int i = 0; i < BUFFERS && io->guarded && n_tok != io->n_tok; i++)
        io->block[i] = kvb_guard_fit(io->block[i], n_tok * io->row[i] * sizeof(float));
    io->n_tok = n_tok;
    io->q = io->block[Q];
    io->out = io->block[OUT];
    io->lse = io->block[LSE];
    memcpy(io->q, q, n_tok * io->row[Q] * sizeof *q);
    if (io->guarded)
        kvb_guard_protect(io->block[Q], true);
    return 0;
}

static void poison_fill(float *x, size_t n)
{
    uint32_t *bits = (uint32_t *)(void *)x;
    for (size_t i = 0; i < n; i++)
        bits[i] = POISON;
}

void kvb_kernel_io_poison(kvb_kernel_io *io)
{
    poison_fill(io->out, io->n_tok * io->row[OUT]);
    poison_fill(io->lse, io->n_tok * io->row[LSE]);
}

/* Index of the first element that still is poison, or n. */
static size_t poison_find(const float *x, size_t n)
{
    size_t i = 0;
    for (uint32_t bits = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        if (bits == POISON)
            break;
    }
    return i;
}

bool kvb_kernel_io_written(const kvb_kernel_io *io, uint32_t heads, char *why, size_t why_bytes)
{
    size_t n = io->n_tok * io->row[OUT], i = poison_find(io->out, n);
    if (i < n) {
        size_t dim = io->row[OUT] / heads;
        snprintf(why, why_bytes, "left out unwritten at query %zu, head %zu, channel %zu", i / io->row[OUT],
                 i / dim % heads, i % dim);
        return false;
    }
    n = io->n_tok * io->row[LSE];
    i = poison_find(io->lse, n);
    if (i < n)
        snprintf(why, why_bytes, "left lse unwritten at query %zu, head %zu", i / heads, i % heads);
    return i == n;
}

static uint64_t bytes_digest(const void *block, size_t bytes, uint64_t digest)
{
    const uint8_t *at = block;
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

uint64_t kvb_kernel_io_digest(const kvb_kernel_io *io, uint32_t n, uint64_t digest)
{
    const float *of[] = {[OUT] = io->out, [LSE] = io->lse};
    for (int i = OUT; i <= LSE; i++)
        digest = bytes_digest(of[i] + (io->n_tok - n) * io->row[i], n * io->row[i] * sizeof(float), digest);
    return digest;
}
