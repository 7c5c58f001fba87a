/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of real size as recipes, replayed over each cache; and counting what a cache saves. */
#include "harness/bench/caches.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/interrupt.h"
#include "harness/machine/host.h"
#include "harness/machine/team.h"
#include "harness/matrix/ground_truth.h"
#include "harness/progress.h"
#include "harness/replay/child.h"
#include "kernels/kernels.h"
#include "workloads/array.h"

enum {
    STEPS = 16,              /* decode steps of each stretch of the session; the other tokens enter at once */
    SECONDS = 300,           /* time limit of a replay */
    PAGE_CELLS = 16,         /* as `kvbench run` has it */
    MIN_CHUNK = 256,         /* likewise */
    ORACLE_PAIRS = 4000000,  /* of the sample that judges a replay */
    OPINION_PAIRS = 4000000, /* of second opinions */
    FEW_PAIRS = 1000         /* of an oracle that judges nothing */
};

/* ---- histories ------------------------------------------------------------------------------------------------- */

/* The layer that a history is replayed at. */
typedef struct shape {
    uint32_t heads, kv_heads, dim;
} shape;
static const shape real = {32, 8, 128}, small = {1, 1, 16}; /* small: for counting rows and pairs */

/*
 * Eight sub-agents of one coding agent, which begin with the same tokens (system prompt and tools): tokens appended to the
 * context and tokens answered, in each sub-agent's first two turns. Recorded: trace_0256, agents 004 to 006 and 008 to 012, of
 * callanjfox/kv-cache-tester @94f6046d (Apache-2.0); blocks of 64 tokens, so the beginning is a multiple of 64.
 */
enum { BEGINNING = 9728, BRANCHES = 8, TURNS = 2 };
static const struct {
    uint32_t appended, answered;
} session[BRANCHES][TURNS] = {
    {{110, 250}, {1733, 246}}, {{141, 261}, {7622, 285}}, {{175, 275}, {1588, 275}}, {{248, 177}, {779, 122}},
    {{252, 262}, {1589, 282}}, {{128, 354}, {2986, 243}}, {{155, 404}, {458, 377}},  {{182, 193}, {4026, 202}},
};

static uint32_t session_tokens(void)
{
    uint32_t tokens = BEGINNING;
    for (int b = 0; b < BRANCHES; b++)
        for (int t = 0; t < TURNS; t++)
            tokens += session[b][t].appended + session[b][t].answered;
    return tokens;
}

/* A length, shrunk to `cells` of the session's tokens (0: not at all), and at least long enough for decode steps. */
static uint32_t shrunk(uint32_t length, uint32_t cells)
{
    const uint64_t all = session_tokens();
    if (cells && cells < all)
        length = (uint32_t)(length * (uint64_t)cells / all);
    return length > STEPS ? length : STEPS + 1;
}

static void header_write(FILE *f, const char *name, const char *source, const shape *s)
{
    fprintf(f,
            "{\"kvbench_trace\":1,\"name\":\"%s\",\"source\":\"%s\",\"model\":{\"kv_cache.schema_version\":1,"
            "\"kv_cache.layers\":1,\"kv_cache.heads\":%u,\"kv_cache.kv_heads\":%u,\"kv_cache.k_dim\":%u,"
            "\"kv_cache.v_dim\":%u},\"values\":{\"profile\":\"llama\",\"seed\":1}}\n",
            name, source, s->heads, s->kv_heads, s->dim, s->dim);
}

/* STEPS steps of these n sequences together; moves their lengths on. */
static void steps_write(FILE *f, const uint32_t *seq, uint32_t *length, uint32_t n)
{
    for (int step = 0; step < STEPS; step++) {
        fputs("{\"step\":{\"pos\":[", f);
        for (uint32_t i = 0; i < n; i++)
            fprintf(f, "%s%u", i ? "," : "", length[i]++);
        fputs("],\"seq\":[", f);
        for (uint32_t i = 0; i < n; i++)
            fprintf(f, "%s%u", i ? "," : "", seq[i]);
        fputs("]}}\n", f);
    }
}

/* The beginning as sequence 0, forked into branches; each turn: what it appends and the first part of the answer at once, the rest
 * of the answer in steps of all branches together. In the end the beginning alone goes on. */
