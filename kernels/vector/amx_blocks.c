/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any number of query rows by AMX's products of tiles of bf16. Blocks are packed as for the products of vectors: a dword
 * has two bf16 of one sum, and 16 dwords of 16 rows are a tile. All that tiles read lies in the order in which they do.
 *
 * Some blocks together are a strip, 32 rows a panel. A panel's sums are read and written once a strip.
 */
#if defined(__AMX_BF16__) || defined(__AMXBF16__) || defined(KVB_TILES_EMULATED) /* gcc, clang 14 */
#include "kernels/vector/bf16_pack.h"
#include "kernels/vector/tiles.h"

extern __typeof__(KVB_ISA_NAME(kvb_cap)) KVB_FLOATS_NAME(kvb_cap);
extern __typeof__(KVB_ISA_NAME(kvb_rescale)) KVB_FLOATS_NAME(kvb_rescale);

#define ROWS       TILE_ROWS_MAX
#define DEPTH      (TILE_BYTES / 2) /* channels or cells that an instruction adds up */
#define LANES      TILE_LANES       /* columns of a tile */
#define VECS       (BLOCK / VL)
#define PANEL_STEP (AMX_PANEL * TILE_BYTES) /* bytes from a tile of a panel's rows to the next channels or cells */
#define AT_ONCE    4u                       /* rows of weights that are computed side by side */

typedef struct strip {
    const kvb_amx_group *g;
    uint32_t first, blocks; /* first block of the strip; how many it has */
    int32_t *keys, *values; /* packed: [blocks][BLOCK / PLANE][key_rows][PLANE], [channels / PLANE][cells / 2][PLANE] */
    uint32_t key_rows;
    char *queries;          /* [k->dim / DEPTH][AMX_PANEL][DEPTH] bf16, of the panel at work */
    float *scores;          /* [AMX_PANEL][BLOCK], of one block */
    char *weights;          /* [cells / DEPTH][AMX_PANEL][DEPTH] bf16 */
    float *lanes;           /* [AMX_PANEL][VL]: sums of the strip's weights by lanes */
    uint32_t cells;         /* of a block */
    uint64_t there;         /* a bit for each of them */
    bool whole;             /* each row sees all of whole blocks */
    bool scaled;            /* a query row was encoded with a factor that is not 1 */
    float factor;           /* on scores, or on their tanh */
    kvb_lookahead *next[2]; /* K and V of what follows */
    uint32_t step, steps;   /* of tiles: how many are done of all */
} strip;

static inline uint32_t up(uint32_t n, uint32_t step)
{
    return (n + step - 1) / step;
}

/* ---- packed blocks ----------------------------------------------------------------------------------------------- */

/* Clears rows from .. end - 1 of n planes: they are multiplied by 0, so they must be finite. */
static inline void rows_clear(packing tile, uint32_t n, uint32_t from, uint32_t end)
{
    for (uint32_t i = 0; i < n && from < end; i++)
        memset(tile.to + i * tile.plane + from * PLANE, 0, (end - from) * PLANE * sizeof *tile.to);
}

static void strip_pack(const strip *s)
{
    const kvb_amx_group *g = s->g;
    const uint32_t n = s->cells;
    packing keys = {s->keys, PLANE, s->key_rows * PLANE}, values = {s->values, PLANE, AMX_STRIP / 2 * PLANE};
    uint32_t cells[BLOCK];

    for (uint32_t b = s->first; b < s->first + s->blocks; b++) {
        for (uint32_t i = 0; i < n; i++)
            cells[i] = g->cells[i] + b * BLOCK;
        block_pack(g->k, g->kv_head, cells, n, keys_of_bf16, keys_of_fp8, NULL, keys);
        rows_clear(keys, BLOCK / PLANE, g->k->dim / 2, s->key_rows);
        block_pack(g->v, g->kv_head, cells, n, values_of_bf16, values_of_fp8, NULL, values);
        rows_clear(values, up(g->v->dim, PLANE), up(n, 2), up(n, DEPTH) * ROWS);
        keys.to += BLOCK / PLANE * keys.plane;
        values.to += BLOCK / 2 * PLANE;
    }
}

