/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts, presets and keys by name; declarations of arithmetic in JSON. */
#include "harness/judge/recorded.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/model.h"
#include "oracle/claim.h"
#include "oracle/codec.h"

/* ---- layouts ------------------------------------------------------------------------------------------------- */

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
    {"bhd", "bhd", "bhd", {NULL}, false, false, "batch, head, channel: a scan of one token of each sequence"},
    {"bsd", "bsd", "bsd", {NULL}, false, false, "batch, token, channel: a scan of one head (mamba1, conv)"},
    {"bds", "bds", "bds", {NULL}, false, false, "batch, channel, token: the same"},
    {.name = NULL},
};

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

/* A chain that a declaration does not set: that of plain loops. */
#define UNSAID UINT32_MAX

/* exp by a fast exp2 such as ex2.approx.ftz.f32 (CUDA's PTX ISA: 2^-22.5, flush to zero), after a rounded factor. */
#define EXP .exp_error = 0x1p-21, .exp_floor = 0x1p-126
#define F32 .dot_chain = UNSAID, .cell_chain = UNSAID, .rescales = UNSAID, .accumulator = KVB_F32, EXP
#define CHUNK(tokens)                                                                                                  \
    .chunk = (tokens), .state_chain = UNSAID, .read_chain = UNSAID, .solve_chain = UNSAID, .exponent_chain = UNSAID, EXP
#define ATTENTION KVB_OF_ATTENTION
#define SCANS     KVB_OF_SCANS
const kvb_preset kvb_presets[] = {
    {"f32",
     "everything in f32, in any order; scans token by token (mamba_ssm's selective_state_update)",
     ATTENTION | SCANS,
     {F32},
     {CHUNK(1)}},
    {"flash-f16",
     "weights rounded to f16, sums in f32 (FlashAttention-2, mma.f32.f16)",
     ATTENTION,
     {F32, .sums = {.rounding = KVB_F16}},
     {0}},
    {"flash-bf16",
     "weights rounded to bf16, sums in f32 (FlashAttention-2)",
     ATTENTION,
     {F32, .sums = {.rounding = KVB_BF16}},
     {0}},
    {"flash-fp8",
     "weights rounded to e4m3, sums in f32 (FlashAttention-3)",
     ATTENTION,
     {F32, .sums = {.rounding = KVB_E4M3}},
     {0}},
    {"math-f16",
     "q and scores rounded to f16, weights stored in f16 (torch's math backend)",
     ATTENTION,
     {F32, .query = {.rounding = KVB_F16}, .scores = {.rounding = KVB_F16, .chain = 1}, .sums = {.rounding = KVB_F16}},
     {0}},
    {"math-bf16",
     "the same in bf16",
     ATTENTION,
     {F32, .query = {.rounding = KVB_BF16}, .scores = {.rounding = KVB_BF16, .chain = 1},
      .sums = {.rounding = KVB_BF16}},
     {0}},
    {"ggml-f16",
     "q and weights rounded to f16, sums in f32 (llama.cpp without flash attention, K and V in f16)",
     ATTENTION,
     {F32, .query = {.rounding = KVB_F16}, .sums = {.rounding = KVB_F16}},
     {0}},
    {"ggml-flash",
     "q rounded to f16, sums in f16, cell by cell (llama.cpp's flash attention on CPUs, K and V in f16)",
     ATTENTION,
     {F32, .query = {.rounding = KVB_F16}, .sums = {.rounding = KVB_F16, .chain = UNSAID, .floor = 0x1p-24}},
     {0}},
    {"int8",
     "q and weights in steps of 1/127 of a row's largest (llama.cpp, SageAttention)",
     ATTENTION,
     {F32, .query = {.step = 1 / 127.0}, .sums = {.step = 1 / 127.0}},
     {0}},
    {"chunk64-f32", "scans in chunks of 64 tokens, everything in f32", SCANS, {0}, {CHUNK(64)}},
    {"chunk64-f16",
     "the same, factors of products rounded to f16, or to tf32, which rounds as much",
     SCANS,
     {0},
     {CHUNK(64), .operands = KVB_F16}},
    {"chunk64-bf16",
     "the same, rounded to bf16 (flash-linear-attention's chunk kernels)",
     SCANS,
     {0},
     {CHUNK(64), .operands = KVB_BF16}},
    {"chunk256-f32", "scans in chunks of 256 tokens, everything in f32", SCANS, {0}, {CHUNK(256)}},
    {"chunk256-f16",
     "the same, factors of products rounded to f16 or tf32",
     SCANS,
     {0},
     {CHUNK(256), .operands = KVB_F16}},
    {"chunk256-bf16",
     "the same, rounded to bf16 (mamba_ssm's mamba_chunk_scan_combined)",
     SCANS,
     {0},
     {CHUNK(256), .operands = KVB_BF16}},
    {"own",
     "a declaration in JSON: the fields of kvb_arithmetic in attend.h, of kvb_scan_arithmetic in scan.h",
     ATTENTION | SCANS,
     {F32},
     {CHUNK(1)}},
    {.name = NULL},
};
#undef F32
#undef CHUNK
#undef ATTENTION
#undef SCANS

