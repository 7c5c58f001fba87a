/* SPDX-License-Identifier: Apache-2.0 */
/* Student's distribution for whole degrees of freedom, and the sign test's binomial one. */
#include "results/student.h"

#include <math.h>

/* P(|T| > t): Abramowitz, Stegun, Handbook of Mathematical Functions, 1964, 26.7.3 and 26.7.4. */
static double student_tail(double t, uint32_t freedom)
{
    double angle = atan(t / sqrt(freedom)), c = cos(angle), sum = 0, term = freedom % 2 ? c : 1;

    for (uint32_t k = freedom % 2 ? 1 : 0; k + 2 <= freedom; k += 2) {
        sum += term;
        term *= c * c * (k + 1) / (k + 2);
    }
    sum *= sin(angle);
    return 1 - (freedom % 2 ? (angle + sum) / acos(0) : sum);
}

double kvb_student_quantile(double tail, uint32_t freedom)
{
    double low = 0, high = 1e9;

    for (int i = 0; i < 200 && high - low > 1e-10 * high; i++) {
        double t = (low + high) / 2;

        if ((freedom > 200 ? erfc(t / sqrt(2)) : student_tail(t, freedom)) > tail)
            low = t;
        else
            high = t;
    }
    return (low + high) / 2;
}

size_t kvb_sign_rank(size_t n, double tail)
{
    double term = pow(0.5, (double)n), below = term; /* P(exactly k), P(at most k) of n fair coins */
    size_t k = 0;

    while (k < n / 2 && 2 * below <= tail) {
        term *= (double)(n - k) / (double)(k + 1);
        below += term;
        k++;
    }
    return k;
}
