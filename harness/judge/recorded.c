/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what arrays of a file are of, and gives rows of them. */
#include "harness/judge/recorded.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "oracle/claim.h"
#include "oracle/codec.h"

const char *const kvb_recorded_parts[KVB_RECORDED_PARTS] = {
    "q",           "k",       "v",      "out", "lse", "sinks", "mask", "lengths", "cu_seqlens_q", "cu_seqlens_k",
    "block_table", "k_scale", "v_scale"};

const kvb_layout kvb_layouts[] = {
    {"bhsd", "bhsd", "bhsd", {"bhs", "bsh"}, false, false, "batch, head, token, channel: torch's SDPA"},
    {"bshd", "bshd", "bshd", {"bhs", "bsh"}, false, false, "batch, token, head, channel: FlashAttention, JAX"},
    {"hsd", "hsd", "hsd", {"hs", "sh"}, false, false, "head, token, channel"},
    {"shd", "shd", "shd", {"sh", "hs"}, false, false, "token, head, channel"},
    {"thd",
     "shd",
     "shd",
     {"hs", "sh"},
     true,
     false,
     "sequences one behind the other, by cu_seqlens_q and cu_seqlens_k"},
    {"pages",
     "shd",
     "pshd",
     {"sh", "hs"},
     true,
     true,
     "K and V in pages: page, cell, head, channel; block_table, lengths"},
    {"pages-hnd", "shd", "phsd", {"sh", "hs"}, true, true, "the same: page, head, cell, channel"},
    {.name = NULL},
};

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

/* exp by a fast exp2, as ex2.approx.ftz.f32 (CUDA's PTX ISA: 2^-22.5 and flush to zero), after a rounded factor. */
/* Chains are those of plain loops. */
#define F32                                                                                                            \
    .dot_chain = UINT32_MAX, .cell_chain = UINT32_MAX, .rescales = UINT32_MAX, .accumulator = KVB_F32,                 \
    .exp_error = 0x1p-21, .exp_floor = 0x1p-126
const kvb_preset kvb_presets[] = {
    {"f32", "everything in f32, in any order", {F32}},
    {"flash-f16",
     "weights rounded to f16, sums in f32 (FlashAttention-2, mma.f32.f16)",
     {F32, .sums = {.rounding = KVB_F16}}},
    {"flash-bf16", "weights rounded to bf16, sums in f32 (FlashAttention-2)", {F32, .sums = {.rounding = KVB_BF16}}},
    {"flash-fp8", "weights rounded to e4m3, sums in f32 (FlashAttention-3)", {F32, .sums = {.rounding = KVB_E4M3}}},
    {"math-f16",
     "q and scores rounded to f16, weights stored in f16 (torch's math backend)",
     {F32, .query = {.rounding = KVB_F16}, .scores = {.rounding = KVB_F16, .chain = 1}, .sums = {.rounding = KVB_F16}}},
    {"math-bf16",
     "the same in bf16",
     {F32, .query = {.rounding = KVB_BF16}, .scores = {.rounding = KVB_BF16, .chain = 1},
      .sums = {.rounding = KVB_BF16}}},
    {"int8",
     "q and weights in steps of 1/127 of a row's largest (llama.cpp, SageAttention)",
     {F32, .query = {.step = 1 / 127.0}, .sums = {.step = 1 / 127.0}}},
    {"own", "a declaration in JSON: the fields of kvb_arithmetic in attend.h", {F32}},
    {.name = NULL},
};
#undef F32

/* What a declaration does not say. */
#define UNSAID UINT32_MAX

static uint32_t said_or(uint32_t said, uint32_t usual)
{
    return said == UNSAID ? usual : said;
}

void kvb_reading_arithmetic(const kvb_recorded_reading *reading, const kvb_problem *problem, kvb_arithmetic *arithmetic)
{
    const kvb_preset *preset = &kvb_presets[reading->arithmetic - 1];
    *arithmetic = strcmp(preset->name, "own") ? preset->arithmetic : reading->own;
    arithmetic->dot_chain = said_or(arithmetic->dot_chain, problem->k_dim);
    arithmetic->cell_chain = said_or(arithmetic->cell_chain, problem->n_cells + problem->has_sinks);
    arithmetic->rescales = said_or(arithmetic->rescales, problem->n_cells / 32 + 1); /* tiles of 32 cells and more */
}

static int rounding_read(json_t *object, kvb_rounding *rounding, const char *name, char *why, size_t why_bytes)
{
    static const char *const elems[] = {"f32", "f16", "bf16", "e4m3", "e5m2"};
    const char *elem = NULL;
    json_int_t chain = 0;
    if (!object)
        return 0;
    json_error_t at;
    if (json_unpack_ex(object, &at, JSON_STRICT, "{s?s, s?I, s?F, s?F}", "rounding", &elem, "chain", &chain, "step",
                       &rounding->step, "floor", &rounding->floor)) {
        snprintf(why, why_bytes, "arithmetic: %s: %s; it has rounding, chain, step, floor", name, at.text);
        return -EINVAL;
    }
    size_t i = 0;
    while (elem && i < sizeof elems / sizeof *elems && strcmp(elem, elems[i]))
        i++;
    if (i == sizeof elems / sizeof *elems || chain < 0 || chain > UINT32_MAX) {
        snprintf(why, why_bytes, "arithmetic: %s: rounding is f32, f16, bf16, e4m3 or e5m2, chain a number from 0 on",
                 name);
        return -EINVAL;
    }
    rounding->rounding = (kvb_elem)i; /* in the order of kvb_elem */
    rounding->chain = (uint32_t)chain;
    return 0;
}

