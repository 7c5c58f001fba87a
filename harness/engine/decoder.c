/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decoder in double over the weights of a GGUF file. A token has one row for each layer, which later tokens read: V
 * and K before rotation, or the state after the token. The row is made once, when the token is decoded, from the tokens
 * that it saw then. When K is read, it is turned to the token's present position. So the result is exact in every layer
 * even after earlier tokens are removed or shifted.
 *
 * Layers are those of llama.cpp's src/models: attention with grouped heads (llama, gemma3, lfm2, qwen35) or latent rows
 * (deepseek2), LFM2's short convolution, Qwen3.5's gated delta rule. Files with an unknown tensor or key are refused.
 */
#include "harness/engine/engine.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/size/weights.h"
#include "oracle/codec.h"
#include "workloads/files.h"

enum { LAYERS = 64, HEADS = 256, BUFFERS = 7, F32 = 0, F16 = 1 };
#define MOST (32u << 20) /* most weights: larger models take too long */

/* at: [out][in]; NULL: the file does not have the tensor */
typedef struct matrix {
    double *at;
    uint32_t in, out;
} matrix;

/* Tensors of the model, and of a layer. */
#define TENSORS(T)                                                                                                     \
    T(EMBEDDING, "token_embd.weight")                                                                                  \
    T(OUTPUT_NORM, "output_norm.weight")                                                                               \
    T(EMBEDDING_NORM, "token_embd_norm.weight")                                                                        \
    T(OUTPUT, "output.weight")                                                                                         \
    T(NORM, "attn_norm.weight")                                                                                        \
    T(Q, "attn_q.weight")                                                                                              \
    T(Q_A, "attn_q_a.weight")                                                                                          \
    T(Q_A_NORM, "attn_q_a_norm.weight")                                                                                \
    T(Q_B, "attn_q_b.weight")                                                                                          \
    T(K, "attn_k.weight")                                                                                              \
    T(V, "attn_v.weight")                                                                                              \
    T(KV_A, "attn_kv_a_mqa.weight")                                                                                    \
    T(KV_A_NORM, "attn_kv_a_norm.weight")                                                                              \
    T(K_B, "attn_k_b.weight")                                                                                          \
    T(V_B, "attn_v_b.weight")                                                                                          \
    T(Q_NORM, "attn_q_norm.weight")                                                                                    \
    T(K_NORM, "attn_k_norm.weight")                                                                                    \
    T(ATTENDED, "attn_output.weight")                                                                                  \
    T(IN, "shortconv.in_proj.weight")                                                                                  \
    T(CONV, "shortconv.conv.weight")                                                                                   \
    T(OUT, "shortconv.out_proj.weight")                                                                                \
    T(QKV, "attn_qkv.weight")                                                                                          \
    T(GATE, "attn_gate.weight")                                                                                        \
    T(DELTA_CONV, "ssm_conv1d.weight")                                                                                 \
    T(DT, "ssm_dt.bias")                                                                                               \
    T(A, "ssm_a")                                                                                                      \
    T(BETA, "ssm_beta.weight")                                                                                         \
    T(ALPHA, "ssm_alpha.weight")                                                                                       \
    T(DELTA_NORM, "ssm_norm.weight")                                                                                   \
    T(DELTA_OUT, "ssm_out.weight")                                                                                     \
    T(AFTER_NORM, "post_attention_norm.weight")                                                                        \
    T(FFN_NORM, "ffn_norm.weight")                                                                                     \
    T(FFN_GATE, "ffn_gate.weight")                                                                                     \
    T(FFN_UP, "ffn_up.weight")                                                                                         \
    T(FFN_DOWN, "ffn_down.weight")                                                                                     \
    T(FFN_AFTER, "post_ffw_norm.weight")
#define NUMBER(name, text) name,
#define TEXT(name, text)   text,
enum { TENSORS(NUMBER) NAMES };
static const char *const names[NAMES] = {TENSORS(TEXT)};

