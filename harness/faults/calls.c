/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are wrong at values that histories leave alone: the single calls of suite quick catch them. */
#include "harness/faults/fault.h"

#include <math.h>
#include <string.h>

#define ALL_CALLS "calls none any flash"
#define WIDEST    4096u /* channels of a row at most */

static size_t out_bytes(const kvb_attend *x)
{
    return x->problem.v_dim * (x->problem.out_elem == KVB_F32 ? sizeof(float) : sizeof(uint16_t));
}

static size_t rows_of(const kvb_attend *x)
{
    return (size_t)x->problem.n_tok * x->problem.n_heads;
}

static void row_clear(const kvb_attend *x, size_t row)
{
    memset((char *)x->out + row * out_bytes(x), 0, out_bytes(x));
}

static void all_clear(const kvb_attend *x)
{
    memset(x->out, 0, rows_of(x) * out_bytes(x));
}

static bool sees_none(const kvb_attend *x, uint32_t t)
{
    uint32_t cursor = 0;
    kvb_run run;
    return !kvb_mask_next(&x->mask, x->problem.n_tok, x->problem.n_cells, t, &cursor, &run);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* flashinfer 4450 */
static int finite_infinity(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x); row++)
        if (x->lse[row] < -5e4f)
            row_clear(x, row);
    return 0;
}

/* flashinfer 4452 */
static int blind_nan(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x); row++)
        if (sees_none(x, (uint32_t)(row / x->problem.n_heads)) && !x->problem.has_sinks)
            memset((char *)x->out + row * out_bytes(x), 0x7f, out_bytes(x));
    return 0;
}

/* rten 1321 */
static int blind_finite(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x); row++)
        if (sees_none(x, (uint32_t)(row / x->problem.n_heads)) && !x->problem.has_sinks)
            x->lse[row] = -1e30f;
    return 0;
}

static void softcap_none(kvb_attend *x)
{
    x->problem.softcap = 0;
}

static void softcap_none_in_decode(kvb_attend *x)
{
    x->problem.softcap = x->problem.n_tok == 1 ? 0 : x->problem.softcap;
}

static void scale_usual(kvb_attend *x)
{
    x->problem.scale = 1 / sqrtf((float)x->problem.k_dim);
}

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

/* onnxruntime 24953: q.k of f16 before it is scaled. */
static int product_overflow(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x) && row < 64; row++)
        if (product_most(x, (uint32_t)(row / x->problem.n_heads), (uint32_t)(row % x->problem.n_heads)) > 65504)
            memset((char *)x->out + row * out_bytes(x), 0x7f, out_bytes(x));
    return 0;
}

/* bf16 by dropping bits, and not to nearest. */
static int out_truncated(const kvb_attend *x)
{
    uint16_t *out = x->out;
    for (size_t i = 0; i < rows_of(x) * x->problem.v_dim && x->problem.out_elem != KVB_F32; i++)
        out[i] &= 0xfffc;
    return 0;
}

static int sinks_huge(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x) && x->problem.has_sinks; row++)
        if (x->sinks[row % x->problem.n_heads] > 88)
            row_clear(x, row);
    return 0;
}

/* ---- where things lie ------------------------------------------------------------------------------------------- */

/* flashinfer 4347: of a page of more than 128 cells the first half is read twice. */
static int pages_halved(const kvb_attend *call)
{
    static uint32_t pages[1u << 16];
    kvb_attend x = *call;
    uint32_t entries = 0;
    for (uint32_t t = 0; t < x.problem.n_tok && x.mask.kind == KVB_MASK_PAGES; t++) {
        const uint32_t last = (x.mask.seen[t].end + x.mask.page_cells - 1) / x.mask.page_cells + x.mask.row_start[t];
        entries = last > entries ? last : entries;
    }
    if (x.mask.kind == KVB_MASK_PAGES && x.mask.page_cells == 256 && entries <= 1u << 15) {
        static uint32_t starts[1u << 12];
        for (uint32_t i = 0; i < entries; i++)
            pages[2 * i] = pages[2 * i + 1] = x.mask.pages[i] == UINT32_MAX ? UINT32_MAX : 2 * x.mask.pages[i];
        for (uint32_t t = 0; t < x.problem.n_tok; t++)
            starts[t] = 2 * x.mask.row_start[t];
        x.mask.pages = pages;
        x.mask.row_start = starts;
        x.mask.page_cells = 128;
    }
    return kvb_fault_honest.kernel->attend(&x);
}

