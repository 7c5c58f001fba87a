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
    size_t n_taken, n_declined;
    char taken[4096], declined[4096]; /* names, separated by spaces */
    char why[256];                    /* the reason for the first declined one */
} axis;

enum { FORMATS, FORMATS_HAD = FORMATS + 2, DIMS = FORMATS_HAD + 2, MASKS, OUTS, EXTRAS, AXES };

/* The answers for all axes; FORMATS are those of K and, next to them, of V. */
typedef struct answers {
    const kvb_kernel *kernel;
    kvb_problem plain;
    kvb_accepts_line *line;
    void *ctx;
    axis axes[AXES];
} answers;

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

static void problem_ask(answers *x, int at, const char *name, const kvb_problem *problem)
{
    char why[256];
    bool taken = is_taken(x->kernel, problem, why, sizeof why);
    verdict_add(&x->axes[at], name, taken, why);
}

/* Prints "what: names after". Lines break between names and before `after`; continued lines are indented. */
static int names_print(const answers *x, bool taken, const char *what, const char *names, const char *after)
{
    char text[2 * WIDTH + 400];
    int error = 0;
    size_t used = (size_t)snprintf(text, sizeof text, "%s:", what);
    for (const char *at = names; *at && !error;) {
        size_t n = strcspn(at, " ");
        n = n < KVB_NAME ? n : KVB_NAME;
        if (used + n + 1 > WIDTH) {
            error = x->line(x->ctx, taken, text);
            used = (size_t)snprintf(text, sizeof text, "   ");
        }
        used += (size_t)snprintf(text + used, sizeof text - used, " %.*s", (int)n, at);
        at += n + (at[n] == ' ');
    }
    if (*after && used + strlen(after) + 1 > WIDTH && !error) {
        error = x->line(x->ctx, taken, text);
        used = (size_t)snprintf(text, sizeof text, "   ");
    }
    snprintf(text + used, sizeof text - used, "%s%s", *after ? " " : "", after);
    return error ? error : x->line(x->ctx, taken, text);
}

/* Prints the lines of an axis: accepted values (`every` if all are) and declined ones, with one reason. For a long axis
 * only the shorter list is printed. */
static int axis_print(const answers *x, int at, const char *what, const char *every)
{
    const axis *a = &x->axes[at];
    bool is_long = a->n_taken + a->n_declined > MANY;
    bool few_declined = is_long && a->n_declined < a->n_taken, few_taken = is_long && !few_declined && a->n_taken;
    char why[sizeof a->why + 4];
    int error = 0;
    snprintf(why, sizeof why, "(%s)", *a->why ? a->why : "no reason given");
    if (a->n_taken)
        error = names_print(x, true, what, !a->n_declined ? every : few_declined ? "all but these:" : a->taken, "");
    if (a->n_declined && !error)
        error = names_print(x, false, what,
                            few_taken                ? "the others"
                            : is_long && !a->n_taken ? "all"
                                                     : a->declined,
                            why);
    return error;
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

/* Makes the plain problem from the first pool that the kernel takes for both K and V. False: there is none; why has the
 * kernel's reason against the first pool. */
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
static void format_ask(answers *x, int at, const char *name, const kvb_format *format, bool v)
{
    kvb_problem p = x->plain, both = x->plain;
    char why[256], other[256];
    *(v ? &p.v_format : &p.k_format) = format;
    both.k_format = both.v_format = format;
    bool taken = is_taken(x->kernel, &p, why, sizeof why) || is_taken(x->kernel, &both, other, sizeof other);
    verdict_add(&x->axes[at + v], name, taken, why);
}

static void extras_ask(answers *x)
{
    kvb_problem latent = x->plain, softcap = x->plain, sinks = x->plain, same = x->plain;
    latent.v_in_k = true; /* DeepSeek's: 512 latent channels and 64 with positions, one KV head */
    latent.n_kv_heads = 1;
    latent.k_dim = 576;
    latent.v_dim = 512;
    latent.v_format = latent.k_format;
    softcap.softcap = 30;
    sinks.has_sinks = true;
    same.deterministic = true;
    problem_ask(x, EXTRAS, "MLA", &latent);
    problem_ask(x, EXTRAS, "softcap", &softcap);
    problem_ask(x, EXTRAS, "sinks", &sinks);
    problem_ask(x, EXTRAS, "deterministic", &same);
}

/* Asks about all axes. Formats: the pools' own, and their transformed forms. False: the kernel takes no plain problem;
 * why may have its reason. */
static bool all_ask(answers *x, const kvb_registry *registry, char *why, size_t why_bytes)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 192, 256};
    static const char *const masks[KVB_MASK_KINDS] = {"none", "causal", "explicit", "runs", "pages"};
    if (!problem_find(x->kernel, registry, &x->plain, why, why_bytes))
        return false;
    for (size_t i = 0; i < 2 * registry->n[KVB_POOLS]; i++) {
        const kvb_pool_type *pool = registry->at[KVB_POOLS][i / 2].definition;
        format_ask(x, FORMATS, pool->name, pool->format, i % 2);
        if (pool->rotated)
            format_ask(x, FORMATS_HAD, pool->name, pool->rotated->format, i % 2);
    }
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        char name[16];
        kvb_problem p = x->plain;
        p.k_dim = p.v_dim = dims[i];
        snprintf(name, sizeof name, "%u", dims[i]);
        problem_ask(x, DIMS, name, &p);
    }
    /* Kernels declare their masks, so supports() is not asked. Other masks are not declined: the caller expands them. */
    for (unsigned m = 0; m < KVB_MASK_KINDS; m++)
        verdict_add(&x->axes[MASKS], masks[m], x->kernel->masks & KVB_MASK_BIT(m), "");
    for (kvb_elem elem = KVB_F32; elem <= KVB_BF16; elem++) {
        kvb_problem p = x->plain;
        p.out_elem = elem;
        problem_ask(x, OUTS, kvb_out_name(elem), &p);
    }
    extras_ask(x);
    return true;
}

