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
#include "oracle/oracle.h"
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

/* ---- buffers of single calls ------------------------------------------------------------------------------------- */

#define CANARY 0xc5

void *kvb_call_buffer(kvb_call_buffers *b, const char *name, size_t bytes, size_t align, kvb_call_use use)
{
    const size_t offset = align % 64;
    char *block = b->n < KVB_CALL_BUFFERS ? kvb_guard_alloc(name, bytes + offset) : NULL;
    if (!block)
        return NULL;
    memset(block, CANARY, offset);
    b->of[b->n++] =
        (struct kvb_call_buffer){.name = name, .block = block, .at = block + offset, .bytes = bytes, .use = use};
    return block + offset;
}

/* Copies the inputs of the judged call, and makes room for its outputs. */
static int buffers_keep(kvb_call_buffers *b)
{
    for (struct kvb_call_buffer *one = b->of; one < b->of + b->n; one++) {
        if (one->use == KVB_CALL_ROWS)
            continue;
        one->was = malloc(one->bytes + 1);
        if (!one->was)
            return -ENOMEM;
        if (one->use == KVB_CALL_INPUT)
            memcpy(one->was, one->at, one->bytes);
    }
    return 0;
}

const char *kvb_call_first(const kvb_call_buffers *b, const void *output)
{
    uint32_t i = 0;
    while (b->of[i].at != output)
        i++;
    return b->of[i].was;
}

/* Keeps the outputs of the first run, or puts them back. */
static void outputs_keep(const kvb_call_buffers *b, bool back)
{
    for (const struct kvb_call_buffer *one = b->of; one < b->of + b->n; one++)
        if (one->use == KVB_CALL_OUTPUT)
            memcpy(back ? one->at : one->was, back ? one->was : one->at, one->bytes);
}

