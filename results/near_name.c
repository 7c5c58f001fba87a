/* SPDX-License-Identifier: Apache-2.0 */
#include "results/near_name.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PART_BYTES 64u /* how much of a name is compared */

uint32_t kvb_name_distance(const char *typed, const char *name)
{
    uint32_t row[PART_BYTES + 1];
    size_t n = strnlen(typed, PART_BYTES), m = strnlen(name, PART_BYTES);

    if (strcasestr(name, typed))
        return 0;
    for (uint32_t j = 0; j <= m; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            uint32_t change = corner + (tolower((unsigned char)typed[i - 1]) != tolower((unsigned char)name[j - 1]));
            uint32_t step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = change < step ? change : step;
        }
    }
    return row[m];
}

int kvb_name_unknown(const char *what, const char *typed, const char *known, char *why, size_t why_bytes)
{
    char nearest[PART_BYTES + 1] = "";
    size_t length = strlen(typed + strspn(typed, "-"));
    uint32_t least = (uint32_t)(length + 1) / 3 + 1; /* a name must be nearer */

    for (const char *at = known; length > 2 && *at && *at != ';'; at += strspn(at, ", ")) {
        char name[PART_BYTES + 1];
        size_t n = strcspn(at, ", ;");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (kvb_name_distance(typed, name) < least) {
            least = kvb_name_distance(typed, name);
            memcpy(nearest, name, sizeof nearest);
        }
        at += n;
    }
    snprintf(why, why_bytes, "%s '%s'; %s%s%sknown: %s", what, typed, *nearest ? "did you mean '" : "", nearest,
             *nearest ? "'? " : "", known);
    return -EINVAL;
}
