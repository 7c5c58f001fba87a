/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvbench check: are a plug-in's parts right? Each part is judged in the combinations that concern it, by the machinery
 * of `kvbench run`, and gets a verdict in words. Its first failure is printed at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/command_line.h"
#include "harness/commands/run.h"
#include "harness/program.h"
#include "harness/machine/host.h"
#include "harness/machine/team.h"
#include "harness/matrix/matrix.h"
#include "harness/replay/child.h"
#include "harness/selection/registry.h"
#include "harness/selection/pairs.h"
#include "harness/selection/kernel_support.h"
#include "harness/selection/selection.h"
#include "harness/size/cache_model.h"
#include "harness/tuning/tuning.h"
#include "kernels/kernels.h"
#include "results/summary.h"
#include "workloads/files.h"

/* Time limit of a combination, of a single call, of a kernel's supports(). Sanitizers make all many times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SECONDS 600.0
#else
#define SECONDS 20.0
#endif
#define COLUMNS      80u
#define LABEL        9u /* columns before the text of a line */
#define FEW          6u /* most histories in a list */
#define MOST_FORMATS 256u

typedef struct check {
    kvb_words files, kernels, threads;
    const char *folder, *output, *model_name;
    bool only_first;
    /* while running */
    kvb_registry registry;
    kvb_manifest manifest;
    kvb_sized_model *model; /* NULL: histories have their own shapes */
    kvb_judged_pools judged;
    kvb_result_writer *writer; /* NULL: no records are written */
    bool failed, ran, ends;    /* ends: nothing more is run */
    char why[512];             /* of the writer */
} check;

static const kvb_option options[] = {
    {"-x", NULL, "end at the first failure", KVB_FLAG(check, only_first)},
    {"--kernel", "GLOB", "only these kernels of the plug-in, and no caches or pools; repeatable",
     KVB_WORDS(check, kernels)},
    {"--threads", "N", "threads of a team in histories; default 1 (single calls have 1, 2, 3 and 8)",
     KVB_WORDS(check, threads)},
    {"--model", "MODEL",
     "histories over one layer of each kind of this model: a name of `kvbench size --list`, or a config.json; single "
     "calls keep their axes",
     KVB_TEXT(check, model_name)},
    {"--workloads", "FOLDER", "where the workloads are", KVB_TEXT(check, folder)},
    {"-o", "F.jsonl", "write result records (" KVB_RESULT_SCHEMA ")", KVB_TEXT(check, output)},
    KVB_OPTIONS_END,
};

/* ---- lines for people ------------------------------------------------------------------------------------------ */

/* Prints a label and a text; a long text continues below. */
__attribute__((format(printf, 2, 3))) static void say(const char *label, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kvb_utf8_clean(text);
    const char *colour = !strcmp(label, "RIGHT")   ? kvb_table_colour("pass", stdout)
                         : !strcmp(label, "WRONG") ? kvb_table_colour("fail", stdout)
                                                   : "";
    for (const char *at = text; *at;) {
        const size_t n = kvb_words_that_fit(at, COLUMNS - LABEL);
        const bool first = at == text;
        printf("%s%-*s%s", first ? colour : "", (int)LABEL, first ? label : "", first && *colour ? KVB_COLOUR_END : "");
        kvb_plain_put_n(at, n, stdout);
        putchar('\n');
        at += n;
        at += strspn(at, " ");
    }
}

