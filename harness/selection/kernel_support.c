/* SPDX-License-Identifier: Apache-2.0 */
/* Axes as tables of problems, and the answer of supports() to each. */
#include "harness/selection/kernel_support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu.h"
#include "results/result.h"
#include "workloads/files.h"

int kvb_best_prepare(kvb_best *best, const kvb_words *kernels, const char *path, const kvb_registry *registry,
                     char *why, size_t why_bytes)
{
    char said[512];
    const bool asked = kvb_is_named(kernels, kvb_kernel_best.name);
    *best = (kvb_best){.path = path, .registry = registry};
    if (asked == !path)
        snprintf(why, why_bytes, "%s",
                 asked ? "--kernel best needs --best-from F.jsonl: the records of an earlier run of several kernels"
                       : "--best-from is what --kernel best goes by; say --kernel best too");
    else if (asked && kvb_result_load(path, &best->file, said, sizeof said))
        snprintf(why, why_bytes, "--best-from: %s", said);
    else {
        const char *isa = kvb_cpu_level_names[kvb_cpu()];
        if (asked && strcmp(best->file->manifest.isa, isa))
            kvb_complain("run", 0, "note: %s was measured at level %s, this run is at %s", path,
                         best->file->manifest.isa, isa);
        return 0;
    }
    return -EINVAL;
}

void kvb_best_close(kvb_best *best)
{
    if (best->file)
        kvb_result_free(best->file);
    best->file = NULL;
}

const kvb_kernel *kvb_best_find(const kvb_best *best, const kvb_result *of, char *why, size_t why_bytes)
{
    const kvb_result *fastest = NULL;
    const kvb_kernel *found = NULL;
    for (size_t i = 0; i < best->file->n; i++) {
        const kvb_result *r = &best->file->results[i];
        bool timed = r->status == KVB_STATUS_PASS && r->rho >= 0 && r->time.all.median >= 0;  /* not NaN */
        const bool same = !(kvb_results_differ(r, of) & ~(UINT32_C(1) << KVB_RANKED_KERNEL)); /* but for the kernel */
        if (timed && same && (!fastest || r->time.all.median < fastest->time.all.median))
            fastest = r;
    }
    if (fastest)
        found = kvb_registry_find(best->registry, KVB_KERNELS, fastest->kernel);
    if (!fastest)
        snprintf(why, why_bytes, "no kernel passed here in %s", best->path);
    else if (!found)
        snprintf(why, why_bytes, "kernel %s, the fastest here in %s, is not loaded (--plugin)", fastest->kernel,
                 best->path);
    return found;
}

#define WIDTH 84u /* of a line, about */
#define MANY  8u  /* an axis of at most so many names is printed whole */

/* The answers for one axis. */
typedef struct axis {
    const kvb_kernel *kernel;
    kvb_accepts_line *line;
    void *ctx;
    size_t n_taken, n_declined;
    char taken[4096], declined[4096]; /* names, separated by spaces */
    char why[256];                    /* the reason for the first declined one */
} axis;

static bool is_taken(const kvb_kernel *kernel, const kvb_problem *problem, char *why, size_t why_bytes)
{
    why[0] = '\0';
    return kernel->supports(problem, why, why_bytes);
}

static void verdict_add(axis *a, const char *name, bool taken, const char *why)
{
    if (!taken && !a->n_declined)
        snprintf(a->why, sizeof a->why, "%s", why);
    a->n_taken += taken;
    a->n_declined += !taken;
    kvb_list_add(taken ? a->taken : a->declined, sizeof a->taken, " ", "%s", name);
}

static void problem_ask(axis *a, const char *name, const kvb_problem *problem)
{
    char why[256];
    bool taken = is_taken(a->kernel, problem, why, sizeof why);
    verdict_add(a, name, taken, why);
}

