/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of sequences that are decoded together, fork, and share prefixes. */
#include <math.h>

#include "workloads/live/scenario.h"

/* plain-decode: one sequence; prefill, a second prompt part in chunks, decode. */

enum { FIRST_PART = 48, SECOND_PART = 80, CHUNK = 16, DECODE = 64 };

void kvb_play_plain_decode(kvb_scene *scene)
{
    kvb_scene_seq seq = {.id = 0};
    kvb_scene_prefill(scene, seq.id, 0, 0, FIRST_PART);
    for (uint32_t done = 0; done < SECOND_PART; done += CHUNK)
        kvb_scene_prefill(scene, seq.id, 0, FIRST_PART + done, CHUNK);
    seq.length = FIRST_PART + SECOND_PART;
    kvb_scene_choose(scene, &seq, CHUNK - 1);
    kvb_scene_decode(scene, (kvb_scene_seq *[]){&seq}, 1, DECODE);
}

KVB_SCENARIO(plain_decode, .name = "plain-decode",
             .summary = "live model: prefill of 48, five chunks of 16, 64 decode steps", .cache = "contiguous",
             .small = &kvb_live_rank, .capacity = 256, .seq_capacity = 256, .max_seqs = 1,
             .play = kvb_play_plain_decode);

/*
 * batched-multi-seq: 8 sequences as a server with continuous batching runs them. Each step decodes all that are
 * running, together with one chunk of a long prompt if one waits (Agrawal et al., Sarathi-Serve, OSDI 2024). Sequences
 * leave when they are done. Two of the ids are used a second time, in cells that others have left.
 */

typedef struct request {
    uint32_t seq;      /* id */
    uint32_t arrives;  /* the request arrives before this step */
    uint32_t prompt;   /* tokens */
    uint32_t generate; /* tokens */
    uint32_t chunk;    /* prompt tokens a step, beside the others' decoding; 0: all at once, alone */
} request;

static const request requests[] = {
    {0, 0, 24, 40, 0}, {1, 0, 7, 18, 0},   {2, 3, 40, 30, 16},  {3, 5, 13, 9, 0},   {4, 8, 33, 36, 16},
    {5, 9, 3, 44, 0},  {6, 14, 19, 12, 8}, {7, 16, 52, 24, 16}, {3, 22, 28, 20, 8}, {1, 30, 10, 14, 0},
};
enum { REQUESTS = sizeof requests / sizeof *requests, MAX_STEP = 64 };

typedef enum phase { WAITING, PREFILLING, RUNNING, GONE } phase;

typedef struct progress {
    phase phase;
    uint32_t generated;
    kvb_scene_seq seq;
} progress;

/* Ends requests that are done, and admits those that prefill alone. */
static void admit(kvb_scene *scene, progress *at, uint32_t step)
{
    for (uint32_t r = 0; r < REQUESTS; r++)
        if (at[r].phase == RUNNING && at[r].generated >= requests[r].generate) {
            at[r].phase = GONE;
            kvb_scene_leave(scene, requests[r].seq);
        }
    for (uint32_t r = 0; r < REQUESTS; r++) {
        if (at[r].phase != WAITING || requests[r].arrives > step)
            continue;
        at[r].phase = PREFILLING;
        if (requests[r].chunk)
            continue;
        at[r].phase = RUNNING;
        kvb_scene_begin(scene, &at[r].seq, requests[r].seq, r, requests[r].prompt);
        at[r].generated = 1;
    }
}

/* One step of all running requests, with one chunk. *n: its tokens; 0: nothing to do. */
static void advance(kvb_scene *scene, progress *at, uint32_t *n)
{
    uint32_t ids[MAX_STEP], chunk = 0, chunk_of = REQUESTS, decoding = 0;
    int32_t tok[MAX_STEP];
    for (uint32_t r = 0; r < REQUESTS; r++) {
        if (at[r].phase == PREFILLING && chunk_of == REQUESTS)
            chunk_of = r;
        if (at[r].phase != RUNNING)
            continue;
        ids[decoding] = requests[r].seq;
        tok[decoding++] = at[r].seq.next;
    }
    *n = decoding;
    if (chunk_of < REQUESTS) {
        const request *q = &requests[chunk_of];
        uint32_t from = at[chunk_of].seq.length;
        for (; chunk < q->chunk && from + chunk < q->prompt; chunk++) {
            ids[*n] = q->seq;
            tok[(*n)++] = kvb_scene_prompt(scene, chunk_of, from + chunk);
        }
        at[chunk_of].seq.length += chunk;
    }
    if (*n == 0)
        return;
    kvb_scene_step(scene, decoding ? KVB_EVENT_STEP : KVB_EVENT_PREFILL, ids, tok, *n);
    uint32_t row = 0;
    for (uint32_t r = 0; r < REQUESTS; r++)
        if (at[r].phase == RUNNING) {
            at[r].seq.length++;
            at[r].generated++;
            kvb_scene_choose(scene, &at[r].seq, row++);
        }
    if (chunk_of < REQUESTS && at[chunk_of].seq.length == requests[chunk_of].prompt) {
        at[chunk_of].phase = RUNNING;
        at[chunk_of].generated = 1;
        kvb_scene_choose(scene, &at[chunk_of].seq, *n - 1);
    }
}

