/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "caches/store_host.h"

#define KVB_SAVED_MAGIC   "KVBCACHE"
#define KVB_SAVED_VERSION 1u

typedef struct kvb_saved_head {
    char magic[8];
    uint32_t version, text_bytes;
} kvb_saved_head;

typedef struct kvb_saved_words {
    char *at;
    size_t n, room;
} kvb_saved_words;

/*
 * The file of a saved sequence, or of a whole cache:
 *
 *   "KVBCACHE", version, length of the text         8, 4, 4 bytes; numbers in the machine's byte order
 *   text                                            lines that describe the cache; a cache with others refuses it
 *   number of sequences; for each                   id, number of spans, spans (position -> ordinal)
 *   for each group                                  cells to which the pools had grown
 *     for each sequence                             number of spans, spans (position -> row)
 *   for each group, its layers, K and V             the rows' bytes, or the pool as a whole
 *   CRC-32 of all before it                         4 bytes
 *
 * Rows of one sequence are numbered in the order of positions. In a file of a whole cache a row's number is its cell,
 * rows are in ascending order, and a shared cell is stored once.
 */

/* ---- the text, the checksum and the errors of a file ------------------------------------------------------------- */

#define AT_ONCE ((size_t)1 << 30) /* bytes for one call of zlib */

static int saved_no_memory(kvb_cache *c, const char *path)
{
    return kvb_cache_fail(c, -ENOMEM, "%.120s: no memory for what is saved", path);
}

/* Puts the system's message in why; returns the error. */
static int saved_system(kvb_cache *c, int error, const char *path)
{
    return kvb_cache_fail(c, error, "%.120s: %s", path, strerror(-error));
}

/* The checksum `sum` continued over n more bytes; 0 at first. */
static uint32_t saved_sum(uint32_t sum, const void *bytes, size_t n)
{
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < AT_ONCE ? n - done : AT_ONCE;
        sum = (uint32_t)crc32(sum, (const unsigned char *)bytes + done, (unsigned)some);
    }
    return sum;
}

/* ---- the description --------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void text_add(kvb_saved_words *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->n += (size_t)vsnprintf(t->at + t->n, t->room - t->n, format, args);
    va_end(args);
}

/* A checksum of the fixed scales of all pools of K or V. */
static uint32_t scales_sum(kvb_cache *c, bool is_v)
{
    uint32_t sum = 0;
    for (uint32_t layer = 0; layer < c->model->n_layers; layer++) {
        const kvb_pool *pool = c->stores[c->model->group_of[layer]]->pools[2 * (size_t)layer + is_v];
        kvb_view view = {0};
        if (pool)
            pool->type->view(pool, 0, &view);
        if (view.head_scales)
            sum =
                saved_sum(sum, view.head_scales, c->stores[c->model->group_of[layer]]->group->kv_heads * sizeof(float));
    }
    return sum;
}

/* Writes the lines of this cache to t; the caller frees t->at. any: a cache of any type can load the rows. 0 or
 * -ENOMEM. */
static int saved_text(kvb_cache *c, bool whole, bool any, kvb_saved_words *t)
{
    const kvb_model *m = c->model;
    const kvb_cache_options *o = &c->options;
    t->room = 1024 + strlen(c->type->name) + 4 * (size_t)m->n_layers + 128 * (size_t)m->n_groups;
    t->at = kvb_alloc(o->allocator, t->room);
    if (!t->at)
        return -ENOMEM;
    text_add(t, "cache %s", any ? "any" : c->type->name);
    if (whole)
        text_add(t, " page_cells %u seq_capacity %u", o->page_cells, o->seq_capacity);
    text_add(t, "\nholds %s\n", whole ? "the whole cache" : "one sequence");
    text_add(t, "k_pool %.64s scales %08x\n", o->k_pool->name, scales_sum(c, false));
    text_add(t, "v_pool %.64s scales %08x\n", o->v_pool->name, scales_sum(c, true));
    text_add(t, "layers");
    for (uint32_t layer = 0; layer < m->n_layers; layer++)
        text_add(t, " %u", m->group_of[layer]);
    for (uint32_t i = 0; i < m->n_groups; i++) {
        const kvb_group *g = &m->groups[i];
        const kvb_group_scan *r = &g->scan;
        if (kvb_group_scans(g)) {
            text_add(t, "\ngroup %s heads %u groups %u k_dim %u v_dim %u as %d conv %u x %u as %d",
                     kvb_scan_kind_name(r->kind), r->heads, r->groups, r->d_k, r->d_v, (int)r->state_elem,
                     r->conv_width, r->conv_channels, (int)r->conv_elem);
            continue;
        }
        text_add(t, "\ngroup kv_heads %u k_dim %u v_dim %u%s window %u sinks %u chunk %u", g->kv_heads, g->k_dim,
                 g->v_dim, g->latent ? " latent" : "", g->window, g->sinks, g->chunk);
    }
    text_add(t, "\n");
    return 0;
}

