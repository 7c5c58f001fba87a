/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "caches/cache.h"
#include "harness/machine/team.h"
#include "harness/matrix/crew.h"
#include "harness/matrix/ground_truth.h"
#include "harness/program.h"
#include "harness/replay/child.h"
#include "kernels/kernels.h"
#include "workloads/array.h"
#include "workloads/files.h"
#include "workloads/live/play.h"

#define KVB_CACHES_CHAT "chat-requests"

/* ---- histories of real size, replayed over each cache; the work that a cache saves ----------------------------- */

enum {
    STEPS = 16,              /* decode steps of each stretch of a history; its other tokens enter at once */
    SECONDS = 300,           /* time limit of a replay */
    PAGE_CELLS = 16,         /* default of `kvbench run` */
    MIN_CHUNK = 256,         /* default of `kvbench run` */
    ORACLE_PAIRS = 4000000,  /* pairs of the sample that judges a replay */
    OPINION_PAIRS = 4000000, /* pairs of second opinions */
    TIMES = 3,               /* most columns with times of a history */
    FEW_PAIRS = 1000         /* pairs of an oracle that judges nothing */
};

/* ---- histories ------------------------------------------------------------------------------------------------- */

/* The shape of the layer that replays a history. */
typedef struct shape {
    uint32_t heads, kv_heads, dim;
} shape;
static const shape real = {32, 8, 128}, small = {1, 1, 16}; /* small: for counting rows and pairs */

/* A history that the program writes: a row of `histories`. */
typedef struct recipe {
    const char *name, *title, *source;
    void (*write)(FILE *f, uint32_t cells); /* writes events with about so many tokens in all; 0: as recorded */
    struct {
        const char *heading;
        kvb_step_kind kind;
    } times[TIMES]; /* columns of the history's table; ends with heading NULL */
    const char *legend;
} recipe;

/* A length, shrunk by the factor cells / all. cells 0: not shrunk. */
static uint32_t shrunk(uint32_t length, uint32_t cells, uint32_t all)
{
    return cells && cells < all ? (uint32_t)(length * (uint64_t)cells / all) : length;
}

static void fill_write(FILE *f, uint32_t seq, uint32_t n)
{
    fprintf(f, "{\"fill\":{\"seq\":%u,\"n\":%u}}\n", seq, n);
}

static void fork_write(FILE *f, uint32_t seq)
{
    fprintf(f, "{\"seq_cp\":{\"src\":0,\"dst\":%u}}\n", seq);
}

/* Writes STEPS steps of these n sequences together; updates their lengths. */
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

/*
 * Eight sub-agents of one coding agent, which begin with the same tokens (system prompt and tools). For each
 * sub-agent's first two turns: tokens appended to the context, tokens answered. Recorded: trace_0256, agents 004 to 006
 * and 008 to 012, of callanjfox/kv-cache-tester @94f6046d (Apache-2.0). It counts blocks of 64 tokens, so the beginning
 * is a multiple of 64.
 */
enum { BEGINNING = 9728, BRANCHES = 8, TURNS = 2 };
static const struct {
    uint32_t appended, answered;
} session[BRANCHES][TURNS] = {
    {{110, 250}, {1733, 246}}, {{141, 261}, {7622, 285}}, {{175, 275}, {1588, 275}}, {{248, 177}, {779, 122}},
    {{252, 262}, {1589, 282}}, {{128, 354}, {2986, 243}}, {{155, 404}, {458, 377}},  {{182, 193}, {4026, 202}},
};

/* A length of the session, shrunk, but long enough for decode steps. */
static uint32_t session_length(uint32_t length, uint32_t cells)
{
    uint32_t all = BEGINNING;
    for (int b = 0; b < BRANCHES; b++)
        for (int t = 0; t < TURNS; t++)
            all += session[b][t].appended + session[b][t].answered;
    length = shrunk(length, cells, all);
    return length > STEPS ? length : STEPS + 1;
}

/* Sequence 0 is the beginning, and is forked into branches. In each turn the appended tokens and the first part of the
 * answer enter at once, the rest of the answer in steps of all branches together. Finally sequence 0 decodes alone. */
static void session_write(FILE *f, uint32_t cells)
{
    const uint32_t all = session_length(BEGINNING, cells), zero = 0;
    uint32_t beginning = all - STEPS, seq[BRANCHES], length[BRANCHES];
    fill_write(f, 0, beginning);
    steps_write(f, &zero, &beginning, 1);
    for (uint32_t b = 0; b < BRANCHES; b++) {
        fork_write(f, seq[b] = b + 1);
        length[b] = all;
    }
    for (int t = 0; t < TURNS; t++) {
        for (uint32_t b = 0; b < BRANCHES; b++) {
            const uint32_t n = session_length(session[b][t].appended + session[b][t].answered, cells) - STEPS;
            fill_write(f, seq[b], n);
            length[b] += n;
        }
        steps_write(f, seq, length, BRANCHES);
    }
    fputs("{\"seq_keep\":{\"seq\":0}}\n", f);
    steps_write(f, &zero, &beginning, 1);
}

