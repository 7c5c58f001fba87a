/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/calls/subject.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/machine/team.h"
#include "harness/replay/guard.h"
#include "harness/replay/heap_watch.h"
#include "kernels/attend.h"
#include "workloads/rng.h"

void kvb_call_wrong(kvb_call_verdict *v, kvb_check check, const char *format, ...)
{
    va_list list;
    if (v->check != KVB_CHECK_NONE || kvb_check_is_off(check))
        return;
    v->check = check;
    va_start(list, format);
    vsnprintf(v->words, sizeof v->words, format, list);
    va_end(list);
}

const kvb_team *kvb_call_team(kvb_call_teams *teams, uint32_t threads)
{
    if (threads > KVB_CALL_TEAM || (!teams->of[threads] && kvb_threads_start(threads, false, &teams->of[threads])))
        return NULL;
    return kvb_threads_team(teams->of[threads]);
}

void kvb_call_teams_end(kvb_call_teams *teams)
{
    for (uint32_t n = 0; n <= KVB_CALL_TEAM; n++) {
        if (teams->of[n])
            kvb_threads_end(teams->of[n]);
        teams->of[n] = NULL;
    }
}

/* ---- the same bits in other ways? -------------------------------------------------------------------------------- */

#define SAME_EACH 4u /* one call in so many */

int kvb_call_same(const kvb_call_ways *ways, void *trial, uint64_t key, const kvb_team *own, kvb_call_teams *teams,
                  kvb_call_verdict *verdict)
{
    if (kvb_rng_key(key, 9) % SAME_EACH)
        return 0;
    const kvb_team *other = kvb_call_team(teams, own->n == 1 ? 3 : 1);
    verdict->made_again = true;
    for (uint32_t kind = 0; kind < KVB_SAME_KINDS; kind++)
        verdict->same[kind] = NAN;
    int error = other ? ways->team(trial, other) : -ENOMEM;
    error = error ? error : ways->whole(trial, KVB_SAME_THREADS);
    error = error ? error : ways->team(trial, own);
    error = error ? error : ways->before(trial);
    error = error ? error : ways->whole(trial, KVB_SAME_AGAIN);
    for (kvb_same_kind kind = 0; kind < KVB_SAME_KINDS && !error; kind++)
        if (kind != KVB_SAME_THREADS && kind != KVB_SAME_AGAIN)
            error = ways->otherwise(trial, kind);
    return error;
}

bool kvb_call_same_bits(kvb_call_verdict *verdict, kvb_same_kind kind, const void *was, const void *now, size_t bytes)
{
    verdict->same[kind] = fmax(verdict->same[kind], 0); /* NaN (not tried so far) becomes 0 */
    return !memcmp(was, now, bytes);
}

void kvb_call_same_off(kvb_call_verdict *verdict, kvb_same_kind kind, double was, double now, double bound)
{
    const double off = was == now ? 0 : fabs(now - was); /* infinities may be equal */
    if (off > 0)
        verdict->same[kind] = fmax(verdict->same[kind], off / bound);
}

/* ---- buffers of single calls ------------------------------------------------------------------------------------- */

#define CANARY 0xc5

void *kvb_call_buffer(kvb_call_buffers *b, const char *name, size_t bytes, size_t align, bool constant)
{
    const size_t offset = align % 64;
    char *block = b->n < KVB_CALL_BUFFERS ? kvb_guard_alloc(name, bytes + offset) : NULL;
    if (!block)
        return NULL;
    memset(block, CANARY, offset);
    b->of[b->n++] = (struct kvb_call_buffer){
        .name = name, .block = block, .at = block + offset, .bytes = bytes, .constant = constant};
    return block + offset;
}

int kvb_call_buffers_keep(kvb_call_buffers *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        struct kvb_call_buffer *one = &b->of[i];
        if (!one->constant)
            continue;
        one->was = malloc(one->bytes + 1);
        if (!one->was)
            return -ENOMEM;
        memcpy(one->was, one->at, one->bytes);
    }
    return 0;
}

int kvb_call_scratch(kvb_call_buffers *b, size_t bytes)
{
    kvb_guard_free(b->scratch);
    b->scratch = bytes ? kvb_guard_alloc("scratch", bytes) : NULL;
    b->scratch_bytes = b->scratch ? bytes : 0;
    return bytes && !b->scratch ? -ENOMEM : 0;
}

void kvb_call_buffers_free(kvb_call_buffers *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        kvb_guard_free(b->of[i].block);
        free(b->of[i].was);
    }
    kvb_guard_free(b->scratch);
    *b = (kvb_call_buffers){.n = 0};
}

