/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ggml's attention as kernels, a plug-in: `ggml` is ggml_flash_attn_ext, `ggml-mul` the path that llama.cpp takes
 * without it (product, softmax, product; V is transposed first, since views have it by rows). Rows are read in place: a
 * view's strides are a tensor's. Each call makes its mask in ggml's form, f16 0 or -infinity for each query and cell.
 *
 * ggml gives no log-sum-exp and declares no arithmetic. arithmetic() declares what a format implies: q is rounded to the
 * type in which ggml multiplies rows of K's format (f16, bf16, 8 bits in blocks of 32), and `ggml` sums f16 rows in f16.
 *
 * The library is loaded at run time, and nothing of it is compiled in. Its functions are declared here and found by
 * name when a kernel first needs them; assumptions about its structs are tested before a call depends on them.
 */
#include "kernels/engines.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- assumptions about ggml -------------------------------------------------------------------------------------- */

/* ggml's struct of a tensor. `ne`: elements along each axis, the fastest first; `nb`: bytes from one to the next. */
typedef struct ggml_tensor {
    int32_t type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int32_t op, op_params[16], flags;
    struct ggml_tensor *src[10], *view_src;
    size_t view_offs;
    void *data;
    char name[64];
    void *extra;
    char padding[8];
} ggml_tensor;

typedef struct ggml_context ggml_context; /* an arena of tensors and graphs */
typedef struct ggml_cgraph ggml_cgraph;
typedef void *ggml_handle; /* a backend, a device, a registry, a pool of threads */

/* Parameters of an arena for tensors. */
typedef struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc; /* tensors get no data */
} ggml_init_params;

#define GGML_CPUS 512
typedef struct ggml_threadpool_params {
    bool cpumask[GGML_CPUS];
    int n_threads, prio;
    uint32_t poll; /* how long threads look for work before they sleep: 0 .. 100 */
    bool strict_cpu, paused;
} ggml_threadpool_params;

/* The functions used: X(result, name without "ggml_", parameters). The library has those of FUNCTIONS; the CPU's
 * backend gives those of CPU_FUNCTIONS by name. */
// clang-format off
#define FUNCTIONS(X)                                                                                                   \
    X(const char *, version, (void))                                                                                   \
    X(const char *, commit, (void))                                                                                    \
    X(void, log_set, (void (*log)(int level, const char *text, void *ctx), void *ctx))                                 \
    X(size_t, type_size, (int type))                                                                                   \
    X(int64_t, blck_size, (int type))                                                                                  \
    X(const char *, type_name, (int type))                                                                             \
    X(size_t, tensor_overhead, (void))                                                                                 \
    X(size_t, graph_overhead_custom, (size_t size, bool grads))                                                        \
    X(size_t, nbytes, (const ggml_tensor *tensor))                                                                     \
    X(void *, get_data, (const ggml_tensor *tensor))                                                                   \
    X(const char *, get_name, (const ggml_tensor *tensor))                                                             \
    X(ggml_context *, init, (ggml_init_params params))                                                                 \
    X(void, reset, (ggml_context *context))                                                                            \
    X(void, free, (ggml_context *context))                                                                             \
    X(ggml_tensor *, new_tensor_4d, (ggml_context *context, int type, int64_t ne0, int64_t ne1, int64_t ne2,           \
      int64_t ne3))                                                                                                    \
    X(ggml_tensor *, flash_attn_ext, (ggml_context *context, ggml_tensor *q, ggml_tensor *k, ggml_tensor *v,           \
      ggml_tensor *mask, float scale, float max_bias, float softcap))                                                  \
    X(void, flash_attn_ext_add_sinks, (ggml_tensor *attention, ggml_tensor *sinks))                                    \
    X(void, flash_attn_ext_set_prec, (ggml_tensor *attention, int precision))                                          \
    X(ggml_tensor *, mul_mat, (ggml_context *context, ggml_tensor *a, ggml_tensor *b))                                 \
    X(void, mul_mat_set_prec, (ggml_tensor *product, int precision))                                                   \
    X(ggml_tensor *, soft_max_ext, (ggml_context *context, ggml_tensor *a, ggml_tensor *mask, float scale,             \
      float max_bias))                                                                                                 \
    X(void, soft_max_add_sinks, (ggml_tensor *weights, ggml_tensor *sinks))                                            \
    X(ggml_tensor *, scale, (ggml_context *context, ggml_tensor *a, float factor))                                     \
    X(ggml_tensor *, tanh, (ggml_context *context, ggml_tensor *a))                                                    \
    X(ggml_tensor *, cont, (ggml_context *context, ggml_tensor *a))                                                    \
    X(ggml_tensor *, transpose, (ggml_context *context, ggml_tensor *a))                                               \
    X(ggml_tensor *, permute, (ggml_context *context, ggml_tensor *a, int axis0, int axis1, int axis2, int axis3))     \
    X(ggml_cgraph *, new_graph_custom, (ggml_context *context, size_t size, bool grads))                               \
    X(void, build_forward_expand, (ggml_cgraph *graph, ggml_tensor *tensor))                                           \
    X(void, threadpool_params_init, (ggml_threadpool_params *params, int n_threads))                                   \
    X(ggml_handle, backend_load, (const char *path))                                                                   \
    X(ggml_handle, backend_dev_by_type, (int type))                                                                    \
    X(ggml_handle, backend_dev_backend_reg, (ggml_handle device))                                                      \
    X(ggml_handle, backend_dev_init, (ggml_handle device, const char *params))                                         \
    X(void *, backend_reg_get_proc_address, (ggml_handle registry, const char *name))                                  \
    X(int, backend_graph_compute, (ggml_handle backend, ggml_cgraph *graph))                                           \
    X(void, backend_free, (ggml_handle backend))