static uint32_t said_or(uint32_t said, uint32_t usual)
{
    return said == UNSAID ? usual : said;
}

/* The reading's preset. *own: it is "own", a declaration. */
static const kvb_preset *preset_of(const kvb_recorded_reading *reading, bool *own)
{
    const kvb_preset *preset = &kvb_presets[reading->arithmetic - 1];
    *own = !strcmp(preset->name, "own");
    return preset;
}

void kvb_reading_arithmetic(const kvb_recorded_reading *reading, const kvb_problem *problem, kvb_arithmetic *arithmetic)
{
    bool own;
    const kvb_preset *preset = preset_of(reading, &own);
    *arithmetic = own ? reading->own.attends : preset->attends;
    arithmetic->dot_chain = said_or(arithmetic->dot_chain, problem->k_dim);
    arithmetic->cell_chain = said_or(arithmetic->cell_chain, problem->n_cells + problem->has_sinks);
    /* Tiles have at least 32 cells. Sums that go cell by cell are rescaled and added to at each cell. */
    const bool by_cell = arithmetic->sums.chain == UNSAID;
    arithmetic->rescales = said_or(arithmetic->rescales, by_cell ? problem->n_cells : problem->n_cells / 32 + 1);
    arithmetic->sums.chain = said_or(arithmetic->sums.chain, 2 * problem->n_cells);
}

/* Unset chains are those of plain loops, plus one for each token of a chunk: exponents are sums over its tokens. */
void kvb_reading_scan_arithmetic(const kvb_recorded_reading *reading, const kvb_scan_problem *problem,
                                 kvb_scan_arithmetic *a)
{
    bool own;
    const kvb_preset *preset = preset_of(reading, &own);
    *a = own ? reading->own.scans : preset->scans;
    const uint32_t chunk = a->chunk < problem->run ? a->chunk : problem->run, more = chunk > 1 ? chunk + 4 : 0;
    const uint32_t state = problem->kind == KVB_SCAN_CONV ? 0 : problem->kind == KVB_SCAN_LIGHTNING ? 2 : 3;
    a->state_chain = said_or(a->state_chain, state + more);
    a->read_chain = said_or(a->read_chain, state + 2 + problem->d_k + more);
    a->solve_chain = said_or(a->solve_chain, problem->d_k + 4 + more);
    a->exponent_chain = said_or(a->exponent_chain, 3 + more);
}

/* A field of a declaration, or of one of its roundings. */
typedef struct member {
    const char *name;
    enum { COUNT, NUMBER, ELEM, ROUNDING } type;
    size_t at;
} member;
#define FIELD(of, member, type)                                                                                        \
    {                                                                                                                  \
#member, type, offsetof(of, member)                                                                            \
    }
static const member rounding_fields[] = {FIELD(kvb_rounding, rounding, ELEM),
                                         FIELD(kvb_rounding, chain, COUNT),
                                         FIELD(kvb_rounding, step, NUMBER),
                                         FIELD(kvb_rounding, floor, NUMBER),
                                         {0}};
static const member attends_fields[] = {FIELD(kvb_arithmetic, dot_chain, COUNT),
                                        FIELD(kvb_arithmetic, cell_chain, COUNT),
                                        FIELD(kvb_arithmetic, rescales, COUNT),
                                        FIELD(kvb_arithmetic, exp_error, NUMBER),
                                        FIELD(kvb_arithmetic, exp_floor, NUMBER),
                                        FIELD(kvb_arithmetic, query, ROUNDING),
                                        FIELD(kvb_arithmetic, scores, ROUNDING),
                                        FIELD(kvb_arithmetic, sums, ROUNDING),
                                        {0}};
static const member scans_fields[] = {
    FIELD(kvb_scan_arithmetic, carried, ELEM),         FIELD(kvb_scan_arithmetic, operands, ELEM),
    FIELD(kvb_scan_arithmetic, chunk, COUNT),          FIELD(kvb_scan_arithmetic, state_chain, COUNT),
    FIELD(kvb_scan_arithmetic, read_chain, COUNT),     FIELD(kvb_scan_arithmetic, solve_chain, COUNT),
    FIELD(kvb_scan_arithmetic, exponent_chain, COUNT), FIELD(kvb_scan_arithmetic, exp_error, NUMBER),
    FIELD(kvb_scan_arithmetic, exp_floor, NUMBER),     {0}};