/*
 * Conversations of a chat service, with three requests each. For each request: tokens that it keeps from the request
 * before it (whole blocks of 512 tokens, or all but the last of the prompt), tokens of its prompt, tokens of its
 * answer. Recorded: the first eight conversations in order of arrival that have three requests with prompts below 8,192
 * tokens, from FAST25-release/traces/conversation_trace.jsonl of kvcache-ai/Mooncake @3b5a5941 (Apache-2.0). All begin
 * with the same block.
 */
enum { GREETING = 512, CONVERSATIONS = 8, REQUESTS = 3, ROUNDS = CONVERSATIONS / 2 + REQUESTS - 1 };
static const struct {
    uint32_t kept, prompt, answer;
} chat[CONVERSATIONS][REQUESTS] = {
    {{512, 2290, 316}, {2048, 2615, 451}, {2560, 3082, 239}}, {{512, 6059, 475}, {5632, 6549, 442}, {6144, 7002, 495}},
    {{512, 2038, 524}, {1536, 2590, 562}, {2560, 3181, 547}}, {{512, 1902, 587}, {1901, 1902, 654}, {1901, 1902, 661}},
    {{512, 1066, 324}, {1024, 1738, 269}, {1536, 2026, 339}}, {{512, 3184, 195}, {3072, 3378, 617}, {3072, 4010, 561}},
    {{512, 2651, 366}, {2560, 3024, 111}, {2560, 3142, 398}}, {{512, 2885, 613}, {2560, 3510, 760}, {3072, 6270, 492}},
};

/* Sequence 0 is the common first block. In each round two conversations arrive as forks of it, and each live
 * conversation makes a request: its sequence is cut back to the kept tokens, then the rest of prompt and answer enters
 * at once, except the last STEPS tokens, which all conversations decode together. After its last request a conversation
 * is removed. */
static void chat_write(FILE *f, uint32_t cells)
{
    uint32_t all = GREETING, held[CONVERSATIONS];
    for (int c = 0; c < CONVERSATIONS; c++)
        for (int r = 0; r < REQUESTS; r++)
            all += chat[c][r].prompt + chat[c][r].answer - chat[c][r].kept;
    fill_write(f, 0, shrunk(GREETING, cells, all));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t seq[CONVERSATIONS], length[CONVERSATIONS], n = 0;
        for (uint32_t c = 0; c < CONVERSATIONS; c++) {
            const uint32_t r = round - c / 2; /* wraps before conversation c arrives */
            if (r >= REQUESTS)
                continue;
            const uint32_t kept = shrunk(chat[c][r].kept, cells, all),
                           whole = shrunk(chat[c][r].prompt + chat[c][r].answer, cells, all),
                           fresh = whole > kept + STEPS ? whole - kept - STEPS : 1;
            if (r == 0)
                fork_write(f, c + 1);
            else
                fprintf(f, "{\"seq_rm\":{\"seq\":%u,\"p0\":%u}}\n", c + 1, kept < held[c] ? kept : held[c]);
            fill_write(f, c + 1, fresh);
            seq[n] = c + 1;
            length[n++] = (r && kept > held[c] ? held[c] : kept) + fresh;
        }
        steps_write(f, seq, length, n);
        for (uint32_t i = 0; i < n; i++) {
            held[seq[i] - 1] = length[i];
            if (round - (seq[i] - 1) / 2 == REQUESTS - 1)
                fprintf(f, "{\"seq_rm\":{\"seq\":%u}}\n", seq[i]);
        }
    }
}

/*
 * A draft tree behind a long context. The tree is EAGLE's (mc_sim_7b_63, SafeAILab/EAGLE, Apache-2.0); its root is the
 * last certain token. committed: tokens committed in each pass, the root included, as recorded for EAGLE-1 on
 * Vicuna-7B: the first 32 passes of question 81 of Spec-Bench (hemingkx/Spec-Bench, Apache-2.0). The record has no
 * paths, so all paths of that length take turns.
 */
enum { TRUNK = 8192, NODES = 26, PASSES = 32 };
static const int8_t tree[NODES] = {-1, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 6, 7, 7, 8, 13, 13, 13, 21, 21};
static const uint8_t committed[PASSES] = {4, 2, 4, 4, 1, 1, 3, 3, 3, 6, 4, 4, 5, 2, 2, 4,
                                          2, 2, 5, 6, 4, 2, 1, 4, 4, 2, 6, 6, 3, 2, 2, 4};

static void drafts_write(FILE *f, uint32_t cells)
{
    uint32_t depth[NODES] = {1}, wide[NODES + 1] = {[1] = 1};
    for (int i = 1; i < NODES; i++)
        wide[depth[i] = depth[tree[i]] + 1]++;
    fill_write(f, 0, shrunk(TRUNK, cells, TRUNK + PASSES * NODES) + 1);
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        const uint32_t n = committed[pass];
        uint32_t path[NODES];
        int node = 0;
        fputs("{\"propose\":{\"parents\":[", f);
        for (int i = 0; i < NODES; i++)
            fprintf(f, "%s%d", i ? "," : "", tree[i]);
        for (uint32_t before = pass % wide[n]; depth[node] != n || before--;)
            node++;
        for (uint32_t i = n; i-- > 0; node = tree[node])
            path[i] = (uint32_t)node;
        fputs("]}}\n{\"commit\":{\"accepted\":[", f);
        for (uint32_t i = 0; i < n; i++)
            fprintf(f, "%s%u", i ? "," : "", path[i]);
        fputs("]}}\n", f);
    }
}

