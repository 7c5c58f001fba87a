/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by globs, with errors that list the known names. */
#include "harness/selection/selection.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/machine/team.h"
#include "kernels/kernels.h"
#include "workloads/values.h"
#include "workloads/files.h"

bool kvb_is_named(const kvb_words *words, const char *name)
{
    for (size_t i = 0; i < words->n; i++)
        if (!strcmp(words->at[i], name))
            return true;
    return false;
}

/* The typed words; without any, the listed ones, which end with NULL. listed NULL: none. */
static kvb_words words_or(const kvb_words *typed, const char *const *listed)
{
    kvb_words words = *typed;
    if (!typed->n)
        words.at = (const char **)(uintptr_t)listed;
    while (!typed->n && listed && listed[words.n])
        words.n++;
    return words;
}

/* Marks the names that match any of the words in chosen[]. No words: all. */
static int names_match(const char *what, kvb_words words, const char *const *names, size_t n_names, bool *chosen,
                       char *why, size_t why_bytes)
{
    char known[1024] = "";
    for (size_t i = 0; i < n_names; i++) {
        chosen[i] = words.n == 0;
        kvb_list_add(known, sizeof known, ", ", "%s", names[i]);
    }
    for (size_t w = 0; w < words.n; w++) {
        bool any = false;
        for (size_t i = 0; i < n_names; i++)
            if (!fnmatch(words.at[w], names[i], 0))
                chosen[i] = any = true;
        if (!any) {
            char unknown[64];
            snprintf(unknown, sizeof unknown, "unknown %s", what);
            return kvb_name_unknown(unknown, words.at[w], known, why, why_bytes);
        }
    }
    return 0;
}

static int parts_choose(const kvb_registry *registry, kvb_registry_kind sort, kvb_words words, const void **chosen,
                        size_t *n, char *why, size_t why_bytes)
{
    const char *names[KVB_REGISTRY_MAX] = {NULL};
    bool marked[KVB_REGISTRY_MAX];
    const size_t all = registry->n[sort];
    for (size_t i = 0; i < all; i++)
        names[i] = registry->at[sort][i].name;
    int error = names_match(kvb_registry_kind_names[sort], words, names, all, marked, why, why_bytes);
    for (size_t i = 0; i < all && !error; i++)
        if (marked[i])
            chosen[(*n)++] = registry->at[sort][i].definition;
    return error;
}

/*
 * Chooses kernels by their names. The word "best" stands for kvb_kernel_best; only witnesses may be named beside it, as
 * it chooses among the others itself.
 */
static int kernels_choose(const kvb_selection_words *words, const kvb_registry *registry, kvb_selection *s, char *why,
                          size_t why_bytes)
{
    const void *chosen[KVB_REGISTRY_MAX];
    const bool best = kvb_is_named(&words->kernels, kvb_kernel_best.name);
    kvb_words others = {0};
    int error = 0;
    for (size_t i = 0; i < words->kernels.n && !error; i++)
        if (strcmp(words->kernels.at[i], kvb_kernel_best.name))
            error = kvb_words_add(&others, words->kernels.at[i]);
    if (!error && (!best || others.n))
        error = parts_choose(registry, KVB_KERNELS, others, chosen, &s->n_kernels, why, why_bytes);
    kvb_words_free(&others);
    for (size_t i = 0; i < s->n_kernels && !error; i++) {
        s->kernels[i] = chosen[i];
        if (best && !(s->kernels[i]->flags & KVB_KERNEL_WITNESS)) {
            snprintf(why, why_bytes, "--kernel best chooses among all kernels; kernel %s cannot be named beside it",
                     s->kernels[i]->name);
            error = -EINVAL;
        }
    }
    if (best && !error)
        s->kernels[s->n_kernels++] = &kvb_kernel_best;
    return error;
}

/* Applies the rule of witnesses, unless one is named. */
static void witness_choose(const kvb_selection_words *words, kvb_selection *s)
{
    size_t others = 0;
    for (size_t i = 0; i < s->n_kernels; i++)
        if (!kvb_is_witness(s->kernels[i]))
            s->kernels[others++] = s->kernels[i];
        else if (words->kernels.n || words->witness != KVB_WITNESS_NONE)
            return; /* a witness is selected and stays */
    s->n_kernels = others;
    if (words->witness == KVB_WITNESS_BESIDE)
        s->kernels[s->n_kernels++] = &kvb_kernel_witness;
}

static int pools_choose(const kvb_selection_words *words, const kvb_suite_part *part, const kvb_registry *registry,
                        kvb_selection *s, char *why, size_t why_bytes)
{
    static const char *const every[] = {"*", NULL};
    const kvb_words pools = words_or(&words->pools, part->pools ? part->pools : every);
    int error = 0;
    for (size_t i = 0; i < pools.n && !error; i++)
        error = kvb_pool_word_take(pools.at[i], registry, s->pools, KVB_MAX_POOL_PAIRS, &s->n_pools, why, why_bytes);
    return error;
}

