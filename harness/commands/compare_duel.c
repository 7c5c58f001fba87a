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

bool kvb_duel_is_asked(const kvb_duel_words *w)
{
    return w->plugin[0] || w->plugin[1] || w->program[0] || w->program[1];
}

void kvb_duel_words_free(kvb_duel_words *w)
{
    for (const kvb_option *o = run_options; o->name; o++)
        if (o->kind == KVB_OPTION_WORDS)
            kvb_words_free((kvb_words *)((char *)w + o->field));
    kvb_knobs_free(&w->knobs);
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
        kvb_knobs knobs = w->knobs;
        knobs.oracle_pairs = knobs.oracle_pairs ? knobs.oracle_pairs : suite->parts[i].oracle_pairs;
        knobs.first_touch |= kvb_numa_nodes() > 1;
        kvb_matrix_options matrix = {
            .selection = &selections[i],
            .duel = duel,
            .setting = {.min_chunk = (uint32_t)knobs.min_chunk,
                        .page_cells = (uint32_t)knobs.page_cells,
                        .out_elem = KVB_F32,
                        .deterministic = knobs.deterministic},
            .knobs = &knobs,
            .seconds = (double)knobs.timeout,
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
            .max_pairs = w->knobs.max_pairs, .no_staging = w->knobs.no_staging, .seconds = (double)w->knobs.timeout};
        const kvb_selections_options select = {.words = &w->words,
                                               .suite = suite,
                                               .registry = &duel->all,
                                               .folder = w->knobs.workloads,
                                               .oversubscribe = w->knobs.oversubscribe,
                                               .no_staging = w->knobs.no_staging,
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

typedef char number_text[24];
typedef struct run_line {
    const char **words; /* ends with NULL */
    size_t n;
    number_text *numbers;
    size_t n_numbers;
} run_line;

/* Appends an option with its value; what is 0, or as usual, is left out. */
static void option_add(run_line *line, const kvb_option *o, const void *field, const void *usual)
{
    const kvb_words *list = field;
    switch (o->kind) {
    case KVB_OPTION_FLAG:
        if (*(const bool *)field)
            line->words[line->n++] = o->name;
        break;
    case KVB_OPTION_WORDS:
        for (size_t i = 0; i < list->n; i++) {
            line->words[line->n++] = o->name;
            line->words[line->n++] = list->at[i];
        }
        break;
    case KVB_OPTION_TEXT:
        if (*(const char *const *)field && *(const char *const *)field != *(const char *const *)usual) {
            line->words[line->n++] = o->name;
            line->words[line->n++] = *(const char *const *)field;
        }
        break;
    case KVB_OPTION_NUMBER:
        if (*(const uint64_t *)field && *(const uint64_t *)field != *(const uint64_t *)usual) {
            snprintf(line->numbers[line->n_numbers], sizeof *line->numbers, "%" PRIu64, *(const uint64_t *)field);
            line->words[line->n++] = o->name;
            line->words[line->n++] = line->numbers[line->n_numbers++];
        }
        break;
    }
}

enum { MOST_WORDS = 4096, MOST_NUMBERS = 128 };

/* A command line for `kvbench run`. Its strings belong to the words, or to line->numbers. Knobs are spelled as programs
 * before --set know them. */
static void run_words(const kvb_duel_words *w, run_line *line)
{
    static const kvb_duel_words none;
    const kvb_knobs usual = kvb_knobs_usual();
    const kvb_selection_words *parts = &w->words;
    for (const kvb_option *o = run_options; o->name; o++)
        option_add(line, o, (const char *)w + o->field, (const char *)&none + o->field);
    for (const kvb_knob *k = kvb_knobs_table; k->option.name; k++)
        option_add(line, &k->option, (const char *)&w->knobs + k->option.field, (const char *)&usual + k->option.field);
    if (parts->workloads.n || parts->caches.n || parts->pools.n || parts->kernels.n)
        line->words[line->n++] = "--product"; /* pairs are not timed */
}

static int programs_run(const kvb_duel_words *w, kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
{
    static const char *words[MOST_WORDS];
    static number_text numbers[MOST_NUMBERS];
    run_line line = {.words = words, .numbers = numbers};
    size_t listed = 0;
    for (const kvb_option *o = run_options; o->name; o++)
        listed += o->kind == KVB_OPTION_WORDS ? ((const kvb_words *)((const char *)w + o->field))->n : 0;
    if (2 * (listed + w->knobs.growths.n + w->knobs.events.n + w->knobs.require_axes.n) > MOST_WORDS - 256) {
        snprintf(why, why_bytes, "more than %d words for programs", MOST_WORDS / 2);
        return -EINVAL;
    }
    run_words(w, &line);
    kvb_programs_options o = {
        .program = {w->program[KVB_DUEL_BASE], w->program[KVB_DUEL_NEW]},
        .words = words,
        .rounds = w->rounds,
    };
    kvb_progress_start("compare", 3 * w->rounds);
    const int error = kvb_programs_run(&o, base, new, why, why_bytes);
    kvb_progress_end();
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
        return kvb_complain("compare", KVB_EXIT_USAGE, "--rounds is of two programs; plug-ins have --set sample-ms=MS");
    if (programs && !w.suite)
        w.suite = "quick";
    w.rounds = w.rounds ? w.rounds : 10;
    w.knobs.sample_ms = w.knobs.sample_ms ? w.knobs.sample_ms : programs ? 200 : 1000;
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
