/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins run through the matrix, programs through their own command line. */
#include "harness/commands/compare_duel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/cpu_mask.h"
#include "harness/duel/programs.h"
#include "harness/interrupt.h"
#include "harness/machine/team.h"
#include "harness/matrix/matrix.h"
#include "harness/progress.h"
#include "harness/selection/pairs.h"
#include "harness/selection/selection.h"
#include "results/near_name.h"

/* Options that are passed on to programs. */
static const kvb_option run_options[] = {KVB_DUEL_RUN_OPTIONS(kvb_duel_words, ), KVB_OPTIONS_END};

#define MAX_PAIRS (64u << 20) /* as `kvbench run` has it */

bool kvb_duel_is_asked(const kvb_duel_words *w)
{
    return w->plugin[0] || w->plugin[1] || w->program[0] || w->program[1];
}

void kvb_duel_words_free(kvb_duel_words *w)
{
    for (const kvb_option *o = run_options; o->name; o++)
        if (o->kind == KVB_OPTION_WORDS)
            kvb_words_free((kvb_words *)((char *)w + o->field));
}

/* ---- plug-ins ---------------------------------------------------------------------------------------- */

/* Takes the results of one side, and shows progress. */
typedef struct taker {
    const kvb_duel *duel;
    kvb_results *results;
    bool shown; /* by the progress: the other side is not */
    size_t n_wanted;
} taker;

static int result_wants(void *ctx, size_t number, const kvb_result *names)
{
    taker *t = ctx;
    bool wanted = kvb_duel_concerns(t->duel, names);
    (void)number;
    kvb_progress_expect(wanted);
    t->n_wanted += wanted;
    return wanted;
}

static int result_take(void *ctx, const kvb_result *result)
{
    taker *t = ctx;
    if (t->shown)
        kvb_progress_step(result->status == KVB_STATUS_PASS || result->status == KVB_STATUS_SKIP);
    return kvb_results_add(t->results, result);
}

