/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios in which tokens move to other positions, leave the cache, and come back. */
#include <errno.h>

#include "workloads/live/scenario.h"

/*
 * Sequences longer than their room.
 *
 * context-shift   A full sequence drops the older half of the tokens behind its first 4, and the rest moves down
 *                 (llama.cpp's context shift): once while a fork holds the same tokens at their old positions, once
 *                 with two more shifts. Cells are compacted after the fork has ended, and while turns are pending.
 * self-extend     A context longer than the model's positions: positions are grouped, four tokens to one, by the calls
 *                 of llama.cpp (Self-Extend, arXiv:2401.01325): once while a fork holds the same tokens at their own
 *                 positions, once with cells compacted while turns are pending.
 * evict-rollback  A window has dropped rows, and tokens are taken back: several at once, up to the limit, and in a fork
 *                 of a sequence that was just cut back.
 */

enum {
    SHIFT_PROMPT = 40,
    FULL = 64, /* most tokens of the sequence */
    KEPT = 4,  /* first tokens, which stay in place */
    DROPPED = (FULL - KEPT) / 2,
    TOGETHER = 20, /* steps with the fork */
    GAP_AT = 20,   /* with the second shift: position of a gap, … */
    GAP = 6,       /* … its width, … */
    GAP_BACK = 2,  /* … and how far it is narrowed afterwards */
    AFTER_GAP = 24
};

/* A full sequence drops its older half, and the newer half moves to its place. */
static void context_shift(kvb_scene *scene, kvb_scene_seq *seq)
{
    KVB_SCENE_DO(scene, SEQ_RM, .src = seq->id, .p0 = KEPT, .p1 = KEPT + DROPPED);
    kvb_scene_shift(scene, seq, KEPT + DROPPED, -DROPPED);
}

static void play_context_shift(kvb_scene *scene)
{
    kvb_scene_seq seqs[2], *both[] = {&seqs[0], &seqs[1]};
    kvb_scene_begin(scene, &seqs[0], 0, 0, SHIFT_PROMPT);
    kvb_scene_decode(scene, both, 1, FULL - SHIFT_PROMPT);
    kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, FULL);
    kvb_scene_choose_second(scene, &seqs[1]);
    context_shift(scene, &seqs[0]);
    kvb_scene_decode(scene, both, 2, TOGETHER);
    kvb_scene_leave(scene, 1);
    /* the fork's cells are free, between cells of the other sequence */
    KVB_SCENE_DO(scene, DEFRAG, .src = 0);
    kvb_scene_decode(scene, both, 1, FULL - seqs[0].length);
    context_shift(scene, &seqs[0]);
    kvb_scene_shift(scene, &seqs[0], GAP_AT, GAP);
    kvb_scene_shift(scene, &seqs[0], GAP_AT, -GAP_BACK);
    /* while turns are pending */
    KVB_SCENE_DO(scene, DEFRAG, .src = 0);
    kvb_scene_decode(scene, both, 1, AFTER_GAP);
}

enum {
    EXTEND_PROMPT = 40,
    WIDTH = 16, /* positions that are grouped at once, … */
    TO_ONE = 4, /* … each so many to one */
    FORKED = 12,
    LONGER = 30
};

/* Groups positions from `from` on, while there are WIDTH positions. They are first moved up, so that after the division
 * they continue where the grouped ones end; the tokens behind them follow down. */
static void positions_group(kvb_scene *scene, kvb_scene_seq *seq, uint32_t *from)
{
    while (seq->length >= *from + WIDTH) {
        const uint32_t up = (TO_ONE - 1) * *from, begin = *from + up, end = begin + WIDTH;
        kvb_scene_shift(scene, seq, *from, (int32_t)up);
        KVB_SCENE_DO(scene, SEQ_DIV, .src = seq->id, .p0 = begin, .p1 = end, .divisor = TO_ONE);
        *from += WIDTH / TO_ONE;
        kvb_scene_shift(scene, seq, end, (int32_t)(*from) - (int32_t)end);
    }
}

/* Decodes, and groups positions before each step. */
static void grouped_decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps, uint32_t *from)
{
    for (uint32_t i = 0; i < steps; i++) {
        positions_group(scene, seqs[0], from);
        kvb_scene_decode(scene, seqs, n, 1);
    }
}

