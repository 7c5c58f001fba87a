/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays a history over an engine and its shadow, call by call. Return values and the positions of every sequence are
 * compared exactly. Logits are compared with a fresh decode of the shadow's tokens in an empty session. Engines decode
 * no gaps, so each run of positions is decoded as a sequence, and copies join the runs. With one layer this is exact
 * for any history. With several layers a row depends on the tokens that its token saw when it was decoded. Then the
 * expected logits are those of kvbench's decoder over the same weights. If that decoder does not know the model
 * (decoder.c), a sequence is judged only while each of its tokens still sees the same tokens.
 *
 * The limit is the sum of two measured differences, each times a factor. Noise: the largest between batch splits of one
 * fresh decode, or between it and kvbench's decoder. Format: the largest between a fresh decode configured like the
 * subject and one in f32 without flash attention.
 */
#include "harness/engine/engine.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/files.h"

#define NOISE_FACTOR  8.0
#define FORMAT_FACTOR 4.0  /* times 1 + sqrt(shifts): each shift rounds the row again */
#define FLOOR         5e-5 /* error of a rotation's angles in f32, for positions up to a thousand */
#define APART         1e-2 /* if a fresh decode and our decoder differ by more, the weights mean something else */
#define CALIBRATED    40u  /* tokens of the decode that measures noise and format */

const char *const kvb_engine_kind_names[KVB_ENGINE_KINDS] = {
    [KVB_ENGINE_RIGHT] = "right",     [KVB_ENGINE_LOGITS] = "logits", [KVB_ENGINE_POSITIONS] = "positions",
    [KVB_ENGINE_RETURNS] = "returns", [KVB_ENGINE_DIES] = "dies",
};

/* ---- planted faults ---------------------------------------------------------------------------------------------- */

const kvb_engine_fault kvb_engine_faults[] = {
    {"remove-swallowed", "a removal that is not made", KVB_ENGINE_REMOVE, KVB_FAULT_SWALLOWED},
    {"remove-short", "a removal leaves one token", KVB_ENGINE_REMOVE, KVB_FAULT_SHORT},
    {"copy-elsewhere", "a copy goes to the next sequence", KVB_ENGINE_COPY, KVB_FAULT_ELSEWHERE},
    {"copy-swallowed", "a copy that is not made", KVB_ENGINE_COPY, KVB_FAULT_SWALLOWED},
    {"shift-short", "a shift by one too few", KVB_ENGINE_SHIFT, KVB_FAULT_SHORT},
    {"shift-renews", "what a shift moved, and what is behind it, is decoded anew", KVB_ENGINE_SHIFT, KVB_FAULT_RENEWED},
    {"keep-swallowed", "the other sequences are kept, too", KVB_ENGINE_KEEP, KVB_FAULT_SWALLOWED},
    {"load-swallowed", "a restore keeps what was there", KVB_ENGINE_LOAD, KVB_FAULT_SWALLOWED},
    {"save-stale", "a save keeps what was saved before", KVB_ENGINE_SAVE, KVB_FAULT_STALE},
    {"decode-another", "the first token of a decode is another one", KVB_ENGINE_DECODE, KVB_FAULT_ANOTHER},
    {0},
};

/* Changes call nth (from 0 on) of the fault's verb. False: the engine does not get the call. */
static bool twist(const kvb_engine_fault *fault, kvb_engine_call *c, uint32_t nth)
{
    switch (fault->twist) {
    case KVB_FAULT_SWALLOWED:
        return false;
    case KVB_FAULT_STALE:
        return !nth;
    case KVB_FAULT_ELSEWHERE:
        c->to = (c->to + 1) % KVB_ENGINE_USUAL;
        return c->to != c->seq;
    case KVB_FAULT_SHORT:
        if (c->verb == KVB_ENGINE_SHIFT) {
            c->delta += c->delta < 0 ? 1 : -1;
            return c->delta != 0;
        }
        c->p0 += c->p1 == KVB_ENGINE_END;
        c->p1 -= c->p1 != KVB_ENGINE_END;
        return c->p0 < c->p1;
    default:
        return true; /* the fault is elsewhere */
    }
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

void kvb_engine_bench_close(kvb_engine_bench *b)
{
    void *const sessions[] = {b->subject, b->twin, b->exact};
    for (size_t i = 0; i < 3; i++)
        if (sessions[i])
            b->engine->close(sessions[i]);
    kvb_decoder_close(b->decoder);
    kvb_arena_free(&b->arena);
}

static double distance(const float *a, const float *b, uint32_t n)
{
    double most = 0, scale = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || isnan(d) ? (isnan(d) ? HUGE_VAL : d) : most;
        scale = fmax(scale, fabs((double)b[i]));
    }
    return most / fmax(scale, 1e-30);
}

