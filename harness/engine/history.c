/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of an engine's calls: as text, as integers (the shadow), drawn at random. */
#include "harness/engine/engine.h"
#include "workloads/files.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/rng.h"

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The text of a call: its name, then a word for each letter: s a sequence, a a sequence or "all", t the sequence `to`,
 * r an optional range, R a range, d a distance, n pairs of sequence and number of tokens. */
static const struct {
    const char *name, *words;
} verbs[KVB_ENGINE_VERBS] = {
    [KVB_ENGINE_DECODE] = {"d", "n"},  [KVB_ENGINE_COPY] = {"cp", "str"},   [KVB_ENGINE_REMOVE] = {"rm", "sr"},
    [KVB_ENGINE_KEEP] = {"keep", "s"}, [KVB_ENGINE_SHIFT] = {"add", "sRd"}, [KVB_ENGINE_SAVE] = {"save", "a"},
    [KVB_ENGINE_LOAD] = {"load", "a"},
};

/* Reads the next word of a call as a number. */
static bool number_read(const char **at, long low, long high, long *value)
{
    char *end = NULL;
    *at += strspn(*at, " ");
    if (!strncmp(*at, "end", 3)) {
        *value = KVB_ENGINE_END;
        *at += 3;
        return high == KVB_ENGINE_END;
    }
    *value = strtol(*at, &end, 10);
    const bool good = end != *at && (!*end || *end == ' ') && *value >= low && *value <= high;
    *at = end;
    return good;
}

static bool words_read(const char *letters, const char *at, kvb_engine_call *call)
{
    long value = 0;
    call->p1 = KVB_ENGINE_END;
    for (; *letters; letters++) {
        at += strspn(at, " ");
        if (*letters == 'r' && !*at)
            return true;
        if (*letters == 'a' && !strcmp(at, "all")) {
            call->seq = KVB_ENGINE_ALL;
            return true;
        }
        if (*letters == 'n') {
            for (; *at; at += strspn(at, " ")) {
                if (!number_read(&at, 0, KVB_ENGINE_SEQS - 1, &value))
                    return false;
                const long seq = value;
                if (!number_read(&at, 1, KVB_SHADOW_TOKENS, &value) || call->n[seq])
                    return false;
                call->n[seq] = (uint32_t)value;
            }
            return memcmp(call->n, (uint32_t[KVB_ENGINE_SEQS]){0}, sizeof call->n) != 0;
        }
        const bool is_seq = strchr("sta", *letters) != NULL;
        if (!number_read(&at, *letters == 'd' ? -KVB_SHADOW_POSITIONS : 0,
                         is_seq ? KVB_ENGINE_SEQS - 1 : KVB_SHADOW_POSITIONS, &value))
            return false;
        *(*letters == 't'   ? (int32_t *)&call->to
          : is_seq          ? (int32_t *)&call->seq
          : *letters == 'd' ? &call->delta
                            : &call->p0) = (int32_t)value;
        if (!strchr("rR", *letters))
            continue;
        if (!number_read(&at, 0, KVB_ENGINE_END, &value))
            return false;
        call->p1 = (int32_t)value;
    }
    return !at[strspn(at, " ")];
}

int kvb_engine_history_parse(const char *text, kvb_engine_history *history, char *why, size_t why_bytes)
{
    *history = (kvb_engine_history){0};
    for (const char *at = text; *at;) {
        char call[128], name[8] = "";
        int used = 0;
        at += strspn(at, " \n;");
        const size_t n = strcspn(at, ";\n");
        snprintf(call, sizeof call, "%.*s", (int)n, at);
        at += n + (at[n] != 0);
        for (size_t end = strlen(call); end && isspace((unsigned char)call[end - 1]); end--)
            call[end - 1] = '\0';
        if (sscanf(call, " %7s%n", name, &used) < 1)
            continue;
        uint32_t verb = 0;
        while (verb < KVB_ENGINE_VERBS && strcmp(name, verbs[verb].name))
            verb++;
        kvb_engine_call *c = &history->at[history->n];
        if (history->n == KVB_ENGINE_CALLS)
            return kvb_why_set(-EINVAL, why, why_bytes, "a history has at most %u calls", KVB_ENGINE_CALLS);
        if (verb == KVB_ENGINE_VERBS || n >= sizeof call || !words_read(verbs[verb].words, call + used, c)) {
            snprintf(why, why_bytes,
                     "call %u, '%s', is none of: d SEQ N [SEQ N…]; cp SEQ SEQ [P0 P1]; rm SEQ [P0 P1]; keep SEQ; "
                     "add SEQ P0 P1 DELTA; save SEQ|all; load SEQ|all (SEQ 0 to %u; P1 may be end)",
                     history->n + 1, call, KVB_ENGINE_SEQS - 1);
            return -EINVAL;
        }
        c->verb = (kvb_engine_verb)verb;
        history->n++;
    }
    if (history->n)
        return 0;
    return kvb_why_set(-EINVAL, why, why_bytes, "the history has no calls");
}

