/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/selection/registry.h"

#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "caches/cache.h"
#include "caches/pools/pool.h"
#include "caches/call.h"
#include "kernels/kernels.h"
#include "harness/command_line.h"
#include "results/result.h"
#include "workloads/files.h"

uint8_t kvb_model_layers(const kvb_model *model)
{
    uint8_t layers = 0;
    for (uint32_t g = 0; g < model->n_groups; g++)
        layers |= kvb_group_scans(&model->groups[g]) ? KVB_LAYERS_SCAN : KVB_LAYERS_ATTEND;
    return layers;
}

uint8_t kvb_kernel_layers(const kvb_kernel *kernel)
{
    return (uint8_t)((kernel->attend ? KVB_LAYERS_ATTEND : 0) | (kernel->scan ? KVB_LAYERS_SCAN : 0));
}

const kvb_kernel *kvb_kernel_attending(const kvb_kernel *kernel)
{
    return kernel->attend ? kernel : &kvb_kernel_flash;
}

const kvb_kernel *kvb_kernel_scanning(const kvb_kernel *kernel)
{
    return kernel->scan ? kernel : &kvb_kernel_scan;
}

bool kvb_kernel_fits(const kvb_kernel *kernel, const kvb_model *model, kvb_elem out_elem, char *why, size_t why_bytes)
{
    const kvb_kernel *scans = kvb_kernel_scanning(kernel);
    if (!(kvb_kernel_layers(kernel) & kvb_model_layers(model)))
        return kvb_why_set(false, why, why_bytes,
                           kernel->scan ? "no layer scans: there is nothing for scan kernel %s to run"
                                        : "no layer attends, all scan: there is nothing for kernel %s to run",
                           kernel->name);
    if (kvb_model_scans(model) && scans->available && !scans->available(why, why_bytes))
        return false;
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (int conv = 0; kvb_group_scans(&model->groups[g]) && conv < 2; conv++) {
            const kvb_group_scan *s = &model->groups[g].scan;
            if (conv && !s->conv_width)
                continue;
            const kvb_scan_problem problem = kvb_scan_call_problem(s, conv, out_elem, 1, 1);
            if (!scans->scan->supports(&problem, why, why_bytes))
                return false;
        }
    return true;
}

const char *kvb_kernel_beside(const kvb_kernel *kernel, const kvb_model *model)
{
    const uint8_t others = kvb_model_layers(model) & (uint8_t)~kvb_kernel_layers(kernel);
    if (kernel->flags & KVB_KERNEL_WITNESS || others == kvb_model_layers(model))
        return "";
    return others & KVB_LAYERS_ATTEND ? kvb_kernel_flash.name : others ? kvb_kernel_scan.name : "";
}

/* ---- defaults ---------------------------------------------------------------------------------------------------- */

#define KVB_KERNELS_COMPLETED 256u

static bool supports_all(const kvb_problem *problem, char *why, size_t why_bytes)
{
    (void)problem, (void)why, (void)why_bytes;
    return true;
}

static int attend_never(const kvb_attend *args)
{
    (void)args;
    return -ENOSYS;
}

const kvb_kernel kvb_kernel_best = {
    .name = "best",
    .summary = "whichever kernel was the fastest in an earlier run",
    .attend = attend_never,
    .masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT),
    .supports = supports_all,
};

static bool supports_plain(const kvb_problem *p, char *why, size_t why_bytes)
{
    const char *lack = !kvb_format_is_f32(p->k_format) || !kvb_format_is_f32(p->v_format) ? "rows of f32 only"
                       : p->out_elem != KVB_F32                                           ? "out in f32 only"
                       : p->softcap != 0                                                  ? "no softcap"
                       : p->has_sinks                                                     ? "no sinks"
                                                                                          : NULL;
    if (lack)
        snprintf(why, why_bytes, "%s", lack);
    return !lack;
}

static bool scan_supports_all(const kvb_scan_problem *problem, char *why, size_t why_bytes)
{
    (void)problem, (void)why, (void)why_bytes;
    return true;
}

