/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of workloads/: a folder for temporary files, and headers of short traces as text. */
#ifndef KVB_TEST_SCRATCH_H
#define KVB_TEST_SCRATCH_H

#include <dirent.h>

#include "ci/tests/tests.h"

#include <stdbool.h>
#include <unistd.h>

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

static char scratch_folder[256];

static inline int scratch_setup(void **state)
{
    tests_folder(scratch_folder, sizeof scratch_folder);
    return 0;
}

/* Removes the folder; fails if a test left a *.tmp file in it. */
static inline int scratch_teardown(void **state)
{
    int left = 0;
    DIR *folder = opendir(scratch_folder);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[600];
        size_t n = strlen(entry->d_name);
        if (n > 4 && strcmp(entry->d_name + n - 4, ".tmp") == 0) {
            print_error("left behind: %s\n", entry->d_name);
            left = -1;
        }
        snprintf(path, sizeof path, "%s/%s", scratch_folder, entry->d_name);
        unlink(path);
    }
    if (folder)
        closedir(folder);
    return rmdir(scratch_folder) ? -1 : left;
}

/* Path of a file in the folder, valid until the eighth call after this one. */
static inline const char *scratch_path(const char *name)
{
    static char paths[8][400];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, 400, "%s/%s", scratch_folder, name);
    return path;
}

static inline const char *scratch_write(const char *name, const void *bytes, size_t n)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *scratch_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

static inline void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

#endif