static void play(kvb_scene *scene)
{
    progress at[REQUESTS] = {0};
    for (uint32_t r = 0; r < REQUESTS; r++)
        at[r].seq.id = requests[r].seq;
    uint32_t n = 1;
    for (uint32_t step = 0; n > 0 && !scene->error; step++) {
        admit(scene, at, step);
        advance(scene, at, &n);
    }
}

KVB_SCENARIO(batched_multi_seq, .name = "batched-multi-seq",
             .summary = "live model: 8 sequences batched, admissions, chunked prefill beside decode, departures",
             .cache = "seq", .needs = KVB_CACHE_SEQ, .small = &kvb_live_rank, .capacity = 512, .seq_capacity = 128,
             .max_seqs = 8, .play = play);

/*
 * agent-fork: an agent tries six continuations of one trunk, branches again from the middle of one, takes
 * back the end of another, drops the losers and goes on with the winner alone. Branches start with
 * different tokens (the i-th best), so that they diverge.
 */

enum {
    TRUNK = 48,       /* prompt tokens */
    TRUNK_DECODE = 8, /* steps before the fork */
    BRANCHES = 6,     /* sequences 1 .. 6 */
    TOGETHER = 12,    /* steps of all branches */
    FORKED = 2,       /* branch that forks again … */
    FORKED_KEEPS = 7, /* … after this many of its own tokens, … */
    FORK = 7,         /* … as this sequence */
    BACKTRACKED = 4,  /* branch that takes back … */
    TAKEN_BACK = 5,   /* … this many tokens */
    AFTER = 10,       /* steps after that */
    WINNER = FORK,
    ALONE = 16 /* steps of the winner alone */
};

static void play_agent(kvb_scene *scene)
{
    kvb_scene_seq seqs[FORK + 1];
    kvb_scene_seq *batch[] = {&seqs[1], &seqs[2], &seqs[3], &seqs[4], &seqs[5], &seqs[6], &seqs[FORK]};
    kvb_scene_seq *finalists[] = {&seqs[2], &seqs[4], &seqs[FORK]};
    kvb_play_branches(scene, TRUNK, TRUNK_DECODE, seqs, BRANCHES);
    kvb_scene_decode(scene, batch, BRANCHES, TOGETHER);
    kvb_scene_fork(scene, &seqs[FORKED], &seqs[FORK], FORK, TRUNK + TRUNK_DECODE + FORKED_KEEPS);
    kvb_scene_choose_second(scene, &seqs[FORK]);
    kvb_scene_backtrack(scene, &seqs[BACKTRACKED], TAKEN_BACK);
    kvb_scene_decode(scene, batch, BRANCHES + 1, AFTER);
    const uint32_t losers[] = {1, 3, 5, 6};
    for (uint32_t i = 0; i < sizeof losers / sizeof *losers; i++)
        kvb_scene_leave(scene, losers[i]);
    kvb_scene_decode(scene, finalists, 3, AFTER);
    KVB_SCENE_DO(scene, SEQ_KEEP, .src = WINNER);
    kvb_scene_decode(scene, (kvb_scene_seq *[]){&seqs[WINNER]}, 1, ALONE);
}

KVB_SCENARIO(
    agent_fork, .name = "agent-fork",
    .summary = "live model: trunk, 6 branches, a branch of a branch, backtracking, losers dropped, winner kept",
    .cache = "seq", .small = &kvb_live_rank, .needs = KVB_CACHE_SEQ, .capacity = 1024, .seq_capacity = 128,
    .max_seqs = 8, .play = play_agent);

/*
 * parallel-sample: one prompt is prefilled once, cloned into 8 sample rows, and all rows are decoded in
 * lockstep. Sample i starts with the i-th best token and is greedy after it.
 */

