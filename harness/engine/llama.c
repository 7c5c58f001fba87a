/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama.cpp as an engine, from its built libraries. No header of llama.cpp is used: functions are found by name, and
 * its parameter structs are passed as blocks of 512 bytes, larger than any of them, of which the library uses only its
 * part. The offsets of fields are found from the defaults that the library returns. Its getters, the size of a saved
 * state and its log confirm them. A layout with an unexpected word is refused, with the offset of the first such word.
 */
#include "harness/engine/engine.h"
#include "oracle/codec.h"
#include "workloads/files.h"

#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what is assumed --------------------------------------------------------------------------------------------- */

typedef struct blob {
    _Alignas(16) unsigned char bytes[512];
} blob;

typedef struct batch {
    int32_t n_tokens;
    int32_t *token;
    float *embd;
    int32_t *pos, *n_seq_id, **seq_id;
    int8_t *logits;
} batch;

typedef kvb_llama_tensor tensor;
typedef void *handle; /* a model, a context, its memory, a vocabulary */

typedef struct api {
    void (*backend_init)(void), (*log_set)(void (*log)(int, const char *, void *), void *);
    blob (*model_default_params)(void), (*context_default_params)(void);
    handle (*model_load_from_file)(const char *path, blob params);
    handle (*init_from_model)(handle model, blob params);
    void (*free)(handle context);
    handle (*model_get_vocab)(handle model), (*get_memory)(handle context);
    int32_t (*vocab_n_tokens)(handle vocab), (*model_n_layer)(handle model), (*model_n_swa)(handle model);
    bool (*model_is_recurrent)(handle model), (*model_is_hybrid)(handle model);
    uint32_t (*n_ctx)(handle), (*n_batch)(handle), (*n_ubatch)(handle), (*n_seq_max)(handle), (*n_rs_seq)(handle);
    int32_t (*n_threads)(handle);
    int32_t (*decode)(handle context, batch tokens);
    float *(*get_logits_ith)(handle context, int32_t i);
    void (*memory_clear)(handle memory, bool data);
    bool (*memory_seq_rm)(handle memory, int32_t seq, int32_t p0, int32_t p1);
    void (*memory_seq_cp)(handle memory, int32_t from, int32_t to, int32_t p0, int32_t p1);
    void (*memory_seq_keep)(handle memory, int32_t seq);
    void (*memory_seq_add)(handle memory, int32_t seq, int32_t p0, int32_t p1, int32_t delta);
    int32_t (*memory_seq_pos_min)(handle memory, int32_t seq), (*memory_seq_pos_max)(handle memory, int32_t seq);
    bool (*memory_can_shift)(handle memory);
    size_t (*state_get_size)(handle), (*state_get_data)(handle, uint8_t *to, size_t bytes),
        (*state_set_data)(handle, const uint8_t *from, size_t bytes);
    size_t (*state_seq_get_size)(handle, int32_t seq), (*state_seq_get_data)(handle, uint8_t *, size_t, int32_t seq),
        (*state_seq_set_data)(handle, const uint8_t *, size_t, int32_t seq);
    /* ggml's */
    void (*backend_load_all_from_path)(const char *folder);
    const char *(*version)(void), *(*op_desc)(const void *tensor), *(*get_name)(const void *tensor);
    void *(*get_data)(const void *tensor);
} api;

/* The functions of `api`, in the order of its members. "?": the library may lack it. */
static const char functions[] =
    "llama_backend_init llama_log_set llama_model_default_params llama_context_default_params "
    "llama_model_load_from_file llama_init_from_model llama_free llama_model_get_vocab llama_get_memory "
    "llama_vocab_n_tokens llama_model_n_layer ?llama_model_n_swa ?llama_model_is_recurrent ?llama_model_is_hybrid "
    "llama_n_ctx llama_n_batch llama_n_ubatch llama_n_seq_max ?llama_n_rs_seq llama_n_threads llama_decode "
    "llama_get_logits_ith llama_memory_clear llama_memory_seq_rm llama_memory_seq_cp llama_memory_seq_keep "
    "llama_memory_seq_add llama_memory_seq_pos_min llama_memory_seq_pos_max llama_memory_can_shift "
    "llama_state_get_size llama_state_get_data llama_state_set_data llama_state_seq_get_size "
    "llama_state_seq_get_data llama_state_seq_set_data ?ggml_backend_load_all_from_path ?ggml_version ?ggml_op_desc "
    "?ggml_get_name "
    "?ggml_get_data ";

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8 };
static const struct {
    const char *name;
    uint32_t type;
    bool quantised;
} formats[] = {{"f32", F32, false}, {"f16", F16, false}, {"q8_0", Q8_0, true}, {"q4_0", Q4_0, true}};

/* Offsets of fields in the parameters of a context; 0: no such field. */
typedef struct layout {
    uint32_t rollback, threads, flash, watch, type_k, full, unified;
    uint32_t flash_bytes;
} layout;
static const char *const layout_names[] = {"rollback", "threads", "flash", "watch", "type_k", "full", "unified"};
enum { LAYOUT_NAMES = sizeof layout_names / sizeof *layout_names };

#define WATCH_TOKENS 8192u /* most tokens of a session between two clears; beyond them cells are not named */