static bool outputs_differ(const kvb_call_buffers *b)
{
    bool differ = false;
    for (const struct kvb_call_buffer *one = b->of; one < b->of + b->n; one++)
        differ = differ || (one->use == KVB_CALL_OUTPUT && memcmp(one->was, one->at, one->bytes));
    return differ;
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

bool kvb_call_filled(const void *block, size_t bytes, int byte)
{
    const unsigned char *at = block;
    return !bytes || (*at == byte && !memcmp(at, at + 1, bytes - 1)); /* each byte equals the one before it */
}

size_t kvb_call_finite(kvb_elem elem, const void *block, size_t n)
{
    const uint32_t most = elem == KVB_F32 ? 0x7f800000 : elem == KVB_F16 ? 0x7c00 : 0x7f80; /* exponent of NaN */
    const uint32_t *wide = block;
    const uint16_t *narrow = block;
    uint32_t any = 0;
    size_t at = 0;
    for (size_t i = 0; i < n && elem == KVB_F32; i++)
        any |= (wide[i] & most) == most;
    for (size_t i = 0; i < n && elem != KVB_F32; i++)
        any |= (narrow[i] & most) == most;
    while (any && isfinite(kvb_output_value(elem, block, at)))
        at++;
    return any ? at : n;
}

/* ---- the checks, one after the other ----------------------------------------------------------------------------- */

void kvb_trial_run(kvb_call_trial *t)
{
    const char *function = t->kind->function;
    const kvb_call_buffers *b = t->buffers;
    kvb_call_verdict *verdict = t->verdict;
    char where[192];
    t->kind->begin(t);
    if (b->scratch)
        memset(b->scratch, 0xff, b->scratch_bytes);
    kvb_guard_null(b->scratch ? NULL : "scratch is NULL, as scratch_bytes() asked for none");
    kvb_threads_forget();
    kvb_heap_watch_start();
    const int returned = t->kind->run(t);
    const uint64_t allocations = kvb_heap_watch_stop();
    kvb_guard_null(NULL);
    if (returned)
        kvb_call_wrong(verdict, KVB_CHECK_RETURN, "%s returned %d", function, returned);
    if (!kvb_guard_check(where, sizeof where))
        kvb_call_wrong(verdict, KVB_CHECK_MARGINS, "%s", where);
    for (const struct kvb_call_buffer *one = b->of; one < b->of + b->n; one++) {
        if (!kvb_call_filled(one->block, (size_t)(one->at - one->block), CANARY))
            kvb_call_wrong(verdict, KVB_CHECK_MARGINS, "write before the start of %s", one->name);
        if (one->use == KVB_CALL_INPUT && memcmp(one->at, one->was, one->bytes))
            kvb_call_wrong(verdict, KVB_CHECK_INPUTS, "%s wrote to %s", function, one->name);
    }
    if (kvb_threads_started() && !t->may_allocate) {
        kvb_heap_watch_words(true, where, sizeof where);
        kvb_call_wrong(verdict, KVB_CHECK_ALLOCATIONS, "%s started a thread: %s", function, where);
    }
    if (allocations && !t->may_allocate) {
        kvb_heap_watch_words(false, where, sizeof where);
        kvb_call_wrong(verdict, KVB_CHECK_ALLOCATIONS, "%s allocated or freed memory: %s", function, where);
    }
    t->kind->look(t);
}

static bool is_right(const kvb_call_trial *t)
{
    return t->verdict->check == KVB_CHECK_NONE;
}

/* The same call again. */
static int again_check(kvb_call_trial *t)
{
    kvb_trial_run(t);
    if (!is_right(t) || !outputs_differ(t->buffers))
        return 0;
    if (!t->kind->always_same)
        return t->kind->judge(t, "called again: ");
    kvb_call_wrong(t->verdict, KVB_CHECK_DETERMINISTIC, "called again, it gives other bits");
    return 0;
}

static const kvb_team *other_team(kvb_call_trial *t)
{
    return kvb_call_team(t->teams, t->team->n == 1 ? 3 : 1);
}

/* Another team must give the same bits. */
static int team_check(kvb_call_trial *t)
{
    const kvb_team *other = other_team(t);
    const int error = other ? t->kind->team(t->scene, t->kernel, other) : -ENOMEM;
    if (error)
        return error;
    kvb_trial_run(t);
    if (outputs_differ(t->buffers))
        kvb_call_wrong(t->verdict, KVB_CHECK_DETERMINISTIC, "%s%u and %u threads give other bits",
                       t->kind->always_same ? "" : "deterministic, but ", t->team->n, other->n);
    return t->kind->team(t->scene, t->kernel, t->team);
}

/* A wrong call is made again with finite numbers in memory that it must not read. If it is right then, reading that
 * memory was the fault. */
static int hidden_check(kvb_call_trial *t)
{
    const kvb_call_verdict wrong = *t->verdict;
    t->verdict->check = KVB_CHECK_NONE;
    kvb_trial_run(t);
    const int error = is_right(t) ? t->kind->judge(t, "") : 0;
    const bool right = is_right(t);
    *t->verdict = wrong;
    if (right) {
        t->verdict->check = KVB_CHECK_POISON;
        snprintf(t->verdict->words, sizeof t->verdict->words, "only with NaN in %s: %.260s", t->kind->hidden,
                 wrong.words);
    }
    return error;
}

#define EXACT_PRODUCTS 1e6 /* products of the rows that are repeated to the bit */

/* Compares right outputs of the first run, to the bit, with the order that the kernel declares. A large call is sampled:
 * rows at equal distances. */
static int exact_check(kvb_call_trial *t)
{
    const size_t all = t->rows, most = (size_t)(EXACT_PRODUCTS / t->row_products) + 2, n = all < most ? all : most;
    char why[256];
    if (!t->kind->order(t))
        return 0;
    outputs_keep(t->buffers, true);
    for (size_t i = 0; i < n; i++) {
        const int alike = t->kind->exact(t, n < 2 ? 0 : i * (all - 1) / (n - 1), why, sizeof why);
        if (alike < 0)
            return alike == -EDOM ? 0 : alike;
        if (!alike) {
            kvb_call_wrong(t->verdict, KVB_CHECK_EXACT, "%s", why);
            return 0;
        }
    }
    t->verdict->exact = true;
    return 0;
}

#define SAME_EACH 4u /* one call in so many */

/* Are bits the same in other ways? One right call in four is repeated. */
static int same_check(kvb_call_trial *t)
{
    const kvb_trial_kind *k = t->kind;
    if (kvb_rng_key(t->key, 9) % SAME_EACH)
        return 0;
    const kvb_team *other = other_team(t);
    t->verdict->made_again = true;
    for (uint32_t way = 0; way < KVB_SAME_KINDS; way++)
        t->verdict->same[way] = NAN;
    int error = other ? k->team(t->scene, t->kernel, other) : -ENOMEM;
    error = error ? error : k->again(t, KVB_SAME_THREADS);
    error = error ? error : k->team(t->scene, t->kernel, t->team);
    error = error ? error : k->other(t, false);
    error = error ? error : k->again(t, KVB_SAME_AGAIN);
    for (kvb_same_kind way = 0; way < KVB_SAME_KINDS && !error; way++)
        if (way != KVB_SAME_THREADS && way != KVB_SAME_AGAIN)
            error = k->again(t, way);
    return error;
}

bool kvb_call_same_bits(kvb_call_verdict *verdict, kvb_same_kind way, const void *was, const void *now, size_t bytes)
{
    verdict->same[way] = fmax(verdict->same[way], 0); /* NaN (not tried so far) becomes 0 */
    return !memcmp(was, now, bytes);
}

void kvb_call_same_off(kvb_call_verdict *verdict, kvb_same_kind way, double was, double now, double bound)
{
    const double off = was == now ? 0 : fabs(now - was); /* infinities may be equal */
    if (off > 0)
        verdict->same[way] = fmax(verdict->same[way], off / bound);
}

static int checks_run(kvb_call_trial *t)
{
    const kvb_trial_kind *k = t->kind;
    int error = t->order >= KVB_ORDER_AFTER_LARGER ? k->other(t, t->order == KVB_ORDER_AFTER_LARGER) : 0;
    if (!error && t->hides)
        error = k->hide(t, true);
    if (error)
        return error;
    kvb_trial_run(t);
    outputs_keep(t->buffers, false);
    error = is_right(t) ? k->judge(t, "") : 0;
    if (!error && is_right(t) && t->order == KVB_ORDER_REPEATED)
        error = again_check(t);
    if (!error && is_right(t) && t->same_bits)
        error = team_check(t);
    const kvb_check check = t->verdict->check;
    const bool hidden = check == KVB_CHECK_BOUND || check == KVB_CHECK_STATE || check == KVB_CHECK_FINITE;
    if (t->hides)
        k->hide(t, false);
    if (!error && t->hides && hidden)
        error = hidden_check(t);
    if (!error && is_right(t))
        error = exact_check(t);
    if (!error && is_right(t))
        error = same_check(t);
    return !error && is_right(t) && k->last ? k->last(t) : error;
}

int kvb_call_judge(const kvb_call_subject *subject, const kvb_point *point, uint64_t seed, kvb_call_teams *teams,
                   kvb_call_verdict *verdict, char *why, size_t why_bytes)
{
    kvb_call_trial t = {.kind = subject->kind,
                        .kernel = subject->kernel,
                        .verdict = verdict,
                        .teams = teams,
                        .key = kvb_point_key(subject->space, point, seed),
                        .scene = calloc(1, subject->kind->scene_bytes),
                        .why = why,
                        .why_bytes = why_bytes};
    *verdict = (kvb_call_verdict){.check = KVB_CHECK_NONE};
    why[0] = '\0';
    if (!t.scene)
        return -ENOMEM;
    int error = t.kind->open(&t, subject, point);
    error = error ? error : buffers_keep(t.buffers);
    error = error ? error : checks_run(&t);
    t.kind->close(t.scene);
    free(t.scene);
    return error;
}

/* ---- tall areas: one memory file, mapped again and again over a large reservation. A private mapping keeps writes. */

#define FENCE      ((size_t)256 << 10) /* bytes on either side that fault */
#define FILE_BYTES ((size_t)32 << 20)  /* a process may have some 65,000 mappings */

/* A file of zeros, or of bytes 0xff; or a negative errno. A process makes each once: filling one takes longer than a call. */
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

void kvb_tall_prepare(void)
{
    filled_file(false);
    filled_file(true);
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
