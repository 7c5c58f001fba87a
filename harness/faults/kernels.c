/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with wrong masks, inputs, rows, sums or outputs: in histories, where outputs are f32, and in single calls
 * (ALL_CALLS), at values that histories do not have. */
#include "harness/faults/fault.h"
#include "kernels/convert.h"

#include <math.h>
#include <string.h>

/* Combinations that many faults are planted in. */
#define FLASH "plain-decode seq f32 flash"
#define INT8  "plain-decode-2x128 seq q8_0 flash-int8"
#define BF16  "plain-decode seq bf16 flash-bf16"

#define ALL_CALLS  "calls none any flash"
#define ALL_ORDERS "calls none any reference, calls none any flash"
#define BY         ((float)kvb_fault_here.by)
#define FLOATS     (1u << 20) /* of a partial result; a larger call is not changed */
#define WIDEST     4096u      /* channels of a row at most */

static size_t rows_of(const kvb_attend *x)
{
    return (size_t)x->problem.n_tok * x->problem.n_heads;
}

static size_t words_of(const kvb_attend *x)
{
    return ((size_t)x->problem.n_cells + 63) / 64;
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static bool bit_get(const uint64_t *row, uint32_t cell)
{
    return row[cell / 64] >> cell % 64 & 1;
}

static void bit_turn(uint64_t *row, uint32_t cell)
{
    row[cell / 64] ^= UINT64_C(1) << cell % 64;
}

/* The visible cell with `before` visible cells before it, or n_cells. */
static uint32_t seen_after(const kvb_attend *x, const uint64_t *row, uint32_t before)
{
    uint32_t cell = 0;
    while (cell < x->problem.n_cells && !(bit_get(row, cell) && before-- == 0))
        cell++;
    return cell;
}

static uint32_t seen_count(const kvb_attend *x, const uint64_t *row)
{
    uint32_t n = 0;
    for (uint32_t cell = 0; cell < x->problem.n_cells; cell++)
        n += bit_get(row, cell);
    return n;
}

/* Hides one cell. by: 0 the first, 8 the last. A query with fewer than three cells is not changed: it must see some. */
static void see_one_less(const kvb_fault_row *r)
{
    const uint32_t n = seen_count(r->call, r->bits);
    if (n > 2)
        bit_turn(r->bits, seen_after(r->call, r->bits, (n - 1) * (uint32_t)BY / 8));
}

KVB_HOOK_EACH(see_all, const kvb_fault_row *r, r->call->problem.n_cells, r->bits[i / 64] |= UINT64_C(1) << i % 64)

/* Shows the first hidden cell after the visible ones: another sequence's, a sibling's, or the next token's. */
static void see_one_more(const kvb_fault_row *r)
{
    const uint32_t n = seen_count(r->call, r->bits), last = n ? seen_after(r->call, r->bits, n - 1) : 0;
    if (last + 1 < r->call->problem.n_cells)
        bit_turn(r->bits, last + 1);
}

static void see_as(const kvb_fault_row *r, uint32_t query)
{
    memcpy(r->bits, r->call->mask.bits + query * r->call->mask.row_words, words_of(r->call) * sizeof *r->bits);
}

/* In long prefills alone. */
KVB_HOOK_IF(see_as_last, const kvb_fault_row *r, r->call->problem.n_tok > 16, see_as(r, r->call->problem.n_tok - 1))

KVB_HOOK_IF(see_as_neighbour, const kvb_fault_row *r, r->query > 0, see_as(r, r->query - 1))

/* A window that is one position short. */
static void window_short(const kvb_fault_row *r)
{
    const uint32_t first = seen_after(r->call, r->bits, 0);
    if (first > 0 && first + 1 < r->call->problem.n_cells)
        see_one_less(r);
}

/* One word of the mask is used for two. */
KVB_HOOK_IF(see_by_words, const kvb_fault_row *r, r->call->problem.n_cells > 128, r->bits[1] = r->bits[0])

/* With several tokens the mask lacks the last cell, as if it had been sized before the last token came. */
static void see_narrower(const kvb_fault_row *r)
{
    const uint32_t last = r->call->problem.n_cells - 1;
    if (r->call->problem.n_tok > 1)
        r->bits[last / 64] &= ~(UINT64_C(1) << last % 64);
}

KVB_HOOK_IF(see_past_end, const kvb_fault_row *r, r->call->problem.n_cells % 64,
            r->bits[r->call->problem.n_cells / 64] |= UINT64_C(1) << r->call->problem.n_cells % 64)
KVB_HOOK_IF(read_past_end, kvb_attend *x, x->problem.n_cells % 64, x->problem.n_cells = x->v.cells = ++x->k.cells)

/* mlx 3360: the index of a column in 16 bits. */
static void column_16(const kvb_fault_row *r)
{
    for (uint32_t word = 1024; word < words_of(r->call); word++) {
        r->bits[word - 1024] |= r->bits[word];
        r->bits[word] = 0;
    }
}

/* mlx 4022: above 1024 cells another path runs, which leaves out rows. */
KVB_HOOK_IF(chunks_1024, const kvb_fault_row *r, r->call->problem.n_cells > 1024, r->bits[16] = 0)

/* A call uses the mask of the call before, if both have the same number of words. */
static void mask_kept(kvb_attend *x)
{
    static uint64_t kept[2][1u << 16];
    static size_t n[2];
    static int now;
    const size_t words = x->problem.n_tok * x->mask.row_words;
    if (words > 1u << 16)
        return;
    memcpy(kept[now], x->mask.bits, words * sizeof **kept);
    n[now] = words;
    now = !now;
    if (n[now] == words)
        x->mask.bits = kept[now];
}

KVB_HOOK(stride_least, kvb_attend *x, x->mask.row_words = words_of(x))

/* Entries of all tables; 0: the queries have none. */
static uint32_t table_entries(const kvb_attend *x)
{
    uint32_t entries = 0;
    for (uint32_t t = 0; t < x->problem.n_tok && x->mask.kind == KVB_MASK_PAGES; t++) {
        const uint32_t last =
            x->mask.row_start[t] + (x->mask.seen[t].end + x->mask.page_cells - 1) / x->mask.page_cells;
        entries = last > entries ? last : entries;
    }
    return entries;
}

/* flashinfer 4347: in a page of more than 128 cells the first half is read twice. */
static void pages_halved(kvb_attend *x)
{
    static uint32_t pages[1u << 16], starts[1u << 12];
    const uint32_t entries = table_entries(x);
    if (!entries || x->mask.page_cells != 256 || entries > 1u << 15)
        return;
    for (uint32_t i = 0; i < entries; i++)
        pages[2 * i] = pages[2 * i + 1] = x->mask.pages[i] == UINT32_MAX ? UINT32_MAX : 2 * x->mask.pages[i];
    for (uint32_t t = 0; t < x->problem.n_tok; t++)
        starts[t] = 2 * x->mask.row_start[t];
    x->mask.pages = pages;
    x->mask.row_start = starts;
    x->mask.page_cells = 128;
}

/* mlx 3360: the index of a page in 16 bits. */
static void page_16(kvb_attend *x)
{
    static uint32_t pages[1u << 16];
    const uint32_t entries = table_entries(x);
    for (uint32_t i = 0; i < entries && entries < 1u << 16; i++)
        pages[i] = x->mask.pages[i] == UINT32_MAX ? UINT32_MAX : x->mask.pages[i] & 0xffff;
    if (entries && entries < 1u << 16)
        x->mask.pages = pages;
}

/* ---- q ----------------------------------------------------------------------------------------------------------- */

static float to_12_bits(float value, float largest)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0xfffff000u;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

KVB_HOOK_OF(float, small_to_0, (float value, float largest), fabsf(value) < largest / 64 ? 0 : value)

/* An 8-bit code that is not multiplied by its scale. */
KVB_HOOK_OF(float, code_of_8_bits, (float value, float largest), largest > 0 ? roundf(value / largest * 127) : 0)

KVB_HOOK_OF(size_t, next_head, (const kvb_problem *p, size_t row),
            row / p->n_heads * p->n_heads + (row + 1) % p->n_heads)
KVB_HOOK_OF(size_t, first_of_kv_head, (const kvb_problem *p, size_t row), row - row % (p->n_heads / p->n_kv_heads))
KVB_HOOK_OF(size_t, four_before, (const kvb_problem *p, size_t row), row < 4 * p->n_heads ? row : row - 4 * p->n_heads)

/* Over bf16 rows: as if 8 heads shared each KV head. */
static size_t by_eights(const kvb_problem *p, size_t row)
{
    const size_t group = p->n_heads / p->n_kv_heads, head = row % p->n_heads;
    return p->k_format->elem != KVB_BF16 ? row : row - head + (head / group * 8 + head % group) % p->n_heads;
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

KVB_HOOK(scale_times, kvb_attend *x, x->problem.scale *= BY)
KVB_HOOK(scale_of_v, kvb_attend *x, x->problem.scale = 1 / sqrtf(2.0f * (float)x->problem.v_dim))
KVB_HOOK(scale_usual, kvb_attend *x, x->problem.scale = 1 / sqrtf((float)x->problem.k_dim))
KVB_HOOK(softcap_off, kvb_attend *x, x->problem.softcap = 0)
KVB_HOOK(softcap_off_in_decode, kvb_attend *x, x->problem.softcap = x->problem.n_tok == 1 ? 0 : x->problem.softcap)
KVB_HOOK(softcap_unscaled, kvb_attend *x, x->problem.softcap /= x->problem.scale)

static void sinks_off(kvb_attend *x)
{
    x->problem.has_sinks = false;
    x->sinks = NULL;
}

static void sink_of_first_head(kvb_attend *x)
{
    static float sinks[KVB_MODEL_WIDTH];
    for (uint32_t h = 0; h < x->problem.n_heads; h++)
        sinks[h] = x->sinks[0];
    x->sinks = sinks;
}

/* ---- rows of K and V --------------------------------------------------------------------------------------------- */

KVB_HOOK(of_neighbour, kvb_view *v, v->base = (const char *)v->base + v->cell_stride)
KVB_HOOK(of_first_head, kvb_view *v,
         v->head_stride = v->scale_head_stride = v->zero_head_stride = v->recent_head_stride = 0)
KVB_HOOK(scales_of_first_cell, kvb_view *v, v->scale_cell_stride = 0)
KVB_HOOK(zeros_of_first_cell, kvb_view *v, v->zero_cell_stride = 0)
KVB_HOOK(scales_of_first_head, kvb_view *v, v->scale_head_stride = 0)
KVB_HOOK(factors_of_first_group, kvb_view *v, v->scale_cell_stride = v->zero_cell_stride = 0)
KVB_HOOK_IF(k_for_v, kvb_attend *x, x->problem.k_dim == x->problem.v_dim, x->v = x->k)

/* For formats that keep a whole row in one place. */
static void v_of_neighbour(kvb_attend *x)
{
    static char rows[1u << 22];
    const size_t row = x->v.cell_stride, head = x->v.cells * row;
    if (x->v.scales || x->problem.n_kv_heads * head > sizeof rows)
        return;
    for (uint32_t h = 0; h < x->problem.n_kv_heads; h++)
        for (uint32_t cell = 0; cell < x->v.cells; cell++)
            memcpy(rows + h * head + cell * row, kvb_view_row(&x->v, h, (cell ^ 1) < x->v.cells ? cell ^ 1 : cell),
                   row);
    x->v.base = rows;
    x->v.head_stride = head;
}

static const kvb_format *not_turned(const kvb_format *format)
{
    static kvb_format plain;
    plain = *format;
    plain.transform = KVB_TRANSFORM_NONE;
    return &plain;
}

KVB_HOOK(k_as_not_turned, kvb_attend *x, x->k.format = x->problem.k_format = not_turned(x->k.format))
KVB_HOOK(v_as_not_turned, kvb_attend *x, x->v.format = x->problem.v_format = not_turned(x->v.format))

static void codes_of_residual_cells(kvb_attend *x)
{
    static uint32_t none[1u << 12];
    memset(none, 0xff, sizeof none); /* KVB_SLOT_NONE */
    x->k.recent_slot = x->v.recent_slot = none;
}

static void residual_cells_of_next_slot(kvb_attend *x)
{
    static uint32_t slots[1u << 12];
    const uint32_t w = x->v.format->residual_cells, most = x->v.format->residual_blocks;
    for (uint32_t i = 0; i * w < x->v.cells; i++)
        slots[i] = x->v.recent_slot[i] == KVB_SLOT_NONE ? KVB_SLOT_NONE : (x->v.recent_slot[i] + 1) % most;
    x->v.recent_slot = slots;
}

/* The tail's rows are read by indices that count from the front's first cell. */
KVB_HOOK(tail_behind_front, kvb_view *v, v->base = (const char *)v->base + kvb_view_front_cells(v) * v->cell_stride)
KVB_HOOK(v_front_is_k, kvb_attend *x, x->v.front = x->k.front)

/* Addresses of rows are rounded down to multiples of 16 bytes. */
KVB_HOOK(align_16, kvb_view *v, v->base = (const void *)((uintptr_t)v->base & ~(uintptr_t)15))

/* ---- two partial results ----------------------------------------------------------------------------------------- */

typedef enum halves { EVENLY, BY_LARGER, TWICE, LAST_TWICE } halves;

/* Attends some of the cells again and merges both results: evenly, by the larger lse, or weighted by lse, so that these
 * cells count twice. */
static void halves_merge(const kvb_attend *x)
{
    static uint64_t bits[1u << 16];
    static float other_out[FLOATS], other_lse[FLOATS / 64];
    const halves how = (halves)kvb_fault_here.by;
    const kvb_problem *p = &x->problem;
    const size_t rows = rows_of(x), words = p->n_tok * x->mask.row_words;
    kvb_attend half = *x;
    if (rows * p->v_dim > FLOATS || rows > FLOATS / 64 || words > 1u << 16 || p->out_elem != KVB_F32 || !x->lse)
        return;
    half.out = other_out;
    half.lse = other_lse;
    for (size_t i = 0; i < words; i++) /* the even cells, or the last one */
        bits[i] = how == LAST_TWICE ? 0 : x->mask.bits[i] & UINT64_C(0x5555555555555555);
    for (uint32_t t = 0; t < p->n_tok && how == LAST_TWICE; t++) {
        const uint64_t *row = x->mask.bits + t * x->mask.row_words;
        bit_turn(bits + t * x->mask.row_words, seen_after(x, row, seen_count(x, row) - 1));
    }
    half.mask.bits = bits;
    if (kvb_fault_here.kernel->attend(&half))
        return;
    for (size_t row = 0; row < rows; row++) {
        float *out = (float *)x->out + row * p->v_dim, a = x->lse[row], b = other_lse[row];
        if (!(b > -INFINITY))
            continue;
        const float whole = how >= TWICE ? expf(a - fmaxf(a, b)) : how == EVENLY ? 1 : a > b + 1;
        const float part = how >= TWICE ? expf(b - fmaxf(a, b)) : how == EVENLY ? 1 : a <= b + 1;
        for (uint32_t c = 0; c < p->v_dim; c++)
            out[c] = (whole * out[c] + part * other_out[row * p->v_dim + c]) / (whole + part);
    }
}

/* ---- hidden cells ------------------------------------------------------------------------------------------------ */

/* Adds 0 times each hidden row of K (by 0) or V (by 1): no change as long as the row is finite. */
static void hidden_add(const kvb_attend *x)
{
    const kvb_view *view = kvb_fault_here.by > 0 ? &x->v : &x->k;
    static float row[KVB_MODEL_WIDTH];
    const kvb_problem *p = &x->problem;
    for (uint32_t t = 0; t < p->n_tok && p->out_elem == KVB_F32; t++)
        for (uint32_t cell = 0; cell < p->n_cells; cell++) {
            if (bit_get(x->mask.bits + t * x->mask.row_words, cell))
                continue;
            for (uint32_t h = 0; h < p->n_heads; h++) {
                float *out = (float *)x->out + ((size_t)t * p->n_heads + h) * p->v_dim;
                kvb_view_read(view, h / (p->n_heads / p->n_kv_heads), cell, 1, row);
                for (uint32_t c = 0; c < p->v_dim && c < view->dim; c++)
                    out[c] += 0 * row[c];
            }
        }
}

/* ---- outputs: rows ----------------------------------------------------------------------------------------------- */

static size_t out_bytes(const kvb_attend *x)
{
    return x->problem.v_dim * kvb_elem_bytes(x->problem.out_elem);
}

static float *row_of(const kvb_attend *x, uint32_t query, uint32_t head)
{
    return (float *)x->out + ((size_t)query * x->problem.n_heads + head) * x->problem.v_dim;
}

static float *last_row(const kvb_attend *x)
{
    return row_of(x, x->problem.n_tok - 1, x->problem.n_heads - 1);
}

static void row_fill(const kvb_attend *x, size_t row, int byte)
{
    memset((char *)x->out + row * out_bytes(x), byte, out_bytes(x));
}

static void row_nan(const kvb_attend *x, size_t row)
{
    row_fill(x, row, 0xff);
}

KVB_HOOK(all_clear, const kvb_attend *x, memset(x->out, 0, rows_of(x) * out_bytes(x)))
KVB_HOOK(last_clear, const kvb_attend *x, row_fill(x, rows_of(x) - 1, 0))

static void heads_swapped(const kvb_attend *x)
{
    for (uint32_t t = 0; t < x->problem.n_tok && x->problem.n_heads > 1; t++)
        for (uint32_t c = 0; c < x->problem.v_dim; c++) {
            float *a = row_of(x, t, 0) + c, *b = row_of(x, t, 1) + c, kept = *a;
            *a = *b;
            *b = kept;
        }
}

static void query_before(const kvb_attend *x)
{
    for (uint32_t t = x->problem.n_tok - 1; t > 0; t--)
        memcpy(row_of(x, t, 0), row_of(x, t - 1, 0), out_bytes(x));
}

/* The last row of the outputs before the call. */
static float found[KVB_MODEL_WIDTH], found_lse;

KVB_HOOK(last_found, kvb_attend *x, memcpy(found, last_row(x), out_bytes(x)))
KVB_HOOK(last_left, const kvb_attend *x, memcpy(last_row(x), found, out_bytes(x)))
KVB_HOOK(lse_found, kvb_attend *x, found_lse = x->lse ? *x->lse : 0)
KVB_HOOK_IF(lse_left, const kvb_attend *x, x->lse, *x->lse = found_lse)

/* A row that a sample may lack: a sample always has the first and the last row. */
static float *row_elsewhere(const kvb_attend *x)
{
    return row_of(x, x->problem.n_tok / 2, x->problem.n_heads / 3);
}

/* In one of `by` calls a row is that of the call before. */
static void row_stale(const kvb_attend *x, float *row)
{
    static float kept[KVB_MODEL_WIDTH];
    static uint32_t calls;
    if (++calls % (uint32_t)BY == 0)
        memcpy(row, kept, out_bytes(x));
    memcpy(kept, row, out_bytes(x));
}

KVB_HOOK(last_stale, const kvb_attend *x, row_stale(x, last_row(x)))
KVB_HOOK(stale_elsewhere, const kvb_attend *x, row_stale(x, row_elsewhere(x)))
KVB_HOOK(nan_elsewhere, const kvb_attend *x,
         row_nan(x, (size_t)(row_elsewhere(x) - (float *)x->out) / x->problem.v_dim))

static void half_by_second_thread(const kvb_attend *x)
{
    for (uint32_t t = x->problem.n_tok / 2; t < x->problem.n_tok && x->team && x->team->n > 1; t++)
        for (uint32_t c = 0; c < x->problem.v_dim; c++)
            row_of(x, t, 0)[c] *= 1.01f;
}

/* llama.cpp 28358: threads share scratch, and the second one overwrites the result of the first. */
KVB_HOOK_IF(threads_share, const kvb_attend *x, x->team->n > 1 && x->problem.n_heads > 1,
            memcpy((char *)x->out + out_bytes(x), x->out, out_bytes(x)))

/* State of an earlier, larger call is kept, which is forbidden. */
static void state_kept(const kvb_attend *x)
{
    static uint32_t most;
    if (x->problem.n_cells < most)
        all_clear(x);
    most = x->problem.n_cells > most ? x->problem.n_cells : most;
}

/* ---- outputs: elements, and the log-sum-exp ---------------------------------------------------------------------- */

KVB_HOOK(last_nan, const kvb_attend *x, last_row(x)[x->problem.v_dim - 1] = NAN)
KVB_HOOK(one_times, const kvb_attend *x, *last_row(x) *= BY)
KVB_HOOK_EACH(all_times, const kvb_attend *x, rows_of(x) * x->problem.v_dim, ((float *)x->out)[i] *= BY)
KVB_HOOK_EACH(last_channel_zero, const kvb_attend *x, rows_of(x), row_of(x, 0, 0)[(i + 1) * x->problem.v_dim - 1] = 0)

static void channels_turned(const kvb_attend *x)
{
    float *row = last_row(x), first = *row;
    memmove(row, row + 1, out_bytes(x) - sizeof *row);
    row[x->problem.v_dim - 1] = first;
}

static void to_bf16(const kvb_attend *x)
{
    float *out = x->out;
    for (size_t i = 0; i < rows_of(x) * x->problem.v_dim; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof bits);
        bits = (bits + 0x8000u) & 0xffff0000u;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* 16-bit outputs with the last bits dropped, not rounded to nearest. */
static void out_truncated(const kvb_attend *x)
{
    uint16_t *out = x->out;
    for (size_t i = 0; i < rows_of(x) * x->problem.v_dim && x->problem.out_elem != KVB_F32; i++)
        out[i] &= 0xfffc;
}

/* A sum that depends on the number of threads. */
static void threads_split(const kvb_attend *x)
{
    float *out = x->out;
    if (x->problem.deterministic && x->team->n > 1 && x->problem.out_elem == KVB_F32 &&
        fabsf(out[0]) > 0x1p-100f) /* smaller: the change would be no rounding error */
        out[0] = nextafterf(out[0], INFINITY);
}

KVB_HOOK_EACH(lse_times, const kvb_attend *x, x->lse ? rows_of(x) : 0, x->lse[i] *= BY)
KVB_HOOK_EACH(lse_plus, const kvb_attend *x, x->lse ? rows_of(x) : 0, x->lse[i] += BY)

/* flashinfer 4450: a very small log-sum-exp is taken for -infinity. */
KVB_HOOK_EACH_IF(finite_infinity, const kvb_attend *x, rows_of(x), x->lse[i] < -5e4f, row_fill(x, i, 0))

static bool is_blind(const kvb_attend *x, size_t row)
{
    uint32_t cursor = 0;
    kvb_run run;
    return !x->problem.has_sinks && !kvb_mask_next(&x->mask, x->problem.n_tok, x->problem.n_cells,
                                                   (uint32_t)(row / x->problem.n_heads), &cursor, &run);
}

/* flashinfer 4452: a query that sees no cell gives NaN. */
KVB_HOOK_EACH_IF(blind_nan, const kvb_attend *x, rows_of(x), is_blind(x, i), row_nan(x, i))

/* rten 1321: a query that sees no cell has a finite log-sum-exp. */
KVB_HOOK_EACH_IF(blind_finite, const kvb_attend *x, rows_of(x), is_blind(x, i), x->lse[i] = -1e30f)

KVB_HOOK_EACH_IF(sinks_huge, const kvb_attend *x, x->problem.has_sinks ? rows_of(x) : 0,
                 x->sinks[i % x->problem.n_heads] > 88, row_fill(x, i, 0))

/* Largest |q.k| of a row over the cells that it sees. */
static float product_most(const kvb_attend *x, uint32_t t, uint32_t head)
{
    static float k[WIDEST];
    const kvb_problem *p = &x->problem;
    const float *q = x->q + ((size_t)t * p->n_heads + head) * p->k_dim;
    uint32_t cursor = 0;
    float most = 0;
    for (kvb_run run; kvb_mask_next(&x->mask, p->n_tok, p->n_cells, t, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++) {
            float sum = 0;
            kvb_view_read(&x->k, head / (p->n_heads / p->n_kv_heads), c, 1, k);
            for (uint32_t d = 0; d < p->k_dim; d++)
                sum += q[d] * k[d];
            most = fmaxf(most, fabsf(sum));
        }
    return most;
}

/* onnxruntime 24953: q.k overflows f16 before it is scaled. */
static void product_overflow(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x) && row < 64; row++)
        if (product_most(x, (uint32_t)(row / x->problem.n_heads), (uint32_t)(row % x->problem.n_heads)) > 65504)
            row_nan(x, row);
}

/* vllm 50427: the byte offset of a cell in 32 bits. The wrong rows are NaN here. */
static void offset_32(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x); row++) {
        uint32_t cursor = 0;
        for (kvb_run run; kvb_mask_next(&x->mask, x->problem.n_tok, x->problem.n_cells,
                                        (uint32_t)(row / x->problem.n_heads), &cursor, &run);)
            if ((uint64_t)(run.end - 1) * x->k.cell_stride > UINT32_MAX)
                row_nan(x, row);
    }
}

