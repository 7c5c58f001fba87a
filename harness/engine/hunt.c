/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of the table: one configuration of an engine. A child process opens the sessions and forks a child for each
 * history. So an engine that aborts or hangs ends only one history, and every history begins with freshly opened
 * sessions. A wrong history is shrunk to the fewest and smallest calls that are wrong in the same way.
 */
#include "harness/engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/program.h"
#include "harness/replay/child.h"

#define OPEN_SECONDS  60
#define MEMORY_BYTES  (16ull << 30)
#define PLAYED        42 /* exit status of a child that has played its history */
#define SHRINK_TRIALS 150u
#define COARSE        1e-2 /* a larger error of the format may hide a wrong row */
#define SHRUNK        3u   /* shrunk histories of a known difference; later ones with its signature are only counted */

typedef struct hunt {
    kvb_engine_row *row;
    kvb_engine_bench bench;
    kvb_engine_outcome *outcome; /* shared with the playing child */
    const kvb_engine_history *history;
    bool watched; /* the history is played with config.watched, for blame() */
    int output;   /* file with the engine's stdout and stderr */
} hunt;

/* ---- one history ------------------------------------------------------------------------------------------------- */

/* The last line of the engine's output. */
static void output_last(int fd, char *line, size_t bytes)
{
    char text[4096];
    const off_t size = lseek(fd, 0, SEEK_END);
    const off_t from = size > (off_t)sizeof text - 1 ? size - (off_t)sizeof text + 1 : 0;
    ssize_t n = pread(fd, text, sizeof text - 1, from);
    text[n > 0 ? n : 0] = '\0';
    while (n > 0 && strchr("\n ", text[n - 1]))
        text[--n] = '\0';
    const char *last = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
    const char *colon = *last == '/' ? strchr(last, ':') : NULL; /* a path: only the file's name */
    while (colon && colon > last && colon[-1] != '/')
        colon--;
    snprintf(line, bytes, "%.150s", colon ? colon : last);
}

static void history_play(void *ctx)
{
    hunt *h = ctx;
    struct stat tasks; /* a folder with one for each thread, and two links of its own */
    if (h->watched) {
        kvb_engine_config config = h->row->config;
        kvb_engine_facts facts;
        char why[256];
        config.watched = true;
        h->row->engine->close(h->bench.subject);
        if (h->row->engine->open(&config, &h->bench.subject, &facts, why, sizeof why))
            _exit(0);
        h->bench.watched = true;
    }
    kvb_engine_play(&h->bench, h->history, h->outcome);
    h->outcome->threads = !stat("/proc/self/task", &tasks) && tasks.st_nlink > 3;
    _exit(PLAYED);
}

static kvb_engine_outcome play(hunt *h, const kvb_engine_history *history)
{
    h->history = history;
    *h->outcome = (kvb_engine_outcome){0};
    if (ftruncate(h->output, 0) < 0)
        return *h->outcome;
    int status = 0;
    const pid_t pid = kvb_process_start(history_play, h);
    const bool in_time = pid > 0 && kvb_process_wait(pid, h->row->seconds, &status);
    if (kvb_stopped)
        return *h->outcome;
    if (!in_time || !WIFEXITED(status) || WEXITSTATUS(status) != PLAYED) {
        char said[160];
        output_last(h->output, said, sizeof said);
        h->outcome->kind = KVB_ENGINE_DIES;
        snprintf(h->outcome->what, sizeof h->outcome->what, "%s%s%s%s",
                 !in_time              ? "it hangs"
                 : WIFSIGNALED(status) ? "it ends by signal "
                                       : "it ends itself",
                 in_time && WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "", *said ? ": " : "", said);
    } else if (!*h->row->printed) {
        output_last(h->output, h->row->printed, sizeof h->row->printed);
    }
    return *h->outcome;
}

/* ---- shrinking --------------------------------------------------------------------------------------------------- */

typedef struct shrinking {
    hunt *hunt;
    kvb_engine_history best;
    kvb_engine_outcome outcome;
    uint32_t trials;
} shrinking;

