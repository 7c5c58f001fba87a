/* SPDX-License-Identifier: Apache-2.0 */
/* Known differences of llama.cpp from its own contract: a history that shows them, their builds, and what to do. A
 * history belongs to the first row that fits. */
#include "harness/engine/engine.h"

#include <string.h>

#define NOW UINT32_MAX

const kvb_engine_known kvb_engine_known_rows[] = {
    {"whole-state-split", "llama latent windows", "split", false, "", KVB_ENGINE_POSITIONS, "save all,load all", 6,
     "d 0 1 1 1; save all; load all", 0, 10361, "fixed upstream",
     "v0.4.0; with several sequences the first ones are empty after it", "use v0.4.0 or later, or save each sequence"},
    {"restore-empty", "llama latent windows", "", false, "", KVB_ENGINE_POSITIONS, "save,load", 4,
     "save 1; d 0 2; load 0", 0, NOW, "not reported",
     "llama.h: set_data copies the sequence's data into the destination",
     "remove the destination (llama_memory_seq_rm) before an empty state is restored into it"},
    {"restore-empty-state", "hybrid delta", "", false, "", KVB_ENGINE_POSITIONS, "save,load", 4,
     "save 1; d 0 2; load 0", 7347, NOW, "not reported", "rows stay and states go, so pos_min is above pos_max",
     "remove the destination before an empty state is restored into it"},
    {"restore-empty-crash", "hybrid delta", "", false, "", KVB_ENGINE_DIES, "save,load", 4, "save 1; d 0 2; load 0", 0,
     6301, "fixed upstream", "signal 11, by b7347", "use b7347 or later"},
    {"keep-split", "", "split", false, "", KVB_ENGINE_POSITIONS, "keep", 4, "d 0 1; d 1 1; keep 0", 0, NOW,
     "not reported", "llama.h: seq_keep removes all tokens that do not belong to the sequence",
     "remove the other sequences one by one"},
    {"copy-then-save", "", "split", false, "", KVB_ENGINE_LOGITS, "cp,save,load,d", 10,
     "d 0 1; cp 0 1; save 1; load 2; d 2 1", 0, NOW, "not reported",
     "the copy is queued until the next decode; what is saved or restored before it meets other rows",
     "decode a token of any sequence between a copy and a save or load"},
    {"shift-then-save", "llama latent", "", false, "", KVB_ENGINE_LOGITS, "add,save,load,d", 10,
     "d 0 40; rm 0 0 8; add 0 8 end -8; save 0; load 1; d 1 1", 0, NOW, "not reported",
     "positions are saved as shifted, rows of K before they are turned", "decode a token between a shift and a save"},
    {"rollback-then-fork", "hybrid delta", "", true, "", KVB_ENGINE_LOGITS, "rm,cp,d", 6,
     "d 0 2; rm 0 1 end; cp 0 1; d 1 1", 0, NOW, "not reported",
     "the copy gets the newest state, not the one that was rolled back to",
     "decode a token of the sequence between a rollback and a fork"},
    {"fork-then-rollback", "hybrid delta", "", true, "", KVB_ENGINE_POSITIONS, "cp,rm", 6,
     "d 0 1; d 0 1; cp 0 1; rm 0 1 end", 0, NOW, "not reported",
     "copies share the state, and a rollback of one is one of both", "decode a token of each sequence after a fork"},
    {"rollback-behind-forks", "hybrid delta", "", true, "", KVB_ENGINE_LOGITS, "cp,d,rm,d", 6,
     "d 0 2; cp 0 1; cp 1 2; d 2 1; rm 2 2 end; d 2 1", 0, NOW, "not reported",
     "the first decode behind a fork keeps no state to go back to", "do not roll back the first decode behind a fork"},
    {"batch-then-rollback", "hybrid delta", "", true, "", KVB_ENGINE_LOGITS, "d,rm,d", 6,
     "d 1 1; d 0 2 1 1 2 1; rm 0 1 end; d 0 1", 0, NOW, "not reported",
     "after a batch of sequences of unlike lengths a rollback finds another state",
     "decode what may be rolled back in a batch of its own"},
    {"shift-of-shared-state", "hybrid", "unified", false, "", KVB_ENGINE_POSITIONS, "cp,d,add", 6,
     "d 0 1; add 0 0 end 2; cp 0 1; d 1 1; add 1 0 end -2", 0, NOW, "not reported",
     "forks share rows but no longer states, and a shift moves what it finds",
     "do not shift forks of models with states"},
    {"shift-of-copied-state", "hybrid", "split", false, "", KVB_ENGINE_POSITIONS, "cp,add", 6,
     "d 0 1; cp 0 1; add 1 0 end 1", 0, NOW, "not reported",
     "copies share the state: a shift moves it for both, and the rows of one",
     "do not shift forks of models with states"},
    {"batch-with-gap", "hybrid", "split", false, "", KVB_ENGINE_DIES, "d", 4, "d 0 1 2 1", 0, 6301, "fixed upstream",
     "an assertion where a batch has sequences that do not follow one another, by b7347", "use b7347 or later"},
    {"shift-asserts", "delta", "", false, "", KVB_ENGINE_DIES, "add", 6, "d 0 1; add 0 0 end 1", 0, 8121,
     "fixed upstream", "can_shift says yes and seq_add asserts where rotations have sections, by b8390",
     "use b8390 or later"},
    {"middle-of-state", "hybrid delta", "", false, "", KVB_ENGINE_RETURNS, "rm", 4, "d 0 30; rm 0 4 12", 7347, NOW,
     "by a change upstream", "issue 17009; llama.h: seq_rm returns false if a part cannot be removed",
     "do not remove what is not the end"},
    {"windows-forget", "windows", "", false, "", KVB_ENGINE_POSITIONS, "rm", 8, "d 0 170; d 0 170; d 0 170; rm 0 1 end",
     0, NOW, "open upstream", "issue 29045", "compare pos_min with what is needed before a rollback, or set swa_full"},
    {"windows-forget-copies", "windows", "", false, "", KVB_ENGINE_POSITIONS, "cp", 8,
     "d 0 170; d 0 170; d 0 170; cp 0 1 0 1", 0, NOW, "open upstream", "issue 29045",
     "compare pos_min with what is copied, or set swa_full"},
    {"window-planned-ahead", "windows-deep", "unified", false, "", KVB_ENGINE_LOGITS, "cp,d", 8,
     "d 0 1; cp 0 1; d 1 256", 0, NOW, "not reported",
     "a batch is planned before it is computed: its first tokens do not see shared ones that its last ones drop from "
     "the window",
     "decode a shared sequence's prompt in batches that fit the free cells of the window's cache, or set swa_full"},
    {"quantised-shift", "llama-96 latent", "", false, "q8_0 q4_0", KVB_ENGINE_DIES, "add,d", 6,
     "d 0 40; rm 0 4 12; add 0 12 end -8; d 0 1", 8391, NOW, "open upstream", "issue 25636",
     "shift caches of quantised K only where a head's size is a multiple of 64"},
    {0},
};

