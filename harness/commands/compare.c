/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench compare, the regression gate: base against new, as result files or as builds that it runs. */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/duel/duel.h"
#include "harness/program.h"
#include "harness/knobs.h"
#include "harness/machine/host.h"
#include "harness/machine/team.h"
#include "harness/matrix/matrix.h"
#include "harness/selection/registry.h"
#include "harness/selection/pairs.h"
#include "harness/selection/selection.h"
#include "kernels/blas.h"
#include "results/compare.h"
#include "results/result.h"
#include "workloads/files.h"

/* Two builds of a plug-in or of kvbench to run, instead of two result files. */
typedef struct duel_words {
    const char *plugin[KVB_DUEL_SIDES], *program[KVB_DUEL_SIDES];
    uint64_t rounds;
    /* as in `kvbench run` */
    const char *suite, *cpu_mask;
    kvb_selection_words words;
    kvb_knobs knobs;
} duel_words;

typedef struct compare {
    kvb_words files;
    const char *thresholds_path, *against, *folder, *save;
    bool history, force, strict, all, subset, across_machines;
    duel_words duel;
    kvb_thresholds thresholds;
    kvb_table_format format;
} compare;

static const kvb_option options[] = {
    {"--thresholds", "F.json", "what is allowed, by pattern; default: 5 % more time, no more memory or bytes",
     KVB_TEXT(compare, thresholds_path)},
    {"--strict", NULL, "exit 4 if something is undecided, and nothing got worse", KVB_FLAG(compare, strict)},
    {"--subset", NULL, "a part is meant: NEW may lack combinations of BASE, thresholds may match none",
     KVB_FLAG(compare, subset)},
    {"--across-machines", NULL, "compare times even if the machines differ", KVB_FLAG(compare, across_machines)},
    {"--all", NULL, "show also what is the same", KVB_FLAG(compare, all)},
    {"--format", "FORMAT", "table, md (for a pull request), csv or json", KVB_FORMAT(compare, format, "")},
    {"--against", "NAME", "compare NEW with this machine's baseline NAME", KVB_TEXT(compare, against)},
    {"--save", "NAME", "keep a file, or several runs of one build, as the baseline NAME of their machine",
     KVB_TEXT(compare, save)},
    {"--force", NULL, "with --save: replace the baseline", KVB_FLAG(compare, force)},
    {"--history", NULL, "where times changed level: over FILEs, or all baselines of this machine",
     KVB_FLAG(compare, history)},
    {"--baselines", "FOLDER", "where baselines are, a folder for each machine (results/baselines)",
     KVB_TEXT(compare, folder)},
    {"--base-plugin", "F.so", "the old build of a plug-in; its combinations are run with both builds in turns",
     KVB_TEXT(compare, duel.plugin[KVB_DUEL_BASE])},
    {"--new-plugin", "F.so", "the new build", KVB_TEXT(compare, duel.plugin[KVB_DUEL_NEW])},
    {"--base-program", "KVBENCH", "an old build of kvbench; whole runs of both builds in turns",
     KVB_TEXT(compare, duel.program[KVB_DUEL_BASE])},
    {"--new-program", "KVBENCH", "the new build", KVB_TEXT(compare, duel.program[KVB_DUEL_NEW])},
    {"--rounds", "N", "of runs of two programs, 4 to 64; default 10", KVB_NUMBER(compare, duel.rounds, 4, KVB_SERIES)},
    /* the following options are passed on to programs, as `kvbench run` has them, too */
    {"--suite", "NAME", "of plug-ins or programs: what to run, as of `kvbench run`; default quick",
     KVB_TEXT(compare, duel.suite)},
    {"--workload", "GLOB|FILE", "the same; repeatable", KVB_WORDS(compare, duel.words.workloads)},
    {"--cache", "GLOB", "the same; repeatable", KVB_WORDS(compare, duel.words.caches)},
    {"--pool", "GLOB|k=K,v=V", "the same; repeatable", KVB_WORDS(compare, duel.words.pools)},
    {"--kernel", "GLOB", "the same; repeatable", KVB_WORDS(compare, duel.words.kernels)},
    {"--threads", "N[,N...]", "the same", KVB_WORDS(compare, duel.words.threads)},
    {"--values", "PROFILE", "the same; repeatable", KVB_WORDS(compare, duel.words.values)},
    {"--cpu-mask", "LEVEL", "the same", KVB_TEXT(compare, duel.cpu_mask)},
    {"--workloads", "FOLDER", "the same", KVB_TEXT(compare, duel.knobs.workloads)},
    {"--seed", "N", "the same", KVB_NUMBER(compare, duel.knobs.seed, 0, UINT64_MAX)},
    {"--timeout", "SECONDS", "for one combination; default 120", KVB_NUMBER(compare, duel.knobs.timeout, 1, 86400)},
    {"--deterministic", NULL, "as of `kvbench run`", KVB_FLAG(compare, duel.knobs.deterministic)},
    KVB_OPTIONS_END,
};

