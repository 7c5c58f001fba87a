/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a saved sequence, or of a whole cache:
 *
 *   "KVBCACHE", version, length of the text         8, 4, 4 bytes; numbers as the machine has them
 *   text                                            describes the cache, in lines: a cache with other lines refuses it
 *   sequences: their number, then of each           id, number of spans, spans (position -> ordinal)
 *   of each group: cells to which the pools had grown; then of each sequence the number of its spans, and spans (position -> row)
 *   of each group, layer of it, K and V: bytes      the rows, or the pool as it lies
 *   CRC-32 of all before it                         4 bytes
 *
 * Rows of one sequence are numbered in the order of positions. Those of a whole cache go by their cells, ascending; a shared cell
 * is there once.
 */
#include "caches/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUFFER 65536u

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct output {
    int fd, error;
    uint32_t sum;
    size_t n;
    char *buffer; /* [BUFFER] */
} output;

static void output_flush(output *out)
{
    for (size_t done = 0; done < out->n && !out->error;) {
        const ssize_t some = write(out->fd, out->buffer + done, out->n - done);
        if (some > 0)
            done += (size_t)some;
        else if (some == 0 || errno != EINTR)
            out->error = some == 0 ? -EIO : -errno;
    }
    out->n = 0;
}

static void put(output *out, const void *bytes, size_t n)
{
    out->sum = kvb_saved_sum(out->sum, bytes, n);
    for (size_t done = 0, some; done < n && !out->error; done += some) {
        some = BUFFER - out->n < n - done ? BUFFER - out->n : n - done;
        memcpy(out->buffer + out->n, (const char *)bytes + done, some);
        out->n += some;
        if (out->n == BUFFER)
            output_flush(out);
    }
}

static void put_number(output *out, uint32_t number)
{
    put(out, &number, sizeof number);
}

static void put_spans(output *out, const kvb_spans *spans)
{
    put_number(out, (uint32_t)spans->n);
    put(out, spans->span, spans->n * sizeof *spans->span);
}

/* The rows of one group: where each sequence's lie, and which cells that are. */
typedef struct group_rows {
    kvb_spans *lies; /* [n] */
    uint32_t n;
    uint32_t *cells; /* [n_cells] in the order in which they are written */
    size_t n_cells, room;
} group_rows;

static void rows_free(group_rows *r, kvb_allocator *a)
{
    for (uint32_t i = 0; i < r->n && r->lies; i++)
        kvb_spans_free(&r->lies[i], a);
    kvb_free(a, r->lies, (r->n + (size_t)1) * sizeof *r->lies);
    kvb_free(a, r->cells, r->room * sizeof *r->cells);
}

static int rows_find(kvb_store *s, const uint32_t *seqs, uint32_t n, bool whole, group_rows *r)
{
    uint32_t most = 0;
    r->n = n;
    r->lies = kvb_alloc_zeroed(s->allocator, (n + (size_t)1) * sizeof *r->lies);
    int error = r->lies ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n && s->type->lies && !error; i++) {
        error = s->type->lies(s, seqs[i], &r->lies[i]);
        most += r->lies[i].tokens;
    }
    error = error ? error : kvb_grow(s->allocator, &r->cells, &r->room, whole ? s->pool_cells : most);
    if (error)
        return error;
    for (uint32_t c = 0; whole && c < s->pool_cells; c++)
        r->cells[c] = 0;
    for (uint32_t i = 0; i < n; i++)
        for (size_t j = 0; j < r->lies[i].n; j++) {
            kvb_span *span = &r->lies[i].span[j];
            for (uint32_t k = 0; k < span->n; k++)
                if (whole)
                    r->cells[span->at + k] = 1;
                else
                    r->cells[r->n_cells + k] = (uint32_t)span->at + k;
            if (whole)
                continue;
            span->at = r->n_cells; /* rows are numbered anew */
            r->n_cells += span->n;
        }
    for (uint32_t c = 0; whole && c < s->pool_cells; c++)
        if (r->cells[c])
            r->cells[r->n_cells++] = c;
    return 0;
}