/* Prints a command on one line, so that it can be copied. */
static void command_say(const char *label, const char *command)
{
    printf("%-*s", (int)LABEL, label);
    kvb_plain_put(command, stdout);
    putchar('\n');
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* How parts of a kind, or one face of kernels, are judged. Lists end with NULL; NULL: the part, or all of the suite. */
typedef struct plan {
    const char *label;
    kvb_registry_kind kind;
    uint8_t face; /* kernels: KVB_LAYERS_… */
    unsigned hub; /* the part's dimension */
    const char *const *workloads, *const *kernels, *const *pools;
    bool settings; /* each combination has another page size and the like */
    kvb_witness_rule witness;
} plan;
static const plan plans[] = {
    {.label = "kernel",
     .kind = KVB_KERNELS,
     .face = KVB_LAYERS_ATTEND,
     .hub = KVB_PAIRS_KERNEL,
     .witness = KVB_WITNESS_NONE},
    {.label = "scan",
     .kind = KVB_KERNELS,
     .face = KVB_LAYERS_SCAN,
     .hub = KVB_PAIRS_KERNEL,
     .workloads = LIST("hybrid-batch", "hybrid-decode", "spec-hybrid", "state-fork", "short-prompts"),
     .pools = LIST("f32", "bf16"),
     .witness = KVB_WITNESS_NONE},
    {.label = "cache",
     .kind = KVB_CACHES,
     .kernels = LIST("flash", "reference", "scan"),
     .pools = LIST("f32", "f16", "q8_0", "kivi4"),
     .settings = true,
     .witness = KVB_WITNESS_BESIDE},
    {.label = "pool",
     .kind = KVB_POOLS,
     .workloads = LIST("agent-fork*", "batched-multi-seq*", "save-restore", "sliding-window*", "eagle-tree*"),
     .kernels = LIST("flash", "reference"),
     .witness = KVB_WITNESS_NONE},
};

/* One part and its results. */
typedef struct section {
    check *c;
    const plan *plan;
    const kvb_registered *part;
    const kvb_suite_part *suite_part; /* under way */
    kvb_results results;              /* of combinations */
    kvb_result calls;                 /* of single calls */
    size_t passed, failed, witnessed; /* combinations; witnesses are not in `passed` */
    size_t total;                     /* combinations, and one for single calls */
    double rho;                       /* largest */
    char formats[4096];               /* kernels: names of the formats that it reads, each ends with NUL */
    size_t n_formats, n_staged;
} section;

static bool is_good(const kvb_result *r)
{
    return r->status == KVB_STATUS_PASS || r->status == KVB_STATUS_SKIP;
}

/* ---- a failure -------------------------------------------------------------------------------------------------- */

/* Verdict in words for each check that can fail. */
static const char *const check_words[KVB_CHECKS] = {
    [KVB_CHECK_BOUND] = "outputs are wrong",
    [KVB_CHECK_EXACT] = "it does not add in the order that it declares",
    [KVB_CHECK_TOLERANCE] = "outputs are beyond what its own project tolerates",
    [KVB_CHECK_FILTER] = "errors of many rows point the same way",
    [KVB_CHECK_OPINION] = "outputs are wrong",
    [KVB_CHECK_STATE] = "a state that it leaves is wrong",
    [KVB_CHECK_FINITE] = "outputs are not finite",
    [KVB_CHECK_STORED] = "a query may see a cell that holds no row",
    [KVB_CHECK_DECLARATION] = "it does not do what its arithmetic declares",
    [KVB_CHECK_POISON] = "what a query does not see reaches its output",
    [KVB_CHECK_WITNESS] = "a query saw other tokens than it may",
    [KVB_CHECK_WRITTEN] = "an output is left unwritten",
    [KVB_CHECK_MARGINS] = "it writes beside its outputs or scratch",
    [KVB_CHECK_INPUTS] = "it writes to its inputs",
    [KVB_CHECK_ALLOCATIONS] = "it allocates, frees or starts a thread in a call",
    [KVB_CHECK_RETURN] = "a call returns an error",
    [KVB_CHECK_PROTOCOL] = "it breaks the contract",
    [KVB_CHECK_POOL] = "the pool by itself is wrong",
    [KVB_CHECK_DETERMINISTIC] = "other numbers of threads give other bits",
    [KVB_CHECK_CRASH] = "it crashes",
    [KVB_CHECK_TIMEOUT] = "it has no end",
};

/* Prints a combination's history, cache and pools, and the place of the first wrong element. */
static void place_say(const section *s, const kvb_result *r)
{
    const kvb_where *w = &r->where;
    const bool kernel = s->plan->face != 0;
    char place[512];
    snprintf(place, sizeof place, "history %s over cache %s in %s%s%s%s%s", r->workload, r->cache,
             kvb_key_pools(r).text, kernel ? "" : " by kernel ", kernel ? "" : r->kernel, *r->setting ? ", " : "",
             r->setting);
    if (!*w->element) {
        say("where", "%s: %s", place, r->reason);
        return;
    }
    say("where", "%s, %s, layer %u: %s", place, w->event, w->layer, w->rows);
    say("", "%s", w->element);
    if (*w->witness)
        say("", "%s (witness)", w->witness);
}

/* Prints the reason of a wrong single call, "softcap=30: out of query 0, …": the call, then the fault. */
static void call_say(const char *label, const kvb_result *r)
{
    const char *colon = strstr(r->reason, ": ");
    const int n = colon ? (int)(colon - r->reason) : 0;
    say(label, "%s%.*s: %s", memchr(r->reason, '=', (size_t)n) ? "a call with " : "", n, r->reason,
        r->reason + (colon ? n + 2 : 0));
}

static void failure_say(const section *s, const kvb_result *r)
{
    const char *what = check_words[r->check];
    char look[64], layer[24] = "";
    if (*r->where.element)
        snprintf(layer, sizeof layer, ",layer=%u", r->where.layer);
    kvb_progress_end();
    say("WRONG", "%s%s%s", what ? what : "it fails", *r->where.pattern ? ": " : "", r->where.pattern);
    if (r == &s->calls)
        call_say("where", r);
    else
        place_say(s, r);
    if (*r->replay)
        command_say("again", r->replay);
    snprintf(look, sizeof look, "--only line=%" PRIu64 "%s --set gdb", r->where.line, layer);
    const bool ended = r->check == KVB_CHECK_CRASH || r->check == KVB_CHECK_TIMEOUT; /* then --dump writes nothing */
    if (*r->replay && r->where.line)
        say("look", "the same %swith %s prints the command of a debugger",
            ended ? "" : "with --dump DIR writes the tensors of that call; ", look);
    fflush(stdout);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

/* Takes the result of a combination, or of a kernel's single calls. */
static int result_take(void *ctx, const kvb_result *result)
{
    section *s = ctx;
    check *c = s->c;
    const bool good = is_good(result), first = s->passed + s->failed + s->witnessed == 0 || !s->failed;
    const bool witness = result->error.witness_queries > 0 && good;
    kvb_result record = *result;
    s->passed += result->status == KVB_STATUS_PASS && !witness;
    s->witnessed += witness;
    s->failed += !good;
    s->rho = fmax(s->rho, result->rho);
    c->failed |= !good;
    c->ran |= result->status != KVB_STATUS_SKIP && !witness;
    kvb_progress_step(good);
    if (result != &s->calls && kvb_results_add(&s->results, result))
        return -ENOMEM;
    if (!good && first) {
        failure_say(s, result);
        kvb_progress_start("check", s->total - s->results.n);
    }
    if (good)
        record.replay[0] = '\0';
    const int error = c->writer ? kvb_result_write(c->writer, &record, c->why, sizeof c->why) : 0;
    c->ends |= !good && c->only_first;
    return error ? error : c->ends ? -ECANCELED : 0;
}

static int words_add(kvb_words *words, const char *const *list)
{
    int error = 0;
    for (size_t i = 0; list && list[i] && !error; i++)
        error = kvb_words_add(words, list[i]);
    return error;
}

/* Makes the words that choose this part's combinations. */
static int words_make(const section *s, kvb_selection_words *w)
{
    const char *const name[] = {s->part->name, NULL};
    const bool kernel = s->plan->face != 0;
    const char *at = s->formats;
    *w = (kvb_selection_words){.witness = s->plan->witness, .threads = s->c->threads};
    int error = words_add(&w->workloads, s->plan->workloads);
    error = error ? error : words_add(&w->kernels, kernel ? name : s->plan->kernels);
    error = error ? error : words_add(&w->caches, s->plan->kind == KVB_CACHES ? name : NULL);
    error = error ? error : words_add(&w->pools, s->plan->kind == KVB_POOLS ? name : s->plan->pools);
    for (size_t i = 0; i < s->n_formats && !error; i++, at += strlen(at) + 1)
        error = kvb_words_add(&w->pools, at);
    return error;
}

/* Axes of settings that only caches depend on. */
static uint32_t cache_axes(void)
{
    uint32_t axes = 0;
    for (size_t a = 0; a < KVB_SETTING_AXES; a++)
        axes |= kvb_setting_axes[a].traits & (KVB_AXIS_TRUTH | KVB_AXIS_KERNEL) ? 0 : UINT32_C(1) << a;
    return axes;
}

/* Makes the beginning of replay commands. */
static void replay_begin(const check *c, const kvb_suite_part *part, char *text, size_t bytes)
{
    const char *const words[][2] = {
        {"--plugin", c->files.at[0]}, {"--workloads", c->folder}, {"--model", c->model_name}};
    char *argv[2 + 2 * sizeof words / sizeof *words + 1] = {(char *)(uintptr_t) "run", (char *)(uintptr_t) "--check"};
    int n = 2;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t w = 0; w < 2 && words[i][1]; w++)
            argv[n++] = (char *)(uintptr_t)words[i][w];
    kvb_replay_begin(&kvb_command_run, n, argv, part, true, text, bytes);
}

static int histories_run(section *s, const kvb_selection_words *words, char *why, size_t why_bytes)
{
    check *c = s->c;
    const kvb_knobs usual = kvb_knobs_usual();
    const kvb_setting setting = {.page_cells = (uint32_t)usual.page_cells, .min_chunk = (uint32_t)usual.min_chunk};
    kvb_suite suite = kvb_suite_check;
    kvb_suite_part at_shape =
        suite.parts[0]; /* --model: all histories get its shape, so twins would repeat events; rows are sampled */
    if (c->model) {
        at_shape.oracle_pairs = suite.parts[suite.n_parts - 1].oracle_pairs;
        suite.parts = &at_shape;
        suite.n_parts = 1;
    }
    const kvb_pairs_options pairs = {.max_pairs = usual.max_pairs,
                                     .setting = setting,
                                     .axes = s->plan->settings ? cache_axes() : 0,
                                     .hub = s->plan->hub,
                                     .seconds = SECONDS};
    const kvb_selections_options select = {
        .words = words, .suite = &suite, .registry = &c->registry, .folder = c->folder, .pairs = &pairs};
    kvb_selections selections = {.n = 0};
    kvb_progress_now("choosing combinations");
    int error = kvb_selections_make(&select, &selections, why, why_bytes);
    for (size_t i = 0; i < selections.n && !error; i++)
        s->total += selections.at[i].n_has;
    s->total += s->plan->face != 0;
    kvb_progress_start("check", s->total);
    for (size_t i = 0; i < selections.n && !error; i++) {
        char command[KVB_REPLAY];
        kvb_knobs knobs = usual;
        knobs.oracle_pairs = suite.parts[i].oracle_pairs;
        knobs.no_null = true;
        kvb_matrix_options matrix = {.selection = &selections.at[i],
                                     .setting = setting,
                                     .model = kvb_size_label(c->model),
                                     .knobs = &knobs,
                                     .seconds = SECONDS,
                                     .untimed = true,
                                     .jobs = kvb_cores(),
                                     .judged = &c->judged,
                                     .command = command,
                                     .take = result_take,
                                     .ctx = s};
        replay_begin(c, &suite.parts[i], command, sizeof command);
        if (selections.at[i].n_has)
            error = kvb_matrix_run(&matrix, why, why_bytes);
    }
    kvb_selections_free(&selections);
    return error;
}

static int calls_run(section *s, char *why, size_t why_bytes)
{
    check *c = s->c;
    char begin[KVB_REPLAY - 2 * KVB_NAME];
    replay_begin(c, &kvb_suite_find("default")->parts[0], begin, sizeof begin);
    const kvb_calls_options o = {.most = kvb_suite_check.calls,
                                 .only_cheap = true,
                                 .only_first = true,
                                 .seconds = SECONDS,
                                 .jobs = kvb_cores(),
                                 .command = begin + (*begin == ' ')};
    kvb_progress_now("single calls of %s", s->part->name);
    int error =
        kvb_kernel_calls_judge(s->part, s->plan->face == KVB_LAYERS_SCAN, &c->registry, &o, &s->calls, why, why_bytes);
    if (!error && kvb_stopped)
        error = -EINTR;
    return error ? error : result_take(s, &s->calls);
}

/* ---- kinds of parts ---------------------------------------------------------------------------------------------- */

/* The formats that a kernel reads. A child asks the kernel and leaves the answer in shared memory. */
typedef struct asked {
    const kvb_registry *registry;
    const kvb_kernel *kernel;
    char text[512];
    bool reads[MOST_FORMATS];
} asked;

/* Name of format i: of pools, then of pools with "+had", then of pairs of pools. False: there are fewer. */
static bool format_word(const kvb_registry *r, size_t i, char *word, size_t bytes)
{
    const size_t n = r->n[KVB_POOLS];
    size_t aliases = 0;
    while (kvb_pool_aliases[aliases].name)
        aliases++;
    if (i >= 2 * n + aliases || i >= MOST_FORMATS)
        return false;
    snprintf(word, bytes, "%s%s", i < 2 * n ? r->at[KVB_POOLS][i % n].name : kvb_pool_aliases[i - 2 * n].name,
             i >= n && i < 2 * n ? "+had" : "");
    return true;
}

/* Finds the pools of a word. False: there are none. */
static bool pair_of(const kvb_registry *r, const char *word, kvb_pool_pair *pair)
{
    size_t n = 0;
    char why[256];
    return !kvb_pool_word_take(word, r, pair, 1, &n, why, sizeof why) && n == 1;
}

static void kernel_ask(void *ctx)
{
    asked *a = ctx;
    char word[KVB_NAME + 8];
    kvb_pool_pair pair;
    kvb_accepts_summary(a->kernel, a->registry, a->text, sizeof a->text);
    for (size_t i = 0; format_word(a->registry, i, word, sizeof word); i++)
        a->reads[i] = pair_of(a->registry, word, &pair) && kvb_kernel_reads(a->kernel, pair.k->format, pair.v->format);
}

/* Describes a kernel and finds its formats. 0; -ECHILD: its supports() ended the process. */
static int kernel_describe(section *s)
{
    const kvb_kernel *kernel = s->part->definition;
    asked *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char word[KVB_NAME + 8], why[256] = "";
    kvb_pool_pair pair;
    size_t used = 0;
    if (a == MAP_FAILED)
        return -ENOMEM;
    a->registry = &s->c->registry;
    a->kernel = kernel;
    const bool available = !kernel->available || kernel->available(why, sizeof why);
    int error = available ? kvb_apart(kernel_ask, a, SECONDS) : 0;
    for (size_t i = 0; !error && format_word(a->registry, i, word, sizeof word); i++) {
        const size_t n = strlen(word) + 1;
        if (!a->reads[i]) {
            s->n_staged += pair_of(a->registry, word, &pair);
        } else if (used + n <= sizeof s->formats) {
            memcpy(s->formats + used, word, n);
            used += n;
            s->n_formats++;
        }
    }
    say("kernel", "%s: %s", s->part->name, !available ? why : error ? s->part->summary : a->text);
    if (s->n_formats && s->n_staged) /* without any, the kernel reads rows of other lengths */
        say("staged", "%zu other formats, which are judged only through f32", s->n_staged);
    munmap(a, sizeof *a);
    return error;
}

static int part_describe(section *s)
{
    char can[256] = "";
    if (s->plan->face == KVB_LAYERS_ATTEND)
        return kernel_describe(s);
    if (s->plan->kind == KVB_CACHES)
        kvb_cache_can(s->part->definition, can, sizeof can);
    say(s->plan->label, "%s: %s%s%s", s->part->name, s->part->summary,
        s->plan->kind == KVB_CACHES ? "; can do steps" : "", can);
    return 0;
}

/* ---- the verdict on a part -------------------------------------------------------------------------------------- */

/* Lists histories with right replays, or with wrong ones: "agent-fork, beam-search". Returns the number of replays. */
static size_t histories_list(const section *s, bool good, char *text, size_t bytes)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < s->results.n; i++) {
        const kvb_result *r = &s->results.at[i];
        if (r->status == KVB_STATUS_SKIP || r->error.witness_queries || is_good(r) != good)
            continue;
        if (n++ < FEW)
            kvb_list_add(text, bytes, ", ", "%s", r->workload);
    }
    return n;
}