static bool is_file(const char *word)
{
    return strchr(word, '/') || word[kvb_workload_name_bytes(word)];
}

bool kvb_select_only_files(const kvb_words *workloads)
{
    size_t files = 0;
    for (size_t i = 0; i < workloads->n; i++)
        files += is_file(workloads->at[i]);
    return files > 0 && files == workloads->n;
}

static int workloads_choose(const kvb_selection_words *words, const kvb_suite_part *part, const kvb_workloads *known,
                            kvb_selection *s, char *why, size_t why_bytes)
{
    const char **names = calloc(known->n + 1, sizeof *names);
    bool *chosen = calloc(known->n + 1, sizeof *chosen);
    kvb_words globs = {0};
    int error = names && chosen ? 0 : -ENOMEM;
    for (size_t i = 0; i < words->workloads.n && !error; i++) {
        const char *word = words->workloads.at[i], *base = strrchr(word, '/');
        base = base ? base + 1 : word;
        error = is_file(word) ? kvb_workload_add(&s->workloads, &s->n_workloads, base, word, true)
                              : kvb_words_add(&globs, word);
    }
    for (size_t i = 0; i < known->n && !error; i++)
        names[i] = known->at[i].name;
    if (!error && (globs.n || !words->workloads.n))
        error = names_match("workload", words_or(&globs, part->workloads), names, known->n, chosen, why, why_bytes);
    for (size_t i = 0; i < known->n && !error; i++)
        if (chosen[i])
            error = kvb_workload_add(&s->workloads, &s->n_workloads, known->at[i].name, known->at[i].path, false);
    for (size_t i = 0; i < s->n_workloads && !error; i++)
        for (size_t other = 0; other < i && !error; other++)
            if (!strcmp(s->workloads[i].name, s->workloads[other].name)) {
                snprintf(why, why_bytes, "two workloads are called '%s': %s, %s", s->workloads[i].name,
                         s->workloads[other].path, s->workloads[i].path);
                error = -EINVAL;
            }
    kvb_words_free(&globs);
    free(names);
    free(chosen);
    return error;
}

/* Takes the profiles that are named, or the suite's. */
static int values_choose(const kvb_selection_words *words, const kvb_suite_part *part, kvb_selection *s, char *why,
                         size_t why_bytes)
{
    static const char *const trace[] = {"own", NULL};
    const char *const *listed = part->values ? part->values : trace;
    bool owns = false;
    for (size_t i = 0; listed[i]; i++)
        owns |= !strcmp(listed[i], "own");
    if (words->workloads.n && !owns) /* the part's values are for its own workloads, and others are named */
        listed = trace;
    const kvb_words values = words_or(&words->values, listed);
    for (size_t i = 0; i < values.n; i++) {
        const char *word = values.at[i];
        bool own = !strcmp(word, "own");
        if (!own && !kvb_profile_find(word)) {
            char known[512] = "own";
            for (size_t p = 0; kvb_profiles[p].name; p++)
                kvb_list_add(known, sizeof known, ", ", "%s", kvb_profiles[p].name);
            return kvb_name_unknown("unknown values", word, known, why, why_bytes);
        }
        if (s->n_values == KVB_MAX_PROFILES)
            return -E2BIG;
        s->values[s->n_values++] = own ? NULL : word;
    }
    return 0;
}

static int threads_choose(const kvb_selection_words *words, bool oversubscribe, kvb_selection *s, char *why,
                          size_t why_bytes)
{
    uint32_t cores = kvb_cores();
    if (!words->threads.n)
        s->threads[s->n_threads++] = 1;
    for (size_t i = 0; i < words->threads.n; i++) {
        int error = kvb_thread_counts_parse(words->threads.at[i], 4096, s->threads, KVB_MAX_THREAD_COUNTS,
                                            &s->n_threads, why, why_bytes);
        if (error)
            return error;
    }
    for (size_t i = 0; i < s->n_threads; i++)
        if (s->threads[i] > cores && !oversubscribe) {
            snprintf(
                why, why_bytes,
                "%u threads on a machine of %u cores: one thread is bound to each core (--set oversubscribe: unbound)",
                s->threads[i], cores);
            return -EINVAL;
        }
    return 0;
}

static int growths_choose(const kvb_selection_words *words, kvb_selection *s, char *why, size_t why_bytes)
{
    static const char *const usual[] = {"double", NULL};
    bool marked[KVB_GROWTHS];
    int error =
        names_match("growth", words_or(&words->growths, usual), kvb_growth_names, KVB_GROWTHS, marked, why, why_bytes);
    for (int g = 0; g < KVB_GROWTHS && !error; g++)
        if (marked[g])
            s->growths[s->n_growths++] = (kvb_growth)g;
    return error;
}