/* ---- two builds, as options -------------------------------------------------------------------------------------- */

/* The options that are passed on to programs. Their fields lie in compare's `duel`. */
static const kvb_option *run_options(void)
{
    const kvb_option *o = options;
    while (strcmp(o->name, "--suite"))
        o++;
    return o;
}

static const void *run_option_field(const duel_words *w, const kvb_option *o)
{
    return (const char *)w + (o->field - offsetof(compare, duel));
}

/* Are there two builds to run? */
static bool duel_is_asked(const duel_words *w)
{
    return w->plugin[0] || w->plugin[1] || w->program[0] || w->program[1];
}

/* ---- two builds of a plug-in ------------------------------------------------------------------------------------- */

/* Collects the results of one side. */
typedef struct taker {
    const kvb_duel *duel;
    kvb_results *results;
    bool shown; /* the progress shows this side */
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

/* Runs every part of the suite. selections: one for each part. */
static int parts_run(const duel_words *w, const kvb_duel *duel, const kvb_suite *suite, const kvb_selection *selections,
                     kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
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

static int plugins_run(const duel_words *w, kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
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

/* ---- two builds of kvbench --------------------------------------------------------------------------------------- */

enum { MOST_NUMBERS = 128 }; /* more than there are options and knobs with numbers */
typedef struct run_line {
    kvb_words words;
    char numbers[MOST_NUMBERS][24]; /* texts of words */
    size_t n_numbers;
    bool failed; /* no memory */
} run_line;

/* Appends an option. value NULL: a flag. */
static void words_put(run_line *line, const char *name, const char *value)
{
    line->failed |= kvb_words_add(&line->words, name) || (value && kvb_words_add(&line->words, value));
}

/* Appends an option with its value, unless the value is 0 or the default. */
static void option_add(run_line *line, const kvb_option *o, const void *field, const void *usual)
{
    const kvb_words *list = field;
    switch (o->kind) {
    case KVB_OPTION_CHOICE: /* no option that is passed on */
        break;
    case KVB_OPTION_FLAG:
        if (*(const bool *)field)
            words_put(line, o->name, NULL);
        break;
    case KVB_OPTION_WORDS:
        for (size_t i = 0; i < list->n; i++)
            words_put(line, o->name, list->at[i]);
        break;
    case KVB_OPTION_TEXT:
        if (*(const char *const *)field && *(const char *const *)field != *(const char *const *)usual)
            words_put(line, o->name, *(const char *const *)field);
        break;
    case KVB_OPTION_NUMBER:
        if (*(const uint64_t *)field && *(const uint64_t *)field != *(const uint64_t *)usual) {
            char *digits = line->numbers[line->n_numbers++];
            snprintf(digits, sizeof *line->numbers, "%" PRIu64, *(const uint64_t *)field);
            words_put(line, o->name, digits);
        }
        break;
    }
}

/* Makes a command line for `kvbench run`. The words, or line->numbers, own its strings. Knobs are spelled as options,
 * which older programs without --set take, too. */
static void run_words(const duel_words *w, run_line *line)
{
    static const duel_words none;
    const kvb_knobs usual = kvb_knobs_usual();
    const kvb_selection_words *parts = &w->words;
    for (const kvb_option *o = run_options(); o->name; o++)
        option_add(line, o, run_option_field(w, o), run_option_field(&none, o));
    for (const kvb_knob *k = kvb_knobs_table; k->option.name; k++)
        option_add(line, &k->option, (const char *)&w->knobs + k->option.field, (const char *)&usual + k->option.field);
    if (parts->workloads.n || parts->caches.n || parts->pools.n || parts->kernels.n)
        words_put(line, "--product", NULL); /* pairs are not timed */
}

static int programs_run(const duel_words *w, kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
{
    run_line line = {.n_numbers = 0};
    run_words(w, &line);
    kvb_programs_options o = {
        .program = {w->program[KVB_DUEL_BASE], w->program[KVB_DUEL_NEW]},
        .words = line.words.at,
        .rounds = w->rounds,
    };
    kvb_progress_start("compare", 3 * w->rounds);
    const int error = line.failed ? -ENOMEM : kvb_programs_run(&o, base, new, why, why_bytes);
    kvb_progress_end();
    kvb_words_free(&line.words);
    return error;
}

/* ---- two builds -------------------------------------------------------------------------------------------------- */

/* Runs both sides: plug-ins through the matrix, programs through their command lines. -1, with the paired results of
 * each side, which the caller frees; or an exit code after the error was printed. */
static int duel_run(const duel_words *words, kvb_results *base, kvb_results *new)
{
    duel_words w = *words;
    char why[1536] = "";
    bool programs = w.program[0] || w.program[1];
    const char *const *of = programs ? w.program : w.plugin;
    if (programs && (w.plugin[0] || w.plugin[1]))
        return kvb_refuse("plug-ins or programs, not both");
    if (!of[0] || !of[1])
        return kvb_refuse("--base-%s and --new-%s go together", programs ? "program" : "plugin",
                          programs ? "program" : "plugin");
    if (w.rounds && !programs)
        return kvb_refuse("--rounds needs two programs; plug-ins have --set sample-ms=MS");
    if (programs && !w.suite)
        w.suite = "quick";
    w.rounds = w.rounds ? w.rounds : 10;
    w.knobs.sample_ms = w.knobs.sample_ms ? w.knobs.sample_ms : programs ? 200 : 1000;
    kvb_stop_catch();
    int error = programs ? programs_run(&w, base, new, why, sizeof why) : plugins_run(&w, base, new, why, sizeof why);
    return error ? kvb_fail(error, why) : -1;
}

/* ---- two result files -------------------------------------------------------------------------------------------- */

/* The runs of one build, a file for each, and their name for printing. */
typedef struct side {
    kvb_result_file *files[KVB_RUNS];
    kvb_compare_run runs[KVB_RUNS];
    size_t n;
    char name[1200];
} side;

static void side_close(side *s)
{
    for (size_t i = 0; i < s->n; i++)
        kvb_result_free(s->files[i]);
}

/* Adds a run. All runs of a side must have one machine and one build. An exit code. */
static int side_add(side *s, const char *path)
{
    char why[512], first[KVB_FINGERPRINT_TEXT], machine[KVB_FINGERPRINT_TEXT];
    kvb_result_file *file;

    if (s->n == KVB_RUNS)
        return kvb_refuse("%s: more than %u runs of one build", path, KVB_RUNS);
    if (kvb_result_load(path, &file, why, sizeof why))
        return kvb_refuse("%s", why);
    s->runs[s->n] = (kvb_compare_run){file->results, file->n};
    s->files[s->n++] = file;
    kvb_fingerprint(&s->files[0]->manifest, first);
    kvb_fingerprint(&file->manifest, machine);
    if (strcmp(first, machine) || strcmp(s->files[0]->manifest.commit, file->manifest.commit))
        return kvb_refuse("%s: a run of commit %s on %s, the others of this build have commit %s on %s", path,
                          file->manifest.commit, machine, s->files[0]->manifest.commit, first);
    if (s->n == 1)
        snprintf(s->name, sizeof s->name, "%s (%s, commit %s)", path, file->manifest.date, file->manifest.commit);
    else {
        char *tail = strrchr(s->name, ')');
        snprintf(tail, sizeof s->name - (size_t)(tail - s->name), ") and %zu more", s->n - 1);
    }
    return KVB_EXIT_OK;
}

/* ---- baselines, for each machine: result files FOLDER/FINGERPRINT/NAME.jsonl ------------------------------------- */

/* Finds all baselines of the manifest's machine; the caller frees them. An exit code. */
static int baselines_find(const compare *o, const kvb_manifest *manifest, glob_t *found)
{
    char machine[KVB_FINGERPRINT_TEXT], pattern[PATH_MAX];
    kvb_fingerprint(manifest, machine);
    snprintf(pattern, sizeof pattern, "%s/%s/*.jsonl", o->folder, machine);
    return glob(pattern, 0, NULL, found) ? kvb_refuse("%s: there is no baseline of this machine; --save NAME F.jsonl "
                                                      "keeps one",
                                                      pattern)
                                         : KVB_EXIT_OK;
}

/* Makes the path of a baseline's run: NAME, NAME.2, …. An exit code. */
static int baseline_path(const compare *o, const char *name, size_t run, const kvb_manifest *manifest,
                         char path[PATH_MAX])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char machine[KVB_FINGERPRINT_TEXT], number[24] = "";
    if (!*name || *name == '.' || strlen(name) >= KVB_NAME || name[strspn(name, letters)])
        return kvb_refuse("'%s' is no name for a baseline: letters, digits, '.', '_', '-'", name);
    if (run > 1)
        snprintf(number, sizeof number, ".%zu", run);
    kvb_fingerprint(manifest, machine);
    snprintf(path, PATH_MAX, "%s/%s/%s%s.jsonl", o->folder, machine, name, number);
    return KVB_EXIT_OK;
}

/* Prints that there is no baseline of that name, and the names that exist. An exit code. */
static int baseline_lacks(const compare *o, const kvb_manifest *manifest)
{
    char names[1024] = "";
    glob_t found = {0};
    int code = baselines_find(o, manifest, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = strrchr(found.gl_pathv[i], '/') + 1;
        kvb_list_add(names, sizeof names, ", ", "%.*s", (int)(strlen(name) - strlen(".jsonl")), name);
    }
    globfree(&found);
    return code ? code
                : kvb_unknown("compare", "--against: of the new run's machine there is no baseline", o->against, names);
}

/* Opens all runs of a baseline: NAME, NAME.2, …. An exit code. */
static int baseline_open(const compare *o, side *base, const kvb_manifest *manifest)
{
    char path[PATH_MAX];
    int code = KVB_EXIT_OK;
    for (size_t run = 1; !code && run <= KVB_RUNS; run++) {
        code = baseline_path(o, o->against, run, manifest, path);
        if (!code && access(path, F_OK) && errno == ENOENT)
            return run == 1 ? baseline_lacks(o, manifest) : KVB_EXIT_OK;
        code = code ? code : side_add(base, path);
    }
    return code;
}

/* Makes every folder above the file. An exit code. */
static int folders_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) && errno != EEXIST)
            return kvb_complain("compare", KVB_EXIT_MACHINE, "%s: %s", path, strerror(errno));
        *slash = '/';
    }
    return KVB_EXIT_OK;
}