/* A step of tiles is done: prefetches a share of what follows. */
static inline void step_taken(strip *s)
{
    s->step++;
    for (int side = 0; side < 2; side++)
        kvb_lookahead_until(s->next[side], s->step, s->steps);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/*
 * 2^x; 0 for -infinity, NaN for NaN. f is x minus the whole number below it. The polynomial of 2^f has the least relative
 * error of degree 4 with 1 for 0 (2^-18.4): weights are rounded to bf16. With degree 3 (2^-13.5) the oracle could no
 * longer tell outputs that are all a little too large. See AMX_WEIGHT_ERROR.
 */
VEC_INLINE vf weight_of(vf x)
{
    const vf f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vf p = vf_set(0x1.b7f732p-7f);
    p = vf_fma(p, f, vf_set(0x1.abf868p-5f));
    p = vf_fma(p, f, vf_set(0x1.ee2452p-3f));
    p = vf_fma(p, f, vf_set(0x1.62d6c6p-1f));
    p = vf_fma(p, f, vf_set(1));
    return vf_scale2(p, x);
}

/* Raises row i's max to `top`, the largest exponent of block b, rounded up. */
static __attribute__((noinline)) void row_raise(const strip *s, uint32_t r, uint32_t i, uint32_t b, float top)
{
    kvb_row_state *state = s->g->state[r + i];
    const uint32_t width = up(s->g->v->dim, 16) * 16;
    const float old = state->max, factor = exp2f(old - ceilf(top));
    char *weights = s->weights + i * TILE_BYTES;
    float *lanes = s->lanes + i * VL, *sums = s->g->sums[r + i];

    state->max = ceilf(top);
    if (old == -INFINITY) /* the sums are 0, or NaN */
        return;
    state->sum *= (double)factor;
    KVB_FLOATS_NAME(kvb_rescale)(sums, sums, width, factor);
    if (b) /* of this strip */
        vf_store(lanes, vf_load(lanes) * vf_set(factor));
    for (uint32_t c = 0; c < b * BLOCK; c += DEPTH, weights += PANEL_STEP)
        pairs_store(weights, vf_load_bf16(weights) * vf_set(factor),
                    vf_load_bf16(weights + TILE_BYTES / 2) * vf_set(factor));
}

/* Rows i .. i + rows - 1 of a panel that begins at row r: scores of block b become weights. */
VEC_INLINE void few_weigh(uint32_t rows, bool whole, const strip *s, uint32_t r, uint32_t i, uint32_t b)
{
    const vf factor = vf_set(s->factor);
    vf x[AT_ONCE * VECS], minus_max[AT_ONCE];

#pragma GCC unroll 4
    for (uint32_t j = 0; j < rows; j++) {
        const kvb_row_state *state = s->g->state[r + i + j];
        const uint64_t seen = s->g->visible[r + i + j] & s->there;
        vf top = vf_set(-INFINITY);
#pragma GCC unroll 4
        for (uint32_t v = 0; v < VECS; v++) {
            vf e = vf_load(s->scores + (i + j) * BLOCK + v * VL) * factor;
            if (!whole)
                e = vf_select((uint32_t)(seen >> v * VL) & 0xffff, e, vf_set(-INFINITY));
            top = vf_max(e, top); /* in this order: a NaN in e is ignored */
            x[j * VECS + v] = e;
        }
        if (vf_any_above(top, state->max + MOST_OVER))
            row_raise(s, r, i + j, b, vf_largest(top));
        minus_max[j] = vf_set(state->max > -INFINITY ? -state->max : 0); /* as in weights.c */
    }
#pragma GCC unroll 4
    for (uint32_t j = 0; j < rows; j++) {
        const uint64_t seen = s->g->visible[r + i + j] & s->there;
        float *lanes = s->lanes + (i + j) * VL;
        char *to = s->weights + BLOCK / DEPTH * b * PANEL_STEP + (i + j) * TILE_BYTES;
        vf w[VECS];
#pragma GCC unroll 4
        for (uint32_t v = 0; v < VECS; v++) {
            w[v] = weight_of(x[j * VECS + v] + minus_max[j]);
            if (!whole)
                w[v] = vf_select((uint32_t)(seen >> v * VL) & 0xffff, w[v], vf_set(0));
        }
        pairs_store(to, w[0], w[1]);
        pairs_store(to + PANEL_STEP, w[2], w[3]);
        vf total = (w[0] + w[1]) + (w[2] + w[3]);
        if (b)
            total = total + vf_load(lanes);
        vf_store(lanes, total);
    }
}

static void panel_weigh(const strip *s, uint32_t r, uint32_t rows, uint32_t b)
{
    uint32_t i = 0;
    for (; s->whole && i + AT_ONCE <= rows; i += AT_ONCE)
        few_weigh(AT_ONCE, true, s, r, i, b);
    for (; i < rows; i++)
        few_weigh(1, false, s, r, i, b);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Copies the query rows of the panel that begins at row r. A tile always has 16 rows: missing ones become copies of row r. */
static void queries_copy(const strip *s, uint32_t r, uint32_t rows)
{
    const uint32_t steps = up(s->g->k->dim, DEPTH);
    for (uint32_t i = 0; i < up(rows, ROWS) * ROWS; i++) {
        const char *from = (const char *)s->g->queries[r + (i < rows ? i : 0)] + 64;
        for (uint32_t k = 0; k < steps; k++)
            memcpy(s->queries + k * PANEL_STEP + i * TILE_BYTES, from + k * TILE_BYTES, TILE_BYTES);
    }
}

static void panel_scores(strip *s, uint32_t r, uint32_t rows, uint32_t b)
{
    const tile_at a[2] = {{s->queries, TILE_BYTES}, {s->queries + ROWS * TILE_BYTES, TILE_BYTES}};
    const int32_t *tile = s->keys + (size_t)b * BLOCK * s->key_rows;
    float *scores = s->scores;

    for (uint32_t c = 0; c < s->cells; c += 2 * LANES) {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        for (uint32_t k = 0; k < up(s->g->k->dim, DEPTH); k++, tile += ROWS * PLANE) {
            tiles_multiply(false, a, k * PANEL_STEP, rows > ROWS, tile, PLANE * sizeof *tile, true);
            step_taken(s);
        }
        tile_store(0, scores + c, BLOCK * sizeof *scores);
        tile_store(1, scores + c + LANES, BLOCK * sizeof *scores);
        tile_store(2, scores + ROWS * BLOCK + c, BLOCK * sizeof *scores);
        tile_store(3, scores + ROWS * BLOCK + c + LANES, BLOCK * sizeof *scores);
    }
    for (uint32_t i = 0; s->scaled && i < rows; i++, scores += BLOCK)
        KVB_FLOATS_NAME(kvb_rescale)(scores, scores, BLOCK, *(const float *)s->g->queries[r + i]);
    if (s->g->logits.softcap > 0)
        KVB_FLOATS_NAME(kvb_cap)(s->g->logits.scale, s->scores, BLOCK, rows);
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

/* Adds the strip to channels c .. c + 31 of a panel's sums, or to 16 of them. strides: from row to row of both tiles, 0: to
 * be copied. */
static void channels_sum(strip *s, uint32_t rows, uint32_t c, float *const *sums, const size_t strides[2])
{
    const tile_at a[2] = {{s->weights, TILE_BYTES}, {s->weights + ROWS * TILE_BYTES, TILE_BYTES}};
    const int32_t *tile = s->values + (size_t)c * AMX_STRIP / 2;
    const bool two = s->g->v->dim - c > LANES, both = rows > ROWS;
    const size_t bytes = two ? 2 * TILE_BYTES : TILE_BYTES;
    _Alignas(64) float copy[AMX_PANEL][2 * LANES];
    tile_at to[2] = {{0}};

    for (uint32_t i = 0; i * ROWS < rows; i++)
        to[i] = tile_find((const void *const *)(sums + i * ROWS), tile_rows_of(rows, i), strides[i], c * sizeof(float),
                          bytes, copy[i * ROWS]);
    tile_load(0, to[0].at, to[0].stride);
    if (two)
        tile_load(1, to[0].at + TILE_BYTES, to[0].stride);
    if (both)
        tile_load(2, to[1].at, to[1].stride);
    if (two && both)
        tile_load(3, to[1].at + TILE_BYTES, to[1].stride);
    for (uint32_t k = 0; k < up(s->cells * s->blocks, DEPTH); k++, tile += ROWS * PLANE) {
        tiles_multiply(false, a, k * PANEL_STEP, both, tile, PLANE * sizeof *tile, two);
        step_taken(s);
    }
    tile_store(0, to[0].at, to[0].stride);
    if (two)
        tile_store(1, to[0].at + TILE_BYTES, to[0].stride);
    if (both)
        tile_store(2, to[1].at, to[1].stride);
    if (two && both)
        tile_store(3, to[1].at + TILE_BYTES, to[1].stride);
    for (uint32_t i = 0; i * ROWS < rows; i++)
        for (uint32_t r = 0; !strides[i] && r < tile_rows_of(rows, i); r++)
            memcpy(sums[i * ROWS + r] + c, to[i].at + r * bytes, bytes);
}

/* Adds the strip to the sums of a panel. */
static void panel_sum(strip *s, uint32_t r, uint32_t rows)
{
    float *const *sums = s->g->sums + r;
    size_t strides[2] = {0};

    for (uint32_t i = 0; i < rows; i++)
        s->g->state[r + i]->sum += (double)vf_total(vf_load(s->lanes + i * VL));
    for (uint32_t i = 0; i * ROWS < rows; i++)
        strides[i] = tile_stride((const void *const *)(sums + i * ROWS), tile_rows_of(rows, i));
    for (uint32_t c = 0; c < s->g->v->dim; c += PLANE)
        channels_sum(s, rows, c, sums, strides);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void strip_attend(strip *s)
{
    const uint32_t of_scores = up(s->cells, 2 * LANES) * up(s->g->k->dim, DEPTH) * s->blocks;
    const uint32_t of_sums = up(s->g->v->dim, PLANE) * up(s->cells * s->blocks, DEPTH);

    s->step = 0;
    s->steps = up(s->g->n_rows, AMX_PANEL) * (of_scores + of_sums);
    for (uint32_t r = 0; r < s->g->n_rows; r += AMX_PANEL) {
        const uint32_t rows = s->g->n_rows - r < AMX_PANEL ? s->g->n_rows - r : AMX_PANEL;
        queries_copy(s, r, rows);
        for (uint32_t b = 0; b < s->blocks; b++) {
            panel_scores(s, r, rows, b);
            panel_weigh(s, r, rows, b);
        }
        panel_sum(s, r, rows);
    }
}

static strip strip_of(const kvb_amx_group *g, void *scratch)
{
    strip s = {.g = g, .keys = scratch, .key_rows = up(g->k->dim, DEPTH) * ROWS, .cells = g->n_cells};
    s.values = s.keys + (size_t)AMX_STRIP * s.key_rows;
    s.queries = (char *)(s.values + (size_t)AMX_STRIP / 2 * kvb_bf16_width(g->v->dim));
    s.scores = (float *)(void *)(s.queries + up(g->k->dim, DEPTH) * PANEL_STEP);
    s.weights = (char *)(s.scores + AMX_PANEL * BLOCK);
    s.lanes = (float *)(void *)(s.weights + AMX_STRIP / DEPTH * PANEL_STEP);
    s.there = UINT64_MAX >> (BLOCK - g->n_cells);
    s.factor = g->logits.softcap > 0 ? g->logits.softcap : g->logits.scale;
    s.whole = g->n_cells == BLOCK;
    for (uint32_t r = 0; r < g->n_rows; r++) {
        s.whole &= g->visible[r] == UINT64_MAX;
        s.scaled |= *(const float *)g->queries[r] != 1;
    }
    return s;
}

static void amx_attend(const kvb_amx_group *g, kvb_lookahead *k_next, kvb_lookahead *v_next, void *scratch)
{
    strip s = strip_of(g, scratch);
    tiles_open(LANES);
    for (; s.first < g->blocks; s.first += s.blocks) {
        const uint32_t left = g->blocks - s.first, most = AMX_STRIP / BLOCK, after = left > most ? left - most : 0;
        const uint32_t cell = g->cells[0] + (s.first + most) * BLOCK;
        kvb_lookahead k = {g->k, &cell, g->kv_head, 1, 0, (after < most ? after : most) * BLOCK, true, 0}, v = k;
        v.view = g->v;
        s.blocks = left < most ? left : most;
        s.next[0] = after ? &k : k_next;
        s.next[1] = after ? &v : v_next;
        strip_pack(&s);
        strip_attend(&s);
    }
    tiles_close();
}

extern const kvb_amx_loops KVB_ISA_NAME(kvb_tiles);
const kvb_amx_loops KVB_ISA_NAME(kvb_tiles) = {.attend = amx_attend};
#endif