/* Bytes of a line that a message shows. */
static int line_length(const char *line, size_t left)
{
    const char *end = memchr(line, '\n', left < 60 ? left : 60);
    return end ? (int)(end - line) : left < 60 ? (int)left : 60;
}

/* Are the lines of a file [n] those of this cache? 0; -EINVAL: why shows the first line that differs. */
static int saved_text_check(kvb_cache *c, const char *path, const char *saved, size_t n, const kvb_saved_words *own)
{
    static const char any[] = "cache any\n";
    size_t a = 0, b = 0;
    if (n >= sizeof any - 1 && !memcmp(saved, any, sizeof any - 1)) {
        a = sizeof any - 1;
        b = (size_t)((char *)memchr(own->at, '\n', own->n) - own->at) + 1;
    }
    while (a < n && b < own->n && saved[a] == own->at[b])
        a++, b++;
    if (a == n && b == own->n)
        return 0;
    while (b > 0 && (b == own->n || own->at[b - 1] != '\n'))
        a--, b--;
    return kvb_cache_fail(c, -EINVAL, "%.60s: was saved with \"%.*s\", this cache has \"%.*s\"", path,
                          line_length(saved + a, n - a), saved + a, line_length(own->at + b, own->n - b), own->at + b);
}

/* Can the pools be saved, and one sequence by itself if not the whole? 0 or -ENOTSUP. */
static int saved_pools_check(kvb_cache *c, bool whole)
{
    for (uint32_t g = 0; g < c->model->n_groups; g++)
        for (size_t i = 0; i < c->stores[g]->n_pools; i++) {
            const kvb_pool *pool = c->stores[g]->pools[i];
            if (pool && !pool->type->raw_bytes)
                return kvb_cache_fail(c, -ENOTSUP, "pool %s cannot be saved", pool->type->name);
            if (pool && !whole && !pool->type->raw_bytes(pool, &(uint32_t){0}, 1))
                return kvb_cache_fail(
                    c, -ENOTSUP,
                    "pool %s: rows share scales or slots with rows of other sequences; the whole cache can be "
                    "saved and loaded, one sequence cannot",
                    pool->type->name);
        }
    return 0;
}

/*
 * Reading a file. All of it is checked before anything is changed, since a file may come from anywhere: the checksum,
 * then the description of the cache, then every list.
 */

#define NOWHERE UINT32_MAX
#define LOW     ((UINT64_C(1) << KVB_REVISION_AT) - 1) /* bits of an ordinal, and far more than a cell's */

/* The rows of one group. */
typedef struct group_load {
    kvb_store_load load;
    size_t cell_room, n_raw; /* elements of load.cell and load.raw */
} group_load;

struct kvb_saved {
    kvb_cache *cache;
    const char *path;
    kvb_allocator *allocator;
    char *bytes; /* of the file */
    size_t n_bytes, at, end;
    bool whole, apart;   /* apart: as in kvb_store_load */
    uint32_t seq;        /* id for a single sequence */
    kvb_account account; /* of the saved sequences */
    uint32_t n_groups;
    group_load groups[KVB_MODEL_GROUPS];
    void *scratch;
    size_t scratch_bytes;
};

static int wrong(const kvb_saved *f, const char *what)
{
    return kvb_cache_fail(f->cache, -EINVAL, "%.120s: %s", f->path, what);
}

static int no_memory(const kvb_saved *f)
{
    return saved_no_memory(f->cache, f->path);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int bytes_read(kvb_saved *f, int fd)
{
    struct stat about;
    if (fstat(fd, &about))
        return saved_system(f->cache, -errno, f->path);
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
            return saved_system(f->cache, -errno, f->path);
    }
    return 0;
}