/* Which token each cell of a session holds; from `first` on, what the session's last decode has shown. */
typedef struct watch {
    bool split; /* each sequence has its own stream of cells */
    bool named; /* the token of each cell is known; false: visible cells are only counted */
    struct {
        uint32_t seq;
        int32_t pos;
    } tokens[WATCH_TOKENS]; /* in the order of decoding */
    uint32_t n_tokens;
    /* [stream][stream_cells]: a token's index plus 1; 0: nothing was stored */
    uint32_t cells[KVB_ENGINE_SEQS * KVB_SHADOW_TOKENS], stream_cells;

    char first[64], cache[64]; /* name of the first attention node, and of the tensor that holds K */
    uint32_t n, rows[KVB_SHADOW_TOKENS], n_stored; /* tokens; row of a mask -> token of the decode */
    bool is_stored[KVB_SHADOW_TOKENS];
    uint32_t shown[KVB_SHADOW_TOKENS], n_shown; /* visible cells of each row */
    uint32_t *seen, n_seen, room;               /* the tokens in these cells, row after row, numbered as in `cells` */
    void *query, *mask;                         /* copies of the node's inputs, until its output is computed */
    uint32_t nodes;                             /* nodes with compared outputs */
    double error;                               /* largest error of these outputs */
    char said[200];

    kvb_llama_take *take; /* gets all nodes instead of the watch; NULL: none */
    void *taker;
} watch;

/* ---- the library: one in a process ------------------------------------------------------------------------------- */

static struct {
    void *object;
    api api;
    layout layout;
    char path[PATH_MAX], build[64];
    uint32_t number;
    char log[1 << 15]; /* the library's log since log_forget(), as far as it fits */
    size_t log_used;
    char error[160]; /* the last line that reports an error */
    watch watch;
} lib;

static void log_keep(int level, const char *text, void *ctx)
{
    (void)ctx;
    const size_t n = strlen(text);
    if (lib.log_used + n < sizeof lib.log) {
        memcpy(lib.log + lib.log_used, text, n + 1);
        lib.log_used += n;
    }
    if (level == 4 && n > 1)
        snprintf(lib.error, sizeof lib.error, "%.*s", (int)strcspn(text, "\n"), text);
}

static void log_forget(void)
{
    lib.log_used = 0;
    lib.log[0] = lib.error[0] = '\0';
}

/* Does the last line about `name` have "name = value" with one of the two values? */
static bool log_says(const char *name, const char *value, const char *or_value)
{
    const char *last = NULL;
    for (const char *at = lib.log; (at = strstr(at, name)); at += strlen(name))
        if (strspn(at + strlen(name), " ") && at[strlen(name) + strspn(at + strlen(name), " ")] == '=')
            last = strchr(at, '=');
    if (!last)
        return false;
    last += 1 + strspn(last + 1, " ");
    const size_t n = strcspn(last, " \n");
    return (n == strlen(value) && !strncmp(last, value, n)) || (n == strlen(or_value) && !strncmp(last, or_value, n));
}

/* Finds libllama.so, libllama.v0.5.0.so or libllama.b7347.so.0 in the folder `where`; a file is taken itself. */
static int library_find(const char *where, char path[PATH_MAX], char *why, size_t why_bytes)
{
    struct stat s;
    DIR *folder = NULL;
    snprintf(path, PATH_MAX, "%s", where);
    if (!stat(where, &s) && !S_ISDIR(s.st_mode))
        return 0;
    folder = opendir(where);
    snprintf(why, why_bytes, "%s: %s", where, folder ? "holds no libllama*.so" : strerror(errno));
    *path = '\0';
    for (struct dirent *e; folder && !*path && (e = readdir(folder));)
        if (!strncmp(e->d_name, "libllama.", 9) && strstr(e->d_name + 8, ".so"))
            snprintf(path, PATH_MAX, "%s/%s", where, e->d_name);
    if (folder)
        closedir(folder);
    return *path ? 0 : -ENOENT;
}