/* Copies a file as run number `run` of baseline --save, complete or not at all. An exit code. */
static int baseline_keep(const compare *o, size_t run, const char *path)
{
    char why[512], late[512], saved[PATH_MAX];
    kvb_result_file *file;
    kvb_result_writer *writer;
    if (kvb_result_load(path, &file, why, sizeof why))
        return kvb_refuse("%s", why);
    int code = baseline_path(o, o->save, run, &file->manifest, saved);
    if (!code && !o->force && access(saved, F_OK) == 0)
        code = kvb_refuse("%s is there already; --force replaces it", saved);
    code = code ? code : folders_make(saved);
    if (!code) {
        int error = kvb_result_create(saved, &file->manifest, &writer, why, sizeof why);
        const bool created = !error;
        for (size_t i = 0; i < file->n && !error; i++)
            error = kvb_result_write(writer, &file->results[i], why, sizeof why);
        const int closed = created ? kvb_result_close(writer, !error, late, sizeof late) : 0;
        if (error || closed)
            code = kvb_complain("compare", KVB_EXIT_MACHINE, "%s", error ? why : late);
        else
            printf("%s: kept as %s\n", path, saved);
    }
    kvb_result_free(file);
    return code;
}

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

/* A pattern of thresholds that matches nothing is an error, unless only a part is compared. An exit code. */
static int thresholds_judge(const compare *o)
{
    const char *unmet = o->subset ? NULL : kvb_thresholds_unmet(&o->thresholds);

    return unmet ? kvb_refuse("%s: the pattern '%s' matches no combination; --subset allows that", o->thresholds_path,
                              unmet)
                 : KVB_EXIT_OK;
}