static void play_self_extend(kvb_scene *scene)
{
    kvb_scene_seq seqs[2], *both[] = {&seqs[0], &seqs[1]};
    uint32_t from = 0;
    kvb_scene_begin(scene, &seqs[0], 0, 0, EXTEND_PROMPT);
    kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, EXTEND_PROMPT);
    kvb_scene_choose_second(scene, &seqs[1]);
    grouped_decode(scene, both, 2, FORKED, &from);
    kvb_scene_leave(scene, 1);
    grouped_decode(scene, both, 1, LONGER, &from);
    positions_group(scene, &seqs[0], &from);
    KVB_SCENE_DO(scene, DEFRAG, .src = 0);
    /* cut back into the grouped positions, and on from there */
    kvb_scene_backtrack(scene, &seqs[0], seqs[0].length - from + 1);
    from--;
    grouped_decode(scene, both, 1, LONGER, &from);
}

enum {
    WINDOW = 12,
    SINKS = 2,
    EVICT_PROMPT = 40, /* in one prefill longer than the window */
    DECODE = 20,
    BACK = 7,
    ROLLBACK = 12, /* most */
    AGAIN = 9,     /* steps between two rollbacks */
    BRANCH_BACK = 3,
    BRANCHES = 30 /* steps of both branches */
};

static void play_evict_rollback(kvb_scene *scene)
{
    kvb_scene_seq seqs[2], *both[] = {&seqs[0], &seqs[1]};
    kvb_scene_begin(scene, &seqs[0], 0, 0, EVICT_PROMPT);
    kvb_scene_decode(scene, both, 1, DECODE);
    kvb_scene_backtrack(scene, &seqs[0], BACK);
    kvb_scene_decode(scene, both, 1, AGAIN);
    kvb_scene_backtrack(scene, &seqs[0], BACK); /* fewer than the steps since the cut before */
    kvb_scene_decode(scene, both, 1, ROLLBACK);
    kvb_scene_backtrack(scene, &seqs[0], ROLLBACK);
    kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, seqs[0].length);
    kvb_scene_decode(scene, both, 1, BRANCH_BACK);
    kvb_scene_backtrack(scene, &seqs[0], BRANCH_BACK);
    kvb_scene_choose_second(scene, &seqs[1]);
    kvb_scene_decode(scene, both, 2, BRANCHES);
    kvb_scene_backtrack(scene, &seqs[1], ROLLBACK);
    kvb_scene_decode(scene, both, 2, AGAIN);
}

KVB_SCENARIO(context_shift, .name = "context-shift",
             .summary = "live model: every other layer with a window of 16 and 4 sinks; a sequence of at most 64 "
                        "tokens; when it is full, 30 go behind the first 4 and the rest moves down; once beside a "
                        "fork, once with two shifts more and a defrag",
             .cache = "window", .needs = KVB_CACHE_SEQ | KVB_CACHE_SHIFT, .full_every = 2,
             .limits = {.window = 16, .sinks = KEPT}, .capacity = 256, .seq_capacity = 96, .max_seqs = 2,
             .play = play_context_shift);

KVB_SCENARIO(self_extend, .name = "self-extend",
             .summary = "live model: behind the first position 16 positions at a time are grouped, four tokens to one, "
                        "as soon as they are there; once beside a fork; cut back into what is grouped",
             .cache = "seq", .needs = KVB_CACHE_SEQ | KVB_CACHE_SHIFT | KVB_CACHE_DIVIDE, .capacity = 256,
             .seq_capacity = 192, .max_seqs = 2, .play = play_self_extend);

KVB_SCENARIO(evict_rollback, .name = "evict-rollback",
             .summary = "live model: a window of 12 and 2 sinks in every layer; up to 12 tokens taken back from behind "
                        "it, again and again, in a fork too",
             .cache = "window", .needs = KVB_CACHE_SEQ, .limits = {.window = WINDOW, .sinks = SINKS},
             .rollback = ROLLBACK, .capacity = 256, .seq_capacity = 128, .max_seqs = 2, .play = play_evict_rollback);

/*
 * Sequences that leave the cache and come back.
 *
 * save-restore     A trunk is saved and forked; loaded again, it generates the same tokens as the forks. The whole
 *                  cache is saved, goes on, is loaded and goes on with the same tokens. Every other layer has a window
 *                  and sinks.
 * preempt-resume   Three requests with a capacity for two: one is swapped out while others decode and swapped in again,
 *                  another is dropped and computed again. Each generates the same tokens as alone.
 */

/* Generated tokens, from number `first` of the outcome on: those of sequence i of n, in so many steps. */
typedef struct said {
    size_t first;
    uint32_t i, n, steps;
} said;

static int32_t word(const kvb_scene *scene, const said *s, uint32_t step)
{
    return scene->outcome->tokens[s->first + (size_t)step * s->n + s->i];
}