/* Takes the build from the file's name: b7347, v0.5.0. Versions are newer than all numbered builds. */
static void build_find(void)
{
    const char *file = strrchr(lib.path, '/') ? strrchr(lib.path, '/') + 1 : lib.path;
    unsigned major, minor, patch, build;
    lib.number = UINT32_MAX;
    if (sscanf(file, "libllama.v%u.%u.%u.so", &major, &minor, &patch) == 3) {
        lib.number = 1000000 + (major * 100 + minor) * 100 + patch;
        snprintf(lib.build, sizeof lib.build, "llama.cpp v%u.%u.%u", major, minor, patch);
    } else if (sscanf(file, "libllama.b%u.so", &build) == 1) {
        lib.number = build;
        snprintf(lib.build, sizeof lib.build, "llama.cpp b%u", build);
    } else {
        snprintf(lib.build, sizeof lib.build, "llama.cpp with ggml %.20s", lib.api.version ? lib.api.version() : "?");
    }
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static uint32_t word_at(const blob *b, size_t at)
{
    uint32_t word;
    memcpy(&word, b->bytes + at, sizeof word);
    return word;
}

static void word_set(blob *b, size_t at, uint32_t word)
{
    memcpy(b->bytes + at, &word, sizeof word);
}

#define UNEXPECTED(at, what)                                                                                           \
    return snprintf(why, why_bytes,                                                                                    \
                    "%s: the parameters of a context are not understood: the word at %u is %#x, not %s", lib.build,    \
                    (unsigned)(at), word_at(&d, at), what),                                                            \
           -ENOTSUP

static int layout_find(layout *l, char *why, size_t why_bytes)
{
    static const uint32_t first[] = {512, 2048, 512, 1};
    static const char *const names[] = {"512 (n_ctx)", "2048 (n_batch)", "512 (n_ubatch)", "1 (n_seq_max)"};
    static const unsigned char late[] = {0, 1, 1, 1, 1, 0}, early[] = {0, 1, 0, 1, 1, 1, 0};
    const blob d = lib.api.context_default_params();
    for (uint32_t i = 0; i < 4; i++)
        if (word_at(&d, 4 * i) != first[i])
            UNEXPECTED(4 * i, names[i]);
    uint32_t at = 16;
    while (at < 32 && (word_at(&d, at) != word_at(&d, at + 4) || !word_at(&d, at) || word_at(&d, at) > 1024))
        at += 4;
    if (at == 32)
        UNEXPECTED(16, "n_threads, twice, nor the four behind it");
    l->threads = at;
    l->rollback = at > 16 ? 16 : 0;
    at += 8;
    at += word_at(&d, at) ? 0 : 4; /* ctx_type */
    uint32_t minus = 0;
    while (word_at(&d, at + 4 * minus) == UINT32_MAX)
        minus++;
    if (minus < 3 || minus > 4)
        UNEXPECTED(at, "the first of three or four words of -1 (types of rope, pooling, attention, flash attention)");
    l->flash = minus == 4 ? at + 12 : 0;
    l->flash_bytes = 4;
    at += 4 * minus + 4 * 6;
    while (at < 96 && word_at(&d, at) != 0xbf800000u)
        at += 4;
    if (at == 96)
        UNEXPECTED(at, "-1.0 (defrag_thold)");
    l->watch = (at + 4 + 7) / 8 * 8;
    l->type_k = l->watch + 16;
    if (word_at(&d, l->type_k) != F16 || word_at(&d, l->type_k + 4) != F16)
        UNEXPECTED(l->type_k, "1 (type_k, f16), with type_v behind it");
    at = l->type_k + 24;
    const bool is_late = l->flash != 0;
    if (memcmp(d.bytes + at, is_late ? late : early, is_late ? sizeof late : sizeof early) != 0)
        UNEXPECTED(at, "embeddings off, offload_kqv on, and the switches behind them");
    l->unified = at + (is_late ? 5 : 6);
    l->full = l->unified - 1;
    if (!is_late) {
        l->flash = at + 2;
        l->flash_bytes = 1;
    }
    return 0;
}

/* Overrides found offsets by those of NAME=OFFSET,…. */
static int layout_say(layout *l, const char *text, char *why, size_t why_bytes)
{
    for (const char *at = text; at && *at;) {
        char name[16];
        unsigned offset;
        int used = 0;
        size_t i = 0;
        if (sscanf(at, "%15[a-z_]=%u%n", name, &offset, &used) < 2 || offset > 500)
            name[0] = '\0';
        while (i < LAYOUT_NAMES && strcmp(name, layout_names[i]))
            i++;
        if (i == LAYOUT_NAMES || (at[used] && at[used] != ','))
            return kvb_why_set(-EINVAL, why, why_bytes,
                               "--layout: '%s' is no NAME=OFFSET,… with NAME of rollback, threads, flash, watch, "
                               "type_k, full, unified",
                               at);
        ((uint32_t *)(void *)l)[i] = offset; /* the members lie in the order of the names */
        at += used + (at[used] == ',');
    }
    return 0;
}

static int library_open(const kvb_engine_config *config, char *why, size_t why_bytes)
{
    if (lib.object)
        return 0;
    int error = library_find(config->lib, lib.path, why, why_bytes);
    if (error)
        return error;
    setenv("GGML_NO_BACKTRACE", "1", 1);
    void *object = dlopen(lib.path, RTLD_LAZY | RTLD_LOCAL);
    if (!object)
        return kvb_why_set(-ENOENT, why, why_bytes, "%s", dlerror());
    size_t member = 0;
    for (const char *at = functions; *at; member++) {
        char name[64];
        const bool needed = *at != '?';
        at += !needed;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
        at += strlen(name) + 1;
        void *found = dlsym(object, name);
        memcpy((char *)&lib.api + member * sizeof found, &found, sizeof found);
        if (!found && needed)
            return kvb_why_set(-ENOENT, why, why_bytes, "%s lacks %s", lib.path, name);
    }
    assert(member * sizeof(void *) == sizeof lib.api);
    build_find();
    lib.api.log_set(log_keep, NULL);
    log_forget();
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", lib.path);
    if (strrchr(folder, '/'))
        *strrchr(folder, '/') = '\0';
    if (lib.api.backend_load_all_from_path)
        lib.api.backend_load_all_from_path(folder);
    lib.api.backend_init();
    error = layout_find(&lib.layout, why, why_bytes);
    error = error && config->layout ? 0 : error; /* context_open() still verifies it */
    error = error ? error : layout_say(&lib.layout, config->layout, why, why_bytes);
    lib.object = error ? NULL : object;
    return error;
}

void kvb_llama_show(kvb_llama_take *take, void *taker)
{
    lib.watch.take = take;
    lib.watch.taker = taker;
}

/* ---- the evaluation callback -------------------------------------------------------------------------------------- */

/*
 * llama.cpp's evaluation callback: checks the attention nodes of one decode. The cells that the mask shows to each
 * token are compared with the shadow, in integers. The node's output is compared with double arithmetic over its own
 * inputs. If both are right and the logits are wrong, attention got wrong rows. The indices that store K tell which
 * token lies in a cell. If there are none (restored cells, models with a state), visible cells are only counted.
 */

const char *kvb_llama_operation(const kvb_llama_tensor *t)
{
    return lib.api.op_desc(t);
}

#define LIMIT 4e-3 /* of an output's error: q and sums in f16 cause at most 1e-3 */

enum { I64 = 27 };

double kvb_llama_element(const tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    const char *at = (const char *)t->data + (size_t)i0 * t->nb[0] + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2] +
                     (size_t)i3 * t->nb[3];
    uint16_t bits;
    float value;
    if (t->type == KVB_LLAMA_F32) {
        memcpy(&value, at, sizeof value);
        return (double)value;
    }
    memcpy(&bits, at, sizeof bits);
    return kvb_codec_value(KVB_F16, bits);
}

