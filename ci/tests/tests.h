/* SPDX-License-Identifier: Apache-2.0 */
/* What every test program includes: cmocka, with the headers that it needs, and those of C that most tests use. */
#ifndef KVB_TESTS_H
#define KVB_TESTS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Most tests have no state. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Runs T(test), … as a group, between `setup` and `teardown` or without these; what main() returns. */
#define T(test)              cmocka_unit_test(test)
#define TESTS_RUN(name, ...) TESTS_RUN_IN(name, NULL, NULL, __VA_ARGS__)
#define TESTS_RUN_IN(name, setup, teardown, ...)                                                                       \
    cmocka_run_group_tests_name(name, ((const struct CMUnitTest[]){__VA_ARGS__}), setup, teardown)

#endif
