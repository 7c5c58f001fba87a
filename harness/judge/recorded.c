/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the calls in a file's arrays, checks their shapes, and decodes rows. */
#include "harness/judge/recorded.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "oracle/claim.h"
#include "oracle/codec.h"
#include "workloads/files.h"

#define NAME(part, name) name,
const char *const kvb_recorded_parts[KVB_RECORDED_PARTS] = {KVB_RECORDED_PARTS_OF(NAME)};

/* Other names of parts. */
static const struct {
    const char *name;
    kvb_recorded_part part;
} aliases[] = {{"x", KVB_RECORDED_V}, {"taps", KVB_RECORDED_A}, {"cu_seqlens", KVB_RECORDED_CU_Q}};

/* Arrays that a call must have, by 1 + its recurrence. 0: attention, which needs no V if V lies in K. */
#define BIT(part) (1u << KVB_RECORDED_##part)
static const uint32_t needed[1 + KVB_SCAN_KINDS] = {
    [0] = BIT(Q) | BIT(K) | BIT(OUT),
    [1 + KVB_SCAN_MAMBA1] = BIT(Q) | BIT(K) | BIT(V) | BIT(OUT) | BIT(GATE) | BIT(A),
    [1 + KVB_SCAN_MAMBA2] = BIT(Q) | BIT(K) | BIT(V) | BIT(OUT) | BIT(GATE) | BIT(A),
    [1 + KVB_SCAN_LIGHTNING] = BIT(Q) | BIT(K) | BIT(V) | BIT(OUT) | BIT(A),
    [1 + KVB_SCAN_DELTA] = BIT(Q) | BIT(K) | BIT(V) | BIT(OUT) | BIT(GATE) | BIT(BETA),
    [1 + KVB_SCAN_CONV] = BIT(V) | BIT(OUT) | BIT(A),
};
/* Arrays that only scans have. */
static const uint32_t scans_alone = BIT(GATE) | BIT(BETA) | BIT(INITIAL) | BIT(FINAL);

/* ---- calls of a file --------------------------------------------------------------------------------------------- */

/* The part that an array is: "a/b.q" is q of call "a/b"; *call: bytes of the call's name. KVB_RECORDED_PARTS: none. */
static kvb_recorded_part part_of(const char *name, size_t *call)
{
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    const char *at = dot > slash ? dot : slash;
    *call = at ? (size_t)(at - name) : 0;
    at = at ? at + 1 : name;
    uint32_t part = 0;
    while (part < KVB_RECORDED_PARTS && strcmp(kvb_recorded_parts[part], at))
        part++;
    for (uint32_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        part = strcmp(aliases[i].name, at) ? part : aliases[i].part;
    return (kvb_recorded_part)part;
}

/* The call of this name. If there is none: a new one; path NULL: NULL. */
static kvb_recorded *call_find(kvb_recordings *r, const char *name, size_t bytes, const char *path)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (strlen(r->calls[i].name) == bytes && !strncmp(r->calls[i].name, name, bytes))
            return &r->calls[i];
    if (!path)
        return NULL;
    kvb_recorded *c = &r->calls[r->n++];
    *c = (kvb_recorded){.path = path, .reading = {.scale = NAN, .q_scale = 1, .k_scale = 1, .v_scale = 1}};
    snprintf(c->name, sizeof c->name, "%.*s", (int)bytes, name);
    return c;
}

static int calls_collect(kvb_recordings *r, const kvb_tensors *t, bool only_known, const char *path, char *why,
                         size_t why_bytes)
{
    for (uint32_t i = 0; i < t->n; i++) {
        size_t bytes;
        const kvb_recorded_part part = part_of(t->list[i].name, &bytes);
        if (part == KVB_RECORDED_PARTS)
            continue; /* not an array of a call */
        if (bytes >= sizeof r->calls->name)
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: array '%s': a call's name has at most %zu letters", path,
                               t->list[i].name, sizeof r->calls->name - 1);
        kvb_recorded *c = call_find(r, t->list[i].name, bytes, only_known ? NULL : path);
        if (c && !c->part[part])
            c->part[part] = &t->list[i];
    }
    return 0;
}

/* Arrays that the call has, as bits. */
static uint32_t parts_of(const kvb_recorded *c)
{
    uint32_t parts = 0;
    for (uint32_t part = 0; part < KVB_RECORDED_PARTS; part++)
        parts |= (uint32_t)(c->part[part] != NULL) << part;
    return parts;
}

/* Drops calls that have none of q, k, v and out: their arrays only have similar names. */
static int calls_keep(kvb_recordings *r, const char *path, char *why, size_t why_bytes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (parts_of(&r->calls[i]) & (BIT(Q) | BIT(K) | BIT(V) | BIT(OUT)))
            r->calls[n++] = r->calls[i];
    r->n = n;
    if (!n)
        snprintf(why, why_bytes, "%s: no arrays q, k, v and out in it", path);
    return n ? 0 : -EINVAL;
}