/* Prints "what: names after". Lines break between names and before `after`; continued lines are indented. */
static int names_print(const axis *a, bool taken, const char *what, const char *names, const char *after)
{
    char text[2 * WIDTH + 400];
    int error = 0;
    size_t used = (size_t)snprintf(text, sizeof text, "%s:", what);
    for (const char *at = names; *at && !error;) {
        size_t n = strcspn(at, " ");
        n = n < KVB_NAME ? n : KVB_NAME;
        if (used + n + 1 > WIDTH) {
            error = a->line(a->ctx, taken, text);
            used = (size_t)snprintf(text, sizeof text, "   ");
        }
        used += (size_t)snprintf(text + used, sizeof text - used, " %.*s", (int)n, at);
        at += n + (at[n] == ' ');
    }
    if (*after && used + strlen(after) + 1 > WIDTH && !error) {
        error = a->line(a->ctx, taken, text);
        used = (size_t)snprintf(text, sizeof text, "   ");
    }
    snprintf(text + used, sizeof text - used, "%s%s", *after ? " " : "", after);
    return error ? error : a->line(a->ctx, taken, text);
}

/* Prints the lines of an axis: accepted values (`every` if all are) and declined ones, with one reason. For a long axis
 * only the shorter list is printed. */
static int axis_print(const axis *a, const char *what, const char *every)
{
    bool is_long = a->n_taken + a->n_declined > MANY;
    bool few_declined = is_long && a->n_declined < a->n_taken, few_taken = is_long && !few_declined && a->n_taken;
    char why[sizeof a->why + 4];
    int error = 0;
    snprintf(why, sizeof why, "(%s)", *a->why ? a->why : "no reason given");
    if (a->n_taken)
        error = names_print(a, true, what, !a->n_declined ? every : few_declined ? "all but these:" : a->taken, "");
    if (a->n_declined && !error)
        error = names_print(a, false, what,
                            few_taken                ? "the others"
                            : is_long && !a->n_taken ? "all"
                                                     : a->declined,
                            why);
    return error;
}

static axis axis_of(const kvb_kernel *kernel, kvb_accepts_line *line, void *ctx)
{
    return (axis){.kernel = kernel, .line = line, .ctx = ctx};
}

/* ---- axes ---------------------------------------------------------------------------------------------------- */

static kvb_problem problem_plain(const kvb_kernel *kernel, const kvb_format *k, const kvb_format *v)
{
    kvb_mask_kind mask = 0;
    while (mask + 1 < KVB_MASK_KINDS && !(kernel->masks & KVB_MASK_BIT(mask)))
        mask++;
    return (kvb_problem){
        .n_tok = 1,
        .n_heads = 8,
        .n_kv_heads = 2,
        .k_dim = 128,
        .v_dim = 128,
        .n_cells = 256,
        .scale = 0.0884f,
        .out_elem = KVB_F32,
        .mask = mask,
        .k_format = k,
        .v_format = v,
    };
}

/* Makes the plain problem from the first pool whose rows the kernel takes on both sides. False: there is none; why has
 * the kernel's reason against the first pool. */
static bool problem_find(const kvb_kernel *kernel, const kvb_registry *registry, kvb_problem *problem, char *why,
                         size_t why_bytes)
{
    char other[256];
    for (size_t i = 0; i < registry->n[KVB_POOLS]; i++) {
        const kvb_pool_type *pool = registry->at[KVB_POOLS][i].definition;
        *problem = problem_plain(kernel, pool->format, pool->format);
        if (is_taken(kernel, problem, i ? other : why, i ? sizeof other : why_bytes))
            return true;
    }
    return false;
}

/* Asks whether the kernel takes a format on one side, with the plain format or the same one on the other. */
static void format_ask(axis *a, const char *name, const kvb_problem *plain, const kvb_format *format, bool v)
{
    kvb_problem p = *plain, both = *plain;
    char why[256], other[256];
    *(v ? &p.v_format : &p.k_format) = format;
    both.k_format = both.v_format = format;
    bool taken = is_taken(a->kernel, &p, why, sizeof why) || is_taken(a->kernel, &both, other, sizeof other);
    verdict_add(a, name, taken, why);
}

/* Asks about the formats of one side: the pools' own, or with `had` their transformed forms. */
static axis formats_ask(const axis *empty, const kvb_problem *plain, const kvb_registry *registry, bool v, bool had)
{
    axis a = *empty;
    for (size_t i = 0; i < registry->n[KVB_POOLS]; i++) {
        const kvb_pool_type *plain_pool = registry->at[KVB_POOLS][i].definition;
        const kvb_pool_type *pool = had ? plain_pool->rotated : plain_pool;
        if (pool)
            format_ask(&a, plain_pool->name, plain, pool->format, v);
    }
    return a;
}