void kvb_engine_history_print(const kvb_engine_history *history, char *text, size_t bytes)
{
    *text = '\0';
    for (const kvb_engine_call *c = history->at; c < history->at + history->n; c++) {
        kvb_list_add(text, bytes, "; ", "%s", verbs[c->verb].name);
        for (const char *l = verbs[c->verb].words; *l; l++) {
            const bool all = *l == 'a' && c->seq == KVB_ENGINE_ALL;
            if (*l == 'r' && !c->p0 && c->p1 == KVB_ENGINE_END)
                continue;
            if (strchr("rR", *l))
                kvb_list_add(text, bytes, " ", "%d", c->p0);
            if (all || (strchr("rR", *l) && c->p1 == KVB_ENGINE_END))
                kvb_list_add(text, bytes, " ", all ? "all" : "end");
            else if (*l != 'n')
                kvb_list_add(text, bytes, " ", "%d",
                             *l == 't'          ? (int32_t)c->to
                             : *l == 'd'        ? c->delta
                             : strchr("rR", *l) ? c->p1
                                                : (int32_t)c->seq);
            for (uint32_t s = 0; *l == 'n' && s < KVB_ENGINE_SEQS; s++)
                if (c->n[s])
                    kvb_list_add(text, bytes, " ", "%u %u", s, c->n[s]);
        }
    }
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

static kvb_shadow scratch; /* for histories that are checked or drawn; static because it is large */

static bool is_in(const kvb_shadow_token *t, const kvb_engine_call *c)
{
    return t->pos >= c->p0 && t->pos < c->p1;
}

/* Hash of the first n tokens as a token at this position sees them. */
static uint64_t seen_by(const kvb_shadow_seq *seq, uint32_t n, int32_t pos)
{
    uint64_t hash = 1;
    for (uint32_t i = 0; i < n; i++)
        hash =
            kvb_rng_mix(hash * 31 + (uint64_t)seq->at[i].id * KVB_SHADOW_POSITIONS + (uint64_t)(pos - seq->at[i].pos));
    return hash;
}

bool kvb_shadow_is_plain(const kvb_shadow_seq *seq)
{
    for (uint32_t i = 0; i < seq->n; i++)
        if (seq->at[i].seen != seen_by(seq, i, seq->at[i].pos))
            return false;
    return true;
}

uint32_t kvb_shadow_sees(const kvb_shadow_seq *seq, const kvb_engine_facts *facts, int32_t pos, uint32_t *rows)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < seq->n; i++)
        if (seq->at[i].pos <= pos && (!facts->window || pos - seq->at[i].pos < (int32_t)facts->window)) {
            if (rows)
                rows[n] = seq->at[i].row;
            n++;
        }
    return n;
}

static void seq_copy(kvb_shadow_seq *to, const kvb_shadow_seq *from)
{
    to->n = from->n;
    memcpy(to->at, from->at, from->n * sizeof *from->at);
}

void kvb_shadow_copy(kvb_shadow *to, const kvb_shadow *from)
{
    const uint32_t seqs = to->seqs > from->seqs ? to->seqs : from->seqs;
    for (uint32_t s = 0; s < seqs; s++) {
        seq_copy(&to->seq[s], &from->seq[s]);
        seq_copy(&to->saved_all[s], &from->saved_all[s]);
    }
    seq_copy(&to->saved, &from->saved);
    to->has_saved = from->has_saved;
    to->has_saved_all = from->has_saved_all;
    to->seqs = from->seqs;
    to->cells = from->cells;
    to->tokens = from->tokens;
}

