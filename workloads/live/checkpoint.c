/* SPDX-License-Identifier: Apache-2.0 */
/* Weights from and to safetensors. */
#include "workloads/live/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/safetensors.h"

/* config.json in the directory of path; NULL without memory. */
static char *config_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t directory = slash ? (size_t)(slash - path) + 1 : 0, bytes = directory + sizeof "config.json";
    char *config = malloc(bytes);
    if (config)
        snprintf(config, bytes, "%.*sconfig.json", (int)directory, path);
    return config;
}

/* Old checkpoints carry a table that follows from rope_theta. */
static bool is_redundant(const char *name)
{
    static const char suffix[] = ".rotary_emb.inv_freq";
    size_t n = strlen(name);
    return n >= sizeof suffix - 1 && !strcmp(name + n - (sizeof suffix - 1), suffix);
}

/* A tensor that the model does not know would be arithmetic left out. */
static int refuse_unknown(const kvb_safetensors *file, const kvb_weights *weights, const char *path, char *why,
                          size_t why_bytes)
{
    kvb_weight weight;
    size_t known = 0;
    while (kvb_weights_at(weights, known, &weight))
        known++;
    for (size_t i = 0; i < kvb_safetensors_count(file); i++) {
        const char *name = kvb_safetensors_at(file, i)->name;
        /* some writers store the tied lm head all the same */
        bool found = is_redundant(name) || (weights->config.tied && !strcmp(name, "lm_head.weight"));
        for (size_t k = 0; !found && k < known && kvb_weights_at(weights, k, &weight); k++)
            found = !strcmp(name, weight.name);
        if (!found) {
            snprintf(why, why_bytes, "%s: tensor '%s': the live model has no such part", path, name);
            return -EINVAL;
        }
    }
    return 0;
}

static int load_tensors(const kvb_safetensors *file, const char *path, kvb_weights *weights, char *why,
                        size_t why_bytes)
{
    int err = refuse_unknown(file, weights, path, why, why_bytes);
    kvb_weight weight;
    for (size_t i = 0; !err && kvb_weights_at(weights, i, &weight); i++)
        err = kvb_safetensors_read_f32(file, weight.name, weight.shape, weight.n_dims, weight.data, why, why_bytes);
    return err;
}

int kvb_weights_load(const char *path, const char *config_path, kvb_weights **weights, char *why, size_t why_bytes)
{
    char *beside = config_path ? NULL : config_beside(path);
    kvb_safetensors *file = NULL;
    kvb_model_config config;
    kvb_weights *w = NULL;
    int err = -ENOMEM;
    if (!config_path && !beside) {
        snprintf(why, why_bytes, "no memory");
        goto out;
    }
    err = kvb_safetensors_open(path, &file, why, why_bytes);
    if (err)
        goto out;
    err = kvb_model_config_load(config_path ? config_path : beside, &config, why, why_bytes);
    if (err)
        goto out;
    config.qk_norm = kvb_safetensors_find(file, "model.layers.0.self_attn.q_norm.weight") != NULL;
    err = kvb_weights_open(&config, &w, why, why_bytes);
    if (!err)
        err = load_tensors(file, path, w, why, why_bytes);
out:
    if (err) {
        kvb_weights_close(w);
        w = NULL;
    }
    *weights = w;
    kvb_safetensors_close(file);
    free(beside);
    return err;
}

int kvb_weights_save(const kvb_weights *weights, const char *path, char *why, size_t why_bytes)
{
    kvb_weight weight;
    size_t n = 0;
    while (kvb_weights_at(weights, n, &weight))
        n++;
    kvb_tensor *tensors = calloc(n, sizeof *tensors);
    kvb_weight *list = calloc(n, sizeof *list);
    char *config = config_beside(path);
    int err = -ENOMEM;
    if (!tensors || !list || !config) {
        snprintf(why, why_bytes, "%s: no memory", path);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        kvb_weights_at(weights, i, &list[i]);
        tensors[i] = (kvb_tensor){.name = list[i].name,
                                  .dtype = KVB_TENSOR_F32,
                                  .n_dims = list[i].n_dims,
                                  .shape = {list[i].shape[0], list[i].shape[1]},
                                  .data = list[i].data,
                                  .bytes = list[i].n * sizeof(float)};
    }
    err = kvb_safetensors_write(path, tensors, n, NULL, why, why_bytes);
    if (!err)
        err = kvb_model_config_save(config, &weights->config, why, why_bytes);
out:
    free(config);
    free(list);
    free(tensors);
    return err;
}