static const recipe histories[] = {
    {.name = KVB_CACHES_SESSION,
     .title = "an agent's session: one beginning, 8 branches",
     .source = "recorded lengths: eight sub-agents behind one beginning, two turns each",
     .write = session_write,
     .times = {{"decode", KVB_KIND_DECODE}, {"branches", KVB_KIND_FORK}, {"fork", KVB_KIND_CONTROL}},
     .legend = "decode: a step of the beginning alone; branches: a step of all together\n"
               "fork: giving the beginning to a branch\n"},
    {.name = "chat-service",
     .title = "a chat service: 8 conversations of 3 requests",
     .source = "recorded lengths and prefixes: eight conversations of three requests, two arrive in each round",
     .write = chat_write,
     .times = {{"step", KVB_KIND_FORK}, {"control", KVB_KIND_CONTROL}},
     .legend = "step: of all conversations alive together; control: a fork of the first block,\n"
               "a cut back to what the next request keeps, or a conversation that leaves\n"},
    {.name = "draft-trees",
     .title = "32 draft trees of 25 nodes behind a long context",
     .source = "EAGLE's tree and recorded accepted lengths: 32 passes behind 8,192 tokens",
     .write = drafts_write,
     .times = {{"verify", KVB_KIND_VERIFY}, {"commit", KVB_KIND_CONTROL}},
     .legend = "verify: a step of a tree with its root; commit: what is accepted stays\n"},
    {.name = NULL},
};

/* Decodes one sequence token by token, from its first token on. */
static void decode_write(FILE *f, uint32_t tokens)
{
    for (uint32_t t = 0; t < tokens; t++)
        fprintf(f, "{\"step\":{\"pos\":[%u],\"seq\":[0]}}\n", t);
}

/* A history with its values, its oracle, and the crew that replays it. */
typedef struct history {
    kvb_trace *trace;
    kvb_values *values;
    kvb_truth truth;
    const kvb_pool_type *pool;
    kvb_crew *crew;
    kvb_caches *rows; /* where replays that have ended are added */
} history;

static void history_close(history *h)
{
    kvb_crew_close(h->crew);
    kvb_truth_close(&h->truth);
    kvb_values_free(h->values);
    kvb_trace_free(h->trace);
    *h = (history){.trace = NULL};
}