/* The kernel with defaults (attend.h, scan.h) for its missing functions: itself, or a static copy. NULL: too many. */
static const kvb_kernel *kernel_complete(const kvb_kernel *kernel)
{
    static struct whole {
        const kvb_kernel *of;
        kvb_kernel kernel;
        kvb_scan_face scan;
    } wholes[KVB_KERNELS_COMPLETED];
    struct whole *w = wholes;
    const bool lacks = (kernel->attend && (!kernel->masks || !kernel->supports || !kernel->arithmetic)) ||
                       (kernel->scan && (!kernel->scan->supports || !kernel->scan->arithmetic));
    while (lacks && w < wholes + KVB_KERNELS_COMPLETED && w->of && w->of != kernel)
        w++;
    if (!lacks || w == wholes + KVB_KERNELS_COMPLETED)
        return lacks ? NULL : kernel;
    *w = (struct whole){.of = kernel, .kernel = *kernel};
    if (kernel->attend) {
        const bool plain = kernel->flags & KVB_KERNEL_PLAIN;
        w->kernel.masks = kernel->masks ? kernel->masks : KVB_MASKS_ALL;
        w->kernel.supports = kernel->supports ? kernel->supports : plain ? supports_plain : supports_all;
        w->kernel.arithmetic = kernel->arithmetic ? kernel->arithmetic : kvb_arithmetic_plain;
    }
    if (kernel->scan) {
        w->scan = *kernel->scan;
        w->scan.supports = w->scan.supports ? w->scan.supports : scan_supports_all;
        w->scan.arithmetic = w->scan.arithmetic ? w->scan.arithmetic : kvb_kernel_scan_reference.scan->arithmetic;
        w->kernel.scan = &w->scan;
    }
    return &w->kernel;
}

const kvb_plugin_v1 kvb_builtin_plugin = {
    .abi_version = KVB_ABI_VERSION,
    .name = "built-in",
    .kernels = kvb_builtin_kernels,
    .caches = kvb_builtin_caches,
    .pools = kvb_builtin_pools,
};

const char *const kvb_registry_kind_names[KVB_REGISTRY_KINDS] = {"kernel", "cache", "pool"};

const void *kvb_registry_find(const kvb_registry *registry, kvb_registry_kind sort, const char *name)
{
    for (size_t i = 0; i < registry->n[sort]; i++)
        if (!strcmp(registry->at[sort][i].name, name))
            return registry->at[sort][i].definition;
    return NULL;
}

const kvb_kernel *kvb_registry_attending(const kvb_registry *registry, const char *name)
{
    const kvb_kernel *kernel = kvb_registry_find(registry, KVB_KERNELS, name);
    return kernel && kernel->attend ? kernel : NULL;
}

void kvb_registry_names(const kvb_registry *registry, kvb_registry_kind sort, bool attending, char *text, size_t bytes)
{
    text[0] = '\0';
    for (size_t i = 0; i < registry->n[sort]; i++)
        if (!attending || ((const kvb_kernel *)registry->at[sort][i].definition)->attend)
            kvb_list_add(text, bytes, ", ", "%s", registry->at[sort][i].name);
}

/* Names a missing member of a part, or NULL. */
static const char *kernel_lack(const kvb_kernel *k)
{
    if (k->scan ? !k->scan->scan : !k->attend)
        return "attend() or scan()";
    if (k->tolerance.kind && (!(k->flags & KVB_KERNEL_FOREIGN) || !k->tolerance.source || !(k->tolerance.limit > 0)))
        return "flag KVB_KERNEL_FOREIGN, or limit or source, that a tolerance needs";
    return NULL;
}

static const char *cache_lack(const kvb_cache_type *c)
{
    if (c->store_bytes < sizeof(kvb_store))
        return "store_bytes of at least a kvb_store";
    return c->occupied && c->prepare ? NULL : "occupied() or prepare()";
}

static const char *pool_lack(const kvb_pool_type *p)
{
    if (!p->format || !p->format->name)
        return "format";
    if (!p->open || !p->close || !p->ensure || !p->view || !p->bytes || !p->reserved)
        return "open(), close(), ensure(), view(), bytes() or reserved()";
    return p->write_run && p->scatter && p->gather_into ? NULL : "write_run(), scatter() or gather_into()";
}

/* Why a part's name breaks the rule of names (attend.h); NULL: it does not. The rule lets a name be a word of a command
 * line, a glob, a list and a file name. */
static const char *name_lack(kvb_registry_kind sort, const char *name, char *text, size_t bytes)
{
    const char *allowed =
        sort == KVB_POOLS ? "abcdefghijklmnopqrstuvwxyz0123456789-_" : "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t good = strspn(name, allowed);
    if (name[good])
        snprintf(text, bytes, "'%.*s' in it", (int)kvb_utf8_bytes(name + good), name + good);
    else if (*name == '-')
        snprintf(text, bytes, "a dash begins it");
    else if (good >= KVB_NAME)
        snprintf(text, bytes, "it is %zu bytes long", good);
    else
        return NULL;
    return text;
}