static void pages_halved_plant(kvb_kernel *wrong)
{
    wrong->attend = pages_halved;
}

static void stride_least(kvb_attend *x)
{
    x->mask.row_words = ((size_t)x->problem.n_cells + 63) / 64;
}

/* mlx 3360: the number of a column in 16 bits. */
static void column_16(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    for (uint32_t word = 1024; word < (x->problem.n_cells + 63) / 64; word++) {
        row[word - 1024] |= row[word];
        row[word] = 0;
    }
}

/* vllm 50427: the byte offset of a cell in 32 bits. What lies there instead is NaN here. */
static int offset_32(const kvb_attend *x)
{
    for (size_t row = 0; row < rows_of(x); row++) {
        uint32_t cursor = 0;
        for (kvb_run run; kvb_mask_next(&x->mask, x->problem.n_tok, x->problem.n_cells,
                                        (uint32_t)(row / x->problem.n_heads), &cursor, &run);)
            if ((uint64_t)(run.end - 1) * x->k.cell_stride > UINT32_MAX)
                memset((char *)x->out + row * out_bytes(x), 0x7f, out_bytes(x));
    }
    return 0;
}

/* mlx 3360: the number of a page in 16 bits. */
static void page_16(kvb_attend *x)
{
    static uint32_t pages[1u << 16];
    uint32_t entries = 0;
    for (uint32_t t = 0; t < x->problem.n_tok && x->mask.kind == KVB_MASK_PAGES; t++) {
        const uint32_t last =
            x->mask.row_start[t] + (x->mask.seen[t].end + x->mask.page_cells - 1) / x->mask.page_cells;
        entries = last > entries ? last : entries;
    }
    for (uint32_t i = 0; i < entries && entries < 1u << 16; i++)
        pages[i] = x->mask.pages[i] == UINT32_MAX ? UINT32_MAX : x->mask.pages[i] & 0xffff;
    if (entries && entries < 1u << 16)
        x->mask.pages = pages;
}