/* Decodes tokens first .. last - 1 of the shadow's sequence as sequence `to`, `most` at a time. */
static int part_decode(const kvb_engine_bench *b, void *session, const kvb_shadow_seq *seq, uint32_t first,
                       uint32_t last, uint32_t to, uint32_t most)
{
    kvb_engine_token tokens[KVB_SHADOW_TOKENS];
    int error = 0;
    for (uint32_t at = first; at < last && !error;) {
        uint32_t n = 0;
        for (; n < most && at < last; n++, at++)
            tokens[n] = (kvb_engine_token){.seq = to, .id = seq->at[at].id, .pos = seq->at[at].pos};
        error = b->engine->decode(session, tokens, n);
    }
    return error;
}

/* Fills logits with those of a fresh decode for the sequence's last token. 0; -EDOM: the sequence has too many runs; or
 * the engine's error. */
static int fresh_decode(const kvb_engine_bench *b, void *session, const kvb_shadow_seq *seq, uint32_t most,
                        float *logits)
{
    uint32_t starts[KVB_ENGINE_RUNS + 1], runs = 0;
    for (uint32_t i = 0; i < seq->n; i++) {
        if (i && seq->at[i].pos == seq->at[i - 1].pos + 1)
            continue;
        if (runs == KVB_ENGINE_RUNS)
            return -EDOM;
        starts[runs++] = i;
    }
    starts[runs] = seq->n - 1; /* the last token is decoded after all runs are joined */
    if (starts[runs - 1] == starts[runs] && runs > 1)
        return -EDOM;
    int error = b->engine->clear(session);
    for (uint32_t r = 0; r < runs && !error; r++)
        error = part_decode(b, session, seq, starts[r], starts[r + 1], r, most);
    for (uint32_t r = 0; r + 1 < runs && !error; r++)
        error = b->engine->copy(session, r, runs - 1, 0, KVB_ENGINE_END);
    error = error ? error : part_decode(b, session, seq, seq->n - 1, seq->n, runs - 1, 1);
    const float *found = error ? NULL : b->engine->logits(session, 0);
    if (!found)
        return error ? error : -EIO;
    memcpy(logits, found, b->facts.vocab * sizeof *logits);
    return 0;
}

/* Measures noise, format and apart over sequences of 1 to CALIBRATED tokens. */
static int calibrate(kvb_engine_bench *b)
{
    const uint32_t vocab = b->facts.vocab;
    kvb_shadow_seq *seq = &b->shadow->seq[0];
    const kvb_engine_call call = {.verb = KVB_ENGINE_DECODE, .n = {CALIBRATED}};
    const char *why;
    int error = kvb_shadow_apply(b->shadow, &b->facts, &call, &why);
    for (seq->n = 1; seq->n <= CALIBRATED && !error; seq->n += 3) {
        error = fresh_decode(b, b->exact, seq, KVB_SHADOW_TOKENS, b->logits);
        for (uint32_t most = 1; most <= 9 && !error; most += 4) {
            error = fresh_decode(b, b->exact, seq, most, b->logits + vocab);
            b->noise = fmax(b->noise, error ? 0 : distance(b->logits + vocab, b->logits, vocab));
        }
        error = error ? error : fresh_decode(b, b->twin, seq, KVB_SHADOW_TOKENS, b->logits + vocab);
        if (error)
            break;
        b->format = fmax(b->format, distance(b->logits + vocab, b->logits, vocab));
        const float *own = b->decoder ? kvb_decoder_decode(b->decoder, seq, seq->n > 1 ? 3 : 1) : NULL;
        b->apart = fmax(b->apart, own ? distance(b->logits, own, vocab) : 0);
        b->noise = fmax(b->noise, b->apart);
    }
    return error;
}

