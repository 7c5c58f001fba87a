/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the oracle agrees with NumPy, and the codecs' values of all codes with Python. */
#include "ci/tests/tests.h"
#include "caches/pools/codec/codec.h"
#include "caches/pools/pool.h"
#include "oracle/oracle.h"
#include "oracle/storage.h"
#include "workloads/safetensors.h"

/*
 * Shows that the whole oracle (history, limits of groups, rows, solve) agrees with numpy_attention.py, which shares no
 * code with it, in every row of the recorded workloads, of one with layers that differ in all properties, and with
 * softcaps and sink logits.
 */

enum { LAYERS = 16, TENSORS = 4 * LAYERS + 3 };
static const char python[] = "/usr/bin/python3"; /* Debian's, which has its numpy */

static const struct scene {
    const char *trace; /* a name in $KVB_WORKLOADS, or a path with a slash */
    float softcap;     /* 0: the trace's own */
    bool sinks;        /* adds seeded sink logits */
} scenes[] = {
    {"plain-decode", 0, false},      {"agent-fork", 0, false},
    {"batched-multi-seq", 5, false}, {"parallel-sample", 0, true},
    {"eagle-tree", 0, false},        {"sliding-window", 0, false},
    {"sink-window", 2, true},        {"ci/tests/whole/groups.jsonl", 0, false},
    {"mla-decode", 0, false},        {"gpt-oss-like", 0, false},
    {"chunked-local", 0, false},     {"context-shift", 0, false},
    {"evict-rollback", 0, false},    {"ci/tests/whole/shifts.jsonl", 0, false},
    {"prefix-reuse", 0, false},      {"continuous-admission", 0, false},
    {"paged-sharing", 0, false},     {"shared-prompt", 0, false},
    {"beam-search", 0, false},       {"ci/tests/whole/lists.jsonl", 0, false},
    {"save-restore", 0, false},      {"preempt-resume", 0, false},
    {"spec-batch", 0, false},        {"self-extend", 0, false},
};

typedef struct answers {
    kvb_tensor tensors[TENSORS];
    char names[TENSORS][16];
    size_t n;
} answers;

static void tensor_add(answers *a, const char *name, uint32_t layer, kvb_dtype dtype, uint64_t rows, uint64_t heads,
                       uint64_t dim, const void *data)
{
    kvb_tensor *t = &a->tensors[a->n];
    snprintf(a->names[a->n], sizeof *a->names, layer == UINT32_MAX ? "%s" : "%s.%u", name, layer);
    *t = (kvb_tensor){.name = a->names[a->n++],
                      .dtype = dtype,
                      .n_dims = dim     ? 3
                                : heads ? 2
                                        : 1,
                      .dims = {rows, heads, dim},
                      .data = data,
                      .bytes = rows * (heads ? heads : 1) * (dim ? dim : 1) * kvb_dtype_bytes(dtype)};
}

static void values_add(answers *a, const kvb_trace *trace, const kvb_values *values)
{
    for (uint32_t layer = 0; layer < trace->header.model.n_layers; layer++) {
        const kvb_group *g = kvb_model_group(&trace->header.model, layer);
        tensor_add(a, "q", layer, KVB_DTYPE_F32, values->tokens, g->heads, g->k_dim,
                   kvb_values_rows(values, KVB_ROWS_Q, layer, 0));
        tensor_add(a, "k", layer, KVB_DTYPE_F32, values->tokens, g->kv_heads, g->k_dim,
                   kvb_values_rows(values, KVB_ROWS_K, layer, 0));
        if (!g->latent)
            tensor_add(a, "v", layer, KVB_DTYPE_F32, values->tokens, g->kv_heads, g->v_dim,
                       kvb_values_rows(values, KVB_ROWS_V, layer, 0));
        if (g->sink_logits)
            tensor_add(a, "sinks", layer, KVB_DTYPE_F32, g->heads, 0, 0, g->sink_logits);
    }
}

