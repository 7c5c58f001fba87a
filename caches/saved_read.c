/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the file of a saved cache. The whole file is read and judged before anything is changed: its checksum, then its
 * description of the cache, then every list, since a file may come from anywhere.
 */
#include "caches/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOWHERE UINT32_MAX
#define LOW     ((UINT64_C(1) << KVB_REVISION_AT) - 1) /* bits of an ordinal, and far more than a cell's */

/* The rows of one group. */
typedef struct group_load {
    kvb_store_load load;
    kvb_spans *rows; /* [n] of load.rows */
    uint32_t *cell;  /* [cell_room] of load.cell */
    size_t cell_room;
    const char **raw; /* [n_raw] of load.raw */
    size_t n_raw;
} group_load;

struct kvb_saved {
    const kvb_store_site *site; /* while it is read */
    kvb_store *const *stores;
    const char *path;
    kvb_allocator *allocator;
    char *bytes; /* of the file */
    size_t n_bytes, at, end;
    bool whole, apart;   /* apart: as in kvb_store_load */
    uint32_t seq;        /* that it is loaded as, where not all are */
    kvb_account account; /* of what was saved */
    uint32_t n_groups;
    group_load groups[KVB_MODEL_GROUPS];
    void *scratch;
    size_t scratch_bytes;
};

static int wrong(const kvb_saved *f, const char *what)
{
    return kvb_saved_fail(f->site, -EINVAL, "%.120s: %s", f->path, what);
}

