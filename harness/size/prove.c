/* SPDX-License-Identifier: Apache-2.0 */
/* A history replayed through a cache, compared with its prediction at every step. */
#include "harness/size/prove.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    kvb_allocator allocator;
    kvb_cache *cache;
    const kvb_size_subject *subject;
    kvb_proof_rows *rows;
    uint32_t *position;         /* [ordinals] of every token admitted so far */
    uint32_t *fed;              /* [ordinals] positions of the fed tokens */
    uint32_t *ids;              /* [ordinals] of the step's tokens */
    uint32_t ordinals, cells;   /* admitted, alive */
    uint32_t len[KVB_MAX_SEQS]; /* tokens of each sequence */
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

/* One of the step's times, or another call: begin it, and note the positions of its tokens by ordinal. */
static int step_begin(run *r, const kvb_size_step *s)
{
    static const int32_t roots[KVB_SIZE_DRAFTS] = {[0 ... KVB_SIZE_DRAFTS - 1] = -1};
    uint32_t n = s->drafts ? s->drafts : s->n_seqs * s->tokens;
    int error = 0;
    for (uint32_t i = 1; i <= s->n_seqs && s->call == KVB_SIZE_SHARE && !error; i++) {
        error = kvb_cache_seq_cp(r->cache, s->first, s->first + i, 0, s->tokens);
        r->len[s->first + i] = s->tokens;
    }
    if (s->call == KVB_SIZE_SHARE)
        return error;
    if (s->call == KVB_SIZE_DEFRAG)
        return kvb_cache_defrag(r->cache);
    if (s->call == KVB_SIZE_SHIFT) {
        r->len[s->first] += r->len[s->first] > 0;
        return kvb_cache_seq_add(r->cache, s->first, 0, KVB_POS_END, 1);
    }
    for (uint32_t i = 0; i < n; i++) {
        r->ids[i] = s->n_seqs > 1 ? s->first + i : s->first;
        r->position[r->ordinals++] = r->len[r->ids[i]] + (s->n_seqs > 1 || s->drafts ? 0 : i);
    }
    for (uint32_t i = 0; i < s->n_seqs; i++)
        r->len[s->first + i] += s->tokens;
    r->cells += s->n_seqs * s->tokens;
    if (s->drafts)
        return kvb_cache_propose(r->cache, NULL, roots, n);
    return kvb_cache_begin_step(r->cache, s->n_seqs == 1 && s->first == 0 ? NULL : r->ids, n);
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

static bool compare(run *r, uint64_t predicted, kvb_size_proof *proof)
{
    proof->lengths++;
    proof->cells = r->cells;
    proof->predicted = predicted;
    proof->allocated = r->allocator.current_bytes;
    return proof->predicted == proof->allocated;
}

/* Equal steps, each `times` 1. */
static int replay(run *r, const kvb_size_step *steps, size_t n, const uint64_t *predicted, kvb_size_proof *proof)
{
    if (!compare(r, predicted[0], proof))
        return 0;
    for (size_t i = 0; i < n; i++) {
        int error = step_begin(r, &steps[i]);
        if (error)
            return error;
        if (!compare(r, predicted[i + 1], proof))
            return 0;
        error = r->rows && !steps[i].call ? step_store(r) : 0;
        if (!error && steps[i].drafts) {
            uint32_t last = steps[i].drafts - 1;
            error = kvb_cache_commit(r->cache, 0, &last, 1);
        }
        if (error)
            return error;
        if (!compare(r, predicted[i + 1], proof))
            return 0;
    }
    return 0;
}

/* ---- a proof --------------------------------------------------------------------------------------------------- */

/* Each step by itself, so that each has its prediction. From malloc. */
static kvb_size_step *steps_unroll(const kvb_size_step *steps, size_t n, size_t *n_single, uint64_t *ordinals)
{
    *n_single = *ordinals = 0;
    for (size_t i = 0; i < n; i++) {
        *n_single += steps[i].times;
        *ordinals +=
            (uint64_t)steps[i].times * steps[i].n_seqs * steps[i].tokens * (steps[i].drafts ? steps[i].drafts : 1);
    }
    kvb_size_step *single = calloc(*n_single + 1, sizeof *single);
    for (size_t i = 0, at = 0; single && i < n; i++)
        for (uint32_t t = 0; t < steps[i].times; t++, at++) {
            single[at] = steps[i];
            single[at].times = 1;
        }
    return single;
}

static int cache_run(run *r, const kvb_size_step *steps, size_t n, const uint64_t *predicted, kvb_size_proof *proof,
                     char *why, size_t why_bytes)
{
    const kvb_size_subject *s = r->subject;
    kvb_cache_options options = s->options;
    options.allocator = &r->allocator;
    int error = kvb_cache_open(s->cache, &s->model, &options, &r->cache, why, why_bytes);
    if (error)
        return error;
    error = replay(r, steps, n, predicted, proof);
    if (error)
        snprintf(why, why_bytes, "cache %s: %s", s->cache->name,
                 *kvb_cache_why(r->cache) ? kvb_cache_why(r->cache) : strerror(-error));
    kvb_cache_close(r->cache);
    if (!error && r->allocator.current_bytes)
        compare(r, 0, proof);
    return error;
}

int kvb_size_prove(const kvb_size_subject *subject, const kvb_size_step *steps, size_t n, kvb_proof_rows *rows,
                   kvb_size_proof *proof, char *why, size_t why_bytes)
{
    size_t n_single;
    uint64_t ordinals;
    run *r = calloc(1, sizeof *r);
    kvb_size_step *single = steps_unroll(steps, n, &n_single, &ordinals);
    uint64_t *predicted = calloc(n_single + 1, sizeof *predicted);
    int error = r && single && predicted ? 0 : -ENOMEM;
    *proof = (kvb_size_proof){0};
    if (!error) {
        error = kvb_size_predict(subject, single, n_single, predicted, why, why_bytes);
        if (!error) {
            *r = (run){.subject = subject,
                       .rows = rows,
                       .position = malloc((ordinals + 1) * sizeof *r->position),
                       .fed = malloc((ordinals + 1) * sizeof *r->fed),
                       .ids = malloc((ordinals + 1) * sizeof *r->ids)};
            error = r->position && r->fed && r->ids ? cache_run(r, single, n_single, predicted, proof, why, why_bytes)
                                                    : -ENOMEM;
        }
    }
    if (error == -ENOMEM)
        snprintf(why, why_bytes, "no memory to replay %llu tokens", (unsigned long long)ordinals);
    if (r) {
        free(r->position);
        free(r->fed);
        free(r->ids);
    }
    free(r);
    free(predicted);
    free(single);
    return error;
}
