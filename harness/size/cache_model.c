/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of layers, from what a model's configuration says to what caches are opened with. */
#include "harness/size/cache_model.h"
#include "kernels/scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/size/arguments.h"

static bool has_rows(const kvb_sized_group *g)
{
    return g->kind != KVB_SIZED_STATE && g->kind != KVB_SIZED_NONE && g->n > 0;
}

/* Recurrences that kernels/scan.h knows, by the names that sizing has for them. */
static const struct {
    const char *name;
    kvb_scan_kind kind;
} scans[] = {{"Mamba-1", KVB_SCAN_MAMBA1},
             {"Mamba-2", KVB_SCAN_MAMBA2},
             {"gated DeltaNet", KVB_SCAN_DELTA},
             {"lightning attention", KVB_SCAN_LIGHTNING}};
enum { SCANS = sizeof scans / sizeof *scans };

static size_t scan_of(const kvb_sized_group *g)
{
    size_t i = 0;
    while (i < SCANS && strcmp(scans[i].name, g->name) != 0)
        i++;
    return i;
}

/* Is it kept by a cache of kvbench? */
static bool is_held(const kvb_sized_group *g)
{
    return has_rows(g) || (g->kind == KVB_SIZED_STATE && g->n > 0 && scan_of(g) < SCANS);
}

static kvb_group state_of(const kvb_sized_group *g, kvb_elem elem)
{
    const uint32_t width = g->conv_width;
    return (kvb_group){.kind = KVB_GROUP_SCAN,
                       .scan = {.kind = scans[scan_of(g)].kind,
                                .heads = g->state_heads,
                                .groups = g->state_groups,
                                .d_k = g->state_k,
                                .d_v = g->state_v,
                                .conv_width = width,
                                .conv_channels = width > 1 ? (uint32_t)(g->conv_elements / (width - 1)) : 0,
                                .silu = width > 0,
                                .state_elem = g->state_f32 ? KVB_F32 : elem,
                                .conv_elem = elem}};
}

static kvb_group group_of(const kvb_sized_group *g)
{
    bool latent = g->kind == KVB_SIZED_LATENT;
    kvb_group group = {
        .kv_heads = latent ? 1 : g->kv_heads,
        .k_dim = latent ? g->latent_dim + g->rope_dim : g->k_dim,
        .v_dim = latent ? g->latent_dim : g->v_dim,
        .latent = latent,
        .window = g->kind == KVB_SIZED_WINDOW ? g->window : 0,
        .sinks = g->kind == KVB_SIZED_WINDOW ? g->sinks : 0,
        .chunk = g->kind == KVB_SIZED_CHUNK ? g->window : 0,
        .scale = 1,
    };
    group.heads = group.kv_heads && g->heads && g->heads % group.kv_heads == 0 ? g->heads : group.kv_heads;
    return group;
}

/* Heads that only ask do not matter to what is kept. */
static bool same_rows(const kvb_group *a, const kvb_group *b)
{
    const kvb_group_scan *s = &a->scan, *t = &b->scan;
    if (kvb_group_scans(a) != kvb_group_scans(b) || s->kind != t->kind || s->heads != t->heads || s->d_k != t->d_k ||
        s->d_v != t->d_v || s->conv_width != t->conv_width || s->conv_channels != t->conv_channels ||
        s->state_elem != t->state_elem || s->conv_elem != t->conv_elem)
        return false;
    return a->kv_heads == b->kv_heads && a->k_dim == b->k_dim && a->v_dim == b->v_dim && a->latent == b->latent &&
           a->window == b->window && a->sinks == b->sinks && a->chunk == b->chunk;
}

/* n layers of the group join the model: false where it does not hold so many, or so many groups. */
static bool layers_add(kvb_model *model, const kvb_group *group, uint32_t n)
{
    uint32_t at = 0;
    while (at < model->n_groups && !same_rows(&model->groups[at], group))
        at++;
    if (at == KVB_MODEL_GROUPS || n > KVB_MODEL_LAYERS - model->n_layers)
        return false;
    if (at == model->n_groups)
        model->groups[model->n_groups++] = *group;
    for (uint32_t i = 0; i < n; i++)
        model->group_of[model->n_layers++] = (uint8_t)at;
    return true;
}

