/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench faults: plant faults and print which check catches each. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/calls/attend_axes.h"
#include "harness/selection/pairs.h"
#include "harness/calls/calls.h"
#include "harness/command_line.h"
#include "harness/faults/fault.h"
#include "harness/program.h"
#include "harness/machine/team.h"
#include "harness/matrix/matrix.h"
#include "harness/selection/registry.h"
#include "results/table.h"
#include "workloads/files.h"

const kvb_fault *const kvb_fault_tables[] = {
    kvb_kernel_faults, kvb_conduct_faults, kvb_cache_faults,    kvb_store_faults,
    kvb_pool_faults,   kvb_scan_faults,    kvb_position_faults, NULL};

typedef struct faults {
    kvb_words names;
    const char *without;
    bool list, alone;
    kvb_table_format format;
    kvb_registry registry;
    kvb_table *table;
    size_t chosen, planted, caught;
    struct {
        size_t first; /* faults that the check caught first */
        size_t alone; /* of these: faults that no other check catches */
    } by[KVB_CHECKS];
} faults;

static const kvb_option options[] = {
    {"--without", "CHECK", "this check finds nothing: what it alone catches is then caught by none",
     KVB_TEXT(faults, without)},
    {"--alone", NULL, "also plant each fault without the check that caught it: what would have caught it then?",
     KVB_FLAG(faults, alone)},
    {"--list", NULL, "say what there is to plant, plant nothing", KVB_FLAG(faults, list)},
    {"--format", "FORMAT", "table, md, csv, json, or html (a page)", KVB_FORMAT(faults, format, ", html")},
    KVB_OPTIONS_END,
};

/* ---- one place --------------------------------------------------------------------------------------------------- */

/* A parsed place: "workload[@values] cache pool kernel", then in any order a number of threads, "softcap", "sinks",
 * "before-rope", "sampled" (few rows are judged in full), "alone" (other rows get no second opinion), "deterministic",
 * "reserve" (pools grow by this policy), "restart". For single calls "AXIS=VALUE" chooses the calls with this value. */
#define WHERE_BYTES 96u
typedef struct spot {
    char words[WHERE_BYTES];
    char *at[4];
    char *threads, *values, *among;
    bool softcap, sinks, before_rope, sampled, alone, deterministic, reserve, restart;
} spot;

static const struct {
    const char *word;
    size_t flag; /* its offset in a spot */
} spot_flags[] = {{"softcap", offsetof(spot, softcap)},
                  {"sinks", offsetof(spot, sinks)},
                  {"before-rope", offsetof(spot, before_rope)},
                  {"sampled", offsetof(spot, sampled)},
                  {"alone", offsetof(spot, alone)},
                  {"deterministic", offsetof(spot, deterministic)},
                  {"reserve", offsetof(spot, reserve)},
                  {"restart", offsetof(spot, restart)}};

static void spot_parse(const char *where, spot *s)
{
    size_t n = 0;
    *s = (spot){.threads = "1"};
    snprintf(s->words, sizeof s->words, "%s", where);
    for (char *word = strtok(s->words, " "); word; word = strtok(NULL, " ")) {
        bool *flag = NULL;
        for (size_t i = 0; i < sizeof spot_flags / sizeof *spot_flags && n == 4; i++)
            if (!strcmp(word, spot_flags[i].word))
                flag = (bool *)((char *)s + spot_flags[i].flag);
        if (n < 4)
            s->at[n++] = word;
        else if (flag)
            *flag = true;
        else if (strchr(word, '='))
            s->among = word;
        else
            s->threads = word;
    }
    s->values = strchr(s->at[0], '@');
    if (s->values)
        *s->values++ = '\0';
}

/* A fault in one place. fault NULL: the honest combination. */
typedef struct trial {
    const kvb_fault *fault;
    kvb_check off; /* check that is off; KVB_CHECK_NONE: all are on */
    kvb_result result;
} trial;

/* Trials of one place share its oracle. Each trial is the combination with another copy of the kernel, which identifies
 * the trial. */
typedef struct place {
    const char *where;
    trial *trials; /* [n] */
    size_t n, taken;
    kvb_kernel copies[KVB_REGISTRY_MAX];
    const kvb_kernel *kernel;
} place;

