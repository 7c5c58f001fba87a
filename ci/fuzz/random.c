/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `check-random N [SEED [CACHE [TRACE.jsonl [PLUGIN.so]]]]` plays N random histories of control calls on each cache, or
 * on each cache of a plug-in, with seeds from SEED on. Each has its own model, pools and limits; verbs.c judges them.
 * The first history that goes wrong is shortened while it still goes wrong, then written as a trace, with the command
 * that replays it. The exit status is 1 then.
 *
 * A child process plays many histories, in shared memory. A history that goes wrong ends its child; the parent then
 * reads the history there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ci/fuzz/fuzz.h"
#include "ci/fuzz/verbs.h"
#include "harness/selection/registry.h"

enum { CALLS_EACH = 200, AT_ONCE = 250 };

/* A history, drawn while it is played; kept: its calls are played again. */
typedef struct history {
    verbs_setting set;
    uint64_t seed; /* that it was drawn from */
    drawer drawer;
    bool kept;
    uint32_t n, at;
    call calls[CALLS_EACH];
    uint32_t memory[CALLS_EACH];
    bool stepped;         /* there was a step */
    kvb_output_file file; /* written to if it is open */
    const char *path;
} history;

static bool call_next(void *ctx, const rules *model, call *next, uint32_t *memory)
{
    history *h = ctx;
    if (h->at == (h->kept ? h->n : CALLS_EACH))
        return false;
    if (!h->kept) {
        h->calls[h->at] = kvb_draw_call(&h->drawer, model);
        h->memory[h->at] = kvb_draw_memory(&h->drawer);
        h->n = h->at + 1;
    }
    *next = h->calls[h->at];
    *memory = h->memory[h->at++];
    return true;
}