/* Does the call have the arrays of its recurrence, and none of another one? */
static int parts_check(const kvb_recorded *c, char *why, size_t why_bytes)
{
    const uint32_t need = needed[c->reading.recurrence], have = parts_of(c);
    const uint32_t lacks = need & ~have, strays = c->reading.recurrence ? have & ~need & (BIT(BETA) | BIT(GATE)) : 0;
    if (!lacks && !strays)
        return 0;
    const uint32_t part = (uint32_t)__builtin_ctz(lacks ? lacks : strays);
    snprintf(why, why_bytes, "%s: %s%s%s%sarray '%s'%s; %s has", c->path, *c->name ? "call '" : "", c->name,
             *c->name ? "': " : "", lacks ? "no " : "", kvb_recorded_parts[part],
             lacks ? "" : " is none of this recurrence",
             c->reading.recurrence ? kvb_scan_kind_name(c->reading.recurrence - 1) : "a call");
    for (uint32_t i = 0; i < KVB_RECORDED_PARTS; i++)
        if (need >> i & 1 || (!c->reading.recurrence && i == KVB_RECORDED_V))
            kvb_list_add(why, why_bytes, " ", "%s", kvb_recorded_parts[i]);
    return -EINVAL;
}

void kvb_recorded_beside(const char *path, char *file, size_t bytes)
{
    struct stat st;
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    const bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    const int stem = dot > slash && !folder ? (int)(dot - path) : (int)strlen(path);
    snprintf(file, bytes, folder ? "%.*s/describe.json" : "%.*s.json", stem, path);
}

/* Reads a description. *beside NULL: there is no such file. */
static int beside_read(const char *file, json_t **beside, char *why, size_t why_bytes)
{
    struct stat st;
    *beside = NULL;
    if (stat(file, &st))
        return 0;
    json_error_t at;
    *beside = json_load_file(file, JSON_REJECT_DUPLICATES, &at);
    if (*beside && json_is_object(*beside))
        return 0;
    snprintf(why, why_bytes, "%s:%d: %s", file, *beside ? 1 : at.line,
             *beside ? "expected an object of keys" : at.text);
    json_decref(*beside);
    *beside = NULL;
    return -EINVAL;
}

static int said_set(kvb_recorded_reading *r, const char *said, char *why, size_t why_bytes)
{
    char key[32];
    const char *is = strchr(said, '=');
    if (!is || (size_t)(is - said) >= sizeof key)
        return kvb_why_set(-EINVAL, why, why_bytes, "'%s': expected KEY=VALUE", said);
    snprintf(key, sizeof key, "%.*s", (int)(is - said), said);
    return kvb_reading_set(r, key, is + 1, why, why_bytes);
}

static int call_describe(kvb_recorded *c, json_t *metadata, json_t *beside, const char *file, const char *const *said,
                         size_t n, char *why, size_t why_bytes)
{
    char line[512];
    kvb_recorded_reading *r = &c->reading;
    int error = metadata ? kvb_reading_set_all(r, metadata, true, line, sizeof line) : 0;
    if (error)
        return kvb_why_set(error, why, why_bytes, "%s: metadata: %s", c->path, line);
    json_t *own = json_object_get(json_object_get(beside, "calls"), c->name);
    error = beside ? kvb_reading_set_all(r, beside, false, line, sizeof line) : 0;
    if (!error && own)
        error = json_is_object(own) ? kvb_reading_set_all(r, own, false, line, sizeof line) : -EINVAL;
    if (error)
        return kvb_why_set(error, why, why_bytes, "%s: %s", file, line);
    for (size_t i = 0; i < n; i++)
        if ((error = said_set(r, said[i], line, sizeof line)) != 0)
            return kvb_why_set(error, why, why_bytes, "--say %s", line);
    const bool scans = r->recurrence != 0, conv = r->recurrence == 1 + KVB_SCAN_CONV;
    const char *unsaid = !scans && parts_of(c) & scans_alone ? "recurrence"
                         : !r->layout                        ? "layout"
                         : !scans && !r->causal              ? "causal"
                         : !conv && isnan(r->scale)          ? "scale"
                         : conv && !r->activation            ? "activation"
                         : !r->arithmetic                    ? "arithmetic"
                                                             : NULL;
    for (uint32_t i = 0; unsaid && kvb_reading_keys[i].name; i++)
        if (!strcmp(kvb_reading_keys[i].name, unsaid))
            return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s is not said: --say %s=VALUE, or \"%s\" in %s: %s",
                               c->path, unsaid, unsaid, unsaid, file, kvb_reading_keys[i].help);
    if (kvb_reading_arithmetic_check(r, line, sizeof line))
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: %s", c->path, line);
    return parts_check(c, why, why_bytes);
}

int kvb_recordings_open(const char *path, const char *inputs, const char *const *said, size_t n, kvb_recordings *r,
                        char *why, size_t why_bytes)
{
    char file[4096];
    json_t *beside = NULL;
    *r = (kvb_recordings){.n = 0};
    int error = kvb_tensors_open(path, &r->tensors, why, why_bytes);
    if (!error && inputs)
        error = kvb_tensors_open(inputs, &r->inputs, why, why_bytes);
    if (!error) {
        r->calls = calloc((size_t)r->tensors->n + 1, sizeof *r->calls);
        error = r->calls ? 0 : -ENOMEM;
    }
    error = error ? error : calls_collect(r, r->tensors, false, path, why, why_bytes);
    error = error || !inputs ? error : calls_collect(r, r->inputs, true, inputs, why, why_bytes);
    error = error ? error : calls_keep(r, path, why, why_bytes);
    kvb_recorded_beside(inputs ? inputs : path, file, sizeof file);
    error = error ? error : beside_read(file, &beside, why, why_bytes);
    json_t *metadata = !error && r->tensors->metadata ? json_loads(r->tensors->metadata, 0, NULL) : NULL;
    for (uint32_t i = 0; i < r->n && !error; i++)
        error = call_describe(&r->calls[i], metadata, beside, file, said, n, why, why_bytes);
    json_decref(beside);
    json_decref(metadata);
    if (error)
        kvb_recordings_close(r);
    return error;
}