/* Bytes of a pool's part of the file, by as many cells at a time as fit in the buffer. */
static int pool_write(output *out, kvb_store *s, const kvb_pool *pool, const group_rows *r)
{
    const size_t one = pool->type->raw_bytes(pool, &(uint32_t){0}, 1);
    const size_t all = one ? one : pool->type->raw_bytes(pool, NULL, s->ensured);
    void *raw = kvb_alloc(s->allocator, all ? all : 1);
    if (!raw)
        return -ENOMEM;
    for (size_t i = 0; i < r->n_cells && one; i++) {
        pool->type->read_raw(pool, &r->cells[i], 1, raw);
        put(out, raw, one);
    }
    if (!one) {
        pool->type->read_raw(pool, NULL, s->ensured, raw);
        put(out, raw, all);
    }
    kvb_free(s->allocator, raw, all ? all : 1);
    return 0;
}

static int body_write(output *out, const kvb_store_site *site, kvb_store *const *stores, const uint32_t *seqs,
                      uint32_t n, const group_rows *rows)
{
    int error = 0;
    put_number(out, n);
    for (uint32_t i = 0; i < n; i++) {
        put_number(out, seqs[i]);
        put_spans(out, &site->account->seq[seqs[i]]);
    }
    for (uint32_t g = 0; g < site->model->n_groups; g++) {
        put_number(out, site->type->lies ? stores[g]->ensured : 0);
        for (uint32_t i = 0; i < n; i++)
            put_spans(out, &rows[g].lies[i]);
    }
    for (uint32_t g = 0; g < site->model->n_groups && site->type->lies; g++)
        for (size_t i = 0; i < stores[g]->n_pools && !error; i++)
            if (stores[g]->pools[i])
                error = pool_write(out, stores[g], stores[g]->pools[i], &rows[g]);
    return error;
}

/* Do the rows stand for all tokens (a state does by itself), so that it does not matter which cache they come from? */
static bool is_whole_of(const kvb_store_site *site, const uint32_t *seqs, uint32_t n, const group_rows *rows)
{
    for (uint32_t g = 0; g < site->model->n_groups; g++)
        for (uint32_t i = 0; i < n; i++)
            if (!kvb_group_scans(&site->model->groups[g]) &&
                rows[g].lies[i].tokens != site->account->seq[seqs[i]].tokens)
                return false;
    return true;
}

static int file_write(output *out, const kvb_store_site *site, kvb_store *const *stores, uint32_t seq)
{
    const bool whole = seq == KVB_SEQ_ALL;
    const uint32_t *seqs = whole ? site->account->alive : &seq;
    const uint32_t n = whole ? site->account->n_alive : site->account->seq[seq].tokens > 0;
    group_rows rows[KVB_MODEL_GROUPS] = {0};
    kvb_saved_words t = {0};
    int error = 0;
    for (uint32_t g = 0; g < site->model->n_groups && !error; g++)
        error = rows_find(stores[g], seqs, n, whole, &rows[g]);
    if (!error)
        error = kvb_saved_text(site, stores, whole, !whole && is_whole_of(site, seqs, n, rows), &t);
    if (!error) {
        kvb_saved_head head = {.magic = KVB_SAVED_MAGIC, .version = KVB_SAVED_VERSION, .text_bytes = (uint32_t)t.n};
        put(out, &head, sizeof head);
        put(out, t.at, t.n);
        error = body_write(out, site, stores, seqs, n, rows);
    }
    put_number(out, out->sum);
    output_flush(out);
    kvb_free(site->options->allocator, t.at, t.room);
    for (uint32_t g = 0; g < site->model->n_groups; g++)
        rows_free(&rows[g], site->options->allocator);
    return error ? error : out->error;
}

int kvb_saved_write(const kvb_store_site *site, kvb_store *const *stores, uint32_t seq, const char *path)
{
    char beside[PATH_MAX];
    int error = kvb_saved_pools_check(site, stores, seq == KVB_SEQ_ALL);
    if (!error && (size_t)snprintf(beside, sizeof beside, "%s.tmp", path) >= sizeof beside)
        error = kvb_saved_system(site, -ENAMETOOLONG, path);
    if (error)
        return error;
    output out = {.buffer = kvb_alloc(site->options->allocator, BUFFER)};
    if (!out.buffer)
        return kvb_saved_no_memory(site, path);
    out.fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    error = out.fd < 0 ? -errno : file_write(&out, site, stores, seq);
    if (out.fd >= 0 && close(out.fd) && !error)
        error = -errno;
    if (!error && rename(beside, path))
        error = -errno;
    if (error && out.fd >= 0)
        unlink(beside);
    kvb_free(site->options->allocator, out.buffer, BUFFER);
    return error == -ENOMEM ? kvb_saved_no_memory(site, path) : error ? kvb_saved_system(site, error, path) : 0;
}
