/* SPDX-License-Identifier: Apache-2.0 */
/* Shows rule 10: a model is refused for whatever is wrong in it, in one line that names group and field. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/model.h"
#include "kernels/scan.h"

#define PLAIN .heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 0.125
#define WIDE  KVB_MODEL_WIDTH
#define SCAN(KIND, HEADS, GROUPS, ROWS, ...)                                                                           \
    .kind = KVB_GROUP_SCAN,                                                                                            \
    .scan = {.kind = KVB_SCAN_##KIND, .heads = HEADS, .groups = GROUPS, .d_k = ROWS, .d_v = __VA_ARGS__}

static const float well[8], infinite[8] = {[7] = INFINITY}, none[8] = {[0] = NAN};

/* Group 1 of three layers in two groups. why NULL: it is well. */
static const struct {
    kvb_group group;
    const char *why;
} groups[] = {
    {{PLAIN}, NULL},
    {{PLAIN, .window = 1, .sinks = UINT32_MAX, .softcap = 30, .sink_logits = well}, NULL},
    {{PLAIN, .window = UINT32_MAX}, NULL},
    {{PLAIN, .chunk = 1, .latent = true}, NULL},
    {{.heads = WIDE, .kv_heads = WIDE, .k_dim = WIDE, .v_dim = WIDE, .latent = true, .scale = FLT_MAX}, NULL},
    {{.heads = 1, .kv_heads = 1, .k_dim = 1, .v_dim = 1, .scale = FLT_MIN}, NULL},
    {{PLAIN, .rope = {.known = true, .first = 32, .dims = 32, .base = 1e4}}, NULL},
    {{PLAIN, .rope = {.known = true, .first = 33, .dims = 32, .base = 1e4}}, "group 1: rope turns 32 dims from 33 on"},
    {{PLAIN, .rope = {.known = true, .dims = 7, .base = 1e4}}, "group 1: rope turns 7 dims from 0 on"},
    {{PLAIN, .rope = {.known = true, .dims = 8}}, "group 1: rope's base is 0: expected a number above 0"},
    {{0}, "group 1: heads is 0: expected 1 .. 4096"},
    {{.heads = WIDE + 1, .kv_heads = 1, .k_dim = 64, .v_dim = 32, .scale = 1}, "group 1: heads is 4097"},
    {{.heads = 8, .kv_heads = 0, .k_dim = 64, .v_dim = 32, .scale = 1}, "group 1: kv_heads is 0"},
    {{.heads = 8, .kv_heads = WIDE + 1, .k_dim = 64, .v_dim = 32, .scale = 1}, "group 1: kv_heads is 4097"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 0, .v_dim = 32, .scale = 1}, "group 1: k_dim is 0"},
    {{.heads = 8, .kv_heads = 4, .k_dim = UINT32_MAX, .v_dim = 32, .scale = 1}, "group 1: k_dim is 4294967295"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 0, .scale = 1}, "group 1: v_dim is 0"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = WIDE + 1, .scale = 1}, "group 1: v_dim is 4097"},
    {{.heads = 6, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 1}, "6 heads are no multiple of 4 kv_heads"},
    {{.heads = 4, .kv_heads = 8, .k_dim = 64, .v_dim = 32, .scale = 1}, "4 heads are no multiple of 8 kv_heads"},
    {{.heads = 8, .kv_heads = 1, .k_dim = 64, .v_dim = 65, .latent = true, .scale = 1},
     "k_dim 64 cannot hold v_dim 65"},
    {{PLAIN, .window = 4, .chunk = 8}, "group 1: window 4 and chunk 8: expected one of them"},
    {{PLAIN, .sinks = 4}, "group 1: 4 sinks without a window"},
    {{PLAIN, .chunk = 8, .sinks = 4}, "group 1: 4 sinks without a window"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32}, "group 1: scale is 0"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = -1}, "group 1: scale is -1"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 1e39}, "group 1: scale is 1e+39"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 1e-40}, "group 1: scale is 1e-40"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = (double)NAN}, "scale is nan"},
    {{PLAIN, .softcap = -1}, "group 1: softcap is -1"},
    {{PLAIN, .softcap = INFINITY}, "group 1: softcap is inf"},
    {{PLAIN, .softcap = NAN}, "softcap is nan"},
    {{PLAIN, .sink_logits = infinite}, "group 1: sink logit 7 is no finite number"},
    {{PLAIN, .sink_logits = none}, "group 1: sink logit 0 is no finite number"},
    {{PLAIN, .kind = (kvb_group_kind)2}, "group 1: there is no kind of layers of number 2"},
    {{SCAN(MAMBA2, 8, 2, 16, 64)}, NULL},
    {{SCAN(DELTA, 8, 2, 16, 64, .conv_width = 2, .conv_channels = 65536, .state_elem = KVB_BF16, .conv_elem = KVB_F16)},
     NULL},
    {{SCAN(MAMBA1, 1, 1, 4096, 65536)}, NULL},
    {{.kind = KVB_GROUP_SCAN}, "group 1: heads is 0: expected 1 .. 4096"},
    {{SCAN(CONV, 8, 2, 16, 64)}, "group 1: there is no recurrence of number 4"},
    {{SCAN(KINDS, 8, 2, 16, 64)}, "group 1: there is no recurrence of number 5"},
    {{SCAN(MAMBA2, 8, 3, 16, 64)}, "group 1: 8 heads are no multiple of 3 groups"},
    {{SCAN(MAMBA2, 8, 2, 16, 8193)}, "group 1: heads x v_dim is 65544: expected 1 .. 65536"},
    {{SCAN(MAMBA1, 8, 2, 16, 64)}, "group 1: 8 heads: mamba1 has one"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .conv_width = 1, .conv_channels = 8)}, "convolution's width is 1"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .conv_width = 4)}, "convolution's channels is 0: expected 1 .. 65536"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .conv_channels = 4)}, "convolution's channels is 4: expected 0 .. 0"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .state_elem = KVB_E4M3)}, "group 1: states are f32, f16 or bf16"},
    {{PLAIN, SCAN(MAMBA2, 8, 2, 16, 64)}, "group 1: a recurrence attends nothing"},
};