static int trace_make(const recipe *of, const shape *s, uint32_t tokens, kvb_trace **trace, char *why, size_t why_bytes)
{
    char path[64];
    const int fd = memfd_create("kvbench history", MFD_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    int error = 0;
    if (!f) {
        error = kvb_why_set(-errno, why, why_bytes, "a history in memory: %s", strerror(errno));
        close(fd);
        return error;
    }
    fprintf(f,
            "{\"kvbench_trace\":1,\"name\":\"%s\",\"source\":\"%s\",\"model\":{\"kv_cache.schema_version\":1,"
            "\"kv_cache.layers\":1,\"kv_cache.heads\":%u,\"kv_cache.kv_heads\":%u,\"kv_cache.k_dim\":%u,"
            "\"kv_cache.v_dim\":%u},\"values\":{\"profile\":\"llama\",\"seed\":1}}\n",
            of->name, of->source, s->heads, s->kv_heads, s->dim, s->dim);
    of->write(f, tokens);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fflush(f) || ferror(f))
        error = kvb_why_set(-EIO, why, why_bytes, "a history in memory cannot be written");
    if (!error)
        error = kvb_trace_load(path, 0, trace, why, why_bytes);
    fclose(f);
    return error;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* A kernel that only writes zeros: the replay counts the pairs that it would attend. */
static int zeros_attend(const kvb_attend *x)
{
    const kvb_problem *p = &x->problem;
    const size_t rows = (size_t)p->n_tok * p->n_heads;
    memset(x->out, 0, rows * p->v_dim * sizeof(float));
    for (size_t i = 0; x->lse && i < rows; i++)
        x->lse[i] = 0;
    return 0;
}

static const kvb_kernel zeros = {
    .name = "counted",
    .summary = "writes zeros",
    .flags = KVB_KERNEL_FRONTS,
    .masks = KVB_MASK_BIT(KVB_MASK_KINDS) - 1,
    .arithmetic = kvb_arithmetic_plain,
    .attend = zeros_attend,
};

/* ---- replays ----------------------------------------------------------------------------------------------------- */

static const char no_cache[] = "recompute";

static kvb_caches_row *row_add(kvb_caches *rows)
{
    if (kvb_array_reserve(&rows->at, &rows->room, rows->n + 1, sizeof *rows->at))
        return NULL;
    kvb_caches_row *row = &rows->at[rows->n++];
    *row = (kvb_caches_row){.rows = NAN, .pairs = NAN, .live_bytes = NAN, .moved_bytes = NAN};
    kvb_result_init(&row->result);
    return row;
}

/* Adds the row of a replay that has ended. ctx: its history. */
static int row_take(void *ctx, const kvb_result *result)
{
    const history *h = ctx;
    kvb_caches_row *row = row_add(h->rows);
    if (!row)
        return -ENOMEM;
    const kvb_group *g = &h->trace->header.model.groups[0];
    kvb_result *r = &row->result;
    const double cell =
        (double)(h->pool->row_bytes(h->pool, g->k_dim) + h->pool->row_bytes(h->pool, g->v_dim)) * g->kv_heads;
    *r = *result;
    row->tokens = (uint32_t)h->trace->needs.tokens;
    row->live_bytes = cell * h->trace->needs.cells;
    row->moved_bytes = r->memory.cells_moved * cell + r->memory.copied_bytes;
    if (!strcmp(r->kernel, zeros.name) && r->status == KVB_STATUS_PASS) {
        row->rows = r->memory.cells_written;
        row->pairs = r->traffic.flops / (2.0 * g->heads * (g->k_dim + g->v_dim));
        r->status = KVB_STATUS_COUNTED;
    }
    return 0;
}

/* judged: with an oracle for judging; false: replays are only counted. */
static int history_open(const recipe *of, const shape *s, uint32_t tokens, bool judged, kvb_caches *rows, history *h,
                        char *why, size_t why_bytes)
{
    *h = (history){.rows = rows};
    int error = trace_make(of, s, tokens, &h->trace, why, why_bytes);
    if (!error)
        error = kvb_values_make(h->trace, NULL, 0, &h->values, why, why_bytes);
    h->pool = kvb_bench_pool("f16");
    const kvb_truth_options options = {.trace = h->trace,
                                       .values = h->values,
                                       .pools = {h->pool, h->pool},
                                       .oracle = true,
                                       .max_pairs = judged ? ORACLE_PAIRS : FEW_PAIRS,
                                       .opinion_pairs = judged ? OPINION_PAIRS : 0,
                                       .seed = 1};
    if (!error)
        error = kvb_truth_open(&options, &h->truth, why, why_bytes);
    if (!error && !h->truth.oracle)
        error = kvb_why_set(-ENOTSUP, why, why_bytes, "%s", h->truth.oracle_why);
    if (!error)
        error = kvb_crew_open(kvb_cores(), row_take, h, &h->crew);
    if (error)
        history_close(h);
    return kvb_stopped ? -EINTR : error;
}

/* Replays the history over one cache; a replay that is not timed may go on beside others. counts: with the kernel that
 * only writes zeros. */
static int replay(const history *h, const kvb_caches_options *o, const kvb_cache_type *cache, kvb_growth growth,
                  bool counts)
{
    kvb_result named, *r = &named;
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
                   .scan = &kvb_kernel_scan,
                   .min_chunk = MIN_CHUNK,
                   .page_cells = PAGE_CELLS,
                   .knobs = &knobs,
                   .untimed = counts || o->untimed,
                   .unjudged = counts,
                   .peak_gflop_per_s = NAN},
    };
    kvb_result_begin(r, h->trace->header.name, cache->name, h->pool->name, h->pool->name, child.replay.kernel->name);
    snprintf(r->growth, sizeof r->growth, "%s", kvb_growth_names[growth]);
    r->threads = child.threads;
    kvb_progress_now("%s, %s%s", r->workload, r->cache, counts ? ", counting" : "");
    const bool fits = kvb_replay_fits(h->trace, cache, r->reason, sizeof r->reason) &&
                      kvb_growth_available(growth, r->reason, sizeof r->reason);
    const int error = kvb_crew_add(h->crew, fits ? &child : NULL, false, r);
    return kvb_stopped ? -EINTR : error;
}

/* Replays the history over each cache, and counts its work without a cache and with one. */
static int history_measure(const recipe *of, const kvb_caches_options *o, kvb_caches *rows, char *why, size_t why_bytes)
{
    static const kvb_cache_type *const counted[] = {&kvb_cache_seq, &kvb_cache_recompute};
    history h;
    int error = history_open(of, &real, o->cells, true, rows, &h, why, why_bytes);
    for (size_t c = 0; c < o->registry->n[KVB_CACHES] && !error; c++)
        if (strcmp(o->registry->at[KVB_CACHES][c].name, no_cache) != 0 &&
            kvb_words_match(&o->caches, o->registry->at[KVB_CACHES][c].name))
            error = replay(&h, o, o->registry->at[KVB_CACHES][c].definition, KVB_GROWTH_RESERVE, false);
    error = error ? error : kvb_crew_finish(h.crew);
    history_close(&h);
    if (!error)
        error = history_open(of, &small, o->cells, false, rows, &h, why, why_bytes);
    for (size_t c = 0; c < sizeof counted / sizeof *counted && !error; c++)
        error = replay(&h, o, counted[c], KVB_GROWTH_RESERVE, true);
    error = error ? error : kvb_crew_finish(h.crew);
    history_close(&h);
    return error;
}

/* Counts the work of decoding up to 2048 tokens without a cache and with one, and the bytes that growth copies. */
static int savings_measure(const kvb_caches_options *o, kvb_caches *rows, char *why, size_t why_bytes)
{
    static const uint32_t tokens[] = {256, 512, 1024, 2000, 2048};
    static const kvb_growth growths[] = {KVB_GROWTH_EXACT, KVB_GROWTH_DOUBLE, KVB_GROWTH_RESERVE};
    int error = 0;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && !error; i++) {
        char name[32];
        history h;
        snprintf(name, sizeof name, "decode-%u", tokens[i]);
        const recipe decode = {.name = name, .source = "one sequence, a token a step", .write = decode_write};
        if ((o->cells && tokens[i] > o->cells) || !kvb_words_match(&o->histories, name))
            continue;
        error = history_open(&decode, &small, tokens[i], false, rows, &h, why, why_bytes);
        if (!error)
            error = replay(&h, o, &kvb_cache_recompute, KVB_GROWTH_DOUBLE, true);
        for (size_t g = 0; g < sizeof growths / sizeof *growths && !error; g++)
            error = replay(&h, o, &kvb_cache_contiguous, growths[g], true);
        error = error ? error : kvb_crew_finish(h.crew);
        history_close(&h);
    }
    return error;
}