static void session_write(FILE *f, const shape *s, uint32_t cells)
{
    const uint32_t all = shrunk(BEGINNING, cells), zero = 0;
    uint32_t beginning = all - STEPS, seq[BRANCHES], length[BRANCHES];
    header_write(f, "agent-session", "recorded lengths: eight sub-agents behind one beginning, two turns each", s);
    fprintf(f, "{\"fill\":{\"seq\":0,\"n\":%u}}\n", beginning);
    steps_write(f, &zero, &beginning, 1);
    for (uint32_t b = 0; b < BRANCHES; b++) {
        seq[b] = b + 1;
        length[b] = all;
        fprintf(f, "{\"seq_cp\":{\"src\":0,\"dst\":%u}}\n", seq[b]);
    }
    for (int t = 0; t < TURNS; t++) {
        for (uint32_t b = 0; b < BRANCHES; b++) {
            const uint32_t n = shrunk(session[b][t].appended + session[b][t].answered, cells) - STEPS;
            fprintf(f, "{\"fill\":{\"seq\":%u,\"n\":%u}}\n", seq[b], n);
            length[b] += n;
        }
        steps_write(f, seq, length, BRANCHES);
    }
    fputs("{\"seq_keep\":{\"seq\":0}}\n", f);
    steps_write(f, &zero, &beginning, 1);
}

/* One sequence, token by token from the first on. */
static void decode_write(FILE *f, const shape *s, uint32_t tokens)
{
    char name[32];
    snprintf(name, sizeof name, "decode-%u", tokens);
    header_write(f, name, "one sequence, a token a step", s);
    for (uint32_t t = 0; t < tokens; t++)
        fprintf(f, "{\"step\":{\"pos\":[%u],\"seq\":[0]}}\n", t);
}

typedef void history_write(FILE *f, const shape *s, uint32_t tokens);

/* A history with its values and what judges it. */
typedef struct history {
    kvb_trace *trace;
    kvb_values *values;
    kvb_truth truth;
    const kvb_pool_type *pool;
} history;

static void history_close(history *h)
{
    kvb_truth_close(&h->truth);
    kvb_values_free(h->values);
    kvb_trace_free(h->trace);
    *h = (history){.trace = NULL};
}

static int trace_make(history_write *write, const shape *s, uint32_t tokens, kvb_trace **trace, char *why,
                      size_t why_bytes)
{
    char path[64];
    const int fd = memfd_create("kvbench history", MFD_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    int error = f ? 0 : -errno;
    if (error) {
        snprintf(why, why_bytes, "a history in memory: %s", strerror(-error));
        if (fd >= 0)
            close(fd);
        return error;
    }
    write(f, s, tokens);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fflush(f) || ferror(f)) {
        error = -EIO;
        snprintf(why, why_bytes, "a history in memory cannot be written");
    }
    if (!error)
        error = kvb_trace_load(path, 0, trace, why, why_bytes);
    fclose(f);
    return error;
}

static void team_parallel(void *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    const kvb_team *t = team;
    t->run(t, part, ctx);
}

static int values_make(history *h, char *why, size_t why_bytes)
{
    kvb_threads *threads;
    int error = kvb_threads_start(kvb_cores(), false, &threads);
    if (error) {
        snprintf(why, why_bytes, "threads: %s", strerror(-error));
        return error;
    }
    error = kvb_values_open(h->trace, NULL, 0, team_parallel, (void *)(uintptr_t)kvb_threads_team(threads), &h->values,
                            why, why_bytes);
    kvb_threads_end(threads);
    return error;
}