/* Kinds of layers of a workload. A file that is no trace is reported later. */
static uint8_t layers_of(const kvb_workload *workload)
{
    kvb_trace *trace;
    char why[256];
    if (kvb_trace_load_header(workload->path, &trace, why, sizeof why))
        return KVB_LAYERS_ATTEND;
    const uint8_t layers = kvb_model_layers(&trace->header.model);
    kvb_trace_free(trace);
    return layers;
}

/* Drops kernels that only scan if no workload has layers for them, unless they are named in full. 0 or -ENOMEM. */
static int scans_choose(const kvb_selection_words *words, kvb_selection *s)
{
    uint8_t all = 0;
    size_t kept = 0;
    s->layers = calloc(s->n_workloads + 1, sizeof *s->layers);
    if (!s->layers)
        return -ENOMEM;
    for (size_t i = 0; i < s->n_workloads; i++)
        all |= s->layers[i] = layers_of(&s->workloads[i]);
    for (size_t i = 0; i < s->n_kernels; i++)
        if (all & KVB_LAYERS_SCAN || s->kernels[i]->attend || kvb_is_named(&words->kernels, s->kernels[i]->name))
            s->kernels[kept++] = s->kernels[i];
    s->n_kernels = kept;
    if (words->kernels.n) {
        free(s->layers);
        s->layers = NULL;
    }
    return 0;
}

int kvb_select(const kvb_selection_words *words, const kvb_suite_part *part, const kvb_registry *registry,
               const kvb_workloads *workloads, bool oversubscribe, kvb_selection *s, char *why, size_t why_bytes)
{
    *s = (kvb_selection){0};
    why[0] = '\0';
    const void *caches[KVB_REGISTRY_MAX];
    int error = parts_choose(registry, KVB_CACHES, words_or(&words->caches, part->caches), caches, &s->n_caches, why,
                             why_bytes);
    for (size_t i = 0; i < s->n_caches; i++)
        s->caches[i] = caches[i];
    error = error ? error : kernels_choose(words, registry, s, why, why_bytes);
    if (!error)
        witness_choose(words, s);
    error = error ? error : pools_choose(words, part, registry, s, why, why_bytes);
    error = error ? error : values_choose(words, part, s, why, why_bytes);
    error = error ? error : threads_choose(words, oversubscribe, s, why, why_bytes);
    error = error ? error : growths_choose(words, s, why, why_bytes);
    error = error ? error : workloads_choose(words, part, workloads, s, why, why_bytes);
    error = error ? error : scans_choose(words, s);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}

static bool holds(const void *const *list, size_t n, const void *what)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == what)
            return true;
    return false;
}

/* Has an earlier selection this combination? */
static bool selection_covers(const kvb_selection *earlier, const kvb_selection *s, kvb_spot at)
{
    bool found = false, valued = false, paired = false;
    for (size_t i = 0; i < earlier->n_workloads && !found; i++)
        found = !strcmp(earlier->workloads[i].path, s->workloads[at.workload].path);
    for (size_t i = 0; i < earlier->n_values && !valued; i++)
        valued = kvb_is_profile(earlier->values[i], s->values[at.values]);
    for (size_t i = 0; i < earlier->n_pools && !paired; i++)
        paired = earlier->pools[i].k == s->pools[at.pools].k && earlier->pools[i].v == s->pools[at.pools].v;
    return found && valued && paired &&
           holds((const void *const *)earlier->caches, earlier->n_caches, s->caches[at.cache]) &&
           holds((const void *const *)earlier->kernels, earlier->n_kernels, s->kernels[at.kernel]);
}

void kvb_selection_free(kvb_selection *s)
{
    kvb_workloads_free(&(kvb_workloads){.at = s->workloads, .n = s->n_workloads});
    free(s->has);
    free(s->choices);
    free(s->layers);
    *s = (kvb_selection){0};
}

/* ---- combinations ---- */

size_t kvb_block_size(const kvb_selection *s)
{
    return s->n_caches * s->n_kernels * s->n_growths * s->n_threads;
}

size_t kvb_matrix_size(const kvb_selection *s)
{
    return s->n_workloads * s->n_values * s->n_pools * kvb_block_size(s);
}

/* Splits i: returns i % n, and divides i by n. */
static size_t digit(size_t *i, size_t n)
{
    size_t at = *i % n;
    *i /= n;
    return at;
}