float kvb_llama_parameter(const tensor *t, int i)
{
    float value;
    memcpy(&value, &t->op_params[i], sizeof value);
    return value;
}

bool kvb_llama_is_plain(const tensor *t)
{
    return t && (t->type == KVB_LLAMA_F32 || t->type == KVB_LLAMA_F16);
}

/*
 * The largest error of an attention's output, as a share of the largest exact output, which is attention of the same
 * inputs in double. Flash attention: V is [cell][dim], the output [token][head][dim]. Without: V is [dim][cell], the
 * output [head][token][dim].
 */
static double output_error(const tensor *t, const tensor *q, const tensor *k, const tensor *v, const tensor *mask,
                           double factor, bool flash)
{
    const int64_t cells = k->ne[1], heads = q->ne[2];
    double worst = 0, scale = 0, *w = malloc((size_t)cells * sizeof *w);
    for (int64_t row = 0; w && row < q->ne[1] * heads * q->ne[3]; row++) {
        const int64_t j = row % q->ne[1], h = row / q->ne[1] % heads, s = row / q->ne[1] / heads;
        double most = -HUGE_VAL, sum = 0;
        for (int64_t c = 0; c < cells; c++) {
            double x = 0;
            for (int64_t d = 0; d < q->ne[0]; d++)
                x += kvb_llama_element(q, d, j, h, s) * kvb_llama_element(k, d, c, h / (heads / k->ne[2]), s);
            w[c] = x * factor + kvb_llama_element(mask, c, j, 0, s % mask->ne[3]);
            most = fmax(most, w[c]);
        }
        for (int64_t c = 0; c < cells; c++)
            sum += w[c] = exp(w[c] - most);
        for (int64_t d = 0; d < t->ne[0]; d++) {
            const int64_t kv = h / (heads / v->ne[2]);
            double exact = 0;
            for (int64_t c = 0; c < cells; c++)
                if (w[c] > 0) /* hidden cells may hold anything */
                    exact += w[c] / sum * kvb_llama_element(v, flash ? d : c, flash ? c : d, kv, s);
            const double off = fabs(exact - kvb_llama_element(t, d, flash ? h : j, flash ? j : h, s));
            worst = isnan(off) ? HUGE_VAL : fmax(worst, off);
            scale = fmax(scale, fabs(exact));
        }
    }
    free(w);
    return worst / fmax(scale, 1e-30);
}

static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Notes which token a decode stores in which cell. Tokens are stored in order; split: in order in each stream. */
static void store_look(watch *w, const tensor *t)
{
    const tensor *cache = t->view_src, *index = t->src[1];
    if (!cache || strncmp(cache->name, "cache_k_l", 9) != 0 || !index || index->type != I64)
        return;
    if (!*w->cache)
        snprintf(w->cache, sizeof w->cache, "%s", cache->name);
    if (strcmp(w->cache, cache->name) != 0)
        return;
    w->stream_cells = (uint32_t)cache->ne[1];
    for (int64_t i = 0; i < index->ne[0] && w->named; i++) {
        int64_t at;
        memcpy(&at, (const char *)index->data + (size_t)i * index->nb[0], sizeof at);
        const uint32_t first = w->n_tokens - w->n;
        uint32_t k = 0;
        while (k < w->n && (w->is_stored[k] || (w->split && w->tokens[first + k].seq != at / cache->ne[1])))
            k++;
        w->named = k < w->n && at >= 0 && at < (int64_t)(sizeof w->cells / sizeof *w->cells);
        if (!w->named)
            return;
        w->cells[at] = first + k + 1;
        w->is_stored[k] = true;
        w->rows[w->n_stored++] = k;
    }
}

/* Notes the visible cells of a row of a mask. */
static void row_look(watch *w, const tensor *mask, int64_t row, int64_t stream)
{
    const uint32_t at = w->n_shown < w->n_stored ? w->rows[w->n_shown] : 0;
    const size_t from = w->split && w->named ? (size_t)w->tokens[w->n_tokens - w->n + at].seq * w->stream_cells : 0;
    uint32_t *shown = &w->shown[w->n_shown++];
    *shown = 0;
    for (int64_t c = 0; c < mask->ne[0]; c++) {
        if (isinf(kvb_llama_element(mask, c, row, 0, stream % mask->ne[3])))
            continue;
        ++*shown;
        if (w->n_seen == w->room) {
            const uint32_t room = 2 * w->room + 1024;
            uint32_t *seen = realloc(w->seen, room * sizeof *seen);
            w->named = w->named && seen;
            w->seen = seen ? seen : w->seen;
            w->room = seen ? room : w->room;
        }
        if (w->named)
            w->seen[w->n_seen++] = w->cells[from + (size_t)c];
    }
}

/* Copies a tensor. Without flash attention the memory of q and mask is reused before the output is computed. */
static void keep(void **copy, const tensor *t)
{
    size_t bytes = t->type == KVB_LLAMA_F32 ? sizeof(float) : sizeof(uint16_t);
    for (int i = 0; i < 4; i++)
        bytes += (size_t)(t->ne[i] - 1) * t->nb[i];
    tensor *kept = kvb_llama_is_plain(t) ? realloc(*copy, sizeof *kept + bytes) : NULL;
    if (!kept)
        return;
    *kept = *t;
    kept->data = kept + 1;
    memcpy(kept->data, t->data, bytes);
    *copy = kept;
}