void kvb_shadow_clear(kvb_shadow *shadow)
{
    for (uint32_t s = 0; s < shadow->seqs; s++)
        shadow->seq[s].n = shadow->saved_all[s].n = 0;
    shadow->saved.n = shadow->seqs = shadow->cells = shadow->tokens = 0;
    shadow->has_saved = shadow->has_saved_all = false;
}

/* Cells in use. split: of sequence seq's cache; else of all sequences. */
static uint32_t cells_used(const kvb_shadow *shadow, bool split, uint32_t seq)
{
    uint64_t met[KVB_SHADOW_ROWS / 64] = {0};
    uint32_t n = 0;
    for (uint32_t s = split ? seq : 0; s < (split ? seq + 1 : shadow->seqs); s++)
        for (uint32_t i = 0; i < shadow->seq[s].n; i++) {
            const uint32_t cell = shadow->seq[s].at[i].cell;
            n += !(met[cell / 64] >> cell % 64 & 1);
            met[cell / 64] |= 1ull << cell % 64;
        }
    return n;
}

/* The functions below apply a call and return NULL, or why it is illegal here. */
static const char no_room[] = "there is no room for a decode";

static const char *decode_apply(kvb_shadow *shadow, const kvb_engine_facts *facts, const kvb_engine_call *c)
{
    uint32_t all = 0;
    bool fits = true;
    for (uint32_t s = 0; s < shadow->seqs; s++) {
        const kvb_shadow_seq *seq = &shadow->seq[s];
        if (seq->n + c->n[s] > KVB_SHADOW_TOKENS ||
            (seq->n && seq->at[seq->n - 1].pos + (int32_t)c->n[s] >= KVB_SHADOW_POSITIONS))
            return "a sequence becomes too long";
        all += c->n[s];
        fits = fits && (!facts->split || !c->n[s] || cells_used(shadow, true, s) + (uint64_t)c->n[s] <= facts->cells);
    }
    if (all > facts->cells || all > KVB_SHADOW_TOKENS)
        return "a decode takes at most as many tokens as the cache has cells";
    if (shadow->cells + all >= KVB_SHADOW_ROWS)
        return "the history has too many tokens";
    fits = fits && (facts->split || cells_used(shadow, false, 0) + (uint64_t)all <= facts->cells);
    if (!fits && !(facts->refuses >> KVB_ENGINE_DECODE & 1))
        return no_room;
    for (uint32_t s = 0; s < shadow->seqs; s++)
        for (uint32_t i = 0; i < c->n[s]; i++) {
            kvb_shadow_seq *seq = &shadow->seq[s];
            const int32_t pos = seq->n ? seq->at[seq->n - 1].pos + 1 : 0;
            const uint64_t bits = kvb_rng_bits(7, shadow->tokens);
            seq->at[seq->n] = (kvb_shadow_token){.id = (int32_t)(bits % facts->vocab),
                                                 .pos = pos,
                                                 .row = shadow->tokens++,
                                                 .cell = shadow->cells++,
                                                 .seen = seen_by(seq, seq->n, pos)};
            seq->n++;
        }
    return NULL;
}

static const char *copy_apply(kvb_shadow *shadow, const kvb_engine_facts *facts, const kvb_engine_call *c)
{
    const kvb_shadow_seq *from = &shadow->seq[c->seq];
    kvb_shadow_seq *to = &shadow->seq[c->to], both = {.n = 0};
    if (c->seq == c->to)
        return "a sequence is copied to itself";
    if (!facts->copies_part && (c->p0 > 0 || c->p1 != KVB_ENGINE_END || to->n))
        return "a copy takes a whole sequence to an empty one here";
    for (uint32_t i = 0, j = 0; i < from->n || j < to->n;) {
        if (i < from->n && !is_in(&from->at[i], c)) {
            i++;
            continue;
        }
        if (i < from->n && j < to->n && from->at[i].pos == to->at[j].pos)
            return "both sequences have a token at a position that is copied";
        if (both.n == KVB_SHADOW_TOKENS)
            return "a sequence becomes too long";
        const bool mine = j == to->n || (i < from->n && from->at[i].pos < to->at[j].pos);
        both.at[both.n] = mine ? from->at[i++] : to->at[j++];
        if (mine && facts->split)
            both.at[both.n].cell = shadow->cells++;
        both.n++;
    }
    *to = both;
    return NULL;
}