#define CPU_FUNCTIONS(X)                                                                                               \
    X(void, backend_set_n_threads, (ggml_handle backend, int n_threads))                                               \
    X(void, backend_cpu_set_threadpool, (ggml_handle backend, ggml_handle pool))                                       \
    X(ggml_handle, threadpool_new, (ggml_threadpool_params *params))                                                   \
    X(void, threadpool_free, (ggml_handle pool))
// clang-format on

typedef struct engine_api {
#define FIELD(RESULT, NAME, PARAMETERS) RESULT(*NAME) PARAMETERS;
    FUNCTIONS(FIELD) CPU_FUNCTIONS(FIELD)
} engine_api;

enum { GGML_F32, GGML_F16, GGML_PREC_F32 = 10 };

/* A function's name, and where it is in engine_api. */
typedef struct function {
    const char *name;
    size_t at;
} function;
#define FUNCTION(RESULT, NAME, PARAMETERS) {"ggml_" #NAME, offsetof(engine_api, NAME)},
static const function functions[] = {FUNCTIONS(FUNCTION){NULL, 0}},
                      cpu_functions[] = {CPU_FUNCTIONS(FUNCTION){NULL, 0}};

static engine_api api; /* once engine_load() has found it */

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const struct {
    kvb_elem elem;
    int type, size, block; /* size: bytes of a block of so many elements */
    const char *name;
} types[] = {
    {KVB_F32, GGML_F32, 4, 1, "f32"}, {KVB_F16, GGML_F16, 2, 1, "f16"}, {KVB_BF16, 30, 2, 1, "bf16"},
    {KVB_Q8_0, 8, 34, 32, "q8_0"},    {KVB_Q5_1, 7, 24, 32, "q5_1"},    {KVB_Q5_0, 6, 22, 32, "q5_0"},
    {KVB_Q4_1, 3, 20, 32, "q4_1"},    {KVB_Q4_0, 2, 18, 32, "q4_0"},    {KVB_IQ4_NL, 20, 18, 32, "iq4_nl"},
};
enum { TYPES = sizeof types / sizeof *types };

/* ggml's number for an element that the kernels read in place. -1: they do not. */
static int engine_type(kvb_elem elem)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].elem == elem)
            return types[i].type;
    return -1;
}

/* ---- testing the assumptions ------------------------------------------------------------------------------------- */

#define OBJECT_BYTES 32u /* bytes that ggml keeps beside each tensor of a context */

static const char *types_lack(void)
{
    static char text[96];
    for (size_t i = 0; i < TYPES; i++) {
        const char *name = api.type_name(types[i].type);
        if (api.type_size(types[i].type) == (size_t)types[i].size && api.blck_size(types[i].type) == types[i].block &&
            name && !strcmp(name, types[i].name))
            continue;
        snprintf(text, sizeof text, "its type %d is not %s, in blocks of %d bytes", types[i].type, types[i].name,
                 types[i].size);
        return text;
    }
    return NULL;
}