/* Compares the node V * softmax(K q) with exact attention. */
static void product_look(watch *w, const tensor *t)
{
    const tensor *softmax = t->src[1], *scores = softmax->src[0], *v = t->src[0], *q = w->query, *mask = w->mask;
    const bool known = q && mask && !softmax->src[2] && kvb_llama_parameter(softmax, 1) == 0 &&
                       !strcmp(kvb_llama_operation(scores), "MUL_MAT") && kvb_llama_is_plain(v) &&
                       kvb_llama_is_plain(scores->src[0]) && lib.api.get_data(t) == t->data;
    if (!known || q->ne[1] != t->ne[1] || q->ne[2] != t->ne[2] || q->ne[3] != t->ne[3])
        return;
    w->error =
        fmax(w->error, output_error(t, q, scores->src[0], v, mask, (double)kvb_llama_parameter(softmax, 0), false));
    w->nodes++;
}

static bool watch_node(void *node, bool ask, void *ctx)
{
    watch *w = ctx;
    const tensor *t = node;
    const bool understood = lib.api.get_name(node) == t->name, placed = ask || lib.api.get_data(node) == t->data;
    if (w->take)
        return w->take(w->taker, understood && placed ? t : NULL, ask);
    const char *op = kvb_llama_operation(t);
    const bool flash = !strcmp(op, "FLASH_ATTN_EXT");
    const bool stores = !strcmp(op, "SET_ROWS"), multiplies = !strcmp(op, "MUL_MAT");
    const bool scores = multiplies && understood && !strncmp(t->name, "kq-", 3);
    const bool sums = multiplies && understood && t->src[1] && !strcmp(kvb_llama_operation(t->src[1]), "SOFT_MAX");
    if (ask)
        return flash || stores || scores || sums || !strcmp(op, "SOFT_MAX");
    if (stores && understood)
        store_look(w, t);
    if (scores)
        keep(&w->query, t->src[1]);
    if (sums)
        product_look(w, t);
    if (stores || multiplies)
        return true;
    const tensor *mask = t->src[flash ? 3 : 1];
    if (!placed || !understood || !kvb_llama_is_plain(mask))
        return true; /* an unknown layout: not judged */
    if (!flash)
        keep(&w->mask, mask);
    if (!*w->first)
        snprintf(w->first, sizeof w->first, "%s", t->name);
    const int64_t tokens = flash ? t->src[0]->ne[1] : t->ne[1];
    for (int64_t s = 0; s < t->ne[3] && !strcmp(w->first, t->name); s++) /* one layer: all have the same mask */
        for (int64_t j = 0; j < tokens && w->n_shown < KVB_SHADOW_TOKENS; j++)
            row_look(w, mask, j, s);
    if (flash && !t->src[4] && kvb_llama_parameter(t, 1) == 0 && kvb_llama_parameter(t, 2) == 0 &&
        kvb_llama_is_plain(t->src[1]) && kvb_llama_is_plain(t->src[2])) {
        w->error = fmax(
            w->error, output_error(t, t->src[0], t->src[1], t->src[2], mask, (double)kvb_llama_parameter(t, 0), true));
        w->nodes++;
    }
    return true;
}

static void watch_clear(watch *w, bool split, bool named)
{
    w->split = split;
    w->named = named;
    w->n_tokens = 0;
    memset(w->cells, 0, sizeof w->cells);
}

static void watch_copy(watch *w, uint32_t from, uint32_t to)
{
    const size_t n = w->stream_cells;
    if (w->split && (from + 1) * n <= sizeof w->cells / sizeof *w->cells &&
        (to + 1) * n <= sizeof w->cells / sizeof *w->cells)
        memcpy(w->cells + to * n, w->cells + from * n, n * sizeof *w->cells);
}

static void watch_begin(watch *w, const kvb_engine_token *tokens, uint32_t n)
{
    *w->first = *w->cache = *w->said = '\0';
    w->n = n;
    w->n_stored = w->n_shown = w->n_seen = w->nodes = 0;
    w->error = 0;
    memset(w->is_stored, 0, sizeof w->is_stored);
    w->named = w->named && n <= KVB_SHADOW_TOKENS && w->n_tokens + n <= WATCH_TOKENS;
    for (uint32_t i = 0; i < n && w->named; i++) {
        w->tokens[w->n_tokens].seq = tokens[i].seq;
        w->tokens[w->n_tokens++].pos = tokens[i].pos;
    }
}

/* Describes the first cell that is wrongly visible or wrongly hidden. False: there is none. */
static bool cell_say(watch *w, const uint32_t *sees, uint32_t n)
{
    enum { HIDDEN, MUST, SEEN };
    static unsigned char state[WATCH_TOKENS];
    uint32_t wrong = 0, query = 0, token = 0, at = 0;
    bool misses = false;
    for (uint32_t row = 0; row < n; row++) {
        const uint32_t *must = sees + n;
        for (uint32_t k = 0; k < w->rows[row]; k++)
            must += sees[k];
        for (uint32_t i = 0; i < sees[w->rows[row]]; i++)
            state[must[i]] = MUST;
        for (uint32_t i = 0; i < w->shown[row]; i++) {
            const uint32_t held = w->seen[at++];
            if (held && state[held - 1] == MUST)
                state[held - 1] = SEEN;
            else if (!wrong++) {
                query = w->rows[row];
                token = held;
            }
        }
        for (uint32_t i = 0; i < sees[w->rows[row]]; i++) {
            if (state[must[i]] == MUST && !wrong++) {
                query = w->rows[row];
                token = must[i] + 1;
                misses = true;
            }
            state[must[i]] = HIDDEN;
        }
    }
    if (!wrong)
        return false;
    const uint32_t asks = w->n_tokens - w->n + query;
    char what[80] = "a cell that was never written";
    if (token)
        snprintf(what, sizeof what, "the token decoded as %d of sequence %u", w->tokens[token - 1].pos,
                 w->tokens[token - 1].seq);
    snprintf(w->said, sizeof w->said, "visibility: position %d of sequence %u %s %s, first of %u wrong cells",
             w->tokens[asks].pos, w->tokens[asks].seq, misses ? "does not see" : "sees", what, wrong);
    return true;
}