static int arithmetic_read(const char *text, kvb_arithmetic *a, char *why, size_t why_bytes)
{
    json_error_t at;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &at), *query = NULL, *scores = NULL, *sums = NULL;
    json_int_t dots = UNSAID, cells = UNSAID, rescales = UNSAID;
    int error = 0;
    *a = kvb_presets[0].arithmetic;
    if (!root || json_unpack_ex(root, &at, JSON_STRICT, "{s?I, s?I, s?I, s?F, s?F, s?o, s?o, s?o}", "dot_chain", &dots,
                                "cell_chain", &cells, "rescales", &rescales, "exp_error", &a->exp_error, "exp_floor",
                                &a->exp_floor, "query", &query, "scores", &scores, "sums", &sums)) {
        snprintf(why, why_bytes,
                 "arithmetic: %s; a declaration has dot_chain, cell_chain, rescales, exp_error, exp_floor, query, "
                 "scores, sums",
                 at.text);
        error = -EINVAL;
    } else if (dots < 0 || cells < 0 || rescales < 0 || dots > UINT32_MAX || cells > UINT32_MAX ||
               rescales > UINT32_MAX) {
        snprintf(why, why_bytes, "arithmetic: chains and rescales are numbers from 0 on");
        error = -EINVAL;
    } else if (a->exp_error > 0.1) { /* beyond it the bound has no number */
        snprintf(why, why_bytes, "arithmetic: exp_error is at most 0.1");
        error = -EINVAL;
    }
    a->dot_chain = (uint32_t)dots;
    a->cell_chain = (uint32_t)cells;
    a->rescales = (uint32_t)rescales;
    error = error ? error : rounding_read(query, &a->query, "query", why, why_bytes);
    error = error ? error : rounding_read(scores, &a->scores, "scores", why, why_bytes);
    error = error ? error : rounding_read(sums, &a->sums, "sums", why, why_bytes);
    json_decref(root);
    return error ? error : kvb_claim_check(a, why, why_bytes);
}

/* ---- the keys of a description ----------------------------------------------------------------------------------- */

static const char *const causals[] = {"no", "lower-right", "upper-left", NULL};
static const char *const bases[] = {"e", "2", NULL};
static const char *const lse_layouts[] = {"heads-first", "tokens-first", NULL};

const kvb_reading_key kvb_reading_keys[] = {
    {"layout", "axes of the arrays: bhsd, bshd, hsd, shd, thd, pages, pages-hnd (required)"},
    {"causal", "no; lower-right: the last query sees the last cell; upper-left: query i sees cells 0 to i (required)"},
    {"scale", "factor on q.k: a number, or 1/sqrt(d) (required)"},
    {"arithmetic", "what the kernel rounds: a preset, or a declaration in JSON (required)"},
    {"window", "cells that a query sees at most, its own among them (0: all)"},
    {"window_sinks", "cells at the beginning that a window keeps (0)"},
    {"softcap", "logits become softcap tanh(x / softcap) (0: none)"},
    {"lse_base", "e (usual) or 2: of the log-sum-exp"},
    {"lse_layout", "heads-first or tokens-first, where its shape does not tell"},
    {"q_scale", "factor on all elements of q (1)"},
    {"k_scale", "factor on all elements of K (1); an array k_scale has one for each head, or for each row"},
    {"v_scale", "the same of V"},
    {"k_format", "what raw bytes of K are: e4m3, e5m2, bf16, f16, q8_0, q4_0, … (the array's type)"},
    {"v_format", "the same of V"},
    {NULL, NULL},
};

/* Codecs whose rows are codes alone, so that an array can hold them. */
static const kvb_codec *codec_of(uint32_t place)
{
    return place ? kvb_codecs[place - 1] : NULL;
}

static int word_set(uint32_t *field, const char *const *words, const char *value)
{
    for (uint32_t i = 0; words[i]; i++)
        if (!strcmp(words[i], value)) {
            *field = i + 1;
            return 0;
        }
    return -EINVAL;
}

static int number_set(double *field, const char *value, double least)
{
    char *end;
    const double x = strtod(value, &end);
    if (end == value || *end || !isfinite(x) || !(x >= least))
        return -EINVAL;
    *field = x;
    return 0;
}

static int count_set(double *field, const char *value)
{
    return number_set(field, value, 0) || *field != floor(*field) || *field > INT32_MAX ? -EINVAL : 0;
}

