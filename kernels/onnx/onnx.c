/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX Runtime's attention as kernels, a plug-in: `ort` is the operator Attention (ONNX, opset 23), `ort-gqa` is
 * GroupQueryAttention of com.microsoft, over rows of f32 or f16 with room behind them. Each is a model of one operator,
 * written here as the bytes of its protobuf (onnx/onnx.proto has the numbers of fields), with a session for each shape
 * of problem. A tensor of ONNX has no strides: rows are read in place if the rows of each head lie together. If there are
 * gaps between heads, Attention gets a node for each KV head. Other rows are copied first, within the call.
 *
 * ONNX Runtime gives no log-sum-exp and declares no arithmetic: arithmetic() declares what products of blocks imply.
 *
 * The library is loaded at run time, and nothing of it is compiled in. Its table of functions only grows, so a function
 * is found by its number in the table (onnxruntime_c_api.h, struct OrtApi).
 */
#include "kernels/engines.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- functions, by number ---------------------------------------------------------------------------------------- */

typedef struct ort_status ort_status; /* NULL: success */
typedef void *ort_handle;             /* an environment, a session, options, a tensor, a place of memory */

/* X(result, name, number in the table, parameters) */
// clang-format off
#define FUNCTIONS(X)                                                                                                   \
    X(ort_status *, create_env, 3, (int log_level, const char *name, ort_handle *env))                                 \
    X(ort_status *, create_session, 8, (ort_handle env, const void *model, size_t bytes, ort_handle options,           \
      ort_handle *session))                                                                                            \
    X(ort_status *, run, 9, (ort_handle session, ort_handle options, const char *const *input_names,                   \
      const ort_handle *inputs, size_t n_inputs, const char *const *output_names, size_t n_outputs,                    \
      ort_handle *outputs))                                                                                            \
    X(ort_status *, create_options, 10, (ort_handle *options))                                                         \
    X(ort_status *, set_log_level, 22, (ort_handle options, int level))                                                \
    X(ort_status *, set_threads, 24, (ort_handle options, int n))                                                      \
    X(ort_status *, create_tensor, 49, (ort_handle memory, void *data, size_t bytes, const int64_t *dims,              \
      size_t n_dims, int type, ort_handle *tensor))                                                                    \
    X(ort_status *, create_memory, 69, (int allocator, int type, ort_handle *memory))                                  \
    X(void, release_status, 93, (ort_status *status))                                                                  \
    X(void, release_session, 95, (ort_handle session))                                                                 \
    X(void, release_tensor, 96, (ort_handle tensor))                                                                   \
    X(void, release_options, 100, (ort_handle options))                                                                \
    X(ort_status *, set_option, 130, (ort_handle options, const char *key, const char *value))
// clang-format on

typedef struct engine_api {
#define FIELD(RESULT, NAME, NUMBER, PARAMETERS) RESULT(*NAME) PARAMETERS;
    FUNCTIONS(FIELD)
} engine_api;

#define API_VERSION 13u /* the first version with all of these functions */
typedef struct api_base {
    const void *(*get_api)(uint32_t version);
    const char *(*version)(void);
} api_base;

static engine_api api; /* once engine_load() has found it */
static ort_handle memory;

enum { ORT_FLOAT = 1, ORT_INT32 = 6, ORT_BOOL = 9, ORT_FLOAT16 = 10 };
enum { ORT_FATAL = 4 }; /* the last log level: prints nothing */

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static bool loaded(char *why, size_t why_bytes)
{
    char path[PATH_MAX];
    kvb_engine_path("KVB_ONNX", &api, "../engines/onnx/libonnxruntime.so.1", path);
    if (access(path, R_OK)) {
        snprintf(why, why_bytes, "%.300s: %s; KVB_ONNX names a libonnxruntime.so, `make engines` installs one", path,
                 strerror(errno));
        return false;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "OrtGetApiBase") : NULL;
    const api_base *(*base)(void);
    if (!symbol) {
        snprintf(why, why_bytes, "%s", dlerror());
        return false;
    }
    memcpy(&base, &symbol, sizeof symbol);
    const char *version = base()->version();
    void *const *table = base()->get_api(API_VERSION);
    if (!table) {
        snprintf(why, why_bytes, "ONNX Runtime %.32s is older than its C interface %u", version, API_VERSION);
        return false;
    }
#define FIND(RESULT, NAME, NUMBER, PARAMETERS) memcpy(&api.NAME, &table[NUMBER], sizeof api.NAME);
    FUNCTIONS(FIND)
    if (api.create_memory(0, 0, &memory)) {
        snprintf(why, why_bytes, "ONNX Runtime %.32s has no memory of the CPU", version);
        return false;
    }
    snprintf(why, why_bytes, "ONNX Runtime %.32s", version);
    return true;
}

