/* SPDX-License-Identifier: Apache-2.0 */
/* The table of axes of an attention call; a point as a shape. */
#include "harness/calls/attend_axes.h"
#include "workloads/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/values.h"

#define MOST_SCRATCH ((size_t)256 << 20) /* bytes, where rows lie apart */

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

#define ROW(name, word, what, ...) {word, what, WORDS(__VA_ARGS__)},
static const kvb_call_axis table[KVB_ATTEND_AXES] = {KVB_ATTEND_AXES_OF(ROW)};

static const char *const bases[] = {
    "tokens=33,cells=65,mask=explicit", "tokens=33,cells=1500,mask=runs", "tokens=33,cells=1500,mask=pages",
    "tokens=33,cells=65,mask=causal,k=bf16,head_dim=128", "head_dim=32,tokens=2,cells=65537,mask=explicit,k=q8_0",
    "head_dim=32,tokens=2,cells=65537,mask=pages,k=bf16", "head_dim=32,tokens=2,cells=65537,mask=explicit,k=f16",
    "head_dim=32,tokens=2,cells=65537,mask=explicit,k=int8", "tokens=2,cells=65,mask=explicit,k=q8_0,place=4GiB",
    "tokens=2,cells=65,mask=pages,k=bf16,place=4GiB",
    /* shapes of models: Llama, DeepSeek, Gemma, gpt-oss, Falcon, Phi */
    "head_dim=128,kv_heads=8,group=4,cells=512,mask=pages,page=16", "tokens=2,cells=1025,mask=pages,page=256",
    "tokens=2,cells=257,mask=pages,page=48", "head_dim=576x512-latent,group=128,cells=63,mask=explicit",
    "head_dim=192x128,kv_heads=16,tokens=17,cells=257",
    "head_dim=256,kv_heads=4,group=2,cells=1025,softcap=30,mask=runs",
    "head_dim=64,kv_heads=8,group=8,cells=255,sinks=1,mask=pages,page=16",
    "head_dim=64,group=71,tokens=9,cells=129,mask=causal", "head_dim=80,kv_heads=32,tokens=2,cells=65,mask=explicit",
    NULL};

void kvb_attend_space_make(const kvb_registry *registry, kvb_attend_space *s)
{
    size_t n = 0;
    *s = (kvb_attend_space){.registry = registry};
    memcpy(s->axes, table, sizeof table);
    for (size_t i = 0; i < registry->n[KVB_POOLS]; i++)
        s->pools[i] = registry->at[KVB_POOLS][i].name;
    for (size_t i = 0; kvb_profiles[i].name; i++)
        if (strcmp(kvb_profiles[i].name, "tags") && n + 1 < sizeof s->profiles / sizeof *s->profiles)
            s->profiles[n++] = kvb_profiles[i].name;
    s->axes[KVB_AT_K].values = s->pools;
    s->axes[KVB_AT_VALUES].values = s->profiles;
    s->space = (kvb_space){"attention", s->axes, KVB_ATTEND_AXES, bases};
}

static uint32_t whole(const kvb_attend_space *s, const kvb_point *p, uint32_t axis)
{
    return (uint32_t)kvb_point_number(&s->space, p, axis);
}

static bool refuse(char *why, size_t why_bytes, const char *what)
{
    if (why_bytes) /* for each point that is tried: faster than printf() */
        *(char *)mempcpy(why, what, strnlen(what, why_bytes - 1)) = '\0';
    return false;
}

/* The pools of both sides. */
static bool pools_of(const kvb_attend_space *s, const kvb_point *p, kvb_attend_shape *x, char *why, size_t why_bytes)
{
    const char *v = kvb_point_word(&s->space, p, KVB_AT_V);
    const kvb_problem *problem = &x->problem;
    x->k_pool = s->registry->at[KVB_POOLS][p->at[KVB_AT_K]].definition; /* its axis lists the pools in their order */
    x->v_pool = p->at[KVB_AT_V] ? kvb_registry_find(s->registry, KVB_POOLS, v) : x->k_pool;
    if (p->at[KVB_AT_ROTATED] && !x->k_pool->rotated)
        return refuse(why, why_bytes, "this format of K has no rotated form");
    if (p->at[KVB_AT_V] && x->v_pool == x->k_pool)
        return refuse(why, why_bytes, "v=same is the word for V in K's format");
    x->k_pool = p->at[KVB_AT_ROTATED] ? x->k_pool->rotated : x->k_pool;
    x->v_pool = p->at[KVB_AT_V] ? x->v_pool : x->k_pool;
    if ((x->k_pool->format->elem == KVB_OPAQUE || x->v_pool->format->elem == KVB_OPAQUE) &&
        (p->at[KVB_AT_FRONT] || p->at[KVB_AT_ALIGN]))
        return refuse(why, why_bytes, "rows of a plug-in's own encoding lie where its pool puts them");
    if (problem->v_in_k && x->v_pool != x->k_pool)
        return refuse(why, why_bytes, "V in K's rows has K's format");
    return (!x->k_pool->supports || x->k_pool->supports(x->k_pool, problem->k_dim, why, why_bytes)) &&
           (problem->v_in_k || !x->v_pool->supports || x->v_pool->supports(x->v_pool, problem->v_dim, why, why_bytes));
}