static int format_set(uint32_t *field, const char *value)
{
    for (uint32_t i = 0; kvb_codecs[i]; i++) {
        const kvb_codec *c = kvb_codecs[i];
        if (!strcmp(c->name, value) && c->block == 1 && !c->bytes(c, 256, KVB_SCALES) && !c->bytes(c, 256, KVB_ZEROS)) {
            *field = i + 1;
            return 0;
        }
    }
    return -EINVAL;
}

static int arithmetic_set(kvb_recorded_reading *r, const char *value, char *why, size_t why_bytes)
{
    uint32_t i = 0;
    while (kvb_presets[i].name && strcmp(kvb_presets[i].name, *value == '{' ? "own" : value))
        i++;
    r->arithmetic = i + 1;
    if (*value == '{')
        return arithmetic_read(value, &r->own, why, why_bytes);
    return kvb_presets[i].name && kvb_presets[i + 1].name ? 0 : -EINVAL;
}

static int layout_set(kvb_recorded_reading *r, const char *value)
{
    for (uint32_t i = 0; kvb_layouts[i].name; i++)
        if (!strcmp(kvb_layouts[i].name, value)) {
            r->layout = i + 1;
            return 0;
        }
    return -EINVAL;
}

int kvb_reading_set(kvb_recorded_reading *r, const char *key, const char *value, char *why, size_t why_bytes)
{
    uint32_t i = 0, word = 0;
    int error = -EINVAL;
    why[0] = '\0';
    while (kvb_reading_keys[i].name && strcmp(kvb_reading_keys[i].name, key))
        i++;
    if (!kvb_reading_keys[i].name) {
        size_t n = (size_t)snprintf(why, why_bytes, "unknown key '%s'; known:", key);
        for (i = 0; kvb_reading_keys[i].name && n < why_bytes; i++)
            n += (size_t)snprintf(why + n, why_bytes - n, " %s", kvb_reading_keys[i].name);
        return -EINVAL;
    }
    if (!strcmp(key, "layout"))
        error = layout_set(r, value);
    else if (!strcmp(key, "causal")) {
        error = word_set(&word, causals, value);
        r->causal = (kvb_causal)word;
    } else if (!strcmp(key, "scale"))
        error = strcmp(value, "1/sqrt(d)") ? number_set(&r->scale, value, 0x1p-126) : (r->scale = KVB_SCALE_ROOT, 0);
    else if (!strcmp(key, "arithmetic"))
        error = arithmetic_set(r, value, why, why_bytes);
    else if (!strcmp(key, "window") || !strcmp(key, "window_sinks"))
        error = count_set(strcmp(key, "window") ? &r->window_sinks : &r->window, value);
    else if (!strcmp(key, "softcap"))
        error = number_set(&r->softcap, value, 0);
    else if (!strcmp(key, "lse_base"))
        error = word_set(&r->lse_base, bases, value);
    else if (!strcmp(key, "lse_layout"))
        error = word_set(&r->lse_layout, lse_layouts, value);
    else if (!strcmp(key, "k_format") || !strcmp(key, "v_format"))
        error = format_set(*key == 'k' ? &r->k_format : &r->v_format, value);
    else
        error = number_set(*key == 'q' ? &r->q_scale : *key == 'k' ? &r->k_scale : &r->v_scale, value, 0x1p-126);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s: '%s' is none; expected %s", key, value, kvb_reading_keys[i].help);
    return error;
}

/* A value as text. */
static int json_set(kvb_recorded_reading *r, const char *key, json_t *value, char *why, size_t why_bytes)
{
    char *dumped = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *text = json_is_string(value) ? json_string_value(value) : dumped;
    const int error = text ? kvb_reading_set(r, key, text, why, why_bytes) : -ENOMEM;
    free(dumped);
    return error;
}

/* Keys of an object, but "calls" and what is not ours of a safetensors file's metadata. */
static int object_set(kvb_recorded_reading *r, json_t *object, bool lenient, char *why, size_t why_bytes)
{
    const char *key;
    json_t *value;
    int error = 0;
    json_object_foreach(object, key, value)
    {
        bool known = false;
        for (uint32_t i = 0; kvb_reading_keys[i].name; i++)
            known = known || !strcmp(kvb_reading_keys[i].name, key);
        if (error || (lenient && !known) || !strcmp(key, "calls"))
            continue;
        error = json_set(r, key, value, why, why_bytes);
    }
    return error;
}

/* ---- calls of a file --------------------------------------------------------------------------------------------- */

/* The call that an array belongs to, and as what: "a/b.q" is q of "a/b". KVB_RECORDED_PARTS: no part of a call. */
static kvb_recorded_part part_of(const char *name, size_t *call)
{
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    const char *at = dot > slash ? dot : slash;
    *call = at ? (size_t)(at - name) : 0;
    at = at ? at + 1 : name;
    uint32_t part = 0;
    while (part < KVB_RECORDED_PARTS && strcmp(kvb_recorded_parts[part], at))
        part++;
    return (kvb_recorded_part)part;
}