static int formats_print(const answers *x, int at, bool had)
{
    if (!strcmp(x->axes[at].taken, x->axes[at + 1].taken))
        return axis_print(x, at, had ? "formats +had" : "formats", "every");
    int error = axis_print(x, at, had ? "K +had" : "K formats", "every");
    return error ? error : axis_print(x, at + 1, had ? "V +had" : "V formats", "every");
}

int kvb_accepts_describe(const kvb_kernel *kernel, const kvb_registry *registry, kvb_accepts_line *line, void *ctx)
{
    answers x = {.kernel = kernel, .line = line, .ctx = ctx};
    const axis *masks = &x.axes[MASKS];
    char why[256] = "";
    if (!all_ask(&x, registry, why, sizeof why)) {
        char text[400];
        snprintf(text, sizeof text, "rows of 128 channels in any format: %s", *why ? why : "without a reason");
        return line(ctx, false, text);
    }
    int error = formats_print(&x, FORMATS, false);
    error = error ? error : formats_print(&x, FORMATS_HAD, true);
    error = error ? error : axis_print(&x, DIMS, "channels", "any");
    if (!error)
        error = names_print(&x, true, "masks", masks->taken, masks->n_declined ? "(others come as explicit)" : "");
    error = error ? error : axis_print(&x, OUTS, "output", x.axes[OUTS].taken);
    return error ? error : axis_print(&x, EXTRAS, "also", x.axes[EXTRAS].taken);
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
    answers x = {.kernel = kernel};
    const axis *k = &x.axes[FORMATS], *v = k + 1, *dims = &x.axes[DIMS], *masks = &x.axes[MASKS], *outs = &x.axes[OUTS];
    char why[256] = "";
    text[0] = '\0';
    if (!all_ask(&x, registry, why, sizeof why)) {
        snprintf(text, bytes, "reads no rows of 128 channels: %s", *why ? why : "without a reason");
        return;
    }
    const bool same = !strcmp(k->taken, v->taken);
    for (int side = 0; side < (same ? 1 : 2); side++) {
        const axis *a = side ? v : k;
        const bool many = a->n_taken > MANY;
        names_append(text, bytes, same ? "reads " : side ? "reads V of " : "reads K of ", a->taken, many ? 3 : MANY);
        if (many)
            snprintf(text + strlen(text), bytes - strlen(text), " and %zu formats more", a->n_taken - 3);
    }
    names_append(text, bytes, "masks ", masks->n_declined ? masks->taken : "", MANY);
    if (!masks->n_declined)
        snprintf(text + strlen(text), bytes - strlen(text), "; any mask");
    names_append(text, bytes, "channels ", dims->n_declined ? dims->taken : "", MANY);
    names_append(text, bytes, "out ", outs->n_declined ? outs->taken : "", MANY);
    names_append(text, bytes, "takes no ", x.axes[EXTRAS].declined, MANY);
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