/* Runs every part of the suite. There is a selection for each part. */
static int parts_run(const kvb_duel_words *w, const kvb_duel *duel, const kvb_suite *suite,
                     const kvb_selection *selections, kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
{
    taker base_taker = {duel, base, true, 0}, new_taker = {duel, new, false, 0};
    int error = 0;
    kvb_progress_start("compare", 0);
    for (size_t i = 0; i < suite->n_parts && !error; i++) {
        kvb_matrix_options matrix = {
            .selection = &selections[i],
            .duel = duel,
            .setting = {.min_chunk = 256, .out_elem = KVB_F32, .deterministic = w->deterministic},
            .max_pairs = MAX_PAIRS,
            .opinion_pairs = KVB_OPINION_PAIRS,
            .oracle_pairs = w->oracle_pairs ? w->oracle_pairs : suite->parts[i].oracle_pairs,
            .seed = w->seed,
            .seconds = (double)w->seconds,
            .sample_seconds = 1e-3 * (double)w->sample_ms,
            .unbound = w->oversubscribe,
            .first_touch = kvb_numa_nodes() > 1,
            .no_staging = w->no_staging,
            .pools_must_fit = w->words.pools.n && w->words.workloads.n,
            .wants = result_wants,
            .take = result_take,
            .ctx = &base_taker,
            .new_ctx = &new_taker,
        };
        error = kvb_matrix_run(&matrix, why, why_bytes);
    }
    kvb_progress_end();
    if (!error && !base_taker.n_wanted) {
        snprintf(why, why_bytes, "none of these combinations uses the plug-ins");
        error = -EINVAL;
    }
    return error;
}

static int plugins_run(const kvb_duel_words *w, kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
{
    const kvb_suite *suite = kvb_suite_find(w->suite ? w->suite : "quick");
    kvb_duel *duel = malloc(sizeof *duel);
    kvb_selections selections = {.n = 0};
    char lack[256];
    int error = duel ? 0 : -ENOMEM;
    if (duel)
        *duel = (kvb_duel){.copy = {-1, -1}};
    if (!error && !suite)
        error = kvb_name_unknown("--suite: unknown suite", w->suite, KVB_SUITE_WORDS, why, why_bytes);
    for (size_t i = 0; i < w->words.kernels.n && !error; i++)
        if (!strcmp(w->words.kernels.at[i], kvb_kernel_best.name)) {
            snprintf(why, why_bytes, "--kernel best goes by an earlier run; here a plug-in's kernels are compared");
            error = -EINVAL;
        }
    if (!error && (error = kvb_cpu_mask_set(w->cpu_mask, lack, sizeof lack)))
        snprintf(why, why_bytes, "--cpu-mask: %s", lack);
    if (!error)
        error = kvb_duel_load(duel, w->plugin[KVB_DUEL_BASE], w->plugin[KVB_DUEL_NEW], why, why_bytes);
    if (!error) {
        const kvb_pairs_options pairs = {
            .max_pairs = MAX_PAIRS, .no_staging = w->no_staging, .seconds = (double)w->seconds};
        const kvb_selections_options select = {.words = &w->words,
                                               .suite = suite,
                                               .registry = &duel->all,
                                               .folder = w->folder,
                                               .oversubscribe = w->oversubscribe,
                                               .no_staging = w->no_staging,
                                               .pairs = kvb_pairs_usual(suite, w->suite, &w->words) ? &pairs : NULL};
        error = kvb_selections_make(&select, &selections, why, why_bytes);
    }
    if (!error)
        error = parts_run(w, duel, suite, selections.at, base, new, why, why_bytes);
    kvb_selections_free(&selections);
    if (duel)
        kvb_duel_close(duel);
    free(duel);
    return error;
}

/* ---- programs ---------------------------------------------------------------------------------------- */

/* A command line for `kvbench run`, ending with NULL. Its strings belong to the words, or to `numbers`. */
typedef char number_text[24];
static const char **run_words(const kvb_duel_words *w, number_text *numbers)
{
    const kvb_selection_words *parts = &w->words;
    size_t room = 2, n = 0;
    for (const kvb_option *o = run_options; o->name; o++)
        room += o->kind == KVB_OPTION_WORDS ? 2 * ((const kvb_words *)((const char *)w + o->field))->n : 2;
    const char **words = calloc(room, sizeof *words);
    for (const kvb_option *o = run_options; o->name && words; o++) {
        const void *field = (const char *)w + o->field;
        const kvb_words *list = field;
        switch (o->kind) {
        case KVB_OPTION_FLAG:
            if (*(const bool *)field)
                words[n++] = o->name;
            break;
        case KVB_OPTION_WORDS:
            for (size_t i = 0; i < list->n; i++) {
                words[n++] = o->name;
                words[n++] = list->at[i];
            }
            break;
        case KVB_OPTION_TEXT:
            if (*(const char *const *)field) {
                words[n++] = o->name;
                words[n++] = *(const char *const *)field;
            }
            break;
        case KVB_OPTION_NUMBER:
            if (*(const uint64_t *)field) {
                snprintf(numbers[o - run_options], sizeof *numbers, "%" PRIu64, *(const uint64_t *)field);
                words[n++] = o->name;
                words[n++] = numbers[o - run_options];
            }
            break;
        }
    }
    if (words && (parts->workloads.n || parts->caches.n || parts->pools.n || parts->kernels.n))
        words[n++] = "--product"; /* pairs are not timed */
    return words;
}

static int programs_run(const kvb_duel_words *w, kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
{
    number_text numbers[sizeof run_options / sizeof *run_options];
    const char **run = run_words(w, numbers);
    kvb_programs_options o = {
        .program = {w->program[KVB_DUEL_BASE], w->program[KVB_DUEL_NEW]},
        .words = run,
        .rounds = w->rounds,
    };
    kvb_progress_start("compare", 3 * w->rounds);
    int error = run ? kvb_programs_run(&o, base, new, why, why_bytes) : -ENOMEM;
    kvb_progress_end();
    free(run);
    return error;
}

/* ---- both -------------------------------------------------------------------------------------------- */

int kvb_duel_run(const kvb_duel_words *words, kvb_results *base, kvb_results *new)
{
    kvb_duel_words w = *words;
    char why[1536] = "";
    bool programs = w.program[0] || w.program[1];
    const char *const *of = programs ? w.program : w.plugin;
    if (programs && (w.plugin[0] || w.plugin[1]))
        return kvb_complain("compare", KVB_EXIT_USAGE, "plug-ins or programs, not both");
    if (!of[0] || !of[1])
        return kvb_complain("compare", KVB_EXIT_USAGE, "--base-%s and --new-%s go together",
                            programs ? "program" : "plugin", programs ? "program" : "plugin");
    if (w.rounds && !programs)
        return kvb_complain("compare", KVB_EXIT_USAGE, "--rounds is of two programs; plug-ins have --sample-ms");
    if (programs && !w.suite)
        w.suite = "quick";
    w.rounds = w.rounds ? w.rounds : 10;
    w.seconds = w.seconds ? w.seconds : 120;
    w.sample_ms = w.sample_ms ? w.sample_ms : programs ? 200 : 1000;
    kvb_stop_catch();
    int error = programs ? programs_run(&w, base, new, why, sizeof why) : plugins_run(&w, base, new, why, sizeof why);
    if (error == -EINTR) {
        kvb_complain("compare", 0, "stopped by a signal");
        kvb_stop_die();
    }
    if (error)
        return kvb_complain("compare", error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s",
                            *why ? why : strerror(-error));
    return -1;
}