/* The call of this name, a new one if path is given. */
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
            continue; /* somebody else's */
        if (bytes >= sizeof r->calls->name) {
            snprintf(why, why_bytes, "%s: array '%s': a call's name has at most %zu letters", path, t->list[i].name,
                     sizeof r->calls->name - 1);
            return -EINVAL;
        }
        kvb_recorded *c = call_find(r, t->list[i].name, bytes, only_known ? NULL : path);
        if (c && !c->part[part])
            c->part[part] = &t->list[i];
    }
    return 0;
}

static int calls_check(const kvb_recordings *r, const char *path, char *why, size_t why_bytes)
{
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t part = 0; part <= KVB_RECORDED_OUT; part++)
            if (!r->calls[i].part[part] && part != KVB_RECORDED_V) {
                snprintf(why, why_bytes, "%s: %s%s%sno array '%s'; a call has q, k, v and out", path,
                         *r->calls[i].name ? "call '" : "", r->calls[i].name, *r->calls[i].name ? "': " : "",
                         kvb_recorded_parts[part]);
                return -EINVAL;
            }
    if (!r->n) {
        snprintf(why, why_bytes, "%s: no arrays q, k, v and out in it", path);
        return -EINVAL;
    }
    return 0;
}

void kvb_recorded_beside(const char *path, char *file, size_t bytes)
{
    struct stat st;
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    const bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    const int stem = dot > slash && !folder ? (int)(dot - path) : (int)strlen(path);
    snprintf(file, bytes, folder ? "%.*s/describe.json" : "%.*s.json", stem, path);
}

/* The description beside a file; NULL where there is none. */
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
    if (!is || (size_t)(is - said) >= sizeof key) {
        snprintf(why, why_bytes, "'%s': expected KEY=VALUE", said);
        return -EINVAL;
    }
    snprintf(key, sizeof key, "%.*s", (int)(is - said), said);
    return kvb_reading_set(r, key, is + 1, why, why_bytes);
}

