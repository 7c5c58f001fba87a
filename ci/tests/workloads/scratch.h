/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of workloads/: headers of short traces as text. */
#ifndef KVB_TEST_SCRATCH_H
#define KVB_TEST_SCRATCH_H

#include "ci/tests/tests.h"

#define HEADER_MODEL                                                                                                   \
    "\"model\":{\"kv_cache.schema_version\":1,\"kv_cache.layers\":2,\"kv_cache.heads\":4,\"kv_cache.kv_heads\":2,"     \
    "\"kv_cache.k_dim\":16,\"kv_cache.v_dim\":16}"
/* HEADER_ROPE: layers with different RoPE. HEADER_GROUPS: a window with sinks and sink logits; latent rows with a
 * softcap; chunks. */
#define HEADER_ROPE                                                                                                    \
    "{\"kvbench_trace\":2,\"name\":\"n\",\"source\":\"s\",\"model\":{\"kv_cache.schema_version\":2,"                   \
    "\"kv_cache.layers\":3,\"groups\":["                                                                               \
    "{\"layers\":[0],\"heads\":2,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":16,"                                            \
    "\"rope\":{\"base\":10000,\"dims\":8,\"pairing\":\"halves\"}},"                                                    \
    "{\"layers\":[1],\"heads\":2,\"kv_heads\":1,\"k_dim\":16,\"v_dim\":12,\"latent\":true,"                            \
    "\"rope\":{\"base\":5e5,\"dims\":4,\"pairing\":\"neighbours\"}},"                                                  \
    "{\"layers\":[2],\"heads\":2,\"kv_heads\":1,\"k_dim\":16,\"v_dim\":16,\"rope\":{\"dims\":0}}]},"                   \
    "\"values\":{\"profile\":\"llama\",\"seed\":1}}\n"
#define HEADER_GROUPS                                                                                                  \
    "{\"kvbench_trace\":2,\"name\":\"t\",\"source\":\"hand\",\"model\":{\"kv_cache.schema_version\":2,"                \
    "\"kv_cache.layers\":4,\"groups\":["                                                                               \
    "{\"layers\":[0,2],\"heads\":4,\"kv_heads\":2,\"k_dim\":16,\"v_dim\":24,\"window\":8,\"sinks\":1,"                 \
    "\"sink_logits\":[0,0.5,1,2]},"                                                                                    \
    "{\"layers\":[1],\"heads\":4,\"kv_heads\":1,\"k_dim\":48,\"v_dim\":32,\"latent\":true,\"scale\":0.2,\"softcap\":"  \
    "30},"                                                                                                             \
    "{\"layers\":[3],\"heads\":3,\"kv_heads\":3,\"k_dim\":16,\"v_dim\":16,\"chunk\":4}]},"                             \
    "\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n"
/* With a capacity. */
#define HEADER_OF(cells)                                                                                               \
    "{\"kvbench_trace\":1,\"name\":\"t\",\"source\":\"hand\",\"capacity\":" #cells "," HEADER_MODEL                    \
    ",\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n"
#define HEADER                                                                                                         \
    "{\"kvbench_trace\":1,\"name\":\"t\",\"source\":\"hand\"," HEADER_MODEL                                            \
    ",\"values\":{\"profile\":\"gaussian\",\"seed\":1}}\n"

#endif