static void remove_apply(kvb_shadow_seq *seq, const kvb_engine_call *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < seq->n; i++)
        if (!is_in(&seq->at[i], c))
            seq->at[kept++] = seq->at[i];
    seq->n = kept;
}

static const char *shift_apply(kvb_shadow *shadow, const kvb_engine_facts *facts, const kvb_engine_call *c)
{
    uint64_t moved[KVB_SHADOW_ROWS / 64] = {0};
    const kvb_shadow_seq *own = &shadow->seq[c->seq];
    for (uint32_t i = 0; i < own->n; i++)
        if (is_in(&own->at[i], c))
            moved[own->at[i].cell / 64] |= 1ull << own->at[i].cell % 64;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t s = 0; s < shadow->seqs; s++) {
            int32_t before = -1;
            kvb_shadow_seq *seq = &shadow->seq[s];
            for (uint32_t i = 0; i < seq->n; i++) {
                kvb_shadow_token *t = &seq->at[i];
                const bool moves = (s == c->seq || facts->shares) && (moved[t->cell / 64] >> t->cell % 64 & 1);
                const int32_t pos = t->pos + (moves ? c->delta : 0);
                if (!pass && (pos <= before || pos >= KVB_SHADOW_POSITIONS))
                    return "a token is moved onto or across one that stays, or below 0";
                before = pos;
                if (pass && moves) {
                    t->pos = pos;
                    t->shifts++;
                    t->cell = facts->shares ? t->cell : shadow->cells++;
                }
            }
        }
    return NULL;
}

static const char *load_apply(kvb_shadow *shadow, const kvb_engine_facts *facts, const kvb_engine_call *c)
{
    if (c->seq == KVB_ENGINE_ALL ? !shadow->has_saved_all : !shadow->has_saved)
        return "nothing was saved that can be loaded";
    if (c->seq == KVB_ENGINE_ALL) {
        for (uint32_t s = 0; s < shadow->seqs; s++)
            seq_copy(&shadow->seq[s], &shadow->saved_all[s]);
        return NULL;
    }
    kvb_shadow_seq *seq = &shadow->seq[c->seq];
    const uint32_t own = seq->n;
    seq->n = 0;
    if (cells_used(shadow, facts->split, c->seq) + shadow->saved.n > facts->cells) {
        seq->n = own;
        return "there is no room for what is loaded";
    }
    *seq = shadow->saved;
    for (uint32_t i = 0; i < seq->n; i++)
        seq->at[i].cell = shadow->cells++;
    return NULL;
}

/* Sequences that the call needs; at least `least`. */
static uint32_t call_seqs(const kvb_engine_call *c, uint32_t least)
{
    for (uint32_t s = least; s < KVB_ENGINE_SEQS; s++)
        if (c->n[s] || c->seq == s || c->to == s)
            least = s + 1;
    return least;
}

static void save_apply(kvb_shadow *shadow, const kvb_engine_call *c)
{
    if (c->seq == KVB_ENGINE_ALL) {
        for (uint32_t s = 0; s < shadow->seqs; s++)
            seq_copy(&shadow->saved_all[s], &shadow->seq[s]);
        shadow->has_saved_all = true;
    } else {
        shadow->saved = shadow->seq[c->seq];
        shadow->has_saved = true;
    }
}