/* Rows that are not aligned to 16 bytes are read from where they would be. */
static void align_16(kvb_attend *x)
{
    x->k.base = (const void *)((uintptr_t)x->k.base & ~(uintptr_t)15);
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

/* mlx 4022: beyond 1024 cells another path, which leaves rows out. */
static void chunks_1024(const kvb_attend *x, uint32_t t, uint64_t *row)
{
    (void)t;
    if (x->problem.n_cells > 1024)
        row[16] = 0;
}

/* ik_llama 1205 */
static int quantised_1024(const kvb_attend *x)
{
    if (x->problem.n_cells > 1024 && x->problem.k_format->elem > KVB_BF16)
        all_clear(x);
    return 0;
}

static int dim_256_512(const kvb_attend *x)
{
    if (x->problem.n_cells > 512 && x->problem.k_dim == 256)
        all_clear(x);
    return 0;
}

/* llama.cpp 28358: threads share scratch; what the second one makes lies where the first one's is. */
static int threads_share(const kvb_attend *x)
{
    if (x->team->n > 1 && x->problem.n_heads > 1)
        memcpy((char *)x->out + out_bytes(x), x->out, out_bytes(x));
    return 0;
}

/* A sum that is split by the number of threads. */
static int threads_split(const kvb_attend *x)
{
    float *out = x->out;
    if (x->team->n > 1 && x->problem.out_elem == KVB_F32 && fabsf(out[0]) > 0x1p-100f) /* else it is no rounding */
        out[0] = nextafterf(out[0], INFINITY);
    return 0;
}

/* State of a larger call before: kept where none may be. */
static int state_kept(const kvb_attend *x)
{
    static uint32_t most;
    if (x->problem.n_cells < most)
        all_clear(x);
    most = x->problem.n_cells > most ? x->problem.n_cells : most;
    return 0;
}

/* Zeros at one value of an axis alone, as at a shape that was never tried. */
#define ZERO_AT(name, condition)                                                                                       \
    static int name(const kvb_attend *x)                                                                               \
    {                                                                                                                  \
        const kvb_problem *p = &x->problem;                                                                            \
        if (condition)                                                                                                 \
            all_clear(x);                                                                                              \
        return 0;                                                                                                      \
    }
ZERO_AT(zero_dim_80, p->k_dim == 80)
ZERO_AT(zero_dim_512, p->k_dim == 512)
ZERO_AT(zero_dims_unlike, p->k_dim == 192 && p->v_dim == 128)
ZERO_AT(zero_group_7, p->n_heads == 7 * p->n_kv_heads)
ZERO_AT(zero_group_71, p->n_heads == 71)
ZERO_AT(zero_latent_128, p->v_in_k && p->n_heads == 128 * p->n_kv_heads)
ZERO_AT(zero_heads_32, p->n_kv_heads == 32)
ZERO_AT(zero_tokens_129, p->n_tok > 128)

const kvb_fault kvb_call_faults[] = {
    {"infinity-5e4", "minus infinity is -5e4", KVB_CHECK_BOUND, ALL_CALLS, .after = finite_infinity},
    {"blind-nan", "a row that sees nothing is NaN", KVB_CHECK_BOUND, ALL_CALLS, .after = blind_nan},
    {"blind-lse", "its log-sum-exp is finite", KVB_CHECK_BOUND, ALL_CALLS, .after = blind_finite},
    {"softcap-never", "softcap is ignored", KVB_CHECK_BOUND, ALL_CALLS, .before = softcap_none},
    {"softcap-decode", "in decode alone", KVB_CHECK_BOUND, ALL_CALLS, .before = softcap_none_in_decode},
    {"scale-usual", "scale is always 1/sqrt(dim)", KVB_CHECK_BOUND, ALL_CALLS, .before = scale_usual},
    {"product-f16", "q.k overflows f16 before it is scaled", KVB_CHECK_BOUND, ALL_CALLS, .after = product_overflow},
    {"out-truncated", "outputs of 16 bits lose two bits", KVB_CHECK_BOUND, ALL_CALLS, .after = out_truncated},
    {"sinks-huge", "a sink logit above 88 overflows", KVB_CHECK_BOUND, ALL_CALLS, .after = sinks_huge},
    {"pages-halved", "pages of 256 cells: the first half twice", KVB_CHECK_BOUND, ALL_CALLS,
     .kernel = pages_halved_plant},
    {"stride-least", "the stride of bit rows is ignored", KVB_CHECK_BOUND, ALL_CALLS, .before = stride_least},
    {"column-16", "columns of the mask in 16 bits", KVB_CHECK_BOUND, ALL_CALLS, .sight = column_16},
    {"offset-32", "byte offsets in 32 bits", KVB_CHECK_BOUND, ALL_CALLS, .after = offset_32},
    {"page-16", "numbers of pages in 16 bits", KVB_CHECK_BOUND, ALL_CALLS, .before = page_16},
    {"align-16", "K is taken to be aligned to 16 bytes", KVB_CHECK_BOUND, ALL_CALLS, .before = align_16},
    {"chunks-1024", "beyond 1024 cells rows are left out", KVB_CHECK_BOUND, ALL_CALLS, .sight = chunks_1024},
    {"quantised-1024", "codes beyond 1024 cells", KVB_CHECK_BOUND, ALL_CALLS, .after = quantised_1024},
    {"dim-256-512", "head dim 256 beyond 512 cells", KVB_CHECK_BOUND, ALL_CALLS, .after = dim_256_512},
    {"threads-share", "threads share scratch", KVB_CHECK_BOUND, ALL_CALLS, .after = threads_share},
    {"threads-split", "a deterministic sum is split by threads", KVB_CHECK_DETERMINISTIC, ALL_CALLS,
     .after = threads_split},
    {"state-kept", "a larger call before changes a smaller one", KVB_CHECK_BOUND, ALL_CALLS, .after = state_kept},
    {"zero-dim-80", "zeros at head dim 80", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_dim_80},
    {"zero-dim-512", "at head dim 512", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_dim_512},
    {"zero-192x128", "at dims 192 and 128", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_dims_unlike},
    {"zero-group-7", "at 7 query heads for each KV head", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_group_7},
    {"zero-group-71", "at 71 heads over one", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_group_71},
    {"zero-latent-128", "at latent rows with 128 heads", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_latent_128},
    {"zero-kv-heads-32", "at 32 KV heads", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_heads_32},
    {"zero-tokens-129", "beyond 128 tokens", KVB_CHECK_BOUND, ALL_CALLS, .after = zero_tokens_129},
    {.name = NULL},
};
