/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that the sum of thousands of equal weights does not drift: coarse K formats make such rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "kernels/softmax.h"

enum { CELLS = 16384 };

static void equal_weights_add_up(void **state)
{
    static float s[CELLS];
    (void)state;
    for (int i = 1; i < 40; i++) {
        float score = -0.173f * (float)i;
        for (int c = 0; c < CELLS; c++)
            s[c] = score;
        float sum = kvb_weights(s, CELLS, 0.0f, 1.0f);
        double want = 1 + CELLS * (double)expf(score);
        if (fabs((double)sum / want - 1) > 0x1p-23)
            fail_msg("score %g: sum %.9g, want %.9g", (double)score, (double)sum, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_weights_add_up)};
    return cmocka_run_group_tests_name("softmax", tests, NULL, NULL);
}
