/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan: in vectors. A unit is the heads, or the columns of the one head of MAMBA1 and CONV, that a thread takes together.
 * Each thread takes one run of the call after the other, with all of its units. A run of one token reads a state from
 * one slot and writes the new state to a slot. MAMBA1 takes several such runs together. A longer run is computed in
 * chunks; recurrences without chunks compute it token by token, over a state in scratch. All heads of a chunk come
 * before the next chunk: this is the order of memory.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/convert.h"
#include "kernels/kernels.h"
#include "kernels/vector/vector.h"

#define COLUMNS   64u   /* of a unit of MAMBA1 */
#define WIDEST    1024u /* most columns of a unit of CONV: as many as a page of memory holds */
#define ROWS      16u   /* of MAMBA1: rows of a state that are taken together by single tokens */
#define TOKENS    16u   /* of MAMBA1: most single tokens that take the same rows, one after the other */
#define AHEAD     8u    /* of MAMBA1, in longer runs: tokens until prefetched v, gates and outputs are used */
#define SHORT_RUN 8u    /* runs below this go by tokens */
#define TAPS      16u   /* of a convolution at most */

static bool by_columns(const kvb_scan_problem *p)
{
    return p->kind == KVB_SCAN_MAMBA1 || p->kind == KVB_SCAN_CONV;
}

static bool by_chunks(const kvb_scan_problem *p, uint32_t run)
{
    return !by_columns(p) && run >= SHORT_RUN && p->d_k % 16 == 0;
}