kvb_spot kvb_spot_of(const kvb_selection *s, size_t i)
{
    kvb_spot at;
    at.threads = digit(&i, s->n_threads);
    at.growth = digit(&i, s->n_growths);
    at.kernel = digit(&i, s->n_kernels);
    at.cache = digit(&i, s->n_caches);
    at.pools = digit(&i, s->n_pools);
    at.values = digit(&i, s->n_values);
    at.workload = i;
    return at;
}

const uint8_t *kvb_choice_of(const kvb_selection *s, size_t i)
{
    return s->choices ? s->choices[i] : NULL;
}

int kvb_selection_deal(kvb_selection *s, const kvb_selection *earlier, size_t n_earlier)
{
    size_t n = kvb_matrix_size(s);
    s->has = calloc(n + 1, sizeof *s->has);
    if (!s->has)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const kvb_spot at = kvb_spot_of(s, i);
        const uint8_t wanted = kvb_kernel_layers(s->kernels[at.kernel]);
        bool elsewhere = kvb_is_witness(s->kernels[at.kernel]) && (at.values > 0 || at.threads > 0);
        for (size_t e = 0; e < n_earlier && !elsewhere; e++)
            elsewhere = selection_covers(&earlier[e], s, at);
        s->has[i] = (!s->layers || s->layers[at.workload] & wanted) && !elsewhere;
        s->n_has += s->has[i];
    }
    return 0;
}

/* Options of `kvbench run` that choose combinations or outputs. */
static const char *const left_out[] = {
    "--suite",      "--pairs",        "--product",
    "--jobs",       "--workload",     "--cache",
    "--pool",       "--kernel",       "--best-from",
    "--values",     "--threads",      "--growth",
    "-o",           "--junit",        "--resume",
    "--shard",      "--format",       "--all",
    "--only",       "--dump",         "--gdb",
    "--machine",    "--timeline",     "--no-machine",
    "--wide",       "--color",        "--counters",
    "--no-witness", "--call",         "--calls",
    "--random",     "--require-axes", "--require-invariant",
    NULL,
};

void kvb_replay_begin(const kvb_command *command, int argc, char **argv, const kvb_suite_part *part, bool untimed,
                      char *text, size_t bytes)
{
    const kvb_suite_part *usual = &kvb_suite_find("default")->parts[0]; /* applies if no suite is named */
    char number[64];
    text[0] = '\0';
    bool fits = kvb_shell_add(text, bytes, program_invocation_name) && kvb_shell_add(text, bytes, "run") &&
                kvb_command_without(command, left_out, argc, argv, text, bytes);
    const struct {
        const char *knob;
        uint64_t here, usual;
    } numbers[] = {{"oracle-pairs", part->oracle_pairs, usual->oracle_pairs},
                   {"sample-ms", part->sample_ms, untimed ? part->sample_ms : usual->sample_ms}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && fits; i++) {
        snprintf(number, sizeof number, "%s=%" PRIu64, numbers[i].knob, numbers[i].here);
        if (numbers[i].here != numbers[i].usual && !strstr(text, numbers[i].knob))
            fits = kvb_shell_add(text, bytes, "--set") && kvb_shell_add(text, bytes, number);
    }
    if (!fits)
        text[0] = '\0';
}

void kvb_replay_command(const char *begin, const kvb_selection *s, size_t i, kvb_result *r)
{
    const kvb_spot at = kvb_spot_of(s, i);
    const kvb_workload *w = &s->workloads[at.workload];
    const char *values = s->values[at.values];
    bool is_glob = strpbrk(w->name, "*?[\\") != NULL; /* typed as a name it would match as a glob */
    const kvb_key pools = kvb_key_pools(r);
    char threads[16], growth[64];
    snprintf(threads, sizeof threads, "%u", r->threads);
    snprintf(growth, sizeof growth, "growth=%s", r->growth);
    const char *const words[][2] = {
        {"--workload", w->is_file || is_glob ? w->path : w->name},
        {"--values", values},
        {"--cache", r->cache},
        {"--pool", pools.text},
        {"--kernel", r->kernel},
        {"--threads", threads},
        {"--set", s->growths[at.growth] ? growth : NULL},
        {"--set", kvb_is_witness(s->kernels[at.kernel]) ? NULL : "no-witness"}, /* else one would run beside it */
    };
    bool fits = *begin != '\0';
    snprintf(r->replay, sizeof r->replay, "%s", begin + (*begin == ' '));
    for (size_t n = 0; n < sizeof words / sizeof *words && fits; n++)
        if (words[n][1])
            fits = kvb_shell_add(r->replay, sizeof r->replay, words[n][0]) &&
                   (!*words[n][1] || kvb_shell_add(r->replay, sizeof r->replay, words[n][1]));
    if (fits)
        kvb_setting_words(kvb_choice_of(s, i), true, r->replay, sizeof r->replay);
    if (!fits)
        r->replay[0] = '\0';
}
