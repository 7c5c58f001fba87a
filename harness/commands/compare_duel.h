/* SPDX-License-Identifier: Apache-2.0 */
/* `kvbench compare` with two builds of a plug-in or of kvbench instead of two result files: it runs them. */
#ifndef KVB_COMPARE_DUEL_H
#define KVB_COMPARE_DUEL_H

#include "harness/duel/plugins.h"
#include "harness/knobs.h"
#include "harness/selection/selection.h"

typedef struct kvb_duel_words {
    const char *plugin[KVB_DUEL_SIDES], *program[KVB_DUEL_SIDES];
    uint64_t rounds;
    /* as in `kvbench run` */
    const char *suite, *cpu_mask;
    kvb_selection_words words;
    kvb_knobs knobs;
} kvb_duel_words;

/* Rows for the option table of a command. Its struct `type` has a kvb_duel_words member, named by `at` as in "duel.".
 */
#define KVB_DUEL_OPTIONS(type, at)                                                                                     \
    {"--base-plugin", "F.so", "the old build of a plug-in; its combinations are run with both builds in turns",        \
     KVB_TEXT(type, at plugin[KVB_DUEL_BASE])},                                                                        \
        {"--new-plugin", "F.so", "the new build", KVB_TEXT(type, at plugin[KVB_DUEL_NEW])},                            \
        {"--base-program", "KVBENCH", "an old build of kvbench; whole runs of both builds in turns",                   \
         KVB_TEXT(type, at program[KVB_DUEL_BASE])},                                                                   \
        {"--new-program", "KVBENCH", "the new build", KVB_TEXT(type, at program[KVB_DUEL_NEW])},                       \
        {"--rounds", "N", "of runs of two programs, 4 to 64; default 10", KVB_NUMBER(type, at rounds, 4, KVB_SERIES)}, \
        KVB_DUEL_RUN_OPTIONS(type, at)

/* Those of them that are passed on to programs, because `kvbench run` has them too. */
#define KVB_DUEL_RUN_OPTIONS(type, at)                                                                                 \
    {"--suite", "NAME", "of plug-ins or programs: what to run, as of `kvbench run`; default quick",                    \
     KVB_TEXT(type, at suite)},                                                                                        \
        {"--workload", "GLOB|FILE", "likewise; repeatable", KVB_WORDS(type, at words.workloads)},                      \
        {"--cache", "GLOB", "likewise; repeatable", KVB_WORDS(type, at words.caches)},                                 \
        {"--pool", "GLOB|k=K,v=V", "likewise; repeatable", KVB_WORDS(type, at words.pools)},                           \
        {"--kernel", "GLOB", "likewise; repeatable", KVB_WORDS(type, at words.kernels)},                               \
        {"--threads", "N[,N...]", "likewise", KVB_WORDS(type, at words.threads)},                                      \
        {"--values", "PROFILE", "likewise; repeatable", KVB_WORDS(type, at words.values)},                             \
        {"--cpu-mask", "LEVEL", "likewise", KVB_TEXT(type, at cpu_mask)},                                              \
        {"--workloads", "FOLDER", "likewise", KVB_TEXT(type, at knobs.workloads)},                                     \
        {"--seed", "N", "likewise", KVB_NUMBER(type, at knobs.seed, 0, UINT64_MAX)},                                   \
        {"--timeout", "SECONDS", "for one combination; default 120", KVB_NUMBER(type, at knobs.timeout, 1, 86400)},    \
    {                                                                                                                  \
        "--deterministic", NULL, "as of `kvbench run`", KVB_FLAG(type, at knobs.deterministic)                         \
    }

/* Are there two builds to run? */
bool kvb_duel_is_asked(const kvb_duel_words *words);

/* Runs both sides. Returns -1 with the results of each, which the caller frees and compares as paired; or an exit code,
 * after saying on stderr what went wrong. */
int kvb_duel_run(const kvb_duel_words *words, kvb_results *base, kvb_results *new);

void kvb_duel_words_free(kvb_duel_words *words);

#endif
