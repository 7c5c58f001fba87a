/* SPDX-License-Identifier: Apache-2.0 */
/* Thread team: a generation counter starts a run, a countdown ends it. */
#include "harness/machine/team.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/attend.h"

/* ---- topology as text and as XML --------------------------------------------------------------------------------- */

static void object_print(hwloc_obj_t object, int depth, FILE *out)
{
    char type[64], facts[256];
    hwloc_obj_type_snprintf(type, sizeof type, object, 0);
    hwloc_obj_attr_snprintf(facts, sizeof facts, object, " ", 0);
    fprintf(out, "%*s%s", 2 * depth, "", type);
    if (object->logical_index != HWLOC_UNKNOWN_INDEX && object->parent)
        fprintf(out, " L#%u", object->logical_index);
    if (object->type == HWLOC_OBJ_PU)
        fprintf(out, " (P#%u)", object->os_index);
    if (facts[0])
        fprintf(out, " (%s)", facts);
    putc('\n', out);
    for (hwloc_obj_t memory = object->memory_first_child; memory; memory = memory->next_sibling)
        object_print(memory, depth + 1, out);
    for (hwloc_obj_t child = object->first_child; child; child = child->next_sibling)
        object_print(child, depth + 1, out);
}

void kvb_topology_tree_print(struct hwloc_topology *topology, FILE *out)
{
    object_print(hwloc_get_root_obj(topology), 0, out);
}

int kvb_topology_open(struct hwloc_topology **topology)
{
    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* without /sys hwloc prints an error on stderr, and goes on */
    if (hwloc_topology_init(topology))
        return -ENOMEM;
    if (!hwloc_topology_load(*topology))
        return 0;
    hwloc_topology_destroy(*topology);
    return -EINVAL;
}

int kvb_topology_print(bool as_xml, FILE *out)
{
    hwloc_topology_t topology;
    char *xml;
    int bytes; /* with the final NUL */
    int error = kvb_topology_open(&topology);
    if (error)
        return error;
    if (!as_xml) {
        kvb_topology_tree_print(topology, out);
    } else if (!hwloc_topology_export_xmlbuffer(topology, &xml, &bytes, 0)) {
        fputs(xml, out);
        hwloc_free_xmlbuffer(topology, xml);
    } else {
        error = -ENOMEM;
    }
    hwloc_topology_destroy(topology);
    return error ? error : fflush(out) || ferror(out) ? -EIO : 0;
}

#define SPINS 2000 /* looks at a counter before sleeping, in a bound team, whose cores have nothing else to do */

/* A thread besides the caller. */
typedef struct member {
    pthread_t id;
    kvb_threads *threads;
    uint32_t i;
} member;

struct kvb_threads {
    kvb_team team;    /* first: run() gets a pointer to it */
    member *members;  /* [team.n], of which the first is the caller's */
    uint32_t started; /* threads besides the caller */
    int spins;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_uint generation; /* counts runs */
    atomic_uint left;       /* threads still at work */
    bool end;
    void (*part)(void *ctx, uint32_t i, uint32_t n);
    void *ctx;
    hwloc_cpuset_t caller; /* CPUs of the caller before it was bound; NULL: it was not */
};

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The machine's topology, read once: a child process inherits it. NULL: it cannot be read. */
static hwloc_topology_t machine;

static void machine_read(void)
{
    if (kvb_topology_open(&machine)) {
        machine = NULL;
        return;
    }
    /* CPUs that this process may use (taskset): hwloc itself only leaves out those that a cgroup forbids. */
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (allowed && !hwloc_get_cpubind(machine, allowed, HWLOC_CPUBIND_PROCESS))
        hwloc_topology_restrict(machine, allowed, HWLOC_RESTRICT_FLAG_REMOVE_CPULESS);
    hwloc_bitmap_free(allowed);
}

static hwloc_topology_t topology_of_machine(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, machine_read);
    return machine;
}

static uint32_t objects_count(hwloc_obj_type_t type)
{
    hwloc_topology_t topology = topology_of_machine();
    int n = topology ? hwloc_get_nbobjs_by_type(topology, type) : 0;
    return n > 0 ? (uint32_t)n : 1;
}

uint32_t kvb_cores(void)
{
    return objects_count(HWLOC_OBJ_CORE);
}