/* Zeros at one value of an axis only, like a shape that was never tested. */
#define ZERO_AT(name, condition)                                                                                       \
    static void name(const kvb_attend *x)                                                                              \
    {                                                                                                                  \
        const kvb_problem *p = &x->problem;                                                                            \
        if (condition)                                                                                                 \
            all_clear(x);                                                                                              \
    }
ZERO_AT(zero_coded_1024, p->n_cells > 1024 && p->k_format->elem > KVB_BF16) /* ik_llama 1205 */
ZERO_AT(zero_dim_256_512, p->n_cells > 512 && p->k_dim == 256)
ZERO_AT(zero_dim_80, p->k_dim == 80)
ZERO_AT(zero_dim_512, p->k_dim == 512)
ZERO_AT(zero_dims_unlike, p->k_dim == 192 && p->v_dim == 128)
ZERO_AT(zero_group_7, p->n_heads == 7 * p->n_kv_heads)
ZERO_AT(zero_group_71, p->n_heads == 71)
ZERO_AT(zero_latent_128, p->v_in_k && p->n_heads == 128 * p->n_kv_heads)
ZERO_AT(zero_heads_32, p->n_kv_heads == 32)
ZERO_AT(zero_tokens_129, p->n_tok > 128)

/* ---- the order of additions: all of these pass the bound --------------------------------------------------------- */