/* Compares and prints, with format and flags of the view from the options. An exit code. */
static int judge(compare *o, const kvb_compare_options *how, kvb_compare_view *view)
{
    kvb_comparison *c;
    char why[1024];
    for (int i = 0; i < 2; i++)
        kvb_thresholds_meet(&o->thresholds, how->runs[i]->results, how->runs[i]->n);
    if (!how->paired && thresholds_judge(o)) /* a duel took minutes: print its results first */
        return KVB_EXIT_USAGE;
    int error = kvb_compare(how, &c, why, sizeof why);

    if (error)
        return kvb_fail(error, why);
    view->format = o->format;
    view->all = o->all;
    int undecided = o->strict ? KVB_EXIT_UNDECIDED : KVB_EXIT_OK;
    const int codes[] = {[KVB_OUTCOME_GOOD] = KVB_EXIT_OK,
                         [KVB_OUTCOME_REGRESSION] = KVB_EXIT_FAILED,
                         [KVB_OUTCOME_PARTLY] = undecided,
                         [KVB_OUTCOME_NOTHING] = undecided};
    int code = kvb_printed("compare", kvb_comparison_print(c, view, stdout));
    if (!code)
        code = codes[kvb_comparison_outcome(c)];
    kvb_comparison_free(c);
    return how->paired && thresholds_judge(o) ? KVB_EXIT_USAGE : code;
}

