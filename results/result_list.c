/* SPDX-License-Identifier: Apache-2.0 */
/* An array that doubles. */
#include "results/result_list.h"

#include <errno.h>
#include <stdlib.h>

int kvb_results_add(kvb_results *results, const kvb_result *result)
{
    if (results->n == results->room) {
        size_t room = results->room ? 2 * results->room : 64;
        kvb_result *grown = realloc(results->at, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        results->at = grown;
        results->room = room;
    }
    results->at[results->n++] = *result;
    return 0;
}