/* Adds one part, or refuses it. lack: a missing member, or NULL. */
static int part_add(kvb_registry *registry, kvb_registry_kind sort, const kvb_registered *part, const char *lack,
                    const char *path, char *why, size_t why_bytes)
{
    const char *name = part->name ? part->name : "";
    char breach[64];
    if (!*name || !part->summary)
        lack = "name or summary";
    if (lack)
        snprintf(why, why_bytes, "%s: %s '%s' has no %s", path, kvb_registry_kind_names[sort], name, lack);
    else if (name_lack(sort, name, breach, sizeof breach))
        snprintf(why, why_bytes, "%s: %s '%.100s': %s; a name has lower case letters, digits and dashes%s, at most %u",
                 path, kvb_registry_kind_names[sort], name, breach,
                 sort == KVB_POOLS ? " (of a pool, underscores too)" : "", KVB_NAME - 1);
    else if (kvb_registry_find(registry, sort, name) || (sort == KVB_KERNELS && !strcmp(name, kvb_kernel_best.name)))
        snprintf(why, why_bytes, "%s: there is a %s '%s' already", path, kvb_registry_kind_names[sort], name);
    else if (registry->n[sort] == KVB_REGISTRY_MAX)
        snprintf(why, why_bytes, "%s: more than %u parts of sort %s", path, KVB_REGISTRY_MAX,
                 kvb_registry_kind_names[sort]);
    else {
        registry->at[sort][registry->n[sort]++] = *part;
        return 0;
    }
    return -EINVAL;
}

static int plugin_add(kvb_registry *registry, const kvb_plugin_v1 *plugin, const char *path, char *why,
                      size_t why_bytes)
{
    const char *from = plugin->name;
    int result = 0;
    for (const kvb_kernel *const *k = plugin->kernels; k && *k && !result; k++) {
        const kvb_kernel *whole = kernel_complete(*k);
        result = part_add(registry, KVB_KERNELS, &(kvb_registered){(*k)->name, (*k)->summary, from, whole},
                          whole ? kernel_lack(whole) : "place left", path, why, why_bytes);
    }
    for (const kvb_cache_type *const *c = plugin->caches; c && *c && !result; c++)
        result = part_add(registry, KVB_CACHES, &(kvb_registered){(*c)->name, (*c)->summary, from, *c}, cache_lack(*c),
                          path, why, why_bytes);
    for (const kvb_pool_type *const *p = plugin->pools; p && *p && !result; p++)
        result = part_add(registry, KVB_POOLS, &(kvb_registered){(*p)->name, (*p)->summary, from, *p}, pool_lack(*p),
                          path, why, why_bytes);
    return result;
}

void kvb_registry_init(kvb_registry *registry)
{
    char why[256];
    memset(registry, 0, sizeof *registry);
    plugin_add(registry, &kvb_builtin_plugin, "built-in", why, sizeof why);
}

