/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzing: a target runs code over the bytes of one input. No input may make it crash, hang, leak or behave in an
 * undefined way (the sanitizers check this), or give a wrong answer (the target checks this: kvb_fuzz_wrong()).
 *
 *   make fuzz T=60 TARGET=verbs   looks for new inputs with libFuzzer, from those of ci/fuzz/corpus/TARGET
 *   test_fuzz [TARGET FILE…]      runs the inputs of all corpora, or these files; needs no clang
 */
#ifndef KVB_FUZZ_H
#define KVB_FUZZ_H

#include <stddef.h>
#include <stdint.h>

typedef struct kvb_fuzz_target {
    const char *name; /* also the name of its folder in ci/fuzz/corpus */
    void (*run)(const struct kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
    const char *file;         /* files.c: file name of the input; some readers look at its ending */
    const char *const *lines; /* files.c: command lines to run over the file; ends with NULL */
    int json;                 /* lines of the input are JSON: the mutator also changes their values */
} kvb_fuzz_target;

extern const kvb_fuzz_target kvb_fuzz_targets[];        /* ends with name NULL */
const kvb_fuzz_target *kvb_fuzz_find(const char *name); /* or NULL */

/* Writes what is wrong to file descriptor 2, whatever `stderr` is, and aborts. */
__attribute__((noreturn, format(printf, 1, 2))) void kvb_fuzz_wrong(const char *format, ...);

/* files.c: the input becomes a file; runs command lines over it. */
void kvb_fuzz_files(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
/* files.c: the input is the words of one command line, a line each. */
void kvb_fuzz_words(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
/* verbs.c: the input is control calls of a cache. */
void kvb_fuzz_verbs(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);
/* saved.c: the input is a byte that chooses a cache, then the file of a saved cache, whose checksum is corrected. */
void kvb_fuzz_saved(const kvb_fuzz_target *target, const uint8_t *bytes, size_t n);

#endif