/* Compares two loaded files. */
static int gate(compare *o, const side *base, const side *new, const char *command)
{
    char texts[KVB_NOTES][KVB_NOTE_TEXT], machine[2][KVB_FINGERPRINT_TEXT];
    const kvb_result_file *before = base->files[0], *after = new->files[0];
    size_t n = kvb_manifest_notes(&before->manifest, &after->manifest, texts);

    kvb_fingerprint(&before->manifest, machine[0]);
    kvb_fingerprint(&after->manifest, machine[1]);
    bool moved = strcmp(machine[0], machine[1]) != 0;
    kvb_compare_options how = {.thresholds = &o->thresholds,
                               .subset = o->subset,
                               .runs = {base->runs, new->runs},
                               .n_runs = {base->n, new->n},
                               .no_time = moved && !o->across_machines ? "another machine (--across-machines)" : NULL};
    kvb_compare_view view = {
        .base = base->name,
        .new = new->name,
        .notes = texts,
        .n_notes = n,
        .command = command,
        .decide = how.no_time ? "runs of one machine, or --across-machines"
                  : base->n > 2 && new->n > 2
                      ? "a duel of both builds (--base-plugin, --base-program), or exact counts (run --count)"
                      : "a duel of both builds (--base-plugin, --base-program), exact counts (run --count), or "
                        "three runs of each and more (compare BASE.jsonl… -- NEW.jsonl…)"};
    return judge(o, &how, &view);
}

