/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/commands/size_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/engine_kvbench.h"
#include "results/table.h"

/* Takes the pairs of built-in pools that were asked for, or all. */
static int pools_take(const kvb_size_verify_ask *ask, kvb_pool_pair *pools, size_t max, size_t *n, char *why,
                      size_t why_bytes)
{
    *n = 0;
    for (size_t i = 0; i < ask->pairs.n; i++) {
        const kvb_kv_pair *pair = &ask->pairs.at[i];
        kvb_pool_pair pool = {kvb_size_pool_find(pair->k->name), kvb_size_pool_find(pair->v->name)};

        if (!pool.k || !pool.v || *n == max) {
            snprintf(why, why_bytes, "--kv: kvbench has no pool of format %s to verify",
                     pool.k ? pair->v->name : pair->k->name);
            return -EINVAL;
        }
        pools[(*n)++] = pool;
    }
    if (ask->pairs.n)
        return 0;
    kvb_registry *registry = malloc(sizeof *registry);
    int error = registry ? 0 : -ENOMEM;

    if (!error) {
        kvb_registry_init(registry);
        error = kvb_pool_word_take("*", registry, pools, max, n, why, why_bytes);
    }
    for (const kvb_pool_alias *a = kvb_pool_aliases; !error && a->name && *a->name; a++)
        error = kvb_pool_word_take(a->name, registry, pools, max, n, why, why_bytes);
    free(registry);
    return error;
}

static const char *cache_name(const kvb_size_verified *v)
{
    return v->cache ? v->cache->name : NULL;
}

static void built_text(const kvb_size_verified *v, char text[32])
{
    snprintf(text, 32, "%u of %u", v->model.n_layers, v->layers);
}

/* Adds the verdicts of one model: for people only those that differ, for programs all. */
static int verdicts_add(const kvb_sized_model *model, const kvb_size_verdicts *verdicts, bool people, kvb_table *table)
{
    int error = 0;

    for (size_t i = 0; i < verdicts->n && !error; i++) {
        const kvb_size_verified *v = &verdicts->at[i];
        const kvb_cache_options *o = &v->options;
        char layers[2][24], numbers[4][24];
        const uint64_t of[4] = {v->cells, v->counted, v->allocated, v->whole};
        bool held = v->cache != NULL;

        if (people && v->verdict != KVB_SIZE_DIFFERS)
            continue;
        snprintf(layers[0], sizeof layers[0], "%u", v->model.n_layers);
        snprintf(layers[1], sizeof layers[1], "%u", v->layers);
        for (size_t k = 0; k < 4; k++)
            snprintf(numbers[k], sizeof numbers[k], "%" PRIu64, of[k]);
        error = kvb_table_row(table, (const char *const[]){
                                         model->name,
                                         held ? cache_name(v) : NULL,
                                         held ? o->k_pool->name : NULL,
                                         held ? o->v_pool->name : NULL,
                                         held ? kvb_growth_names[o->growth] : NULL,
                                         held ? layers[0] : NULL,
                                         held ? layers[1] : NULL,
                                         held ? numbers[0] : NULL,
                                         held ? numbers[1] : NULL,
                                         held ? numbers[2] : NULL,
                                         held ? numbers[3] : NULL,
                                         kvb_size_verdict_names[v->verdict],
                                         *v->why ? v->why : NULL,
                                     });
    }
    return error;
}