/* The next n bytes; NULL: the file has fewer. */
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
        return kvb_cache_fail(f->cache, -EINVAL, "%.120s: has version %u, expected %u", f->path, head.version,
                              KVB_SAVED_VERSION);
    f->end = f->n_bytes - sizeof sum;
    f->at = sizeof head;
    memcpy(&sum, f->bytes + f->end, sizeof sum);
    if (sum != saved_sum(0, f->bytes, f->end))
        return wrong(f, "is damaged: its checksum is another");
    const char *text = take(f, head.text_bytes);
    if (!text)
        return wrong(f, "is shorter than it says");
    int error = saved_text(f->cache, f->whole, false, &own);
    if (!error)
        error = saved_text_check(f->cache, f->path, text, head.text_bytes, &own);
    kvb_free(f->allocator, own.at, own.room);
    return error == -ENOMEM ? no_memory(f) : error;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Reads spans: ascending by position, none empty. A position may be held twice if the cache can divide positions. */
static int spans_read(kvb_saved *f, kvb_spans *spans)
{
    const bool divides = f->cache->type->flags & KVB_CACHE_DIVIDE;
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
            return kvb_cache_fail(f->cache, -ENOTSUP,
                                  "%.120s: position %u holds several tokens, which cache %s cannot do", f->path, s->pos,
                                  f->cache->type->name);
        next = s->pos + s->n;
        spans->tokens += s->n;
    }
    return 0;
}

static int sequences_read(kvb_saved *f)
{
    const uint32_t n_ids = f->cache->account.n_ids;
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
            error = kvb_cache_fail(f->cache, -EINVAL, "%.120s: sequence %u is out of range: 0 .. %u", f->path, id,
                                   n_ids - 1);
        if (!error && (!tokens.n || f->account.seq[id].tokens))
            error = wrong(f, "has a sequence that is none");
        if (!error && kvb_account_put(&f->account, id, tokens.span, tokens.n))
            error = no_memory(f);
        kvb_spans_free(&tokens, f->allocator);
    }
    return error;
}

/* The token of a row. */
typedef struct owner {
    uint64_t token;
    uint32_t pos, held;
} owner;

/* Notes the token of each row. States belong to a sequence's last tokens. False: a row has no token, or a cell two. */
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