/* Runs two builds and compares them. */
static int builds_compare(compare *o, const char *command)
{
    kvb_results sides[2] = {{.n = 0}, {.n = 0}};
    const char *const *names = o->duel.plugin[0] ? o->duel.plugin : o->duel.program;
    kvb_compare_view view = {.base = names[KVB_DUEL_BASE],
                             .new = names[KVB_DUEL_NEW],
                             .command = command,
                             .decide = o->duel.plugin[0] ? "more passes (--set sample-ms=MS)"
                                                         : "more --rounds, or more passes (--set sample-ms=MS)"};
    int code = duel_run(&o->duel, &sides[0], &sides[1]);
    const kvb_compare_run base = {sides[0].at, sides[0].n}, new = {sides[1].at, sides[1].n};
    const kvb_compare_options how = {
        .thresholds = &o->thresholds, .subset = o->subset, .paired = true, .runs = {&base, &new}, .n_runs = {1, 1}};
    if (code < 0)
        code = judge(o, &how, &view);
    free(sides[0].at);
    free(sides[1].at);
    return code;
}

static int files_compare(compare *o, const char *command)
{
    side base = {0}, new = {0};
    size_t n = o->files.n, first = 0; /* first: index of the first new run */
    int code = KVB_EXIT_OK;

    for (size_t i = 0; i < n; i++)
        first = strcmp(o->files.at[i], "--") ? first : i;
    bool parted = first > 0 && first + 1 < n;
    if (o->against ? !n || first : !parted && n != 2)
        return kvb_refuse(o->against ? "--against NAME takes runs of the new build, NEW.jsonl…"
                                     : "name two files, BASE.jsonl and NEW.jsonl, or several of each with -- between; "
                                       "see --help");
    for (size_t i = o->against ? 0 : first + 1; i < n && !code; i++)
        code = side_add(&new, o->files.at[i]);
    if (!code && o->against)
        code = baseline_open(o, &base, &new.files[0]->manifest);
    for (size_t i = 0; !o->against && i < (parted ? first : 1) && !code; i++)
        code = side_add(&base, o->files.at[i]);
    if (!code)
        code = gate(o, &base, &new, command);
    side_close(&base);
    side_close(&new);
    return code;
}

/* ---- the history of runs ------------------------------------------------------------------------------------- */

/* "2025-01-02T03:04:05Z (abcdef)" */
static void run_text(const kvb_manifest *m, char text[KVB_NAME + 48])
{
    snprintf(text, KVB_NAME + 48, "%.39s (%.63s)", m->date, m->commit);
}

static void change_row(kvb_table *table, kvb_result_file *const *files, const kvb_run_history_change *s, bool raw)
{
    const kvb_result *r = s->to;
    char threads[16], from[KVB_NAME + 48], to[KVB_NAME + 48];
    const double times[] = {s->from->time.all.median, r->time.all.median};
    const double ratios[] = {exp(s->change.change), exp(s->change.low), exp(s->change.high)};
    kvb_number n[5];

    snprintf(threads, sizeof threads, "%u", r->threads);
    for (int i = 0; i < 5; i++)
        if (raw)
            snprintf(n[i].text, sizeof n[i].text, "%.9g", i < 2 ? times[i] : ratios[i - 2]);
        else
            n[i] = i < 2 ? kvb_time_text(times[i]) : kvb_change_text(ratios[i - 2]);
    run_text(&files[s->from_file]->manifest, from);
    run_text(&files[s->to_file]->manifest, to);
    kvb_table_row(table, (const char *const[]){kvb_verdict_name(s->verdict), r->workload, r->cache,
                                               kvb_key_pools(r).text, r->kernel, threads, r->growth, n[0].text,
                                               n[1].text, n[2].text, n[3].text, n[4].text, from, to});
}