static bool is_whole(const char *from, const char *end)
{
    while (from < end && *from == (char)CANARY)
        from++;
    return from == end;
}

void kvb_call_watch(const kvb_call_buffers *b, const char *function, int (*make)(void *ctx), void *ctx,
                    bool may_allocate, kvb_call_verdict *verdict)
{
    char where[192];
    if (b->scratch)
        memset(b->scratch, 0xff, b->scratch_bytes);
    kvb_guard_null(b->scratch ? NULL : "scratch is NULL, as scratch_bytes() asked for none");
    kvb_threads_forget();
    kvb_heap_watch_start();
    const int returned = make(ctx);
    const uint64_t allocations = kvb_heap_watch_stop();
    kvb_guard_null(NULL);
    if (returned)
        kvb_call_wrong(verdict, KVB_CHECK_RETURN, "%s returned %d", function, returned);
    if (!kvb_guard_check(where, sizeof where))
        kvb_call_wrong(verdict, KVB_CHECK_MARGINS, "%s", where);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct kvb_call_buffer *one = &b->of[i];
        if (!is_whole(one->block, one->at))
            kvb_call_wrong(verdict, KVB_CHECK_MARGINS, "write before the start of %s", one->name);
        if (one->was && memcmp(one->at, one->was, one->bytes))
            kvb_call_wrong(verdict, KVB_CHECK_INPUTS, "%s wrote to %s", function, one->name);
    }
    if (kvb_threads_started() && !may_allocate) {
        kvb_heap_watch_words(true, where, sizeof where);
        kvb_call_wrong(verdict, KVB_CHECK_ALLOCATIONS, "%s started a thread: %s", function, where);
    }
    if (allocations && !may_allocate) {
        kvb_heap_watch_words(false, where, sizeof where);
        kvb_call_wrong(verdict, KVB_CHECK_ALLOCATIONS, "%s allocated or freed memory: %s", function, where);
    }
}

/* ---- tall areas: one memory file, mapped again and again over a large reservation. A private mapping keeps writes. */

#define FENCE      ((size_t)256 << 10) /* bytes on either side that fault */
#define FILE_BYTES ((size_t)16 << 20)  /* a process may have some 65,000 mappings */

/* A file of zeros, or of bytes 0xff; or a negative errno. A process makes each once: filling one takes as long as a call. */
static int filled_file(bool zeros)
{
    static int files[2] = {-1, -1};
    if (files[zeros] >= 0)
        return files[zeros];
    const int made = memfd_create("kvbench rows", MFD_CLOEXEC);
    void *bytes = MAP_FAILED;
    if (made >= 0 && !ftruncate(made, (off_t)FILE_BYTES))
        bytes = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (bytes == MAP_FAILED) {
        const int rc = -errno;
        if (made >= 0)
            close(made);
        return rc;
    }
    if (!zeros)
        memset(bytes, 0xff, FILE_BYTES);
    munmap(bytes, FILE_BYTES);
    return files[zeros] = made;
}

int kvb_tall_open(kvb_tall *tall, size_t cell_stride, uint32_t cells, uint32_t n_kv_heads, bool zeros)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes;
    *tall = (kvb_tall){0};
    if (__builtin_mul_overflow((size_t)cells * n_kv_heads, cell_stride, &bytes) || bytes > SIZE_MAX / 2 || !bytes)
        return bytes ? -EOVERFLOW : -EINVAL;
    bytes = (bytes + page - 1) / page * page;
    const int file = filled_file(zeros);
    if (file < 0)
        return file;
    const size_t all = bytes + 2 * FENCE;
    int rc = 0;
    unsigned char *mapping = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return -errno;
    for (size_t at = 0; at < bytes && !rc; at += FILE_BYTES)
        if (mmap(mapping + FENCE + at, at + FILE_BYTES < bytes ? FILE_BYTES : bytes - at, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
            rc = -errno;
    if (rc) {
        munmap(mapping, all);
        return rc;
    }
    *tall = (kvb_tall){.base = mapping + FENCE,
                       .head_stride = cells * cell_stride,
                       .cell_stride = cell_stride,
                       .mapping = mapping,
                       .mapping_bytes = all};
    return 0;
}

void kvb_tall_close(kvb_tall *tall)
{
    if (tall->mapping)
        munmap(tall->mapping, tall->mapping_bytes);
    *tall = (kvb_tall){0};
}