int kvb_size_cache_model(const kvb_sized_model *sized, uint64_t context, const char *state, kvb_model *model, char *why,
                         size_t why_bytes)
{
    const kvb_elem elem = state && !strcmp(state, "bf16")  ? KVB_BF16
                          : state && !strcmp(state, "f16") ? KVB_F16
                                                           : KVB_F32;
    *model = (kvb_model){0};
    for (size_t i = 0; i < sized->n_groups; i++) {
        if (!is_held(&sized->groups[i]))
            continue;
        kvb_group group = has_rows(&sized->groups[i]) ? group_of(&sized->groups[i]) : state_of(&sized->groups[i], elem);
        if (kvb_sized_grows(sized, &sized->groups[i], context))
            group.window = group.sinks = group.chunk = 0;
        if (layers_add(model, &group, sized->groups[i].n))
            continue;
        snprintf(why, why_bytes, "more than %u layers or %u kinds of layers", KVB_MODEL_LAYERS, KVB_MODEL_GROUPS);
        return -ENOTSUP;
    }
    if (model->n_layers)
        return kvb_model_check(model, why, why_bytes) ? -ENOTSUP : 0;
    snprintf(why, why_bytes, "no layer keeps rows or states");
    return -ENOTSUP;
}

void kvb_size_few_layers(const kvb_model *model, uint32_t most, kvb_model *few)
{
    *few = (kvb_model){0};
    for (uint32_t g = 0; g < model->n_groups; g++) {
        uint32_t n = kvb_model_layers_of(model, g);
        layers_add(few, &model->groups[g], n < most ? n : most);
    }
}

/* ---- configs from files, folders and standard input -------------------------------------------------------------- */

enum { MOST = 16 << 20 }; /* bytes of a config: the longest are a few hundred thousand */

/* All of file, at most MOST bytes; *text is to be freed. 0 or a negative errno. */
static int all_read(FILE *file, char **text, size_t *n)
{
    char *grown;

    *text = NULL;
    *n = 0;
    for (size_t room = 4096;; room *= 2) {
        if (!(grown = realloc(*text, room)))
            return -ENOMEM;
        *text = grown;
        *n += fread(*text + *n, 1, room - *n, file);
        if (*n < room)
            return ferror(file) ? -EIO : 0;
        if (room > MOST)
            return -EFBIG;
    }
}

static int file_open(FILE *file, const char *name, kvb_sized_model **model, char *why, size_t why_bytes)
{
    char *text;
    size_t n;
    int error = all_read(file, &text, &n);

    if (error)
        snprintf(why, why_bytes, "%s: %s", name, strerror(-error));
    else if (n == 0) {
        snprintf(why, why_bytes, "%s: is empty, expected a config.json", name);
        error = -EINVAL;
    } else
        error = kvb_sized_model_read(text, n, name, model, why, why_bytes);
    free(text);
    return error;
}

/* Does the word look like a path rather than a model's name? */
static bool is_path(const char *word)
{
    size_t n = strlen(word);

    return word[0] == '/' || word[0] == '.' || (n > 5 && strcmp(word + n - 5, ".json") == 0);
}

int kvb_size_open(const char *word, kvb_sized_model **model, char *why, size_t why_bytes)
{
    struct stat info;
    char path[4096];

    if (strcmp(word, "-") == 0)
        return file_open(stdin, "stdin", model, why, why_bytes);
    if (stat(word, &info) && !is_path(word))
        return kvb_sized_model_built_in(word, model, why, why_bytes);
    snprintf(path, sizeof path, stat(word, &info) == 0 && S_ISDIR(info.st_mode) ? "%s/config.json" : "%s", word);
    FILE *file = fopen(path, "r");

    if (!file) {
        int error = errno;

        snprintf(why, why_bytes, "%s: %s", path, strerror(error));
        return -error;
    }
    int error = file_open(file, path, model, why, why_bytes);

    fclose(file);
    return error;
}

int kvb_size_shape(const char *name, kvb_sized_model **sized, kvb_model *shape, char *why, size_t why_bytes)
{
    kvb_model model;
    int error = kvb_size_open(name, sized, why, why_bytes);
    error = error ? error : kvb_size_cache_model(*sized, 1 << 20, NULL, &model, why, why_bytes);
    if (!error)
        kvb_size_few_layers(&model, 1, shape);
    return error;
}

const char *kvb_size_label(const kvb_sized_model *sized)
{
    const char *slash = sized ? strrchr(sized->name, '/') : NULL;
    return slash ? slash + 1 : sized ? sized->name : NULL;
}

const char *kvb_size_not_held(const kvb_sized_model *model, size_t at, char *text, size_t bytes)
{
    for (size_t i = 0; i < model->n_groups; i++) {
        const kvb_sized_group *g = &model->groups[i];
        bool parts[] = {g->kind == KVB_SIZED_STATE && !is_held(g), has_rows(g) && g->index_dim > 0};
        const char *const lacks[] = {"that recurrence", "the keys of an indexer"};
        for (size_t p = 0; p < 2; p++) {
            if (!parts[p] || at-- > 0)
                continue;
            snprintf(text, bytes, "%u layers of %s: no cache for %s", g->n, g->name, lacks[p]);
            return text;
        }
    }
    return NULL;
}