static int history_print(kvb_result_file *const *files, size_t n, const kvb_run_history *h, kvb_table_format format)
{
    bool raw = format == KVB_TABLE_CSV || format == KVB_TABLE_JSON;
    FILE *told = raw ? stderr : stdout;
    kvb_table *table = kvb_table_new(
        (const char *const[]){"verdict", "workload", "cache", "pool", "kernel", ">threads", "growth",
                              raw ? ">before_ns" : ">before", raw ? ">after_ns" : ">after", raw ? ">ratio" : ">change",
                              ">low", ">high", "last run before", "first run after", NULL});
    for (size_t i = 0; i < h->n; i++)
        change_row(table, files, &h->changes[i], raw);
    const int error = h->n || raw || !table ? kvb_table_print(table, format, stdout) : 0;
    kvb_table_free(table);
    if (error)
        return kvb_printed("compare", error);
    if (h->n)
        fputc('\n', told);
    if (!h->series) {
        fprintf(told, "%zu run%s: no combination was measured twice, so there is no history yet\n", n,
                n == 1 ? "" : "s");
        return KVB_EXIT_OK;
    }
    fprintf(told, "%zu runs, %zu series: %zu changes of level", n, h->series, h->n);
    if (isnan(h->resolution))
        fprintf(told, "; no run compared a combination with itself, so nothing can be said\n");
    else
        fprintf(told, "; null comparisons of the noisiest run: 99 %% stay below %.1f %%\n", 100 * h->resolution);
    return KVB_EXIT_OK;
}

static int files_load(const char *const *paths, size_t n, kvb_result_file **files, bool across_machines)
{
    char why[512], first[KVB_FINGERPRINT_TEXT], other[KVB_FINGERPRINT_TEXT];

    for (size_t i = 0; i < n; i++) {
        if (kvb_result_load(paths[i], &files[i], why, sizeof why))
            return kvb_refuse("%s", why);
        kvb_fingerprint(&files[0]->manifest, first);
        kvb_fingerprint(&files[i]->manifest, other);
        if (strcmp(first, other) && !across_machines)
            return kvb_refuse("%s: a run on %s, but %s ran on %s; --across-machines takes both", paths[i], other,
                              paths[0], first);
    }
    return KVB_EXIT_OK;
}

/* Compares the given files as a history; without files: all baselines of this machine. An exit code. */
static int history_compare(compare *o)
{
    char why[512];
    glob_t found = {0};
    kvb_run_history history = {0};
    int code = KVB_EXIT_OK;

    if (!o->files.n) {
        kvb_manifest host = {0};
        kvb_host_describe("", &host);
        code = baselines_find(o, &host, &found);
    }
    const size_t n = o->files.n ? o->files.n : found.gl_pathc;
    const char *const *paths = o->files.n ? o->files.at : (const char *const *)found.gl_pathv;
    kvb_result_file **files = calloc(n + 1, sizeof *files);
    if (!files)
        code = kvb_complain("compare", KVB_EXIT_MACHINE, "no memory");
    if (!code)
        code = files_load(paths, n, files, o->across_machines);
    for (size_t i = 0; i < n && !code; i++)
        kvb_thresholds_meet(&o->thresholds, files[i]->results, files[i]->n);
    if (!code)
        code = thresholds_judge(o);
    if (!code) {
        kvb_run_history_sort(files, n);
        int error = kvb_run_history_find(files, n, &o->thresholds, &history, why, sizeof why);
        code = error ? kvb_fail(error, why) : history_print(files, n, &history, o->format);
    }
    kvb_run_history_free(&history);
    for (size_t i = 0; i < n && files; i++)
        kvb_result_free(files[i]);
    free(files);
    globfree(&found);
    return code;
}

/* ---- the command ------------------------------------------------------------------------------------------- */