int kvb_shadow_apply(kvb_shadow *shadow, const kvb_engine_facts *facts, const kvb_engine_call *c, const char **why)
{
    *why = NULL;
    shadow->seqs = call_seqs(c, shadow->seqs);
    if (shadow->cells >= KVB_SHADOW_ROWS - KVB_ENGINE_SEQS * KVB_SHADOW_TOKENS)
        *why = "the history has too many tokens";
    else if (facts->absent >> c->verb & 1 || (c->seq == KVB_ENGINE_ALL && !facts->saves_all))
        *why = "the engine has no such call for this model";
    else if (c->verb == KVB_ENGINE_DECODE)
        *why = decode_apply(shadow, facts, c);
    else if (c->verb == KVB_ENGINE_COPY)
        *why = copy_apply(shadow, facts, c);
    else if (c->verb == KVB_ENGINE_SHIFT)
        *why = shift_apply(shadow, facts, c);
    else if (c->verb == KVB_ENGINE_LOAD)
        *why = load_apply(shadow, facts, c);
    else if (c->verb == KVB_ENGINE_REMOVE)
        remove_apply(&shadow->seq[c->seq], c);
    else if (c->verb == KVB_ENGINE_SAVE)
        save_apply(shadow, c);
    for (uint32_t s = 0; c->verb == KVB_ENGINE_KEEP && !*why && s < shadow->seqs; s++)
        if (s != c->seq)
            shadow->seq[s].n = 0;
    return !*why ? 0 : *why == no_room ? -ENOSPC : -EINVAL;
}

uint32_t kvb_engine_history_seqs(const kvb_engine_history *history)
{
    uint32_t most = KVB_ENGINE_USUAL;
    for (uint32_t i = 0; i < history->n; i++)
        most = call_seqs(&history->at[i], most);
    return most;
}

int kvb_engine_history_check(const kvb_engine_history *history, const kvb_engine_facts *facts, char *why,
                             size_t why_bytes)
{
    const char *reason;
    kvb_shadow_clear(&scratch);
    for (uint32_t i = 0; i < history->n; i++)
        if (kvb_shadow_apply(&scratch, facts, &history->at[i], &reason) == -EINVAL)
            return kvb_why_set(-EINVAL, why, why_bytes, "call %u: %s", i + 1, reason);
    return 0;
}

/* ---- at random --------------------------------------------------------------------------------------------------- */

typedef struct dice {
    uint64_t key, rolls;
} dice;

static uint32_t roll(dice *d, uint32_t sides)
{
    return (uint32_t)((kvb_rng_bits(d->key, d->rolls++) >> 32) * sides >> 32);
}

/* A position of the sequence, or one beside it. */
static int32_t place_roll(dice *d, const kvb_shadow_seq *seq)
{
    return seq->n ? seq->at[roll(d, seq->n)].pos + (int32_t)roll(d, 2) : (int32_t)roll(d, 4);
}

static uint32_t length_roll(dice *d, const kvb_shadow *shadow, const kvb_engine_facts *facts, uint32_t seq)
{
    static const uint32_t usual[] = {1, 1, 1, 2, 3, 4, 6, 11, 19, 40};
    static const uint32_t windows[] = {1, 1, 1, 2, 5, 33, 60, 170};
    if (!roll(d, 24)) { /* all free cells, or one more */
        const uint32_t used = cells_used(shadow, facts->split, seq);
        return used < facts->cells ? facts->cells - used + roll(d, 2) : 1;
    }
    return facts->window ? windows[roll(d, sizeof windows / sizeof *windows)]
                         : usual[roll(d, sizeof usual / sizeof *usual)];
}

