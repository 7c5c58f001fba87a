/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.cpp's evaluation callback: checks the attention nodes of one decode. The cells that the mask shows to each
 * token are compared with the shadow, in integers. The node's output is compared with double arithmetic over its own
 * inputs. If both are right and the logits are wrong, attention got wrong rows. The indices that store K tell which
 * token lies in a cell. If there are none (restored cells, models with a state), visible cells are only counted.
 */
#include "harness/engine/engine.h"
#include "oracle/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 4e-3 /* of an output's error: q and sums in f16 cause at most 1e-3 */

enum { I64 = 27 };

typedef kvb_llama_tensor tensor;

double kvb_llama_element(const tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    const char *at = (const char *)t->data + (size_t)i0 * t->nb[0] + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] +
                     (size_t)i3 * t->nb[3];
    uint16_t bits;
    float value;
    if (t->type == KVB_LLAMA_F32) {
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    memcpy(&bits, at, sizeof bits);
    return kvb_codec_value(KVB_F16, bits);
}

float kvb_llama_parameter(const tensor *t, int i)
{
    float value;
    memcpy(&value, &t->op_params[i], sizeof value);
    return value;
}

bool kvb_llama_is_plain(const tensor *t)
{
    return t && (t->type == KVB_LLAMA_F32 || t->type == KVB_LLAMA_F16);
}

/*
 * The largest error of an attention's output, as a share of the largest exact output, which is attention of the same
 * inputs in double. Flash attention: V is [cell][dim], the output [token][head][dim]. Without: V is [dim][cell], the
 * output [head][token][dim].
 */
static double output_error(const tensor *t, const tensor *q, const tensor *k, const tensor *v, const tensor *mask,
                           double factor, bool flash)
{
    const int64_t cells = k->ne[1], heads = q->ne[2];
    double worst = 0, scale = 0, *w = malloc((size_t)cells * sizeof *w);
    for (int64_t row = 0; w && row < q->ne[1] * heads * q->ne[3]; row++) {
        const int64_t j = row % q->ne[1], h = row / q->ne[1] % heads, s = row / q->ne[1] / heads;
        double most = -HUGE_VAL, sum = 0;
        for (int64_t c = 0; c < cells; c++) {
            double x = 0;
            for (int64_t d = 0; d < q->ne[0]; d++)
                x += kvb_llama_element(q, d, j, h, s) * kvb_llama_element(k, d, c, h / (heads / k->ne[2]), s);
            w[c] = x * factor + kvb_llama_element(mask, c, j, 0, s % mask->ne[3]);
            most = fmax(most, w[c]);
        }
        for (int64_t c = 0; c < cells; c++)
            sum += w[c] = exp(w[c] - most);
        for (int64_t d = 0; d < t->ne[0]; d++) {
            const int64_t kv = h / (heads / v->ne[2]);
            double exact = 0;
            for (int64_t c = 0; c < cells; c++)
                if (w[c] > 0) /* hidden cells may hold anything */
                    exact += w[c] / sum * kvb_llama_element(v, flash ? d : c, flash ? c : d, kv, s);
            const double off = fabs(exact - kvb_llama_element(t, d, flash ? h : j, flash ? j : h, s));
            worst = isnan(off) ? HUGE_VAL : fmax(worst, off);
            scale = fmax(scale, fabs(exact));
        }
    }
    free(w);
    return worst / fmax(scale, 1e-30);
}

static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Notes which token a decode stores in which cell. Tokens are stored in order; split: in order in each stream. */
static void store_look(kvb_llama_watch *w, const tensor *t)
{
    const tensor *cache = t->view_src, *index = t->src[1];
    if (!cache || strncmp(cache->name, "cache_k_l", 9) != 0 || !index || index->type != I64)
        return;
    if (!*w->cache)
        snprintf(w->cache, sizeof w->cache, "%s", cache->name);
    if (strcmp(w->cache, cache->name) != 0)
        return;
    w->stream_cells = (uint32_t)cache->ne[1];
    for (int64_t i = 0; i < index->ne[0] && w->named; i++) {
        int64_t at;
        memcpy(&at, (const char *)index->data + (size_t)i * index->nb[0], sizeof at);
        const uint32_t first = w->n_tokens - w->n;
        uint32_t k = 0;
        while (k < w->n && (w->is_stored[k] || (w->split && w->tokens[first + k].seq != at / cache->ne[1])))
            k++;
        w->named = k < w->n && at >= 0 && at < (int64_t)(sizeof w->cells / sizeof *w->cells);
        if (!w->named)
            return;
        w->cells[at] = first + k + 1;
        w->is_stored[k] = true;
        w->rows[w->n_stored++] = k;
    }
}