enum { PROMPT = 40, SAMPLES = 8, STEPS = 24 };

static void play_sample(kvb_scene *scene)
{
    kvb_scene_seq prompt = {.length = PROMPT}, seqs[SAMPLES], *rows[SAMPLES];
    kvb_scene_prefill(scene, 0, 0, 0, PROMPT);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        rows[i] = &seqs[i];
        kvb_scene_fork(scene, &prompt, &seqs[i], i + 1, PROMPT);
        kvb_scene_choose_other(scene, &seqs[i], PROMPT - 1, i);
    }
    kvb_scene_decode(scene, rows, SAMPLES, STEPS);
}

KVB_SCENARIO(parallel_sample, .name = "parallel-sample",
             .summary = "live model: one prompt cloned into 8 samples, decoded in lockstep", .cache = "slab",
             .small = &kvb_live_rank, .needs = KVB_CACHE_SEQ, .capacity = 1024, .seq_capacity = 80,
             .max_seqs = SAMPLES + 1, .play = play_sample);

/*
 * beam-search: the best four continuations of a prompt by the sum of their tokens' log-probabilities. After each step
 * the beams are reordered, the best first; a beam can go on in two ways and another can end. A beam with an end token
 * is a finished hypothesis and leaves, and the search is one beam narrower (Sutskever et al., "Sequence to Sequence
 * Learning with Neural Networks", NeurIPS 2014, section 3.2). One reorder call forks, reorders and prunes.
 */

enum {
    WIDTH = 4,
    NEVER = WIDTH, /* a sequence that is never alive: a beam that it replaces is dropped */
    BEAM_PROMPT = 36,
    PROMPT_NUMBER = 3, /* a prompt with which beams swap, are dropped and end */
    BEAM_STEPS = 24,
    ENDS = 2, /* the first tokens of the vocabulary, so many, end a hypothesis */
    WINDOW = 8
};

typedef struct beam {
    uint32_t parent;
    int32_t next; /* chosen, not yet in the cache */
    double score; /* log-probability of its tokens */
} beam;

/* Logarithm of the sum of exp(logits). */
static double log_sum(const float *logits, uint32_t n)
{
    double most = logits[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        most = most > logits[i] ? most : logits[i];
    uint32_t i = 0;
    do
        sum += exp(logits[i] - most);
    while (++i < n);
    return most + log(sum);
}

/* Lists the WIDTH best continuations of each of n beams in `to`, best first. Beam b's logits are those of new token
 * first + b. Returns their number. */
static uint32_t beams_extend(const kvb_scene *scene, const beam *beams, uint32_t n, uint32_t first, beam *to)
{
    const kvb_runner *r = &scene->runner;
    const uint32_t vocab = r->weights->config.vocab;
    uint32_t found = 0;
    for (uint32_t b = 0; b < n && !scene->error; b++) {
        const float *logits = r->logits + (size_t)(first + b) * vocab;
        const double all = log_sum(logits, vocab);
        for (uint32_t rank = 0; rank < WIDTH; rank++) {
            beam one = {.parent = b, .next = kvb_runner_best(r, first + b, rank)};
            one.score = beams[b].score + logits[one.next] - all;
            uint32_t at = found++;
            for (; at > 0 && one.score > to[at - 1].score; at--)
                to[at] = to[at - 1];
            to[at] = one;
        }
    }
    return found;
}

/* Makes the best continuations the beams, except those that have ended. Returns the number of beams. */
static uint32_t beams_choose(const beam *from, uint32_t n_from, uint32_t width, beam *beams)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_from && n < width; i++) {
        if (from[i].next < ENDS)
            width--;
        else
            beams[n++] = from[i];
    }
    return n;
}

static void play_beam(kvb_scene *scene)
{
    beam beams[WIDTH] = {{.score = 0}}, more[WIDTH * WIDTH];
    uint32_t ids[WIDTH], parents[WIDTH], n = WIDTH;
    int32_t tok[WIDTH];
    kvb_scene_prefill(scene, 0, PROMPT_NUMBER, 0, BEAM_PROMPT);
    n = beams_choose(more, beams_extend(scene, beams, 1, BEAM_PROMPT - 1, more), WIDTH, beams);
    for (uint32_t step = 0; step < BEAM_STEPS && n; step++) {
        for (uint32_t b = 0; b < WIDTH; b++) {
            ids[b] = b;
            parents[b] = b < n ? beams[b].parent : NEVER;
        }
        KVB_SCENE_DO(scene, REORDER, .dsts = ids, .srcs = parents, .n = WIDTH);
        for (uint32_t b = 0; b < n; b++) {
            tok[b] = beams[b].next;
            kvb_scene_say(scene, tok[b]);
        }
        kvb_scene_step(scene, KVB_EVENT_STEP, ids, tok, n);
        n = beams_choose(more, beams_extend(scene, beams, n, 0, more), n, beams);
    }
}