static void watch_say(watch *w, const uint32_t *sees, uint32_t n)
{
    uint32_t must[KVB_SHADOW_TOKENS], i = 0;
    const bool named = w->named && w->n_stored == n && w->n_shown == n;
    if (named && cell_say(w, sees, n))
        return;
    memcpy(must, sees, n * sizeof *must);
    qsort(must, n, sizeof *must, by_size);
    qsort(w->shown, w->n_shown, sizeof *w->shown, by_size);
    while (i < n && i < w->n_shown && must[i] == w->shown[i])
        i++;
    if (!w->n_shown || w->n_shown != n)
        *w->said = '\0';
    else if (i < n)
        snprintf(w->said, sizeof w->said, "visibility: the mask shows a token %u cells, and must show %u", w->shown[i],
                 must[i]);
    else if (w->nodes && w->error > LIMIT)
        snprintf(w->said, sizeof w->said, "arithmetic: attention is off by %.2g from its own inputs", w->error);
    else
        snprintf(w->said, sizeof w->said, "rows: %s%s",
                 named ? "the right cells are visible" : "as many cells are visible as must be",
                 w->nodes ? ", and attention of what they hold is right" : "");
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

typedef struct saved {
    uint8_t *at;
    size_t bytes;
} saved;

typedef struct session {
    handle context, memory;
    saved one, all;
    batch tokens;
    uint32_t room;
    bool unified, hybrid, watched;
    kvb_arena arena; /* of tokens */
} session;

#define UBATCH 32u

/* Do some layers keep a state? Builds without these functions: from the name of the seeded family. */
static bool has_state(handle model, const kvb_engine_config *config)
{
    if (!lib.api.model_is_hybrid || !lib.api.model_is_recurrent)
        return config->family && (!strcmp(config->family, "hybrid") || !strcmp(config->family, "delta"));
    return lib.api.model_is_hybrid(model) || lib.api.model_is_recurrent(model);
}

/* Opens a context with parameters at the found offsets; each set field has a getter that must return its value. */
static handle context_open(handle model, const kvb_engine_config *config, uint32_t type_k, uint32_t type_v, char *why,
                           size_t why_bytes)
{
    const layout *l = &lib.layout;
    const uint32_t cells = config->cells * (config->split ? config->seqs : 1);
    const uint32_t rollback = has_state(model, config) && !config->whole && l->rollback && lib.api.n_rs_seq ? 1 : 0;
    blob p = lib.api.context_default_params();
    const struct {
        uint32_t at, value;
        uint32_t (*says)(handle);
        const char *name;
    } words[] = {
        {0, cells, lib.api.n_ctx, "n_ctx"},
        {4, cells, lib.api.n_batch, "n_batch"},
        {8, UBATCH, lib.api.n_ubatch, "n_ubatch"},
        {12, config->seqs, lib.api.n_seq_max, "n_seq_max"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        word_set(&p, words[i].at, words[i].value);
    if (rollback)
        word_set(&p, l->rollback, rollback);
    word_set(&p, l->threads, 1);
    word_set(&p, l->threads + 4, 1);
    word_set(&p, l->type_k, type_k);
    word_set(&p, l->type_k + 4, type_v);
    p.bytes[l->unified] = !config->split;
    p.bytes[l->full] = config->whole;
    p.bytes[l->flash] = config->flash;
    if (l->flash_bytes == 4)
        word_set(&p, l->flash, config->flash);
    if (config->watched && lib.api.op_desc && lib.api.get_name && lib.api.get_data) {
        bool (*const node)(void *, bool, void *) = watch_node;
        void *const to = &lib.watch;
        memcpy(p.bytes + l->watch, &node, sizeof node);
        memcpy(p.bytes + l->watch + sizeof node, &to, sizeof to);
    }
    log_forget();
    handle context = lib.api.init_from_model(model, p);
    if (!context) {
        snprintf(why, why_bytes, "%s: no context: %s", lib.build, *lib.error ? lib.error : "it does not say why");
        return NULL;
    }
    const char *wrong = lib.api.n_threads(context) != 1 ? "n_threads" : NULL;
    if (lib.api.n_rs_seq && lib.api.n_rs_seq(context) > rollback) /* fewer: the build may have none for this model */
        wrong = "n_rs_seq";
    for (size_t i = 0; i < sizeof words / sizeof *words && !wrong; i++)
        if (words[i].says(context) != words[i].value)
            wrong = words[i].name;
    if (!wrong && !log_says("kv_unified", config->split ? "false" : "true", config->split ? "0" : "1"))
        wrong = "kv_unified";
    if (!wrong && !log_says("flash_attn", config->flash ? "enabled" : "disabled", config->flash ? "1" : "0"))
        wrong = "flash_attn";
    if (!wrong)
        return context;
    snprintf(why, why_bytes, "%s: the parameters of a context are not understood: %s is not where it is looked for",
             lib.build, wrong);
    lib.api.free(context);
    return NULL;
}

/* Makes room for the tokens of a decode. 0 or -ENOMEM. */
static int batch_make(session *s)
{
    int32_t *seqs = kvb_arena_take(&s->arena, s->room, sizeof *seqs);
    s->tokens = (batch){.token = kvb_arena_take(&s->arena, s->room, sizeof(int32_t)),
                        .pos = kvb_arena_take(&s->arena, s->room, sizeof(int32_t)),
                        .n_seq_id = kvb_arena_take(&s->arena, s->room, sizeof(int32_t)),
                        .seq_id = kvb_arena_take(&s->arena, s->room + 1u, sizeof(int32_t *)),
                        .logits = kvb_arena_take(&s->arena, s->room, sizeof(int8_t))};
    for (uint32_t i = 0; !s->arena.failed && i < s->room; i++)
        s->tokens.seq_id[i] = &seqs[i];
    return s->arena.failed ? -ENOMEM : 0;
}

static int engine_decode(void *session_, const kvb_engine_token *tokens, uint32_t n)
{
    session *s = session_;
    if (n > s->room)
        return -EINVAL;
    s->tokens.n_tokens = (int32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        s->tokens.token[i] = tokens[i].id;
        s->tokens.pos[i] = tokens[i].pos;
        s->tokens.n_seq_id[i] = 1;
        s->tokens.seq_id[i][0] = (int32_t)tokens[i].seq;
        s->tokens.logits[i] = 1;
    }
    lib.error[0] = '\0';
    if (s->watched)
        watch_begin(&lib.watch, tokens, n);
    const int32_t error = lib.api.decode(s->context, s->tokens);
    if (s->watched && error)
        lib.watch.n_tokens -= lib.watch.named ? n : 0;
    return error == 1 ? -ENOSPC : error ? -EIO : 0;
}

/* Bytes of a saved state that one more token takes. */
static size_t token_bytes(handle model, const kvb_engine_config *config, uint32_t type_k, uint32_t type_v, char *why,
                          size_t why_bytes)
{
    session s = {.context = context_open(model, config, type_k, type_v, why, why_bytes), .room = 2};
    if (!s.context)
        return 0;
    size_t bytes[2] = {0};
    const int error = batch_make(&s);
    for (int32_t i = 0; i < 2; i++)
        if (!error && !engine_decode(&s, &(kvb_engine_token){.pos = i}, 1))
            bytes[i] = lib.api.state_seq_get_size(s.context, 0);
    lib.api.free(s.context);
    kvb_arena_free(&s.arena);
    return bytes[1] - bytes[0];
}

/* Are type_k and type_v at the found offsets? Each must change the size of a saved token accordingly. */
static int types_confirm(char *why, size_t why_bytes)
{
    static bool done;
    if (done)
        return 0;
    char path[64];
    const int fd = kvb_gguf_write(&kvb_gguf_families[0], 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    handle model = fd < 0 ? NULL : lib.api.model_load_from_file(path, lib.api.model_default_params());
    if (!model)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s: a small model is not loaded: %s", lib.build, lib.error);
    const kvb_engine_config config = {.cells = 256, .seqs = 1};
    const size_t kv = 2 * 2 * 64; /* elements of K, or of V, in f16's bytes */
    const size_t none = token_bytes(model, &config, F16, F16, why, why_bytes);
    const size_t k = none ? token_bytes(model, &config, F32, F16, why, why_bytes) : 0;
    const size_t v = k ? token_bytes(model, &config, F16, F32, why, why_bytes) : 0;
    close(fd);
    if (!v)
        return -ENOTSUP;
    if (none < 2 * kv || none > 2 * kv + 64 || k != none + kv || v != none + kv)
        return kvb_why_set(
            -ENOTSUP, why, why_bytes,
            "%s: the parameters of a context are not understood: type_k is not where it is looked for (a saved "
            "token has %zu bytes, with K in f32 %zu, with V in f32 %zu)",
            lib.build, none, k, v);
    done = true;
    return 0;
}

static void engine_close(void *session_)
{
    session *s = session_;
    if (!s)
        return;
    if (s->context)
        lib.api.free(s->context);
    kvb_arena_free(&s->arena);
    free(s->one.at);
    free(s->all.at);
    free(s);
}

/* The model of a path, loaded once and kept until the process ends. */
static handle model_open(const char *path)
{
    static char last[PATH_MAX];
    static handle model;
    if (model && !strcmp(path, last))
        return model;
    snprintf(last, sizeof last, "%s", path);
    log_forget();
    return model = lib.api.model_load_from_file(path, lib.api.model_default_params());
}

static int engine_open(const kvb_engine_config *config, void **session_, kvb_engine_facts *facts, char *why,
                       size_t why_bytes)
{
    uint32_t f = 0;
    int error = library_open(config, why, why_bytes);
    error = error ? error : types_confirm(why, why_bytes);
    if (error)
        return error;
    while (strcmp(config->kv, formats[f].name))
        f++;
    handle model = model_open(config->model);
    if (!model) /* a build may lack an architecture */
        return kvb_why_set(*config->family ? -ENOTSUP : -EINVAL, why, why_bytes, "%s: the model is not loaded: %s",
                           lib.build, *lib.error ? lib.error : "no reason given");
    session *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    /* V in a quantised format needs flash attention: without it V is f16 */
    s->context = context_open(model, config, formats[f].type,
                              formats[f].quantised && !config->flash ? F16 : formats[f].type, why, why_bytes);
    if (!s->context) {
        free(s);
        return -ENOTSUP;
    }
    s->memory = lib.api.get_memory(s->context);
    s->unified = !config->split;
    s->room = config->cells * (config->split ? config->seqs : 1);
    if (batch_make(s)) {
        engine_close(s);
        return -ENOMEM;
    }
    const bool hybrid = has_state(model, config);
    const int32_t window = lib.api.model_n_swa ? lib.api.model_n_swa(model) : 0;
    *facts = (kvb_engine_facts){
        .number = lib.number,
        .vocab = (uint32_t)lib.api.vocab_n_tokens(lib.api.model_get_vocab(model)),
        .layers = (uint32_t)lib.api.model_n_layer(model),
        .window = window > 0 ? (uint32_t)window : 0,
        .cells = config->cells,
        .recurrent = hybrid,
        .depth = lib.api.n_rs_seq ? lib.api.n_rs_seq(s->context) : 0,
        .split = config->split,
        .shares = !config->split,
        .copies_part = !config->split && !hybrid,
        .saves_all = true,
        .refuses = hybrid       ? 1u << KVB_ENGINE_REMOVE
                   : window > 0 ? 1u << KVB_ENGINE_REMOVE | 1u << KVB_ENGINE_DECODE
                                : 0,
        .absent = lib.api.memory_can_shift(s->memory) ? 0 : 1u << KVB_ENGINE_SHIFT,
    };
    snprintf(facts->build, sizeof facts->build, "%s", lib.build);
    s->hybrid = hybrid;
    s->watched = config->watched;
    *session_ = s;
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static int32_t end_of(int32_t p1)
{
    return p1 == KVB_ENGINE_END ? -1 : p1;
}

static int engine_clear(void *session_)
{
    session *s = session_;
    lib.api.memory_clear(s->memory, true);
    if (s->watched)
        watch_clear(&lib.watch, !s->unified, !s->hybrid);
    return 0;
}

static const float *engine_logits(void *session_, uint32_t i)
{
    return lib.api.get_logits_ith(((session *)session_)->context, (int32_t)i);
}

static int engine_copy(void *session_, uint32_t from, uint32_t to, int32_t p0, int32_t p1)
{
    session *s = session_;
    lib.api.memory_seq_cp(s->memory, (int32_t)from, (int32_t)to, p0 ? p0 : -1, end_of(p1));
    if (s->watched)
        watch_copy(&lib.watch, from, to);
    return 0;
}

static int engine_remove(void *session_, uint32_t seq, int32_t p0, int32_t p1)
{
    session *s = session_;
    return lib.api.memory_seq_rm(s->memory, (int32_t)seq, p0 ? p0 : -1, end_of(p1)) ? 0 : -ENOTSUP;
}

static int engine_keep(void *session_, uint32_t seq)
{
    lib.api.memory_seq_keep(((session *)session_)->memory, (int32_t)seq);
    return 0;
}

static int engine_shift(void *session_, uint32_t seq, int32_t p0, int32_t p1, int32_t delta)
{
    lib.api.memory_seq_add(((session *)session_)->memory, (int32_t)seq, p0, end_of(p1), delta);
    return 0;
}

static int engine_save(void *session_, uint32_t seq)
{
    session *s = session_;
    saved *to = seq == KVB_ENGINE_ALL ? &s->all : &s->one;
    const size_t bytes = seq == KVB_ENGINE_ALL ? lib.api.state_get_size(s->context)
                                               : lib.api.state_seq_get_size(s->context, (int32_t)seq);
    uint8_t *at = realloc(to->at, bytes + 1);
    if (!at)
        return -ENOMEM;
    to->at = at;
    to->bytes = seq == KVB_ENGINE_ALL ? lib.api.state_get_data(s->context, at, bytes)
                                      : lib.api.state_seq_get_data(s->context, at, bytes, (int32_t)seq);
    return to->bytes ? 0 : -ENOTSUP;
}

static int engine_load(void *session_, uint32_t seq)
{
    session *s = session_;
    lib.watch.named = lib.watch.named && !s->watched; /* loaded tokens lie in unknown cells */
    const size_t read = seq == KVB_ENGINE_ALL
                            ? lib.api.state_set_data(s->context, s->all.at, s->all.bytes)
                            : lib.api.state_seq_set_data(s->context, s->one.at, s->one.bytes, (int32_t)seq);
    return read ? 0 : -ENOTSUP;
}

static void engine_span(void *session_, uint32_t seq, int32_t *first, int32_t *last)
{
    session *s = session_;
    *first = lib.api.memory_seq_pos_min(s->memory, (int32_t)seq);
    *last = lib.api.memory_seq_pos_max(s->memory, (int32_t)seq);
}

static const char *engine_blame(void *session_, const uint32_t *sees, uint32_t n)
{
    (void)session_;
    watch_say(&lib.watch, sees, n);
    return lib.watch.said;
}

const kvb_engine kvb_engine_llama = {
    .abi = KVB_ENGINE_ABI,
    .name = "llama",
    .summary = "llama.cpp: libllama as built by anyone",
    .limits = "copies between split caches are whole; what recurrent layers cannot forget is refused; windows forget",
    .open = engine_open,
    .close = engine_close,
    .clear = engine_clear,
    .decode = engine_decode,
    .logits = engine_logits,
    .copy = engine_copy,
    .remove = engine_remove,
    .keep = engine_keep,
    .shift = engine_shift,
    .save = engine_save,
    .load = engine_load,
    .span = engine_span,
    .blame = engine_blame,
};