/* Notes the visible cells of a row of a mask. */
static void row_look(kvb_llama_watch *w, const tensor *mask, int64_t row, int64_t stream)
{
    const uint32_t at = w->n_shown < w->n_stored ? w->rows[w->n_shown] : 0;
    const size_t from = w->split && w->named ? (size_t)w->tokens[w->n_tokens - w->n + at].seq * w->stream_cells : 0;
    uint32_t *shown = &w->shown[w->n_shown++];
    *shown = 0;
    for (int64_t c = 0; c < mask->ne[0]; c++) {
        if (isinf(kvb_llama_element(mask, c, row, 0, stream % mask->ne[3])))
            continue;
        ++*shown;
        if (w->n_seen == w->room) {
            const uint32_t room = 2 * w->room + 1024;
            uint32_t *seen = realloc(w->seen, room * sizeof *seen);
            w->named = w->named && seen;
            w->seen = seen ? seen : w->seen;
            w->room = seen ? room : w->room;
        }
        if (w->named)
            w->seen[w->n_seen++] = w->cells[from + (size_t)c];
    }
}

/* Copies a tensor. Without flash attention the memory of q and mask is reused before the output is computed. */
static void keep(void **copy, const tensor *t)
{
    size_t bytes = t->type == KVB_LLAMA_F32 ? sizeof(float) : sizeof(uint16_t);
    for (int i = 0; i < 4; i++)
        bytes += (size_t)(t->ne[i] - 1) * t->nb[i];
    tensor *kept = kvb_llama_is_plain(t) ? realloc(*copy, sizeof *kept + bytes) : NULL;
    if (!kept)
        return;
    *kept = *t;
    kept->data = kept + 1;
    memcpy(kept->data, t->data, bytes);
    *copy = kept;
}

/* Compares the node V * softmax(K q) with exact attention. */
static void product_look(kvb_llama_watch *w, const tensor *t)
{
    const tensor *softmax = t->src[1], *scores = softmax->src[0], *v = t->src[0], *q = w->query, *mask = w->mask;
    const bool known = q && mask && !softmax->src[2] && kvb_llama_parameter(softmax, 1) == 0 &&
                       !strcmp(w->op_desc(scores), "MUL_MAT") && kvb_llama_is_plain(v) &&
                       kvb_llama_is_plain(scores->src[0]) && w->get_data((void *)t) == t->data;
    if (!known || q->ne[1] != t->ne[1] || q->ne[2] != t->ne[2] || q->ne[3] != t->ne[3])
        return;
    w->error =
        fmax(w->error, output_error(t, q, scores->src[0], v, mask, (double)kvb_llama_parameter(softmax, 0), false));
    w->nodes++;
}

bool kvb_llama_watch_node(void *node, bool ask, void *ctx)
{
    kvb_llama_watch *watch = ctx;
    const tensor *t = node;
    if (watch->take)
        return watch->take(watch, t, ask);
    const char *op = watch->op_desc(node);
    const bool flash = !strcmp(op, "FLASH_ATTN_EXT");
    const bool stores = !strcmp(op, "SET_ROWS"), multiplies = !strcmp(op, "MUL_MAT");
    const bool understood = watch->get_name(node) == t->name;
    const bool scores = multiplies && understood && !strncmp(t->name, "kq-", 3);
    const bool sums = multiplies && understood && t->src[1] && !strcmp(watch->op_desc(t->src[1]), "SOFT_MAX");
    if (ask)
        return flash || stores || scores || sums || !strcmp(op, "SOFT_MAX");
    if (stores && understood)
        store_look(watch, t);
    if (scores)
        keep(&watch->query, t->src[1]);
    if (sums)
        product_look(watch, t);
    if (stores || multiplies)
        return true;
    const tensor *mask = t->src[flash ? 3 : 1];
    if (watch->get_data(node) != t->data || !understood || !kvb_llama_is_plain(mask))
        return true; /* an unknown layout: not judged */
    if (!flash)
        keep(&watch->mask, mask);
    if (!*watch->first)
        snprintf(watch->first, sizeof watch->first, "%s", t->name);
    const int64_t tokens = flash ? t->src[0]->ne[1] : t->ne[1];
    for (int64_t s = 0; s < t->ne[3] && !strcmp(watch->first, t->name); s++) /* one layer: all have the same mask */
        for (int64_t j = 0; j < tokens && watch->n_shown < KVB_SHADOW_TOKENS; j++)
            row_look(watch, mask, j, s);
    if (flash && !t->src[4] && kvb_llama_parameter(t, 1) == 0 && kvb_llama_parameter(t, 2) == 0 &&
        kvb_llama_is_plain(t->src[1]) && kvb_llama_is_plain(t->src[2])) {
        watch->error = fmax(watch->error, output_error(t, t->src[0], t->src[1], t->src[2], mask,
                                                       (double)kvb_llama_parameter(t, 0), true));
        watch->nodes++;
    }
    return true;
}