/* Can the kind of mask express what queries see, and are there enough tokens and cells? */
static bool sight_fits(const kvb_point *p, const kvb_attend_shape *x, char *why, size_t why_bytes)
{
    const kvb_problem *problem = &x->problem;
    const bool plain = problem->mask == KVB_MASK_NONE || problem->mask == KVB_MASK_CAUSAL;
    if (plain && (p->at[KVB_AT_BATCH] || p->at[KVB_AT_PAGE] || p->at[KVB_AT_BLIND] || p->at[KVB_AT_LIMITS]))
        return refuse(why, why_bytes, "masks none and causal need one whole sequence, in order");
    if (problem->mask != KVB_MASK_EXPLICIT && p->at[KVB_AT_STRIDE])
        return refuse(why, why_bytes, "only mask=explicit has a stride");
    if (problem->mask == KVB_MASK_CAUSAL && problem->n_cells < problem->n_tok)
        return refuse(why, why_bytes, "mask=causal has a cell for each query");
    if (problem->n_tok < x->batch || problem->n_cells / x->page < x->batch)
        return refuse(why, why_bytes, "each sequence has a query and a page");
    return true;
}

/* Rows that lie apart are copies of one table of a pool. The memory between them is never written. */
static bool place_of(const kvb_point *p, kvb_attend_shape *x, char *why, size_t why_bytes)
{
    static const struct {
        uint32_t cells;
        size_t stride;
    } places[] = {{0, 0}, {91 * 768, 32768}, {1366 * 768, 4160}}; /* 768: a multiple of each page size */
    const kvb_format *formats[] = {x->k_pool->format, x->v_pool->format};
    const uint32_t place = p->at[KVB_AT_PLACE];
    x->apart = places[place].cells;
    x->apart_stride = places[place].stride;
    if (!place)
        return true;
    for (int i = 0; i < 2; i++)
        if (formats[i]->group && !kvb_elem_is_block(formats[i]->elem))
            return refuse(why, why_bytes, "formats with tables of scales do not lie apart");
    if (x->k_pool->format->elem == KVB_OPAQUE || x->v_pool->format->elem == KVB_OPAQUE)
        return refuse(why, why_bytes, "rows of a plug-in's own encoding lie where its pool puts them");
    if (x->problem.mask <= KVB_MASK_CAUSAL || p->at[KVB_AT_FRONT] || p->at[KVB_AT_ALIGN] || p->at[KVB_AT_ORDER] > 1)
        return refuse(why, why_bytes,
                      "rows that lie apart are seen by a mask, have no front, and no other call before them");
    return (x->problem.n_kv_heads <= 2 && x->problem.n_cells <= 1500) ||
           refuse(why, why_bytes, "rows that lie apart are few");
}

/* The front, which formats with blocks of cells do not have. */
static bool front_of(const kvb_attend_space *s, const kvb_point *p, kvb_attend_shape *x, char *why, size_t why_bytes)
{
    const char *word = kvb_point_word(&s->space, p, KVB_AT_FRONT);
    const uint32_t n = x->problem.n_cells;
    const kvb_format *formats[] = {x->k_pool->format, x->v_pool->format};
    x->front = !strcmp(word, "one") ? 1 : !strcmp(word, "half") ? n / 2 : !strcmp(word, "all") ? n : 0;
    for (int i = 0; i < 2 && p->at[KVB_AT_FRONT]; i++)
        if (formats[i]->residual_cells || formats[i]->axis == KVB_AXIS_TOKENS)
            return refuse(why, why_bytes, "formats that encode cells together have no front");
    return !p->at[KVB_AT_FRONT] || x->front || refuse(why, why_bytes, "one cell has no half");
}

void kvb_attend_numbers_of(const kvb_attend_space *s, const kvb_point *p, kvb_attend_shape *x)
{
    static const kvb_elem outs[] = {KVB_F32, KVB_F16, KVB_BF16};
    static const uint32_t limits[][3] = {{0, 0, 0}, {8, 0, 0}, {70, 0, 0}, {8, 3, 0}, {0, 0, 16}};
    const char *dim = kvb_point_word(&s->space, p, KVB_AT_DIM), *by = strchr(dim, 'x');
    const float scale = (float)kvb_point_number(&s->space, p, KVB_AT_SCALE);
    const uint32_t kv_heads = whole(s, p, KVB_AT_KV_HEADS), *limit = limits[p->at[KVB_AT_LIMITS]];
    *x = (kvb_attend_shape){
        .problem = {.n_tok = whole(s, p, KVB_AT_N_TOK),
                    .n_heads = kv_heads * whole(s, p, KVB_AT_GROUP),
                    .n_kv_heads = kv_heads,
                    .k_dim = (uint32_t)atoi(dim),
                    .v_dim = (uint32_t)atoi(by ? by + 1 : dim),
                    .n_cells = whole(s, p, KVB_AT_CELLS),
                    .softcap = (float)kvb_point_number(&s->space, p, KVB_AT_SOFTCAP),
                    .has_sinks = p->at[KVB_AT_SINKS] > 0,
                    .v_in_k = strstr(dim, "latent") != NULL,
                    .out_elem = outs[p->at[KVB_AT_OUT]],
                    .mask = (kvb_mask_kind)p->at[KVB_AT_MASK],
                    .deterministic = p->at[KVB_AT_DETERMINISTIC] > 0},
        .values = kvb_point_word(&s->space, p, KVB_AT_VALUES),
        .batch = whole(s, p, KVB_AT_BATCH),
        .page = whole(s, p, KVB_AT_PAGE),
        .window = limit[0],
        .window_sinks = limit[1],
        .chunk = limit[2],
        .more_words = whole(s, p, KVB_AT_STRIDE),
        .align = whole(s, p, KVB_AT_ALIGN),
        .threads = whole(s, p, KVB_AT_THREADS),
        .sink = (float)kvb_point_number(&s->space, p, KVB_AT_SINKS),
        .blind = p->at[KVB_AT_BLIND],
        .order = p->at[KVB_AT_ORDER],
    };
    x->problem.scale = scale > 0 ? scale : 1 / sqrtf((float)x->problem.k_dim);
}