static int formats_print(const axis *empty, const kvb_problem *plain, const kvb_registry *registry, bool had)
{
    axis k = formats_ask(empty, plain, registry, false, had), v = formats_ask(empty, plain, registry, true, had);
    if (!strcmp(k.taken, v.taken))
        return axis_print(&k, had ? "formats +had" : "formats", "every");
    int error = axis_print(&k, had ? "K +had" : "K formats", "every");
    return error ? error : axis_print(&v, had ? "V +had" : "V formats", "every");
}

static axis dims_ask(const axis *empty, const kvb_problem *plain)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 192, 256};
    axis a = *empty;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        char name[16];
        kvb_problem p = *plain;
        p.k_dim = p.v_dim = dims[i];
        snprintf(name, sizeof name, "%u", dims[i]);
        problem_ask(&a, name, &p);
    }
    return a;
}

/* Kernels declare their masks, so supports() is not asked. Other masks are not declined: the caller expands them. */
static axis masks_ask(const axis *empty)
{
    static const char *const names[KVB_MASK_KINDS] = {"none", "causal", "explicit", "runs", "pages"};
    axis a = *empty;
    for (unsigned m = 0; m < KVB_MASK_KINDS; m++)
        verdict_add(&a, names[m], a.kernel->masks & KVB_MASK_BIT(m), "");
    return a;
}

static axis outputs_ask(const axis *empty, const kvb_problem *plain)
{
    axis a = *empty;
    for (kvb_elem elem = KVB_F32; elem <= KVB_BF16; elem++) {
        kvb_problem p = *plain;
        p.out_elem = elem;
        problem_ask(&a, kvb_out_name(elem), &p);
    }
    return a;
}

static axis extras_ask(const axis *empty, const kvb_problem *plain)
{
    axis a = *empty;
    kvb_problem latent = *plain, softcap = *plain, sinks = *plain, same = *plain;
    latent.v_in_k = true; /* DeepSeek's: 512 latent channels and 64 with positions, one KV head */
    latent.n_kv_heads = 1;
    latent.k_dim = 576;
    latent.v_dim = 512;
    latent.v_format = latent.k_format;
    softcap.softcap = 30;
    sinks.has_sinks = true;
    same.deterministic = true;
    problem_ask(&a, "MLA", &latent);
    problem_ask(&a, "softcap", &softcap);
    problem_ask(&a, "sinks", &sinks);
    problem_ask(&a, "deterministic", &same);
    return a;
}

int kvb_accepts_describe(const kvb_kernel *kernel, const kvb_registry *registry, kvb_accepts_line *line, void *ctx)
{
    axis empty = axis_of(kernel, line, ctx);
    kvb_problem plain;
    char why[256] = "";
    if (!problem_find(kernel, registry, &plain, why, sizeof why)) {
        char text[400];
        snprintf(text, sizeof text, "rows of 128 channels in any format: %s", *why ? why : "without a reason");
        return line(ctx, false, text);
    }
    int error = formats_print(&empty, &plain, registry, false);
    if (!error)
        error = formats_print(&empty, &plain, registry, true);
    const axis dims = dims_ask(&empty, &plain), masks = masks_ask(&empty), outs = outputs_ask(&empty, &plain),
               extras = extras_ask(&empty, &plain);
    if (!error)
        error = axis_print(&dims, "channels", "any");
    if (!error)
        error = names_print(&masks, true, "masks", masks.taken, masks.n_declined ? "(others come as explicit)" : "");
    if (!error)
        error = axis_print(&outs, "output", outs.taken);
    return error ? error : axis_print(&extras, "also", extras.taken);
}

/* Appends "; what" and the names, at most so many, separated by commas. */
static void names_append(char *text, size_t bytes, const char *what, const char *names, size_t most)
{
    size_t n = 0;
    for (const char *at = names; *at && n < most; at += strcspn(at, " "), at += *at == ' ', n++) {
        const size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s%.*s",
                 n      ? ", "
                 : used ? "; "
                        : "",
                 n ? "" : what, (int)strcspn(at, " "), at);
    }
}