/* Checks that both generated the same tokens. */
static void same_check(kvb_scene *scene, const said *a, const said *b, const char *what)
{
    for (uint32_t i = 0; i < a->steps && !scene->error; i++)
        if (word(scene, a, i) != word(scene, b, i))
            kvb_scene_fail(scene, -EPROTO, "%s said another token at step %u than if it had never left", what, i);
}

/* Decodes n sequences together, and notes where their tokens begin. */
static void decode(kvb_scene *scene, kvb_scene_seq *const *seqs, uint32_t n, uint32_t steps, said *first)
{
    *first = (said){scene->outcome->n, 0, n, steps};
    kvb_scene_decode(scene, seqs, n, steps);
}

/* Loads the slot as sequence id. as: the sequence when it was saved. */
static void restore(kvb_scene *scene, uint32_t slot, const kvb_scene_seq *as, kvb_scene_seq *seq, uint32_t id)
{
    *seq = *as;
    seq->id = id;
    KVB_SCENE_DO(scene, LOAD, .slot = slot, .src = id);
}

enum {
    SAVES_WINDOW = 16,
    SAVES_SINKS = 2,
    TRUNK = 40,         /* prompt tokens, more than the window */
    TRUNK_DECODE = 8,   /* steps before it is saved */
    BRANCHES_STEP = 9,  /* steps of the forks, and of each that is restored */
    SAVES_BACK = 5,     /* tokens that one fork takes back */
    SAVES_TOGETHER = 12 /* steps of all, twice */
};

static void restore_play(kvb_scene *scene)
{
    kvb_scene_seq seqs[4], trunk, then[4], *all[] = {&seqs[0], &seqs[1], &seqs[2], &seqs[3]};
    said forks, third, fourth, first, again;
    kvb_scene_begin(scene, &seqs[0], 0, 0, TRUNK);
    kvb_scene_decode(scene, all, 1, TRUNK_DECODE);
    KVB_SCENE_DO(scene, SAVE, .src = 0);
    trunk = seqs[0];
    kvb_scene_fork(scene, &seqs[0], &seqs[1], 1, trunk.length);
    kvb_scene_choose_second(scene, &seqs[1]);
    decode(scene, all, 2, BRANCHES_STEP, &forks);
    restore(scene, 0, &trunk, &seqs[2], 2);
    decode(scene, all + 2, 1, BRANCHES_STEP, &third);
    same_check(scene, &forks, &third, "the restored trunk");
    kvb_scene_leave(scene, 0); /* sequence 2 still holds its rows */
    restore(scene, 0, &trunk, &seqs[3], 3);
    kvb_scene_choose_second(scene, &seqs[3]);
    decode(scene, all + 3, 1, BRANCHES_STEP, &fourth);
    forks.i = 1;
    same_check(scene, &forks, &fourth, "the trunk that was restored as another fork");
    kvb_scene_backtrack(scene, &seqs[1], SAVES_BACK);
    KVB_SCENE_DO(scene, SAVE, .slot = 1, .src = KVB_SEQ_ALL);
    for (int i = 1; i < 4; i++)
        then[i] = seqs[i];
    decode(scene, all + 1, 3, SAVES_TOGETHER, &first);
    KVB_SCENE_DO(scene, LOAD, .slot = 1, .src = KVB_SEQ_ALL);
    for (int i = 1; i < 4; i++)
        seqs[i] = then[i];
    decode(scene, all + 1, 3, SAVES_TOGETHER, &again);
    for (uint32_t i = 0; i < 3; i++) {
        first.i = again.i = i;
        same_check(scene, &first, &again, "the whole cache, restored,");
    }
}

enum {
    REQUESTS = 3,
    PROMPT = 24,  /* tokens of each */
    BEFORE = 10,  /* steps of the first two */
    AWAY = 20,    /* steps of the first and the third, while the second is swapped out */
    BETWEEN = 15, /* of the first and the second, while the third is dropped */
    LAST = 12,    /* of the second and the third */
    ROOM = 128    /* cells: the first two at their longest; all three would take 161 */
};

/* Computes a sequence's rows again, of its prompt and its generated tokens. The next token must be the same. */
static void recompute(kvb_scene *scene, const kvb_scene_seq *seq, const int32_t *words)
{
    uint32_t ids[PROMPT + AWAY];
    int32_t tok[PROMPT + AWAY];
    const int32_t next = seq->next;
    for (uint32_t i = 0; i < PROMPT + AWAY; i++) {
        ids[i] = seq->id;
        tok[i] = i < PROMPT ? kvb_scene_prompt(scene, seq->id, i) : words[i - PROMPT];
    }
    kvb_scene_step(scene, KVB_EVENT_PREFILL, ids, tok, PROMPT + AWAY);
    if (!scene->error && kvb_scene_best(scene, PROMPT + AWAY - 1, 0) != next)
        kvb_scene_fail(scene, -EPROTO, "sequence %u, computed again, goes on with another token", seq->id);
}

