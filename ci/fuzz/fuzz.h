/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzing: a target does something with the bytes of one input. Whatever the bytes are, it must not crash, hang, leak or
 * do what is undefined (the sanitizers see to that), and it must be right (kvb_fuzz_wrong sees to that).
 *
 *   make fuzz T=60 TARGET=verbs   looks for new inputs with libFuzzer, from those of ci/fuzz/corpus/TARGET
 *   test_fuzz [TARGET FILE…]      does it with the inputs of all corpora, or with these files: no clang needed
 */
#ifndef KVB_FUZZ_H
#define KVB_FUZZ_H

#include <stddef.h>
#include <stdint.h>

typedef struct kvb_fuzz_target {
    const char *name; /* of its folder in ci/fuzz/corpus, too */
    void (*run)(const struct kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
    const char *file;         /* files.c: the name that the input gets; its ending may count */
    const char *const *lines; /* files.c: what is done with it, ending with NULL */
    int json;                 /* lines of the input are JSON: mutated as such, too */
} kvb_fuzz_target;

extern const kvb_fuzz_target kvb_fuzz_targets[];        /* ends with name NULL */
const kvb_fuzz_target *kvb_fuzz_find(const char *name); /* or NULL */

/* Says what is wrong on the process' own stderr and aborts. */
__attribute__((noreturn, format(printf, 1, 2))) void kvb_fuzz_wrong(const char *format, ...);

/* files.c: the input becomes a file, and command lines are run over it. */
void kvb_fuzz_files(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
/* files.c: the input is the words of one command line, a line each. */
void kvb_fuzz_words(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
/* verbs.c: the input is control calls of a cache. */
void kvb_fuzz_verbs(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
/* saved.c: a byte that chooses a cache, then the file of a saved one; its checksum is put right. */
void kvb_fuzz_saved(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);

#endif