/* Tests each used field of a tensor of four different sizes, both by reading it and by ggml's functions. */
static const char *tensor_lack(ggml_tensor *t)
{
    static const int64_t ne[4] = {3, 5, 7, 11};
    static const size_t nb[4] = {4, 12, 60, 420};
    if (!t || t->type != GGML_F32 || memcmp(t->ne, ne, sizeof ne) || memcmp(t->nb, nb, sizeof nb) || t->data)
        return "a tensor's type, ne, nb or data is not where it is looked for";
    t->data = t->padding; /* an address of some kind */
    t->nb[3] += 4;
    if (api.get_data(t) != t->padding || api.get_name(t) != t->name || api.nbytes(t) != 4 * (3 * 5 * 7 * 11) + 40)
        return "a tensor's data, name or nb is not where it is looked for";
    return NULL;
}

static const char *layout_lack(void)
{
    static char arena[1 << 16];
    ggml_threadpool_params *params = (ggml_threadpool_params *)(void *)arena; /* with room behind it */
    memset(arena, 0xff, sizeof arena);
    api.threadpool_params_init(params, 3);
    if (params->n_threads != 3 || params->prio != 0 || params->poll > 100 || params->strict_cpu || params->paused ||
        memchr(params->cpumask, 1, sizeof params->cpumask) || arena[sizeof *params] != (char)0xff)
        return "its threadpool_params are laid out otherwise";
    if (api.tensor_overhead() != OBJECT_BYTES + sizeof(ggml_tensor))
        return "its tensors have another size";
    ggml_context *context =
        api.init((ggml_init_params){.mem_size = sizeof arena, .mem_buffer = arena, .no_alloc = true});
    if (!context)
        return "ggml_init fails";
    const char *lack = tensor_lack(api.new_tensor_4d(context, GGML_F32, 3, 5, 7, 11));
    api.free(context);
    return lack;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* libggml.so, libggml.v0.5.0.so, libggml.so.0: `stem`, a dot, and .so somewhere. A backend's stem goes on with a dash.
 */
static bool is_library(const char *name, const char *stem, bool goes_on)
{
    const size_t n = strlen(stem);
    return !strncmp(name, stem, n) && (name[n] == '.' || (goes_on && name[n] == '-')) && strstr(name + n, ".so");
}

static void *library_open(const char *folder, const char *stem, char *why, size_t why_bytes)
{
    DIR *dir = opendir(folder);
    void *found = NULL;
    if (!dir) {
        snprintf(why, why_bytes, "%s: %s; KVB_GGML names a folder with libggml*.so, `make engines` installs one",
                 folder, strerror(errno));
        return NULL;
    }
    snprintf(why, why_bytes, "%s: no %s*.so; KVB_GGML names a folder that has it", folder, stem);
    for (struct dirent *e; !found && (e = readdir(dir));) {
        char path[PATH_MAX + 256];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!is_library(e->d_name, stem, false))
            continue;
        found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!found)
            snprintf(why, why_bytes, "%s", dlerror());
    }
    closedir(dir);
    return found;
}

/* The CPU backend that gives itself the highest score on this machine, as ggml chooses; one without a score has 1. */
static int backend_choose(const char *folder, char path[PATH_MAX + 256])
{
    DIR *dir = opendir(folder);
    int best = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char here[PATH_MAX + 256];
        int (*score)(void);
        snprintf(here, sizeof here, "%s/%s", folder, e->d_name);
        void *object = is_library(e->d_name, "libggml-cpu", true) ? dlopen(here, RTLD_LAZY | RTLD_LOCAL) : NULL;
        if (!object)
            continue;
        void *symbol = dlsym(object, "ggml_backend_score");
        memcpy(&score, &symbol, sizeof symbol);
        const int points = symbol ? score() : 1;
        if (points > best) {
            best = points;
            memcpy(path, here, sizeof here);
        }
        dlclose(object);
    }
    if (dir)
        closedir(dir);
    return best;
}

static void silent(int level, const char *text, void *ctx)
{
    (void)level, (void)text, (void)ctx;
}

static ggml_handle device; /* the CPU */