#undef FIELD
static const char *const elems[] = {"f32", "f16", "bf16", "e4m3", "e5m2"}; /* in the order of kvb_elem */
enum { ELEMS = sizeof elems / sizeof *elems };

static const member *field_find(const member *fields, const char *name)
{
    while (fields->name && strcmp(fields->name, name))
        fields++;
    return fields->name ? fields : NULL;
}

/* "arithmetic: WHERE: expected WHAT", and the names of fields. */
static int declaration_wrong(const char *where, const char *what, const member *fields, char *why, size_t why_bytes)
{
    size_t n = (size_t)snprintf(why, why_bytes, "arithmetic: %.60s: expected %s", where, what);
    for (; fields && fields->name && n < why_bytes; fields++)
        n += (size_t)snprintf(why + n, why_bytes - n, " %s", fields->name);
    return -EINVAL;
}

static int fields_read(json_t *object, const member *fields, void *to, char *why, size_t why_bytes);

static int field_read(json_t *value, const member *f, void *to, char *why, size_t why_bytes)
{
    void *at = (char *)to + f->at;
    uint32_t i = 0;
    switch (f->type) {
    case COUNT:
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= UNSAID)
            return declaration_wrong(f->name, "a whole number from 0 on", NULL, why, why_bytes);
        *(uint32_t *)at = (uint32_t)json_integer_value(value);
        return 0;
    case NUMBER:
        if (!json_is_number(value))
            return declaration_wrong(f->name, "a number", NULL, why, why_bytes);
        *(double *)at = json_number_value(value);
        return 0;
    case ELEM:
        while (i < ELEMS && (!json_is_string(value) || strcmp(elems[i], json_string_value(value))))
            i++;
        if (i == ELEMS)
            return declaration_wrong(f->name, "f32, f16, bf16, e4m3 or e5m2", NULL, why, why_bytes);
        *(kvb_elem *)at = (kvb_elem)i;
        return 0;
    default:
        return json_is_object(value) ? fields_read(value, rounding_fields, at, why, why_bytes)
                                     : declaration_wrong(f->name, "an object of", rounding_fields, why, why_bytes);
    }
}

static int fields_read(json_t *object, const member *fields, void *to, char *why, size_t why_bytes)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const member *f = field_find(fields, name);
        const int error =
            f ? field_read(value, f, to, why, why_bytes) : declaration_wrong(name, "one of", fields, why, why_bytes);
        if (error)
            return error;
    }
    return 0;
}

static json_t *fields_json(const member *fields, const void *from)
{
    json_t *object = json_object();
    for (; fields->name; fields++) {
        const void *at = (const char *)from + fields->at;
        json_object_set_new(object, fields->name,
                            fields->type == COUNT    ? json_integer(*(const uint32_t *)at)
                            : fields->type == NUMBER ? json_real(*(const double *)at)
                            : fields->type == ELEM   ? json_string(elems[*(const kvb_elem *)at])
                                                     : fields_json(rounding_fields, at));
    }
    return object;
}

json_t *kvb_declaration_json(const kvb_arithmetic *attends, const kvb_scan_arithmetic *scans)
{
    return attends ? fields_json(attends_fields, attends) : fields_json(scans_fields, scans);
}

/* Reads the fields of attention and of scans, as the recurrence may be set later. *own keeps a field that one lacks. */
static int declaration_read(const char *text, kvb_declared *own, char *why, size_t why_bytes)
{
    json_error_t at;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &at), *value;
    const char *name;
    int error = json_is_object(root) ? 0 : declaration_wrong("no JSON", at.text, NULL, why, why_bytes);
    *own = (kvb_declared){kvb_presets[0].attends, kvb_presets[0].scans, {NULL}};
    json_object_foreach(root, name, value)
    {
        const member *of[] = {field_find(attends_fields, name), field_find(scans_fields, name)};
        void *const to[] = {&own->attends, &own->scans};
        for (int i = 0; i < 2 && !error; i++) {
            if (!of[i] && !of[!i])
                error = declaration_wrong(name, "one of", attends_fields, why, why_bytes);
            else if (of[i])
                error = field_read(value, of[i], to[i], why, why_bytes);
            else
                own->lacks[i] = of[!i]->name;
        }
    }
    json_decref(root);
    if (!error && own->attends.exp_error > 0.1) /* with more the bound is infinite */
        error = declaration_wrong("exp_error", "at most 0.1", NULL, why, why_bytes);
    return error ? error : kvb_claim_check(&own->attends, why, why_bytes);
}