/* ---- requests of a chat service that fit into a fixed number of cells, by cache -------------------------------- */

enum {
    CELLS = 262144, /* of the memory */
    SHARED = 512,   /* first tokens that all requests have in common: one block of the recording */
    DIM = 16        /* of rows, in one head; only cells are counted */
};

/* A cache that is filled with requests. */
typedef struct filling {
    kvb_cache *cache;
    kvb_frozen *beginning; /* the common tokens, frozen; NULL: not yet, or the cache cannot freeze */
    uint32_t flags;
    int32_t *tokens; /* of the request; the first SHARED ids are the same for all requests, later ones unique */
} filling;

/* Tokens of prompt and answer of the first 40 requests in order of arrival, from
 * FAST25-release/traces/conversation_trace.jsonl of kvcache-ai/Mooncake @3b5a5941 (Apache-2.0). All begin with one
 * block. */
static const struct {
    uint32_t prompt, answer;
} requests[] = {
    {6758, 500},  {7322, 490},  {7236, 794},  {2290, 316},  {6760, 3},    {4834, 173},  {23141, 453}, {26888, 458},
    {10498, 402}, {17450, 610}, {13544, 71},  {87169, 402}, {6324, 548},  {2012, 354},  {7324, 14},   {9418, 145},
    {915, 355},   {12846, 466}, {20506, 929}, {16609, 349}, {26353, 370}, {6059, 475},  {5954, 420},  {11339, 848},
    {15172, 80},  {45922, 265}, {1053, 26},   {5710, 745},  {7238, 11},   {10355, 584}, {1477, 615},  {15366, 344},
    {3806, 309},  {8772, 1},    {26156, 238}, {16635, 449}, {2293, 31},   {1110, 240},  {3628, 555},  {2038, 524},
};
enum { ARRIVALS = sizeof requests / sizeof *requests };

static uint32_t length_of(uint32_t request)
{
    return requests[request].prompt + requests[request].answer;
}

/* Begins the request with tokens that the cache already has: *found of them. */
static int beginning_find(filling *f, uint32_t request, uint32_t *found)
{
    const uint64_t *ordinals;
    *found = 0;
    if (f->flags & KVB_CACHE_PREFIX)
        return kvb_cache_seq_match(f->cache, request, f->tokens, requests[request].prompt, 0, found, &ordinals);
    if (!f->beginning)
        return 0;
    *found = SHARED;
    return kvb_cache_seq_over(f->cache, request, f->beginning);
}

/* Stores a request from its first token to its last. */
static int request_store(filling *f, uint32_t request)
{
    const uint32_t length = length_of(request);
    uint32_t found;
    for (uint32_t i = 0; i < length; i++)
        f->tokens[i] = (int32_t)(i < SHARED ? i : (request + 1) << 20 | i);
    int error = beginning_find(f, request, &found);
    if (!error)
        error =
            kvb_play_tokens(f->cache, request, f->flags & KVB_CACHE_PREFIX ? f->tokens + found : NULL, length - found);
    if (!error && f->flags & KVB_CACHE_FREEZES && !f->beginning)
        error = kvb_cache_freeze(f->cache, request, SHARED, NULL, &f->beginning);
    return error;
}

/* Fills a cache with requests until one does not fit. */
static int cache_fill(filling *f, const kvb_cache_type *type, kvb_caches_row *row, char *why, size_t why_bytes)
{
    static const kvb_model model = {
        .n_layers = 1,
        .n_groups = 1,
        .groups = {{.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM, .scale = 0.25}},
    };
    kvb_allocator allocator = {.source = NULL};
    uint32_t longest = 0;
    for (uint32_t i = 0; i < ARRIVALS; i++)
        longest = length_of(i) > longest ? length_of(i) : longest;
    const kvb_cache_type *const slab = &kvb_cache_slab;
    kvb_cache_options options = {.capacity = CELLS,
                                 .seq_capacity = longest,
                                 .seq_ids = ARRIVALS,
                                 .max_seqs = type == slab ? CELLS / longest : ARRIVALS,
                                 .step = KVB_PLAY_STEP,
                                 .min_chunk = 256,
                                 .page_cells = 16,
                                 .growth = KVB_GROWTH_RESERVE,
                                 .k_pool = kvb_bench_pool("f16"),
                                 .v_pool = kvb_bench_pool("f16"),
                                 .allocator = &allocator};
    f->flags = type->flags;
    int error = kvb_cache_open(type, &model, &options, &f->cache, why, why_bytes);
    for (uint32_t i = 0; i < ARRIVALS && !error && !kvb_stopped; i++) {
        error = request_store(f, i);
        if (error == -ENOSPC)
            kvb_cache_seq_rm(f->cache, i, 0, KVB_POS_END); /* removes the part that was stored */
        row->alive += !error;
        row->tokens += error ? 0 : length_of(i);
    }
    if (f->cache) {
        kvb_cache_usage usage;
        kvb_cache_usage_of(f->cache, 0, &usage);
        row->used = usage.cells_live;
    }
    if (error && error != -ENOSPC && f->cache)
        snprintf(why, why_bytes, "%s: %s", type->name, kvb_cache_why(f->cache));
    kvb_frozen_release(f->beginning);
    f->beginning = NULL;
    kvb_cache_close(f->cache);
    f->cache = NULL;
    return error == -ENOSPC ? 0 : error;
}