/* Is the trial wrong in the same way? Then it becomes the best. */
static bool try(shrinking *s, const kvb_engine_history *trial)
{
    char why[128];
    if (s->trials >= SHRINK_TRIALS || kvb_stopped || !trial->n ||
        kvb_engine_history_check(trial, &s->hunt->bench.facts, why, sizeof why))
        return false;
    s->trials++;
    const kvb_engine_outcome o = play(s->hunt, trial);
    if (o.kind != s->outcome.kind)
        return false;
    s->best = *trial;
    s->best.n = o.event + 1 < trial->n ? o.event + 1 : trial->n; /* calls behind the wrong one are dropped */
    s->outcome = o;
    return true;
}

static bool calls_drop(shrinking *s)
{
    bool any = false;
    for (uint32_t width = s->best.n / 2; width; width /= 2)
        for (uint32_t at = 0; at + width <= s->best.n;) {
            kvb_engine_history trial = s->best;
            memmove(&trial.at[at], &trial.at[at + width], (trial.n - at - width) * sizeof *trial.at);
            trial.n -= width;
            if (try(s, &trial))
                any = true;
            else
                at++;
        }
    return any;
}

/* Tries smaller values of a field of call i, the smallest first. */
static bool number_lower(shrinking *s, uint32_t i, size_t field, int64_t least)
{
    int32_t now;
    bool any = false;
    memcpy(&now, (char *)&s->best.at[i] + field, sizeof now);
    const int64_t tries[] = {least, least + 1, now / 2, (int64_t)now - 1};
    for (size_t t = 0; t < sizeof tries / sizeof *tries && now != KVB_ENGINE_END; t++) {
        kvb_engine_history trial = s->best;
        const int32_t value = (int32_t)tries[t];
        if (tries[t] < least || tries[t] >= now)
            continue;
        memcpy((char *)&trial.at[i] + field, &value, sizeof value);
        if (try(s, &trial)) {
            any = true;
            break;
        }
    }
    return any;
}

static bool numbers_lower(shrinking *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->best.n; i++) {
        const kvb_engine_verb verb = s->best.at[i].verb;
        for (uint32_t q = 0; i < s->best.n && verb == KVB_ENGINE_DECODE && q < KVB_ENGINE_SEQS; q++) {
            if (!s->best.at[i].n[q])
                continue;
            kvb_engine_history trial = s->best; /* drop this sequence, unless it is the only one */
            trial.at[i].n[q] = 0;
            if (memcmp(trial.at[i].n, (uint32_t[KVB_ENGINE_SEQS]){0}, sizeof trial.at[i].n) && try(s, &trial))
                any = true;
            else
                any = number_lower(s, i, offsetof(kvb_engine_call, n) + q * sizeof(uint32_t), 1) || any;
        }
        if (i < s->best.n && verb == KVB_ENGINE_SHIFT && s->best.at[i].delta > 1)
            any = number_lower(s, i, offsetof(kvb_engine_call, delta), 1) || any;
        if (i < s->best.n && verb != KVB_ENGINE_DECODE)
            any = number_lower(s, i, offsetof(kvb_engine_call, p0), 0) || any;
        if (i < s->best.n && s->best.at[i].p1 != KVB_ENGINE_END)
            any = number_lower(s, i, offsetof(kvb_engine_call, p1), 1) || any;
    }
    return any;
}

static uint32_t seq_renamed(uint32_t seq, uint32_t a, uint32_t b)
{
    return seq == a ? b : seq == b ? a : seq;
}