static bool device_open(const char *folder, char *why, size_t why_bytes)
{
    char path[PATH_MAX + 256];
    device = api.backend_dev_by_type(0); /* of a library that has its CPU backend linked in */
    if (!device && !backend_choose(folder, path)) {
        snprintf(why, why_bytes, "%s: no libggml-cpu*.so that runs on this CPU", folder);
        return false;
    }
    if (!device && api.backend_load(path))
        device = api.backend_dev_by_type(0);
    if (!device)
        snprintf(why, why_bytes, "%.200s: ggml_backend_load() takes it for no CPU backend", path);
    return device != NULL;
}

static bool functions_find(void *library, ggml_handle registry, const function *list, char *why, size_t why_bytes)
{
    for (; list->name; list++) {
        void *found = library ? dlsym(library, list->name) : api.backend_reg_get_proc_address(registry, list->name);
        if (!found) {
            snprintf(why, why_bytes, "%s lacks %s", library ? "libggml" : "its CPU backend", list->name);
            return false;
        }
        memcpy((char *)&api + list->at, &found, sizeof found);
    }
    return true;
}

static bool loaded(char *why, size_t why_bytes)
{
    char folder[PATH_MAX];
    Dl_info cpu;
    void *threads;
    kvb_engine_path("KVB_GGML", &api, "../engines/ggml", folder);
    void *base = library_open(folder, "libggml-base", why, why_bytes);
    void *library = base ? library_open(folder, "libggml", why, why_bytes) : NULL;
    if (!library || !functions_find(library, NULL, functions, why, why_bytes))
        return false;
    setenv("GGML_NO_BACKTRACE", "1", 0); /* else a failed assertion starts a debugger */
    api.log_set(silent, NULL);
    const char *lack = types_lack();
    lack = lack ? lack : layout_lack();
    if (lack) {
        snprintf(why, why_bytes, "ggml %.32s: %s", api.version(), lack);
        return false;
    }
    if (!device_open(folder, why, why_bytes) ||
        !functions_find(NULL, api.backend_dev_backend_reg(device), cpu_functions, why, why_bytes))
        return false;
    memcpy(&threads, &api.backend_set_n_threads, sizeof threads);
    const char *file = dladdr(threads, &cpu) && cpu.dli_fname ? cpu.dli_fname : "its CPU backend";
    snprintf(why, why_bytes, "ggml %.32s (%.16s), %.64s", api.version(), api.commit(),
             strrchr(file, '/') ? strrchr(file, '/') + 1 : file);
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

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define ENGINE_NODES 16u /* steps of one graph at most */
#define TEAMS        4u  /* sizes of team at a time */

static struct {
    pid_t process; /* threads do not survive a fork */
    ggml_context *context;
    struct {
        uint32_t n;
        ggml_handle pool, backend;
    } team[TEAMS];
    uint32_t next;
} mine;

/* Puts ggml's threads on the CPUs of a bound team. The caller is one of them and keeps its CPU; ggml gives each of the
 * others one CPU of the mask. */
static void places_take(const kvb_team *team, ggml_threadpool_params *params)
{
    bool taken[GGML_CPUS] = {false};
    int cpu[KVB_ENGINE_THREADS];
    if (!kvb_engine_places(team, cpu))
        return;
    for (uint32_t i = 1; i < team->n; i++) {
        if (cpu[i] >= GGML_CPUS || taken[cpu[i]])
            return;
        taken[cpu[i]] = true;
    }
    memcpy(params->cpumask, taken, sizeof taken);
    params->strict_cpu = team->n > 1;
}

static int team_start(const kvb_team *team, uint32_t at)
{
    ggml_threadpool_params params;
    cpu_set_t caller;
    if (mine.team[at].backend)
        api.backend_free(mine.team[at].backend);
    if (mine.team[at].pool)
        api.threadpool_free(mine.team[at].pool);
    memset(&mine.team[at], 0, sizeof mine.team[at]);
    api.threadpool_params_init(&params, (int)team->n);
    params.poll = 1; /* some milliseconds: others use these cores, too */
    places_take(team, &params);
    sched_getaffinity(0, sizeof caller, &caller);
    mine.team[at].pool = api.threadpool_new(&params);
    sched_setaffinity(0, sizeof caller, &caller);
    mine.team[at].backend = api.backend_dev_init(device, NULL);
    if (!mine.team[at].pool || !mine.team[at].backend)
        return -ENOMEM;
    api.backend_set_n_threads(mine.team[at].backend, (int)team->n);
    api.backend_cpu_set_threadpool(mine.team[at].backend, mine.team[at].pool);
    mine.team[at].n = team->n;
    return 0;
}

/* Gives an empty context for one call's graph, and a backend with threads on the team's CPUs. Both are owned here and
 * valid until the next call. 0, -ENOMEM, or -EINVAL for a team that is too large for ggml. */
static int engine_begin(const kvb_team *team, ggml_context **context, ggml_handle *backend)
{
    uint32_t at = 0;
    int error = team->n > GGML_CPUS ? -EINVAL : 0;
    if (mine.process != getpid())
        memset(&mine, 0, sizeof mine); /* after a fork: a parent's objects stay the parent's */
    if (!mine.context && !error) {
        const size_t bytes =
            2 * ENGINE_NODES * api.tensor_overhead() + api.graph_overhead_custom(ENGINE_NODES, false) + 4096;
        mine.process = getpid();
        mine.context = api.init((ggml_init_params){.mem_size = bytes, .no_alloc = true});
        error = mine.context ? 0 : -ENOMEM;
    }
    while (at < TEAMS && mine.team[at].n != team->n)
        at++;
    if (at == TEAMS && !error) {
        at = mine.next++ % TEAMS;
        error = team_start(team, at);
    }
    if (error)
        return error;
    api.reset(mine.context);
    *context = mine.context;
    *backend = mine.team[at].backend;
    return 0;
}

/* ---- problems that the kernels take ------------------------------------------------------------------------------ */

/* Do rows hold ggml's elements and nothing else? */
static bool is_plain(const kvb_format *f)
{
    return engine_type(f->elem) >= 0 && !f->transform && !f->head_scale && !f->residual_cells;
}

static bool supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    const bool plain = is_plain(p->k_format) && is_plain(p->v_format);
    return kvb_engine_takes(!plain                   ? "reads f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 and iq4_nl"
                            : p->out_elem != KVB_F32 ? "gives f32"
                            : p->deterministic       ? "its sums may depend on the number of threads"
                                                     : NULL,
                            why, why_bytes);
}

