/* SPDX-License-Identifier: Apache-2.0 */
/* A call made again by other teams: harness/replay/team_check.h. */
#include "harness/replay/team_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/replay/checks.h"
#include "harness/replay/guard.h"
#include "workloads/array.h"

static void parts_run(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    for (uint32_t i = 0; i < team->n; i++)
        part(ctx, i, team->n);
}

/* The first of n bytes that differs, or n. */
static size_t first_unlike(const unsigned char *a, const unsigned char *b, size_t n)
{
    size_t i = memcmp(a, b, n) ? 0 : n;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Scratch of so many bytes, in the block of the calls before where it is large enough. NULL: no memory. */
static void *scratch_fit(kvb_pass *p, size_t bytes)
{
    kvb_team_check *check = &p->team;
    if (bytes > check->scratch_room) {
        const size_t room = bytes / 2 < check->scratch_room ? 2 * check->scratch_room : bytes;
        kvb_memory_give(p->call.source, check->scratch, check->scratch_room);
        check->scratch = kvb_memory_take(p->call.source, "scratch", room);
        check->scratch_room = check->scratch ? room : 0;
    }
    if (check->scratch && !p->options->knobs->no_guard)
        check->scratch = kvb_guard_fit(check->scratch, bytes);
    return check->scratch;
}

/* Makes the call by a team of n and compares its bits with those of the judged one: out [out bytes] and lse [lse
 * bytes]. */
static int team_judge(kvb_pass *p, uint32_t layer, uint32_t n, size_t out, size_t lse)
{
    const kvb_team team = {.n = n, .run = parts_run};
    const kvb_problem *problem = &p->call.args.problem;
    const kvb_kernel *kernel = p->options->kernel;
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(problem, n) : 0;
    const uint32_t threads = p->call.args.team->n;
    kvb_attend args = p->call.args;
    char why[256];
    args.team = &team;
    args.scratch = bytes ? scratch_fit(p, bytes) : NULL;
    if (bytes && !args.scratch)
        return -ENOMEM;
    p->place->doing = "in the kernel's attend(), for a team of another size";
    int error = kernel->attend(&args);
    p->place->doing = "in the check";
    if (error) {
        snprintf(why, sizeof why, "--deterministic: attend() returns %d for %u threads, and 0 for %u", error, n,
                 threads);
        return kvb_pass_fail(p, KVB_CHECK_DETERMINISTIC, why);
    }
    const size_t row = out / ((size_t)problem->n_tok * problem->n_heads), elem = row / problem->v_dim;
    size_t at = first_unlike(p->io.out, p->team.out, out);
    if (at < out) {
        snprintf(why, sizeof why,
                 "--deterministic: other bits with %u threads than with %u: layer %u, query %zu, head %zu, channel %zu",
                 n, threads, layer, at / row / problem->n_heads, at / row % problem->n_heads, at % row / elem);
        return kvb_pass_fail(p, KVB_CHECK_DETERMINISTIC, why);
    }
    at = args.lse ? first_unlike((const unsigned char *)args.lse, p->team.out + out, lse) : lse;
    if (at == lse)
        return 0;
    snprintf(why, sizeof why,
             "--deterministic: other bits with %u threads than with %u: layer %u, query %zu, head %zu, log-sum-exp", n,
             threads, layer, at / sizeof(float) / problem->n_heads, at / sizeof(float) % problem->n_heads);
    return kvb_pass_fail(p, KVB_CHECK_DETERMINISTIC, why);
}

int kvb_team_check_run(kvb_pass *p, uint32_t layer)
{
    static const uint32_t sizes[] = {1, 3};
    const kvb_problem *problem = &p->call.args.problem;
    const size_t rows = (size_t)problem->n_tok * problem->n_heads;
    const size_t out = rows * problem->v_dim * (problem->out_elem == KVB_F32 ? 4 : 2), lse = rows * sizeof(float);
    int error = 0;
    if (kvb_array_reserve(&p->team.out, &p->team.out_room, out + lse, 1))
        return -ENOMEM;
    memcpy(p->team.out, p->io.out, out);
    memcpy(p->team.out + out, p->io.lse, lse);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !error; i++)
        if (sizes[i] != p->call.args.team->n)
            error = team_judge(p, layer, sizes[i], out, lse);
    if (error)
        return error; /* a dump shows what was wrong */
    memcpy(p->io.out, p->team.out, out);
    memcpy(p->io.lse, p->team.out + out, lse);
    return 0;
}

void kvb_team_check_free(kvb_team_check *check, const kvb_memory_source *source)
{
    free(check->out);
    kvb_memory_give(source, check->scratch, check->scratch_room);
    *check = (kvb_team_check){0};
}