/* Does the name begin with one of the words, or are there none? */
static bool begins(const char *words, const char *name)
{
    for (const char *at = words; *at;) {
        const size_t n = strcspn(at, " ");
        if (n && !strncmp(at, name, n))
            return true;
        at += n + (at[n] == ' ');
    }
    return !*words;
}

bool kvb_engine_known_fits(const kvb_engine_known *row, const kvb_engine_facts *facts, const kvb_engine_config *config)
{
    return (!row->rolls || facts->depth) && (!*config->family || begins(row->families, config->family)) &&
           begins(row->kv, config->kv) && (!*row->caches || !strcmp(row->caches, config->split ? "split" : "unified"));
}

bool kvb_engine_known_signed(const kvb_engine_known *row, const kvb_engine_history *history)
{
    static kvb_engine_history one = {.n = 1};
    const char *at = row->signature;
    for (uint32_t i = 0; i < history->n && *at; i++) {
        char call[128];
        one.at[0] = history->at[i];
        kvb_engine_history_print(&one, call, sizeof call);
        const size_t n = strcspn(at, ",");
        if (strncmp(call, at, n) != 0)
            continue;
        at += n + (at[n] == ',');
    }
    return !*at;
}

const kvb_engine_known *kvb_engine_known_find(const kvb_engine_facts *facts, const kvb_engine_config *config,
                                              const kvb_engine_history *history, kvb_engine_kind kind)
{
    for (const kvb_engine_known *k = kvb_engine_known_rows; k->name; k++)
        if (k->kind == kind && history->n <= k->most && facts->number >= k->first && facts->number <= k->last &&
            kvb_engine_known_fits(k, facts, config) && kvb_engine_known_signed(k, history))
            return k;
    return NULL;
}