#define SCORES_MOST (UINT64_C(1) << 30) /* bytes */

static uint64_t scores_bytes(const kvb_problem *p)
{
    return (uint64_t)p->n_tok * p->n_heads * p->n_cells * sizeof(float);
}

static bool mul_supports(const kvb_problem *p, char *why, size_t why_bytes)
{
    return supports(p, why, why_bytes) &&
           kvb_engine_takes(kvb_elem_is_block(p->v_format->elem) ? "V of blocks cannot be transposed"
                            : scores_bytes(p) > SCORES_MOST      ? "scores would take more than 1 GiB"
                                                                 : NULL,
                            why, why_bytes);
}

/* ---- arithmetic, as formats imply it ----------------------------------------------------------------------------- */

#define EXP_ERROR 0x1p-22 /* of expf, and of ggml's own in vectors */

/* q is rounded to K's type if that is a 16-bit float; for blocks to 8 bits, by blocks of 32 with a scale and a sum in
 * f16. */
static kvb_rounding query_rounding(kvb_elem elem)
{
    if (kvb_elem_is_block(elem))
        return (kvb_rounding){.step = 1.0 / 127, .floor = 0x1p-11};
    return (kvb_rounding){.rounding = elem};
}

static void roundings_add(const kvb_problem *p, kvb_arithmetic *a)
{
    a->accumulator = KVB_F32;
    a->dot_chain = p->k_dim + kvb_format_roundings(p->k_format, p->k_dim);
    a->cell_chain = p->n_cells + p->has_sinks + kvb_format_roundings(p->v_format, p->v_dim);
    a->exp_error = EXP_ERROR;
    a->exp_floor = 0x1p-126;
    a->query = query_rounding(p->k_format->elem);
}

static void arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.rescales = p->n_cells};
    roundings_add(p, a);
    if (p->v_format->elem == KVB_F16) /* added, and scaled at each new maximum, in f16 */
        a->sums = (kvb_rounding){.rounding = KVB_F16, .chain = 2 * p->n_cells, .floor = 0x1p-24};
}