void kvb_recordings_close(kvb_recordings *r)
{
    kvb_tensors_close(r->tensors);
    kvb_tensors_close(r->inputs);
    free(r->calls);
    *r = (kvb_recordings){.n = 0};
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* A shape that is filled in. The functions below return false, with why, if the arrays do not fit the reading. */
typedef struct fitting {
    const kvb_recorded *call;
    const kvb_recorded_reading *reading;
    kvb_recorded_shape *shape;
    char *why;
    size_t why_bytes;
} fitting;

/* The codec of k_format or v_format. */
static const kvb_codec *codec_of(uint32_t place)
{
    return place ? &kvb_codecs[place - 1] : NULL;
}

/* Does the array have so many axes? Then *axed is the array by these axes. */
static bool axed_make(const kvb_tensor *t, const char *axes, size_t n_axes, kvb_axed *axed)
{
    if (!t || t->n_dims != n_axes)
        return false;
    *axed = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    for (uint32_t i = 0; i < t->n_dims; i++) {
        const size_t axis = strcspn("bhsdp", (char[]){axes[i], 0}); /* in the order of KVB_AXIS_B, … */
        axed->n[axis] = t->dims[i];
        axed->stride[axis] = t->strides[i];
    }
    return true;
}

static bool is_float(kvb_dtype dtype)
{
    return dtype == KVB_DTYPE_F32 || dtype == KVB_DTYPE_F16 || dtype == KVB_DTYPE_BF16 || dtype == KVB_DTYPE_F64;
}

static bool refuse(const fitting *f, const char *what)
{
    return kvb_why_set(false, f->why, f->why_bytes, "%s: %s", f->call->path, what);
}

__attribute__((format(printf, 3, 4))) static bool wrong(const fitting *f, kvb_recorded_part part, const char *expected,
                                                        ...)
{
    const kvb_tensor *t = f->call->part[part];
    char words[256], dims[128] = "";
    va_list args;
    va_start(args, expected);
    vsnprintf(words, sizeof words, expected, args);
    va_end(args);
    for (uint32_t i = 0; t && i < t->n_dims; i++)
        kvb_list_add(dims, sizeof dims, ", ", "%llu", (unsigned long long)t->dims[i]);
    return kvb_why_set(false, f->why, f->why_bytes,
                       t ? "%s: array '%s' is %s [%s]: expected %s" : "%s: array '%s' is %s %s: expected %s",
                       f->call->path, t ? t->name : kvb_recorded_parts[part], t ? kvb_dtype_name(t->dtype) : "missing",
                       dims, words);
}

static bool axed_need(const fitting *f, kvb_recorded_part part, const char *axes, kvb_axed *axed)
{
    return axed_make(f->call->part[part], axes, strlen(axes), axed) ||
           wrong(f, part, "%zu axes, %s (b batch, h head, s token or cell, d channel, p page)", strlen(axes), axes);
}

/* Are all axes neither empty nor too long? */
static bool extents_check(const fitting *f, kvb_recorded_part part, const kvb_axed *a)
{
    bool good = true;
    for (uint32_t i = 0; i < KVB_AXES_OF_ARRAYS; i++)
        good = good && a->n[i] && a->n[i] <= INT32_MAX;
    return good || wrong(f, part, "axes of 1 to 2147483647");
}

static int64_t whole(const kvb_tensor *t, uint64_t i)
{
    const double x = kvb_tensor_value(t, i * (t->n_dims ? t->strides[t->n_dims - 1] : 0));
    return x >= -1 && x < 0x1p53 && x == floor(x) ? (int64_t)x : -1;
}

static bool is_index(kvb_dtype dtype)
{
    return dtype == KVB_DTYPE_I32 || dtype == KVB_DTYPE_I64 || dtype == KVB_DTYPE_U32 || dtype == KVB_DTYPE_U64 ||
           dtype == KVB_DTYPE_I16 || dtype == KVB_DTYPE_U16;
}

/* Checks cu_seqlens: begins with 0, never descends, ends with at most `all`. */
static bool joined_check(const fitting *f, kvb_recorded_part part, uint64_t all)
{
    const kvb_tensor *t = f->call->part[part];
    int64_t before = 0;
    bool good = t && t->n_dims == 1 && t->dims[0] >= 2 && is_index(t->dtype) && whole(t, 0) == 0;
    for (uint64_t i = 1; good && i < t->dims[0]; i++) {
        const int64_t now = whole(t, i);
        good = now >= before && (uint64_t)now <= all;
        before = now;
    }
    return good || wrong(f, part, "whole numbers, one more than there are sequences: 0, then ascending to at most %llu",
                         (unsigned long long)all);
}

static bool lengths_check(const fitting *f, uint64_t most)
{
    const kvb_tensor *t = f->call->part[KVB_RECORDED_LENGTHS];
    const uint32_t batch = f->shape->batch;
    bool good = t && t->n_dims == 1 && t->dims[0] == batch && is_index(t->dtype);
    for (uint64_t i = 0; good && i < batch; i++)
        good = whole(t, i) >= 0 && (uint64_t)whole(t, i) <= most && whole(t, i) <= INT32_MAX;
    return good || wrong(f, KVB_RECORDED_LENGTHS, "%u whole numbers from 0 to %llu, the cells of each sequence", batch,
                         (unsigned long long)most);
}

static bool table_check(const fitting *f)
{
    const kvb_recorded_shape *s = f->shape;
    const kvb_tensor *t = f->call->part[KVB_RECORDED_TABLE], *lengths = f->call->part[KVB_RECORDED_LENGTHS];
    if (!t || t->n_dims != 2 || t->dims[0] != s->batch || !is_index(t->dtype))
        return wrong(f, KVB_RECORDED_TABLE, "[%u sequences, pages of each] of whole numbers", s->batch);
    if (!lengths_check(f, t->dims[1] * s->page))
        return false;
    for (uint64_t b = 0; b < s->batch; b++)
        for (uint64_t i = 0; i * s->page < (uint64_t)whole(lengths, b); i++) {
            const double page = kvb_tensor_value(t, b * t->strides[0] + i * t->strides[1]);
            if (page >= 0 && page < (double)s->pages)
                continue;
            return kvb_why_set(false, f->why, f->why_bytes,
                               "%s: array '%s': sequence %llu, entry %llu is page %.0f: expected one of the %llu of K",
                               f->call->path, t->name, (unsigned long long)b, (unsigned long long)i, page,
                               (unsigned long long)s->pages);
        }
    return true;
}

/* Batch and pages of attention whose sequences lie one behind the other. */
static bool joined_shape(const fitting *f)
{
    kvb_recorded_shape *s = f->shape;
    const kvb_tensor *cu = f->call->part[KVB_RECORDED_CU_Q], *table = f->call->part[KVB_RECORDED_TABLE];
    s->batch = 1;
    if (cu) {
        if (!joined_check(f, KVB_RECORDED_CU_Q, s->q.n[KVB_AXIS_S]))
            return false;
        s->batch = (uint32_t)(cu->dims[0] - 1);
    } else if (s->layout->paged && table && table->n_dims == 2 && table->dims[0] == s->q.n[KVB_AXIS_S]) {
        s->batch = (uint32_t)table->dims[0]; /* one token for each sequence */
    } else {
        return wrong(f, KVB_RECORDED_CU_Q, "where each sequence's tokens begin, and the end of the last");
    }
    if (s->layout->paged) {
        s->page = (uint32_t)s->k.n[KVB_AXIS_S];
        s->pages = s->k.n[KVB_AXIS_P];
        return s->page ? table_check(f) : wrong(f, KVB_RECORDED_K, "pages of at least one cell");
    }
    return joined_check(f, KVB_RECORDED_CU_K, s->k.n[KVB_AXIS_S]) &&
           (f->call->part[KVB_RECORDED_CU_K]->dims[0] == s->batch + 1ull ||
            wrong(f, KVB_RECORDED_CU_K, "as many sequences as cu_seqlens_q has"));
}

/* Checks the channels of one side's rows. Rows of a codec: their bytes must fit `dim` channels. */
static bool channels_check(const fitting *f, int side, uint32_t dim)
{
    const kvb_recorded_part part = side ? KVB_RECORDED_V : KVB_RECORDED_K;
    const kvb_axed *a = side ? &f->shape->v : &f->shape->k;
    const kvb_codec *codec = f->shape->codec[side];
    if (codec) {
        const bool fits = dim % (codec->group && codec->group != KVB_GROUP_ROW ? codec->group : 1) == 0;
        const size_t bytes = fits ? kvb_codec_bytes(codec, dim, KVB_CODES) : 0;
        return (bytes && a->stride[KVB_AXIS_D] == 1 && bytes == a->n[KVB_AXIS_D] * kvb_dtype_bytes(a->tensor->dtype)) ||
               wrong(f, part, "rows of %zu bytes, %u channels of %s", bytes, dim, codec->name);
    }
    if (a->n[KVB_AXIS_D] != dim)
        return wrong(f, part, "%u channels, as %s has", dim, side ? "out" : "q");
    const kvb_dtype d = a->tensor->dtype;
    return is_float(d) || d == KVB_DTYPE_E4M3 || d == KVB_DTYPE_E5M2 || d == KVB_DTYPE_I8 ||
           wrong(f, part, "floats or int8; %c_format says what raw bytes are", side ? 'v' : 'k');
}

/* k_scale or v_scale: one factor, one for each KV head, or one for each row. */
static bool scale_shape(const fitting *f, int side)
{
    kvb_recorded_shape *s = f->shape;
    const kvb_recorded_part part = side ? KVB_RECORDED_V_SCALE : KVB_RECORDED_K_SCALE;
    const kvb_tensor *t = f->call->part[part];
    const size_t axes = strlen(s->layout->kv);
    kvb_axed *a = &s->scale[side];
    if (!t)
        return true;
    *a = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    if (t->elements == 1 && is_float(t->dtype))
        return true;
    if (t->n_dims == 1 && t->dims[0] == s->kv_heads && is_float(t->dtype)) {
        a->stride[KVB_AXIS_H] = t->strides[0];
        return true;
    }
    const kvb_axed *rows = side && !s->latent ? &s->v : &s->k;
    bool same = axed_make(t, s->layout->kv, axes - 1, a) && is_float(t->dtype);
    for (uint32_t i = 0; same && i < KVB_AXES_OF_ARRAYS; i++)
        same = i == KVB_AXIS_D || a->n[i] == rows->n[i];
    return same || wrong(f, part, "one factor, one for each KV head, or one for each row");
}

static bool lse_shape(const fitting *f)
{
    kvb_recorded_shape *s = f->shape;
    const kvb_tensor *t = f->call->part[KVB_RECORDED_LSE];
    const uint32_t said = f->reading->lse_layout;
    int found = 0;
    for (int i = 0; t && i < 2; i++) {
        const char *axes = s->layout->lse[i];
        kvb_axed a;
        const bool heads_first = strchr(axes, 'h') < strchr(axes, 's');
        if (said && (said == 1) != heads_first)
            continue;
        if (!axed_make(t, axes, strlen(axes), &a) || a.n[KVB_AXIS_B] != s->q.n[KVB_AXIS_B] ||
            a.n[KVB_AXIS_H] != s->heads || a.n[KVB_AXIS_S] != s->q.n[KVB_AXIS_S])
            continue;
        found++;
        s->lse = a;
    }
    return !t || (found == 1 && is_float(t->dtype)) ||
           wrong(f, KVB_RECORDED_LSE, "%s",
                 found > 1 ? "lse_layout to be said: as many heads as tokens" : "floats, one for each query and head");
}

static bool mask_shape(const fitting *f)
{
    kvb_recorded_shape *s = f->shape;
    const kvb_tensor *t = f->call->part[KVB_RECORDED_MASK];
    kvb_axed *a = &s->mask;
    if (!t)
        return true;
    *a = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    const uint32_t n = t->n_dims;
    const bool good = (n == 2 || (n == 3 && (t->dims[0] == 1 || t->dims[0] == s->batch)) ||
                       (n == 4 && (t->dims[0] == 1 || t->dims[0] == s->batch) && t->dims[1] == 1)) &&
                      !s->layout->joined && (t->dims[n - 2] == s->q.n[KVB_AXIS_S] || t->dims[n - 2] == 1) &&
                      t->dims[n - 1] == s->k.n[KVB_AXIS_S] &&
                      (is_float(t->dtype) || t->dtype == KVB_DTYPE_BOOL || t->dtype == KVB_DTYPE_U8);
    if (!good)
        return wrong(f, KVB_RECORDED_MASK,
                     "[tokens, cells], [batch, tokens, cells] or [batch, 1, tokens, cells], true or 0 where a query "
                     "sees a cell, false or -inf where not");
    a->stride[KVB_AXIS_B] = n > 2 && t->dims[0] > 1 ? t->strides[0] : 0;
    a->stride[KVB_AXIS_S] = t->dims[n - 2] > 1 ? t->strides[n - 2] : 0;
    a->stride[KVB_AXIS_D] = t->strides[n - 1];
    if (!is_float(t->dtype))
        return true;
    for (uint64_t b = 0; b < (n > 2 ? t->dims[0] : 1); b++)
        for (uint64_t i = 0; i < t->dims[n - 2]; i++)
            for (uint64_t j = 0; j < t->dims[n - 1]; j++) {
                const double x = kvb_tensor_value(t, kvb_axed_at(a, b, 0, i, 0, j));
                if (x != 0 && !(x <= -1e4))
                    return wrong(f, KVB_RECORDED_MASK, "0 or -inf: a bias of other values is no part of the contract");
            }
    return true;
}

static kvb_elem elem_of(const kvb_axed *a)
{
    return kvb_dtype_elem(a->tensor ? a->tensor->dtype : KVB_DTYPE_F32);
}

static bool attention_shape(const fitting *f)
{
    kvb_recorded_shape *s = f->shape;
    const kvb_recorded *c = f->call;
    const kvb_recorded_reading *r = f->reading;
    const kvb_layout *l = s->layout;
    if (!axed_need(f, KVB_RECORDED_Q, l->q, &s->q) || !axed_need(f, KVB_RECORDED_OUT, l->q, &s->out) ||
        !axed_need(f, KVB_RECORDED_K, l->kv, &s->k) || (!s->latent && !axed_need(f, KVB_RECORDED_V, l->kv, &s->v)) ||
        !extents_check(f, KVB_RECORDED_Q, &s->q) || !extents_check(f, KVB_RECORDED_K, &s->k))
        return false;
    s->batch = (uint32_t)s->q.n[KVB_AXIS_B];
    s->heads = (uint32_t)s->q.n[KVB_AXIS_H];
    s->kv_heads = (uint32_t)s->k.n[KVB_AXIS_H];
    s->k_dim = (uint32_t)s->q.n[KVB_AXIS_D];
    s->v_dim = (uint32_t)s->out.n[KVB_AXIS_D];
    if (c->part[KVB_RECORDED_Q_ROUNDED] &&
        (!axed_make(c->part[KVB_RECORDED_Q_ROUNDED], l->q, strlen(l->q), &s->q_rounded) ||
         memcmp(s->q_rounded.n, s->q.n, sizeof s->q.n) || !is_float(s->q_rounded.tensor->dtype)))
        return wrong(f, KVB_RECORDED_Q_ROUNDED, "floats, of the shape of q");
    for (uint32_t i = 0; i < KVB_AXES_OF_ARRAYS; i++) {
        if (i != KVB_AXIS_D && s->out.n[i] != s->q.n[i])
            return wrong(f, KVB_RECORDED_OUT, "as many sequences, tokens and heads as q has");
        if (i != KVB_AXIS_D && !s->latent && s->v.n[i] != s->k.n[i])
            return wrong(f, KVB_RECORDED_V, "as many sequences, cells and heads as k has");
    }
    if (s->heads % s->kv_heads)
        return wrong(f, KVB_RECORDED_K, "a number of heads that divides q's");
    if (!l->joined && s->k.n[KVB_AXIS_B] != s->batch)
        return wrong(f, KVB_RECORDED_K, "as many sequences as q has");
    const kvb_dtype q = s->q.tensor->dtype, out = s->out.tensor->dtype;
    if (!is_float(q) && q != KVB_DTYPE_E4M3 && q != KVB_DTYPE_E5M2)
        return wrong(f, KVB_RECORDED_Q, "floats");
    if (!is_float(out))
        return wrong(f, KVB_RECORDED_OUT, "f32, f16 or bf16");
    if (!s->v_dim || (s->latent && s->v_dim > s->k_dim))
        return wrong(f, KVB_RECORDED_V, "an array, unless V is the first channels of k");
    s->out_elem = elem_of(&s->out);
    const kvb_tensor *sinks = c->part[KVB_RECORDED_SINKS];
    if (sinks && (sinks->n_dims != 1 || sinks->dims[0] != s->heads || !is_float(sinks->dtype)))
        return wrong(f, KVB_RECORDED_SINKS, "one logit for each query head");
    if (!channels_check(f, 0, s->k_dim) || (!s->latent && !channels_check(f, 1, s->v_dim)) ||
        (l->joined ? !joined_shape(f) : c->part[KVB_RECORDED_LENGTHS] && !lengths_check(f, s->k.n[KVB_AXIS_S])) ||
        !scale_shape(f, 0) || !scale_shape(f, 1) || !lse_shape(f) || !mask_shape(f))
        return false;
    return (!(r->window > 0) && !(r->window_sinks > 0)) || r->causal != KVB_CAUSAL_NO ||
           refuse(f, "a window needs a causal call: expected causal lower-right or upper-left");
}

/* ---- shapes of scans --------------------------------------------------------------------------------------------- */

/* Reads an array as a state for each sequence and head. An axis of length 1 for sequences or heads may be missing. rows
 * 0: any number. turned: channels before rows. */
static bool state_make(const kvb_tensor *t, uint64_t batch, uint64_t heads, uint64_t rows, uint64_t columns,
                       bool turned, kvb_axed *a)
{
    const uint64_t lead[] = {batch, heads};
    uint32_t at = 0;
    *a = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    for (uint32_t axis = KVB_AXIS_B; axis <= KVB_AXIS_H && t->n_dims >= 2; axis++) {
        a->n[axis] = lead[axis];
        if (at + 2 < t->n_dims && t->dims[at] == lead[axis])
            a->stride[axis] = t->strides[at++];
        else if (lead[axis] != 1)
            return false;
    }
    if (at + 2 != t->n_dims)
        return false;
    const uint32_t row = at + turned, column = at + !turned;
    a->n[KVB_AXIS_P] = t->dims[row], a->stride[KVB_AXIS_P] = t->strides[row];
    a->n[KVB_AXIS_D] = t->dims[column], a->stride[KVB_AXIS_D] = t->strides[column];
    return (!rows || t->dims[row] == rows) && t->dims[column] == columns && is_float(t->dtype);
}

static bool state_need(const fitting *f, kvb_recorded_part part, uint32_t batch, uint32_t rows, kvb_axed *a)
{
    const kvb_recorded_shape *s = f->shape;
    const uint32_t said = f->reading->state_layout;
    int found = 0;
    for (uint32_t turned = 0; turned < 2; turned++) {
        kvb_axed one;
        if ((said && said - 1 != turned) ||
            !state_make(f->call->part[part], batch, s->heads, rows, s->v_dim, turned, &one))
            continue;
        found++;
        *a = one;
    }
    return found == 1 || (found ? wrong(f, part, "state_layout to be said: as many rows (d_k) as channels (d_v)")
                                : wrong(f, part, "floats of %u sequences, %u heads, %u rows (d_k) of %u channels (d_v)",
                                        batch, s->heads, rows, s->v_dim));
}

/* An array with one number for each token and head; each: for each channel, too. */
static bool gate_need(const fitting *f, kvb_recorded_part part, bool each, kvb_axed *a)
{
    const kvb_recorded_shape *s = f->shape;
    char axes[8] = "";
    for (const char *at = s->layout->q; *at; at++)
        if (each || *at != 'd')
            strncat(axes, at, 1);
    if (!axed_need(f, part, axes, a))
        return false;
    bool same = is_float(a->tensor->dtype);
    for (uint32_t axis = 0; axis < KVB_AXES_OF_ARRAYS && same; axis++)
        same = a->n[axis] == s->v.n[axis] || (axis == KVB_AXIS_D && !each);
    return same || wrong(f, part, "floats, as many sequences, tokens and heads as v has");
}

/* An array of [n] floats along axis h or d. */
static bool vector_need(const fitting *f, kvb_recorded_part part, uint32_t n, uint32_t axis, kvb_axed *a)
{
    const kvb_tensor *t = f->call->part[part];
    if (t->n_dims != 1 || t->dims[0] != n || !is_float(t->dtype))
        return wrong(f, part, "[%u] floats", n);
    *a = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    a->n[axis] = n;
    a->stride[axis] = t->strides[0];
    return true;
}

/* Axes of v and out, q and k. A convolution has v in the place of q and k. */
static bool scan_rows_shape(const fitting *f)
{
    kvb_recorded_shape *s = f->shape;
    const bool conv = s->scan.kind == KVB_SCAN_CONV, turned = f->reading->q_for_k;
    const struct {
        kvb_recorded_part part;
        kvb_axed *to;
    } rows[] = {{KVB_RECORDED_V, &s->v},
                {KVB_RECORDED_OUT, &s->out},
                {conv ? KVB_RECORDED_V : KVB_RECORDED_Q, turned ? &s->k : &s->q},
                {conv ? KVB_RECORDED_V : KVB_RECORDED_K, turned ? &s->q : &s->k}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kvb_axed *a = rows[i].to;
        if (!axed_need(f, rows[i].part, s->layout->q, a) || !extents_check(f, rows[i].part, a))
            return false;
        for (uint32_t axis = 0; axis < KVB_AXES_OF_ARRAYS; axis++) {
            const bool free = i > 1 && (axis == KVB_AXIS_H || axis == KVB_AXIS_D);
            if (a->n[axis] != (free ? rows[2].to->n[axis] : s->v.n[axis]))
                return wrong(f, rows[i].part, "%s",
                             i > 1 ? "as many sequences and tokens as v has, q and k alike" : "the shape of v");
        }
        if (!is_float(a->tensor->dtype))
            return wrong(f, rows[i].part, "f32, f16 or bf16");
    }
    return s->v.n[KVB_AXIS_H] % s->q.n[KVB_AXIS_H] == 0 ||
           wrong(f, KVB_RECORDED_K, "a number of heads that divides v's");
}

/* Taps, or decays: rows of them for each channel, or one for each head. */
static bool own_shape(const fitting *f)
{
    kvb_recorded_shape *s = f->shape;
    const kvb_scan_kind kind = s->scan.kind;
    if (kind == KVB_SCAN_CONV) { /* d_k from the number of taps */
        if (!state_need(f, KVB_RECORDED_A, 1, 0, &s->a))
            return false;
        s->k_dim = (uint32_t)s->a.n[KVB_AXIS_P] - 1;
        return s->a.n[KVB_AXIS_P] >= 2 || wrong(f, KVB_RECORDED_A, "at least 2 taps");
    }
    return !f->call->part[KVB_RECORDED_A] ||
           (kind == KVB_SCAN_MAMBA1 ? state_need(f, KVB_RECORDED_A, 1, s->k_dim, &s->a)
                                    : vector_need(f, KVB_RECORDED_A, s->heads, KVB_AXIS_H, &s->a));
}

static bool scan_shape(const fitting *f)
{
    kvb_recorded_shape *s = f->shape;
    const kvb_recorded *c = f->call;
    const kvb_recorded_reading *r = f->reading;
    const kvb_scan_kind kind = s->scan.kind = (kvb_scan_kind)(r->recurrence - 1);
    const uint32_t need = needed[r->recurrence];
    if (!scan_rows_shape(f))
        return false;
    if (r->k_format || r->v_format || r->k_scale != 1 || r->v_scale != 1 || r->window > 0 || r->softcap > 0)
        return refuse(f, "formats, k_scale, v_scale, window and softcap are for attention only");
    s->scans = true;
    s->heads = (uint32_t)s->v.n[KVB_AXIS_H];
    s->kv_heads = (uint32_t)s->q.n[KVB_AXIS_H];
    s->k_dim = (uint32_t)s->q.n[KVB_AXIS_D];
    s->v_dim = (uint32_t)s->v.n[KVB_AXIS_D];
    s->batch = (uint32_t)s->v.n[KVB_AXIS_B];
    if (s->layout->joined) {
        if (!joined_check(f, KVB_RECORDED_CU_Q, s->v.n[KVB_AXIS_S]))
            return false;
        s->batch = (uint32_t)(c->part[KVB_RECORDED_CU_Q]->dims[0] - 1);
    } else if (c->part[KVB_RECORDED_LENGTHS] && !lengths_check(f, s->v.n[KVB_AXIS_S]))
        return false;
    if (!own_shape(f) || (need & BIT(GATE) && !gate_need(f, KVB_RECORDED_GATE, kind == KVB_SCAN_MAMBA1, &s->gate)) ||
        (need & BIT(BETA) && !gate_need(f, KVB_RECORDED_BETA, false, &s->beta)) ||
        (kind == KVB_SCAN_CONV && c->part[KVB_RECORDED_BIAS] &&
         !vector_need(f, KVB_RECORDED_BIAS, s->v_dim, KVB_AXIS_D, &s->bias)))
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (c->part[KVB_RECORDED_INITIAL + i] &&
            !state_need(f, KVB_RECORDED_INITIAL + i, s->batch, s->k_dim, &s->states[i]))
            return false;
    s->out_elem = elem_of(&s->out);
    s->scan = (kvb_scan_problem){.kind = kind,
                                 .heads = s->heads,
                                 .groups = s->kv_heads,
                                 .d_k = s->k_dim,
                                 .d_v = s->v_dim,
                                 .state_elem = elem_of(&s->states[1]),
                                 .out_elem = s->out_elem,
                                 .silu = r->activation == 2};
    for (uint32_t b = 0; b < s->batch; b++) {
        kvb_recorded_sequence q;
        kvb_recorded_sequence_of(s, b, &q);
        const uint32_t n = q.cells > q.queries ? q.cells : q.queries;
        s->scan.n_tok = s->scan.run = n > s->scan.run ? n : s->scan.run;
    }
    return true;
}

int kvb_recorded_shape_of(const kvb_recorded *c, const kvb_recorded_reading *r, kvb_recorded_shape *s, char *why,
                          size_t why_bytes)
{
    const kvb_layout *l = &kvb_layouts[r->layout - 1];
    const fitting f = {c, r, s, why, why_bytes};
    *s = (kvb_recorded_shape){.call = c, .reading = r, .layout = l};
    if (r->recurrence ? l->paged : !l->lse[0])
        return kvb_why_set(-EINVAL, why, why_bytes, "%s: layout %s is for %s only", c->path, l->name,
                           l->paged ? "attention" : "scans");
    if (!r->recurrence) {
        s->codec[0] = codec_of(r->k_format);
        s->codec[1] = codec_of(r->v_format);
        s->latent = !c->part[KVB_RECORDED_V];
    }
    return (r->recurrence ? scan_shape : attention_shape)(&f) ? 0 : -EINVAL;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

void kvb_recorded_sequence_of(const kvb_recorded_shape *s, uint32_t b, kvb_recorded_sequence *q)
{
    const kvb_recorded *c = s->call;
    const kvb_recorded_reading *r = s->reading;
    const kvb_tensor *cu_q = c->part[KVB_RECORDED_CU_Q], *cu_k = s->scans ? cu_q : c->part[KVB_RECORDED_CU_K],
                     *lengths = c->part[KVB_RECORDED_LENGTHS];
    const uint32_t of = r->next_lengths ? (b + 1) % s->batch : b;
    uint64_t room = s->k.n[KVB_AXIS_S], cells = room;
    *q = (kvb_recorded_sequence){.queries = (uint32_t)s->q.n[KVB_AXIS_S]};
    if (s->layout->joined) {
        q->q_at = cu_q ? (uint64_t)whole(cu_q, b) : b;
        q->queries = cu_q ? (uint32_t)(whole(cu_q, b + 1) - whole(cu_q, b)) : 1;
    }
    if (s->layout->paged)
        room = c->part[KVB_RECORDED_TABLE]->dims[1] * s->page;
    else if (s->layout->joined) {
        q->k_at = (uint64_t)whole(cu_k, b);
        cells = (uint64_t)(whole(cu_k, of + 1) - whole(cu_k, of));
        room -= q->k_at;
    }
    if (lengths && (s->layout->paged || !s->layout->joined)) {
        cells = (uint64_t)whole(lengths, of);
        q->queries = s->scans ? (uint32_t)whole(lengths, b) : q->queries;
    }
    const int64_t more = (int64_t)cells + r->more_cells;
    cells = more < 0 ? 0 : (uint64_t)more;
    q->cells = (uint32_t)(cells < room ? cells : room);
}

void kvb_recorded_row(const kvb_recorded_shape *s, int side, uint32_t b, uint32_t kv_head,
                      const kvb_recorded_sequence *q, uint32_t cell, double *row, double *size)
{
    const kvb_recorded_reading *r = s->reading;
    const kvb_axed *a = side && !s->latent ? &s->v : &s->k;
    const kvb_codec *codec = s->codec[side && !s->latent];
    const kvb_axed *scale = &s->scale[side && !s->latent];
    const uint32_t dim = side ? s->v_dim : s->k_dim, stored = side && s->latent ? s->k_dim : dim;
    uint64_t at = q->k_at + cell, page = 0;
    if (s->layout->paged) {
        const kvb_tensor *table = s->call->part[KVB_RECORDED_TABLE];
        const uint32_t of = r->next_table ? (b + 1) % s->batch : b;
        const double named = kvb_tensor_value(table, of * table->strides[0] + cell / s->page * table->strides[1]);
        page =
            named >= 0 && named < (double)s->pages ? (uint64_t)named : 0; /* "one cell more" may lie behind the table */
        at = cell % s->page;
    }
    const uint64_t first = kvb_axed_at(a, b, kv_head, at, page, 0);
    double factor = side && !s->latent ? r->v_scale : r->k_scale;
    if (scale->tensor)
        factor *= kvb_tensor_value(scale->tensor, kvb_axed_at(scale, b, kv_head, at, page, 0));
    factor = r->no_scales ? 1 : factor;
    if (codec) {
        unsigned char *const parts[KVB_PARTS] = {(unsigned char *)(uintptr_t)a->tensor->data +
                                                 first * kvb_dtype_bytes(a->tensor->dtype)};
        kvb_codec_decode(codec, (const unsigned char *const *)parts, stored, 1, row, size);
    } else {
        for (uint32_t i = 0; i < dim; i++) {
            row[i] = kvb_tensor_value(a->tensor, first + i * a->stride[KVB_AXIS_D]);
            size[i] = fabs(row[i]);
        }
    }
    for (uint32_t i = 0; i < dim && factor != 1; i++) {
        row[i] *= factor;
        size[i] *= factor;
    }
}

bool kvb_recorded_unmasked(const kvb_recorded_shape *s, uint32_t b, uint32_t t, uint32_t cell)
{
    const kvb_axed *a = &s->mask;
    if (!a->tensor)
        return true;
    const double x = kvb_tensor_value(a->tensor, kvb_axed_at(a, b, 0, t, 0, cell));
    return is_float(a->tensor->dtype) ? x == 0 : x != 0;
}

void kvb_recorded_sees(const kvb_recorded_reading *r, const kvb_recorded_sequence *q, uint32_t t, uint32_t *sinks,
                       uint32_t *begin, uint32_t *end)
{
    const int64_t last = r->causal == KVB_CAUSAL_NO            ? q->cells
                         : r->causal == KVB_CAUSAL_LOWER_RIGHT ? (int64_t)q->cells - q->queries + t + 1
                                                               : (int64_t)t + 1;
    const int64_t to = last < 0 ? 0 : last < q->cells ? last : q->cells;
    int64_t from = r->window > 0 && to > (int64_t)r->window ? to - (int64_t)r->window : 0;
    int64_t kept = from < (int64_t)r->window_sinks ? from : (int64_t)r->window_sinks;
    if (r->fewer_cells) {
        from = from > r->fewer_cells ? from : r->fewer_cells;
        kept = 0;
    }
    *sinks = (uint32_t)kept;
    *begin = (uint32_t)(from < to ? from : to);
    *end = (uint32_t)to;
}