static kvb_engine_call call_roll(dice *d, const kvb_shadow *shadow, const kvb_engine_facts *facts)
{
    static const kvb_engine_verb chances[] = {
        KVB_ENGINE_DECODE, KVB_ENGINE_DECODE, KVB_ENGINE_DECODE, KVB_ENGINE_DECODE, KVB_ENGINE_COPY, KVB_ENGINE_COPY,
        KVB_ENGINE_REMOVE, KVB_ENGINE_REMOVE, KVB_ENGINE_SHIFT,  KVB_ENGINE_SAVE,   KVB_ENGINE_LOAD, KVB_ENGINE_KEEP,
    };
    kvb_engine_call c = {.verb = chances[roll(d, sizeof chances / sizeof *chances)], .p1 = KVB_ENGINE_END};
    c.seq = roll(d, KVB_ENGINE_USUAL);
    for (uint32_t turn = 0; turn < 3 && !shadow->seq[c.seq].n; turn++) /* empty sequences less often */
        c.seq = roll(d, KVB_ENGINE_USUAL);
    const kvb_shadow_seq *seq = &shadow->seq[c.seq];
    switch (c.verb) {
    case KVB_ENGINE_DECODE:
        c.n[c.seq] = length_roll(d, shadow, facts, c.seq);
        for (uint32_t s = 0; s < KVB_ENGINE_USUAL && !roll(d, 3); s++)
            c.n[s] = c.n[s] ? c.n[s] : 1 + roll(d, 3);
        break;
    case KVB_ENGINE_COPY:
        c.to = roll(d, KVB_ENGINE_USUAL);
        if (facts->copies_part && !roll(d, 3))
            c.p1 = place_roll(d, seq);
        break;
    case KVB_ENGINE_REMOVE:
        if (roll(d, 4))
            c.p0 = place_roll(d, seq);
        if (facts->recurrent && roll(d, 2) && seq->n) /* the last token or two */
            c.p0 = seq->at[seq->n - 1].pos - (int32_t)roll(d, 2);
        c.p0 = c.p0 < 0 ? 0 : c.p0;
        if (roll(d, 2) && (!facts->recurrent || !roll(d, 4)))
            c.p1 = place_roll(d, seq);
        break;
    case KVB_ENGINE_SHIFT: /* all tokens from some position on; behind a hole, often so far that it closes */
        c.p0 = place_roll(d, seq);
        c.delta = (int32_t)roll(d, 9) - 4;
        for (uint32_t i = 0; i < seq->n && roll(d, 4); i++)
            if (seq->at[i].pos > (i ? seq->at[i - 1].pos + 1 : 0)) {
                c.p0 = seq->at[i].pos;
                c.delta = (i ? seq->at[i - 1].pos + 1 : 0) - seq->at[i].pos;
                break;
            }
        break;
    case KVB_ENGINE_SAVE:
    case KVB_ENGINE_LOAD:
        if (facts->saves_all && !roll(d, 4))
            c.seq = KVB_ENGINE_ALL;
        else if (c.verb == KVB_ENGINE_LOAD && roll(d, 2))
            c.seq = roll(d, KVB_ENGINE_USUAL);
        break;
    case KVB_ENGINE_KEEP:
    case KVB_ENGINE_VERBS:
        break;
    }
    return c;
}

void kvb_engine_history_random(uint64_t seed, const kvb_engine_facts *facts, kvb_engine_history *history)
{
    dice d = {.key = kvb_rng_key(0x656e67696e65u, seed)};
    kvb_shadow *const shadow = &scratch;
    const char *why;
    const uint32_t length = 5 + roll(&d, 16);
    /* Each history lacks some kinds of calls; otherwise the most frequent fault hides the others (Groce and others:
     * Swarm testing, ISSTA 2012). */
    const uint32_t left_out =
        roll(&d, 1u << KVB_ENGINE_VERBS) & roll(&d, 1u << KVB_ENGINE_VERBS) & ~(1u << KVB_ENGINE_DECODE);
    *history = (kvb_engine_history){0};
    kvb_shadow_clear(shadow);
    for (uint32_t tries = 0; history->n < length && tries < 1000; tries++) {
        kvb_engine_call c = call_roll(&d, shadow, facts);
        if ((!history->n && c.verb != KVB_ENGINE_DECODE && c.verb != KVB_ENGINE_SAVE) || left_out >> c.verb & 1)
            continue;
        if (kvb_shadow_apply(shadow, facts, &c, &why) == -EINVAL)
            continue;
        history->at[history->n++] = c;
    }
    if (history->n < KVB_ENGINE_CALLS) { /* a decode also judges the effect of the last call */
        kvb_engine_call last = {.verb = KVB_ENGINE_DECODE};
        for (uint32_t s = 0; s < shadow->seqs; s++)
            last.n[s] = shadow->seq[s].n > 0;
        if (memcmp(last.n, (uint32_t[KVB_ENGINE_SEQS]){0}, sizeof last.n))
            history->at[history->n++] = last;
    }
}