static void geometry(kvb_model_config *config)
{
    config->heads = 2;
    config->kv_heads = 1;
}

KVB_SCENARIO(beam_search, .name = "beam-search",
             .summary = "live model: beam search of width 4; beams swap, fork and die, finished ones leave; every "
                        "other layer has a window of 8",
             .cache = "seq", .needs = KVB_CACHE_SEQ | KVB_CACHE_REORDER, .geometry = geometry, .full_every = 2,
             .limits = {.window = WINDOW}, .capacity = 512, .seq_capacity = BEAM_PROMPT + BEAM_STEPS, .max_seqs = WIDTH,
             .play = play_beam);

/*
 * shared-prompt: conversations behind a system prompt that is kept apart. The sequence that fed the prompt ends before
 * the conversations are decoded. A conversation ends, and another begins behind the same prompt; one begins late, with
 * a longer beginning of another; one is cut back into the prompt and goes on differently. Conversations behind a second
 * prompt are decoded in passes of their own.
 */

enum {
    MAKER, /* a sequence that feeds the prompt, then ends; the id is used again */
    FIRST, /* three conversations behind it */
    CUT,
    LONGER,
    LATE,             /* begins with some tokens of LONGER */
    OTHER_MAKER,      /* feeds another prompt, and goes on beside … */
    OTHER,            /* … its copy */
    SYSTEM = 70,      /* tokens of the prompt; no multiple of 64 */
    SECOND = 21,      /* tokens of the second prompt */
    OWN = 4,          /* fewest tokens of a conversation's own prompt */
    SHARED_STEPS = 6, /* of decoding, each time */
    FURTHER = 7,      /* tokens behind the prompt that LATE shares */
    INTO = 3          /* tokens of the prompt that CUT drops */
};

/* Begins a conversation with `keep` tokens of another, which are copied, and n tokens of its own. */
static void join(kvb_scene *scene, const kvb_scene_seq *from, uint32_t keep, kvb_scene_seq *to, uint32_t id, uint32_t n)
{
    kvb_scene_fork(scene, from, to, id, keep);
    kvb_scene_prefill(scene, id, 10 + id, keep, n);
    to->length = keep + n;
    kvb_scene_choose(scene, to, n - 1);
}

/* Cuts a conversation back into the prompt, and goes on with other tokens. */
static void turn_back(kvb_scene *scene, kvb_scene_seq *seq)
{
    const uint32_t keep = SYSTEM - INTO;
    KVB_SCENE_DO(scene, SEQ_RM, .src = seq->id, .p0 = keep, .p1 = KVB_POS_END);
    kvb_scene_prefill(scene, seq->id, 20, keep, OWN);
    seq->length = keep + OWN;
    kvb_scene_choose(scene, seq, OWN - 1);
}

static void play_shared(kvb_scene *scene)
{
    kvb_scene_seq seq[OTHER + 1];
    kvb_scene_seq *first[] = {&seq[FIRST], &seq[CUT], &seq[LONGER]};
    kvb_scene_seq *then[] = {&seq[MAKER], &seq[CUT], &seq[LONGER], &seq[LATE]};
    kvb_scene_seq *others[] = {&seq[OTHER_MAKER], &seq[OTHER]};

    kvb_scene_begin(scene, &seq[MAKER], MAKER, MAKER, SYSTEM);
    for (uint32_t i = FIRST; i <= LONGER; i++)
        join(scene, &seq[MAKER], SYSTEM, &seq[i], i, OWN + i);
    kvb_scene_leave(scene, MAKER);
    kvb_scene_begin(scene, &seq[OTHER_MAKER], OTHER_MAKER, OTHER_MAKER, SECOND);
    join(scene, &seq[OTHER_MAKER], SECOND, &seq[OTHER], OTHER, OWN);
    kvb_scene_decode(scene, first, 3, SHARED_STEPS);
    kvb_scene_decode(scene, others, 2, SHARED_STEPS);
    join(scene, &seq[LONGER], SYSTEM + FURTHER, &seq[LATE], LATE, OWN);
    kvb_scene_leave(scene, FIRST);
    turn_back(scene, &seq[CUT]);
    join(scene, &seq[LATE], SYSTEM, &seq[MAKER], MAKER, OWN);
    kvb_scene_decode(scene, then, 4, SHARED_STEPS);
    kvb_scene_leave(scene, OTHER_MAKER);
    kvb_scene_decode(scene, &others[1], 1, SHARED_STEPS);
}