static void wrong_say(const section *s)
{
    char bad[512], good[512];
    const size_t wrong = histories_list(s, false, bad, sizeof bad), right = histories_list(s, true, good, sizeof good);
    const char *names = wrong <= FEW ? bad : right <= FEW ? good : "";
    if (wrong && !s->c->ends)
        say("in all", "%zu of %zu replays are wrong%s%s", wrong, wrong + right,
            !*names        ? ""
            : names == bad ? ": "
                           : "; right are ",
            names);
    if (wrong && s->calls.axes.wrong) {
        call_say("simplest", &s->calls);
        command_say("again", s->calls.replay);
    }
}

/* Prints skipped replays by reason, without models that have no layer for the part and without those of the witness. */
static void skips_say(const section *s)
{
    size_t n;
    bool begun = false;
    kvb_reason_group *groups = kvb_reason_groups(s->results.at, s->results.n, true, &n);
    for (size_t g = 0; groups && g < n; g++) {
        char text[KVB_REASON];
        kvb_reason_reduce(groups[g].first, text);
        if (!strncmp(text, "no layer ", 9) || !strcmp(groups[g].first->kernel, kvb_kernel_witness.name))
            continue;
        say(begun ? "" : "skipped", "%zu, such as %s: %s", groups[g].n, groups[g].first->workload, text);
        begun = true;
    }
    free(groups);
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void right_say(const section *s)
{
    const kvb_result *calls = &s->calls;
    static const size_t offsets[] = {offsetof(kvb_result, workload), offsetof(kvb_result, cache),
                                     offsetof(kvb_result, pool_k)};
    size_t names[3];
    for (size_t i = 0; i < 3; i++)
        names[i] = kvb_results_distinct(s->results.at, s->results.n, offsets[i], strlen);
    const size_t replays = s->passed - (calls->status == KVB_STATUS_PASS);
    char replayed[160], worst[64] = "", seen[96] = "", declined[KVB_REASON], made[64] = "", exact[64] = "", same[128],
                        other[128];
    if (calls->axes.calls)
        snprintf(made, sizeof made, "; %" PRIu64 " single calls over its axes", calls->axes.calls);
    if (calls->axes.exact)
        snprintf(exact, sizeof exact, ", %" PRIu64 " of them to the bit", calls->axes.exact);
    if (s->witnessed)
        snprintf(seen, sizeof seen, "; each query saw the right tokens in %zu more (witness)", s->witnessed);
    if (s->rho > 0)
        snprintf(worst, sizeof worst, "; worst error %.2g of its bound", s->rho);
    snprintf(replayed, sizeof replayed, "%zu replay%s of %zu histor%s, %zu cache%s, %zu format%s", replays,
             plural(replays), names[0], names[0] == 1 ? "y" : "ies", names[1], plural(names[1]), names[2],
             plural(names[2]));
    say("RIGHT", "%s%s%s%s%s%s", s->plan->kind == KVB_POOLS ? "by itself, at many dims, and in " : "",
        replays ? replayed : "no history is for it", seen, made, exact, worst);
    kvb_axes_shorten(calls->axes.declined, declined, sizeof declined);
    if (*declined)
        say("declines", "%s", declined);
    kvb_same_words(calls, true, same, sizeof same);
    kvb_same_words(calls, false, other, sizeof other);
    if (calls->same.calls)
        say("same?", "%s%s%s%s%s", *same ? "the same bits: " : "", same, *same && *other ? "; " : "",
            *other ? "other bits, in units of the bound: " : "", other);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int section_run(section *s, char *why, size_t why_bytes)
{
    const bool kernel = s->plan->face != 0;
    kvb_selection_words words = {.witness = KVB_WITNESS_NONE};
    kvb_result_init(&s->calls);
    int error = part_describe(s);
    if (error == -ECHILD) {
        say("WRONG", "its supports() crashes, or has no end, when it is asked what it takes");
        s->c->failed = true;
        s->c->ends |= s->c->only_first;
        return 0;
    }
    fflush(stdout);
    kvb_progress_start("check", 0);
    error = error ? error : words_make(s, &words);
    error = error ? error : histories_run(s, &words, why, why_bytes);
    error = error || !kernel ? error : calls_run(s, why, why_bytes);
    kvb_progress_end();
    kvb_words *lists[] = {&words.workloads, &words.kernels, &words.caches, &words.pools};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        kvb_words_free(lists[i]);
    if (error && error != -ECANCELED)
        return error;
    if (s->failed)
        wrong_say(s);
    else if (s->passed)
        right_say(s);
    else
        say("NOTHING", "ran: %s", s->results.n ? s->results.at[0].reason : "no history is for it");
    if (!s->failed)
        skips_say(s);
    if (!s->failed && s->passed && kernel) {
        char command[KVB_REPLAY] = "how fast?  ";
        kvb_shell_add(command, sizeof command, program_invocation_name);
        kvb_shell_add(command, sizeof command, "bench");
        kvb_shell_add(command, sizeof command, "--plugin");
        kvb_shell_add(command, sizeof command, s->c->files.at[0]);
        command_say("next", command);
    }
    fflush(stdout);
    return 0;
}

static bool is_chosen(const check *c, const plan *by, const kvb_registered *part)
{
    return by->face ? kvb_kernel_layers(part->definition) & by->face && kvb_words_match(&c->kernels, part->name)
                    : c->kernels.n == 0;
}

/* Judges every part of the plug-in: those behind the `before` ones. An exit code. */
static int parts_run(check *c, const size_t before[KVB_REGISTRY_KINDS])
{
    char why[1536] = "";
    size_t n = 0;
    int error = 0;
    for (const plan *p = plans; p < plans + sizeof plans / sizeof *plans && !error; p++)
        for (size_t i = before[p->kind]; i < c->registry.n[p->kind] && !error && !c->ends; i++) {
            section s = {.c = c, .plan = p, .part = &c->registry.at[p->kind][i]};
            if (!is_chosen(c, p, s.part))
                continue;
            if (n++)
                printf("\n");
            error = section_run(&s, why, sizeof why);
            free(s.results.at);
        }
    if (c->writer) {
        const int closed = kvb_result_close(c->writer, !error, c->why, sizeof c->why);
        error = error ? error : closed;
    }
    if (error)
        return kvb_fail(error, *c->why ? c->why : why);
    if (!n)
        return kvb_refuse("%s: it brings no kernel of these names", c->files.at[0]);
    return c->failed ? KVB_EXIT_FAILED : c->ran ? KVB_EXIT_OK : KVB_EXIT_MACHINE;
}

static int check_run(void *typed, int argc, char **argv)
{
    check *c = typed;
    static const kvb_tuning_choice tuning = {.measures = false};
    char why[1536] = "";
    size_t before[KVB_REGISTRY_KINDS];
    if (c->files.n != 1)
        return kvb_refuse("expected one plug-in, found %zu: kvbench check MINE.so", c->files.n);
    kvb_registry_init(&c->registry);
    memcpy(before, c->registry.n, sizeof before);
    if (kvb_registry_load(&c->registry, c->files.at[0], why, sizeof why))
        return kvb_refuse("%s", why);
    static kvb_model shape;
    if (c->model_name && kvb_size_shape(c->model_name, &c->model, &shape, why, sizeof why)) {
        kvb_sized_model_free(c->model);
        return kvb_refuse("--model: %s", why);
    }
    kvb_trace_model_set(c->model ? &shape : NULL);
    kvb_host_describe("", &c->manifest);
    int code = kvb_tuning_use("check", &tuning, &c->manifest);
    snprintf(c->manifest.suite, sizeof c->manifest.suite, "check");
    kvb_command_text(argc, argv, c->manifest.command, sizeof c->manifest.command);
    if (!code && c->output && kvb_result_create(c->output, &c->manifest, &c->writer, why, sizeof why))
        code = kvb_refuse("%s", why);
    kvb_stop_catch();
    code = code ? code : parts_run(c, before);
    kvb_sized_model_free(c->model);
    return code;
}

const kvb_command kvb_command_check = {
    .name = "check",
    .summary = "is my kernel, cache or pool right? a minute, with where it is wrong first",
    .run = check_run,
    .bytes = sizeof(check),
    .synopsis = "MINE.so [options]",
    .about = "Is my kernel, cache or pool right? For each part of a plug-in: RIGHT or WRONG, and where it is wrong "
             "first.\n\n"
             "  kvbench check mine.so          # a minute; the first failure is shown when it happens\n"
             "  kvbench check mine.so -x       # and nothing after it\n"
             "  kvbench check mine.so --model Llama-3.1-8B\n\n"
             "A kernel is judged in the formats that it reads itself: over every shipped history once, so that "
             "each format, shape and cache is met, and by single calls over the axes that histories leave alone "
             "(kvbench list axes). A call that is wrong is made simpler while it stays wrong. A cache is judged "
             "over every history that it takes, by kernels flash and reference; a witness checks that each query "
             "saw the right tokens. A pool is judged by itself, at many dims, and in some histories over every "
             "cache. Nothing is timed.\n\n"
             "  again: makes the first failure alone; --dump DIR added to it writes the tensors of the call.",
    .options = options,
    .words = offsetof(check, files),
    .takes_words = true,
};
