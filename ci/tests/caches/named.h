/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVB_TEST_NAMED_H
#define KVB_TEST_NAMED_H

#include "ci/tests/tests.h"
#include "caches/pools/pool.h"

/* The built-in pool of that name, plain or "+had". */
static inline const kvb_pool_type *pool_named(const char *name)
{
    for (const kvb_pool_type *const *pool = kvb_builtin_pools; *pool; pool++)
        for (const kvb_pool_type *form = *pool; form; form = form->rotated)
            if (!strcmp(form->name, name))
                return form;
    fail_msg("there is no pool '%s'", name);
    return NULL;
}

#endif