static int no_memory(const kvb_saved *f)
{
    return kvb_saved_no_memory(f->site, f->path);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int bytes_read(kvb_saved *f, int fd)
{
    struct stat about;
    if (fstat(fd, &about))
        return kvb_saved_system(f->site, -errno, f->path);
    if (!S_ISREG(about.st_mode) || about.st_size < 1)
        return wrong(f, "is not a saved cache");
    f->n_bytes = (size_t)about.st_size;
    f->bytes = kvb_alloc(f->allocator, f->n_bytes);
    if (!f->bytes)
        return no_memory(f);
    for (size_t done = 0; done < f->n_bytes;) {
        const ssize_t some = read(fd, f->bytes + done, f->n_bytes - done);
        if (some > 0)
            done += (size_t)some;
        else if (some == 0)
            return wrong(f, "became shorter while it was read");
        else if (errno != EINTR)
            return kvb_saved_system(f->site, -errno, f->path);
    }
    return 0;
}

/* The next n bytes; NULL: there are not so many. */
static const char *take(kvb_saved *f, uint64_t n)
{
    if (n > f->end - f->at)
        return NULL;
    f->at += (size_t)n;
    return f->bytes + f->at - n;
}

static bool number_take(kvb_saved *f, uint32_t *number)
{
    const char *bytes = take(f, sizeof *number);
    if (bytes)
        memcpy(number, bytes, sizeof *number);
    return bytes;
}

/* Magic, version, checksum, and the description. */
static int head_read(kvb_saved *f)
{
    kvb_saved_head head;
    kvb_saved_words own = {0};
    uint32_t sum;
    if (f->n_bytes < sizeof head + sizeof sum || memcmp(f->bytes, KVB_SAVED_MAGIC, sizeof head.magic))
        return wrong(f, "is not a saved cache");
    memcpy(&head, f->bytes, sizeof head);
    if (head.version != KVB_SAVED_VERSION)
        return kvb_saved_fail(f->site, -EINVAL, "%.120s: is of version %u, expected %u", f->path, head.version,
                              KVB_SAVED_VERSION);
    f->end = f->n_bytes - sizeof sum;
    f->at = sizeof head;
    memcpy(&sum, f->bytes + f->end, sizeof sum);
    if (sum != kvb_saved_sum(0, f->bytes, f->end))
        return wrong(f, "is damaged: its checksum is another");
    const char *text = take(f, head.text_bytes);
    if (!text)
        return wrong(f, "is shorter than it says");
    int error = kvb_saved_text(f->site, f->stores, f->whole, false, &own);
    if (!error)
        error = kvb_saved_text_check(f->site, f->path, text, head.text_bytes, &own);
    kvb_free(f->allocator, own.at, own.room);
    return error == -ENOMEM ? no_memory(f) : error;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Spans, ascending by position, none empty; a position may be held twice where positions can be divided. */
static int spans_read(kvb_saved *f, kvb_spans *spans)
{
    const bool divides = f->site->type->flags & KVB_CACHE_DIVIDE;
    uint32_t n, next = 0;
    const char *bytes = number_take(f, &n) ? take(f, (uint64_t)n * sizeof(kvb_span)) : NULL;
    if (!bytes)
        return wrong(f, "is shorter than it says");
    if (kvb_spans_reserve(spans, f->allocator, n))
        return no_memory(f);
    memcpy(spans->span, bytes, n * sizeof(kvb_span));
    for (spans->n = 0; spans->n < n; spans->n++) {
        const kvb_span *s = &spans->span[spans->n];
        if (s->n == 0 || s->pos + UINT64_C(1) < next || s->n >= KVB_POS_END - s->pos || (s->at & LOW) > LOW - s->n ||
            s->n > UINT32_MAX - spans->tokens)
            return wrong(f, "has a sequence that is none");
        if (s->pos < next && !divides)
            return kvb_saved_fail(f->site, -ENOTSUP,
                                  "%.120s: position %u holds several tokens, which cache %s cannot do", f->path, s->pos,
                                  f->site->type->name);
        next = s->pos + s->n;
        spans->tokens += s->n;
    }
    return 0;
}

static int sequences_read(kvb_saved *f)
{
    const uint32_t n_ids = f->site->account->n_ids;
    uint32_t n = 0, id = 0;
    int error = number_take(f, &n) && (f->whole || n <= 1) ? 0 : wrong(f, "is shorter than it says");
    f->account = (kvb_account){.allocator = f->allocator, .n_ids = n_ids};
    if (!error && kvb_account_open(&f->account))
        error = no_memory(f);
    for (uint32_t i = 0; !error && i < n; i++) {
        kvb_spans tokens = {0};
        error = number_take(f, &id) ? spans_read(f, &tokens) : wrong(f, "is shorter than it says");
        id = f->whole ? id : f->seq;
        if (!error && id >= n_ids)
            error = kvb_saved_fail(f->site, -EINVAL, "%.120s: sequence %u is out of range: 0 .. %u", f->path, id,
                                   n_ids - 1);
        if (!error && (!tokens.n || f->account.seq[id].tokens))
            error = wrong(f, "has a sequence that is none");
        if (!error && kvb_account_put(&f->account, id, tokens.span, tokens.n))
            error = no_memory(f);
        kvb_spans_free(&tokens, f->allocator);
    }
    return error;
}

/* Whose row a cell holds. */
typedef struct owner {
    uint64_t token;
    uint32_t pos, held;
} owner;

/* Notes the token of each row; states belong to the last tokens. False: a row has no token of the sequence, or a
 * cell has two tokens. */
static bool owners_note(const kvb_spans *tokens, const kvb_spans *rows, bool states, owner *owners)
{
    if (states && rows->tokens > tokens->tokens)
        return false;
    kvb_spans_cursor cursor = kvb_spans_from(tokens, states ? tokens->tokens - rows->tokens : 0);
    for (size_t i = 0; i < rows->n; i++)
        for (uint32_t k = 0; k < rows->span[i].n; k++) {
            const uint32_t pos = rows->span[i].pos + k;
            owner *at = &owners[rows->span[i].at + k];
            const kvb_span one = kvb_spans_next_at(tokens, &cursor, pos);
            if (!one.n || (at->held && (at->token != one.at || at->pos != pos)))
                return false;
            *at = (owner){one.at, pos, 1};
        }
    return true;
}

/* Cells, or numbers of rows, that a list of a group names: their largest + 1. NOWHERE: more than there can be. */
static uint32_t extent_of(const kvb_saved *f, uint32_t g)
{
    const group_load *group = &f->groups[g];
    const uint64_t most = f->whole ? f->stores[g]->pool_cells : f->account.held;
    uint64_t extent = 0;
    for (uint32_t i = 0; i < f->account.n_alive; i++)
        for (size_t j = 0; j < group->rows[i].n; j++) {
            const kvb_span *span = &group->rows[i].span[j];
            if (!f->whole && span->at != extent) /* rows are numbered one after the other */
                return NOWHERE;
            extent = extent > span->at + span->n ? extent : span->at + span->n;
        }
    return extent > most ? NOWHERE : (uint32_t)extent;
}

static int cells_find(kvb_saved *f, uint32_t g)
{
    group_load *group = &f->groups[g];
    const uint32_t extent = extent_of(f, g);
    if (extent == NOWHERE && f->whole)
        return kvb_saved_fail(f->site, -ENOSPC, "%.120s: rows lie in cells that are not there: there are %u", f->path,
                              f->stores[g]->pool_cells);
    if (extent == NOWHERE)
        return wrong(f, "has rows that are no token's");
    owner *owners = kvb_alloc_zeroed(f->allocator, (extent + (size_t)1) * sizeof *owners);
    int error = owners && !kvb_grow(f->allocator, &group->cell, &group->cell_room, extent) ? 0 : no_memory(f);
    for (uint32_t i = 0; i < f->account.n_alive && !error; i++)
        if (!owners_note(&f->account.seq[f->account.alive[i]], &group->rows[i], kvb_group_scans(f->stores[g]->group),
                         owners))
            error = wrong(f, "has rows that are no token's");
    for (uint32_t c = 0; c < extent && !error; c++)
        if (owners[c].held)
            group->cell[group->load.n_rows++] = c;
    kvb_free(f->allocator, owners, (extent + (size_t)1) * sizeof *owners);
    return error;
}

static int group_read(kvb_saved *f, uint32_t g)
{
    group_load *group = &f->groups[g];
    const uint32_t n = f->account.n_alive;
    group->rows = kvb_alloc_zeroed(f->allocator, (n + (size_t)1) * sizeof *group->rows);
    int error = group->rows ? 0 : no_memory(f);
    f->n_groups = g + 1;
    if (!error && !number_take(f, &group->load.cells))
        error = wrong(f, "is shorter than it says");
    for (uint32_t i = 0; i < n && !error; i++)
        error = spans_read(f, &group->rows[i]);
    if (!error && f->whole && group->load.cells > f->stores[g]->pool_cells)
        error = kvb_saved_fail(f->site, -ENOSPC, "%.120s: has %u cells, this cache %u", f->path, group->load.cells,
                               f->stores[g]->pool_cells);
    if (!error)
        error = cells_find(f, g);
    group->load.rows = group->rows;
    group->load.cell = group->cell;
    return error;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int pool_rows_read(kvb_saved *f, uint32_t g, size_t i)
{
    group_load *group = &f->groups[g];
    const kvb_pool *pool = f->stores[g]->pools[i];
    const uint32_t n = group->load.n_rows, first = 0;
    const size_t one = pool ? pool->type->raw_bytes(pool, &first, 1) : 0;
    f->apart = f->apart && (!pool || one);
    if (!pool || (!f->account.n_alive && one))
        return 0;
    if (f->scratch_bytes < one) {
        void *grown = kvb_realloc(f->allocator, f->scratch, f->scratch_bytes, one);
        if (!grown)
            return no_memory(f);
        f->scratch = grown;
        f->scratch_bytes = one;
    }
    group->raw[i] = take(f, one ? (uint64_t)n * one : pool->type->raw_bytes(pool, NULL, group->load.cells));
    if (!group->raw[i])
        return wrong(f, "is shorter than it says");
    if (!one && pool->type->check_raw && !pool->type->check_raw(pool, group->load.cells, group->raw[i]))
        return wrong(f, "has rows that no pool stores so");
    return 0;
}

static int rows_read(kvb_saved *f)
{
    int error = 0;
    for (uint32_t g = 0; g < f->n_groups && !error; g++) {
        group_load *group = &f->groups[g];
        const kvb_store *s = f->stores[g];
        group->raw = kvb_alloc_zeroed(f->allocator, s->n_pools * sizeof *group->raw);
        group->n_raw = group->raw ? s->n_pools : 0;
        group->load.raw = group->raw;
        error = group->raw ? 0 : no_memory(f);
        for (size_t i = 0; i < s->n_pools && f->site->type->lies && !error; i++)
            error = pool_rows_read(f, g, i);
    }
    return error;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int body_read(kvb_saved *f)
{
    int error = sequences_read(f);
    for (uint32_t g = 0; g < f->site->model->n_groups && !error; g++)
        error = group_read(f, g);
    error = error ? error : rows_read(f);
    /* what keeps no rows has no use for those of another cache */
    if (!error && f->site->type->lies && f->at != f->end)
        error = wrong(f, "is longer than it says");
    for (uint32_t g = 0; g < f->n_groups && !error; g++) {
        f->groups[g].load.scratch = f->scratch;
        f->groups[g].load.apart = f->apart;
        f->stores[g]->load = &f->groups[g].load;
    }
    return error;
}

int kvb_saved_read(const kvb_store_site *site, kvb_store *const *stores, uint32_t seq, const char *path,
                   kvb_saved **saved)
{
    kvb_allocator *a = site->options->allocator;
    int error = kvb_saved_pools_check(site, stores, seq == KVB_SEQ_ALL);
    *saved = NULL;
    if (error)
        return error;
    kvb_saved *f = kvb_alloc_zeroed(a, sizeof *f);
    if (!f)
        return kvb_saved_no_memory(site, path);
    f->site = site;
    f->stores = stores;
    f->path = path;
    f->allocator = a;
    f->seq = seq;
    f->whole = seq == KVB_SEQ_ALL;
    f->apart = true;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    error = fd < 0 ? kvb_saved_system(site, -errno, path) : bytes_read(f, fd);
    if (fd >= 0)
        close(fd);
    error = error ? error : head_read(f);
    error = error ? error : body_read(f);
    if (error)
        kvb_saved_free(f, stores);
    else
        *saved = f;
    return error;
}

const kvb_account *kvb_saved_account(const kvb_saved *saved)
{
    return &saved->account;
}

void kvb_saved_free(kvb_saved *f, kvb_store *const *stores)
{
    if (!f)
        return;
    for (uint32_t g = 0; g < f->n_groups; g++) {
        group_load *group = &f->groups[g];
        stores[g]->load = NULL;
        for (uint32_t i = 0; i < f->account.n_alive && group->rows; i++)
            kvb_spans_free(&group->rows[i], f->allocator);
        kvb_free(f->allocator, group->rows, (f->account.n_alive + (size_t)1) * sizeof *group->rows);
        kvb_free(f->allocator, group->cell, group->cell_room * sizeof *group->cell);
        kvb_free(f->allocator, group->raw, group->n_raw * sizeof *group->raw);
    }
    if (f->account.allocator)
        kvb_account_close(&f->account);
    kvb_free(f->allocator, f->scratch, f->scratch_bytes);
    kvb_free(f->allocator, f->bytes, f->n_bytes);
    kvb_free(f->allocator, f, sizeof *f);
}