static void event_write(history *h, const kvb_model *model, const kvb_event *event)
{
    char why[300] = "", name[] = "random", source[] = "check-random", profile[] = "gaussian";
    const kvb_trace_header header = {
        .name = name, .source = source, .model = *model, .profile = profile, .seed = 1, .capacity = h->set.capacity};
    if (!h->file.stream && kvb_trace_create(h->path, &header, &h->file, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return;
    }
    kvb_event_print(h->file.stream, event);
    fflush(NULL);
}

static void event_hear(void *ctx, const kvb_model *model, const kvb_event *event)
{
    history *h = ctx;
    if (h->path)
        event_write(h, model, event);
    h->stepped = h->stepped || event->kind == KVB_EVENT_STEP;
    if (h->stepped && event->kind == KVB_EVENT_CLEAR && getenv("KVB_RANDOM_WRONG")) /* tests what happens then */
        kvb_fuzz_wrong("a clear after a step, as KVB_RANDOM_WRONG will have it");
}

static void history_play(history *h)
{
    verbs_tally tally = {0};
    h->at = 0;
    h->stepped = false;
    kvb_verbs_play(&h->set, call_next, event_hear, h, &tally);
}

/* Plays a kept history, or n histories drawn from `seed` on, in a child, which may die. True if all went well. */
static bool child_plays(history *h, uint32_t cache, uint64_t seed, uint64_t n, bool quiet)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (quiet && !freopen("/dev/null", "w", stderr))
            _exit(2);
        if (h->kept)
            history_play(h);
        for (uint64_t i = 0; i < n && !h->kept; i++) {
            *h = (history){.seed = seed + i};
            h->set = kvb_draw_setting(&h->drawer, cache, h->seed);
            history_play(h);
        }
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Does the kept history still go wrong? */
static bool goes_wrong(history *shared, const history *h)
{
    *shared = *h;
    return !child_plays(shared, 0, 0, 0, true);
}

/* Leaves out calls, many at once first, then refused requests for memory, while the history still goes wrong. */
static void history_shrink(history *shared, history *h)
{
    static history shorter;
    for (uint32_t some = h->n; some > 0; some = some > 1 ? (some + 1) / 2 : 0)
        for (uint32_t from = 0; from + some <= h->n;) {
            shorter = *h;
            shorter.n -= some;
            memmove(shorter.calls + from, h->calls + from + some, (shorter.n - from) * sizeof *h->calls);
            memmove(shorter.memory + from, h->memory + from + some, (shorter.n - from) * sizeof *h->memory);
            if (goes_wrong(shared, &shorter))
                *h = shorter;
            else
                from += some;
        }
    for (uint32_t i = 0; i < h->n; i++) {
        shorter = *h;
        shorter.memory[i] = 0;
        if (h->memory[i] && goes_wrong(shared, &shorter))
            *h = shorter;
    }
}

/* Shortens the history that went wrong, prints it, and leaves a trace of it. */
static void wrong_tell(history *shared, const char *path)
{
    static history h;
    const kvb_cache_type *cache = kvb_verbs_types[shared->set.cache];
    const kvb_pool_type *k = kvb_verbs_pool(shared->set.k_pool), *v = kvb_verbs_pool(shared->set.v_pool);
    char written[512];
    snprintf(written, sizeof written, "%s.tmp", path); /* where a writer that was not closed leaves it */
    h = *shared;
    h.kept = true;
    printf("%s: seed %" PRIu64 " goes wrong after %u calls\n", cache->name, h.seed, h.n);
    history_shrink(shared, &h);
    printf("%u calls are left of it:\n", h.n);
    *shared = h;
    shared->path = path;
    child_plays(shared, 0, 0, 0, false);
    if (!rename(written, path))
        printf("as a trace: kvbench run --workload %s --cache %s --pool k=%s,v=%s\n", path, cache->name, k->name,
               v->name);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Replaces the built-in caches by those of a plug-in. */
static bool plugin_load(const char *path)
{
    static const kvb_cache_type *types[KVB_REGISTRY_MAX + 1];
    static kvb_registry registry;
    char why[512];
    size_t n = 0;
    kvb_registry_init(&registry);
    const size_t before = registry.n[KVB_CACHES];
    if (kvb_registry_load(&registry, path, why, sizeof why)) {
        fprintf(stderr, "check-random: %s\n", why);
        return false;
    }
    for (size_t i = before; i < registry.n[KVB_CACHES]; i++)
        types[n++] = registry.at[KVB_CACHES][i].definition;
    kvb_verbs_types = types;
    if (!n)
        fprintf(stderr, "check-random: %s brings no cache\n", path);
    return n > 0;
}

int main(int argc, char **argv)
{
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const char *name = argc > 3 && *argv[3] ? argv[3] : NULL, *path = argc > 4 ? argv[4] : "random.jsonl";
    history *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool known = !name, well = true;
    if (argc > 5 && *argv[5] && !plugin_load(argv[5]))
        return 2;
    for (uint32_t cache = 0; cache < kvb_verbs_caches(); cache++)
        known = known || !strcmp(kvb_verbs_types[cache]->name, name);
    if (n == 0 || !known || shared == MAP_FAILED) {
        fprintf(
            stderr,
            "check-random: expected N [SEED [CACHE [TRACE.jsonl [PLUGIN.so]]]], N above 0 and a cache that there is\n");
        return 2;
    }
    kvb_slots_open();
    for (uint32_t cache = 0; cache < kvb_verbs_caches() && well; cache++) {
        const double began = seconds();
        if (name && strcmp(kvb_verbs_types[cache]->name, name) != 0)
            continue;
        for (uint64_t done = 0; done < n && well; done += AT_ONCE) {
            *shared = (history){0};
            well = child_plays(shared, cache, first + done, n - done < AT_ONCE ? n - done : AT_ONCE, false);
        }
        if (well)
            printf("%s: %" PRIu64 " histories, seeds %" PRIu64 " to %" PRIu64 ": all well, %.0f s\n",
                   kvb_verbs_types[cache]->name, n, first, first + n - 1, seconds() - began);
        else
            wrong_tell(shared, path);
    }
    return well ? 0 : 1;
}