/* Twice as many lanes, the upper half added to the lower one first. */
static void lanes_double(kvb_order_tile *t)
{
    kvb_sum_lanes *l = &t->dot;
    for (uint32_t f = sizeof l->folds / sizeof *l->folds - 1; f > 0; f--)
        l->folds[f] = l->folds[f - 1];
    l->folds[0] = l->n;
    l->n *= 2;
}

/* Folds in reverse order. */
static void folds_turned(kvb_order_tile *t)
{
    kvb_sum_lanes *l = &t->dot;
    uint32_t n = 0;
    for (; n < sizeof l->folds / sizeof *l->folds && l->folds[n]; n++)
        ;
    for (uint32_t f = 0; f < n / 2; f++) {
        const uint32_t fold = l->folds[f];
        l->folds[f] = l->folds[n - 1 - f];
        l->folds[n - 1 - f] = fold;
    }
}

KVB_HOOK(weights_one_by_one, kvb_order *o, o->weights.n = 0)
KVB_HOOK(tile_by_eights, kvb_order_tile *t, t->v_cells = 8)
KVB_HOOK(fused_otherwise, kvb_order *o, o->fused = !o->fused)

/* Sometimes rounds differently from expf(). */
KVB_HOOK_OF(float, exp_rounded, (float x), expf(x) * (1 + 0x1p-23f))
KVB_HOOK(exp_otherwise, kvb_order *o, o->exp = exp_rounded)

