/* SPDX-License-Identifier: Apache-2.0 */
/* A history replayed through a cache, compared with its prediction at every step. */
#include "harness/size/prove.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/slot_files.h"

typedef struct run {
    kvb_allocator allocator;
    kvb_cache *cache;
    const kvb_size_subject *subject;
    kvb_proof_rows *rows;
    uint32_t *position;         /* [ordinals] of every token admitted so far */
    uint32_t *fed;              /* [ordinals] positions of the fed tokens */
    uint32_t *ids;              /* [ordinals] of the step's tokens */
    int32_t *parents;           /* [ordinals] of nodes */
    uint32_t *sources;          /* [n_ids] of a reordering */
    uint32_t ordinals, cells;   /* admitted; fed and accepted */
    uint32_t most, n_ids;       /* of ordinals; of sequences */
    uint32_t len[KVB_MAX_SEQS]; /* of each sequence: its next position */
    int32_t *tokens;            /* [most + 1] where prompts are found: what each token is; the last one: not known */
    uint32_t *held;             /* likewise [n_ids][seq_capacity]: the tokens of each sequence, by ordinal */
    kvb_slot_files files;       /* of what is saved */
    bool allowed;               /* a call was, that was to be refused */
} run;

/* ---- rows ------------------------------------------------------------------------------------------------------ */

void kvb_proof_rows_free(kvb_proof_rows *rows)
{
    free(rows->at);
    *rows = (kvb_proof_rows){0};
}