/* The largest cell (whole cache) or row number of a group's lists, + 1. NOWHERE: more than there can be. */
static uint32_t extent_of(const kvb_saved *f, uint32_t g)
{
    const group_load *group = &f->groups[g];
    const uint64_t most = f->whole ? f->cache->stores[g]->pool_cells : f->account.held;
    uint64_t extent = 0;
    for (uint32_t i = 0; i < f->account.n_alive; i++)
        for (size_t j = 0; j < group->load.rows[i].n; j++) {
            const kvb_span *span = &group->load.rows[i].span[j];
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
        return kvb_cache_fail(f->cache, -ENOSPC, "%.120s: rows lie in cells that are not there: there are %u", f->path,
                              f->cache->stores[g]->pool_cells);
    if (extent == NOWHERE)
        return wrong(f, "has rows that are no token's");
    owner *owners = kvb_alloc_zeroed(f->allocator, (extent + (size_t)1) * sizeof *owners);
    int error = owners && !kvb_grow(f->allocator, &group->load.cell, &group->cell_room, extent) ? 0 : no_memory(f);
    for (uint32_t i = 0; i < f->account.n_alive && !error; i++)
        if (!owners_note(&f->account.seq[f->account.alive[i]], &group->load.rows[i],
                         kvb_group_scans(f->cache->stores[g]->group), owners))
            error = wrong(f, "has rows that are no token's");
    for (uint32_t c = 0; c < extent && !error; c++)
        if (owners[c].held)
            group->load.cell[group->load.n_rows++] = c;
    kvb_free(f->allocator, owners, (extent + (size_t)1) * sizeof *owners);
    return error;
}

static int group_read(kvb_saved *f, uint32_t g)
{
    group_load *group = &f->groups[g];
    const uint32_t n = f->account.n_alive;
    group->load.rows = kvb_alloc_zeroed(f->allocator, (n + (size_t)1) * sizeof *group->load.rows);
    int error = group->load.rows ? 0 : no_memory(f);
    f->n_groups = g + 1;
    if (!error && !number_take(f, &group->load.cells))
        error = wrong(f, "is shorter than it says");
    for (uint32_t i = 0; i < n && !error; i++)
        error = spans_read(f, &group->load.rows[i]);
    if (!error && f->whole && group->load.cells > f->cache->stores[g]->pool_cells)
        error = kvb_cache_fail(f->cache, -ENOSPC, "%.120s: has %u cells, this cache %u", f->path, group->load.cells,
                               f->cache->stores[g]->pool_cells);
    if (!error)
        error = cells_find(f, g);
    return error;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int pool_rows_read(kvb_saved *f, uint32_t g, size_t i)
{
    group_load *group = &f->groups[g];
    const kvb_pool *pool = f->cache->stores[g]->pools[i];
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
    group->load.raw[i] = take(f, one ? (uint64_t)n * one : pool->type->raw_bytes(pool, NULL, group->load.cells));
    if (!group->load.raw[i])
        return wrong(f, "is shorter than it says");
    if (!one && pool->type->check_raw && !pool->type->check_raw(pool, group->load.cells, group->load.raw[i]))
        return wrong(f, "has rows that no pool stores so");
    return 0;
}

static int rows_read(kvb_saved *f)
{
    int error = 0;
    for (uint32_t g = 0; g < f->n_groups && !error; g++) {
        group_load *group = &f->groups[g];
        const kvb_store *s = f->cache->stores[g];
        group->load.raw = kvb_alloc_zeroed(f->allocator, s->n_pools * sizeof *group->load.raw);
        group->n_raw = group->load.raw ? s->n_pools : 0;
        error = group->load.raw ? 0 : no_memory(f);
        for (size_t i = 0; i < s->n_pools && f->cache->type->lies && !error; i++)
            error = pool_rows_read(f, g, i);
    }
    return error;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int body_read(kvb_saved *f)
{
    int error = sequences_read(f);
    for (uint32_t g = 0; g < f->cache->model->n_groups && !error; g++)
        error = group_read(f, g);
    error = error ? error : rows_read(f);
    /* a cache that keeps no rows ignores those of another cache */
    if (!error && f->cache->type->lies && f->at != f->end)
        error = wrong(f, "is longer than it says");
    for (uint32_t g = 0; g < f->n_groups && !error; g++) {
        f->groups[g].load.scratch = f->scratch;
        f->groups[g].load.apart = f->apart;
        f->cache->stores[g]->load = &f->groups[g].load;
    }
    return error;
}

void kvb_saved_free(kvb_saved *f)
{
    if (!f)
        return;
    for (uint32_t g = 0; g < f->n_groups; g++) {
        group_load *group = &f->groups[g];
        f->cache->stores[g]->load = NULL;
        for (uint32_t i = 0; i < f->account.n_alive && group->load.rows; i++)
            kvb_spans_free(&group->load.rows[i], f->allocator);
        kvb_free(f->allocator, group->load.rows, (f->account.n_alive + (size_t)1) * sizeof *group->load.rows);
        kvb_free(f->allocator, group->load.cell, group->cell_room * sizeof *group->load.cell);
        kvb_free(f->allocator, group->load.raw, group->n_raw * sizeof *group->load.raw);
    }
    if (f->account.allocator)
        kvb_account_close(&f->account);
    kvb_free(f->allocator, f->scratch, f->scratch_bytes);
    kvb_free(f->allocator, f->bytes, f->n_bytes);
    kvb_free(f->allocator, f, sizeof *f);
}

int kvb_saved_read(kvb_cache *c, uint32_t seq, const char *path, kvb_saved **saved)
{
    kvb_allocator *a = c->options.allocator;
    int error = saved_pools_check(c, seq == KVB_SEQ_ALL);
    *saved = NULL;
    if (error)
        return error;
    kvb_saved *f = kvb_alloc_zeroed(a, sizeof *f);
    if (!f)
        return saved_no_memory(c, path);
    f->cache = c;
    f->path = path;
    f->allocator = a;
    f->seq = seq;
    f->whole = seq == KVB_SEQ_ALL;
    f->apart = true;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    error = fd < 0 ? saved_system(c, -errno, path) : bytes_read(f, fd);
    if (fd >= 0)
        close(fd);
    error = error ? error : head_read(f);
    error = error ? error : body_read(f);
    if (error)
        kvb_saved_free(f);
    else
        *saved = f;
    return error;
}

const kvb_account *kvb_saved_account(const kvb_saved *saved)
{
    return &saved->account;
}

#define BUFFER 65536u

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct output {
    FILE *file;
    int error;
    uint32_t sum;
} output;

static void put(output *out, const void *bytes, size_t n)
{
    out->sum = saved_sum(out->sum, bytes, n);
    if (!out->error && n && fwrite(bytes, 1, n, out->file) != n) /* no list of spans: NULL */
        out->error = -errno;
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

/* The rows of one group. */
typedef struct group_rows {
    kvb_spans *lies; /* [n] of each sequence: position -> cell, then row number */
    uint32_t n;
    uint32_t *cells; /* [n_cells] in the order in which they are written */
    size_t n_cells, room;
} group_rows;

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

/* Writes a pool's part of the file: row by row, or the pool as a whole. */
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

static int body_write(output *out, kvb_cache *c, const uint32_t *seqs, uint32_t n, const group_rows *rows)
{
    int error = 0;
    put_number(out, n);
    for (uint32_t i = 0; i < n; i++) {
        put_number(out, seqs[i]);
        put_spans(out, &c->account.seq[seqs[i]]);
    }
    for (uint32_t g = 0; g < c->model->n_groups; g++) {
        put_number(out, c->type->lies ? c->stores[g]->ensured : 0);
        for (uint32_t i = 0; i < n; i++)
            put_spans(out, &rows[g].lies[i]);
    }
    for (uint32_t g = 0; g < c->model->n_groups && c->type->lies; g++)
        for (size_t i = 0; i < c->stores[g]->n_pools && !error; i++)
            if (c->stores[g]->pools[i])
                error = pool_write(out, c->stores[g], c->stores[g]->pools[i], &rows[g]);
    return error;
}

/* Is there a row for each token, so that a cache of any type can load them? A state stands for all tokens before it. */
static bool is_whole_of(kvb_cache *c, const uint32_t *seqs, uint32_t n, const group_rows *rows)
{
    for (uint32_t g = 0; g < c->model->n_groups; g++)
        for (uint32_t i = 0; i < n; i++)
            if (!kvb_group_scans(&c->model->groups[g]) && rows[g].lies[i].tokens != c->account.seq[seqs[i]].tokens)
                return false;
    return true;
}

static int file_write(output *out, kvb_cache *c, uint32_t seq)
{
    const bool whole = seq == KVB_SEQ_ALL;
    const uint32_t *seqs = whole ? c->account.alive : &seq;
    const uint32_t n = whole ? c->account.n_alive : c->account.seq[seq].tokens > 0;
    group_rows rows[KVB_MODEL_GROUPS] = {0};
    kvb_saved_words t = {0};
    int error = 0;
    for (uint32_t g = 0; g < c->model->n_groups && !error; g++)
        error = rows_find(c->stores[g], seqs, n, whole, &rows[g]);
    if (!error)
        error = saved_text(c, whole, !whole && is_whole_of(c, seqs, n, rows), &t);
    if (!error) {
        kvb_saved_head head = {.magic = KVB_SAVED_MAGIC, .version = KVB_SAVED_VERSION, .text_bytes = (uint32_t)t.n};
        put(out, &head, sizeof head);
        put(out, t.at, t.n);
        error = body_write(out, c, seqs, n, rows);
    }
    put_number(out, out->sum);
    kvb_free(c->options.allocator, t.at, t.room);
    for (group_rows *r = rows; r < rows + c->model->n_groups; r++) {
        for (uint32_t i = 0; i < r->n && r->lies; i++)
            kvb_spans_free(&r->lies[i], c->options.allocator);
        kvb_free(c->options.allocator, r->lies, (r->n + (size_t)1) * sizeof *r->lies);
        kvb_free(c->options.allocator, r->cells, r->room * sizeof *r->cells);
    }
    return error ? error : out->error;
}

int kvb_saved_write(kvb_cache *c, uint32_t seq, const char *path)
{
    char beside[PATH_MAX];
    int error = saved_pools_check(c, seq == KVB_SEQ_ALL);
    if (!error && (size_t)snprintf(beside, sizeof beside, "%s.tmp", path) >= sizeof beside)
        error = saved_system(c, -ENAMETOOLONG, path);
    if (error)
        return error;
    char *buffer = kvb_alloc(c->options.allocator, BUFFER);
    if (!buffer)
        return saved_no_memory(c, path);
    output out = {.file = fopen(beside, "we")};
    error = out.file && !setvbuf(out.file, buffer, _IOFBF, BUFFER) ? file_write(&out, c, seq) : -errno;
    if (out.file && fclose(out.file) && !error)
        error = -errno;
    if (!error && rename(beside, path))
        error = -errno;
    if (error && out.file)
        unlink(beside);
    kvb_free(c->options.allocator, buffer, BUFFER);
    return error == -ENOMEM ? saved_no_memory(c, path) : error ? saved_system(c, error, path) : 0;
}