static void mul_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){0};
    roundings_add(p, a);
    a->sums.rounding = p->v_format->elem; /* weights are rounded to V's type */
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* One call's graph. */
typedef struct call {
    const kvb_attend *args;
    ggml_context *context;
    ggml_tensor *q, *k, *v, *mask, *sinks;
    char *scratch; /* not yet used */
} call;

/* Gives a tensor memory for its data, from the call's scratch. */
static ggml_tensor *placed(call *c, ggml_tensor *t)
{
    t->data = c->scratch;
    c->scratch += kvb_engine_lines(api.nbytes(t));
    return t;
}

static ggml_tensor *rows_of(const call *c, const kvb_view *view, uint32_t dim)
{
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *t = api.new_tensor_4d(c->context, engine_type(view->format->elem), dim, p->n_cells, p->n_kv_heads, 1);
    t->data = (void *)(uintptr_t)view->base;
    t->nb[1] = view->cell_stride;
    t->nb[2] = view->head_stride;
    t->nb[3] = view->head_stride * p->n_kv_heads;
    return t;
}

static ggml_tensor *queries_of(const call *c)
{
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *t = api.new_tensor_4d(c->context, GGML_F32, p->k_dim, p->n_tok, p->n_heads, 1);
    t->data = (void *)(uintptr_t)c->args->q;
    t->nb[2] = p->k_dim * sizeof(float);
    t->nb[1] = t->nb[2] * p->n_heads;
    return t;
}

/* ---- the mask ---------------------------------------------------------------------------------------------------- */

#define MASK_ROWS 64u /* older versions want a multiple of so many rows; added rows are never read */
#define HIDDEN    0xfc00u

static uint32_t mask_rows(const kvb_problem *p)
{
    return kvb_engine_sees_all(p) ? 0 : (p->n_tok + MASK_ROWS - 1) / MASK_ROWS * MASK_ROWS;
}

static void mask_part(void *ctx, uint32_t i, uint32_t n)
{
    const call *c = ctx;
    const kvb_problem *p = &c->args->problem;
    for (uint32_t t = i; t < p->n_tok; t += n) {
        uint16_t *row = (uint16_t *)c->mask->data + (size_t)t * p->n_cells;
        for (uint32_t cell = 0; cell < p->n_cells; cell++)
            row[cell] = HIDDEN;
        kvb_run run;
        for (uint32_t cursor = 0; kvb_mask_next(&c->args->mask, p->n_tok, p->n_cells, t, &cursor, &run);)
            memset(row + run.begin, 0, (run.end - run.begin) * sizeof *row);
    }
}

static void mask_make(call *c)
{
    const kvb_problem *p = &c->args->problem;
    if (kvb_engine_sees_all(p))
        return;
    c->mask = placed(c, api.new_tensor_4d(c->context, GGML_F16, p->n_cells, mask_rows(p), 1, 1));
    c->args->team->run(c->args->team, mask_part, c);
}

/* ---- the two ways ------------------------------------------------------------------------------------------------ */

static ggml_tensor *flash_build(call *c)
{
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *out = api.flash_attn_ext(c->context, c->q, c->k, c->v, c->mask, p->scale, 0, p->softcap);
    if (c->sinks)
        api.flash_attn_ext_add_sinks(out, c->sinks);
    api.flash_attn_ext_set_prec(out, GGML_PREC_F32); /* as llama.cpp does */
    return out;
}

/* Makes a step work in place, on the data of `of`. */
static ggml_tensor *in_place(ggml_tensor *t, const ggml_tensor *of)
{
    t->data = of->data;
    return t;
}

static ggml_tensor *mul_build(call *c)
{
    const kvb_problem *p = &c->args->problem;
    ggml_tensor *s = placed(c, api.mul_mat(c->context, c->k, c->q));
    api.mul_mat_set_prec(s, GGML_PREC_F32); /* as llama.cpp does */
    float scale = p->scale;
    if (p->softcap > 0) {
        s = in_place(api.scale(c->context, s, p->scale / p->softcap), s);
        s = in_place(api.tanh(c->context, s), s);
        s = in_place(api.scale(c->context, s, p->softcap), s);
        scale = 1;
    }
    s = in_place(api.soft_max_ext(c->context, s, c->mask, scale, 0), s);
    if (c->sinks)
        api.soft_max_add_sinks(s, c->sinks);
    ggml_tensor *v = placed(c, api.cont(c->context, in_place(api.transpose(c->context, c->v), c->v)));
    ggml_tensor *o = placed(c, api.mul_mat(c->context, v, s));
    return api.cont(c->context, in_place(api.permute(c->context, o, 0, 2, 1, 3), o));
}