/* Writes the oracle's rows and their inputs to a file. */
static void answers_write(const char *path, const kvb_trace *trace, const kvb_values *values, const kvb_oracle *oracle,
                          const char *softcap)
{
    static answers a;
    size_t channels = 0;
    for (size_t i = 0; i < oracle->n_rows; i++)
        channels += kvb_model_group(&trace->header.model, oracle->rows[i].layer)->v_dim;
    int32_t(*rows)[5] = malloc(oracle->n_rows * sizeof *rows);
    double *lse = malloc(oracle->n_rows * sizeof *lse), *out = malloc(channels * sizeof *out);
    size_t at = 0;
    for (size_t i = 0; i < oracle->n_rows; i++) {
        const kvb_expect *e = &oracle->rows[i];
        const int32_t row[5] = {(int32_t)trace->events[e->event].line, (int32_t)e->layer, (int32_t)e->query,
                                (int32_t)e->head, (int32_t)e->visible};
        memcpy(rows[i], row, sizeof row);
        lse[i] = e->lse;
        for (uint32_t c = 0; c < kvb_model_group(&trace->header.model, e->layer)->v_dim; c++)
            out[at++] = e->terms[c].o;
    }
    a.n = 0;
    values_add(&a, trace, values);
    tensor_add(&a, "rows", UINT32_MAX, KVB_DTYPE_I32, oracle->n_rows, 5, 0, rows);
    tensor_add(&a, "lse", UINT32_MAX, KVB_DTYPE_F64, oracle->n_rows, 0, 0, lse);
    tensor_add(&a, "out", UINT32_MAX, KVB_DTYPE_F64, channels, 0, 0, out);
    const char *const facts[] = {"softcap", softcap, NULL};
    char why[300] = "";
    if (kvb_safetensors_write(path, a.tensors, a.n, facts, why, sizeof why))
        fail_msg("%s", why);
    free(rows);
    free(lse);
    free(out);
}