/* Counts for each cache how many requests the memory holds at once, in order of arrival until one does not fit. */
static int caches_requests(kvb_caches *rows, char *why, size_t why_bytes)
{
    static const kvb_cache_type *const caches[] = {&kvb_cache_slab, &kvb_cache_paged, &kvb_cache_paged_prefix,
                                                   &kvb_cache_shared_prefix};
    filling f = {.tokens = calloc(CELLS, sizeof *f.tokens)};
    int error = f.tokens ? 0 : -ENOMEM;
    for (size_t i = 0; i < sizeof caches / sizeof *caches && !error; i++) {
        kvb_caches_row *row = row_add(rows);
        if (!row) {
            error = -ENOMEM;
            break;
        }
        kvb_progress_now("chat requests, %s", caches[i]->name);
        error = cache_fill(&f, caches[i], row, why, why_bytes);
        row->result.status = KVB_STATUS_COUNTED;
        snprintf(row->result.workload, KVB_NAME, KVB_CACHES_CHAT);
        snprintf(row->result.cache, KVB_NAME, "%s", caches[i]->name);
    }
    free(f.tokens);
    return kvb_stopped ? -EINTR : error;
}

int kvb_caches_measure(const kvb_caches_options *o, kvb_caches *rows, char *why, size_t why_bytes)
{
    int error = 0;
    *why = '\0';
    for (const recipe *r = histories; r->name && !error; r++)
        if (kvb_words_match(&o->histories, r->name))
            error = history_measure(r, o, rows, why, why_bytes);
    if (!error)
        error = savings_measure(o, rows, why, why_bytes);
    if (!error && kvb_words_match(&o->histories, KVB_CACHES_CHAT))
        error = caches_requests(rows, why, why_bytes);
    if (!error && !rows->n) {
        char names[256] = "";
        for (const recipe *r = histories; r->name; r++)
            kvb_list_add(names, sizeof names, ", ", "%s", r->name);
        error = kvb_why_set(-EINVAL, why, why_bytes, "none of %s, decode-*, " KVB_CACHES_CHAT, names);
    }
    if (error && !*why)
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static bool is_counted(const kvb_caches_row *row)
{
    return row->result.status == KVB_STATUS_COUNTED;
}

/* Is the row a judged replay of this history? */
static bool is_of(const kvb_caches_row *row, const recipe *of)
{
    return !is_counted(row) && !strcmp(row->result.workload, of->name) && strcmp(row->result.kernel, zeros.name);
}

/* The counted row of that history, cache and growth (NULL: any). NULL: none. */
static const kvb_caches_row *counted_find(const kvb_caches *rows, const char *workload, const char *cache,
                                          const char *growth)
{
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_result *r = &rows->at[i].result;
        if (is_counted(&rows->at[i]) && !strcmp(r->workload, workload) && !strcmp(r->cache, cache) &&
            (!growth || !strcmp(r->growth, growth)))
            return &rows->at[i];
    }
    return NULL;
}

/* The median; "noisy": its interval is wider than half of it; "-": not timed. */
static kvb_number median_text(const kvb_time_stats *time)
{
    static const kvb_number untimed = {"-"}, noisy = {"noisy"};
    if (!time->samples)
        return untimed;
    return time->high - time->low <= time->median / 2 ? kvb_time_text(time->median) : noisy;
}

/* A ratio: one decimal below ten thousand. */
static kvb_number ratio_of(double a, double b)
{
    kvb_number out;
    if (!(a / b < 9999.95))
        return kvb_whole_text(a / b);
    snprintf(out.text, sizeof out.text, "%.1f", a / b);
    return out;
}

/* Prints the history's work without a cache: "at least", since tokens that enter at once count as one step. */
static void no_cache_print(const kvb_caches *rows, const recipe *of, FILE *out)
{
    const kvb_caches_row *without = counted_find(rows, of->name, no_cache, NULL),
                         *with = counted_find(rows, of->name, kvb_cache_seq.name, NULL);
    if (without && with)
        fprintf(out, "no cache: at least %s x seq's token rows, %s x its query-cell pairs\n",
                ratio_of(without->rows, with->rows).text, ratio_of(without->pairs, with->pairs).text);
}

static const kvb_caches_row *history_find(const kvb_caches *rows, const recipe *of)
{
    for (size_t i = 0; i < rows->n; i++)
        if (is_of(&rows->at[i], of))
            return &rows->at[i];
    return NULL;
}

static void title_print(const recipe *of, const kvb_caches_row *row, FILE *out)
{
    fprintf(out, "%s, %s tokens in all, f16\n", of->title, kvb_whole_text(row->tokens).text);
}