static int result_take(void *ctx, const kvb_result *result)
{
    place *p = ctx;
    p->trials[p->taken++].result = *result;
    return 0;
}

/* Called in the child: plants the trial's fault. */
static int trial_enter(const void *ctx, kvb_replay_options *replay, char *why, size_t why_bytes)
{
    const place *p = ctx;
    const trial *t = &p->trials[(p->kernel->attend ? replay->kernel : replay->scan) - p->copies];
    replay->kernel = kvb_kernel_attending(p->kernel);
    replay->scan = kvb_kernel_scanning(p->kernel);
    if (t->off)
        kvb_checks_off |= UINT32_C(1) << t->off;
    replay->judges_k = t->fault && t->fault->check == KVB_CHECK_POOL;
    return t->fault ? kvb_fault_plant(t->fault, replay, why, why_bytes) : 0;
}

static int calls_judge(const faults *f, place *p);

/* Judges all trials of a place. seconds: time limit of a trial. 0, or an exit code after the error was printed. */
static int place_judge(const faults *f, place *p, double seconds)
{
    spot s;
    if (!strncmp(p->where, "calls ", strlen("calls ")))
        return calls_judge(f, p);
    char why[1024] = "no memory";
    spot_parse(p->where, &s);
    kvb_selection_words words = {.workloads = {.at = (const char **)&s.at[0], .n = 1},
                                 .caches = {.at = (const char **)&s.at[1], .n = 1},
                                 .pools = {.at = (const char **)&s.at[2], .n = 1},
                                 .kernels = {.at = (const char **)&s.at[3], .n = 1},
                                 .threads = {.at = (const char **)&s.threads, .n = 1},
                                 .values = {.at = (const char **)&s.values, .n = s.values != NULL},
                                 .witness = KVB_WITNESS_NONE};
    const kvb_suite *suite = kvb_suite_find("quick");
    const kvb_selections_options select = {
        .words = &words, .suite = suite, .registry = &f->registry, .oversubscribe = true};
    kvb_selections selections;
    int error = kvb_selections_make(&select, &selections, why, sizeof why);
    kvb_selection *one = selections.at;
    if (!error) {
        p->taken = 0;
        p->kernel = one->kernels[0];
        one->n_kernels = p->n;
        for (size_t i = 0; i < p->n; i++) {
            p->copies[i] = *p->kernel;
            one->kernels[i] = &p->copies[i];
        }
        free(one->has);
        one->n_has = 0;
        error = kvb_selection_deal(one, NULL, 0);
    }
    kvb_knobs knobs = kvb_knobs_usual();
    knobs.opinion_pairs = s.alone ? 0 : knobs.opinion_pairs;
    knobs.oracle_pairs = s.sampled ? 50000 : suite->parts[0].oracle_pairs;
    const kvb_matrix_options matrix = {
        .selection = one,
        .setting = {.min_chunk = 16, /* pools grow often */
                    .deterministic = s.deterministic,
                    .restart = s.restart,
                    .growth = s.reserve ? KVB_GROWTH_RESERVE : KVB_GROWTH_DOUBLE,
                    .logits = {.softcap = s.softcap ? 5 : 0, .sinks = s.sinks, .before_rope = s.before_rope}},
        .knobs = &knobs,
        .seconds = seconds,
        .untimed = true,
        .jobs = kvb_cores(),
        .enter = trial_enter,
        .enter_ctx = p,
        .take = result_take,
        .ctx = p};
    if (!error)
        error = kvb_matrix_run(&matrix, why, sizeof why);
    kvb_selections_free(&selections);
    if (kvb_stopped)
        return 0;
    return error ? kvb_complain("faults", error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s: %s", p->where, why)
                 : 0;
}

/* The same for the single calls of a kernel. The call that catches a fault must be right without the fault; trial 0 has
 * the first call that is not. */
static int calls_judge(const faults *f, place *p)
{
    kvb_attend_space space;
    spot s;
    char why[1024] = "no memory", found[KVB_CALL_TEXT];
    spot_parse(p->where, &s);
    kvb_attend_space_make(&f->registry, &space);
    const kvb_kernel *kernel = kvb_registry_find(&f->registry, KVB_KERNELS, s.at[3]);
    const kvb_call_subject honest = kernel->attend ? kvb_attend_subject(&space, kernel) : kvb_scan_subject(kernel);
    const kvb_calls_options planted = {.most = kvb_suite_find("quick")->calls,
                                       .seconds = 60,
                                       .jobs = kvb_cores(),
                                       .among = s.among,
                                       .found = found,
                                       .only_first = true,
                                       .as_found = true,
                                       .only_cheap = true,
                                       .command = ""};
    const kvb_calls_options same = {.call = found, .seconds = 60, .as_found = true, .command = ""};
    int error = 0;
    kvb_result_init(&p->trials[0].result);
    p->trials[0].result.status = KVB_STATUS_PASS;
    for (size_t i = 1; i < p->n && !error && !kvb_stopped; i++) {
        trial *t = &p->trials[i];
        kvb_replay_options replay = {.kernel = kernel, .scan = kernel};
        kvb_call_subject wrong = honest;
        const uint32_t off = kvb_checks_off;
        kvb_result_init(&t->result);
        error = kvb_fault_plant(t->fault, &replay, why, sizeof why);
        wrong.kernel = kernel->attend ? replay.kernel : replay.scan;
        kvb_checks_off |= t->off ? UINT32_C(1) << t->off : 0;
        error = error ? error : kvb_calls_judge(&planted, &wrong, &t->result, why, sizeof why);
        kvb_checks_off = off;
        if (!error && kvb_status_is_bad(t->result.status) && !kvb_status_is_bad(p->trials[0].result.status))
            error = kvb_calls_judge(&same, &honest, &p->trials[0].result, why, sizeof why);
    }
    return error && !kvb_stopped ? kvb_complain("faults", KVB_EXIT_MACHINE, "%s: %s", p->where, why) : 0;
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* Checks that each word matches a fault. An exit code. */
static int names_check(const faults *f)
{
    char known[8192] = "";
    for (size_t i = 0; i < f->names.n; i++) {
        bool met = false;
        for (const kvb_fault *const *table = kvb_fault_tables; *table && !met; table++)
            for (const kvb_fault *fault = *table; fault->name && !met; fault++) {
                met = fnmatch(f->names.at[i], fault->name, 0) == 0;
                kvb_list_add(known, sizeof known, ", ", "%s", fault->name);
            }
        if (!met)
            return kvb_unknown("faults", "unknown fault", f->names.at[i], known);
    }
    return 0;
}

/* A chosen fault in one of its places. */
typedef struct planting {
    const kvb_fault *fault;
    char where[WHERE_BYTES];
} planting;

#define MOST_PLANTINGS 1024u

static size_t plantings_take(const faults *f, planting *list)
{
    size_t n = 0;
    for (const kvb_fault *const *table = kvb_fault_tables; *table; table++)
        for (const kvb_fault *fault = *table; fault->name; fault++)
            for (const char *at = fault->where; *at && kvb_words_match(&f->names, fault->name) && n < MOST_PLANTINGS;
                 n++) {
                const size_t bytes = strcspn(at, ",");
                list[n].fault = fault;
                snprintf(list[n].where, sizeof list[n].where, "%.*s", (int)bytes, at);
                at += bytes + strspn(at + bytes, ", ");
            }
    return n;
}

static void trial_print(faults *f, const char *where, const trial *t, const trial *again)
{
    const kvb_fault *fault = t->fault;
    const kvb_result *r = &t->result;
    bool due = r->check == fault->check && r->status != KVB_STATUS_SKIP;
    /* a crash is found even if its check is off */
    bool alone = again && (again->result.check == KVB_CHECK_NONE || again->result.check == r->check);
    f->planted++;
    f->caught += due;
    f->by[r->check].first++;
    f->by[r->check].alone += alone;
    kvb_table_row(f->table,
                  (const char *const[]){due                            ? "caught"
                                        : r->status == KVB_STATUS_PASS ? "MISSED"
                                                                       : "OTHERWISE",
                                        fault->name, where, kvb_check_names[fault->check], kvb_check_names[r->check],
                                        !again  ? ""
                                        : alone ? "-"
                                                : kvb_check_names[again->result.check],
                                        fault->breaks, r->status == KVB_STATUS_PASS ? "" : r->reason});
}

/* Plants all chosen faults of a place, which must be right without them: those that hang, with a short time limit, or
 * the others. An exit code; 0 after a signal, and nothing is printed. */
static int place_run(faults *f, place *p, const planting *list, size_t n, bool hanging)
{
    const char *where = p->where;
    p->trials[0] = (trial){.fault = NULL};
    p->n = 1;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].where, where) && (list[i].fault->check == KVB_CHECK_TIMEOUT) == hanging &&
            p->n < KVB_REGISTRY_MAX)
            p->trials[p->n++] = (trial){.fault = list[i].fault};
    size_t n_first = p->n;
    double seconds = hanging ? 2 : 120;
    int code = n_first > 1 ? place_judge(f, p, seconds) : 0;
    const kvb_result *honest = &p->trials[0].result;
    if (code || n_first == 1 || kvb_stopped)
        return code;
    if (honest->status == KVB_STATUS_SKIP)
        return kvb_complain("faults", KVB_EXIT_OK, "note: %s: skipped: %s", where, honest->reason);
    if (honest->status != KVB_STATUS_PASS)
        return kvb_complain("faults", KVB_EXIT_FAILED, "%s fails without any fault: %s", where, honest->reason);
    trial *first = p->trials, *again = first + KVB_REGISTRY_MAX;
    for (size_t i = 0; i < n_first && f->alone; i++)
        again[i] = (trial){.fault = first[i].fault, .off = first[i].result.check};
    p->trials = again;
    code = f->alone ? place_judge(f, p, seconds) : 0;
    p->trials = first;
    for (size_t i = 1; i < n_first && !code && !kvb_stopped; i++)
        trial_print(f, where, &first[i], f->alone ? &again[i] : NULL);
    return code;
}