bool kvb_attend_shape_of(const kvb_attend_space *s, const kvb_point *p, kvb_attend_shape *x, char *why,
                         size_t why_bytes)
{
    kvb_attend_numbers_of(s, p, x);
    if (!sight_fits(p, x, why, why_bytes) || !pools_of(s, p, x, why, why_bytes) || !front_of(s, p, x, why, why_bytes) ||
        !place_of(p, x, why, why_bytes))
        return false;
    x->problem.k_format = x->k_pool->format;
    x->problem.v_format = x->v_pool->format;
    if (kvb_attend_cost(x) > KVB_ATTEND_COST)
        return refuse(why, why_bytes, "the call would take too long");
    return true;
}

bool kvb_attend_takes(const kvb_kernel *kernel, const kvb_attend_shape *x, char *why, size_t why_bytes)
{
    if (!(kernel->masks & KVB_MASK_BIT(x->problem.mask)))
        return refuse(why, why_bytes, "it does not take this kind of mask");
    if (x->front && !(kernel->flags & KVB_KERNEL_FRONTS))
        return refuse(why, why_bytes, "it reads no rows in two regions");
    const kvb_problem problem = kvb_attend_problem(x);
    if (kernel->supports && !kernel->supports(&problem, why, why_bytes))
        return false;
    return !x->apart || !kernel->scratch_bytes || kernel->scratch_bytes(&problem, x->threads) <= MOST_SCRATCH ||
           refuse(why, why_bytes, "its scratch for so many cells takes more memory than a call may");
}

/* Are subnormal numbers lost where V's rows and outputs are stored? Types with f32's exponents keep them. */
static bool loses_subnormals(const kvb_attend_space *s, const kvb_point *p)
{
    const char *word = kvb_point_word(&s->space, p, p->at[KVB_AT_V] ? KVB_AT_V : KVB_AT_K);
    const kvb_pool_type *pool = kvb_registry_find(s->registry, KVB_POOLS, word);
    const kvb_elem elem = pool->format->elem;
    return (elem != KVB_F32 && elem != KVB_BF16) || !strcmp(kvb_point_word(&s->space, p, KVB_AT_OUT), "f16");
}

uint32_t kvb_attend_mutes(const kvb_call_subject *subject, const kvb_point *p)
{
    const kvb_attend_space *s = subject->shapes;
    const char *values = kvb_point_word(&s->space, p, KVB_AT_VALUES);
    uint32_t mutes = p->at[KVB_AT_BLIND] && whole(s, p, KVB_AT_N_TOK) == 1 ? 1u << KVB_AT_BLIND : 0;
    if (!strcmp(values, "subnormal") && loses_subnormals(s, p))
        mutes |= 1u << KVB_AT_VALUES;
    if (!strcmp(values, "far-below") && p->at[KVB_AT_SINKS])
        mutes |= 1u << KVB_AT_VALUES | 1u << KVB_AT_SINKS;
    return mutes;
}

kvb_problem kvb_attend_problem(const kvb_attend_shape *x)
{
    kvb_problem problem = x->problem;
    problem.n_cells += x->apart;
    return problem;
}

double kvb_attend_cost(const kvb_attend_shape *x)
{
    const kvb_problem *p = &x->problem;
    const double dims = (double)p->k_dim + (double)p->v_dim;
    const double seen = (double)p->n_cells / (p->mask == KVB_MASK_CAUSAL ? 1 : x->batch);
    const double bits = p->mask == KVB_MASK_EXPLICIT ? (double)p->n_tok * (p->n_cells + x->apart) : 0;
    return 0.8e6 + 0.4 * p->n_tok * p->n_heads * seen * dims + 30.0 * p->n_kv_heads * p->n_cells * dims +
           10.0 * p->n_tok * p->n_heads * dims + bits * (0.3 + 0.05 * p->n_heads) + (x->apart ? 10e6 : 0);
}