void kvb_caches_small_print(const kvb_caches *rows, FILE *out)
{
    const recipe *of = &histories[0];
    const kvb_caches_row *first = history_find(rows, of);
    size_t column = 0;
    if (!first)
        return;
    fputs("small?  ", out);
    title_print(of, first, out);
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_result *r = &rows->at[i].result;
        char text[KVB_NAME + KVB_UNIT_TEXT + 8];
        if (!is_of(&rows->at[i], of) || r->status == KVB_STATUS_SKIP)
            continue;
        const size_t n = (size_t)snprintf(text, sizeof text, "   %s %s", r->cache,
                                          r->status == KVB_STATUS_PASS ? kvb_bytes_text(r->memory.allocator_peak).text
                                                                       : kvb_status_name(r->status));
        if (column && column + n > 80) {
            fputc('\n', out);
            column = 0;
        }
        fputs(text, out);
        column += n;
    }
    fputs("\n   ", out);
    no_cache_print(rows, of, out);
}

/* Prints a line for each cache that did not pass: wrong ones first, then those that cannot replay the history. */
static void reasons_print(const kvb_caches *rows, const recipe *of, FILE *out)
{
    for (int skips = 0; skips < 2; skips++) {
        bool any = false;
        for (size_t i = 0; i < rows->n; i++) {
            const kvb_result *r = &rows->at[i].result;
            char beginning[KVB_NAME + 8];
            const size_t n = (size_t)snprintf(beginning, sizeof beginning, "cache %s ", r->cache);
            if (strcmp(r->workload, of->name) != 0 ||
                !(skips ? r->status == KVB_STATUS_SKIP : kvb_status_is_bad(r->status)))
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

static int history_print(const kvb_caches *rows, const recipe *of, kvb_table_format format, FILE *out)
{
    enum { FIRST = 4 };
    static const char *const common[FIRST] = {"cache", ">memory", ">waste", ">copied"};
    const kvb_caches_row *first = history_find(rows, of);
    const char *headings[FIRST + TIMES + 1] = {NULL};
    char heading[TIMES][16];
    memcpy(headings, common, sizeof common);
    for (size_t t = 0; t < TIMES && of->times[t].heading; t++) {
        snprintf(heading[t], sizeof heading[t], ">%s", of->times[t].heading);
        headings[FIRST + t] = heading[t];
    }
    if (!first)
        return 0;
    kvb_table *table = kvb_table_new(headings);
    title_print(of, first, out);
    fprintf(out, "a layer, %u KV heads x %u, %u query heads each; flash, %u thread%s, growth %s\n\n", real.kv_heads,
            real.dim, real.heads / real.kv_heads, first->result.threads, first->result.threads > 1 ? "s" : "",
            first->result.growth);
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_caches_row *row = &rows->at[i];
        const kvb_result *r = &row->result;
        kvb_number text[FIRST + TIMES];
        const char *cells[FIRST + TIMES] = {r->cache};
        if (!is_of(row, of) || r->status != KVB_STATUS_PASS)
            continue;
        text[1] = kvb_bytes_text(r->memory.allocator_peak);
        text[2] = kvb_bytes_text(fmax(0, r->memory.reserved_bytes - row->live_bytes));
        text[3] = kvb_bytes_text(row->moved_bytes);
        for (size_t t = 0; t < TIMES; t++)
            text[FIRST + t] = median_text(&r->time.kinds[of->times[t].kind]);
        for (size_t c = 1; c < FIRST + TIMES; c++)
            cells[c] = text[c].text;
        kvb_table_row(table, cells);
    }
    const int error = kvb_table_end(table, format, out);
    fprintf(out, "\n%s", of->legend);
    no_cache_print(rows, of, out);
    reasons_print(rows, of, out);
    fputc('\n', out);
    return error;
}

static int histories_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    bool any = false;
    int error = 0;
    for (const recipe *r = histories; r->name && !error; r++) {
        error = history_print(rows, r, format, out);
        any |= history_find(rows, r) != NULL;
    }
    if (any)
        fputs("memory: most that the cache held; waste: of it, beyond the rows of live tokens\n"
              "copied: by forks, commits and growth\n",
              out);
    return error;
}

/* The exponent x in a quantity ~ tokens^x that grows from a to b between two rows. */
static double slope(double a, double b, const kvb_caches_row *from, const kvb_caches_row *to)
{
    return log(b / a) / log((double)to->tokens / from->tokens);
}

/* Prints how work grows from the shortest to the longest history. */
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

/* Rows that growth copied; K and V of a token count as one. */
static kvb_number copied(const kvb_caches *rows, const kvb_caches_row *of, kvb_growth growth)
{
    const kvb_caches_row *row = counted_find(rows, of->result.workload, of->result.cache, kvb_growth_names[growth]);
    static const kvb_number none = {"-"};
    return row ? kvb_whole_text(row->moved_bytes / (row->live_bytes / row->tokens)) : none;
}

static int savings_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    static const char *const headings[] = {">tokens",        ">rows without", ">with",  ">ratio",
                                           ">pairs without", ">with",         ">ratio", NULL};
    static const char *const copy_headings[] = {">tokens", ">exact (concatenation)", ">double", ">reserve", NULL};
    const kvb_caches_row *ends[2][2] = {{NULL}};
    kvb_table *work = kvb_table_new(headings), *copies = kvb_table_new(copy_headings);
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_caches_row *without = &rows->at[i];
        if (strncmp(without->result.workload, "decode-", 7) || strcmp(without->result.cache, no_cache) != 0)
            continue;
        const kvb_caches_row *with = counted_find(rows, without->result.workload, kvb_cache_contiguous.name,
                                                  kvb_growth_names[KVB_GROWTH_DOUBLE]);
        if (!with || !is_counted(without))
            continue;
        kvb_table_put(work, "%s\t%s\t%s\t%s\t%s\t%s\t%s", kvb_whole_text(without->tokens).text,
                      kvb_whole_text(without->rows).text, kvb_whole_text(with->rows).text,
                      ratio_of(without->rows, with->rows).text, kvb_whole_text(without->pairs).text,
                      kvb_whole_text(with->pairs).text, ratio_of(without->pairs, with->pairs).text);
        kvb_table_put(copies, "%s\t%s\t%s\t%s", kvb_whole_text(without->tokens).text,
                      copied(rows, with, KVB_GROWTH_EXACT).text, copied(rows, with, KVB_GROWTH_DOUBLE).text,
                      copied(rows, with, KVB_GROWTH_RESERVE).text);
        ends[0][!!ends[0][0]] = without;
        ends[1][!!ends[1][0]] = with;
    }
    if (!ends[0][0]) {
        kvb_table_free(work);
        kvb_table_free(copies);
        return work && copies ? 0 : -ENOMEM;
    }
    fputs("\nwhat a cache saves: decoding n tokens in a layer; token rows computed, and\n"
          "query-cell pairs attended, without a cache and with one\n\n",
          out);
    const int error = kvb_table_end(work, format, out);
    if (ends[0][1])
        slopes_print(ends, out);
    fputs("\nrows that a growing cache copies, by how it grows\n\n", out);
    const int later = kvb_table_end(copies, format, out);
    return error ? error : later;
}

