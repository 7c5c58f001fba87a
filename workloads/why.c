/* SPDX-License-Identifier: Apache-2.0 */
/* The one line that explains a failure: see why.h. */
#include "workloads/why.h"

#include <stdarg.h>
#include <stdio.h>

int kvb_why_set(int error, char *why, size_t why_bytes, const char *format, ...)
{
    if (!why || why_bytes == 0)
        return error;
    va_list args;
    va_start(args, format);
    vsnprintf(why, why_bytes, format, args);
    va_end(args);
    for (char *c = why; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return error;
}