void kvb_llama_watch_clear(kvb_llama_watch *w, bool split, bool named)
{
    w->split = split;
    w->named = named;
    w->n_tokens = 0;
    memset(w->cells, 0, sizeof w->cells);
}

void kvb_llama_watch_copy(kvb_llama_watch *w, uint32_t from, uint32_t to)
{
    const size_t n = w->stream_cells;
    if (w->split && (from + 1) * n <= sizeof w->cells / sizeof *w->cells &&
        (to + 1) * n <= sizeof w->cells / sizeof *w->cells)
        memcpy(w->cells + to * n, w->cells + from * n, n * sizeof *w->cells);
}

void kvb_llama_watch_begin(kvb_llama_watch *w, const kvb_engine_token *tokens, uint32_t n)
{
    *w->first = *w->cache = *w->said = '\0';
    w->n = n;
    w->n_stored = w->n_shown = w->n_seen = w->nodes = 0;
    w->error = 0;
    memset(w->is_stored, 0, sizeof w->is_stored);
    w->named = w->named && n <= KVB_SHADOW_TOKENS && w->n_tokens + n <= KVB_WATCH_TOKENS;
    for (uint32_t i = 0; i < n && w->named; i++) {
        w->tokens[w->n_tokens].seq = tokens[i].seq;
        w->tokens[w->n_tokens++].pos = tokens[i].pos;
    }
}

/* Describes the first cell that is wrongly visible or wrongly hidden. False: there is none. */
static bool cell_say(kvb_llama_watch *w, const uint32_t *sees, uint32_t n)
{
    enum { HIDDEN, MUST, SEEN };
    static unsigned char state[KVB_WATCH_TOKENS];
    uint32_t wrong = 0, query = 0, token = 0, at = 0;
    bool misses = false;
    for (uint32_t row = 0; row < n; row++) {
        const uint32_t *must = sees + n;
        for (uint32_t k = 0; k < w->rows[row]; k++)
            must += sees[k];
        for (uint32_t i = 0; i < sees[w->rows[row]]; i++)
            state[must[i]] = MUST;
        for (uint32_t i = 0; i < w->shown[row]; i++) {
            const uint32_t held = w->seen[at++];
            if (held && state[held - 1] == MUST)
                state[held - 1] = SEEN;
            else if (!wrong++) {
                query = w->rows[row];
                token = held;
            }
        }
        for (uint32_t i = 0; i < sees[w->rows[row]]; i++) {
            if (state[must[i]] == MUST && !wrong++) {
                query = w->rows[row];
                token = must[i] + 1;
                misses = true;
            }
            state[must[i]] = HIDDEN;
        }
    }
    if (!wrong)
        return false;
    const uint32_t asks = w->n_tokens - w->n + query;
    char what[80] = "a cell that was never written";
    if (token)
        snprintf(what, sizeof what, "the token decoded as %d of sequence %u", w->tokens[token - 1].pos,
                 w->tokens[token - 1].seq);
    snprintf(w->said, sizeof w->said, "visibility: position %d of sequence %u %s %s, first of %u wrong cells",
             w->tokens[asks].pos, w->tokens[asks].seq, misses ? "does not see" : "sees", what, wrong);
    return true;
}

void kvb_llama_watch_say(kvb_llama_watch *watch, const uint32_t *sees, uint32_t n)
{
    uint32_t must[KVB_SHADOW_TOKENS], i = 0;
    const bool named = watch->named && watch->n_stored == n && watch->n_shown == n;
    if (named && cell_say(watch, sees, n))
        return;
    memcpy(must, sees, n * sizeof *must);
    qsort(must, n, sizeof *must, by_size);
    qsort(watch->shown, watch->n_shown, sizeof *watch->shown, by_size);
    while (i < n && i < watch->n_shown && must[i] == watch->shown[i])
        i++;
    if (!watch->n_shown || watch->n_shown != n)
        *watch->said = '\0';
    else if (i < n)
        snprintf(watch->said, sizeof watch->said, "visibility: the mask shows a token %u cells, and must show %u",
                 watch->shown[i], must[i]);
    else if (watch->nodes && watch->error > LIMIT)
        snprintf(watch->said, sizeof watch->said, "arithmetic: attention is off by %.2g from its own inputs",
                 watch->error);
    else
        snprintf(watch->said, sizeof watch->said, "rows: %s%s",
                 named ? "the right cells are visible" : "as many cells are visible as must be",
                 watch->nodes ? ", and attention of what they hold is right" : "");
}