/* Loads the library, once. true: why names what was found; false: what is missing. */
static bool engine_load(char *why, size_t why_bytes)
{
    static char said[512];
    static int state; /* 0: not tried */
    if (!state)
        state = loaded(said, sizeof said) ? 1 : -1;
    snprintf(why, why_bytes, "%s", said);
    return state > 0;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* A protobuf message. Bytes that do not fit are dropped, and n is above room then. */
typedef struct message {
    size_t n, room;
    unsigned char *at;
} message;

static void byte_put(message *m, uint64_t byte)
{
    if (m->n < m->room)
        m->at[m->n] = (unsigned char)byte;
    m->n++;
}

static void varint_put(message *m, uint64_t x)
{
    for (; x > 127; x >>= 7)
        byte_put(m, x | 128);
    byte_put(m, x);
}

static void number_put(message *m, uint32_t field, uint64_t x)
{
    varint_put(m, field << 3);
    varint_put(m, x);
}

static void bytes_put(message *m, uint32_t field, const void *bytes, size_t n)
{
    varint_put(m, field << 3 | 2);
    varint_put(m, n);
    for (size_t i = 0; i < n; i++)
        byte_put(m, ((const unsigned char *)bytes)[i]);
}

static void text_put(message *m, uint32_t field, const char *text)
{
    bytes_put(m, field, text, strlen(text));
}

#define MESSAGE(NAME, ROOM)                                                                                            \
    unsigned char NAME##_bytes[ROOM];                                                                                  \
    message NAME = {.room = sizeof NAME##_bytes, .at = NAME##_bytes}

/* An input or output of the graph, with n_dims dims of any size. */
static void value_put(message *graph, uint32_t field, const char *name, int type, uint32_t n_dims)
{
    MESSAGE(shape, 128);
    MESSAGE(tensor, 160);
    MESSAGE(kind, 192);
    MESSAGE(value, 256);
    for (uint32_t i = 0; i < n_dims; i++) {
        char dim[32];
        MESSAGE(one, 40);
        snprintf(dim, sizeof dim, "%s_%u", name, i);
        text_put(&one, 2, dim);
        bytes_put(&shape, 1, one.at, one.n);
    }
    number_put(&tensor, 1, (uint64_t)type);
    bytes_put(&tensor, 2, shape.at, shape.n);
    bytes_put(&kind, 1, tensor.at, tensor.n);
    text_put(&value, 1, name);
    bytes_put(&value, 2, kind.at, kind.n);
    bytes_put(graph, field, value.at, value.n);
}

static void whole_put(message *node, const char *name, uint64_t x)
{
    MESSAGE(attribute, 64);
    text_put(&attribute, 1, name);
    number_put(&attribute, 3, x);
    number_put(&attribute, 20, 2);
    bytes_put(node, 5, attribute.at, attribute.n);
}

static void float_put(message *node, const char *name, float x)
{
    MESSAGE(attribute, 64);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    text_put(&attribute, 1, name);
    varint_put(&attribute, 2 << 3 | 5);
    for (uint32_t i = 0; i < 4; i++)
        byte_put(&attribute, bits >> 8 * i & 255);
    number_put(&attribute, 20, 1);
    bytes_put(node, 5, attribute.at, attribute.n);
}

/* The properties of a session's model and threads. */
typedef struct plan {
    uint32_t nodes, heads, kv_heads; /* heads: of a node */
    uint32_t threads;
    int type; /* of rows */
    float scale, softcap;
    bool grouped; /* GroupQueryAttention */
    bool masked, sinks;
} plan;

#define NODES      64u
#define NAME_BYTES 16u

static void name_make(char name[NAME_BYTES], char of, uint32_t node)
{
    snprintf(name, NAME_BYTES, "%c%u", of, node);
}

static void attention_put(message *graph, const plan *p, uint32_t i)
{
    static const char inputs[] = "qkv";
    char name[NAME_BYTES];
    MESSAGE(node, 512);
    for (uint32_t n = 0; n < 3; n++) {
        name_make(name, inputs[n], i);
        text_put(&node, 1, name);
        value_put(graph, 11, name, p->type, 4);
    }
    if (p->masked)
        text_put(&node, 1, "mask");
    name_make(name, 'o', i);
    text_put(&node, 2, name);
    value_put(graph, 12, name, p->type, 4);
    text_put(&node, 4, "Attention");
    float_put(&node, "scale", p->scale);
    if (p->softcap > 0)
        float_put(&node, "softcap", p->softcap);
    bytes_put(graph, 1, node.at, node.n);
}

/* An absent input has the name "". New keys and values have no tokens: all rows are the past. */
static void grouped_put(message *graph, const plan *p)
{
    static const struct {
        const char *name;
        int type; /* 0: of rows */
        uint32_t n_dims;
    } inputs[] = {{"q0", 0, 3}, {"newk", 0, 3},         {"newv", 0, 3},         {"k0", 0, 4},
                  {"v0", 0, 4}, {"last", ORT_INT32, 1}, {"total", ORT_INT32, 1}};
    MESSAGE(node, 512);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        text_put(&node, 1, inputs[i].name);
        value_put(graph, 11, inputs[i].name, inputs[i].type ? inputs[i].type : p->type, inputs[i].n_dims);
    }
    for (uint32_t i = 0; i < 3 && (p->masked || p->sinks); i++)
        text_put(&node, 1, "");
    if (p->masked || p->sinks)
        text_put(&node, 1, p->masked ? "mask" : "");
    if (p->sinks) {
        text_put(&node, 1, "sinks");
        value_put(graph, 11, "sinks", p->type, 1);
    }
    text_put(&node, 2, "o0");
    text_put(&node, 2, "nextk");
    text_put(&node, 2, "nextv");
    value_put(graph, 12, "o0", p->type, 3);
    value_put(graph, 12, "nextk", p->type, 4);
    value_put(graph, 12, "nextv", p->type, 4);
    text_put(&node, 4, "GroupQueryAttention");
    text_put(&node, 7, "com.microsoft");
    whole_put(&node, "num_heads", p->heads);
    whole_put(&node, "kv_num_heads", p->kv_heads);
    float_put(&node, "scale", p->scale);
    if (p->softcap > 0)
        float_put(&node, "softcap", p->softcap);
    bytes_put(graph, 1, node.at, node.n);
}

#define IR_VERSION 10u /* of onnx.proto */

static void opset_put(message *model, const char *domain, uint64_t version)
{
    MESSAGE(opset, 32);
    text_put(&opset, 1, domain);
    number_put(&opset, 2, version);
    bytes_put(model, 8, opset.at, opset.n);
}

static void model_make(message *model, const plan *p)
{
    static unsigned char bytes[NODES * 1024];
    message graph = {.room = sizeof bytes, .at = bytes};
    if (p->masked)
        value_put(&graph, 11, "mask", p->grouped ? p->type : ORT_BOOL, p->grouped ? 4 : 2);
    for (uint32_t i = 0; i < p->nodes && !p->grouped; i++)
        attention_put(&graph, p, i);
    if (p->grouped)
        grouped_put(&graph, p);
    text_put(&graph, 2, "attention");
    number_put(model, 1, IR_VERSION);
    bytes_put(model, 7, graph.at, graph.n);
    opset_put(model, "", 23);
    opset_put(model, "com.microsoft", 1);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

#define SESSIONS 64u /* at a time */

static struct {
    pid_t process; /* threads do not survive a fork */
    ort_handle env;
    uint32_t next;
    struct {
        plan of;
        ort_handle session; /* NULL: none */
    } at[SESSIONS];
} mine;

/* 0, or -EIO if the engine reports an error. */
static int checked(ort_status *status)
{
    if (!status)
        return 0;
    api.release_status(status);
    return -EIO;
}

#define PLACES_BYTES (8 * KVB_ENGINE_THREADS)

/* The CPUs of the team's threads, as text for a session's option: one for each thread but the caller, counted from 1.
 * Empty: threads are not bound to one CPU each. */
static void places_take(const kvb_team *team, char text[PLACES_BYTES])
{
    int cpu[KVB_ENGINE_THREADS];
    const uint32_t threads = kvb_engine_places(team, cpu) ? team->n : 0;
    size_t n = 0;
    *text = 0;
    for (uint32_t i = 1; i < threads; i++)
        n += (size_t)snprintf(text + n, PLACES_BYTES - n, "%s%d", i > 1 ? ";" : "", cpu[i] + 1);
}

static int session_start(const plan *of, const kvb_team *team, ort_handle *session)
{
    static unsigned char bytes[NODES * 1024 + 256];
    message model = {.room = sizeof bytes, .at = bytes};
    ort_handle options = NULL;
    char places[PLACES_BYTES];
    model_make(&model, of);
    int error = model.n > model.room ? -E2BIG : checked(api.create_options(&options));
    error = error ? error : checked(api.set_log_level(options, ORT_FATAL));
    error = error ? error : checked(api.set_threads(options, (int)team->n));
    /* others use these cores, too */
    error = error ? error : checked(api.set_option(options, "session.intra_op.allow_spinning", "0"));
    if (!error && team->n > 1)
        places_take(team, places);
    if (!error && team->n > 1 && *places)
        error = checked(api.set_option(options, "session.intra_op_thread_affinities", places));
    error = error ? error : checked(api.create_session(mine.env, model.at, model.n, options, session));
    if (options)
        api.release_options(options);
    return error;
}

/* The session of a plan, owned by `mine`. */
static int session_find(const plan *of, const kvb_team *team, ort_handle *session)
{
    uint32_t at = 0;
    if (mine.process != getpid()) {
        memset(&mine, 0, sizeof mine); /* after a fork: a parent's objects stay the parent's */
        mine.process = getpid();
    }
    if (!mine.env && checked(api.create_env(ORT_FATAL, "kvbench", &mine.env)))
        return -EIO;
    while (at < SESSIONS && (!mine.at[at].session || memcmp(&mine.at[at].of, of, sizeof *of)))
        at++;
    int error = 0;
    if (at == SESSIONS) {
        at = mine.next++ % SESSIONS;
        if (mine.at[at].session)
            api.release_session(mine.at[at].session);
        mine.at[at].session = NULL;
        error = session_start(of, team, &mine.at[at].session);
        mine.at[at].of = *of;
    }
    *session = mine.at[at].session;
    return error;
}

/* ---- problems that the kernels take ------------------------------------------------------------------------------ */

static bool is_plain(const kvb_format *f, kvb_elem elem)
{
    return f->elem == elem && !f->transform && !f->head_scale && !f->residual_cells;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    return kvb_engine_takes(!is_plain(p->k_format, KVB_F32) || !is_plain(p->v_format, KVB_F32) ? "reads f32"
                            : p->out_elem != KVB_F32                                           ? "gives f32"
                            : p->v_in_k        ? "V must be a tensor of its own"
                            : p->has_sinks     ? "the operator has no sinks"
                            : p->deterministic ? "its sums may depend on the number of threads"
                                               : NULL,
                            why, why_bytes);
}

static bool grouped_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    const kvb_elem elem = p->k_format->elem;
    return kvb_engine_takes((elem != KVB_F32 && elem != KVB_F16) || !is_plain(p->k_format, elem) ||
                                    !is_plain(p->v_format, elem)
                                ? "reads f32 and f16, K and V alike"
                            : p->out_elem != elem && p->out_elem != KVB_F32 ? "gives f32, and f16 of f16"
                            : p->has_sinks && elem == KVB_F16 ? "it would round sinks to f16, which no declaration says"
                            : p->v_in_k                       ? "V must be a tensor of its own"
                            : p->k_dim != p->v_dim            ? "K and V must have one size"
                            : p->k_dim % 8                    ? "the size of a head must be a multiple of 8"
                            : p->n_tok > 1 && (p->mask != KVB_MASK_CAUSAL || p->n_tok > p->n_cells)
                                ? "queries are the last tokens, and see what came before them"
                            : p->deterministic ? "its sums may depend on the number of threads"
                                               : NULL,
                            why, why_bytes);
}

/* f32: products of blocks, in MLAS's own order. f16: q, scores and weights are stored as f16, and f16 is multiplied. */
static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    kvb_arithmetic_plain(p, a);
    a->exp_error = 0x1p-21;
    if (p->k_format->elem == KVB_F16) {
        a->query = (kvb_rounding){.rounding = KVB_F16};
        a->scores = (kvb_rounding){.rounding = KVB_F16};
        a->sums = (kvb_rounding){.rounding = KVB_F16, .chain = 1}; /* out is stored as f16, too */
    }
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

#define TENSORS (3 * NODES + 8)

/* Tensors under their names, one after the other. */
typedef struct named {
    uint32_t n;
    int error; /* the first; later tensors are not added */
    char text[TENSORS][NAME_BYTES];
    const char *names[TENSORS];
    ort_handle tensors[TENSORS];
} named;

/* Rows of K or V as the engine gets them. */
typedef struct side {
    const kvb_view *view;
    const char *at;
    size_t head_stride, row; /* bytes: from one head to the next; of a row */
} side;

typedef struct call {
    const kvb_attend *args;
    plan plan;
    size_t elem; /* bytes */
    side k, v;
    char *q, *out, *sinks; /* heads first, in the rows' type; the call's own arrays if they have this form */
    char *mask;            /* [n_tok][n_cells]: bool, or terms that are added to scores */
    char *scratch;         /* not yet used */
    named in, to;
} call;

static char *placed(call *c, size_t bytes)
{
    char *at = c->scratch;
    c->scratch += kvb_engine_lines(bytes);
    return at;
}

static size_t elem_bytes(const kvb_problem *p)
{
    return p->k_format->elem == KVB_F16 ? sizeof(uint16_t) : sizeof(float);
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    (void)n_threads;
    const size_t elem = elem_bytes(p), cells = (size_t)p->n_kv_heads * p->n_cells, rows = (size_t)p->n_tok * p->n_heads;
    return kvb_engine_lines(cells * p->k_dim * elem) + kvb_engine_lines(cells * p->v_dim * elem) +
           kvb_engine_lines(rows * p->k_dim * elem) + kvb_engine_lines(rows * p->v_dim * elem) +
           kvb_engine_lines((size_t)p->n_tok * p->n_cells * elem) + kvb_engine_lines(p->n_heads * elem);
}

/* To nearest, ties to even. */
static uint16_t half_of(float x)
{
    float size = x < 0 ? -x : x, sum = size + 0.5f;
    uint32_t bits, of_sum, of_size;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&of_sum, &sum, sizeof bits);
    memcpy(&of_size, &size, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    if (!(size < 65520.0f))
        return (uint16_t)(sign | (x != x ? 0x7e00u : 0x7c00u));
    if (size < 0x1p-14f) /* subnormal: steps of 2^-24, as `sum` has them */
        return (uint16_t)(sign | (of_sum & 0x7ff));
    return (uint16_t)(sign | (of_size + 0xfff + (of_size >> 13 & 1) - (112u << 23)) >> 13);
}

static float float_of(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;
    const uint32_t bits = size >= 0x7c00 ? 0x7f800000u | size << 13 : (size << 13) + (112u << 23);
    float x = (float)size * 0x1p-24f;
    if (size >= 0x400)
        memcpy(&x, &bits, sizeof x);
    return sign ? -x : x;
}

static void floats_put(const call *c, const float *from, uint32_t n, char *to)
{
    if (c->elem == sizeof(float))
        memcpy(to, from, n * sizeof *from);
    for (uint32_t i = 0; i < n && c->elem < sizeof(float); i++)
        ((uint16_t *)(void *)to)[i] = half_of(from[i]);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static side side_of(const kvb_view *view, uint32_t dim, size_t elem)
{
    return (side){view, view->base, view->head_stride, dim * elem};
}

/* Do all cells of a head lie together? */
static bool is_head_by_head(const side *s)
{
    return s->view->cell_stride == s->row && s->head_stride % s->row == 0 && s->head_stride / s->row >= s->view->cells;
}

static void rows_part(void *ctx, uint32_t i, uint32_t n)
{
    const call *c = ctx;
    const kvb_problem *p = &c->args->problem;
    const side *sides[] = {&c->k, &c->v};
    for (uint32_t job = i; job < 2 * p->n_kv_heads; job += n) {
        const side *s = sides[job % 2];
        char *to = (char *)(uintptr_t)s->at + job / 2 * s->head_stride;
        for (uint32_t cell = 0; cell < p->n_cells; cell++)
            memcpy(to + cell * s->row, kvb_view_row(s->view, job / 2, cell), s->row);
    }
}

/* Copies K and V, head by head without a gap. */
static void rows_pack(call *c)
{
    side *sides[] = {&c->k, &c->v};
    const kvb_problem *p = &c->args->problem;
    for (uint32_t i = 0; i < 2; i++) {
        sides[i]->head_stride = p->n_cells * sides[i]->row;
        sides[i]->at = placed(c, p->n_kv_heads * sides[i]->head_stride);
    }
    c->args->team->run(c->args->team, rows_part, c);
}

/* Chooses a node for all heads, or one for each KV head; packs the rows if neither can read them. */
static void rows_take(call *c)
{
    const kvb_problem *p = &c->args->problem;
    plan *of = &c->plan;
    const bool by_head = is_head_by_head(&c->k) && is_head_by_head(&c->v),
               gapless = p->n_kv_heads == 1 ||
                         (c->k.head_stride == p->n_cells * c->k.row && c->v.head_stride == p->n_cells * c->v.row);
    if (!of->grouped && by_head && !gapless && p->n_kv_heads <= NODES) {
        of->nodes = p->n_kv_heads;
        of->heads = p->n_heads / p->n_kv_heads;
        of->kv_heads = 1;
    } else if (!by_head || (of->grouped ? c->k.head_stride != c->v.head_stride : !gapless)) {
        rows_pack(c);
    }
}

/* ---- queries, outputs, the mask ---------------------------------------------------------------------------------- */

/* Does the engine have heads first where the call has tokens first? */
static bool turns(const call *c)
{
    return !c->plan.grouped && c->args->problem.n_tok > 1;
}

static void inputs_part(void *ctx, uint32_t i, uint32_t n)
{
    const call *c = ctx;
    const kvb_problem *p = &c->args->problem;
    for (uint32_t t = i; t < p->n_tok; t += n) {
        for (uint32_t h = 0; h < p->n_heads && c->q != (const char *)c->args->q; h++)
            floats_put(c, c->args->q + ((size_t)t * p->n_heads + h) * p->k_dim, p->k_dim,
                       c->q + (turns(c) ? (size_t)h * p->n_tok + t : (size_t)t * p->n_heads + h) * c->k.row);
        kvb_run run;
        if (!c->plan.masked)
            continue;
        const size_t step = c->plan.grouped ? c->elem : 1;
        char *row = c->mask + (size_t)t * p->n_cells * step;
        memset(row, 0, p->n_cells * step);
        for (uint32_t cell = 0; cell < p->n_cells && c->plan.grouped; cell++)
            floats_put(c, &(float){-INFINITY}, 1, row + cell * step);
        for (uint32_t cursor = 0; kvb_mask_next(&c->args->mask, p->n_tok, p->n_cells, t, &cursor, &run);)
            memset(row + run.begin * step, !c->plan.grouped, (run.end - run.begin) * step);
    }
}

/* Copies the engine's outputs to the call's out, in its order and type. */
static void outputs_part(void *ctx, uint32_t i, uint32_t n)
{
    const call *c = ctx;
    const kvb_problem *p = &c->args->problem;
    for (uint32_t t = i; t < p->n_tok; t += n)
        for (uint32_t h = 0; h < p->n_heads; h++) {
            const size_t row = (size_t)t * p->n_heads + h;
            const char *from = c->out + (turns(c) ? (size_t)h * p->n_tok + t : row) * c->v.row;
            float *to = (float *)c->args->out + row * p->v_dim;
            if (c->elem == sizeof(float))
                memcpy(to, from, c->v.row);
            for (uint32_t d = 0; d < p->v_dim && c->elem < sizeof(float); d++)
                to[d] = float_of(((const uint16_t *)(const void *)from)[d]);
        }
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void tensor_add(named *list, const char *name, int type, size_t elem, const void *data, uint32_t n_dims,
                       const int64_t *dims)
{
    const uint32_t n = list->n;
    size_t bytes = elem;
    for (uint32_t i = 0; i < n_dims; i++)
        bytes *= (size_t)dims[i];
    if (list->error)
        return;
    snprintf(list->text[n], NAME_BYTES, "%s", name);
    list->names[n] = list->text[n];
    list->error =
        checked(api.create_tensor(memory, (void *)(uintptr_t)data, bytes, dims, n_dims, type, &list->tensors[n]));
    list->n += !list->error;
}

/* Rows of one kind of a node: [1][heads][n][dim]. */
static void rows_add(call *c, named *list, char kind, uint32_t node, const char *data, uint32_t heads, uint64_t n,
                     uint32_t dim)
{
    char name[NAME_BYTES];
    name_make(name, kind, node);
    tensor_add(list, name, c->plan.type, c->elem, data, 4, (const int64_t[]){1, heads, (int64_t)n, dim});
}

static void attention_bind(call *c)
{
    const kvb_problem *p = &c->args->problem;
    const plan *of = &c->plan;
    for (uint32_t i = 0; i < of->nodes; i++) {
        const size_t rows = (size_t)i * of->heads * p->n_tok;
        rows_add(c, &c->in, 'q', i, c->q + rows * c->k.row, of->heads, p->n_tok, p->k_dim);
        rows_add(c, &c->in, 'k', i, c->k.at + i * c->k.head_stride, of->kv_heads, p->n_cells, p->k_dim);
        rows_add(c, &c->in, 'v', i, c->v.at + i * c->v.head_stride, of->kv_heads, p->n_cells, p->v_dim);
        rows_add(c, &c->to, 'o', i, c->out + rows * c->v.row, of->heads, p->n_tok, p->v_dim);
    }
    if (of->masked)
        tensor_add(&c->in, "mask", ORT_BOOL, 1, c->mask, 2, (const int64_t[]){p->n_tok, p->n_cells});
}

static void grouped_bind(call *c)
{
    static int32_t last, total;
    const kvb_problem *p = &c->args->problem;
    const int64_t room = (int64_t)(c->k.head_stride / c->k.row), none[] = {1, 0, (int64_t)p->n_kv_heads * p->k_dim},
                  past[] = {1, p->n_kv_heads, room, p->k_dim}, rows[] = {1, p->n_tok, (int64_t)p->n_heads * p->k_dim},
                  seen[] = {1, 1, p->n_tok, p->n_cells}, one[] = {1}, heads[] = {p->n_heads};
    const int type = c->plan.type;
    last = (int32_t)p->n_cells - 1;
    total = (int32_t)p->n_cells;
    tensor_add(&c->in, "q0", type, c->elem, c->q, 3, rows);
    tensor_add(&c->in, "newk", type, c->elem, c->k.at, 3, none);
    tensor_add(&c->in, "newv", type, c->elem, c->v.at, 3, none);
    tensor_add(&c->in, "k0", type, c->elem, c->k.at, 4, past);
    tensor_add(&c->in, "v0", type, c->elem, c->v.at, 4, past);
    tensor_add(&c->in, "last", ORT_INT32, sizeof last, &last, 1, one);
    tensor_add(&c->in, "total", ORT_INT32, sizeof total, &total, 1, one);
    tensor_add(&c->to, "o0", type, c->elem, c->out, 3, rows);
    tensor_add(&c->to, "nextk", type, c->elem, c->k.at, 4, past);
    tensor_add(&c->to, "nextv", type, c->elem, c->v.at, 4, past);
    if (c->plan.masked)
        tensor_add(&c->in, "mask", type, c->elem, c->mask, 4, seen);
    if (c->plan.sinks)
        tensor_add(&c->in, "sinks", type, c->elem, c->sinks, 1, heads);
}

static void named_free(named *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        api.release_tensor(list->tensors[i]);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

static int call_run(const kvb_attend *args, bool grouped)
{
    const kvb_problem *p = &args->problem;
    const size_t elem = elem_bytes(p);
    char why[512];
    ort_handle session;
    static call c; /* too large for a stack; calls come one at a time */
    if (!engine_load(why, sizeof why))
        return -ENOTSUP;
    if (p->n_cells == 0) {
        memset(args->out, 0,
               (size_t)p->n_tok * p->n_heads * p->v_dim * (p->out_elem == KVB_F32 ? sizeof(float) : elem));
        return 0;
    }
    memset(&c, 0, offsetof(call, in));
    c.args = args;
    c.elem = elem;
    c.scratch = args->scratch;
    c.k = side_of(&args->k, p->k_dim, elem);
    c.v = side_of(&args->v, p->v_dim, elem);
    c.in.n = c.to.n = 0;
    c.in.error = c.to.error = 0;
    c.plan.nodes = 1;
    c.plan.heads = p->n_heads;
    c.plan.kv_heads = p->n_kv_heads;
    c.plan.threads = args->team->n;
    c.plan.type = elem == sizeof(float) ? ORT_FLOAT : ORT_FLOAT16;
    c.plan.scale = p->scale;
    c.plan.softcap = p->softcap;
    c.plan.grouped = grouped;
    c.plan.masked = grouped ? p->mask == KVB_MASK_EXPLICIT : !kvb_engine_sees_all(p);
    c.plan.sinks = p->has_sinks;
    rows_take(&c);
    c.q = turns(&c) || c.elem < sizeof(float) ? placed(&c, (size_t)p->n_tok * p->n_heads * c.k.row)
                                              : (char *)(uintptr_t)args->q;
    c.out =
        turns(&c) || p->out_elem != p->k_format->elem ? placed(&c, (size_t)p->n_tok * p->n_heads * c.v.row) : args->out;
    c.mask = c.plan.masked ? placed(&c, (size_t)p->n_tok * p->n_cells * elem) : NULL;
    if (p->has_sinks) {
        c.sinks = placed(&c, p->n_heads * elem);
        floats_put(&c, args->sinks, p->n_heads, c.sinks);
    }
    args->team->run(args->team, inputs_part, &c);
    int error = session_find(&c.plan, args->team, &session);
    if (!error)
        (grouped ? grouped_bind : attention_bind)(&c);
    error = error ? error : c.in.error ? c.in.error : c.to.error;
    error = error ? error
                  : checked(api.run(session, NULL, c.in.names, c.in.tensors, c.in.n, c.to.names, c.to.n, c.to.tensors));
    named_free(&c.in);
    named_free(&c.to);
    if (!error && c.out != args->out)
        args->team->run(args->team, outputs_part, &c);
    return error;
}

static int attend(const kvb_attend *args)
{
    return call_run(args, false);
}

static int grouped_attend(const kvb_attend *args)
{
    return call_run(args, true);
}

/* Members that both kernels share. */
#define ALIKE                                                                                                          \
    .flags = KVB_KERNEL_FOREIGN | KVB_KERNEL_NO_LSE | KVB_KERNEL_FINITE_CELLS,                                         \
    .masks = KVB_MASK_BIT(KVB_MASK_NONE) | KVB_MASK_BIT(KVB_MASK_CAUSAL) | KVB_MASK_BIT(KVB_MASK_EXPLICIT),            \
    .available = engine_load, .scratch_bytes = scratch_bytes, .arithmetic = arithmetic

static const kvb_kernel attention = {.name = "ort",
                                     .summary = "Attention of an ONNX Runtime that is loaded (KVB_ONNX=library)",
                                     .supports = supports,
                                     .attend = attend,
                                     ALIKE};
static const kvb_kernel grouped = {.name = "ort-gqa",
                                   .summary = "the same engine's GroupQueryAttention, over rows with room behind them",
                                   .supports = grouped_supports,
                                   .attend = grouped_attend,
                                   ALIKE};

static const kvb_kernel *const kernels[] = {&attention, &grouped, NULL};

KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "onnx", .kernels = kernels};