static kvb_model model_of(const kvb_group *group)
{
    return (kvb_model){.n_layers = 3, .n_groups = 2, .group_of = {0, 1, 0}, .groups = {{PLAIN}, *group}};
}

/* The last byte of why is never passed, whatever its room. */
static void refused(const kvb_model *model, const char *what)
{
    for (size_t room = 1; room <= 160; room++) {
        char why[161];
        memset(why, '#', sizeof why);
        assert_int_equal(kvb_model_check(model, why, room), -EINVAL);
        assert_true(memchr(why, '\0', room) && why[room] == '#');
        assert_null(strchr(why, '\n'));
        if (room == 160 && !strstr(why, what))
            fail_msg("\"%s\" does not say \"%s\"", why, what);
    }
}

static void test_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const kvb_model model = model_of(&groups[i].group);
        char why[160] = "";
        if (groups[i].why)
            refused(&model, groups[i].why);
        else if (kvb_model_check(&model, why, sizeof why))
            fail_msg("group %zu: %s", i, why);
    }
}

static void test_layers(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_layers, n_groups;
        uint8_t second; /* group of layer 1 */
        const char *why;
    } cases[] = {
        {0, 2, 1, "0 layers in 2 groups: expected 1 .. 1024 and 1 .. 32"},
        {KVB_MODEL_LAYERS + 1, 2, 1, "1025 layers in 2 groups"},
        {3, 0, 1, "3 layers in 0 groups"},
        {3, KVB_MODEL_GROUPS + 1, 1, "3 layers in 33 groups"},
        {3, 2, 2, "layer 1 is in no group"},
        {3, 2, 255, "layer 1 is in no group"},
        {3, 2, 0, "group 1: no layers"},
        {1, 2, 1, "group 1: no layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_model model = model_of(&groups[0].group);
        model.n_layers = cases[i].n_layers;
        model.n_groups = cases[i].n_groups;
        model.group_of[1] = cases[i].second;
        refused(&model, cases[i].why);
    }
    kvb_model most = {.n_layers = KVB_MODEL_LAYERS, .n_groups = KVB_MODEL_GROUPS};
    char why[160] = "";
    for (uint32_t layer = 0; layer < KVB_MODEL_LAYERS; layer++)
        most.group_of[layer] = (uint8_t)(layer % KVB_MODEL_GROUPS);
    for (uint32_t g = 0; g < KVB_MODEL_GROUPS; g++)
        most.groups[g] = groups[0].group;
    assert_int_equal(kvb_model_check(&most, why, sizeof why), 0);
    assert_int_equal(kvb_model_layers_of(&most, 31), KVB_MODEL_LAYERS / KVB_MODEL_GROUPS);
    assert_ptr_equal(kvb_model_group(&most, 33), &most.groups[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_layers)};
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