static bool supports(const kvb_scan_problem *p, char *why, size_t why_bytes)
{
    if (!kvb_kernel_scan_reference.scan->supports(p, why, why_bytes))
        return false;
    const char *lack = p->d_v % 16                                  ? "rows of a state have a multiple of 16 elements"
                       : p->kind == KVB_SCAN_MAMBA1 && p->heads > 1 ? "mamba1 has one head of all channels"
                       : p->kind == KVB_SCAN_CONV && p->d_k >= TAPS ? "at most 16 taps"
                                                                    : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

/* Scratch of a thread: a state for each head of a unit (MAMBA1: and its part of a), one row of out (MAMBA1: TOKENS rows),
 * and scratch of chunks. */
typedef struct room {
    size_t state, row, chunk; /* floats */
    uint32_t heads;           /* of a unit at most */
} room;

/* Columns of a unit. */
static uint32_t columns_of(const kvb_scan_problem *p, uint32_t n_threads)
{
    const uint32_t blocks = (p->d_v + COLUMNS - 1) / COLUMNS, fair = (blocks + n_threads - 1) / n_threads * COLUMNS;
    if (p->kind != KVB_SCAN_CONV)
        return p->kind == KVB_SCAN_MAMBA1 ? COLUMNS : p->d_v;
    return fair < WIDEST ? fair : WIDEST;
}

static size_t whole_lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

static room room_of(const kvb_scan_problem *p, uint32_t n_threads)
{
    const uint32_t columns = columns_of(p, n_threads),
                   heads = by_chunks(p, p->run) ? (p->heads + n_threads - 1) / n_threads : 1;
    return (room){.state = whole_lines((size_t)heads * p->d_k * columns) << (p->kind == KVB_SCAN_MAMBA1),
                  .row = whole_lines(p->kind == KVB_SCAN_MAMBA1 ? (size_t)TOKENS * p->d_v : columns),
                  .chunk = by_chunks(p, p->run) ? kvb_scan_chunk_floats(p->d_k, p->d_v) : 0,
                  .heads = heads};
}

static size_t room_floats(const kvb_scan_problem *p, uint32_t n_threads)
{
    const room r = room_of(p, n_threads);
    return r.state + r.row + r.chunk;
}

static size_t scratch_bytes(const kvb_scan_problem *p, uint32_t n_threads)
{
    return room_floats(p, n_threads) * sizeof(float) * n_threads;
}

/* A multiply-add may round twice. By tokens: as scan-reference. By chunks: a product of d_k or SCAN_CHUNK terms, and the
 * roundings before and after it; shorter runs round less often. */
static void arithmetic(const kvb_scan_problem *p, kvb_scan_arithmetic *a)
{
    kvb_kernel_scan_reference.scan->arithmetic(p, a);
    a->exp_error = 0x1.4p-23; /* WEIGHT_ERROR, and the error of sums of logs */
    a->exponent_chain = 3;    /* gate, log2(e) and a */
    if (by_chunks(p, p->run)) {
        a->chunk = SCAN_CHUNK;
        a->state_chain = SCAN_CHUNK + 6;
        a->read_chain = p->d_k + SCAN_CHUNK + 8;
        a->solve_chain = p->d_k + SCAN_CHUNK + 8;
    }
}

/* ---- the order of additions, by tokens --------------------------------------------------------------------------- */

#define ORDER_COLUMNS 16u /* least columns that the loops take */

static float decay_of_head(float gate, float a)
{
    return (float)exp((double)gate * (double)a);
}

/* The decay of an element: a state of 1, after a token that writes nothing. */
static float decay_of_element(float gate, float a)
{
    float zeros[ORDER_COLUMNS] = {0}, gates[ORDER_COLUMNS] = {gate}, as[ORDER_COLUMNS] = {a}, s[ORDER_COLUMNS] = {1};
    const kvb_scan_step step = {.kind = KVB_SCAN_MAMBA1,
                                .elem = KVB_F32,
                                .d_k = 1,
                                .columns = ORDER_COLUMNS,
                                .row = ORDER_COLUMNS,
                                .a_row = ORDER_COLUMNS,
                                .from = s,
                                .to = s,
                                .q = zeros,
                                .k = zeros,
                                .v = zeros,
                                .gates = gates,
                                .a = as,
                                .out = (float[ORDER_COLUMNS]){0}};
    kvb_vector_at(kvb_cpu())->scan_token(&step);
    return s[0];
}

static float act(float z)
{
    float bias[ORDER_COLUMNS] = {z}, out[ORDER_COLUMNS];
    kvb_vector_at(kvb_cpu())->scan_taps(0, 1, ORDER_COLUMNS, ORDER_COLUMNS, NULL, bias, bias, true, out, false);
    return out[0];
}

static bool order(const kvb_scan_problem *p, kvb_scan_order *order)
{
    *order = (kvb_scan_order){.fused = kvb_cpu() != KVB_CPU_PORTABLE,
                              .gate_on_v = true,
                              .decay_last = true,
                              .decay = p->kind == KVB_SCAN_MAMBA1 ? decay_of_element : decay_of_head,
                              .act = act};
    return !by_chunks(p, p->run);
}

/* ---- one unit ---------------------------------------------------------------------------------------------------- */

typedef struct unit {
    const kvb_scan *x;
    const kvb_vector *loops;
    uint32_t head, heads;     /* heads > 1: by chunks alone */
    uint32_t column, columns; /* of a head */
    float *state, *row, *chunk;
} unit;

/* Copies the unit's columns of a head's state from a slot to scratch, or back. */
static void state_move(const unit *u, uint32_t slot, uint32_t h, float *state, bool back)
{
    const kvb_scan_problem *p = &u->x->problem;
    const size_t bytes = kvb_elem_bytes(p->state_elem);
    for (uint32_t i = 0; i < p->d_k; i++, state += u->columns) {
        if (slot == KVB_SCAN_ZERO) {
            memset(state, 0, u->columns * sizeof *state);
            continue;
        }
        char *row = (char *)kvb_scan_state(u->x, slot, h) + ((size_t)i * p->d_v + u->column) * bytes;
        if (back)
            kvb_elems_encode(p->state_elem, row, state, u->columns);
        else
            kvb_elems_decode(p->state_elem, state, row, u->columns);
    }
}

/* Where a token's out is computed: in place if it is f32, else in the unit's row. */
static float *out_begin(const unit *u, uint32_t t)
{
    const kvb_scan_problem *p = &u->x->problem;
    return p->out_elem != KVB_F32 ? u->row : (float *)u->x->out + ((size_t)t * p->heads + u->head) * p->d_v + u->column;
}

static void out_end(const unit *u, uint32_t t)
{
    const kvb_scan_problem *p = &u->x->problem;
    const size_t at = ((size_t)t * p->heads + u->head) * p->d_v + u->column;
    if (p->out_elem != KVB_F32)
        kvb_elems_encode(p->out_elem, (char *)u->x->out + at * kvb_elem_bytes(p->out_elem), u->row, u->columns);
}

static kvb_scan_step step_of(const unit *u, uint32_t t)
{
    const kvb_scan *x = u->x;
    const kvb_scan_problem *p = &x->problem;
    const size_t row = (size_t)t * p->heads + u->head;
    kvb_scan_step s = {.kind = p->kind,
                       .d_k = p->d_k,
                       .columns = u->columns,
                       .q = kvb_scan_row(x, x->q, t, u->head),
                       .k = kvb_scan_row(x, x->k, t, u->head),
                       .v = x->v + row * p->d_v + u->column,
                       .decay = 1,
                       .gate = 1,
                       .out = out_begin(u, t)};
    switch (p->kind) {
    case KVB_SCAN_MAMBA1:
        s.gates = x->gate + row * p->d_v + u->column;
        s.a = x->a + u->column;
        break;
    case KVB_SCAN_MAMBA2:
        s.gate = x->gate[row];
        s.decay = (float)exp((double)s.gate * (double)x->a[u->head]);
        break;
    case KVB_SCAN_LIGHTNING:
        s.decay = (float)exp((double)x->a[u->head]);
        break;
    default: /* KVB_SCAN_DELTA */
        s.gate = x->beta[row];
        s.decay = (float)exp((double)x->gate[row]);
    }
    return s;
}

/* Rows first .. first + rows - 1 of one token's state, from slot to slot. */
static void token_scan(const unit *u, uint32_t t, uint32_t first, uint32_t rows)
{
    const kvb_scan_problem *p = &u->x->problem;
    const uint32_t from = kvb_scan_source(u->x, t), to = u->x->to[t];
    const size_t at = ((size_t)first * p->d_v + u->column) * kvb_elem_bytes(p->state_elem);
    kvb_scan_step s = step_of(u, t);
    s.d_k = rows;
    s.add = first > 0;
    s.q += first;
    s.k += first;
    if (s.a)
        s.a += (size_t)first * p->d_v;
    s.elem = p->state_elem;
    s.row = s.a_row = p->d_v;
    s.from = from == KVB_SCAN_ZERO ? NULL : (char *)kvb_scan_state(u->x, from, u->head) + at;
    s.to = to == KVB_SCAN_NONE ? NULL : (char *)kvb_scan_state(u->x, to, u->head) + at;
    u->loops->scan_token(&s);
}

/* Tokens t .. end - 1 of MAMBA1, each a run. Tokens take a block of rows before the next block: so they share the block
 * of a, and memory is read as ROWS streams. */
static void columns_scan(const unit *u, uint32_t t, uint32_t end)
{
    const uint32_t d_k = u->x->problem.d_k;
    unit one = *u;
    for (uint32_t first = 0, rows; first < d_k; first += rows) {
        rows = d_k - first < ROWS ? d_k - first : ROWS;
        one.row = u->row;
        for (uint32_t i = t; i < end; i++, one.row += u->columns) {
            token_scan(&one, i, first, rows);
            if (first + rows == d_k)
                out_end(&one, i);
        }
    }
}

/* MAMBA1: rows of a are copied side by side, since rows 16 KiB apart push one another out of the first-level cache. v,
 * gates and outputs of a later token are prefetched: no CPU foresees lines so far apart. */
static void tokens_scan(const unit *u, uint32_t t, uint32_t end)
{
    const kvb_scan_problem *p = &u->x->problem;
    float *a = u->state + (size_t)p->d_k * u->columns;
    for (uint32_t i = 0; i < p->d_k && p->kind == KVB_SCAN_MAMBA1; i++)
        memcpy(a + (size_t)i * u->columns, u->x->a + (size_t)i * p->d_v + u->column, u->columns * sizeof *a);
    for (; t < end; t++) {
        kvb_scan_step s = step_of(u, t);
        for (uint32_t c = 0; c < u->columns && p->kind == KVB_SCAN_MAMBA1; c += 16) {
            __builtin_prefetch(s.v + (size_t)AHEAD * p->d_v + c);
            __builtin_prefetch(s.out + (size_t)AHEAD * p->d_v + c, 1);
            __builtin_prefetch(s.gates + (size_t)AHEAD * p->d_v + c);
        }
        s.elem = KVB_F32;
        s.row = s.a_row = u->columns;
        s.a = a;
        s.from = s.to = u->state;
        u->loops->scan_token(&s);
        out_end(u, t);
    }
}

static void chunks_scan(const unit *u, uint32_t t, uint32_t end)
{
    const kvb_scan_problem *p = &u->x->problem;
    const uint32_t group = p->heads / p->groups, last = u->head + u->heads;
    kvb_scan_chunk c = {.args = u->x, .scratch = u->chunk};
    for (c.first = t; c.first < end; c.first += c.n) {
        c.n = end - c.first < SCAN_CHUNK ? end - c.first : SCAN_CHUNK;
        for (c.head = u->head; c.head < last; c.head += c.heads) {
            c.heads = group - c.head % group < last - c.head ? group - c.head % group : last - c.head;
            c.then_head = c.head + c.heads < last ? c.head + c.heads : u->head;
            c.then_first = c.then_head == u->head ? c.first + c.n : c.first;
            c.states = u->state + (size_t)(c.head - u->head) * p->d_k * p->d_v;
            u->loops->scan_take(&c);
        }
    }
}

/* Reads inputs in place: the state's rows in scratch, then rows of v. */
static void taps_scan(const unit *u, uint32_t t, uint32_t end)
{
    const kvb_scan *x = u->x;
    const kvb_scan_problem *p = &x->problem;
    const uint32_t rows = p->d_k, n = end - t, most = p->out_elem == KVB_F32 ? TOKENS : 1;
    const float *at[TOKENS + TAPS];
    for (uint32_t j = 0, some; j < n; j += some) {
        some = n - j < most ? n - j : most;
        for (uint32_t i = 0; i < some + rows; i++)
            at[i] = j + i < rows ? u->state + (size_t)(j + i) * u->columns
                                 : x->v + (size_t)(t + j + i - rows) * p->d_v + u->column;
        u->loops->scan_taps(rows + 1, some, p->d_v, u->columns, at, x->a + u->column,
                            x->bias ? x->bias + u->column : NULL, p->silu, out_begin(u, t + j), kvb_scan_streams(x));
        out_end(u, t + j);
    }
    for (uint32_t i = 0; i < rows; i++) /* in this order: a row comes from a later one */
        memcpy(u->state + (size_t)i * u->columns,
               n + i < rows ? u->state + (size_t)(n + i) * u->columns
                            : x->v + (size_t)(t + n + i - rows) * p->d_v + u->column,
               u->columns * sizeof(float));
}

static void run_scan(const unit *u, uint32_t t, uint32_t end)
{
    const kvb_scan_problem *p = &u->x->problem;
    const size_t state = (size_t)p->d_k * u->columns;
    unit one = *u;
    for (uint32_t h = 0; h < u->heads; h++)
        state_move(u, kvb_scan_source(u->x, t), u->head + h, u->state + h * state, false);
    if (by_chunks(p, end - t))
        chunks_scan(u, t, end);
    for (one.heads = 1; !by_chunks(p, end - t) && one.head < u->head + u->heads; one.head++, one.state += state)
        if (p->kind == KVB_SCAN_CONV)
            taps_scan(&one, t, end);
        else
            tokens_scan(&one, t, end);
    for (uint32_t h = 0; h < u->heads && u->x->to[end - 1] != KVB_SCAN_NONE; h++)
        state_move(u, u->x->to[end - 1], u->head + h, u->state + h * state, true);
}

/* The run of tokens t .. end - 1. */
static void unit_scan(const unit *u, uint32_t t, uint32_t end)
{
    unit one = *u;
    if (end - t > 1 || u->x->problem.kind == KVB_SCAN_CONV)
        run_scan(u, t, end);
    else
        for (; one.head < u->head + u->heads; one.head++) {
            token_scan(&one, t, 0, u->x->problem.d_k);
            out_end(&one, t);
        }
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static void part(void *ctx, uint32_t i, uint32_t n)
{
    const kvb_scan *x = ctx;
    const kvb_scan_problem *p = &x->problem;
    const room r = room_of(p, n);
    const uint32_t columns = columns_of(p, n), blocks = (p->d_v + columns - 1) / columns,
                   all = by_columns(p) ? blocks : p->heads;
    const uint32_t begin = (uint32_t)((uint64_t)all * i / n), end = (uint32_t)((uint64_t)all * (i + 1) / n);
    unit u = {.x = x, .loops = kvb_vector_at(kvb_cpu()), .heads = 1, .columns = p->d_v};

    u.state = (float *)x->scratch + i * room_floats(p, n);
    u.row = u.state + r.state;
    u.chunk = u.row + r.row;
    /* All units for one run before the next run: their states lie side by side. */
    for (uint32_t t = 0, run_end; t < p->n_tok; t = run_end) {
        run_end = kvb_scan_run_end(x, t);
        if (p->kind == KVB_SCAN_MAMBA1 && run_end == t + 1) {
            while (run_end < p->n_tok && run_end < t + TOKENS && kvb_scan_run_end(x, run_end) == run_end + 1)
                run_end++;
            u.column = begin * COLUMNS;
            u.columns = (end * COLUMNS < p->d_v ? end * COLUMNS : p->d_v) - u.column;
            columns_scan(&u, t, run_end);
            continue;
        }
        for (uint32_t at = begin; at < end; at += u.heads) {
            if (by_columns(p)) {
                u.column = at * columns;
                u.columns = p->d_v - u.column < columns ? p->d_v - u.column : columns;
            } else {
                u.head = at;
                u.heads = r.heads < end - at ? r.heads : end - at;
            }
            unit_scan(&u, t, run_end);
        }
    }
}

static int scan(const kvb_scan *args)
{
    args->team->run(args->team, part, (void *)(uintptr_t)args);
    return 0;
}

static const kvb_scan_face face = {
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = arithmetic,
    .order = order,
    .scan = scan,
};

const kvb_kernel kvb_kernel_scan = {
    .name = "scan",
    .summary = "in vectors; prompts of mamba2, lightning and delta in chunks, by matrix products",
    .flags = KVB_KERNEL_VECTOR,
    .scan = &face,
};