int kvb_engine_bench_open(kvb_engine_bench *b, const kvb_engine *engine, const kvb_engine_config *config,
                          const kvb_engine_fault *fault, char *why, size_t why_bytes)
{
    kvb_engine_facts facts;
    kvb_engine_config fresh = *config;
    *b = (kvb_engine_bench){.engine = engine, .fault = fault, .seqs = config->seqs};
    b->shadow = kvb_arena_take(&b->arena, 1, sizeof *b->shadow);
    b->before = kvb_arena_take(&b->arena, 1, sizeof *b->before);
    b->order = kvb_arena_take(&b->arena, KVB_SHADOW_ROWS, sizeof *b->order);
    if (b->arena.failed)
        return -ENOMEM;
    int error = engine->open(config, &b->subject, &b->facts, why, why_bytes);
    fresh.whole = true;
    fresh.split = false;
    fresh.seqs = KVB_ENGINE_RUNS;
    fresh.cells = config->cells > KVB_SHADOW_TOKENS ? config->cells : KVB_SHADOW_TOKENS;
    error = error ? error : engine->open(&fresh, &b->twin, &facts, why, why_bytes);
    fresh.kv = "f32";
    fresh.flash = false;
    error = error ? error : engine->open(&fresh, &b->exact, &facts, why, why_bytes);
    if (error)
        return error;
    if (*config->model) /* no weights: no decoder, only fresh decodes */
        kvb_decoder_open(config->model, b->facts.vocab, &b->decoder, b->without, sizeof b->without);
    b->logits = kvb_arena_take(&b->arena, (size_t)3 * b->facts.vocab, sizeof *b->logits);
    error = b->logits ? calibrate(b) : -ENOMEM;
    if (error)
        snprintf(why, why_bytes, "a fresh decode fails: %s", strerror(-error));
    if (b->apart > APART) {
        snprintf(b->without, sizeof b->without, "a fresh decode is off by %.2g from ours", b->apart);
        kvb_decoder_close(b->decoder);
        b->decoder = NULL;
    }
    kvb_shadow_clear(b->shadow);
    return error;
}

/* ---- play -------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void wrong(kvb_engine_outcome *o, kvb_engine_kind kind, const char *format,
                                                        ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(o->what, sizeof o->what, format, args);
    va_end(args);
    o->kind = kind;
}

/* Makes the tokens of a decode that the shadow already has, in turns from each sequence. last: [seq] its last token. */
static uint32_t tokens_make(kvb_engine_bench *b, const kvb_engine_call *c, uint32_t *last, kvb_engine_token *tokens)
{
    uint32_t n = 0, taken[KVB_ENGINE_SEQS] = {0};
    for (bool more = true; more;) {
        more = false;
        for (uint32_t s = 0; s < KVB_ENGINE_SEQS; s++) {
            const kvb_shadow_seq *seq = &b->shadow->seq[s];
            if (taken[s] == c->n[s])
                continue;
            const kvb_shadow_token *t = &seq->at[seq->n - c->n[s] + taken[s]++];
            last[s] = n;
            b->order[t->row] = b->decoded + n;
            tokens[n++] = (kvb_engine_token){.seq = s, .id = t->id, .pos = t->pos};
            more = true;
        }
    }
    return n;
}

/* Instead of a shift: removes the tokens from p0 on and decodes them at the shadow's present positions. */
static int renew(kvb_engine_bench *b, const kvb_engine_call *c)
{
    const kvb_shadow_seq *seq = &b->shadow->seq[c->seq];
    uint32_t first = 0;
    while (first < seq->n && seq->at[first].pos < c->p0 + c->delta)
        first++;
    const int error = b->engine->remove(b->subject, c->seq, c->p0, KVB_ENGINE_END);
    for (uint32_t i = first; i < seq->n; i++)
        b->order[seq->at[i].row] = b->decoded++;
    return error ? error : part_decode(b, b->subject, seq, first, seq->n, c->seq, KVB_SHADOW_TOKENS);
}

static int engine_call(kvb_engine_bench *b, const kvb_engine_call *call, const kvb_engine_token *tokens, uint32_t n)
{
    kvb_engine_call c = *call;
    if (b->fault && b->fault->verb == c.verb && !twist(b->fault, &c, b->twisted++))
        return 0;
    if (c.verb == KVB_ENGINE_DECODE)
        return b->engine->decode(b->subject, tokens, n);
    return c.verb == KVB_ENGINE_SHIFT && b->fault && b->fault->twist == KVB_FAULT_RENEWED
               ? renew(b, &c)
               : kvb_engine_control(b->engine, b->subject, &c);
}