KVB_SCENARIO(
    shared_prompt, .name = "shared-prompt",
    .summary = "live model: conversations behind a frozen prompt whose maker ends; one begins late, one is cut into it",
    .cache = "shared-prefix", .needs = KVB_CACHE_SEQ, .layers = 1, .capacity = 400, .seq_capacity = 112, .max_seqs = 6,
    .rollback = 24, .play = play_shared);

/*
 * Prompts that begin alike, as servers get them. Each prompt is first offered to the cache, which may have rows of its
 * beginning.
 *
 * prefix-reuse          One request after the other, two at a time, behind one of two system prompts. Every third
 *                       continues the conversation before it, whose answer is part of its prompt; one has another extra
 *                       key.
 * paged-sharing         A prompt is forked in the middle of a page, each branch with a choice of its own; one is cut
 *                       back and forked again; later prompts begin as the trunk, and as a branch.
 * continuous-admission  Requests arrive while others are decoded: the shared beginning of a prompt is offered to the
 *                       cache, the rest is prefilled in steps with the others' decoding.
 */

enum { MOST = 128 };

/* The tokens of a sequence, prompt and generated. */
typedef struct text {
    kvb_scene_seq seq;
    int32_t tok[MOST];
    uint32_t n;
} text;

/* Appends n tokens of a seeded prompt. */
static void text_add(const kvb_scene *scene, text *t, uint32_t prompt, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        t->tok[t->n++] = kvb_scene_prompt(scene, prompt, i);
}

/* Prefills the whole text as a prompt; the cache may have rows of its beginning. */
static void text_admit(kvb_scene *scene, text *t, uint32_t id, uint64_t extra_key)
{
    t->seq = (kvb_scene_seq){.id = id, .length = t->n};
    KVB_SCENE_TRY(scene, &scene->runner, kvb_runner_prompt(&scene->runner, id, t->tok, t->n, extra_key));
    kvb_scene_choose(scene, &t->seq, t->n - 1);
}

/* Decodes, and appends the fed tokens to the texts. */
static void texts_decode(kvb_scene *scene, text *const *texts, uint32_t n, uint32_t steps)
{
    kvb_scene_seq *seqs[KVB_SCENE_SEQS];
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = &texts[i]->seq;
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i < n; i++)
            texts[i]->tok[texts[i]->n++] = texts[i]->seq.next;
        kvb_scene_decode(scene, seqs, n, 1);
    }
}

/* ---- prefix-reuse ------------------------------------------------------------------------------------------------ */

enum { TEXT_SYSTEM = 38, OTHER_SYSTEM = 21, TEXT_OWN = 5, TEXT_REQUESTS = 9, ANSWER = 6, TURN = 3 };

static void reuse_play(kvb_scene *scene)
{
    text texts[2], last = {.n = 0};
    for (uint32_t r = 0; r < TEXT_REQUESTS; r += 2) {
        text *both[2] = {&texts[0], &texts[1]};
        for (uint32_t i = 0; i < 2; i++) {
            text *t = both[i];
            t->n = 0;
            if ((r + i) % TURN == 2)
                *t = last;
            else
                text_add(scene, t, i, i ? OTHER_SYSTEM : TEXT_SYSTEM);
            text_add(scene, t, 10 + r + i, TEXT_OWN + i);
            text_admit(scene, t, i, r + i == TEXT_REQUESTS / 2 ? 7 : 0);
        }
        texts_decode(scene, both, 2, ANSWER);
        last = texts[0];
        for (uint32_t i = 0; i < 2; i++)
            kvb_scene_leave(scene, both[i]->seq.id);
    }
}

KVB_SCENARIO(
    prefix_reuse, .name = "prefix-reuse",
    .summary =
        "live model: 10 prompts behind two system prompts, some go on with a conversation, one under another key",
    .cache = "paged", .needs = KVB_CACHE_SEQ, .layers = 1, .capacity = 160, .seq_capacity = 128, .max_seqs = 2,
    .play = reuse_play);

/* ---- paged-sharing ----------------------------------------------------------------------------------------------- */

enum { TEXT_TRUNK = 37, TEXT_BRANCHES = 3, TEXT_STEPS = 7, BACK = 4, LATER = 4 };