void kvb_accepts_summary(const kvb_kernel *kernel, const kvb_registry *registry, char *text, size_t bytes)
{
    const axis empty = axis_of(kernel, NULL, NULL);
    kvb_problem plain;
    char why[256] = "";
    text[0] = '\0';
    if (!problem_find(kernel, registry, &plain, why, sizeof why)) {
        snprintf(text, bytes, "reads no rows of 128 channels: %s", *why ? why : "without a reason");
        return;
    }
    const axis k = formats_ask(&empty, &plain, registry, false, false),
               v = formats_ask(&empty, &plain, registry, true, false), dims = dims_ask(&empty, &plain),
               masks = masks_ask(&empty), outs = outputs_ask(&empty, &plain), extras = extras_ask(&empty, &plain);
    const bool same = !strcmp(k.taken, v.taken);
    for (int side = 0; side < (same ? 1 : 2); side++) {
        const axis *a = side ? &v : &k;
        const bool many = a->n_taken > MANY;
        names_append(text, bytes, same ? "reads " : side ? "reads V of " : "reads K of ", a->taken, many ? 3 : MANY);
        if (many)
            snprintf(text + strlen(text), bytes - strlen(text), " and %zu formats more", a->n_taken - 3);
    }
    names_append(text, bytes, "masks ", masks.n_declined ? masks.taken : "", MANY);
    if (!masks.n_declined)
        snprintf(text + strlen(text), bytes - strlen(text), "; any mask");
    names_append(text, bytes, "channels ", dims.n_declined ? dims.taken : "", MANY);
    names_append(text, bytes, "out ", outs.n_declined ? outs.taken : "", MANY);
    names_append(text, bytes, "takes no ", extras.declined, MANY);
}

/* ---- formats read as they are stored ----------------------------------------------------------------------- */

bool kvb_kernel_reads(const kvb_kernel *kernel, const kvb_format *k, const kvb_format *v)
{
    char why[256];
    const kvb_kernel *attends = kvb_kernel_attending(kernel);
    kvb_problem problem = problem_plain(attends, k, v);
    return is_taken(attends, &problem, why, sizeof why);
}

/* Does a selected kernel read them? A witness counts where it is the only one. */
static bool is_read(const kvb_selection *s, const kvb_format *k, const kvb_format *v)
{
    bool read = false;
    for (size_t i = 0; i < s->n_kernels && !read; i++)
        read = (s->n_kernels == 1 || !kvb_is_witness(s->kernels[i])) && kvb_kernel_reads(s->kernels[i], k, v);
    return read;
}

int kvb_native_check(const kvb_selection *s, const kvb_registry *registry, char *why, size_t why_bytes)
{
    for (size_t p = 0; p < s->n_pools; p++) {
        const kvb_format *k = s->pools[p].k->format, *v = s->pools[p].v->format;
        char kernels[256] = "", pools[512] = "";
        if (is_read(s, k, v))
            continue;
        for (size_t i = 0; i < registry->n[KVB_KERNELS]; i++) {
            const kvb_kernel *kernel = registry->at[KVB_KERNELS][i].definition;
            if (kernel->attend && kvb_kernel_reads(kernel, k, v))
                kvb_list_add(kernels, sizeof kernels, ", ", "%s", kernel->name);
        }
        for (size_t i = 0; i < registry->n[KVB_POOLS]; i++) {
            const kvb_pool_type *pool = registry->at[KVB_POOLS][i].definition;
            if (is_read(s, pool->format, pool->format))
                kvb_list_add(pools, sizeof pools, ", ", "%s", pool->name);
        }
        snprintf(
            why, why_bytes,
            "--set no-staging: no selected kernel reads pool k=%s,v=%s; kernels that do: %s; pools that the selected "
            "kernels read: %s",
            s->pools[p].k->name, s->pools[p].v->name, *kernels ? kernels : "none", *pools ? pools : "none");
        return -EINVAL;
    }
    return 0;
}
