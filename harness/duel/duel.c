/* SPDX-License-Identifier: Apache-2.0 */
/* Two plug-ins, with parts found by their names; and two programs, run in turns. */
#include "harness/duel/duel.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/command_line.h"
#include "harness/program.h"
#include "harness/rounds.h"
#include "results/statistics.h"
#include "workloads/files.h"

/* Adds the parts of one kind that the new side has and the base lacks. */
static int rest_add(kvb_duel *duel, kvb_registry_kind sort, const char *path, char *why, size_t why_bytes)
{
    const kvb_registry *new = &duel->side[KVB_DUEL_NEW];
    kvb_registry *all = &duel->all;
    for (size_t i = 0; i < new->n[sort]; i++) {
        const kvb_registered *part = &new->at[sort][i];
        if (kvb_registry_find(all, sort, part->name))
            continue;
        if (all->n[sort] == KVB_REGISTRY_MAX)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: more than %u parts of sort %s together with the base",
                               path, KVB_REGISTRY_MAX, kvb_registry_kind_names[sort]);
        all->at[sort][all->n[sort]++] = *part;
    }
    return 0;
}

/* Copies a file into memory. The copy has another inode, so the loader takes it for another plug-in. */
static int copy_make(const char *path, int *copy, char *why, size_t why_bytes)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *copy = memfd_create("kvbench plug-in", MFD_CLOEXEC);
    bool done = file >= 0 && *copy >= 0 && !fstat(file, &about);
    for (off_t left = done ? about.st_size : 0; done && left > 0;) {
        ssize_t n = sendfile(*copy, file, NULL, (size_t)left);
        done = n > 0;
        left -= n;
    }
    int error = done ? 0 : errno ? -errno : -EIO;
    if (error)
        snprintf(why, why_bytes, "%s: %s", path, strerror(-error));
    if (file >= 0)
        close(file);
    return error;
}

int kvb_duel_load(kvb_duel *duel, const char *base, const char *new, char *why, size_t why_bytes)
{
    const char *paths[KVB_DUEL_SIDES] = {base, new};
    int error = 0;
    *duel = (kvb_duel){.copy = {-1, -1}};
    kvb_registry_init(&duel->built_in);
    for (int side = 0; side < KVB_DUEL_SIDES && !error; side++) {
        duel->side[side] = duel->built_in;
        error = kvb_registry_load(&duel->side[side], paths[side], why, why_bytes);
        if (!error)
            error = copy_make(paths[side], &duel->copy[side], why, why_bytes);
    }
    if (!error && !memcmp(duel->side[KVB_DUEL_BASE].n, duel->built_in.n, sizeof duel->built_in.n)) {
        snprintf(why, why_bytes, "%s: lists no kernel, cache or pool: there is nothing to compare with", base);
        error = -EINVAL;
    }
    duel->all = duel->side[KVB_DUEL_BASE];
    for (int sort = 0; sort < KVB_REGISTRY_KINDS && !error; sort++)
        error = rest_add(duel, (kvb_registry_kind)sort, new, why, why_bytes);
    return error;
}

void kvb_duel_close(kvb_duel *duel)
{
    for (int side = 0; side < KVB_DUEL_SIDES; side++)
        if (duel->copy[side] >= 0)
            close(duel->copy[side]);
}

const void *kvb_duel_part(const kvb_registry *registry, kvb_registry_kind sort, const char *name)
{
    const void *found = kvb_registry_find(registry, sort, name);
    for (size_t i = 0; i < registry->n[KVB_POOLS] && sort == KVB_POOLS && !found; i++) {
        const kvb_pool_type *plain = registry->at[sort][i].definition;
        if (plain->rotated && !strcmp(plain->rotated->name, name))
            found = plain->rotated;
    }
    return found;
}

bool kvb_duel_concerns(const kvb_duel *duel, const kvb_result *names)
{
    return !kvb_duel_part(&duel->built_in, KVB_KERNELS, names->kernel) ||
           !kvb_duel_part(&duel->built_in, KVB_CACHES, names->cache) ||
           !kvb_duel_part(&duel->built_in, KVB_POOLS, names->pool_k) ||
           !kvb_duel_part(&duel->built_in, KVB_POOLS, names->pool_v);
}