/* Properties of an architecture that are in llama.cpp's code, not in the file. */
static const struct arch {
    const char *name;
    bool halves;     /* a rotation pairs elements i and i + half; false: neighbours */
    bool embedding;  /* the embedding is multiplied by sqrt(width) */
    bool gelu;       /* GELU from llama.cpp's table in f16; false: SiLU */
    uint32_t period; /* every period-th layer has no window */
    double base;     /* of rotations in layers with a window */
} archs[] = {
    {"llama", false, false, false, 0, 0},     {"gemma3", true, true, true, 6, 10000},
    {"deepseek2", false, false, false, 0, 0}, {"lfm2", true, false, false, 0, 0},
    {"qwen35", true, false, false, 0, 0},
};
/* Keys that are read, or that repeat the shapes of tensors. */
static const char keys[] =
    "vocab_size context_length embedding_length block_count feed_forward_length attention.head_count "
    "attention.head_count_kv "
    "attention.layer_norm_rms_epsilon rope.dimension_count rope.freq_base attention.key_length attention.value_length "
    "attention.sliding_window attention.key_length_mla attention.value_length_mla attention.q_lora_rank "
    "attention.kv_lora_rank "
    "leading_dense_block_count expert_count expert_used_count expert_shared_count expert_feed_forward_length "
    "expert_weights_scale "
    "shortconv.l_cache full_attention_interval ssm.conv_kernel ssm.inner_size ssm.state_size ssm.time_step_rank "
    "ssm.group_count "
    "rope.dimension_sections";

typedef struct layer {
    matrix w[NAMES];
    uint32_t window;
    size_t at; /* offset of the layer's part in a row */
} layer;

struct kvb_decoder {
    const struct arch *arch;
    uint32_t layers, heads, rot, hidden, vocab;
    uint32_t sections
        [3]; /* pairs of a rotation that turn by time, height, width; other pairs do not turn. All 0: all turn */
    double epsilon, base;
    matrix w[NAMES];
    layer layer[LAYERS];
    size_t width;  /* of a row */
    double **rows; /* [n_rows] by a token's number */
    uint32_t n_rows;
    double *turns[2]; /* layers without, with window: [position][rot / 2][2] cosines and sines, computed when needed */
    double *buffers[BUFFERS]; /* [the longest vector] */
    float *logits;            /* [vocab] */
    kvb_arena arena;          /* all but `rows` */
};

/* ---- the file ---------------------------------------------------------------------------------------------------- */

typedef struct source {
    const char *path;
    json_t *keys, *tensors;
    FILE *file;
    size_t read, weights; /* tensors that were read; their elements */
    uint32_t most;        /* length of the longest vector */
} source;

static double key_number(const source *s, const char *arch, const char *name, double usual)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, name);
    const json_t *value = json_object_get(s->keys, full);
    return json_is_number(value) ? json_number_value(value) : usual;
}

/* Reads a tensor as a matrix of double, if the file has it. */
static int matrix_read(kvb_decoder *d, source *s, const char *name, matrix *m)
{
    const json_t *t = json_object_get(s->tensors, name);
    if (!t)
        return 0;
    const json_int_t type = json_integer_value(json_array_get(t, 0)), offset = json_integer_value(json_array_get(t, 1)),
                     in = json_integer_value(json_array_get(t, 2)), n = json_integer_value(json_array_get(t, 3));
    if (type > F16 || in < 1 || n < 1 || (size_t)n > MOST - s->weights)
        return -ENOTSUP;
    s->weights += (size_t)n;
    s->read++;
    s->most = in > s->most ? (uint32_t)in : s->most;
    s->most = n / in > s->most ? (uint32_t)(n / in) : s->most;
    *m = (matrix){kvb_arena_take(&d->arena, (size_t)n, sizeof *m->at), (uint32_t)in, (uint32_t)(n / in)};
    if (!m->at)
        return -ENOMEM;
    if (fseeko(s->file, (off_t)offset, SEEK_SET))
        return -EIO;
    for (json_int_t i = 0; i < n; i++) {
        float value;
        uint16_t bits;
        if (fread(type == F32 ? (void *)&value : &bits, type == F32 ? sizeof value : sizeof bits, 1, s->file) != 1)
            return -EIO;
        m->at[i] = type == F32 ? (double)value : kvb_codec_value(KVB_F16, bits);
    }
    return 0;
}