static int faults_plant(faults *f)
{
    planting *list = malloc(MOST_PLANTINGS * sizeof *list);
    place *p = malloc(sizeof *p);
    trial *trials = malloc(2 * KVB_REGISTRY_MAX * sizeof *trials);
    int code = list && p && trials ? 0 : kvb_complain("faults", KVB_EXIT_MACHINE, "no memory");
    size_t n = code ? 0 : plantings_take(f, list);
    f->chosen = n;
    for (size_t i = 0; i < n && !code && !kvb_stopped; i++) {
        bool met = false;
        for (size_t k = 0; k < i && !met; k++)
            met = !strcmp(list[k].where, list[i].where);
        p->where = list[i].where;
        p->trials = trials;
        for (int hanging = 0; hanging < 2 && !met && !code; hanging++)
            code = place_run(f, p, list, n, hanging);
    }
    free(trials);
    free(p);
    free(list);
    return code;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static int rows_print(const faults *f, kvb_table *rows)
{
    if (f->format != KVB_TABLE_HTML)
        return kvb_table_print(rows, f->format, stdout);
    kvb_page_begin("kvbench faults", "Planted faults, and the check that catches each", stdout);
    fputs("<div class=\"scroll\">\n", stdout);
    int error = kvb_table_print(rows, f->format, stdout);
    fputs("</div>\n", stdout);
    return error;
}

static int faults_list(const faults *f)
{
    kvb_table *table = kvb_table_new((const char *const[]){"fault", "caught by", "in", "what is wrong", NULL});
    planting *list = malloc(MOST_PLANTINGS * sizeof *list);
    int error = table && list ? 0 : -ENOMEM;
    const size_t n = error ? 0 : plantings_take(f, list);
    for (size_t i = 0; i < n; i++)
        kvb_table_row(table, (const char *const[]){list[i].fault->name, kvb_check_names[list[i].fault->check],
                                                   list[i].where, list[i].fault->breaks});
    error = error ? error : rows_print(f, table);
    if (f->format == KVB_TABLE_HTML)
        kvb_page_end(stdout);
    free(list);
    kvb_table_free(table);
    return kvb_printed("faults", error);
}

static kvb_table *checks_tell(const faults *f)
{
    kvb_table *table = kvb_table_new((const char *const[]){"check", ">caught first", ">nothing else does", NULL});
    for (int check = KVB_CHECK_NONE + 1; check < KVB_CHECKS; check++) {
        char alone[24] = "";
        if (f->alone)
            snprintf(alone, sizeof alone, "%zu", f->by[check].alone);
        kvb_table_put(table, "%s\t%zu\t%s", kvb_check_names[check], f->by[check].first, alone);
    }
    kvb_table_drop_empty(table);
    return table;
}

/* Prints the rows, then the faults that each check caught. */
static int faults_print(const faults *f)
{
    bool all = f->names.n == 0 && !f->without, page = f->format == KVB_TABLE_HTML;
    FILE *out = kvb_table_is_for_people(f->format) ? stdout : stderr;
    if (kvb_stopped) {
        const int code = kvb_printed("faults", f->planted ? rows_print(f, f->table) : 0);
        return kvb_complain("faults", code, "stopped by a signal after %zu of %zu", f->planted, f->chosen);
    }
    kvb_table *checks = checks_tell(f);
    size_t idle = 0;
    for (int check = KVB_CHECK_NONE + 1; check < KVB_CHECKS && all; check++)
        idle += f->by[check].first == 0;
    int error = rows_print(f, f->table);
    fputs(page ? "<h2>Checks</h2>\n" : "\n", out);
    const int told = kvb_table_end(checks, out == stdout ? f->format : KVB_TABLE_TEXT, out);
    error = error ? error : told;
    fprintf(out, "%s%zu planted, %zu caught by the check that is to, %zu not\n", page ? "<p>" : "\n", f->planted,
            f->caught, f->planted - f->caught);
    if (idle)
        fprintf(out, "%zu checks caught nothing\n", idle);
    if (page)
        kvb_page_end(stdout);
    int printed = kvb_printed("faults", error);
    return printed ? printed : f->caught < f->planted || idle ? KVB_EXIT_FAILED : KVB_EXIT_OK;
}

/* --without. An exit code. */
static int without_parse(const faults *f)
{
    char known[256] = "";
    for (int check = KVB_CHECK_NONE + 1; f->without && check < KVB_CHECKS; check++) {
        if (!strcmp(f->without, kvb_check_names[check])) {
            kvb_checks_off = UINT32_C(1) << check;
            return 0;
        }
        kvb_list_add(known, sizeof known, ", ", "%s", kvb_check_names[check]);
    }
    return f->without ? kvb_unknown("faults", "--without: unknown check", f->without, known) : 0;
}

static int faults_run(void *typed, int argc, char **argv)
{
    faults *f = typed;
    (void)argc, (void)argv;
    int code = without_parse(f);
    code = code ? code : names_check(f);
    if (code || f->list)
        return code ? code : faults_list(f);
    f->table = kvb_table_new(
        (const char *const[]){"verdict", "fault", "in", "due", "caught by", "else", "what is wrong", "said", NULL});
    kvb_registry_init(&f->registry);
    kvb_stop_catch();
    kvb_progress_start("faults", 0);
    code = faults_plant(f);
    kvb_progress_end();
    const int printed = faults_print(f);
    if (kvb_stopped)
        kvb_stop_die();
    kvb_table_free(f->table);
    return code ? code : printed;
}

const kvb_command kvb_command_faults = {
    .name = "faults",
    .summary = "plant faults: which check catches each",
    .run = faults_run,
    .bytes = sizeof(faults),
    .synopsis = "[NAME...] [options]",
    .about = "Plant faults in kernels, caches and pools, one at a time, and say which check catches each: the "
             "proof that the checks of `kvbench run` can fail. Each fault is planted in honest combinations, which "
             "must pass without it. Exit 1 if a fault is caught by another check than the one that is to catch it, "
             "or by none, or if a check catches nothing.\n\n"
             "  kvbench faults                     # all\n"
             "  kvbench faults 'key-*' out-zero    # these; globs\n"
             "  kvbench faults --without witness   # what would be missed?\n"
             "  kvbench faults --alone --format md # for each check: what it alone catches\n"
             "  kvbench faults --format html >faults.html",
    .options = options,
    .words = offsetof(faults, names),
    .takes_words = true,
};