int kvb_duel_enter(const void *corner, kvb_replay_options *replay, char *why, size_t why_bytes)
{
    static kvb_registry registry; /* of this process */
    const kvb_duel_corner *c = corner;
    char path[64];
    kvb_registry_init(&registry);
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->duel->copy[c->side]);
    int error = kvb_registry_load(&registry, path, why, why_bytes);
    if (error)
        return error;
    replay->kernel = kvb_duel_part(&registry, KVB_KERNELS, replay->kernel->name);
    replay->scan = kvb_duel_part(&registry, KVB_KERNELS, replay->scan->name);
    replay->cache = kvb_duel_part(&registry, KVB_CACHES, replay->cache->name);
    replay->k_pool = kvb_duel_part(&registry, KVB_POOLS, replay->k_pool->name);
    replay->v_pool = kvb_duel_part(&registry, KVB_POOLS, replay->v_pool->name);
    if (replay->kernel && replay->scan && replay->cache && replay->k_pool && replay->v_pool)
        return 0;
    return kvb_why_set(-EINVAL, why, why_bytes, "the plug-in does not list the same parts when it is loaded again");
}

double kvb_duel_null(const kvb_result *a, const kvb_result *b)
{
    double pairs[2 * KVB_SERIES];
    size_t n = 0;
    for (; n < a->time.n_series && n < b->time.n_series; n++) {
        pairs[2 * n] = a->time.series[n];
        pairs[2 * n + 1] = b->time.series[n];
    }
    return kvb_null_difference(pairs, 2 * n);
}

/* ---- two programs ------------------------------------------------------------------------------------------------ */

#define TURNS 3 /* of a round: base, new, base again */
static const int side_of_turn[TURNS] = {KVB_DUEL_BASE, KVB_DUEL_NEW, KVB_DUEL_BASE};

/* All runs of one turn. */
typedef struct series {
    kvb_result_file *first;
    double (*medians)[KVB_SERIES]; /* [first->n][rounds]; NaN: the combination did not pass in that round */
} series;

typedef struct folder {
    char path[256], records[300], partial[300], errors[300]; /* partial: left by a run that was stopped */
} folder;

static int folder_make(folder *f, char *why, size_t why_bytes)
{
    const char *parent = getenv("TMPDIR");
    snprintf(f->path, sizeof f->path, "%s/kvbench-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(f->path)) {
        int error = -errno;
        snprintf(why, why_bytes, "%s: %s", f->path, strerror(errno));
        f->path[0] = '\0';
        return error;
    }
    snprintf(f->records, sizeof f->records, "%s/run.jsonl", f->path);
    snprintf(f->partial, sizeof f->partial, "%s/run.jsonl.tmp", f->path);
    snprintf(f->errors, sizeof f->errors, "%s/stderr", f->path);
    return 0;
}

/* Replaces this process by the program. Its table is thrown away, its complaints go into a file. Measurements that are
 * not compared are turned off. */