/* Plays one request alone, from an empty cache, beside the scene, and checks that it generates the same tokens. */
static void alone_check(kvb_scene *scene, uint32_t id, const int32_t *words, uint32_t n)
{
    kvb_runner alone;
    const uint32_t seq = 0;
    kvb_scene_runner(scene, scene->weights, &alone);
    kvb_scene_feed(scene, &alone, seq, id, 0, PROMPT);
    for (uint32_t i = 0, last = PROMPT - 1; i < n && !scene->error; i++, last = 0) {
        const int32_t best = kvb_runner_best(&alone, last, 0);
        if (best != words[i])
            kvb_scene_fail(scene, -EPROTO, "request %u says another token %u when it is not interrupted", id, i);
        KVB_SCENE_TRY(scene, &alone, kvb_runner_step(&alone, KVB_EVENT_STEP, &seq, &best, 1));
    }
    kvb_runner_close(&alone);
}

static void preempt_play(kvb_scene *scene)
{
    kvb_scene_seq seqs[REQUESTS];
    said parts[4];
    kvb_scene_begin(scene, &seqs[0], 0, 0, PROMPT);
    kvb_scene_begin(scene, &seqs[1], 1, 1, PROMPT);
    decode(scene, (kvb_scene_seq *[]){&seqs[0], &seqs[1]}, 2, BEFORE, &parts[0]);
    KVB_SCENE_DO(scene, SAVE, .src = 1); /* swapped out */
    kvb_scene_leave(scene, 1);
    kvb_scene_begin(scene, &seqs[2], 2, 2, PROMPT);
    decode(scene, (kvb_scene_seq *[]){&seqs[0], &seqs[2]}, 2, AWAY, &parts[1]);
    kvb_scene_leave(scene, 2);           /* dropped */
    KVB_SCENE_DO(scene, LOAD, .src = 1); /* swapped in */
    decode(scene, (kvb_scene_seq *[]){&seqs[0], &seqs[1]}, 2, BETWEEN, &parts[2]);
    kvb_scene_leave(scene, 0); /* it has ended */
    if (scene->error)
        return;
    int32_t words[REQUESTS][1 + BEFORE + AWAY + BETWEEN + LAST] = {
        {scene->outcome->tokens[0]}, {scene->outcome->tokens[1]}, {scene->outcome->tokens[parts[1].first - 1]}};
    uint32_t n[REQUESTS] = {1, 1, 1};
    static const uint32_t of[][2] = {{0, 1}, {0, 2}, {0, 1}, {1, 2}}; /* requests of each part */
    for (uint32_t part = 0; part < 4; part++) {
        if (part == 3) { /* the third comes back */
            recompute(scene, &seqs[2], words[2]);
            decode(scene, (kvb_scene_seq *[]){&seqs[1], &seqs[2]}, 2, LAST, &parts[part]);
        }
        for (uint32_t step = 0; step < parts[part].steps && !scene->error; step++)
            for (uint32_t i = 0; i < 2; i++) {
                parts[part].i = i;
                words[of[part][i]][n[of[part][i]]++] = word(scene, &parts[part], step);
            }
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        alone_check(scene, i, words[i], n[i]);
}

KVB_SCENARIO(save_restore, .name = "save-restore",
             .summary = "live model: a trunk saved, forked, and restored twice beside the forks; the whole cache saved "
                        "and restored; a window of 16 and 2 sinks in every other layer",
             .cache = "window", .needs = KVB_CACHE_SEQ | KVB_CACHE_SAVES, .layers = 2, .full_every = 2,
             .limits = {.window = SAVES_WINDOW, .sinks = SAVES_SINKS}, .rollback = 12, .capacity = 512,
             .seq_capacity = 128, .max_seqs = 4, .play = restore_play);

KVB_SCENARIO(preempt_resume, .name = "preempt-resume",
             .summary = "live model: three requests under a capacity for two; one is swapped out and in again, one is "
                        "dropped and computed again",
             .cache = "seq", .needs = KVB_CACHE_SEQ | KVB_CACHE_SAVES, .capacity = ROOM, .seq_capacity = 96,
             .max_seqs = 2, .play = preempt_play);