uint32_t kvb_numa_nodes(void)
{
    return objects_count(HWLOC_OBJ_NUMANODE);
}

/* Waits for the next generation after `seen`. */
static uint32_t generation_wait(kvb_threads *t, uint32_t seen)
{
    for (int spin = 0; spin < t->spins; spin++) {
        uint32_t now = atomic_load_explicit(&t->generation, memory_order_acquire);
        if (now != seen)
            return now;
        spin_pause();
    }
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->generation) == seen)
        pthread_cond_wait(&t->wake, &t->lock);
    uint32_t now = atomic_load(&t->generation);
    pthread_mutex_unlock(&t->lock);
    return now;
}

static void *member_main(void *argument)
{
    const member *m = argument;
    kvb_threads *t = m->threads;
    for (uint32_t seen = 0;;) {
        seen = generation_wait(t, seen);
        if (t->end)
            return NULL;
        t->part(t->ctx, m->i, t->team.n);
        if (atomic_fetch_sub(&t->left, 1) == 1) {
            pthread_mutex_lock(&t->lock);
            pthread_cond_signal(&t->done);
            pthread_mutex_unlock(&t->lock);
        }
    }
}

static void generation_start(kvb_threads *t)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->generation, 1);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

static void team_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    kvb_threads *t = (kvb_threads *)(uintptr_t)team;
    if (team->n == 1) {
        part(ctx, 0, 1);
        return;
    }
    t->part = part;
    t->ctx = ctx;
    atomic_store(&t->left, team->n - 1);
    generation_start(t);
    part(ctx, 0, team->n);
    for (int spin = 0; spin < t->spins && atomic_load_explicit(&t->left, memory_order_acquire); spin++)
        spin_pause();
    if (!atomic_load(&t->left))
        return;
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->left))
        pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static void part_nothing(void *ctx, uint32_t i, uint32_t n)
{
    (void)ctx, (void)i, (void)n;
}

static void part_bind(void *ctx, uint32_t i, uint32_t n)
{
    hwloc_obj_t core = hwloc_get_obj_by_type(ctx, HWLOC_OBJ_CORE, i);
    hwloc_bitmap_t one = core ? hwloc_bitmap_dup(core->cpuset) : NULL;
    (void)n;
    if (!one)
        return;
    hwloc_bitmap_singlify(one);
    hwloc_set_cpubind(ctx, one, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(one);
}

/* Binds one thread a core, the caller too. 0, or -EINVAL when there are fewer cores than threads. */
static int threads_bind(kvb_threads *t)
{
    hwloc_topology_t topology = topology_of_machine();
    const int cores = topology ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) : 0;
    if (!topology || (cores < (int)t->team.n && t->team.n > 1))
        return -EINVAL;
    t->caller = hwloc_bitmap_alloc();
    if (t->caller && hwloc_get_cpubind(topology, t->caller, HWLOC_CPUBIND_THREAD)) {
        hwloc_bitmap_free(t->caller);
        t->caller = NULL;
    }
    team_run(&t->team, part_bind, topology);
    return 0;
}

int kvb_threads_start(uint32_t n, bool bind, kvb_threads **threads)
{
    kvb_threads *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->team = (kvb_team){.n = n, .run = team_run};
    t->spins = bind ? SPINS : 0;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    t->members = calloc(n, sizeof *t->members);
    int error = t->members ? 0 : -ENOMEM;
    for (uint32_t i = 1; i < n && !error; i++) {
        member *m = &t->members[i];
        m->threads = t;
        m->i = i;
        error = -pthread_create(&m->id, NULL, member_main, m);
        t->started = error ? t->started : i;
    }
    if (!error) { /* threads are bound, and memory is released, before any work is timed */
        team_run(&t->team, part_nothing, NULL);
        error = bind ? threads_bind(t) : 0;
    }
    if (error)
        kvb_threads_end(t);
    else
        *threads = t;
    return error;
}

const kvb_team *kvb_threads_team(const kvb_threads *threads)
{
    return &threads->team;
}

void kvb_threads_end(kvb_threads *t)
{
    if (!t)
        return;
    t->end = true;
    generation_start(t);
    for (uint32_t i = 1; i <= t->started; i++)
        pthread_join(t->members[i].id, NULL);
    if (t->caller)
        hwloc_set_cpubind(topology_of_machine(), t->caller, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(t->caller);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    free(t->members);
    free(t);
}