static int matrices_read(kvb_decoder *d, source *s, const char *prefix, matrix *w)
{
    int error = 0;
    for (int i = 0; i < NAMES && !error; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        error = matrix_read(d, s, name, &w[i]);
    }
    return error;
}

/* The first key of the architecture that is not read; NULL: there is none. */
static const char *key_unread(const source *s, const char *arch)
{
    const char *key;
    json_t *value;
    json_object_foreach(s->keys, key, value)
    {
        const size_t n = strlen(arch);
        if (!strncmp(key, arch, n) && key[n] == '.' && !kvb_names_have(keys, key + n + 1))
            return key;
    }
    return NULL;
}

static bool attends(const layer *l)
{
    return l->w[ATTENDED].at != NULL;
}

/* Elements of one head's K (and V); of all heads' K. */
static uint32_t dim_k(const kvb_decoder *d, const layer *l)
{
    return l->w[KV_A].at ? l->w[KV_A].out : (l->w[Q_NORM].at ? l->w[Q_NORM].in : l->w[Q].out / d->heads);
}

static uint32_t all_k(const layer *l)
{
    return l->w[KV_A].at ? l->w[KV_A].out : l->w[K].out;
}

/* Elements of a layer's part of a row, which later tokens read. */
static size_t layer_width(const layer *l)
{
    if (attends(l))
        return l->w[KV_A].at ? all_k(l) : all_k(l) + l->w[V].out;
    if (l->w[CONV].at)
        return (size_t)(l->w[CONV].in - 1) * l->w[CONV].out;
    const uint32_t size = l->w[DELTA_NORM].in;
    return (size_t)(l->w[DELTA_CONV].in - 1) * l->w[DELTA_CONV].out + (size_t)l->w[A].in * size * size;
}