static void max_later(kvb_order *o)
{
    o->softmax = KVB_SOFTMAX_ONLINE;
    o->tile.cells = 4;
}

/* Runs of cells in reverse order. */
static void runs_reversed(kvb_attend *x)
{
    static kvb_run runs[1u << 16];
    const uint32_t *first = x->mask.row_start;
    if (x->mask.kind != KVB_MASK_RUNS || first[x->problem.n_tok] > 1u << 16)
        return;
    for (uint32_t t = 0; t < x->problem.n_tok; t++)
        for (uint32_t i = first[t]; i < first[t + 1]; i++)
            runs[i] = x->mask.runs[first[t + 1] - 1 - (i - first[t])];
    x->mask.runs = runs;
}

static void last_bit(const kvb_attend *x)
{
    float *out = (float *)x->out + x->problem.v_dim / 2;
    if (x->problem.out_elem == KVB_F32 && *out != 0)
        *out = nextafterf(*out, INFINITY);
}

KVB_HOOK_IF(lse_last_bit, const kvb_attend *x, x->lse &&isfinite(x->lse[0]),
            x->lse[0] = nextafterf(x->lse[0], INFINITY))

const kvb_fault kvb_kernel_faults[] = {
    {"key-first", "one key is dropped: the first that a query sees", KVB_CHECK_BOUND,
     FLASH
     ", batched-multi-seq seq f16 openblas, batched-multi-seq-2x128 seq q8_0 flash, plain-decode-2x128 seq f16 flash "
     "sampled alone, " INT8 ", " BF16,
     .by = 0, .kernel.sight = see_one_less},
    {"key-middle", "one key is dropped: the middle one", KVB_CHECK_BOUND,
     FLASH ", eagle-tree tree bf16 flash, batched-multi-seq-2x128 slab a4g64 flash, " INT8 ", " BF16, .by = 4,
     .kernel.sight = see_one_less},
    {"key-last", "one key is dropped: the query's own", KVB_CHECK_BOUND,
     "plain-decode seq f32 reference, parallel-sample seq e4m3 flash, " INT8 ", " BF16, .by = 8,
     .kernel.sight = see_one_less},
    {"key-now-and-then", "a key is dropped in one call of 97", KVB_CHECK_BOUND, FLASH ", agent-fork seq f16 flash",
     .by = 4, .kernel.every = 97, .kernel.sight = see_one_less},
    {"mask-ignored", "every query sees every cell", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, eagle-tree tree f16 flash", .kernel.sight = see_all},
    {"mask-one-more", "a query sees the cell behind its last", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, plain-decode seq f16 flash", .kernel.sight = see_one_more},
    {"mask-not-causal", "long prefills are not causal", KVB_CHECK_BOUND, FLASH ", sliding-window seq f16 flash",
     .kernel.sight = see_as_last},
    {"mask-of-neighbour", "a query of a batch sees what the one before it sees", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, eagle-tree tree f32 flash", .kernel.sight = see_as_neighbour},
    {"mask-window-short", "a window is one position short", KVB_CHECK_BOUND,
     "sliding-window seq f32 flash, sink-window window f16 flash", .kernel.sight = window_short},
    {"mask-word-twice", "the second word of a mask is taken to be the first", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash", .kernel.sight = see_by_words},
    {"mask-narrower", "where several tokens come, the mask is narrower by a cell than the rows are", KVB_CHECK_BOUND,
     "eagle-tree tree f32 flash, eagle-tree seq f16 flash", .kernel.sight = see_narrower},
    {"scale-1.001", "the scale is 0.1 % too large", KVB_CHECK_BOUND,
     FLASH ", agent-fork seq f16 reference, " INT8 ", agent-fork seq int8 flash-int8, " BF16, .by = 1.001,
     .kernel.before = scale_times},
    {"scale-1.01", "the scale is 1 % too large", KVB_CHECK_BOUND,
     FLASH ", agent-fork seq f16 openblas, " INT8 ", agent-fork seq int8 flash-int8, " BF16, .by = 1.01,
     .kernel.before = scale_times},
    {"scale-of-other-dim", "the scale is that of other dims", KVB_CHECK_BOUND, FLASH, .kernel.before = scale_of_v},
    {"k-of-neighbour", "K rows are those of the next cell, and so what lies behind them", KVB_CHECK_CRASH, FLASH,
     .kernel.k = of_neighbour},
    {"v-of-first-head", "V is that of the first KV head for all", KVB_CHECK_BOUND,
     FLASH ", batched-multi-seq-2x128 seq q8_0 flash, " BF16, .kernel.v = of_first_head},
    {"k-of-first-head", "K is that of the first KV head for all", KVB_CHECK_BOUND, "plain-decode seq f16 flash, " INT8,
     .kernel.k = of_first_head},
    {"v-scales-of-first-cell", "the scales of V's first cell are those of all", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq a8g64 flash, batched-multi-seq-2x128 seq a4g64 flash", .kernel.v = scales_of_first_cell},
    {"k-zeros-of-first-cell", "the zero points of K's first cell are those of all", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq a8g64 flash", .kernel.k = zeros_of_first_cell},
    {"k-scales-of-first-head", "the scales of K's first head are those of all", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq a8g64 flash", .kernel.k = scales_of_first_head},
    {"v-is-k", "V is read where K lies", KVB_CHECK_BOUND, FLASH, .kernel.before = k_for_v},
    {"softcap-ignored", "the softcap is ignored", KVB_CHECK_BOUND, "plain-decode seq f32 flash softcap",
     .kernel.before = softcap_off},
    {"sinks-ignored", "the sink logits are ignored", KVB_CHECK_BOUND, "plain-decode seq f32 flash sinks",
     .kernel.before = sinks_off},
    {"halves-evenly", "two partial results are averaged, whatever their weights", KVB_CHECK_BOUND, FLASH, .by = EVENLY,
     .kernel.bits = true, .kernel.after = halves_merge},
    {"halves-larger", "of two partial results the larger one is kept", KVB_CHECK_BOUND, FLASH, .by = BY_LARGER,
     .kernel.bits = true, .kernel.after = halves_merge},
    {"halves-twice", "every other key counts twice", KVB_CHECK_BOUND, FLASH ", agent-fork seq f16 flash", .by = TWICE,
     .kernel.bits = true, .kernel.after = halves_merge},
    {"key-twice", "a query's own key counts twice", KVB_CHECK_BOUND,
     FLASH ", agent-fork seq f16 openblas, " INT8 ", " BF16, .by = LAST_TWICE, .kernel.bits = true,
     .kernel.after = halves_merge},
    {"hidden-k", "0 times K of hidden cells is added", KVB_CHECK_POISON,
     "agent-fork slab f32 flash, eagle-tree tree f16 flash", .by = 0, .kernel.bits = true, .kernel.after = hidden_add},
    {"hidden-v", "0 times V of hidden cells is added", KVB_CHECK_POISON,
     "agent-fork slab f32 flash, batched-multi-seq seq f16 flash, agent-fork-8x128 slab q8_0 flash", .by = 1,
     .kernel.bits = true, .kernel.after = hidden_add},
    {"q-rounded", "q is rounded to 12 bits, which is not declared", KVB_CHECK_BOUND, FLASH,
     .kernel.q_element = to_12_bits},
    {"q-flushed", "small elements of q are taken as 0", KVB_CHECK_BOUND, FLASH ", " BF16,
     .kernel.q_element = small_to_0},
    {"q-of-next-head", "each head takes the next one's q", KVB_CHECK_BOUND, FLASH ", " INT8,
     .kernel.q_from = next_head},
    {"q-of-first-head", "all heads of a KV head take the first one's q", KVB_CHECK_BOUND,
     "plain-decode seq f16 flash, " INT8 ", " BF16, .kernel.q_from = first_of_kv_head},
    {"q-by-eights", "over bf16 rows heads are counted as if 8 shared each KV head", KVB_CHECK_BOUND,
     "plain-decode seq bf16 flash, " BF16, .kernel.q_from = by_eights},
    {"q-scale-dropped", "q's codes of 8 bits take part without their scale", KVB_CHECK_BOUND, FLASH ", " INT8,
     .kernel.q_element = code_of_8_bits},
    {"q-of-four-before", "from the fifth on queries take the q of the fourth before them", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, eagle-tree tree f16 flash, eagle-tree tree bf16 flash-bf16",
     .kernel.q_from = four_before},
    {"softcap-unscaled", "the softcap is put on q.k before it is scaled", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash softcap, plain-decode seq f32 openblas softcap", .kernel.before = softcap_unscaled},
    {"sink-of-first-head", "all heads take the first one's sink logit", KVB_CHECK_BOUND,
     "plain-decode seq f32 flash sinks, plain-decode seq f32 reference sinks", .kernel.before = sink_of_first_head},
    {"mask-kept", "the mask of the call before is taken for that of a call of the same size", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash, agent-fork slab f16 flash", .kernel.bits = true, .kernel.before = mask_kept},
    {"sees-past-end", "a cell behind the last readable one is read", KVB_CHECK_BOUND, FLASH,
     .kernel.sight = see_past_end, .kernel.before = read_past_end},
    {"v-of-neighbour", "weights of two neighbouring cells are swapped", KVB_CHECK_BOUND,
     FLASH ", batched-multi-seq-2x128 seq q8_0 flash, " INT8, .kernel.before = v_of_neighbour},
    {"k-transform-ignored", "transformed K is taken for plain", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq q8_0+had flash, plain-decode-2x128 seq q4_0+had openblas",
     .kernel.before = k_as_not_turned},
    {"v-transform-ignored", "transformed V is taken for plain", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq q8_0+had flash, plain-decode-2x128 seq a4g64+had flash", .kernel.before = v_as_not_turned},
    {"k-factors-of-first-group", "scales and zero points of K's first block of cells are those of all", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq kivi4 flash", .kernel.k = factors_of_first_group},
    {"residual-cells-as-codes", "cells that are not encoded yet are read as codes", KVB_CHECK_BOUND,
     "plain-decode-2x128 seq kivi4 flash, batched-multi-seq-2x128 slab kivi2 flash",
     .kernel.before = codes_of_residual_cells},
    {"residual-cells-of-next-slot", "cells that are not encoded yet are read from another block's slot",
     KVB_CHECK_BOUND, "plain-decode-2x128 seq kivi4 flash", .kernel.before = residual_cells_of_next_slot},
    {"out-zero", "all outputs are 0, the log-sum-exp is right", KVB_CHECK_BOUND,
     FLASH ", batched-multi-seq-2x128 seq q8_0 flash, " INT8 ", " BF16, .kernel.after = all_clear},
    {"out-row-zero", "the last row is 0", KVB_CHECK_BOUND, "batched-multi-seq seq f32 flash",
     .kernel.after = last_clear},
    {"out-heads-swapped", "two heads are swapped", KVB_CHECK_BOUND,
     FLASH ", eagle-tree tree f16 flash, " INT8 ", " BF16, .kernel.after = heads_swapped},
    {"out-of-query-before", "a query gets the outputs of the one before it", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash", .kernel.after = query_before},
    {"out-left", "the last row is left unwritten", KVB_CHECK_WRITTEN, FLASH ", eagle-tree tree f16 openblas",
     .kernel.before = last_found, .kernel.after = last_left},
    {"out-of-other-call", "in one call of a hundred a row is that of the call before", KVB_CHECK_BOUND, FLASH,
     .by = 100, .kernel.after = last_stale},
    {"out-second-thread", "what a second thread computes is off by 1 %", KVB_CHECK_BOUND,
     "batched-multi-seq seq f32 flash 2", .kernel.after = half_by_second_thread},
    {"out-second-layer", "an element of every other layer is off by 1 %", KVB_CHECK_BOUND, FLASH, .by = 1.01,
     .kernel.every = 2, .kernel.after = one_times},
    {"out-beyond-tolerance", "what a foreign kernel writes is off by more than its own project tolerates",
     KVB_CHECK_TOLERANCE, FLASH ", agent-fork seq f16 openblas", .by = 31.0 / 30, .kernel.after = all_times,
     .kernel.flags = KVB_KERNEL_FOREIGN, .kernel.tolerance = {KVB_TOLERANCE_NMSE, 5e-4, 0, "a planted fault"}},
    {"out-nan", "one element is NaN", KVB_CHECK_BOUND, FLASH ", agent-fork seq f16 openblas", .kernel.after = last_nan},
    {"out-nan-once", "one element of the hundredth call is NaN", KVB_CHECK_BOUND, FLASH, .kernel.every = UINT32_MAX,
     .kernel.at = 100, .kernel.after = last_nan},
    {"out-infinite", "one element is infinite", KVB_CHECK_BOUND, FLASH, .by = INFINITY, .kernel.after = one_times},
    {"out-one-off", "one element is off by 0.1 %", KVB_CHECK_BOUND, FLASH ", plain-decode-2x128 seq f16 flash",
     .by = 1.001, .kernel.after = one_times},
    {"out-channel-zero", "the last channel is 0", KVB_CHECK_BOUND, FLASH, .kernel.after = last_channel_zero},
    {"out-channels-turned", "channels of a row lie one place off", KVB_CHECK_BOUND, FLASH,
     .kernel.after = channels_turned},
    {"out-rounded", "outputs are rounded to bf16, which is not declared", KVB_CHECK_BOUND,
     FLASH ", plain-decode seq f16 openblas", .kernel.after = to_bf16},
    {"out-off-0.000006", "outputs are too large by 0.0006 %", KVB_CHECK_FILTER,
     FLASH ", plain-decode-2x128 seq q8_0 openblas", .by = 1 + 6e-6, .kernel.after = all_times},
    {"lse-base-2", "the log-sum-exp is that of base 2", KVB_CHECK_BOUND, FLASH, .by = 1.442695,
     .kernel.after = lse_times},
    {"lse-zero", "the log-sum-exp is 0", KVB_CHECK_BOUND, FLASH, .by = 0, .kernel.after = lse_times},
    {"lse-off", "the log-sum-exp is off by 0.001", KVB_CHECK_BOUND, FLASH ", " INT8 ", " BF16, .by = 1e-3,
     .kernel.after = lse_plus},
    {"lse-left", "a log-sum-exp is left unwritten", KVB_CHECK_WRITTEN, FLASH, .kernel.before = lse_found,
     .kernel.after = lse_left},
    {"out-nan-elsewhere", "a row is NaN in one call of thirty, which no sample may hold", KVB_CHECK_OPINION,
     "plain-decode-8x128 seq f16 flash sampled, agent-fork-8x128 slab q8_0 flash sampled", .kernel.every = 30,
     .kernel.at = 20, .kernel.after = nan_elsewhere},
    {"out-stale-elsewhere", "in one call of thirty a row is that of the call before, which no sample may hold",
     KVB_CHECK_OPINION, "plain-decode-8x128 seq f16 flash sampled", .by = 30, .kernel.after = stale_elsewhere},
    {"out-nan-unjudged", "a row is NaN in one call of thirty, of a workload too large for a second opinion",
     KVB_CHECK_FINITE, "plain-decode-8x128 seq f16 flash sampled alone", .kernel.every = 30, .kernel.at = 20,
     .kernel.after = nan_elsewhere},
    {"tail-read-behind-front", "V rows of a tail are read as far behind their cells as the front is long",
     KVB_CHECK_CRASH, "shared-prompt shared-prefix f32 reference, shared-prompt-8x128 shared-prefix q8_0 flash",
     .kernel.v = tail_behind_front},
    {"v-front-is-k", "V's front is read where K's lies", KVB_CHECK_BOUND,
     "shared-prompt shared-prefix f32 reference, shared-prompt-8x128 shared-prefix q8_0 flash",
     .kernel.before = v_front_is_k},
    {"infinity-5e4", "minus infinity is -5e4", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = finite_infinity},
    {"blind-nan", "a row that sees nothing is NaN", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = blind_nan},
    {"blind-lse", "its log-sum-exp is finite", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = blind_finite},
    {"softcap-never", "softcap is ignored", KVB_CHECK_BOUND, ALL_CALLS, .kernel.before = softcap_off},
    {"softcap-decode", "in decode alone", KVB_CHECK_BOUND, ALL_CALLS, .kernel.before = softcap_off_in_decode},
    {"scale-usual", "scale is always 1/sqrt(dim)", KVB_CHECK_BOUND, ALL_CALLS, .kernel.before = scale_usual},
    {"product-f16", "q.k overflows f16 before it is scaled", KVB_CHECK_BOUND, ALL_CALLS,
     .kernel.after = product_overflow},
    {"out-truncated", "outputs of 16 bits lose two bits", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = out_truncated},
    {"sinks-huge", "a sink logit above 88 overflows", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = sinks_huge},
    {"pages-halved", "pages of 256 cells: the first half twice", KVB_CHECK_BOUND, ALL_CALLS " page=256",
     .kernel.before = pages_halved},
    {"stride-least", "the stride of bit rows is ignored", KVB_CHECK_BOUND, ALL_CALLS, .kernel.before = stride_least},
    {"column-16", "columns of the mask in 16 bits", KVB_CHECK_BOUND, ALL_CALLS " place=4GiB",
     .kernel.sight = column_16},
    {"offset-32", "byte offsets in 32 bits", KVB_CHECK_BOUND, ALL_CALLS " place=4GiB", .kernel.after = offset_32},
    {"page-16", "numbers of pages in 16 bits", KVB_CHECK_BOUND, ALL_CALLS " place=4GiB", .kernel.before = page_16},
    {"align-16", "K is taken to be aligned to 16 bytes", KVB_CHECK_BOUND, ALL_CALLS, .kernel.k = align_16},
    {"chunks-1024", "beyond 1024 cells rows are left out", KVB_CHECK_BOUND, ALL_CALLS " cells=1500",
     .kernel.sight = chunks_1024},
    {"quantised-1024", "codes beyond 1024 cells", KVB_CHECK_BOUND, ALL_CALLS " cells=1500",
     .kernel.after = zero_coded_1024},
    {"dim-256-512", "head dim 256 beyond 512 cells", KVB_CHECK_BOUND, ALL_CALLS " head_dim=256",
     .kernel.after = zero_dim_256_512},
    {"threads-share", "threads share scratch", KVB_CHECK_BOUND, ALL_CALLS " threads=2", .kernel.after = threads_share},
    {"threads-split", "a deterministic sum is split by threads", KVB_CHECK_DETERMINISTIC, ALL_CALLS,
     .kernel.after = threads_split},
    {"state-kept", "a larger call before changes a smaller one", KVB_CHECK_BOUND, ALL_CALLS,
     .kernel.after = state_kept},
    {"zero-dim-80", "zeros at head dim 80", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = zero_dim_80},
    {"zero-dim-512", "at head dim 512", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = zero_dim_512},
    {"zero-192x128", "at dims 192 and 128", KVB_CHECK_BOUND, ALL_CALLS " head_dim=192x128",
     .kernel.after = zero_dims_unlike},
    {"zero-group-7", "at 7 query heads for each KV head", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = zero_group_7},
    {"zero-group-71", "at 71 heads over one", KVB_CHECK_BOUND, ALL_CALLS " group=71", .kernel.after = zero_group_71},
    {"zero-latent-128", "at latent rows with 128 heads", KVB_CHECK_BOUND, ALL_CALLS " group=128",
     .kernel.after = zero_latent_128},
    {"zero-kv-heads-32", "at 32 KV heads", KVB_CHECK_BOUND, ALL_CALLS, .kernel.after = zero_heads_32},
    {"zero-tokens-129", "beyond 128 tokens", KVB_CHECK_BOUND, ALL_CALLS " tokens=129", .kernel.after = zero_tokens_129},
    {"order-lanes", "twice as many lanes of q.k are declared", KVB_CHECK_EXACT, ALL_ORDERS,
     .kernel.tile = lanes_double},
    {"order-folds", "lanes of q.k are declared to be joined the other way round", KVB_CHECK_EXACT,
     "calls none any flash", .kernel.tile = folds_turned},
    {"order-weights", "weights are declared to be added one by one", KVB_CHECK_EXACT, "calls none any flash",
     .kernel.orders = weights_one_by_one},
    {"order-tile", "sums of V over 8 cells are declared", KVB_CHECK_EXACT, ALL_ORDERS, .kernel.tile = tile_by_eights},
    {"order-fused", "multiply-adds are declared to be fused where they are not, or not where they are", KVB_CHECK_EXACT,
     ALL_ORDERS, .kernel.orders = fused_otherwise},
    {"order-exp", "another exponential is declared", KVB_CHECK_EXACT, "calls none any reference cells=1500",
     .kernel.orders = exp_otherwise},
    {"order-max", "a running maximum is declared where it is found first", KVB_CHECK_EXACT,
     "calls none any reference cells=1500", .kernel.orders = max_later},
    {"runs-reversed", "runs of cells are added in the opposite order", KVB_CHECK_EXACT,
     "calls none any reference cells=1500", .kernel.before = runs_reversed},
    {"out-last-bit", "one output is the next number above", KVB_CHECK_EXACT, ALL_ORDERS, .kernel.after = last_bit},
    {"lse-last-bit", "one log-sum-exp is the next number above", KVB_CHECK_EXACT, ALL_ORDERS,
     .kernel.after = lse_last_bit},
    {.name = NULL},
};