static _Noreturn void program_become(const char *program, const char *const *words, const folder *f)
{
    static const char *const own[] = {"--no-null", "--no-machine", "-o"};
    size_t n = 0, used = 0;
    while (words[n])
        n++;
    const char **argv = calloc(n + sizeof own / sizeof *own + 4, sizeof *argv);
    int nowhere = open("/dev/null", O_WRONLY), errors = open(f->errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (!argv || nowhere < 0 || errors < 0)
        _exit(127);
    argv[used++] = program;
    argv[used++] = "run";
    memcpy(argv + used, words, n * sizeof *argv);
    used += n;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        argv[used++] = own[i];
    argv[used] = f->records;
    dup2(nowhere, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(program, (char *const *)(uintptr_t)argv);
    fprintf(stderr, "%s\n", strerror(errno));
    _exit(127);
}

/* Reads the last line that a program wrote: the reason for its end. */
static void last_line(const char *path, char *text, size_t bytes)
{
    FILE *f = fopen(path, "r");
    snprintf(text, bytes, "it wrote no message");
    while (f && fgets(text, (int)bytes, f))
        text[strcspn(text, "\n")] = '\0';
    if (f)
        fclose(f);
}

/* Makes one run. A failed check (exit code 1) is left to the comparison; any other failure is an error. */
static int program_run(const kvb_programs_options *o, const char *program, const folder *f, kvb_result_file **file,
                       char *why, size_t why_bytes)
{
    char said[512];
    int status = 0;
    unlink(f->records);
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (!pid)
        program_become(program, o->words, f);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        if (kvb_stopped)
            kill(pid, SIGTERM); /* a signal from the terminal has reached it, another one may not have */
    if (WIFSIGNALED(status))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s run: SIG%s", program, sigabbrev_np(WTERMSIG(status)));
    if (WEXITSTATUS(status) > KVB_EXIT_FAILED) {
        last_line(f->errors, said, sizeof said);
        snprintf(why, why_bytes, "%s run: exit %d: %s", program, WEXITSTATUS(status), said);
        return WEXITSTATUS(status) == KVB_EXIT_MACHINE ? -EIO : -EINVAL;
    }
    int error = kvb_result_load(f->records, file, said, sizeof said);
    if (error)
        snprintf(why, why_bytes, "%s: its results cannot be read by this kvbench: %s", program, said);
    return error;
}

/* The record of the same combination, or NULL. */
static const kvb_result *find(const kvb_result_file *file, const kvb_result *key)
{
    for (size_t i = 0; i < file->n; i++)
        if (!kvb_key_order(&file->results[i], key))
            return &file->results[i];
    return NULL;
}

/* Adds one more run to the series. The first run is kept and freed with the series; the others are freed here. */
static int series_take(series *s, size_t round, kvb_result_file *file)
{
    if (round == 0) {
        s->first = file;
        s->medians = calloc(file->n + 1, sizeof *s->medians);
        if (!s->medians)
            return -ENOMEM;
    }
    for (size_t i = 0; i < s->first->n; i++) {
        kvb_result *first = &s->first->results[i];
        const kvb_result *now = find(file, first);
        bool passed = now && now->status == KVB_STATUS_PASS;
        s->medians[i][round] = passed ? now->time.all.median : NAN;
        if (!passed && first->status == KVB_STATUS_PASS) {
            first->status = now ? now->status : KVB_STATUS_SKIP;
            snprintf(first->reason, sizeof first->reason, "round %zu: %.280s", round + 1,
                     now ? now->reason : "no record of it");
        }
    }
    if (round > 0)
        kvb_result_free(file);
    return 0;
}

/* Replaces the series of passes by the series of rounds. */
static void rounds_report(const double *medians, size_t rounds, kvb_result *result)
{
    double copy[KVB_SERIES];
    if (result->status != KVB_STATUS_PASS || isnan(result->time.all.median))
        return;
    memcpy(result->time.series, medians, rounds * sizeof *medians);
    memcpy(copy, medians, rounds * sizeof *medians);
    result->time.n_series = (uint32_t)rounds;
    result->time.all.median = kvb_quantile(copy, rounds, 0.5);
    result->time.passes = rounds;
    result->time.warmup = 0;
}

/* The difference between base and base again is the null comparison of both sides. */
static void nulls_report(const series turns[TURNS])
{
    for (size_t i = 0; i < turns[0].first->n; i++) {
        kvb_result *base = &turns[0].first->results[i];
        const kvb_result *again = find(turns[2].first, base);
        kvb_result *new = (kvb_result *)(uintptr_t)find(turns[1].first, base);
        base->time.null_difference = again ? kvb_duel_null(base, again) : NAN;
        if (new)
            new->time.null_difference = base->time.null_difference;
    }
}

static int rounds_run(const kvb_programs_options *o, const folder *f, series turns[TURNS], char *why, size_t why_bytes)
{
    int error = 0;
    for (size_t i = 0; i < o->rounds * TURNS && !error && !kvb_stopped; i++) {
        size_t round = i / TURNS, turn = kvb_rounds_place(TURNS, round, i % TURNS);
        const char *program = o->program[side_of_turn[turn]];
        kvb_result_file *file = NULL;
        kvb_progress_now("%s", program);
        error = program_run(o, program, f, &file, why, why_bytes);
        if (!error)
            error = series_take(&turns[turn], round, file);
        kvb_progress_step(true);
    }
    return kvb_stopped ? -EINTR : error; /* the same signal may have ended the run: no error */
}

int kvb_programs_run(const kvb_programs_options *o, kvb_results *base, kvb_results *new, char *why, size_t why_bytes)
{
    kvb_results *const results[KVB_DUEL_SIDES] = {base, new};
    series turns[TURNS] = {{.first = NULL}};
    folder f;
    int error = folder_make(&f, why, why_bytes);
    if (!error)
        error = rounds_run(o, &f, turns, why, why_bytes);
    unlink(f.records);
    unlink(f.partial);
    unlink(f.errors);
    if (*f.path)
        rmdir(f.path);
    for (int t = 0; t < TURNS && !error; t++)
        for (size_t i = 0; i < turns[t].first->n; i++)
            rounds_report(turns[t].medians[i], o->rounds, &turns[t].first->results[i]);
    if (!error)
        nulls_report(turns);
    for (int t = 0; t < KVB_DUEL_SIDES && !error; t++) /* the first two turns belong to the two sides */
        for (size_t i = 0; i < turns[t].first->n && !error; i++)
            error = kvb_results_add(results[t], &turns[t].first->results[i]);
    for (int t = 0; t < TURNS; t++) {
        kvb_result_free(turns[t].first);
        free(turns[t].medians);
    }
    return error;
}