/* Do the layer's matrices fit each other? layer NULL: the model's. */
static bool is_whole(const kvb_decoder *d, const layer *l)
{
    const matrix *w = l ? l->w : d->w;
    const bool latent = w[KV_A].at, grouped = l && attends(l) && !latent, short_conv = w[CONV].at,
               delta = l && !attends(l) && !short_conv;
    const uint32_t hidden = d->w[EMBEDDING].in, dim = grouped ? dim_k(d, l) : 1,
                   gated = w[Q].out > w[ATTENDED].in ? 2 : 1;
    const struct {
        bool needed;
        int name;
        uint32_t in, out; /* 0: any */
    } shapes[] = {
        {!l, EMBEDDING, 0, d->vocab},
        {!l && w[OUTPUT].at, OUTPUT, hidden, d->vocab},
        {!l, w[OUTPUT_NORM].at ? OUTPUT_NORM : EMBEDDING_NORM, hidden, 1},
        {l, NORM, hidden, 1},
        {l, FFN_NORM, hidden, 1},
        {l, FFN_GATE, hidden, w[FFN_DOWN].in},
        {l, FFN_UP, hidden, w[FFN_DOWN].in},
        {l, FFN_DOWN, 0, hidden},
        {w[AFTER_NORM].at, AFTER_NORM, hidden, 1},
        {w[FFN_AFTER].at, FFN_AFTER, hidden, 1},
        {grouped, ATTENDED, d->heads * dim, hidden},
        {grouped, Q, hidden, d->heads * dim * gated},
        {grouped, K, hidden, w[V].out},
        {grouped, V, hidden, 0},
        {w[K_NORM].at, K_NORM, dim, 1},
        {latent, KV_A, hidden, w[KV_A_NORM].in + d->rot},
        {latent, KV_A_NORM, 0, 1},
        {latent, Q_A, hidden, w[Q_A_NORM].in},
        {latent, Q_A_NORM, 0, 1},
        {latent, Q_B, w[Q_A].out, d->heads * (w[K_B].in + d->rot)},
        {latent, K_B, 0, d->heads * w[KV_A_NORM].in},
        {latent, V_B, w[KV_A_NORM].in, w[ATTENDED].in},
        {latent, ATTENDED, 0, hidden},
        {short_conv, IN, hidden, 3 * w[CONV].out},
        {short_conv, OUT, w[CONV].out, hidden},
        {delta, QKV, hidden, w[DELTA_CONV].out},
        {delta, GATE, hidden, w[DELTA_OUT].in},
        {delta, DELTA_CONV, 0, 3 * w[DELTA_OUT].in},
        {delta, DELTA_NORM, 0, 1},
        {delta, DELTA_OUT, w[DELTA_NORM].in * w[A].in, hidden},
        {delta, BETA, hidden, w[A].in},
        {delta, ALPHA, hidden, w[A].in},
        {delta, DT, w[A].in, 1},
        {delta, A, 0, 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const matrix *m = &w[shapes[i].name];
        if (shapes[i].needed &&
            (!m->at || (shapes[i].in && m->in != shapes[i].in) || (shapes[i].out && m->out != shapes[i].out)))
            return false;
    }
    if (grouped)
        return dim && d->rot <= dim && w[K].out >= dim && w[K].out % dim == 0 && d->heads % (w[K].out / dim) == 0;
    return w[A].in <= HEADS;
}

static int model_read(kvb_decoder *d, source *s, char *why, size_t why_bytes)
{
    const char *name = json_string_value(json_object_get(s->keys, "general.architecture"));
    for (size_t i = 0; i < sizeof archs / sizeof *archs && name; i++)
        if (!strcmp(archs[i].name, name))
            d->arch = &archs[i];
    const char *unread = d->arch ? key_unread(s, name) : "general.architecture";
    if (unread)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s: %.60s is not what the decoder knows", s->path, unread);
    d->layers = (uint32_t)key_number(s, name, "block_count", 0);
    d->heads = (uint32_t)key_number(s, name, "attention.head_count", 0);
    d->rot = (uint32_t)key_number(s, name, "rope.dimension_count", key_number(s, name, "attention.key_length", 0));
    d->epsilon = key_number(s, name, "attention.layer_norm_rms_epsilon", 0);
    d->base = key_number(s, name, "rope.freq_base", 10000);
    char key[96];
    snprintf(key, sizeof key, "%s.rope.dimension_sections", name);
    for (size_t i = 0; i < 3; i++)
        d->sections[i] = (uint32_t)json_integer_value(json_array_get(json_object_get(s->keys, key), i));
    const uint32_t window = (uint32_t)key_number(s, name, "attention.sliding_window", 0);
    if (!d->layers || d->layers > LAYERS || !d->heads || d->epsilon <= 0)
        return kvb_why_set(-ENOTSUP, why, why_bytes, "%s: a number of layers or heads, or epsilon, is not as expected",
                           s->path);
    int error = matrices_read(d, s, "", d->w);
    bool whole = !error && is_whole(d, NULL);
    for (uint32_t i = 0; i < d->layers && !error && whole; i++) {
        char prefix[16];
        layer *l = &d->layer[i];
        snprintf(prefix, sizeof prefix, "blk.%u.", i);
        error = matrices_read(d, s, prefix, l->w);
        l->window = d->arch->period && (i + 1) % d->arch->period ? window : 0;
        if (!l->w[FFN_NORM].at) { /* Qwen3.5's name for it */
            l->w[FFN_NORM] = l->w[AFTER_NORM];
            l->w[AFTER_NORM] = (matrix){0};
        }
        s->most = attends(l) && d->heads * all_k(l) > s->most ? d->heads * all_k(l) : s->most; /* latent queries */
        whole = whole && !error && is_whole(d, l);
        if (!whole)
            break;
        l->at = d->width;
        d->width += layer_width(l);
    }
    if (error || !whole || s->read != json_object_size(s->tensors))
        return kvb_why_set(
            error ? error : -ENOTSUP, why, why_bytes,
            "%s: not all of its %zu tensors are such as the decoder knows, in f32 or f16, with at most %u weights",
            s->path, json_object_size(s->tensors), MOST);
    d->hidden = d->w[EMBEDDING].in;
    return 0;
}

int kvb_decoder_open(const char *path, uint32_t vocab, kvb_decoder **decoder, char *why, size_t why_bytes)
{
    source s = {.path = path, .keys = json_object(), .tensors = json_object()};
    kvb_decoder *d = *decoder = calloc(1, sizeof *d);
    if (d)
        d->vocab = vocab;
    uint64_t bytes = 0;
    int error = d && s.keys && s.tensors ? kvb_gguf_read(path, s.keys, s.tensors, &bytes, why, why_bytes) : -ENOMEM;
    if (!error)
        error = (s.file = fopen(path, "rb")) ? model_read(d, &s, why, why_bytes) : -errno;
    if (!error) {
        d->logits = kvb_arena_take(&d->arena, d->vocab, sizeof *d->logits);
        for (int i = 0; i < 2; i++)
            d->turns[i] = kvb_arena_take(&d->arena, (size_t)KVB_SHADOW_POSITIONS * d->rot + 1, sizeof **d->turns);
        for (int i = 0; i < BUFFERS; i++)
            d->buffers[i] = kvb_arena_take(&d->arena, s.most, sizeof **d->buffers);
        error = d->arena.failed ? -ENOMEM : 0;
    }
    if (s.file)
        fclose(s.file);
    json_decref(s.keys);
    json_decref(s.tensors);
    if (error) {
        kvb_decoder_close(d);
        *decoder = NULL;
    }
    return error;
}

void kvb_decoder_close(kvb_decoder *d)
{
    if (!d)
        return;
    free(d->rows);
    kvb_arena_free(&d->arena);
    free(d);
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

/* Four outputs at a time, since each is a chain of additions. Past the last output its row is summed again. */
static void multiply(const matrix *m, const double *x, double *y)
{
    for (uint32_t o = 0; o < m->out; o += 4) {
        const uint32_t left = m->out - 1 - o;
        const double *a = m->at + (size_t)o * m->in, *b = left > 0 ? a + m->in : a, *c = left > 1 ? b + m->in : b,
                     *d = left > 2 ? c + m->in : c;
        double sum[4] = {0};
        for (uint32_t i = 0; i < m->in; i++) {
            sum[0] += a[i] * x[i];
            sum[1] += b[i] * x[i];
            sum[2] += c[i] * x[i];
            sum[3] += d[i] * x[i];
        }
        memcpy(y + o, sum, (left < 3 ? left + 1 : 4) * sizeof *y);
    }
}

/* RMSNorm of each part of x[n] that is as long as the weights. Without weights y stays as it was. */
static void normalise(const kvb_decoder *d, const matrix *m, const double *x, double *y, uint32_t n)
{
    for (uint32_t at = 0; m->at && at < n; at += m->in) {
        double sum = 0;
        for (uint32_t i = 0; i < m->in; i++)
            sum += x[at + i] * x[at + i];
        for (uint32_t i = 0; i < m->in; i++)
            y[at + i] = x[at + i] / sqrt(sum / m->in + d->epsilon) * m->at[i];
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double gelu(double x)
{
    x = kvb_codec_rounded(KVB_F16, (float)x);
    x = 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * x * (1 + 0.044715 * x * x)));
    return kvb_codec_rounded(KVB_F16, (float)x);
}

/* Rotates the first elements of a head to a position. */
static void rotate(kvb_decoder *d, const layer *l, double *x, int32_t pos)
{
    const bool windowed = l->window > 0;
    const uint32_t half = d->rot / 2, sections = d->sections[0] + d->sections[1] + d->sections[2];
    double *turns = d->turns[windowed] + (size_t)pos * d->rot;
    for (uint32_t i = 0; i < half; i++) {
        double *turn = &turns[2 * i];
        if (sections && i % sections >= 3 * d->sections[i % sections % 3])
            continue;
        if (turn[0] == 0 && turn[1] == 0) {
            const double angle = pos * pow(windowed ? d->arch->base : d->base, -2.0 * i / d->rot);
            turn[0] = cos(angle);
            turn[1] = sin(angle);
        }
        double *a = &x[d->arch->halves ? i : 2 * i], *b = &x[d->arch->halves ? i + half : 2 * i + 1];
        const double first = *a;
        *a = first * turn[0] - *b * turn[1];
        *b = first * turn[1] + *b * turn[0];
    }
}

/* The row of a token, allocated at first. NULL: no memory. */
static double *row_of(kvb_decoder *d, uint32_t number)
{
    if (number >= d->n_rows) {
        const uint32_t n = number + 256;
        double **rows = realloc(d->rows, n * sizeof *rows);
        if (!rows)
            return NULL;
        memset(rows + d->n_rows, 0, (n - d->n_rows) * sizeof *rows);
        d->rows = rows;
        d->n_rows = n;
    }
    if (!d->rows[number])
        d->rows[number] = kvb_arena_take(&d->arena, d->width, sizeof **d->rows);
    return d->rows[number];
}

/* Makes the queries of all heads in the layout of K. Latent: [rotated][latent]. */
static void queries_make(kvb_decoder *d, const layer *l, const double *h, double *q, double *other)
{
    if (!l->w[KV_A].at) {
        multiply(&l->w[Q], h, q);
        return;
    }
    const matrix *k_b = &l->w[K_B];
    const uint32_t dim = l->w[Q_B].out / d->heads, plain = dim - d->rot, latent = k_b->out / d->heads;
    multiply(&l->w[Q_A], h, q);
    normalise(d, &l->w[Q_A_NORM], q, q, l->w[Q_A].out);
    multiply(&l->w[Q_B], q, other);
    for (uint32_t head = 0; head < d->heads; head++) {
        const matrix part = {k_b->at + (size_t)head * latent * plain, plain, latent};
        double *to = q + (size_t)head * (d->rot + latent);
        memcpy(to, other + (size_t)head * dim + plain, d->rot * sizeof *to);
        multiply(&part, other + (size_t)head * dim, to + d->rot);
    }
}

/* Attention: stores K and V of token i of the sequence in its row and computes its output y. */
static void attend(kvb_decoder *d, const layer *l, const kvb_shadow_seq *seq, uint32_t i, const double *h, double *y)
{
    const bool latent = l->w[KV_A].at != NULL;
    const uint32_t dim = latent ? all_k(l) : dim_k(d, l), kv_heads = all_k(l) / dim,
                   dim_v = latent ? dim - d->rot : dim,
                   gated = latent ? 1 : l->w[Q].out / d->heads / dim; /* 2: each head of q is followed by a gate */
    const double scale = 1 / sqrt(latent ? l->w[Q_B].out / d->heads : dim);
    double *row = d->rows[seq->at[i].row] + l->at, *q = d->buffers[2], *o = d->buffers[3], *key = d->buffers[4],
           weights[KVB_SHADOW_TOKENS];
    queries_make(d, l, h, q, o);
    if (latent) {
        multiply(&l->w[KV_A], h, o);
        memcpy(row, o + dim_v, d->rot * sizeof *row);
        normalise(d, &l->w[KV_A_NORM], o, row + d->rot, dim_v);
    } else {
        multiply(&l->w[K], h, row);
        normalise(d, &l->w[K_NORM], row, row, all_k(l));
        multiply(&l->w[V], h, row + all_k(l));
    }
    for (uint32_t head = 0; head < d->heads; head++) {
        const uint32_t kv = head / (d->heads / kv_heads);
        double *own = q + (size_t)head * dim * gated, most = -HUGE_VAL, sum = 0;
        if (!latent)
            normalise(d, &l->w[Q_NORM], own, own, dim);
        rotate(d, l, own, seq->at[i].pos);
        for (uint32_t j = 0; j <= i; j++) {
            const double *k = d->rows[seq->at[j].row] + l->at + (size_t)kv * dim;
            weights[j] = -HUGE_VAL;
            if (l->window && seq->at[i].pos - seq->at[j].pos >= (int32_t)l->window)
                continue;
            memcpy(key, k, dim * sizeof *key);
            rotate(d, l, key, seq->at[j].pos);
            weights[j] = 0;
            for (uint32_t e = 0; e < dim; e++)
                weights[j] += own[e] * key[e] * scale;
            most = fmax(most, weights[j]);
        }
        double *out = o + (size_t)head * dim_v;
        memset(out, 0, dim_v * sizeof *out);
        for (uint32_t j = 0; j <= i; j++)
            sum += weights[j] = exp(weights[j] - most);
        for (uint32_t j = 0; j <= i; j++) {
            const double *v = d->rows[seq->at[j].row] + l->at + (latent ? d->rot : all_k(l) + (size_t)kv * dim_v);
            for (uint32_t e = 0; e < dim_v && weights[j] > 0; e++)
                out[e] += weights[j] / sum * v[e];
        }
        for (uint32_t e = 0; gated == 2 && e < dim_v; e++)
            out[e] *= sigmoid(own[dim + e]);
    }
    if (latent) { /* back from latent values: [heads][dim] */
        const uint32_t out = l->w[V_B].out / d->heads;
        for (uint32_t head = 0; head < d->heads; head++) {
            const matrix part = {l->w[V_B].at + (size_t)head * out * dim_v, dim_v, out};
            multiply(&part, o + (size_t)head * dim_v, q + (size_t)head * out);
        }
    }
    multiply(&l->w[ATTENDED], latent ? q : o, y);
}

/* A causal convolution of in[m->out]. The row keeps its last inputs. before: the previous token's row; NULL: none. */
static void convolve(const matrix *m, const double *in, const double *before, double *row, double *out)
{
    const uint32_t taps = m->in, n = m->out;
    for (uint32_t t = 0; t + 1 < taps; t++)
        for (uint32_t c = 0; c < n; c++)
            row[t * n + c] = t + 2 == taps ? in[c] : before ? before[(t + 1) * n + c] : 0;
    for (uint32_t c = 0; c < n; c++) {
        out[c] = in[c] * m->at[(size_t)c * taps + taps - 1];
        for (uint32_t t = 0; before && t + 1 < taps; t++)
            out[c] += before[t * n + c] * m->at[(size_t)c * taps + t];
    }
}

static void convolution(kvb_decoder *d, const layer *l, const double *before, double *row, const double *h, double *y)
{
    const uint32_t n = l->w[CONV].out;
    double *in = d->buffers[2], *out = d->buffers[3];
    multiply(&l->w[IN], h, in); /* [b][c][x] */
    for (uint32_t i = 0; i < n; i++)
        in[2 * n + i] *= in[i];
    convolve(&l->w[CONV], in + 2 * (size_t)n, before, row, out);
    for (uint32_t i = 0; i < n; i++)
        out[i] *= in[n + i];
    multiply(&l->w[OUT], out, y);
}

/* Yang and others: Gated Delta Networks (2024). A state is [key][value]. */
static void delta_rule(kvb_decoder *d, const layer *l, const double *before, double *row, const double *h, double *y)
{
    const uint32_t heads = l->w[A].in, n = l->w[DELTA_NORM].in, kept = (l->w[DELTA_CONV].in - 1) * l->w[DELTA_CONV].out;
    double *in = d->buffers[2], *mixed = d->buffers[3], *gate = d->buffers[4], *out = d->buffers[5], beta[HEADS],
           alpha[HEADS];
    multiply(&l->w[QKV], h, in); /* [q, k, v][heads][n] */
    convolve(&l->w[DELTA_CONV], in, before, row, mixed);
    multiply(&l->w[GATE], h, gate);
    multiply(&l->w[BETA], h, beta);
    multiply(&l->w[ALPHA], h, alpha);
    for (uint32_t head = 0; head < heads; head++) {
        double *q = mixed + (size_t)head * n, *k = q + (size_t)heads * n, *v = k + (size_t)heads * n, length[2] = {0};
        double *state = row + kept + (size_t)head * n * n, *o = out + (size_t)head * n;
        const double *old = before ? before + kept + (size_t)head * n * n : NULL;
        const double decay = exp(log1p(exp(alpha[head] + l->w[DT].at[head])) * l->w[A].at[head]);
        for (uint32_t i = 0; i < n; i++) {
            q[i] = silu(q[i]);
            k[i] = silu(k[i]);
            v[i] = silu(v[i]);
            length[0] += q[i] * q[i];
            length[1] += k[i] * k[i];
        }
        for (uint32_t i = 0; i < n; i++) {
            q[i] /= fmax(sqrt(length[0]), d->epsilon) * sqrt(n);
            k[i] /= fmax(sqrt(length[1]), d->epsilon);
        }
        for (uint32_t c = 0; c < n; c++) {
            double held = 0;
            for (uint32_t r = 0; r < n; r++)
                held += (state[r * n + c] = old ? old[r * n + c] * decay : 0) * k[r];
            o[c] = 0;
            for (uint32_t r = 0; r < n; r++)
                o[c] += (state[r * n + c] += k[r] * (v[c] - held) * sigmoid(beta[head])) * q[r];
        }
    }
    normalise(d, &l->w[DELTA_NORM], out, out, heads * n);
    for (uint32_t i = 0; i < heads * n; i++)
        out[i] *= silu(gate[i]);
    multiply(&l->w[DELTA_OUT], out, y);
}

static void add(double *x, const double *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* Makes the row of token i of the sequence. x: in: its embedding; out: the last layer's output. */
static void token_decode(kvb_decoder *d, const kvb_shadow_seq *seq, uint32_t i, double *x)
{
    double *h = d->buffers[1], *y = d->buffers[6];
    for (uint32_t at = 0; at < d->layers; at++) {
        const layer *l = &d->layer[at];
        double *row = d->rows[seq->at[i].row] + l->at, *gate = d->buffers[2], *up = d->buffers[3];
        const double *before = i ? d->rows[seq->at[i - 1].row] + l->at : NULL;
        normalise(d, &l->w[NORM], x, h, d->hidden);
        if (attends(l))
            attend(d, l, seq, i, h, y);
        else
            (l->w[CONV].at ? convolution : delta_rule)(d, l, before, row, h, y);
        normalise(d, &l->w[AFTER_NORM], y, y, d->hidden);
        add(x, y, d->hidden);
        normalise(d, &l->w[FFN_NORM], x, h, d->hidden);
        multiply(&l->w[FFN_GATE], h, gate);
        multiply(&l->w[FFN_UP], h, up);
        for (uint32_t e = 0; e < l->w[FFN_UP].out; e++)
            up[e] *= d->arch->gelu ? gelu(gate[e]) : silu(gate[e]);
        multiply(&l->w[FFN_DOWN], up, y);
        normalise(d, &l->w[FFN_AFTER], y, y, d->hidden);
        add(x, y, d->hidden);
    }
}

const float *kvb_decoder_decode(kvb_decoder *d, const kvb_shadow_seq *seq, uint32_t n)
{
    double *x = d->buffers[0], *logits = d->buffers[1];
    for (uint32_t i = seq->n - n; i < seq->n; i++) {
        if (!row_of(d, seq->at[i].row))
            return NULL;
        const double *embedding = d->w[EMBEDDING].at + (size_t)seq->at[i].id * d->hidden;
        for (uint32_t e = 0; e < d->hidden; e++)
            x[e] = embedding[e] * (d->arch->embedding ? sqrt(d->hidden) : 1);
        token_decode(d, seq, i, x);
    }
    normalise(d, &d->w[d->w[OUTPUT_NORM].at ? OUTPUT_NORM : EMBEDDING_NORM], x, x, d->hidden);
    multiply(&d->w[d->w[OUTPUT].at ? OUTPUT : EMBEDDING], x, logits);
    for (uint32_t i = 0; i < d->vocab; i++)
        d->logits[i] = (float)logits[i];
    return d->logits;
}