static void sharing_play(kvb_scene *scene)
{
    text trunk = {.n = 0}, branch[TEXT_BRANCHES], later = {.n = 0};
    text *all[TEXT_BRANCHES] = {&branch[0], &branch[1], &branch[2]};
    text_add(scene, &trunk, 0, TEXT_TRUNK);
    text_admit(scene, &trunk, 0, 0);
    for (uint32_t b = 0; b < TEXT_BRANCHES; b++) {
        branch[b] = trunk;
        kvb_scene_fork(scene, &trunk.seq, &branch[b].seq, b + 1, TEXT_TRUNK);
        kvb_scene_choose_other(scene, &branch[b].seq, TEXT_TRUNK - 1, b);
    }
    texts_decode(scene, all, TEXT_BRANCHES, TEXT_STEPS);
    kvb_scene_leave(scene, trunk.seq.id);
    kvb_scene_backtrack(scene, &branch[1].seq, BACK);
    branch[1].n -= BACK;
    texts_decode(scene, all, TEXT_BRANCHES, TEXT_STEPS);
    text_add(scene, &later, 0, TEXT_TRUNK);
    text_add(scene, &later, 1, LATER);
    text_admit(scene, &later, 0, 0);
    kvb_scene_leave(scene, branch[2].seq.id);
    trunk = branch[0]; /* a prompt that continues a branch */
    text_add(scene, &trunk, 2, LATER);
    text_admit(scene, &trunk, 3, 0);
    text *rest[] = {&later, &branch[0], &branch[1], &trunk};
    texts_decode(scene, rest, 4, TEXT_STEPS);
}

KVB_SCENARIO(
    paged_sharing, .name = "paged-sharing",
    .summary = "live model: a trunk forked in mid-page, branches that write, a cut, later prompts that begin alike",
    .cache = "paged", .needs = KVB_CACHE_SEQ, .layers = 1, .capacity = 256, .seq_capacity = 96, .max_seqs = 4,
    .rollback = 8, .play = sharing_play);

/* ---- continuous-admission ---------------------------------------------------------------------------------------- */

enum { SHARED = 33, ARRIVALS = 6, AT_ONCE = 3, TEXT_CHUNK = 5, EACH = 2, SAYS = 5 };

static void admission_play(kvb_scene *scene)
{
    text texts[ARRIVALS];
    uint32_t running = 0, first = 0; /* texts first .. running-1 are decoded */
    for (uint32_t r = 0; r < ARRIVALS; r++) {
        text *t = &texts[r], *others[AT_ONCE];
        t->n = 0;
        text_add(scene, t, 0, SHARED);
        text_admit(scene, t, r % (AT_ONCE + 1), 0);
        for (uint32_t chunk = 0; chunk < EACH; chunk++) { /* the rest of its prompt beside the others' tokens */
            uint32_t ids[AT_ONCE + TEXT_CHUNK], n = 0;
            int32_t tok[AT_ONCE + TEXT_CHUNK];
            for (uint32_t i = first; i < running; i++) {
                ids[n] = texts[i].seq.id;
                tok[n++] = texts[i].tok[texts[i].n++] = texts[i].seq.next;
            }
            for (uint32_t i = 0; i < TEXT_CHUNK; i++) {
                ids[n] = t->seq.id;
                tok[n++] = t->tok[t->n++] = kvb_scene_prompt(scene, 10 + r, chunk * TEXT_CHUNK + i);
            }
            kvb_scene_step(scene, KVB_EVENT_STEP, ids, tok, n);
            for (uint32_t i = first; i < running; i++) {
                texts[i].seq.length++;
                kvb_scene_choose(scene, &texts[i].seq, i - first);
            }
            t->seq.length += TEXT_CHUNK;
            kvb_scene_choose(scene, &t->seq, n - 1);
        }
        running = r + 1;
        for (uint32_t i = first; i < running; i++)
            others[i - first] = &texts[i];
        texts_decode(scene, others, running - first, SAYS);
        if (running - first == AT_ONCE)
            kvb_scene_leave(scene, texts[first++].seq.id);
    }
}

KVB_SCENARIO(
    continuous_admission, .name = "continuous-admission",
    .summary =
        "live model: prompts that begin alike arrive, their rest is prefilled in steps beside the others' decoding",
    .cache = "paged", .needs = KVB_CACHE_SEQ, .layers = 1, .capacity = 256, .seq_capacity = 96, .max_seqs = 4,
    .play = admission_play);
