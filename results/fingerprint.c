/* SPDX-License-Identifier: Apache-2.0 */
/* Machines told apart by what their manifests say. */
#include "results/fingerprint.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define MODEL_BYTES 48u /* of the processor's name, at most */

/* FNV-1a, 32 bits; the final 0 is hashed too, so that texts cannot run together. */
static uint32_t hash_add(uint32_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    } while (*text++);
    return hash;
}

void kvb_fingerprint(const kvb_manifest *m, char text[KVB_FINGERPRINT_TEXT])
{
    char model[MODEL_BYTES + 1], size[40];
    size_t n = 0;

    for (const char *c = m->cpu_model; *c && n < MODEL_BYTES; c++) {
        if (isalnum((unsigned char)*c))
            model[n++] = (char)tolower((unsigned char)*c);
        else if (n > 0 && model[n - 1] != '-')
            model[n++] = '-';
    }
    while (n > 0 && model[n - 1] == '-')
        n--;
    model[n] = '\0';
    /* the system keeps a part of the memory, not always as much: rounded */
    snprintf(size, sizeof size, "%uc-%" PRIu64 "g", m->cores, (m->memory_bytes + (UINT64_C(1) << 29)) >> 30);
    uint32_t hash = hash_add(hash_add(hash_add(2166136261u, m->cpu_model), m->cpu_features), size);
    snprintf(text, KVB_FINGERPRINT_TEXT, "%s%s%s-%08" PRIx32, model, n ? "-" : "", size, hash);
}

size_t kvb_manifest_notes(const kvb_manifest *base, const kvb_manifest *new, char notes[KVB_NOTES][KVB_NOTE_TEXT])
{
    char machine[2][KVB_FINGERPRINT_TEXT], seed[2][24], blas_threads[2][16];
    const kvb_manifest *const sides[2] = {base, new};

    for (int i = 0; i < 2; i++) {
        kvb_fingerprint(sides[i], machine[i]);
        snprintf(seed[i], sizeof seed[i], "%" PRIu64, sides[i]->seed);
        snprintf(blas_threads[i], sizeof blas_threads[i], "%u", sides[i]->openblas_threads);
    }
    const struct {
        const char *what, *base, *new;
    } facts[] = {
        {"machine", machine[0], machine[1]},
        {"level of instructions", base->isa, new->isa},
        {"version", base->version, new->version},
        {"commit", base->commit, new->commit},
        {"compiler", base->compiler, new->compiler},
        {"flags", base->flags, new->flags},
        {"operating system", base->os, new->os},
        {"OpenBLAS", base->openblas_version, new->openblas_version},
        {"OpenBLAS core", base->openblas_core, new->openblas_core},
        {"OpenBLAS threads", blas_threads[0], blas_threads[1]},
        {"suite", base->suite, new->suite},
        {"seed", seed[0], seed[1]},
    };
    size_t n = 0;

    _Static_assert(sizeof facts / sizeof *facts <= KVB_NOTES, "a place for every fact");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (strcmp(facts[i].base, facts[i].new) != 0)
            snprintf(notes[n++], KVB_NOTE_TEXT, "%s: %s, then %s", facts[i].what, facts[i].base, facts[i].new);
    return n;
}