/* Adds a row for each cache and shape of layers. Its verdicts stand together. */
static int summary_add(const kvb_sized_model *model, const kvb_size_verdicts *verdicts, kvb_table *table)
{
    int error = 0;

    for (size_t i = 0, n; i < verdicts->n && !error; i += n) {
        const kvb_size_verified *v = &verdicts->at[i], *shown = v;
        size_t count[KVB_SIZE_VERDICTS] = {0};
        char numbers[KVB_SIZE_VERDICTS][24], layers[32], cells[24];
        const char *reason = "";

        for (n = 0; i + n < verdicts->n; n++) {
            const kvb_size_verified *w = &verdicts->at[i + n];

            if (n && (!v->cache || w->cache != v->cache))
                break;
            count[w->verdict]++;
            shown = w->cells > shown->cells ? w : shown;
            reason = *reason ? reason : w->why;
        }
        for (size_t k = 0; k < KVB_SIZE_VERDICTS; k++)
            snprintf(numbers[k], sizeof numbers[k], "%zu", count[k]);
        built_text(shown, layers);
        snprintf(cells, sizeof cells, "%" PRIu64, shown->cells);
        bool held = v->cache != NULL;

        error = kvb_table_row(table,
                              (const char *const[]){model->name, held ? cache_name(v) : "-", held ? layers : "",
                                                    held ? cells : "", numbers[KVB_SIZE_EQUAL],
                                                    numbers[KVB_SIZE_DIFFERS], numbers[KVB_SIZE_UNAVAILABLE], reason});
    }
    return error;
}

static int tables_print(const kvb_size_verify_ask *ask, const kvb_size_verdicts *verdicts, FILE *out)
{
    bool people = ask->format == KVB_TABLE_TEXT || ask->format == KVB_TABLE_MD;
    kvb_table *summary = kvb_table_new((const char *const[]){"model", "cache", ">layers built", ">cells", ">equal",
                                                             ">differs", ">unavailable", "note (the first)", NULL});
    kvb_table *all = kvb_table_new((const char *const[]){"model", "cache", "pool_k", "pool_v", "growth",
                                                         ">layers_built", ">layers", ">cells", ">counted", ">allocated",
                                                         ">counted_all_layers", "verdict", "reason", NULL});
    size_t differs = 0;
    int error = summary && all ? 0 : -ENOMEM;

    for (size_t i = 0; i < ask->n_models && !error; i++) {
        differs += verdicts[i].count[KVB_SIZE_DIFFERS];
        error = summary_add(ask->models[i], &verdicts[i], summary);
        if (!error)
            error = verdicts_add(ask->models[i], &verdicts[i], people, all);
    }
    if (!error && people)
        error = kvb_table_print(summary, ask->format, out);
    if (!error && people && differs)
        fputs("\nNot as counted:\n\n", out);
    if (!error && (!people || differs))
        error = kvb_table_print(all, ask->format, out);
    kvb_table_free(summary);
    kvb_table_free(all);
    return error;
}

int kvb_size_verify_print(const kvb_size_verify_ask *ask, FILE *out, size_t count[KVB_SIZE_VERDICTS], char *why,
                          size_t why_bytes)
{
    enum { POOLS = 256 };
    kvb_pool_pair pools[POOLS];
    kvb_size_asked asked = {.pools = pools};
    kvb_size_verdicts *verdicts = calloc(ask->n_models, sizeof *verdicts);
    int error = verdicts ? pools_take(ask, pools, POOLS, &asked.n_pools, why, why_bytes) : -ENOMEM;

    if (!error && (ask->context > UINT32_MAX || ask->sequences > UINT32_MAX)) {
        snprintf(why, why_bytes, "--verify takes contexts and sequences below 2^32");
        error = -EINVAL;
    }
    asked.context = (uint32_t)ask->context;
    asked.sequences = (uint32_t)ask->sequences;
    for (size_t i = 0; i < ask->n_models && !error; i++) {
        error = kvb_size_verify(ask->models[i], &asked, &verdicts[i], why, why_bytes);
        for (size_t k = 0; k < KVB_SIZE_VERDICTS; k++)
            count[k] += verdicts[i].count[k];
    }
    if (!error)
        error = tables_print(ask, verdicts, out);
    if (!error && (ask->format == KVB_TABLE_TEXT || ask->format == KVB_TABLE_MD))
        fprintf(out, "\n%zu equal, %zu differ, %zu unavailable\n", count[KVB_SIZE_EQUAL], count[KVB_SIZE_DIFFERS],
                count[KVB_SIZE_UNAVAILABLE]);
    for (size_t i = 0; verdicts && i < ask->n_models; i++)
        free(verdicts[i].at);
    free(verdicts);
    return error;
}