int kvb_registry_load(kvb_registry *registry, const char *path, char *why, size_t why_bytes)
{
    char local[4096]; /* dlopen looks for a name without a slash in the library path */
    snprintf(local, sizeof local, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *object = dlopen(local, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *said = dlerror();
        return kvb_why_set(
            -EINVAL, why, why_bytes, "%s%s", said,
            strstr(said, "undefined symbol") ? "; caches/plugin.h lists the functions that a plug-in may call" : "");
    }
    int result = -EINVAL;
    kvb_registry more = *registry;
    const kvb_plugin_v1 *plugin = dlsym(object, KVB_PLUGIN_SYMBOL);
    if (!plugin)
        snprintf(why, why_bytes, "%s: exports no symbol '%s'", path, KVB_PLUGIN_SYMBOL);
    else if (plugin->abi_version != KVB_ABI_VERSION)
        snprintf(why, why_bytes, "%s: built for attend.h version %u, this kvbench speaks version %u; rebuild it", path,
                 plugin->abi_version, KVB_ABI_VERSION);
    else if (!plugin->name || !*plugin->name)
        snprintf(why, why_bytes, "%s: its kvb_plugin has no name", path);
    else
        result = plugin_add(&more, plugin, path, why, why_bytes);
    if (result < 0)
        dlclose(object);
    else
        *registry = more;
    return result;
}

int kvb_registry_load_all(kvb_registry *registry, const kvb_words *paths, char *why, size_t why_bytes)
{
    int error = 0;
    for (size_t i = 0; !error && i < paths->n; i++)
        error = kvb_registry_load(registry, paths->at[i], why, why_bytes);
    return error;
}

/* ---- words of --pool --------------------------------------------------------------------------------------------- */

#define HADAMARD "+had"

const kvb_pool_alias kvb_pool_aliases[] = {
    {"kivi4", "kivi4-k", "kivi4-v", "KIVI with 4 bits: k=kivi4-k,v=kivi4-v"},
    {"kivi2", "kivi2-k", "kivi2-v", "KIVI with 2 bits: k=kivi2-k,v=kivi2-v"},
    {NULL, NULL, NULL, NULL},
};

/* Cuts "+had" off the end of name, if it is there. */
static bool hadamard_cut(char *name)
{
    size_t n = strlen(name), had = sizeof HADAMARD - 1;
    if (n <= had || strcmp(name + n - had, HADAMARD))
        return false;
    name[n - had] = '\0';
    return true;
}

static const kvb_pool_alias *alias_of(const char *name)
{
    const kvb_pool_alias *a = kvb_pool_aliases;
    while (a->name && strcmp(a->name, name))
        a++;
    return a->name ? a : NULL;
}

static int unknown(const char *word, const kvb_registry *registry, char *why, size_t why_bytes)
{
    char known[1024];
    kvb_registry_names(registry, KVB_POOLS, false, known, sizeof known);
    for (const kvb_pool_alias *a = kvb_pool_aliases; a->name; a++)
        kvb_list_add(known, sizeof known, ", ", "%s", a->name);
    kvb_list_add(known, sizeof known, "; ", "each also with +had");
    return kvb_name_unknown("unknown pool", word, known, why, why_bytes);
}

/* The pool, or its transformed form; NULL with why. */
static const kvb_pool_type *form_of(const kvb_pool_type *pool, bool had, char *why, size_t why_bytes)
{
    if (!had)
        return pool;
    if (!pool->rotated)
        snprintf(why, why_bytes, "pool '%s' has no form with +had%s; without it it works", pool->name,
                 pool->format->transform ? ": it transforms rows already" : "");
    return pool->rotated;
}

/* Finds the pool of one side by its exact name. */
static int side_take(const char *name, bool is_v, const kvb_registry *registry, const kvb_pool_type **pool, char *why,
                     size_t why_bytes)
{
    char plain[KVB_NAME];
    snprintf(plain, sizeof plain, "%s", name);
    *pool = kvb_registry_find(registry, KVB_POOLS, plain); /* a plug-in's pool can have any name, also an alias */
    if (*pool)
        return 0;
    const bool had = hadamard_cut(plain);
    const kvb_pool_alias *alias = alias_of(plain);
    *pool = kvb_registry_find(registry, KVB_POOLS, !alias ? plain : is_v ? alias->v : alias->k);
    if (!*pool)
        return unknown(name, registry, why, why_bytes);
    *pool = form_of(*pool, had, why, why_bytes);
    return *pool ? 0 : -EINVAL;
}

static int pair_add(const kvb_pool_type *k, const kvb_pool_type *v, kvb_pool_pair *pairs, size_t max, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if (pairs[i].k == k && pairs[i].v == v)
            return 0;
    if (*n == max)
        return -E2BIG;
    pairs[(*n)++] = (kvb_pool_pair){k, v};
    return 0;
}

int kvb_pool_word_take(const char *word, const kvb_registry *registry, kvb_pool_pair *pairs, size_t max, size_t *n,
                       char *why, size_t why_bytes)
{
    char k[KVB_NAME], v[KVB_NAME], glob[KVB_NAME];
    const kvb_pool_type *kp, *vp;
    char rest;
    int fields = sscanf(word, "k=%63[^,],v=%63[^,]%c", k, v, &rest);
    snprintf(glob, sizeof glob, "%s", word);
    const bool had = hadamard_cut(glob);
    if (fields == 2 || alias_of(glob)) {
        const char *both = fields == 2 ? NULL : word;
        int error = side_take(both ? both : k, false, registry, &kp, why, why_bytes);
        if (!error)
            error = side_take(both ? both : v, true, registry, &vp, why, why_bytes);
        return error ? error : pair_add(kp, vp, pairs, max, n);
    }
    if (strchr(word, '='))
        return kvb_why_set(-EINVAL, why, why_bytes, "pool '%s': the sides apart are written k=NAME,v=NAME", word);
    bool any = false;
    int error = 0;
    for (size_t i = 0; i < registry->n[KVB_POOLS] && !error; i++) {
        const kvb_pool_type *pool = registry->at[KVB_POOLS][i].definition;
        if (fnmatch(glob, pool->name, 0))
            continue;
        const kvb_pool_type *form = form_of(pool, had, why, why_bytes);
        if (!form && strcmp(glob, pool->name))
            continue; /* a glob skips what is missing */
        any = true;
        error = form ? pair_add(form, form, pairs, max, n) : -EINVAL;
    }
    return any || error ? error : unknown(word, registry, why, why_bytes);
}