static int call_describe(kvb_recorded *c, json_t *metadata, json_t *beside, const char *file, const char *const *said,
                         size_t n, char *why, size_t why_bytes)
{
    char line[512];
    kvb_recorded_reading *r = &c->reading;
    int error = metadata ? object_set(r, metadata, true, line, sizeof line) : 0;
    if (error) {
        snprintf(why, why_bytes, "%s: metadata: %s", c->path, line);
        return error;
    }
    json_t *own = json_object_get(json_object_get(beside, "calls"), c->name);
    error = beside ? object_set(r, beside, false, line, sizeof line) : 0;
    if (!error && own)
        error = json_is_object(own) ? object_set(r, own, false, line, sizeof line) : -EINVAL;
    if (error) {
        snprintf(why, why_bytes, "%s: %s", file, line);
        return error;
    }
    for (size_t i = 0; i < n; i++)
        if ((error = said_set(r, said[i], line, sizeof line)) != 0) {
            snprintf(why, why_bytes, "--say %s", line);
            return error;
        }
    const char *unsaid = !r->layout        ? "layout"
                         : !r->causal      ? "causal"
                         : isnan(r->scale) ? "scale"
                         : !r->arithmetic  ? "arithmetic"
                                           : NULL;
    for (uint32_t i = 0; unsaid && kvb_reading_keys[i].name; i++)
        if (!strcmp(kvb_reading_keys[i].name, unsaid)) {
            snprintf(why, why_bytes, "%s: %s is not said: --say %s=VALUE, or \"%s\" in %s: %s", c->path, unsaid, unsaid,
                     unsaid, file, kvb_reading_keys[i].help);
            return -EINVAL;
        }
    return 0;
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
    error = error ? error : calls_check(r, path, why, why_bytes);
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

static uint32_t axis_of(char letter)
{
    return letter == 'b'   ? KVB_AXIS_B
           : letter == 'h' ? KVB_AXIS_H
           : letter == 's' ? KVB_AXIS_S
           : letter == 'd' ? KVB_AXIS_D
                           : KVB_AXIS_P;
}

/* Does the array have these axes? */
static bool axed_make(const kvb_tensor *t, const char *axes, size_t n_axes, kvb_axed *axed)
{
    if (!t || t->n_dims != n_axes)
        return false;
    *axed = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    for (uint32_t i = 0; i < t->n_dims; i++) {
        axed->n[axis_of(axes[i])] = t->dims[i];
        axed->stride[axis_of(axes[i])] = t->strides[i];
    }
    return true;
}

static bool is_float(kvb_dtype dtype)
{
    return dtype == KVB_DTYPE_F32 || dtype == KVB_DTYPE_F16 || dtype == KVB_DTYPE_BF16 || dtype == KVB_DTYPE_F64;
}

/* "[2, 8, 128]" */
static const char *dims_words(const kvb_tensor *t, char words[128])
{
    size_t n = (size_t)snprintf(words, 128, "[");
    for (uint32_t i = 0; i < t->n_dims && n < 100; i++)
        n += (size_t)snprintf(words + n, 128 - n, i ? ", %llu" : "%llu", (unsigned long long)t->dims[i]);
    snprintf(words + n, 128 - n, "]");
    return words;
}

static int wrong(const kvb_recorded *c, kvb_recorded_part part, const char *expected, char *why, size_t why_bytes)
{
    char words[128];
    const kvb_tensor *t = c->part[part];
    snprintf(why, why_bytes, "%s: array '%s' is %s %s: expected %s", c->path, t ? t->name : kvb_recorded_parts[part],
             t ? kvb_dtype_name(t->dtype) : "missing", t ? dims_words(t, words) : "", expected);
    return -EINVAL;
}

static int axed_need(const kvb_recorded *c, kvb_recorded_part part, const char *axes, kvb_axed *axed, char *why,
                     size_t why_bytes)
{
    char words[160];
    if (axed_make(c->part[part], axes, strlen(axes), axed))
        return 0;
    snprintf(words, sizeof words, "%zu axes, %s (b batch, h head, s token or cell, d channel, p page)", strlen(axes),
             axes);
    return wrong(c, part, words, why, why_bytes);
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

/* cu_seqlens: 0, then never less, to at most `all`. */
static int joined_check(const kvb_recorded *c, kvb_recorded_part part, uint64_t all, char *why, size_t why_bytes)
{
    const kvb_tensor *t = c->part[part];
    char words[128];
    int64_t before = 0;
    bool good = t && t->n_dims == 1 && t->dims[0] >= 2 && is_index(t->dtype) && whole(t, 0) == 0;
    for (uint64_t i = 1; good && i < t->dims[0]; i++) {
        const int64_t now = whole(t, i);
        good = now >= before && (uint64_t)now <= all;
        before = now;
    }
    snprintf(words, sizeof words, "whole numbers, one more than there are sequences: 0, then ascending to at most %llu",
             (unsigned long long)all);
    return good ? 0 : wrong(c, part, words, why, why_bytes);
}

static int lengths_check(const kvb_recorded *c, const kvb_recorded_shape *s, uint64_t most, char *why, size_t why_bytes)
{
    const kvb_tensor *t = c->part[KVB_RECORDED_LENGTHS];
    char words[128];
    bool good = t && t->n_dims == 1 && t->dims[0] == s->batch && is_index(t->dtype);
    for (uint64_t i = 0; good && i < s->batch; i++)
        good = whole(t, i) >= 0 && (uint64_t)whole(t, i) <= most && whole(t, i) <= INT32_MAX;
    snprintf(words, sizeof words, "%u whole numbers from 0 to %llu, the cells of each sequence", s->batch,
             (unsigned long long)most);
    return good ? 0 : wrong(c, KVB_RECORDED_LENGTHS, words, why, why_bytes);
}

static int table_check(const kvb_recorded *c, const kvb_recorded_shape *s, char *why, size_t why_bytes)
{
    const kvb_tensor *t = c->part[KVB_RECORDED_TABLE];
    char words[160];
    snprintf(words, sizeof words, "[%u sequences, pages of each] of whole numbers", s->batch);
    if (!t || t->n_dims != 2 || t->dims[0] != s->batch || !is_index(t->dtype))
        return wrong(c, KVB_RECORDED_TABLE, words, why, why_bytes);
    const int error = lengths_check(c, s, t->dims[1] * s->page, why, why_bytes);
    for (uint64_t b = 0; b < s->batch && !error; b++)
        for (uint64_t i = 0; i * s->page < (uint64_t)whole(c->part[KVB_RECORDED_LENGTHS], b); i++) {
            const double page = kvb_tensor_value(t, b * t->strides[0] + i * t->strides[1]);
            if (page >= 0 && page < (double)s->pages)
                continue;
            snprintf(why, why_bytes,
                     "%s: array '%s': sequence %llu, entry %llu is page %.0f: expected one of the %llu of K", c->path,
                     t->name, (unsigned long long)b, (unsigned long long)i, page, (unsigned long long)s->pages);
            return -EINVAL;
        }
    return error;
}

/* Axes, and batch, of sequences one behind the other. */
static int joined_shape(const kvb_recorded *c, kvb_recorded_shape *s, char *why, size_t why_bytes)
{
    const kvb_tensor *cu = c->part[KVB_RECORDED_CU_Q], *table = c->part[KVB_RECORDED_TABLE];
    s->batch = 1;
    if (cu) {
        const int error = joined_check(c, KVB_RECORDED_CU_Q, s->q.n[KVB_AXIS_S], why, why_bytes);
        if (error)
            return error;
        s->batch = (uint32_t)(cu->dims[0] - 1);
    } else if (s->layout->paged && table && table->n_dims == 2 && table->dims[0] == s->q.n[KVB_AXIS_S]) {
        s->batch = (uint32_t)table->dims[0]; /* one token of each */
    } else {
        return wrong(c, KVB_RECORDED_CU_Q, "where each sequence's tokens begin, and the end of the last", why,
                     why_bytes);
    }
    if (s->layout->paged) {
        s->page = (uint32_t)s->k.n[KVB_AXIS_S];
        s->pages = s->k.n[KVB_AXIS_P];
        return s->page ? table_check(c, s, why, why_bytes)
                       : wrong(c, KVB_RECORDED_K, "pages of at least one cell", why, why_bytes);
    }
    const int error = joined_check(c, KVB_RECORDED_CU_K, s->k.n[KVB_AXIS_S], why, why_bytes);
    return error || c->part[KVB_RECORDED_CU_K]->dims[0] == s->batch + 1ull
               ? error
               : wrong(c, KVB_RECORDED_CU_K, "as many sequences as cu_seqlens_q has", why, why_bytes);
}

/* The channels of rows of one side: of blocks, those of the other arrays. */
static int channels_check(const kvb_recorded *c, kvb_recorded_shape *s, int side, uint32_t dim, char *why,
                          size_t why_bytes)
{
    const kvb_recorded_part part = side ? KVB_RECORDED_V : KVB_RECORDED_K;
    const kvb_axed *a = side ? &s->v : &s->k;
    const kvb_codec *codec = s->codec[side];
    char words[200];
    if (codec) {
        const bool fits = dim % (codec->group && codec->group != KVB_GROUP_ROW ? codec->group : 1) == 0;
        const size_t bytes = fits ? codec->bytes(codec, dim, KVB_CODES) : 0;
        if (bytes && a->stride[KVB_AXIS_D] == 1 && bytes == a->n[KVB_AXIS_D] * kvb_dtype_bytes(a->tensor->dtype))
            return 0;
        snprintf(words, sizeof words, "rows of %zu bytes, %u channels of %s", bytes, dim, codec->name);
        return wrong(c, part, words, why, why_bytes);
    }
    snprintf(words, sizeof words, "%u channels, as %s has", dim, side ? "out" : "q");
    if (a->n[KVB_AXIS_D] != dim)
        return wrong(c, part, words, why, why_bytes);
    const kvb_dtype d = a->tensor->dtype;
    return is_float(d) || d == KVB_DTYPE_E4M3 || d == KVB_DTYPE_E5M2 || d == KVB_DTYPE_I8
               ? 0
               : wrong(c, part,
                       side ? "floats or int8; v_format says what raw bytes are"
                            : "floats or int8; k_format says what raw bytes are",
                       why, why_bytes);
}

/* Factors of rows or heads. */
static int scale_shape(const kvb_recorded *c, kvb_recorded_shape *s, int side, char *why, size_t why_bytes)
{
    const kvb_recorded_part part = side ? KVB_RECORDED_V_SCALE : KVB_RECORDED_K_SCALE;
    const kvb_tensor *t = c->part[part];
    const size_t axes = strlen(s->layout->kv);
    kvb_axed *a = &s->scale[side];
    if (!t)
        return 0;
    *a = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    if (t->elements == 1 && is_float(t->dtype))
        return 0;
    if (t->n_dims == 1 && t->dims[0] == s->kv_heads && is_float(t->dtype)) {
        a->stride[KVB_AXIS_H] = t->strides[0];
        return 0;
    }
    const kvb_axed *rows = side && !s->latent ? &s->v : &s->k;
    bool same = axed_make(t, s->layout->kv, axes - 1, a) && is_float(t->dtype);
    for (uint32_t i = 0; same && i < KVB_AXES_OF_ARRAYS; i++)
        same = i == KVB_AXIS_D || a->n[i] == rows->n[i];
    return same ? 0 : wrong(c, part, "one factor, one for each KV head, or one for each row", why, why_bytes);
}

static int lse_shape(const kvb_recorded *c, const kvb_recorded_reading *r, kvb_recorded_shape *s, char *why,
                     size_t why_bytes)
{
    const kvb_tensor *t = c->part[KVB_RECORDED_LSE];
    int found = 0;
    for (int i = 0; t && i < 2; i++) {
        const char *axes = s->layout->lse[i];
        kvb_axed a;
        const bool heads_first = strchr(axes, 'h') < strchr(axes, 's');
        if (r->lse_layout && (r->lse_layout == 1) != heads_first)
            continue;
        if (!axed_make(t, axes, strlen(axes), &a) || a.n[KVB_AXIS_B] != s->q.n[KVB_AXIS_B] ||
            a.n[KVB_AXIS_H] != s->heads || a.n[KVB_AXIS_S] != s->q.n[KVB_AXIS_S])
            continue;
        found++;
        s->lse = a;
    }
    if (t && found == 1 && is_float(t->dtype))
        return 0;
    return !t ? 0
              : wrong(c, KVB_RECORDED_LSE,
                      found > 1 ? "lse_layout to be said: as many heads as tokens"
                                : "floats, one for each query and head",
                      why, why_bytes);
}

static int mask_shape(const kvb_recorded *c, kvb_recorded_shape *s, char *why, size_t why_bytes)
{
    const kvb_tensor *t = c->part[KVB_RECORDED_MASK];
    kvb_axed *a = &s->mask;
    if (!t)
        return 0;
    *a = (kvb_axed){.tensor = t, .n = {1, 1, 1, 1, 1}};
    const uint32_t n = t->n_dims;
    const bool good = (n == 2 || (n == 3 && (t->dims[0] == 1 || t->dims[0] == s->batch)) ||
                       (n == 4 && (t->dims[0] == 1 || t->dims[0] == s->batch) && t->dims[1] == 1)) &&
                      !s->layout->joined && (t->dims[n - 2] == s->q.n[KVB_AXIS_S] || t->dims[n - 2] == 1) &&
                      t->dims[n - 1] == s->k.n[KVB_AXIS_S] &&
                      (is_float(t->dtype) || t->dtype == KVB_DTYPE_BOOL || t->dtype == KVB_DTYPE_U8);
    if (!good)
        return wrong(c, KVB_RECORDED_MASK,
                     "[tokens, cells], [batch, tokens, cells] or [batch, 1, tokens, cells], true or 0 where a query "
                     "sees a cell, false or -inf where not",
                     why, why_bytes);
    a->stride[KVB_AXIS_B] = n > 2 && t->dims[0] > 1 ? t->strides[0] : 0;
    a->stride[KVB_AXIS_S] = t->dims[n - 2] > 1 ? t->strides[n - 2] : 0;
    a->stride[KVB_AXIS_D] = t->strides[n - 1];
    if (!is_float(t->dtype))
        return 0;
    for (uint64_t b = 0; b < (n > 2 ? t->dims[0] : 1); b++)
        for (uint64_t i = 0; i < t->dims[n - 2]; i++)
            for (uint64_t j = 0; j < t->dims[n - 1]; j++) {
                const double x = kvb_tensor_value(t, b * a->stride[KVB_AXIS_B] + i * a->stride[KVB_AXIS_S] +
                                                         j * a->stride[KVB_AXIS_D]);
                if (x != 0 && !(x <= -1e4))
                    return wrong(c, KVB_RECORDED_MASK, "0 or -inf: a bias of other values is no part of the contract",
                                 why, why_bytes);
            }
    return 0;
}

int kvb_recorded_shape_of(const kvb_recorded *c, const kvb_recorded_reading *r, kvb_recorded_shape *s, char *why,
                          size_t why_bytes)
{
    const kvb_layout *l = &kvb_layouts[r->layout - 1];
    *s = (kvb_recorded_shape){
        .layout = l, .codec = {codec_of(r->k_format), codec_of(r->v_format)}, .latent = !c->part[KVB_RECORDED_V]};
    int error = axed_need(c, KVB_RECORDED_Q, l->q, &s->q, why, why_bytes);
    error = error ? error : axed_need(c, KVB_RECORDED_OUT, l->q, &s->out, why, why_bytes);
    error = error ? error : axed_need(c, KVB_RECORDED_K, l->kv, &s->k, why, why_bytes);
    error = error || s->latent ? error : axed_need(c, KVB_RECORDED_V, l->kv, &s->v, why, why_bytes);
    if (error)
        return error;
    for (uint32_t i = 0; i < KVB_AXES_OF_ARRAYS; i++)
        if (s->q.n[i] > INT32_MAX || s->k.n[i] > INT32_MAX || !s->q.n[i] || !s->k.n[i])
            return wrong(c, s->q.n[i] > INT32_MAX || !s->q.n[i] ? KVB_RECORDED_Q : KVB_RECORDED_K,
                         "axes of 1 to 2147483647", why, why_bytes);
    s->batch = (uint32_t)s->q.n[KVB_AXIS_B];
    s->heads = (uint32_t)s->q.n[KVB_AXIS_H];
    s->kv_heads = (uint32_t)s->k.n[KVB_AXIS_H];
    s->k_dim = (uint32_t)s->q.n[KVB_AXIS_D];
    s->v_dim = (uint32_t)s->out.n[KVB_AXIS_D];
    for (uint32_t i = 0; i < KVB_AXES_OF_ARRAYS; i++) {
        if (i != KVB_AXIS_D && s->out.n[i] != s->q.n[i])
            return wrong(c, KVB_RECORDED_OUT, "as many sequences, tokens and heads as q has", why, why_bytes);
        if (i != KVB_AXIS_D && !s->latent && s->v.n[i] != s->k.n[i])
            return wrong(c, KVB_RECORDED_V, "as many sequences, cells and heads as k has", why, why_bytes);
    }
    if (s->heads % s->kv_heads)
        return wrong(c, KVB_RECORDED_K, "a number of heads that divides q's", why, why_bytes);
    if (!l->joined && s->k.n[KVB_AXIS_B] != s->batch)
        return wrong(c, KVB_RECORDED_K, "as many sequences as q has", why, why_bytes);
    const kvb_dtype q = s->q.tensor->dtype, out = s->out.tensor->dtype;
    if (!is_float(q) && q != KVB_DTYPE_E4M3 && q != KVB_DTYPE_E5M2)
        return wrong(c, KVB_RECORDED_Q, "floats", why, why_bytes);
    if (!is_float(out))
        return wrong(c, KVB_RECORDED_OUT, "f32, f16 or bf16", why, why_bytes);
    if (!s->v_dim || (s->latent && s->v_dim > s->k_dim))
        return wrong(c, KVB_RECORDED_V, "an array, unless V is the first channels of k", why, why_bytes);
    s->out_elem = out == KVB_DTYPE_F16 ? KVB_F16 : out == KVB_DTYPE_BF16 ? KVB_BF16 : KVB_F32;
    const kvb_tensor *sinks = c->part[KVB_RECORDED_SINKS];
    if (sinks && (sinks->n_dims != 1 || sinks->dims[0] != s->heads || !is_float(sinks->dtype)))
        return wrong(c, KVB_RECORDED_SINKS, "one logit for each query head", why, why_bytes);
    error = channels_check(c, s, 0, s->k_dim, why, why_bytes);
    error = error || s->latent ? error : channels_check(c, s, 1, s->v_dim, why, why_bytes);
    error = error || !l->joined ? error : joined_shape(c, s, why, why_bytes);
    error = error || l->joined || !c->part[KVB_RECORDED_LENGTHS]
                ? error
                : lengths_check(c, s, s->k.n[KVB_AXIS_S], why, why_bytes);
    for (int side = 0; side < 2; side++)
        error = error ? error : scale_shape(c, s, side, why, why_bytes);
    error = error ? error : lse_shape(c, r, s, why, why_bytes);
    error = error ? error : mask_shape(c, s, why, why_bytes);
    if (!error && (r->window > 0 || r->window_sinks > 0) && r->causal == KVB_CAUSAL_NO) {
        snprintf(why, why_bytes, "%s: a window is of a causal call: expected causal lower-right or upper-left",
                 c->path);
        return -EINVAL;
    }
    return error;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

void kvb_recorded_sequence_of(const kvb_recorded *c, const kvb_recorded_reading *r, const kvb_recorded_shape *s,
                              uint32_t b, kvb_recorded_sequence *q)
{
    const kvb_tensor *cu_q = c->part[KVB_RECORDED_CU_Q], *cu_k = c->part[KVB_RECORDED_CU_K],
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
    if (lengths && (s->layout->paged || !s->layout->joined))
        cells = (uint64_t)whole(lengths, of);
    const int64_t more = (int64_t)cells + r->more_cells;
    cells = more < 0 ? 0 : (uint64_t)more;
    q->cells = (uint32_t)(cells < room ? cells : room);
}

static double axed_at(const kvb_axed *a, uint64_t b, uint64_t h, uint64_t t, uint64_t p)
{
    return kvb_tensor_value(a->tensor, b * a->stride[KVB_AXIS_B] + h * a->stride[KVB_AXIS_H] +
                                           t * a->stride[KVB_AXIS_S] + p * a->stride[KVB_AXIS_P]);
}

void kvb_recorded_row(const kvb_recorded *c, const kvb_recorded_reading *r, const kvb_recorded_shape *s, int side,
                      uint32_t b, uint32_t kv_head, const kvb_recorded_sequence *q, uint32_t cell, double *row,
                      double *size)
{
    const kvb_axed *a = side && !s->latent ? &s->v : &s->k;
    const kvb_codec *codec = s->codec[side && !s->latent];
    const kvb_axed *scale = &s->scale[side && !s->latent];
    const uint32_t dim = side ? s->v_dim : s->k_dim, stored = side && s->latent ? s->k_dim : dim;
    uint64_t at = q->k_at + cell, page = 0;
    if (s->layout->paged) {
        const kvb_tensor *table = c->part[KVB_RECORDED_TABLE];
        const uint32_t of = r->next_table ? (b + 1) % s->batch : b;
        const double named = kvb_tensor_value(table, of * table->strides[0] + cell / s->page * table->strides[1]);
        page = named >= 0 && named < (double)s->pages ? (uint64_t)named : 0; /* a cell more than there is */
        at = cell % s->page;
    }
    const uint64_t first = b * a->stride[KVB_AXIS_B] + kv_head * a->stride[KVB_AXIS_H] + at * a->stride[KVB_AXIS_S] +
                           page * a->stride[KVB_AXIS_P];
    double factor = side && !s->latent ? r->v_scale : r->k_scale;
    if (scale->tensor)
        factor *= axed_at(scale, b, kv_head, at, page);
    factor = r->no_scales ? 1 : factor;
    if (codec) {
        unsigned char *const parts[KVB_PARTS] = {(unsigned char *)(uintptr_t)a->tensor->data +
                                                 first * kvb_dtype_bytes(a->tensor->dtype)};
        codec->decode(codec, (const unsigned char *const *)parts, stored, 1, row, size);
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
    const double x = kvb_tensor_value(a->tensor, b * a->stride[KVB_AXIS_B] + t * a->stride[KVB_AXIS_S] +
                                                     cell * a->stride[KVB_AXIS_D]);
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
