/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the library and its functions, trying out what is assumed of it, and its threads. */
#include "kernels/ggml/engine.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- functions, by name ------------------------------------------------------------------------------------------ */

typedef struct function {
    const char *name;
    size_t at; /* in engine_api */
} function;
#define FUNCTION(NAME)                                                                                                 \
    {                                                                                                                  \
        "ggml_" #NAME, offsetof(engine_api, NAME)                                                                      \
    }

static const function functions[] = {
    FUNCTION(version),
    FUNCTION(commit),
    FUNCTION(log_set),
    FUNCTION(type_size),
    FUNCTION(blck_size),
    FUNCTION(type_name),
    FUNCTION(tensor_overhead),
    FUNCTION(graph_overhead_custom),
    FUNCTION(nbytes),
    FUNCTION(get_data),
    FUNCTION(get_name),
    FUNCTION(init),
    FUNCTION(reset),
    FUNCTION(free),
    FUNCTION(new_tensor_4d),
    FUNCTION(flash_attn_ext),
    FUNCTION(flash_attn_ext_add_sinks),
    FUNCTION(flash_attn_ext_set_prec),
    FUNCTION(mul_mat),
    FUNCTION(mul_mat_set_prec),
    FUNCTION(soft_max_ext),
    FUNCTION(soft_max_add_sinks),
    FUNCTION(scale),
    FUNCTION(tanh),
    FUNCTION(cont),
    FUNCTION(transpose),
    FUNCTION(permute),
    FUNCTION(new_graph_custom),
    FUNCTION(build_forward_expand),
    FUNCTION(threadpool_params_init),
    FUNCTION(backend_load),
    FUNCTION(backend_dev_by_type),
    FUNCTION(backend_dev_backend_reg),
    FUNCTION(backend_dev_init),
    FUNCTION(backend_reg_get_proc_address),
    FUNCTION(backend_graph_compute),
    FUNCTION(backend_free),
    {NULL, 0},
};

/* What the CPU's backend gives by name itself. */
static const function cpu_functions[] = {
    FUNCTION(backend_set_n_threads),
    FUNCTION(backend_cpu_set_threadpool),
    FUNCTION(threadpool_new),
    FUNCTION(threadpool_free),
    {NULL, 0},
};

static engine_api api;

static void function_set(const function *f, void *found)
{
    memcpy((char *)&api + f->at, &found, sizeof found);
}

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

int engine_type(kvb_elem elem)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].elem == elem)
            return types[i].type;
    return -1;
}

/* ---- is it what we take it for? ---------------------------------------------------------------------------------- */

#define OBJECT_BYTES 32u /* what ggml keeps beside each tensor of a context */

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

/* A tensor of unlike sizes: each field that is used is looked at from both sides. */
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

/* The folder named by KVB_GGML; else the one in which `make engines` puts it, beside this plug-in's. */
static void folder_find(char folder[PATH_MAX])
{
    const char *named = getenv("KVB_GGML");
    Dl_info self;
    if (named && *named) {
        snprintf(folder, PATH_MAX, "%s", named);
        return;
    }
    snprintf(folder, PATH_MAX, ".");
    if (dladdr(&api, &self) && self.dli_fname && strrchr(self.dli_fname, '/'))
        snprintf(folder, PATH_MAX, "%.*s", (int)(strrchr(self.dli_fname, '/') - self.dli_fname), self.dli_fname);
    snprintf(folder + strlen(folder), PATH_MAX - strlen(folder), "/../engines/ggml");
}

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
        function_set(list, found);
    }
    return true;
}

static bool loaded(char *why, size_t why_bytes)
{
    char folder[PATH_MAX];
    Dl_info cpu;
    void *threads;
    folder_find(folder);
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

const engine_api *engine_load(char *why, size_t why_bytes)
{
    static char said[512];
    static int state; /* 0: not tried */
    if (!state)
        state = loaded(said, sizeof said) ? 1 : -1;
    snprintf(why, why_bytes, "%s", said);
    return state > 0 ? &api : NULL;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define TEAMS 4u /* sizes of team at a time */

static struct {
    pid_t process; /* threads do not survive a fork */
    ggml_context *context;
    struct {
        uint32_t n;
        ggml_handle pool, backend;
    } team[TEAMS];
    uint32_t next;
} mine;

/* Where each of the team's threads may run. */
typedef struct places {
    cpu_set_t at[GGML_CPUS];
} places;

static void place_note(void *ctx, uint32_t i, uint32_t n)
{
    places *p = ctx;
    (void)n;
    CPU_ZERO(&p->at[i]);
    sched_getaffinity(0, sizeof p->at[i], &p->at[i]);
}

/* ggml's threads sit where those of a team that is bound do. The caller is one of them and stays where it is; ggml
 * deals the CPUs of the mask out to the others, one each. */
static void places_take(const kvb_team *team, ggml_threadpool_params *params)
{
    static places p;
    bool taken[GGML_CPUS] = {false};
    team->run(team, place_note, &p);
    for (uint32_t i = 0, cpu; i < team->n; i++) {
        for (cpu = 0; cpu < GGML_CPUS && !CPU_ISSET(cpu, &p.at[i]); cpu++)
            ;
        if (cpu == GGML_CPUS || CPU_COUNT(&p.at[i]) != 1 || taken[cpu])
            return;
        taken[cpu] = i > 0;
        if (i == team->n - 1) {
            memcpy(params->cpumask, taken, sizeof taken);
            params->strict_cpu = i > 0;
        }
    }
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

static int context_start(void)
{
    const size_t bytes =
        2 * ENGINE_NODES * api.tensor_overhead() + api.graph_overhead_custom(ENGINE_NODES, false) + 4096;
    mine.process = getpid();
    mine.context = api.init((ggml_init_params){.mem_size = bytes, .no_alloc = true});
    return mine.context ? 0 : -ENOMEM;
}

int engine_begin(const kvb_team *team, ggml_context **context, ggml_handle *backend)
{
    uint32_t at = 0;
    int error = team->n > GGML_CPUS ? -EINVAL : 0;
    if (mine.process != getpid())
        memset(&mine, 0, sizeof mine); /* what a parent had stays its own */
    if (!mine.context && !error)
        error = context_start();
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