/* The command as it was typed, to reproduce the comparison. */
static void command_text(int argc, char **argv, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "kvbench");

    for (int i = 0; i < argc && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, " %s", argv[i]);
}

static int compare_run(void *typed, int argc, char **argv)
{
    compare *o = typed;
    char why[1024], command[1024];

    kvb_thresholds_init(&o->thresholds);
    command_text(argc, argv, command, sizeof command);
    if (o->thresholds_path && kvb_thresholds_load(o->thresholds_path, &o->thresholds, why, sizeof why))
        return kvb_refuse("%s", why);
    if (!!o->save + o->history + !!o->against + duel_is_asked(&o->duel) > 1)
        return kvb_refuse("--save, --against, --history and two builds to run exclude each other");
    if (duel_is_asked(&o->duel) && o->files.n)
        return kvb_refuse("two builds are run here; no file such as '%s' is read", o->files.at[0]);
    if (o->duel.knobs.openblas_core)
        kvb_blas_core(o->duel.knobs.openblas_core);
    if (duel_is_asked(&o->duel))
        return builds_compare(o, command);
    if (o->save && (!o->files.n || o->files.n > KVB_RUNS))
        return kvb_refuse("--save NAME takes runs of one build, up to %u files", KVB_RUNS);
    for (size_t i = 0; o->save && i < o->files.n; i++) {
        int code = baseline_keep(o, i + 1, o->files.at[i]);
        if (code || i + 1 == o->files.n)
            return code;
    }
    if (o->history)
        return history_compare(o);
    return files_compare(o, command);
}

const kvb_command kvb_command_compare = {
    .name = "compare",
    .summary = "base against new: what got slower, larger, broken",
    .run = compare_run,
    .bytes = sizeof(compare),
    .usual = &(const compare){.folder = "results/baselines", .duel.knobs.timeout = 120},
    .synopsis = "BASE.jsonl… -- NEW.jsonl… [options]",
    .about =
        "Compare two runs, combination by combination. Exit 1 if something got worse; with --strict, 4 if "
        "nothing did as far as it could be decided, but something (or all: \"nothing decided\") is undecided.\n\n"
        "  kvbench compare base.jsonl new.jsonl\n"
        "  kvbench compare base-1.jsonl base-2.jsonl base-3.jsonl -- new-1.jsonl new-2.jsonl new-3.jsonl\n"
        "  kvbench compare base.jsonl new.jsonl --thresholds ci/thresholds.json --format md >>$GITHUB_STEP_SUMMARY\n"
        "  kvbench compare --save main base.jsonl; kvbench compare --against main new.jsonl\n"
        "  kvbench compare --history\n"
        "  kvbench compare --base-plugin old/mine.so --new-plugin new/mine.so --workload 'plain-*' --threads 2\n"
        "  kvbench compare --base-program old/kvbench --new-program build/kvbench --kernel flash --pool f16\n\n"
        "A time is SAME if the whole interval of its change lies within the threshold; SLOWER or FASTER if "
        "the interval excludes no change and the estimate reaches the threshold; otherwise UNDECIDED, with "
        "the reason. The intervals hold for all combinations together (99 %). How runs of one build differ is "
        "seen in three runs of each and more; from one run each it is taken as a multiple of their null "
        "comparisons, which few slowdowns exceed. Each kernel and cache is also judged over all its "
        "combinations. Memory, bytes read and rho are compared exactly. New failures (BROKEN) and missing "
        "combinations (GONE) are regressions.\n\n"
        "Two builds of a plug-in or of kvbench are run here, in turns, so that whatever else the machine does "
        "cancels out. The base also runs against itself: how much that differs is the smallest difference "
        "that is reported. This is the way to compare on a noisy machine.",
    .options = options,
    .knobs = kvb_knobs_table,
    .knobs_at = offsetof(compare, duel.knobs),
    .words = offsetof(compare, files),
    .takes_words = true,
};