/* Does the call remove tokens from the middle of a sequence? */
static bool cuts_middle(const kvb_shadow_seq *seq, const kvb_engine_call *c)
{
    bool cuts = false, stays = false;
    for (uint32_t i = 0; i < seq->n; i++) {
        cuts = cuts || (seq->at[i].pos >= c->p0 && seq->at[i].pos < c->p1);
        stays = stays || seq->at[i].pos >= c->p1;
    }
    return cuts && stays;
}

static void positions_judge(const kvb_engine_bench *b, kvb_engine_outcome *o)
{
    for (uint32_t s = 0; s < b->seqs && !o->kind; s++) {
        const kvb_shadow_seq *seq = &b->shadow->seq[s];
        const int32_t first = seq->n ? seq->at[0].pos : -1, last = seq->n ? seq->at[seq->n - 1].pos : -1;
        int32_t from, to, most = first;
        b->engine->span(b->subject, s, &from, &to);
        for (uint32_t i = 0; b->facts.window && i < seq->n && most <= last + 1 - (int32_t)b->facts.window;
             i++) /* the first position that the next token sees */
            most = seq->at[i].pos;
        most = b->facts.recurrent ? last : most;
        from = from == KVB_ENGINE_UNKNOWN ? first : from;
        if (to != last || from < first || from > most)
            wrong(o, KVB_ENGINE_POSITIONS, "sequence %u has positions %d to %d, and must have %d to %d", s, from, to,
                  first, last);
    }
}

static double limit_of(double noise, double format, uint32_t shifts)
{
    return FLOOR + NOISE_FACTOR * noise + FORMAT_FACTOR * format * (1 + sqrt(shifts));
}

/* Fills b->logits with the expected logits of the sequence's last token. n: newly decoded tokens. False: unknown. */
static bool logits_expect(const kvb_engine_bench *b, const kvb_shadow_seq *seq, uint32_t n)
{
    const bool several = b->facts.layers > 1 || b->facts.recurrent;
    if (!several || !b->decoder)
        return (!several || kvb_shadow_is_plain(seq)) && !fresh_decode(b, b->exact, seq, KVB_SHADOW_TOKENS, b->logits);
    const float *own = kvb_decoder_decode(b->decoder, seq, n);
    if (own)
        memcpy(b->logits, own, b->facts.vocab * sizeof *own);
    return own;
}

static void logits_judge(kvb_engine_bench *b, uint32_t s, uint32_t n, const float *found, kvb_engine_outcome *o)
{
    const kvb_shadow_seq *seq = &b->shadow->seq[s];
    const uint32_t vocab = b->facts.vocab;
    float *fresh = b->logits + vocab, *other = fresh + vocab;
    uint32_t shifts = 0;
    if (!found) {
        wrong(o, KVB_ENGINE_RETURNS, "there are no logits for sequence %u", s);
        return;
    }
    for (uint32_t i = 0; i < seq->n; i++)
        shifts = seq->at[i].shifts > shifts ? seq->at[i].shifts : shifts;
    if (!logits_expect(b, seq, n)) {
        o->unjudged++;
        return;
    }
    o->judged++;
    const double off = distance(found, b->logits, vocab);
    double noise = b->noise, format = b->format;
    if (off > limit_of(noise, format, shifts) && !fresh_decode(b, b->exact, seq, KVB_SHADOW_TOKENS, fresh)) {
        for (uint32_t most = 1; most < seq->n && most <= 17; most += 8)
            if (!fresh_decode(b, b->exact, seq, most, other)) /* this sequence may be noisier */
                noise = fmax(noise, distance(other, fresh, vocab));
        if (format > 0 && !fresh_decode(b, b->twin, seq, KVB_SHADOW_TOKENS, other))
            format = fmax(format, distance(other, fresh, vocab));
    }
    const double limit = limit_of(noise, format, shifts);
    if (off / limit > o->error / fmax(o->limit, 1e-30)) {
        o->error = off;
        o->limit = limit;
    }
    if (off > limit)
        wrong(
            o, KVB_ENGINE_LOGITS,
            "logits of sequence %u are off by %.2g of the largest; %.2g is allowed; %u tokens at %d to %d are visible",
            s, off, limit, kvb_shadow_sees(seq, &b->facts, seq->at[seq->n - 1].pos, NULL), seq->at[0].pos,
            seq->at[seq->n - 1].pos);
}

