/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the example plug-in builds by its own Makefile from attend.h alone, loads, and computes attention. */
#include "ci/tests/kernels/fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static char folder[256];
static void *object;
static const kvb_kernel *online;

static int command_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int command_run(const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return system(line);
}

/* A stranger's repository: their source, the Makefile, and the one header, elsewhere. */
static int plugin_build(void **state)
{
    const char *tmp = getenv("TMPDIR");
    char path[300];
    (void)state;

    snprintf(folder, sizeof folder, "%s/kvb_plugin_XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    if (command_run("mkdir '%s/include' && cp kernels/attend.h '%s/include' && "
                    "cp kernels/example-plugin/Makefile kernels/example-plugin/online.c '%s' && "
                    "env -u MAKEFLAGS -u MFLAGS make -s -C '%s' KVB_INCLUDE=include",
                    folder, folder, folder, folder))
        return -1;
    snprintf(path, sizeof path, "%s/online.so", folder);
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        print_error("%s\n", dlerror());
    return object ? 0 : -1;
}

static int plugin_remove(void **state)
{
    (void)state;
    if (object)
        dlclose(object);
    return command_run("rm -r '%s'", folder);
}

static void exports_one_list(void **state)
{
    const kvb_plugin_v1 *plugin = dlsym(object, KVB_PLUGIN_SYMBOL);
    (void)state;

    assert_non_null(plugin);
    assert_int_equal(plugin->abi_version, KVB_ABI_VERSION);
    assert_null(plugin->caches);
    assert_null(plugin->pools);
    online = plugin->kernels[0];
    assert_string_equal(online->name, "online");
    assert_null(plugin->kernels[1]);
}

static void computes_attention(void **state)
{
    (void)state;
    assert_non_null(online);
    for (uint32_t i = 0; i < 160; i++) {
        struct shape s = {.n_tok = 1 + i % 5,
                          .n_kv_heads = 2,
                          .group = 1 + i % 3,
                          .k_dim = i % 2 ? 20 : 64,
                          .v_dim = i % 3 ? 16 : 24,
                          .n_cells = 5 + i * 2,
                          .mask = (kvb_mask_kind)(i % KVB_MASK_KINDS),
                          .softcap = i / 4 % 2 ? 2.0f : 0.0f,
                          .sinks = i / 8 % 2,
                          .any_order = i / 32 % 2,
                          .empty = 3,
                          .threads = 1 + i % 3,
                          .seed = i};
        shape_check(online, &s);
    }
}

static void declines_what_it_cannot_read(void **state)
{
    char why[80] = "";
    kvb_problem p = {.k_format = &test_formats[KVB_F16], .v_format = &test_formats[KVB_F32]};
    (void)state;
    assert_non_null(online);
    assert_false(online->supports(&p, why, sizeof why));
    assert_non_null(strstr(why, "f32"));
    kvb_format turned = {.name = "f32+had", .elem = KVB_F32, .transform = KVB_TRANSFORM_HADAMARD};
    p.k_format = &test_formats[KVB_F32];
    assert_true(online->supports(&p, why, sizeof why));
    p.v_format = &turned;
    assert_false(online->supports(&p, why, sizeof why));
    p.k_format = &turned;
    p.v_format = &test_formats[KVB_F32];
    assert_false(online->supports(&p, why, sizeof why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_one_list),
        cmocka_unit_test(computes_attention),
        cmocka_unit_test(declines_what_it_cannot_read),
    };
    return cmocka_run_group_tests_name("example plug-in", tests, plugin_build, plugin_remove);
}
