/* SPDX-License-Identifier: Apache-2.0 */
/* Every test program includes this: cmocka with the headers that it needs, and the C headers that most tests use. */
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

/* Runs T(test), … as a group, with TESTS_RUN_IN() between `setup` and `teardown`. main() returns the result. */
#define T(test)              cmocka_unit_test(test)
#define TESTS_RUN(name, ...) TESTS_RUN_IN(name, NULL, NULL, __VA_ARGS__)
#define TESTS_RUN_IN(name, setup, teardown, ...)                                                                       \
    cmocka_run_group_tests_name(name, ((const struct CMUnitTest[]){__VA_ARGS__}), setup, teardown)

#endif