/* judged: else only counted. */
static int history_open(history_write *write, const shape *s, uint32_t tokens, bool judged, history *h, char *why,
                        size_t why_bytes)
{
    *h = (history){.trace = NULL};
    int error = trace_make(write, s, tokens, &h->trace, why, why_bytes);
    if (!error)
        error = values_make(h, why, why_bytes);
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        if (!strcmp((*p)->name, "f16"))
            h->pool = *p;
    const kvb_truth_options options = {.trace = h->trace,
                                       .values = h->values,
                                       .pools = {h->pool, h->pool},
                                       .oracle = true,
                                       .max_pairs = judged ? ORACLE_PAIRS : FEW_PAIRS,
                                       .opinion_pairs = judged ? OPINION_PAIRS : 0,
                                       .seed = 1};
    if (!error)
        error = kvb_truth_open(&options, &h->truth, why, why_bytes);
    if (!error && !h->truth.oracle) {
        error = -ENOTSUP;
        snprintf(why, why_bytes, "%s", h->truth.oracle_why);
    }
    if (error)
        history_close(h);
    return kvb_stopped ? -EINTR : error;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* A kernel that only writes zeros: the replay counts what it would attend. */
static int zeros_attend(const kvb_attend *x)
{
    const kvb_problem *p = &x->problem;
    const size_t rows = (size_t)p->n_tok * p->n_heads;
    memset(x->out, 0, rows * p->v_dim * sizeof(float));
    for (size_t i = 0; x->lse && i < rows; i++)
        x->lse[i] = 0;
    return 0;
}

static void zeros_arithmetic(const kvb_problem *p, kvb_arithmetic *a)
{
    *a = (kvb_arithmetic){.dot_chain = p->k_dim, .cell_chain = p->n_cells};
}

static const kvb_kernel zeros = {
    .name = "counted",
    .summary = "writes zeros",
    .flags = KVB_KERNEL_FRONTS,
    .masks = KVB_MASK_BIT(KVB_MASK_KINDS) - 1,
    .arithmetic = zeros_arithmetic,
    .attend = zeros_attend,
};

/* ---- replays ----------------------------------------------------------------------------------------------------- */

static const char no_cache[] = "recompute";

static kvb_caches_row *row_add(kvb_caches *rows)
{
    if (kvb_array_reserve(&rows->at, &rows->room, rows->n + 1, sizeof *rows->at))
        return NULL;
    kvb_caches_row *row = &rows->at[rows->n++];
    *row = (kvb_caches_row){.rows = NAN, .pairs = NAN};
    kvb_result_init(&row->result);
    return row;
}

static void row_fill(const history *h, const kvb_child_options *child, kvb_caches_row *row)
{
    const kvb_group *g = &h->trace->header.model.groups[0];
    const kvb_result *r = &row->result;
    const double cell =
        (double)(h->pool->row_bytes(h->pool, g->k_dim) + h->pool->row_bytes(h->pool, g->v_dim)) * g->kv_heads;
    row->tokens = (uint32_t)h->trace->needs.tokens;
    row->live_bytes = cell * h->trace->needs.cells;
    row->moved_bytes = r->memory.cells_moved * cell + r->memory.copied_bytes;
    if (child->replay.kernel == &zeros && r->status == KVB_STATUS_PASS) {
        row->rows = r->memory.cells_written;
        row->pairs = r->traffic.flops / (2.0 * g->heads * (g->k_dim + g->v_dim));
    }
}

/* One cache over the history. counts: with the kernel that attends nothing. */
static int replay(const history *h, const kvb_caches_options *o, const kvb_cache_type *cache, kvb_growth growth,
                  bool counts, kvb_caches *rows)
{
    kvb_caches_row *row = row_add(rows);
    if (!row)
        return -ENOMEM;
    kvb_result *r = &row->result;
    kvb_knobs knobs = kvb_knobs_usual();
    knobs.max_pairs = UINT64_MAX;
    knobs.sample_ms = (uint64_t)(1e3 * o->seconds);
    knobs.width = 0;
    knobs.no_guard = true;
    const kvb_child_options child = {
        .threads = counts ? 1 : o->threads,
        .seconds = SECONDS,
        .replay = {.trace = h->trace,
                   .values = h->values,
                   .oracle = h->truth.oracle,
                   .cache = cache,
                   .k_pool = h->pool,
                   .v_pool = h->pool,
                   .growth = growth,
                   .kernel = counts ? &zeros : &kvb_kernel_flash,
                   .scan = &kvb_scan_kernel_vector,
                   .min_chunk = MIN_CHUNK,
                   .page_cells = PAGE_CELLS,
                   .knobs = &knobs,
                   .untimed = counts || o->untimed,
                   .unjudged = counts,
                   .peak_gflop_per_s = NAN},
    };
    snprintf(r->workload, sizeof r->workload, "%s", h->trace->header.name);
    snprintf(r->cache, sizeof r->cache, "%s", cache->name);
    snprintf(r->pool_k, sizeof r->pool_k, "%s", h->pool->name);
    snprintf(r->pool_v, sizeof r->pool_v, "%s", h->pool->name);
    snprintf(r->kernel, sizeof r->kernel, "%s", child.replay.kernel->name);
    snprintf(r->growth, sizeof r->growth, "%s", kvb_growth_names[growth]);
    r->threads = child.threads;
    kvb_progress_now("%s, %s%s", r->workload, r->cache, counts ? ", counting" : "");
    int error = 0;
    if (kvb_replay_fits(h->trace, cache, r->reason, sizeof r->reason) &&
        kvb_growth_available(growth, r->reason, sizeof r->reason))
        error = kvb_child_run(&child, r);
    row_fill(h, &child, row);
    return kvb_stopped ? -EINTR : error;
}

/* Says what an error was, where nothing has said so. */
static int end(int error, char *why, size_t why_bytes)
{
    if (error && !*why)
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}

int kvb_caches_session(const kvb_caches_options *o, kvb_caches *rows, char *why, size_t why_bytes)
{
    history h;
    *why = '\0';
    int error = history_open(session_write, &real, o->cells, true, &h, why, why_bytes);
    for (const kvb_cache_type *const *c = kvb_builtin_caches; *c && !error; c++)
        if (strcmp((*c)->name, no_cache) != 0)
            error = replay(&h, o, *c, KVB_GROWTH_RESERVE, false, rows);
    history_close(&h);
    if (!error)
        error = history_open(session_write, &small, o->cells, false, &h, why, why_bytes);
    if (!error)
        error = replay(&h, o, &kvb_cache_seq, KVB_GROWTH_RESERVE, true, rows);
    if (!error)
        error = replay(&h, o, &kvb_cache_recompute, KVB_GROWTH_RESERVE, true, rows);
    history_close(&h);
    return end(error, why, why_bytes);
}

static const uint32_t savings_tokens[] = {256, 512, 1024, 2000, 2048};
enum { SAVINGS = sizeof savings_tokens / sizeof *savings_tokens };

int kvb_caches_savings(const kvb_caches_options *o, kvb_caches *rows, char *why, size_t why_bytes)
{
    static const kvb_growth growths[] = {KVB_GROWTH_EXACT, KVB_GROWTH_DOUBLE, KVB_GROWTH_RESERVE};
    int error = 0;
    *why = '\0';
    for (int i = 0; i < SAVINGS && !error; i++) {
        history h;
        if (o->cells && savings_tokens[i] > o->cells)
            continue;
        error = history_open(decode_write, &small, savings_tokens[i], false, &h, why, why_bytes);
        if (!error)
            error = replay(&h, o, &kvb_cache_recompute, KVB_GROWTH_DOUBLE, true, rows);
        for (size_t g = 0; g < sizeof growths / sizeof *growths && !error; g++)
            error = replay(&h, o, &kvb_cache_contiguous, growths[g], true, rows);
        history_close(&h);
    }
    return end(error, why, why_bytes);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static bool is_counted(const kvb_caches_row *row)
{
    return !strcmp(row->result.kernel, zeros.name);
}

static bool is_session(const kvb_caches_row *row)
{
    return !strcmp(row->result.workload, "agent-session");
}

/* The row of that history and cache that was counted, and passed; NULL: none. */
static const kvb_caches_row *counted_find(const kvb_caches *rows, const char *workload, const char *cache,
                                          const char *growth)
{
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_result *r = &rows->at[i].result;
        if (is_counted(&rows->at[i]) && r->status == KVB_STATUS_PASS && !strcmp(r->workload, workload) &&
            !strcmp(r->cache, cache) && (!growth || !strcmp(r->growth, growth)))
            return &rows->at[i];
    }
    return NULL;
}

/* "noisy" where the interval is wider than half of the median; "-" where nothing was timed. */
static void median_text(const kvb_time_stats *time, char text[KVB_UNIT_TEXT])
{
    if (!time->samples)
        snprintf(text, KVB_UNIT_TEXT, "-");
    else if (!(time->high - time->low <= time->median / 2))
        snprintf(text, KVB_UNIT_TEXT, "noisy");
    else
        kvb_time_text(time->median, text);
}

/* "1,234,567" */
static void thousands_text(double number, char text[32])
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", number);
    size_t used = 0;
    for (int i = 0; i < n && used < 30; i++) {
        if (i && (n - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
}

/* A ratio: one decimal below ten thousand. */
static void ratio_text(double ratio, char text[32])
{
    if (ratio < 9999.95)
        snprintf(text, 32, "%.1f", ratio);
    else
        thousands_text(ratio, text);
}

/* What the session takes without a cache; at least, since tokens that enter at once are counted as one step. */
static void no_cache_print(const kvb_caches *rows, FILE *out)
{
    const kvb_caches_row *without = counted_find(rows, "agent-session", no_cache, NULL),
                         *with = counted_find(rows, "agent-session", kvb_cache_seq.name, NULL);
    char computed[32], pairs[32];
    if (!without || !with)
        return;
    ratio_text(without->rows / with->rows, computed);
    ratio_text(without->pairs / with->pairs, pairs);
    fprintf(out, "no cache: at least %s x seq's token rows, %s x its query-cell pairs\n", computed, pairs);
}

static const kvb_caches_row *session_find(const kvb_caches *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        if (is_session(&rows->at[i]) && !is_counted(&rows->at[i]))
            return &rows->at[i];
    return NULL;
}

static void session_name(const kvb_caches_row *row, FILE *out)
{
    char tokens[32];
    thousands_text(row->tokens, tokens);
    fprintf(out, "an agent's session: one beginning, %d branches, %s tokens in all, f16\n", BRANCHES, tokens);
}

void kvb_caches_small_print(const kvb_caches *rows, FILE *out)
{
    const kvb_caches_row *first = session_find(rows);
    size_t column = 0;
    if (!first)
        return;
    fputs("small?  ", out);
    session_name(first, out);
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_result *r = &rows->at[i].result;
        char bytes[KVB_UNIT_TEXT], text[KVB_NAME + KVB_UNIT_TEXT + 8];
        if (!is_session(&rows->at[i]) || is_counted(&rows->at[i]) || r->status == KVB_STATUS_SKIP)
            continue;
        kvb_bytes_text(r->memory.allocator_peak, bytes);
        const size_t n = (size_t)snprintf(text, sizeof text, "   %s %s", r->cache,
                                          r->status == KVB_STATUS_PASS ? bytes : kvb_status_name(r->status));
        if (column && column + n > 80) {
            fputc('\n', out);
            column = 0;
        }
        fputs(text, out);
        column += n;
    }
    fputs("\n   ", out);
    no_cache_print(rows, out);
}

/* What did not pass: what is wrong, then what cannot replay the history, a line each. */
static void reasons_print(const kvb_caches *rows, FILE *out)
{
    for (int skips = 0; skips < 2; skips++) {
        bool any = false;
        for (size_t i = 0; i < rows->n; i++) {
            const kvb_result *r = &rows->at[i].result;
            char beginning[KVB_NAME + 8];
            const size_t n = (size_t)snprintf(beginning, sizeof beginning, "cache %s ", r->cache);
            if (r->status == KVB_STATUS_PASS || (r->status == KVB_STATUS_SKIP) != skips)
                continue;
            if (!any)
                fputs(skips ? "caches that cannot replay it:\n" : "WRONG:\n", out);
            any = true;
            fprintf(out, "  %s: ", r->cache);
            kvb_plain_put(r->reason + (strncmp(r->reason, beginning, n) ? 0 : n), out);
            fputc('\n', out);
        }
    }
}

static int session_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    static const char *const headings[] = {"cache",   ">memory",   ">waste", ">copied",
                                           ">decode", ">branches", ">fork",  NULL};
    const kvb_caches_row *first = session_find(rows);
    if (!first)
        return 0;
    kvb_table *table = kvb_table_new(headings);
    int error = table ? 0 : -ENOMEM;
    session_name(first, out);
    fprintf(out, "a layer, %u KV heads x %u, %u query heads each; flash, %u thread%s, growth %s\n\n", real.kv_heads,
            real.dim, real.heads / real.kv_heads, first->result.threads, first->result.threads > 1 ? "s" : "",
            first->result.growth);
    for (size_t i = 0; i < rows->n && !error; i++) {
        const kvb_caches_row *row = &rows->at[i];
        const kvb_result *r = &row->result;
        char memory[KVB_UNIT_TEXT], waste[KVB_UNIT_TEXT], copied[KVB_UNIT_TEXT], decode[KVB_UNIT_TEXT],
            branches[KVB_UNIT_TEXT], fork[KVB_UNIT_TEXT];
        if (!is_session(row) || is_counted(row) || r->status != KVB_STATUS_PASS)
            continue;
        kvb_bytes_text(r->memory.allocator_peak, memory);
        kvb_bytes_text(fmax(0, r->memory.reserved_bytes - row->live_bytes), waste);
        kvb_bytes_text(row->moved_bytes, copied);
        median_text(&r->time.kinds[KVB_KIND_DECODE], decode);
        median_text(&r->time.kinds[KVB_KIND_FORK], branches);
        median_text(&r->time.kinds[KVB_KIND_CONTROL], fork);
        const char *const cells[] = {r->cache, memory, waste, copied, decode, branches, fork};
        error = kvb_table_row(table, cells);
    }
    error = error ? error : kvb_table_print(table, format, out);
    kvb_table_free(table);
    fputs("\nmemory: most that the cache held; waste: of it, beyond the rows of live tokens\n"
          "copied: by forks and growth; decode: a step of the beginning alone\n"
          "branches: a step of all together; fork: giving the beginning to a branch\n",
          out);
    no_cache_print(rows, out);
    reasons_print(rows, out);
    return error;
}

/* The exponent of what grows from a to b while tokens do. */
static double slope(double a, double b, const kvb_caches_row *from, const kvb_caches_row *to)
{
    return log(b / a) / log((double)to->tokens / from->tokens);
}

/* How work grows between the shortest and the longest history. */
static void slopes_print(const kvb_caches_row *const ends[2][2], FILE *out)
{
    const kvb_caches_row *const *without = ends[0], *const *with = ends[1];
    if (!without[0] || without[0]->tokens == without[1]->tokens)
        return;
    fprintf(out, "rows grow as n^%.2f without a cache, n^%.2f with one; pairs as n^%.2f, n^%.2f\n",
            slope(without[0]->rows, without[1]->rows, without[0], without[1]),
            slope(with[0]->rows, with[1]->rows, with[0], with[1]),
            slope(without[0]->pairs, without[1]->pairs, without[0], without[1]),
            slope(with[0]->pairs, with[1]->pairs, with[0], with[1]));
}

/* Rows that growth copied: K and V of a token are one. */
static void copied_text(const kvb_caches *rows, const kvb_caches_row *of, kvb_growth growth, char text[32])
{
    const kvb_caches_row *row = counted_find(rows, of->result.workload, of->result.cache, kvb_growth_names[growth]);
    snprintf(text, 32, "-");
    if (row)
        thousands_text(row->moved_bytes / (row->live_bytes / row->tokens), text);
}

static int savings_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    static const char *const headings[] = {">tokens",        ">rows without", ">with",  ">ratio",
                                           ">pairs without", ">with",         ">ratio", NULL};
    static const char *const copy_headings[] = {">tokens", ">exact (concatenation)", ">double", ">reserve", NULL};
    const kvb_caches_row *ends[2][2] = {{NULL}};
    kvb_table *work = kvb_table_new(headings), *copies = kvb_table_new(copy_headings);
    int error = work && copies ? 0 : -ENOMEM;
    for (size_t i = 0; i < rows->n && !error; i++) {
        const kvb_caches_row *without = &rows->at[i];
        char tokens[32], text[6][32], grown[3][32];
        if (is_session(without) || strcmp(without->result.cache, no_cache) != 0)
            continue;
        const kvb_caches_row *with = counted_find(rows, without->result.workload, kvb_cache_contiguous.name,
                                                  kvb_growth_names[KVB_GROWTH_DOUBLE]);
        if (!with || without->result.status != KVB_STATUS_PASS)
            continue;
        thousands_text(without->tokens, tokens);
        thousands_text(without->rows, text[0]);
        thousands_text(with->rows, text[1]);
        ratio_text(without->rows / with->rows, text[2]);
        thousands_text(without->pairs, text[3]);
        thousands_text(with->pairs, text[4]);
        ratio_text(without->pairs / with->pairs, text[5]);
        error =
            kvb_table_row(work, (const char *const[]){tokens, text[0], text[1], text[2], text[3], text[4], text[5]});
        copied_text(rows, with, KVB_GROWTH_EXACT, grown[0]);
        copied_text(rows, with, KVB_GROWTH_DOUBLE, grown[1]);
        copied_text(rows, with, KVB_GROWTH_RESERVE, grown[2]);
        error = error ? error : kvb_table_row(copies, (const char *const[]){tokens, grown[0], grown[1], grown[2]});
        ends[0][!!ends[0][0]] = without;
        ends[1][!!ends[1][0]] = with;
    }
    if (!error && ends[0][0]) {
        fputs("\nwhat a cache saves: decoding n tokens in a layer; token rows computed, and\n"
              "query-cell pairs attended, without a cache and with one\n\n",
              out);
        error = kvb_table_print(work, format, out);
        if (ends[0][1])
            slopes_print(ends, out);
        fputs("\nrows that a growing cache copies, by how it grows\n\n", out);
        error = error ? error : kvb_table_print(copies, format, out);
    }
    kvb_table_free(work);
    kvb_table_free(copies);
    return error;
}

