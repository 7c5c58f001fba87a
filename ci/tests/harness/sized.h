/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the models that tests of sizing use: a built-in one by name, or one from a config.json that the test writes. A
 * failure stops the test. */
#ifndef KVB_TEST_SIZED_H
#define KVB_TEST_SIZED_H

#include <jansson.h>

#include "ci/tests/tests.h"
#include "harness/size/sizing.h"

static char why[512];

static inline kvb_sized_model *built_in(const char *name)
{
    kvb_sized_model *model;

    if (kvb_sized_model_built_in(name, &model, why, sizeof why))
        fail_msg("%s", why);
    return model;
}

static inline kvb_sized_model *read_json(const char *name, const json_t *config)
{
    kvb_sized_model *model;
    char *text = json_dumps(config, 0);

    if (kvb_sized_model_read(text, strlen(text), NULL, name, &model, why, sizeof why))
        fail_msg("%s", why);
    free(text);
    return model;
}

/* JSON with single quotes. */
static inline json_t *unquoted(const char *text)
{
    char *copy = strdup(text);

    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(copy, JSON_DECODE_ANY, NULL);
    if (!json)
        fail_msg("no JSON: %s", text);
    free(copy);
    return json;
}

/* The model of a config in single quotes. */
static inline kvb_sized_model *read_text(const char *config)
{
    json_t *json = unquoted(config);
    kvb_sized_model *model = read_json("F", json);

    json_decref(json);
    return model;
}

static inline kvb_size_ask ask_of(uint64_t context, uint64_t sequences, const char *kv)
{
    const kvb_kv_format *format = kvb_kv_format_find(kv);

    assert_non_null(format);
    return (kvb_size_ask){.context = context, .sequences = sequences, .k = format, .v = format, .tp = 1, .pp = 1};
}

#endif