/* At least n floats between -1 and 1. */
static int rows_want(kvb_proof_rows *rows, size_t n)
{
    if (n <= rows->n)
        return 0;
    float *grown = realloc(rows->at, n * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    rows->at = grown;
    for (uint32_t x = 1; rows->n < n; rows->n++) {
        x = x * 1664525u + 1013904223u; /* Numerical Recipes' generator */
        grown[rows->n] = (float)(int32_t)x * 0x1p-31f;
    }
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

/* Offers a sequence the first n tokens that another one has and one more. */
static int prompt_offer(run *r, uint32_t src, uint32_t dst, uint32_t n)
{
    const uint32_t *held = r->held + (size_t)src * r->subject->options.seq_capacity;
    const uint64_t *ordinals;
    int32_t *prompt = calloc(n + (size_t)1, sizeof *prompt);
    uint32_t found = 0;
    for (uint32_t i = 0; i < n && prompt; i++)
        prompt[i] = r->tokens[held[i]];
    int error = prompt ? kvb_cache_seq_match(r->cache, dst, prompt, n + 1, 0, &found, &ordinals) : -ENOMEM;
    free(prompt);
    for (uint32_t i = 0; i < found; i++)
        r->held[(size_t)dst * r->subject->options.seq_capacity + i] = (uint32_t)ordinals[i];
    r->ordinals += found;
    r->len[dst] = found;
    return error;
}

static int sequence_end(run *r, uint32_t seq)
{
    return r->subject->cache->flags & KVB_CACHE_SEQ ? kvb_cache_seq_rm(r->cache, seq, 0, KVB_POS_END)
                                                    : kvb_cache_rewind(r->cache, 0);
}

static int sequences_reorder(run *r, const kvb_size_step *s)
{
    const size_t row = r->subject->options.seq_capacity, n = s->n_seqs;
    uint32_t *dst = r->ids, *src = r->sources;
    for (uint32_t i = 0; i < n; i++) {
        dst[i] = s->first + i;
        src[i] = i + 1 < n ? s->first + i + 1 : s->first + (n > 1);
    }
    int error = kvb_cache_seq_reorder(r->cache, dst, src, s->n_seqs);
    for (uint32_t i = 0; i < n; i++) { /* the last one takes what the first one has by then */
        const uint32_t from = i + 1 < n ? src[i] : s->first;
        r->len[dst[i]] = r->len[from];
        if (r->held)
            memmove(r->held + dst[i] * row, r->held + from * row, row * sizeof *r->held);
    }
    return error;
}

/* dst is cut back to n tokens, and then goes on as src does. */
static int sequence_copy(run *r, uint32_t src, uint32_t dst, uint32_t n)
{
    const size_t row = r->subject->options.seq_capacity;
    int error = kvb_cache_seq_rm(r->cache, dst, n, KVB_POS_END);
    error = error ? error : kvb_cache_seq_cp(r->cache, src, dst, n, KVB_POS_END);
    if (r->held)
        memcpy(r->held + dst * row + n, r->held + src * row + n, (row - n) * sizeof *r->held);
    r->len[dst] = kvb_cache_length(r->cache, dst);
    return error;
}

/* Tokens that are loaded are not known by what they are. */
static void prompts_forget(run *r, uint32_t seq, uint32_t n)
{
    for (size_t i = 0; i < (size_t)n * r->subject->options.seq_capacity && r->held; i++)
        r->held[seq * (size_t)r->subject->options.seq_capacity + i] = r->most;
}

/* A call that is no step. */
static int call_make(run *r, const kvb_size_step *s)
{
    const char *path = kvb_slot_files_path(&r->files, 0);
    uint32_t *len = &r->len[s->first];
    int error = 0;
    switch (s->call) {
    case KVB_SIZE_SHARE:
        for (uint32_t i = s->first + 1; i <= s->first + s->n_seqs && !error; i++) {
            r->len[i] = s->tokens;
            error = r->held ? prompt_offer(r, s->first, i, s->tokens < *len ? s->tokens : *len)
                            : kvb_cache_seq_cp(r->cache, s->first, i, 0, s->tokens);
        }
        return error;
    case KVB_SIZE_COPY:
        for (uint32_t i = s->first + 1; i <= s->first + s->n_seqs && !error; i++)
            error = sequence_copy(r, s->first, i, s->tokens < r->len[i] ? s->tokens : r->len[i]);
        return error;
    case KVB_SIZE_DEFRAG:
        return kvb_cache_defrag(r->cache);
    case KVB_SIZE_SHIFT:
        error = kvb_cache_seq_add(r->cache, s->first, 0, KVB_POS_END, 1);
        break;
    case KVB_SIZE_DIVIDE:
        error = kvb_cache_seq_div(r->cache, s->first, 0, KVB_SIZE_DIVIDED, KVB_SIZE_DIVISOR);
        break;
    case KVB_SIZE_SWAP:
        error = kvb_cache_save(r->cache, s->first, path);
        error = error ? error : sequence_end(r, s->first);
        prompts_forget(r, s->first, 1);
        return error ? error : kvb_cache_load(r->cache, s->first, path);
    case KVB_SIZE_RELOAD:
        error = kvb_cache_save(r->cache, KVB_SEQ_ALL, path);
        prompts_forget(r, 0, r->n_ids);
        return error ? error : kvb_cache_load(r->cache, KVB_SEQ_ALL, path);
    case KVB_SIZE_FIND:
        error = sequence_end(r, s->first);
        return error ? error : prompt_offer(r, s->first, s->first, *len);
    case KVB_SIZE_REORDER:
        return sequences_reorder(r, s);
    default:
        return -EINVAL;
    }
    *len = kvb_cache_length(r->cache, s->first);
    return error;
}

/* One of the step's times: begin it, and note the positions of its tokens by ordinal. */
static int step_begin(run *r, const kvb_size_step *s)
{
    const uint32_t brings = kvb_size_brings(s), n = s->n_seqs * brings;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t q = s->first + i / brings, at = i % brings, pos = r->len[q] + (s->drafts ? at / s->drafts : at);
        r->ids[i] = q;
        r->parents[i] = s->drafts ? kvb_size_node_parent(s, at) : -1;
        if (r->held) {
            r->tokens[r->ordinals] = (int32_t)r->ordinals;
            r->held[(size_t)q * r->subject->options.seq_capacity + pos] = r->ordinals;
        }
        r->position[r->ordinals++] = pos;
    }
    for (uint32_t i = 0; i < s->n_seqs; i++)
        r->len[s->first + i] += s->tokens;
    r->cells += s->n_seqs * s->tokens;
    const uint32_t *ids = s->n_seqs == 1 && s->first == 0 ? NULL : r->ids;
    if (s->drafts)
        return kvb_cache_propose(r->cache, ids, r->parents, n);
    return kvb_cache_begin_step_tokens(r->cache, ids, r->held ? r->tokens + r->ordinals - n : NULL, n);
}

/* Hand every layer the rows that the plan wants. */
static int step_store(run *r)
{
    const kvb_model *m = &r->subject->model;
    const uint64_t *ordinals;
    uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    int error = 0;
    for (uint32_t i = 0; i < m->n_groups && !error; i++) {
        const kvb_group *g = &m->groups[i];
        if (kvb_group_scans(g))
            continue;
        error = rows_want(r->rows, (size_t)n * g->kv_heads * (g->k_dim > g->v_dim ? g->k_dim : g->v_dim));
    }
    for (uint32_t i = 0; i < n; i++)
        r->fed[i] = r->position[ordinals[i]];
    for (uint32_t layer = 0; !error && layer < m->n_layers; layer++) {
        kvb_attend_spec spec;
        kvb_scan_spec states;
        if (kvb_group_scans(kvb_model_group(m, layer))) {
            error = kvb_cache_fetch_states(r->cache, layer, r->fed, n, &states);
            continue;
        }
        const float *v = kvb_model_group(m, layer)->latent ? NULL : r->rows->at;
        error = kvb_cache_update_and_fetch(r->cache, layer, r->fed, r->rows->at, v, n, &spec);
    }
    return error;
}

/* Each sequence accepts the last node of each level. */
static int drafts_commit(run *r, const kvb_size_step *s)
{
    uint32_t accepted[KVB_SIZE_DRAFTS];
    int error = 0;
    for (uint32_t level = 0; level < s->tokens; level++)
        accepted[level] = (level + 1) * s->drafts - 1;
    for (uint32_t q = 0; q < s->n_seqs && !error; q++)
        error = kvb_cache_commit(r->cache, s->first + q, accepted, s->tokens);
    return error;
}

static bool compare(run *r, uint64_t predicted, kvb_size_proof *proof)
{
    proof->lengths++;
    proof->cells = r->cells;
    proof->predicted = predicted;
    proof->allocated = r->allocator.current_bytes;
    return proof->predicted == proof->allocated;
}

/* A call that is to be refused. */
static int refusal_check(run *r, int error)
{
    r->allowed = !error;
    return error == -ENOTSUP || error == -ENOSPC ? 0 : error ? error : -EINVAL;
}

/* Equal steps, each `times` 1. */
static int replay(run *r, const kvb_size_step *steps, size_t n, const uint64_t *predicted, const bool *refused,
                  kvb_size_proof *proof)
{
    if (!compare(r, predicted[0], proof))
        return 0;
    for (size_t i = 0; i < n; i++) {
        int error = steps[i].call ? call_make(r, &steps[i]) : step_begin(r, &steps[i]);
        if (refused[i])
            error = refusal_check(r, error);
        if (error)
            return error;
        if (!compare(r, predicted[i + 1], proof))
            return 0;
        error = r->rows && !steps[i].call ? step_store(r) : 0;
        if (!error && steps[i].drafts)
            error = drafts_commit(r, &steps[i]);
        if (error)
            return error;
        if (!compare(r, predicted[i + 1], proof))
            return 0;
    }
    return 0;
}

/* ---- a proof --------------------------------------------------------------------------------------------------- */

/* Each step by itself, so that each has its prediction. From malloc. *ordinals: at most, of tokens that are fed or found. */
static kvb_size_step *steps_unroll(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, size_t *n_single,
                                   uint64_t *ordinals)
{
    *n_single = *ordinals = 0;
    for (size_t i = 0; i < n; i++) {
        *n_single += steps[i].times;
        *ordinals += steps[i].call == KVB_SIZE_FIND
                         ? s->options.seq_capacity
                         : (uint64_t)steps[i].times * steps[i].n_seqs * kvb_size_brings(&steps[i]);
    }
    kvb_size_step *single = calloc(*n_single + 1, sizeof *single);
    for (size_t i = 0, at = 0; single && i < n; i++)
        for (uint32_t t = 0; t < steps[i].times; t++, at++) {
            single[at] = steps[i];
            single[at].times = 1;
        }
    return single;
}

static int cache_run(run *r, const kvb_size_step *steps, size_t n, const uint64_t *predicted, const bool *refused,
                     kvb_size_proof *proof, char *why, size_t why_bytes)
{
    const kvb_size_subject *s = r->subject;
    kvb_cache_options options = s->options;
    options.allocator = &r->allocator;
    int error = kvb_cache_open(s->cache, &s->model, &options, &r->cache, why, why_bytes);
    if (error)
        return error;
    error = replay(r, steps, n, predicted, refused, proof);
    if (r->allowed)
        snprintf(why, why_bytes, "cache %s: a call was taken that it was to refuse", s->cache->name);
    else if (error)
        snprintf(why, why_bytes, "cache %s: %s", s->cache->name,
                 *kvb_cache_why(r->cache) ? kvb_cache_why(r->cache) : strerror(-error));
    kvb_cache_close(r->cache);
    if (!error && r->allocator.current_bytes)
        compare(r, 0, proof);
    return error;
}

static void run_end(run *r)
{
    kvb_slot_files_close(&r->files);
    free(r->position);
    free(r->fed);
    free(r->ids);
    free(r->parents);
    free(r->sources);
    free(r->tokens);
    free(r->held);
    free(r);
}

/* NULL: no memory. */
static run *run_begin(const kvb_size_subject *s, kvb_proof_rows *rows, uint64_t ordinals)
{
    const size_t n = ordinals + 1, n_ids = s->options.seq_ids ? s->options.seq_ids : KVB_SEQ_IDS;
    const bool finds = s->cache->flags & KVB_CACHE_PREFIX;
    run *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (run){.subject = s,
               .rows = rows,
               .most = (uint32_t)ordinals,
               .n_ids = (uint32_t)n_ids,
               .position = malloc(n * sizeof *r->position),
               .fed = malloc(n * sizeof *r->fed),
               .ids = malloc((n + n_ids) * sizeof *r->ids),
               .parents = malloc(n * sizeof *r->parents),
               .sources = malloc(n_ids * sizeof *r->sources),
               .tokens = finds ? malloc(n * sizeof *r->tokens) : NULL,
               .held = finds ? calloc(n_ids * s->options.seq_capacity, sizeof *r->held) : NULL};
    if (r->position && r->fed && r->ids && r->parents && r->sources && (!finds || (r->tokens && r->held))) {
        if (finds)
            r->tokens[ordinals] = -1;
        return r;
    }
    run_end(r);
    return NULL;
}

static bool saves(const kvb_size_step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (steps[i].call == KVB_SIZE_SWAP || steps[i].call == KVB_SIZE_RELOAD)
            return true;
    return false;
}

int kvb_size_prove(const kvb_size_subject *subject, const kvb_size_step *steps, size_t n, kvb_proof_rows *rows,
                   kvb_size_proof *proof, char *why, size_t why_bytes)
{
    size_t n_single;
    uint64_t ordinals;
    run *r = NULL;
    kvb_size_step *single = steps_unroll(subject, steps, n, &n_single, &ordinals);
    uint64_t *predicted = calloc(n_single + 1, sizeof *predicted);
    bool *refused = calloc(n_single + 1, sizeof *refused);
    int error = single && predicted && refused ? 0 : -ENOMEM;
    *proof = (kvb_size_proof){0};
    if (!error)
        error = kvb_size_predict(subject, single, n_single, predicted, refused, why, why_bytes);
    if (!error) {
        r = run_begin(subject, rows, ordinals);
        error = !r ? -ENOMEM : saves(steps, n) ? kvb_slot_files_open(&r->files, why, why_bytes) : 0;
    }
    if (!error)
        error = cache_run(r, single, n_single, predicted, refused, proof, why, why_bytes);
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory to replay %llu tokens", (unsigned long long)ordinals);
    if (r)
        run_end(r);
    free(predicted);
    free(refused);
    free(single);
    return error;
}