/* Numbers sequences in the order of their first appearance. */
static void sequences_rename(shrinking *s)
{
    for (uint32_t a = 0; a < KVB_ENGINE_SEQS; a++)
        for (uint32_t b = a + 1; b < KVB_ENGINE_SEQS; b++) {
            kvb_engine_history trial = s->best;
            uint32_t first[2] = {UINT32_MAX, UINT32_MAX}; /* 2 * index of the call; a copy's destination: plus 1 */
            for (uint32_t i = trial.n; i--;) {
                kvb_engine_call *c = &trial.at[i];
                const bool decodes = c->verb == KVB_ENGINE_DECODE;
                const bool copies = c->verb == KVB_ENGINE_COPY;
                if (decodes ? c->n[a] : c->seq == a || (copies && c->to == a))
                    first[0] = 2 * i + (!decodes && c->seq != a);
                if (decodes ? c->n[b] : c->seq == b || (copies && c->to == b))
                    first[1] = 2 * i + (!decodes && c->seq != b);
                const uint32_t n = c->n[a];
                c->n[a] = c->n[b];
                c->n[b] = n;
                c->to = seq_renamed(c->to, a, b);
                c->seq = c->seq == KVB_ENGINE_ALL ? c->seq : seq_renamed(c->seq, a, b);
            }
            if (first[1] < first[0])
                try(s, &trial);
        }
}

/* ---- the row ----------------------------------------------------------------------------------------------------- */

static kvb_engine_finding *finding_of(kvb_engine_row *row, const kvb_engine_history *history, kvb_engine_kind kind,
                                      const kvb_engine_known *known)
{
    for (uint32_t i = 0; i < row->n_found; i++) {
        kvb_engine_finding *f = &row->found[i];
        bool alike = f->outcome.kind == kind && f->known == known && (known || f->history.n == history->n);
        for (uint32_t c = 0; c < history->n && alike && !known; c++)
            alike = f->history.at[c].verb == history->at[c].verb;
        if (alike)
            return f;
    }
    return NULL;
}

static void finding_add(hunt *h, const kvb_engine_history *history, const kvb_engine_outcome *outcome, uint64_t seed)
{
    kvb_engine_row *row = h->row;
    shrinking s = {.hunt = h, .best = *history, .outcome = *outcome};
    s.best.n = outcome->event + 1 < s.best.n ? outcome->event + 1 : s.best.n;
    row->wrong++;
    for (uint32_t i = 0; i < row->n_found && seed;
         i++) { /* shrunk often enough: this history counts as one more of the same */
        kvb_engine_finding *f = &row->found[i];
        if (f->known && f->times >= SHRUNK && f->outcome.kind == outcome->kind &&
            kvb_engine_known_signed(f->known, &s.best)) {
            f->times++;
            return;
        }
    }
    for (bool any = seed; any;) {
        any = calls_drop(&s);
        any = numbers_lower(&s) || any;
    }
    if (seed)
        sequences_rename(&s);
    h->watched = s.outcome.kind == KVB_ENGINE_LOGITS && row->engine->blame;
    const kvb_engine_outcome seen = h->watched ? play(h, &s.best) : s.outcome;
    h->watched = false;
    if (seen.kind == s.outcome.kind) /* blame() reads the mask of one layer; others may have windows */
        s.outcome = seen;
    const kvb_engine_known *known =
        row->fault ? NULL : kvb_engine_known_find(&row->facts, &row->config, &s.best, s.outcome.kind);
    kvb_engine_finding *f = finding_of(row, &s.best, s.outcome.kind, known);
    if (!f && row->n_found < KVB_ENGINE_FINDINGS) {
        f = &row->found[row->n_found++];
        *f = (kvb_engine_finding){.history = s.best, .outcome = s.outcome, .known = known, .seed = seed};
    }
    if (!f)
        row->n_lost++;
    else
        f->times++;
}

static void tally(kvb_engine_row *row, const kvb_engine_history *history, const kvb_engine_outcome *o)
{
    row->histories++;
    for (uint32_t i = 0; i <= o->event && i < history->n; i++)
        row->made[history->at[i].verb]++;
    if (o->kind && o->event < history->n)
        row->wrong_at[history->at[o->event].verb]++;
    row->judged += o->judged;
    row->unjudged += o->unjudged;
    row->threads = row->threads || o->threads;
}

static void judge(hunt *h, const kvb_engine_history *history, uint64_t seed)
{
    kvb_engine_row *row = h->row;
    const kvb_engine_outcome o = play(h, history);
    if (kvb_stopped)
        return;
    tally(row, history, &o);
    if (o.kind)
        finding_add(h, history, &o, seed);
    else if (o.limit > 0 && o.error / o.limit > row->worst)
        row->worst = o.error / o.limit;
}