static int requests_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    static const char *const headings[] = {"cache", ">requests", ">tokens", ">cells", NULL};
    kvb_table *table = kvb_table_new(headings);
    int error = table ? 0 : -ENOMEM;
    uint32_t cells = 0;
    for (size_t i = 0; i < rows->n && !error; i++) {
        const kvb_caches_row *row = &rows->at[i];
        char alive[32], tokens[32], used[32];
        if (strcmp(row->result.workload, KVB_CACHES_CHAT) != 0)
            continue;
        cells = row->cells;
        thousands_text(row->alive, alive);
        thousands_text(row->tokens, tokens);
        thousands_text(row->used, used);
        error = kvb_table_row(table, (const char *const[]){row->result.cache, alive, tokens, used});
    }
    if (!error && cells) {
        char text[32];
        thousands_text(cells, text);
        fprintf(out,
                "\nchat requests of recorded lengths that %s cells hold at once, in order of\n"
                "arrival; all begin with the same 512 tokens; slab: a row for the longest each\n\n",
                text);
        error = kvb_table_print(table, format, out);
    }
    kvb_table_free(table);
    return error;
}

/* A whole number, or nothing where it is not known. */
static void number_text(double number, char text[32])
{
    text[0] = '\0';
    if (isfinite(number))
        snprintf(text, 32, "%.0f", number);
}