/* Compares the engine's return value `error` with the shadow's `must`. Has the engine made the call? */
static bool return_judge(const kvb_engine_bench *b, const kvb_engine_call *c, int must, int error,
                         kvb_engine_outcome *o)
{
    const bool may_refuse = b->facts.refuses >> c->verb & 1;
    const bool whole = c->verb == KVB_ENGINE_REMOVE && !c->p0 && c->p1 == KVB_ENGINE_END;
    if (must == -ENOSPC && !error)
        wrong(o, KVB_ENGINE_RETURNS, "tokens are decoded for which there is no room");
    else if (error && error != -ENOSPC && error != -ENOTSUP)
        wrong(o, KVB_ENGINE_RETURNS, "the call fails: %s", strerror(-error));
    else if (error && must != -ENOSPC && (!may_refuse || whole))
        wrong(o, KVB_ENGINE_RETURNS, "the call is refused (%s), and must not be", strerror(-error));
    return !error;
}

/* Asks the engine for the fault of the last decode. */
static void blame_ask(kvb_engine_bench *b, const kvb_engine_token *tokens, uint32_t n, char *said, size_t bytes)
{
    uint32_t *sees = malloc((n + (size_t)n * KVB_SHADOW_TOKENS) * sizeof *sees), *rows = sees + n;
    for (uint32_t i = 0; i < n && sees; i++) {
        sees[i] = kvb_shadow_sees(&b->shadow->seq[tokens[i].seq], &b->facts, tokens[i].pos, rows);
        for (uint32_t k = 0; k < sees[i]; k++, rows++)
            *rows = b->order[*rows];
    }
    snprintf(said, bytes, "%s", sees ? b->engine->blame(b->subject, sees, n) : "");
    free(sees);
}

/* Makes one call over shadow and engine. */
static void call_play(kvb_engine_bench *b, const kvb_engine_call *c, kvb_engine_outcome *o)
{
    kvb_engine_token tokens[KVB_SHADOW_TOKENS];
    uint32_t n = 0, last[KVB_ENGINE_SEQS];
    const char *why;
    const bool cuts = c->verb == KVB_ENGINE_REMOVE && cuts_middle(&b->shadow->seq[c->seq], c);
    if (c->verb != KVB_ENGINE_DECODE) {
        kvb_shadow_copy(b->before, b->shadow);
        const int must = kvb_shadow_apply(b->shadow, &b->facts, c, &why);
        if (must != -EINVAL && !return_judge(b, c, must, engine_call(b, c, NULL, 0), o))
            kvb_shadow_copy(b->shadow, b->before);
        else if (must != -EINVAL && cuts && b->facts.recurrent && !o->kind)
            wrong(o, KVB_ENGINE_RETURNS, "a part is removed that layers with a state cannot forget");
        if (!o->kind)
            positions_judge(b, o);
        return;
    }
    kvb_engine_facts endless = b->facts; /* a decode that must be refused needs its tokens, too */
    endless.cells = UINT32_MAX;
    const int must = kvb_shadow_apply(b->shadow, &b->facts, c, &why);
    if (must == -EINVAL || (must && kvb_shadow_apply(b->shadow, &endless, c, &why)))
        return;
    n = tokens_make(b, c, last, tokens);
    if (b->fault && b->fault->twist == KVB_FAULT_ANOTHER)
        tokens[0].id = (tokens[0].id + 1) % (int32_t)b->facts.vocab;
    const bool made = return_judge(b, c, must, engine_call(b, c, tokens, n), o);
    char blame[200] = "";
    if (made && b->watched && b->engine->blame)
        blame_ask(b, tokens, n, blame, sizeof blame);
    b->decoded += made ? n : 0;
    for (uint32_t s = 0; s < KVB_ENGINE_SEQS && made && !o->kind; s++)
        if (c->n[s])
            logits_judge(b, s, c->n[s], b->engine->logits(b->subject, last[s]), o);
    if (o->kind == KVB_ENGINE_LOGITS && *blame)
        kvb_list_add(o->what, sizeof o->what, "; ", "%s", blame);
    for (uint32_t s = 0; s < KVB_ENGINE_SEQS && !made; s++)
        b->shadow->seq[s].n -= c->n[s];
    if (!o->kind)
        positions_judge(b, o);
}

void kvb_engine_play(kvb_engine_bench *b, const kvb_engine_history *history, kvb_engine_outcome *o)
{
    kvb_shadow_clear(b->shadow);
    *o = (kvb_engine_outcome){0};
    b->twisted = b->decoded = 0;
    b->engine->clear(b->subject);
    for (; o->event < history->n; o->event++) {
        call_play(b, &history->at[o->event], o);
        if (o->kind)
            return;
    }
}