int kvb_reading_arithmetic_check(const kvb_recorded_reading *r, char *why, size_t why_bytes)
{
    const bool scans = r->recurrence != 0;
    bool own;
    const kvb_preset *preset = preset_of(r, &own);
    if (own && r->own.lacks[scans])
        return declaration_wrong(r->own.lacks[scans], scans ? "of a scan one of" : "of attention one of",
                                 scans ? scans_fields : attends_fields, why, why_bytes);
    if (preset->of & kvb_reading_of(r))
        return 0;
    size_t n = (size_t)snprintf(why, why_bytes, "arithmetic: %s is for %s only: expected one of", preset->name,
                                scans ? "attention" : "scans");
    for (preset = kvb_presets; preset->name && n < why_bytes; preset++)
        if (preset->of & kvb_reading_of(r))
            n += (size_t)snprintf(why + n, why_bytes - n, " %s", strcmp(preset->name, "own") ? preset->name : "{…}");
    return -EINVAL;
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

static const char *const causals[] = {"no", "lower-right", "upper-left", NULL};
static const char *const bases[] = {"e", "2", NULL};
static const char *const lse_layouts[] = {"heads-first", "tokens-first", NULL};
static const char *const state_layouts[] = {"kv", "vk", NULL};
static const char *const activations[] = {"none", "silu", NULL};

const kvb_reading_key kvb_reading_keys[] = {
    {"recurrence", "of a scan: mamba1, mamba2, lightning, delta or conv, as kernels/scan.h says (none: attention)"},
    {"layout", "axes of the arrays, as below (required)"},
    {"causal", "no; lower-right: the last query sees the last cell; upper-left: query i sees cells 0 to i (required of "
               "attention)"},
    {"scale", "factor on q.k, of a scan on q: a number, or 1/sqrt(d) (required)"},
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
    {"state_layout",
     "of states, of taps and of mamba1's a: kv, or vk where d_v lies before d_k; where the shape does not tell"},
    {"activation", "of a convolution: none or silu (required of conv)"},
    {NULL, NULL},
};

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

/* Sets a format. Only codecs without separate scales and zeros: one array holds their rows. */
static int format_set(uint32_t *field, const char *value)
{
    for (uint32_t i = 0; kvb_codecs[i].name; i++) {
        const kvb_codec *c = &kvb_codecs[i];
        if (!strcmp(c->name, value) && c->block == 1 && !kvb_codec_bytes(c, 256, KVB_SCALES) &&
            !kvb_codec_bytes(c, 256, KVB_ZEROS)) {
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
        return declaration_read(value, &r->own, why, why_bytes);
    return kvb_presets[i].name && kvb_presets[i + 1].name ? 0 : -EINVAL;
}

static int recurrence_set(kvb_recorded_reading *r, const char *value)
{
    uint32_t kind = 0;
    while (kind < KVB_SCAN_KINDS && strcmp(kvb_scan_kind_name(kind), value))
        kind++;
    r->recurrence = 1 + kind;
    return kind < KVB_SCAN_KINDS ? 0 : -EINVAL;
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
    if (!strcmp(key, "recurrence"))
        error = recurrence_set(r, value);
    else if (!strcmp(key, "layout"))
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
    else if (!strcmp(key, "state_layout"))
        error = word_set(&r->state_layout, state_layouts, value);
    else if (!strcmp(key, "activation"))
        error = word_set(&r->activation, activations, value);
    else if (!strcmp(key, "k_format") || !strcmp(key, "v_format"))
        error = format_set(*key == 'k' ? &r->k_format : &r->v_format, value);
    else
        error = number_set(*key == 'q' ? &r->q_scale : *key == 'k' ? &r->k_scale : &r->v_scale, value, 0x1p-126);
    if (error && !why[0])
        snprintf(why, why_bytes, "%s: '%s' is none; expected %s", key, value, kvb_reading_keys[i].help);
    return error;
}

/* Sets a key to a JSON value, as text. */
static int json_set(kvb_recorded_reading *r, const char *key, json_t *value, char *why, size_t why_bytes)
{
    char *dumped = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *text = json_is_string(value) ? json_string_value(value) : dumped;
    const int error = text ? kvb_reading_set(r, key, text, why, why_bytes) : -ENOMEM;
    free(dumped);
    return error;
}

int kvb_reading_set_all(kvb_recorded_reading *r, json_t *object, bool lenient, char *why, size_t why_bytes)
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