static int programs_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    static const char *const headings[] = {
        "history",     "cache",           "growth",      "kernel",        ">threads",   "status",       ">tokens",
        ">peak_bytes", ">reserved_bytes", ">live_bytes", ">copied_bytes", ">decode_ns", ">branches_ns", ">fork_ns",
        ">rows",       ">pairs",          ">alive",      ">used_cells",   ">rho",       "reason",       NULL};
    kvb_table *table = kvb_table_new(headings);
    int error = table ? 0 : -ENOMEM;
    for (size_t i = 0; i < rows->n && !error; i++) {
        const kvb_caches_row *row = &rows->at[i];
        const kvb_result *r = &row->result;
        const double numbers[] = {r->threads,
                                  row->tokens,
                                  r->memory.allocator_peak,
                                  r->memory.reserved_bytes,
                                  row->live_bytes,
                                  row->moved_bytes,
                                  r->time.kinds[KVB_KIND_DECODE].median,
                                  r->time.kinds[KVB_KIND_FORK].median,
                                  r->time.kinds[KVB_KIND_CONTROL].median,
                                  row->rows,
                                  row->pairs,
                                  row->alive ? (double)row->alive : (double)NAN,
                                  row->alive ? (double)row->used : (double)NAN};
        char text[sizeof numbers / sizeof *numbers][32], rho[32] = "";
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            number_text(numbers[n], text[n]);
        if (isfinite(r->rho))
            snprintf(rho, sizeof rho, "%.3g", r->rho);
        const char *const cells[] = {r->workload, r->cache, r->growth, r->kernel, text[0],  kvb_status_name(r->status),
                                     text[1],     text[2],  text[3],   text[4],   text[5],  text[6],
                                     text[7],     text[8],  text[9],   text[10],  text[11], text[12],
                                     rho,         r->reason};
        error = kvb_table_row(table, cells);
    }
    error = error ? error : kvb_table_print(table, format, out);
    kvb_table_free(table);
    return error;
}

int kvb_caches_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    if (!kvb_table_is_for_people(format))
        return programs_print(rows, format, out);
    int error = session_print(rows, format, out);
    error = error ? error : savings_print(rows, format, out);
    error = error ? error : requests_print(rows, format, out);
    return error || !ferror(out) ? error : -EIO;
}