static size_t scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    (void)n_threads;
    return kvb_engine_lines((size_t)mask_rows(p) * p->n_cells * sizeof(uint16_t));
}

static size_t mul_scratch_bytes(const kvb_problem *p, uint32_t n_threads)
{
    return scratch_bytes(p, n_threads) + kvb_engine_lines(scores_bytes(p)) +
           kvb_engine_lines((size_t)p->n_kv_heads * p->n_cells * p->v_dim * sizeof(float)) +
           kvb_engine_lines((size_t)p->n_tok * p->n_heads * p->v_dim * sizeof(float));
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

static int call_run(const kvb_attend *args, ggml_tensor *build(call *c))
{
    const kvb_problem *p = &args->problem;
    char why[512];
    call c = {.args = args, .scratch = args->scratch};
    ggml_handle backend;
    if (!engine_load(why, sizeof why))
        return -ENOTSUP;
    if (p->n_cells == 0) {
        memset(args->out, 0, (size_t)p->n_tok * p->n_heads * p->v_dim * sizeof(float));
        return 0;
    }
    int error = engine_begin(args->team, &c.context, &backend);
    if (error)
        return error;
    c.q = queries_of(&c);
    c.k = rows_of(&c, &args->k, p->k_dim);
    c.v = rows_of(&c, &args->v, p->v_dim);
    if (p->has_sinks) {
        c.sinks = api.new_tensor_4d(c.context, GGML_F32, p->n_heads, 1, 1, 1);
        c.sinks->data = (void *)(uintptr_t)args->sinks;
    }
    mask_make(&c);
    ggml_tensor *out = build(&c);
    out->data = args->out;
    ggml_cgraph *graph = api.new_graph_custom(c.context, ENGINE_NODES, false);
    api.build_forward_expand(graph, out);
    return api.backend_graph_compute(backend, graph) ? -EIO : 0;
}

static int attend(const kvb_attend *args)
{
    return call_run(args, flash_build);
}

static int mul_attend(const kvb_attend *args)
{
    return call_run(args, mul_build);
}

/* FINITE_CELLS: ggml makes scores of whole tiles before it adds the mask, and multiplies hidden V rows by 0. llama.cpp
 * zeroes its buffers. */
#define FLAGS (KVB_KERNEL_FOREIGN | KVB_KERNEL_NO_LSE | KVB_KERNEL_FINITE_CELLS)
#define OWN_RULE                                                                                                       \
    {                                                                                                                  \
        KVB_TOLERANCE_NMSE, 5e-4, 0, "llama.cpp tests/test-backend-ops.cpp, test_flash_attn_ext::max_nmse_err"         \
    }

static const kvb_kernel flash = {
    .name = "ggml",
    .summary = "ggml_flash_attn_ext of a libggml that is loaded (KVB_GGML=folder)",
    .flags = FLAGS,
    .masks = KVB_MASKS_ALL,
    .available = engine_load,
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .arithmetic = arithmetic,
    .attend = attend,
    .tolerance = OWN_RULE,
};

static const kvb_kernel mul = {
    .name = "ggml-mul",
    .summary = "the same without flash attention: mul_mat, soft_max_ext, mul_mat",
    .flags = FLAGS,
    .masks = KVB_MASKS_ALL,
    .available = engine_load,
    .supports = mul_supports,
    .scratch_bytes = mul_scratch_bytes,
    .arithmetic = mul_arithmetic,
    .attend = mul_attend,
    .tolerance = OWN_RULE,
};

static const kvb_kernel *const kernels[] = {&flash, &mul, NULL};

KVB_PLUGIN_EXPORT extern const kvb_plugin_v1 kvb_plugin;
const kvb_plugin_v1 kvb_plugin = {.abi_version = KVB_ABI_VERSION, .name = "ggml", .kernels = kernels};