static int requests_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    static const char *const headings[] = {"cache", ">requests", ">tokens", ">cells", NULL};
    kvb_table *table = kvb_table_new(headings);
    bool any = false;
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_caches_row *row = &rows->at[i];
        if (strcmp(row->result.workload, KVB_CACHES_CHAT) != 0)
            continue;
        if (!any)
            fprintf(out,
                    "\nchat requests of recorded lengths that %s cells hold at once, in order of\n"
                    "arrival; all begin with the same 512 tokens; slab: a row for the longest each\n\n",
                    kvb_whole_text(CELLS).text);
        any = true;
        kvb_table_put(table, "%s\t%s\t%s\t%s", row->result.cache, kvb_whole_text(row->alive).text,
                      kvb_whole_text(row->tokens).text, kvb_whole_text(row->used).text);
    }
    if (any)
        return kvb_table_end(table, format, out);
    kvb_table_free(table);
    return table ? 0 : -ENOMEM;
}

/* A number in a format of printf; not finite: "". */
static kvb_number number(const char *format, double value)
{
    kvb_number out = {""};
    if (isfinite(value))
        snprintf(out.text, sizeof out.text, format, value);
    return out;
}

static int programs_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    static const char *const headings[] = {
        "history",     "cache",           "growth",      "kernel",        ">threads",   "status",       ">tokens",
        ">peak_bytes", ">reserved_bytes", ">live_bytes", ">copied_bytes", ">decode_ns", ">branches_ns", ">fork_ns",
        ">rows",       ">pairs",          ">alive",      ">used_cells",   ">rho",       "reason",       NULL};
    kvb_table *table = kvb_table_new(headings);
    for (size_t i = 0; i < rows->n; i++) {
        const kvb_caches_row *row = &rows->at[i];
        const kvb_result *r = &row->result;
        const kvb_time_stats *times = r->time.kinds;
        const double none = NAN, alive = row->alive ? row->alive : none, used = row->alive ? row->used : none;
        kvb_table_put(table, "%s\t%s\t%s\t%s\t%u\t%s\t%u\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s",
                      r->workload, r->cache, r->growth, r->kernel, r->threads, kvb_status_name(r->status), row->tokens,
                      number("%.0f", r->memory.allocator_peak).text, number("%.0f", r->memory.reserved_bytes).text,
                      number("%.0f", row->live_bytes).text, number("%.0f", row->moved_bytes).text,
                      number("%.0f", times[KVB_KIND_DECODE].median).text,
                      number("%.0f", times[KVB_KIND_FORK].median).text,
                      number("%.0f", times[KVB_KIND_CONTROL].median).text, number("%.0f", row->rows).text,
                      number("%.0f", row->pairs).text, number("%.0f", alive).text, number("%.0f", used).text,
                      number("%.3g", r->rho).text, r->reason);
    }
    return kvb_table_end(table, format, out);
}

int kvb_caches_print(const kvb_caches *rows, kvb_table_format format, FILE *out)
{
    if (!kvb_table_is_for_people(format))
        return programs_print(rows, format, out);
    int error = histories_print(rows, format, out);
    error = error ? error : savings_print(rows, format, out);
    error = error ? error : requests_print(rows, format, out);
    return error || !ferror(out) ? error : -EIO;
}