static void scene_check(const struct scene *scene)
{
    static const kvb_format f32 = {.name = "f32", .elem = KVB_F32};
    const kvb_oracle_options options = {.k_format = &f32, .v_format = &f32, .max_pairs = UINT64_MAX};
    const char *folder = getenv("KVB_WORKLOADS"), *file = tests_path("answers.safetensors");
    char path[600], command[2500], softcap[32], why[300] = "";
    kvb_trace *trace;
    kvb_values *values;
    kvb_oracle *oracle = NULL;
    const kvb_logit_changes changes = {.softcap = scene->softcap, .sinks = scene->sinks, .seed = 3};
    if (strchr(scene->trace, '/'))
        snprintf(path, sizeof path, "%s", scene->trace);
    else
        snprintf(path, sizeof path, "%s/%s.jsonl", folder ? folder : "workloads/recorded", scene->trace);
    snprintf(softcap, sizeof softcap, "%.9g", (double)scene->softcap);
    if (kvb_trace_load(path, 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    assert_true(trace->header.model.n_layers <= LAYERS);
    if (scene->softcap > 0 || scene->sinks)
        assert_int_equal(kvb_trace_change_logits(trace, &changes), 0);
    if (kvb_values_open(trace, NULL, 0, NULL, NULL, &values, why, sizeof why) ||
        kvb_oracle_open(trace, values, &options, &oracle, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(oracle->n_rows, oracle->total_rows);
    answers_write(file, trace, values, oracle, softcap);
    printf("# %s: ", scene->trace);
    fflush(stdout);
    snprintf(command, sizeof command, "OPENBLAS_NUM_THREADS=1 %s ci/tests/whole/numpy_attention.py %s %s", python, path,
             file);
    int status = system(command);
    kvb_oracle_free(oracle);
    kvb_values_free(values);
    kvb_trace_free(trace);
    assert_int_equal(status, 0);
}

TEST(test_scenes)
{
    char command[100];
    snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", python);
    if (system(command))
        skip(); /* no numpy here */
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        scene_check(&scenes[i]);
}

/*
 * Shows that every code of every format, with every kind of scale, has the value that code_tables.py computes from the
 * format's name and published definition. The oracle's codecs decode to double; the pools' codecs decode to f32, at
 * every level of instruction sets that this CPU has. Stored bytes are made here, not by an encoder.
 */

enum { DIM = 256, ROWS = 256, CODES = 4 * DIM, SCALES = 4 * DIM };

static const char tables_python[] = "/usr/bin/python3"; /* Debian's, which has its numpy */
static const float head_scale = 0.37f;

typedef struct table {
    unsigned char codes[ROWS * CODES], scales[ROWS * SCALES], zeros[ROWS * SCALES];
    double oracle[ROWS * DIM], size[DIM];
    float pool[ROWS * DIM];
} table;

static table t;

/* Puts a bit pattern of a scale or zero: all patterns of 8 bits; of more bits signs, powers, fractions and subnormals
 * that do not overflow. */
static void scale_put(unsigned char *into, kvb_elem elem, uint32_t number, bool zero)
{
    static const uint16_t f16[] = {0x3c00, 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x2e66,
                                   0xae66, 0x3555, 0x4248, 0xc248, 0x7bff, 0xfbff, 0x57ff, 0x1234};
    static const float f32[] = {1, 0, 0.1f, 3.14159274f, 1e30f, 1e-30f, 0x1p-126f, 0x1p-149f, 0.333333343f, 7e5f};
    if (elem == KVB_F16) {
        uint16_t bits = f16[(number * (zero ? 7 : 1) + zero) % (sizeof f16 / sizeof *f16)];
        memcpy(into, &bits, 2);
    } else if (elem == KVB_F32) {
        float x = f32[(number * (zero ? 3 : 1) + zero) % (sizeof f32 / sizeof *f32)];
        x = zero && number % 2 ? -x : x;
        memcpy(into, &x, 4);
    } else
        *into = (unsigned char)number;
}

/* Any 16 consecutive bytes have every value of the low half, the high half and each pair of bits. */
static unsigned char code_byte(uint32_t i, uint32_t row)
{
    uint32_t low = (i + row) % 16, high = (i * 5 + i / 16 + row + 8) % 16;
    return (unsigned char)(low | high << 4);
}

/* A NaN or huge element would hide all others when a transform is undone: every other such row has none. */
static bool is_tame(const kvb_format *f, uint32_t row)
{
    return f->transform && row % 2;
}

/* Fills codes: each 8-bit or 16-bit code once over all rows; smaller codes by code_byte(). */
static void codes_fill(const kvb_format *f, size_t row_bytes)
{
    static const uint32_t blocks[KVB_ELEM_COUNT] = {
        [KVB_Q8_0] = 34, [KVB_Q5_1] = 24, [KVB_Q5_0] = 22, [KVB_Q4_1] = 20, [KVB_Q4_0] = 18, [KVB_IQ4_NL] = 18};
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < row_bytes; i++) {
            unsigned char *at = t.codes + r * row_bytes + i;
            *at = f->elem == KVB_F16 || f->elem == KVB_BF16 ? (unsigned char)(i % 2 ? r : i / 2)
                  : row_bytes == DIM                        ? (unsigned char)(i * 5 + r)
                                                            : code_byte(i, r);
            bool high = f->elem == KVB_E4M3 || f->elem == KVB_E5M2 ||
                        row_bytes == 2 * DIM; /* the byte has an exponent's first bit */
            if (is_tame(f, r) && high)
                *at &= 0xbf;
            if (blocks[f->elem] && row_bytes / (DIM / 32) == 34 && i % 34 > 1)
                *at = (unsigned char)(i % 34 + 32 * r);
        }
    for (uint32_t r = 0; r < ROWS && blocks[f->elem]; r++)
        for (uint32_t b = 0; b < DIM / 32; b++) {
            unsigned char *block = t.codes + r * row_bytes + b * blocks[f->elem];
            scale_put(block, KVB_F16, r / 8 + b, false);
            if (f->elem == KVB_Q5_1 || f->elem == KVB_Q4_1)
                scale_put(block + 2, KVB_F16, r / 8 + b, true);
        }
    for (uint32_t r = 0; r < ROWS && f->elem == KVB_F32; r++)
        for (uint32_t c = 0; c < DIM; c++) {
            uint32_t bits = (r * DIM + c) * 0x9e3779b9u & (is_tame(f, r) ? 0xbfffffffu : 0xffffffffu);
            memcpy(t.codes + (r * DIM + c) * 4, &bits, 4);
        }
}

static kvb_view view_make(const kvb_format *f)
{
    static uint32_t slots[ROWS];
    size_t row_bytes = kvb_codes_bytes(f, DIM), elem = kvb_scale_bytes(f->scale_elem);
    bool block = kvb_elem_is_block(f->elem), tokens = f->axis == KVB_AXIS_TOKENS;
    size_t per_row = tokens ? DIM : f->group == KVB_GROUP_ROW ? 1 : f->group && !block ? DIM / f->group : 0;
    codes_fill(f, row_bytes);
    for (uint32_t i = 0; i < ROWS * per_row; i++) {
        uint32_t number = (uint32_t)(i / per_row + i % per_row);
        scale_put(t.scales + i * elem, f->scale_elem, number, false);
        if (elem == 1 && is_tame(f, (uint32_t)(i / per_row)))
            t.scales[i] &= 0xbf;
        if (kvb_format_has_zeros(f))
            scale_put(t.zeros + i * elem, f->zero_elem, number, true);
    }
    memset(slots, 0xff, sizeof slots); /* no row waits to be encoded */
    return (kvb_view){.base = t.codes,
                      .cell_stride = row_bytes,
                      .cells = ROWS,
                      .dim = DIM,
                      .format = f,
                      .scales = per_row ? t.scales : NULL,
                      .scale_cell_stride = per_row * elem,
                      .zeros = kvb_format_has_zeros(f) ? t.zeros : NULL,
                      .zero_cell_stride = per_row * elem,
                      .head_scales = f->head_scale ? &head_scale : NULL,
                      .recent = t.codes,
                      .recent_slot = slots};
}

static kvb_tensor tensor(const char *name, kvb_dtype dtype, uint64_t columns, const void *data)
{
    return (kvb_tensor){.name = name,
                        .dtype = dtype,
                        .n_dims = 2,
                        .dims = {ROWS, columns},
                        .data = data,
                        .bytes = ROWS * columns * kvb_dtype_bytes(dtype)};
}

static void format_write(const char *folder, const kvb_format *f, const char *isa)
{
    kvb_view view = view_make(f);
    kvb_storage store;
    char why[300] = "";
    if (kvb_storage_init(&store, f, DIM, NULL, 1, 0, why, sizeof why))
        fail_msg("%s", why);
    for (uint32_t r = 0; r < ROWS; r++) {
        const size_t scales = (f->axis == KVB_AXIS_TOKENS ? r / f->group : r) * view.scale_cell_stride;
        const unsigned char *part[] = {t.codes + r * view.cell_stride, t.scales + scales, t.zeros + scales};
        kvb_codec_decode(store.codec, part, DIM, f->head_scale ? head_scale : 1, t.oracle + r * DIM, t.size);
        kvb_storage_finish(&store, t.oracle + r * DIM, t.size);
    }
    f->read(&view, 0, 0, ROWS, t.pool);
    const kvb_tensor tensors[] = {tensor("codes", KVB_DTYPE_U8, view.cell_stride, t.codes),
                                  tensor("scales", KVB_DTYPE_U8, view.scale_cell_stride, t.scales),
                                  tensor("zeros", KVB_DTYPE_U8, view.zeros ? view.zero_cell_stride : 0, t.zeros),
                                  tensor("oracle", KVB_DTYPE_F64, DIM, t.oracle),
                                  tensor("pool", KVB_DTYPE_F32, DIM, t.pool)};
    if (kvb_safetensors_write(tests_path("%s/%s.%s", folder, f->name, isa), tensors, sizeof tensors / sizeof *tensors,
                              NULL, why, sizeof why))
        fail_msg("%s", why);
}

TEST(test_tables)
{
    char command[4000];
    snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", tables_python);
    if (system(command))
        skip(); /* no numpy here */
    const char *folder = tests_folder();
    for (const kvb_codec_isa *const *isa = kvb_codec_isas; *isa; isa++) {
        if (!(*isa)->available())
            continue;
        kvb_codec_limit((*isa)->name);
        for (const kvb_pool_type *const *pool = kvb_builtin_pools; *pool; pool++) {
            format_write(folder, (*pool)->format, (*isa)->name);
            if ((*pool)->rotated)
                format_write(folder, (*pool)->rotated->format, (*isa)->name);
        }
    }
    kvb_codec_limit(NULL);
    snprintf(command, sizeof command, "OPENBLAS_NUM_THREADS=1 %s ci/tests/whole/code_tables.py %s/*", tables_python,
             folder);
    assert_int_equal(system(command), 0);
}