/* Plays the scripts of known rows: they must be wrong in the row's builds, and right in all others. */
static void known_judge(hunt *h)
{
    kvb_engine_row *row = h->row;
    for (const kvb_engine_known *k = kvb_engine_known_rows; k->name && !kvb_stopped; k++) {
        kvb_engine_history history;
        char why[128];
        if (!kvb_engine_known_fits(k, &row->facts, &row->config) || (*k->families && !*row->config.family) ||
            kvb_engine_history_parse(k->script, &history, why, sizeof why) ||
            kvb_engine_history_check(&history, &row->facts, why, sizeof why))
            continue;
        const bool expected = row->facts.number >= k->first && row->facts.number <= k->last;
        const kvb_engine_outcome o = play(h, &history);
        tally(row, &history, &o);
        const bool coarse = k->kind == KVB_ENGINE_LOGITS && h->bench.format > COARSE;
        const kvb_engine_known *also =
            o.kind ? kvb_engine_known_find(&row->facts, &row->config, &history, o.kind) : NULL;
        if (expected && o.kind == k->kind)
            finding_add(h, &history, &o, 0);
        else if (expected && !also && !coarse && row->n_vanished < KVB_ENGINE_FINDINGS)
            row->vanished[row->n_vanished++] = k;
        else if (!o.kind && row->n_right < KVB_ENGINE_FINDINGS)
            row->right[row->n_right++] = k;
        else if (!expected && o.kind && !also && row->n_back < KVB_ENGINE_FINDINGS)
            row->back[row->n_back++] = k;
    }
}

static void row_run(void *ctx)
{
    hunt *h = ctx;
    kvb_engine_row *row = h->row;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    setrlimit(RLIMIT_AS, &(struct rlimit){MEMORY_BYTES, MEMORY_BYTES});
#endif
    dup2(h->output, STDOUT_FILENO);
    dup2(h->output, STDERR_FILENO);
    alarm(OPEN_SECONDS);
    row->error = kvb_engine_bench_open(&h->bench, row->engine, &row->config, row->fault, row->why, sizeof row->why);
    alarm(0);
    row->facts = h->bench.facts;
    if (*row->config.family || row->facts.layers > 1 || row->facts.recurrent)
        memcpy(row->without, h->bench.without, sizeof row->without);
    for (uint32_t i = 0; i < row->n_scripts && !row->error; i++) {
        row->error = kvb_engine_history_check(&row->scripts[i], &row->facts, row->why, sizeof row->why);
        if (!row->error)
            judge(h, &row->scripts[i], 0);
    }
    if (!row->error && row->known)
        known_judge(h);
    for (uint64_t i = 0; i < row->n_random && !row->error && !kvb_stopped; i++) {
        kvb_engine_history history;
        char why[128];
        kvb_engine_history_random(row->seed + i, &row->facts, &history);
        if (!kvb_engine_history_check(&history, &row->facts, why, sizeof why))
            judge(h, &history, row->seed + i);
    }
    kvb_engine_bench_close(&h->bench);
}

int kvb_engine_row_run(kvb_engine_row *row)
{
    hunt h = {.row = row, .output = memfd_create("engine", MFD_CLOEXEC)};
    h.outcome = mmap(NULL, sizeof *h.outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h.output >= 0)
        fcntl(h.output, F_SETFL, O_APPEND);
    int error = h.output < 0 || h.outcome == MAP_FAILED ? -errno : 0;
    if (!error && kvb_apart(row_run, &h, 0) && !kvb_stopped) {
        output_last(h.output, row->printed, sizeof row->printed);
        snprintf(row->why, sizeof row->why, "the engine crashes, ends itself or hangs as it is opened%s%s",
                 *row->printed ? ": " : "", row->printed);
        row->error = -ECHILD;
    }
    if (h.output >= 0)
        close(h.output);
    if (h.outcome != MAP_FAILED)
        munmap(h.outcome, sizeof *h.outcome);
    return error;
}
