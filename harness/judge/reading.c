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
#include "workloads/files.h"

/* ---- layouts ------------------------------------------------------------------------------------------------- */

const kvb_layout kvb_layouts[] = {
    {"bhsd", "batch, head, token, channel: torch's SDPA", "bhsd", "bhsd", .lse = {"bhs", "bsh"}},
    {"bshd", "batch, token, head, channel: FlashAttention, JAX", "bshd", "bshd", .lse = {"bhs", "bsh"}},
    {"hsd", "head, token, channel", "hsd", "hsd", .lse = {"hs", "sh"}},
    {"shd", "token, head, channel", "shd", "shd", .lse = {"sh", "hs"}},
    {"thd", "sequences one behind the other, by cu_seqlens_q and cu_seqlens_k", "shd", "shd", .lse = {"hs", "sh"},
     .joined = true},
    {"pages", "K and V in pages: page, cell, head, channel; block_table, lengths", "shd", "pshd", .lse = {"sh", "hs"},
     .joined = true, .paged = true},
    {"pages-hnd", "the same: page, head, cell, channel", "shd", "phsd", .lse = {"sh", "hs"}, .joined = true,
     .paged = true},
    {"bhd", "batch, head, channel: a scan of one token of each sequence", "bhd", .kv = "bhd"},
    {"bsd", "batch, token, channel: a scan of one head (mamba1, conv)", "bsd", .kv = "bsd"},
    {"bds", "batch, channel, token: the same", "bds", .kv = "bds"},
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
    {"f32", "everything in f32, in any order; scans token by token (mamba_ssm's selective_state_update)",
     ATTENTION | SCANS, .attends = {F32}, .scans = {CHUNK(1)}},
    {"flash-f16", "weights rounded to f16, sums in f32 (FlashAttention-2, mma.f32.f16)", ATTENTION,
     .attends = {F32, .sums = {.rounding = KVB_F16}}},
    {"flash-bf16", "weights rounded to bf16, sums in f32 (FlashAttention-2)", ATTENTION,
     .attends = {F32, .sums = {.rounding = KVB_BF16}}},
    {"flash-fp8", "weights rounded to e4m3, sums in f32 (FlashAttention-3)", ATTENTION,
     .attends = {F32, .sums = {.rounding = KVB_E4M3}}},
    {"math-f16", "q and scores rounded to f16, weights stored in f16 (torch's math backend)", ATTENTION,
     .attends = {F32, .query = {.rounding = KVB_F16}, .scores = {.rounding = KVB_F16, .chain = 1},
                 .sums = {.rounding = KVB_F16}}},
    {"math-bf16", "the same in bf16", ATTENTION,
     .attends = {F32, .query = {.rounding = KVB_BF16}, .scores = {.rounding = KVB_BF16, .chain = 1},
                 .sums = {.rounding = KVB_BF16}}},
    {"ggml-f16", "q and weights rounded to f16, sums in f32 (llama.cpp without flash attention, K and V in f16)",
     ATTENTION, .attends = {F32, .query = {.rounding = KVB_F16}, .sums = {.rounding = KVB_F16}}},
    {"ggml-flash", "q rounded to f16, sums in f16, cell by cell (llama.cpp's flash attention on CPUs, K and V in f16)",
     ATTENTION,
     .attends = {F32, .query = {.rounding = KVB_F16},
                 .sums = {.rounding = KVB_F16, .chain = UNSAID, .floor = 0x1p-24}}},
    {"int8", "q and weights in steps of 1/127 of a row's largest (llama.cpp, SageAttention)", ATTENTION,
     .attends = {F32, .query = {.step = 1 / 127.0}, .sums = {.step = 1 / 127.0}}},
    {"chunk64-f32", "scans in chunks of 64 tokens, everything in f32", SCANS, .scans = {CHUNK(64)}},
    {"chunk64-f16", "the same, factors of products rounded to f16, or to tf32, which rounds as much", SCANS,
     .scans = {CHUNK(64), .operands = KVB_F16}},
    {"chunk64-bf16", "the same, rounded to bf16 (flash-linear-attention's chunk kernels)", SCANS,
     .scans = {CHUNK(64), .operands = KVB_BF16}},
    {"chunk256-f32", "scans in chunks of 256 tokens, everything in f32", SCANS, .scans = {CHUNK(256)}},
    {"chunk256-f16", "the same, factors of products rounded to f16 or tf32", SCANS,
     .scans = {CHUNK(256), .operands = KVB_F16}},
    {"chunk256-bf16", "the same, rounded to bf16 (mamba_ssm's mamba_chunk_scan_combined)", SCANS,
     .scans = {CHUNK(256), .operands = KVB_BF16}},
    {"own", "a declaration in JSON: the fields of kvb_arithmetic in attend.h, of kvb_scan_arithmetic in scan.h",
     ATTENTION | SCANS, .attends = {F32}, .scans = {CHUNK(1)}},
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
    snprintf(why, why_bytes, "arithmetic: %.60s: expected %s", where, what);
    for (; fields && fields->name; fields++)
        kvb_list_add(why, why_bytes, " ", "%s", fields->name);
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
    snprintf(why, why_bytes, "arithmetic: %s is for %s only: expected one of", preset->name,
             scans ? "attention" : "scans");
    for (preset = kvb_presets; preset->name; preset++)
        if (preset->of & kvb_reading_of(r))
            kvb_list_add(why, why_bytes, " ", "%s", strcmp(preset->name, "own") ? preset->name : "{…}");
    return -EINVAL;
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

static const char *const causals[] = {"no", "lower-right", "upper-left", NULL};
static const char *const bases[] = {"e", "2", NULL};
static const char *const lse_layouts[] = {"heads-first", "tokens-first", NULL};
static const char *const state_layouts[] = {"kv", "vk", NULL};
static const char *const activations[] = {"none", "silu", NULL};

static const char *recurrence_word(uint32_t i)
{
    return i < KVB_SCAN_KINDS ? kvb_scan_kind_name(i) : NULL;
}

static const char *layout_word(uint32_t i)
{
    return kvb_layouts[i].name;
}

/* Only codecs without separate scales and zeros: one array holds their rows. */
static const char *format_word(uint32_t i)
{
    const kvb_codec *c = &kvb_codecs[i];
    const bool one =
        c->name && c->block == 1 && !kvb_codec_bytes(c, 256, KVB_SCALES) && !kvb_codec_bytes(c, 256, KVB_ZEROS);
    return !c->name || one ? c->name : "";
}

#define AT(member)          offsetof(kvb_recorded_reading, member)
#define WORDS(member, list) AT(member), KVB_KEY_WORD, 0, list, NULL
#define WORDS_OF(member, f) AT(member), KVB_KEY_WORD, 0, NULL, f
#define POSITIVE            KVB_KEY_NUMBER, 0x1p-126, NULL, NULL
const kvb_reading_key kvb_reading_keys[] = {
    {"recurrence", "of a scan: mamba1, mamba2, lightning, delta or conv, as kernels/scan.h says (none: attention)",
     WORDS_OF(recurrence, recurrence_word)},
    {"layout", "axes of the arrays, as below (required)", WORDS_OF(layout, layout_word)},
    {"causal",
     "no; lower-right: the last query sees the last cell; upper-left: query i sees cells 0 to i (required of "
     "attention)",
     WORDS(causal, causals)},
    {"scale", "factor on q.k, of a scan on q: a number, or 1/sqrt(d) (required)", AT(scale), POSITIVE},
    {"arithmetic", "what the kernel rounds: a preset, or a declaration in JSON (required)", AT(arithmetic),
     KVB_KEY_ARITHMETIC, 0, NULL, NULL},
    {"window", "cells that a query sees at most, its own among them (0: all)", AT(window), KVB_KEY_COUNT, 0, NULL,
     NULL},
    {"window_sinks", "cells at the beginning that a window keeps (0)", AT(window_sinks), KVB_KEY_COUNT, 0, NULL, NULL},
    {"softcap", "logits become softcap tanh(x / softcap) (0: none)", AT(softcap), KVB_KEY_NUMBER, 0, NULL, NULL},
    {"lse_base", "e (usual) or 2: of the log-sum-exp", WORDS(lse_base, bases)},
    {"lse_layout", "heads-first or tokens-first, where its shape does not tell", WORDS(lse_layout, lse_layouts)},
    {"q_scale", "factor on all elements of q (1)", AT(q_scale), POSITIVE},
    {"k_scale", "factor on all elements of K (1); an array k_scale has one for each head, or for each row", AT(k_scale),
     POSITIVE},
    {"v_scale", "the same of V", AT(v_scale), POSITIVE},
    {"k_format", "what raw bytes of K are: e4m3, e5m2, bf16, f16, q8_0, q4_0, … (the array's type)",
     WORDS_OF(k_format, format_word)},
    {"v_format", "the same of V", WORDS_OF(v_format, format_word)},
    {"state_layout",
     "of states, of taps and of mamba1's a: kv, or vk where d_v lies before d_k; where the shape does not tell",
     WORDS(state_layout, state_layouts)},
    {"activation", "of a convolution: none or silu (required of conv)", WORDS(activation, activations)},
    {.name = NULL},
};

static const kvb_reading_key *key_find(const char *name)
{
    const kvb_reading_key *k = kvb_reading_keys;
    while (k->name && strcmp(k->name, name))
        k++;
    return k->name ? k : NULL;
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

static bool word_set(const kvb_reading_key *k, const char *value, uint32_t *place)
{
    const char *word;
    uint32_t i = 0;
    while ((word = k->words ? k->words[i] : k->word(i)) && (!*word || strcmp(word, value)))
        i++;
    *place = i + 1;
    return word;
}

static bool number_set(const kvb_reading_key *k, const char *value, double *number)
{
    char *end;
    *number = strtod(value, &end);
    return end != value && !*end && isfinite(*number) && *number >= k->least &&
           (k->type == KVB_KEY_NUMBER || (*number == floor(*number) && *number <= INT32_MAX));
}

int kvb_reading_set(kvb_recorded_reading *r, const char *key, const char *value, char *why, size_t why_bytes)
{
    const kvb_reading_key *k = key_find(key);
    why[0] = '\0';
    if (!k) {
        snprintf(why, why_bytes, "unknown key '%s'; known:", key);
        for (k = kvb_reading_keys; k->name; k++)
            kvb_list_add(why, why_bytes, " ", "%s", k->name);
        return -EINVAL;
    }
    void *to = (char *)r + k->at;
    int error = 0;
    if (to == &r->scale && !strcmp(value, "1/sqrt(d)"))
        r->scale = KVB_SCALE_ROOT;
    else if (k->type == KVB_KEY_ARITHMETIC)
        error = arithmetic_set(r, value, why, why_bytes);
    else if (!(k->type == KVB_KEY_WORD ? word_set(k, value, to) : number_set(k, value, to)))
        error = -EINVAL;
    if (error && !why[0])
        snprintf(why, why_bytes, "%s: '%s' is none; expected %s", key, value, k->help);
    return error;
}

int kvb_reading_set_all(kvb_recorded_reading *r, json_t *object, bool lenient, char *why, size_t why_bytes)
{
    const char *key;
    json_t *value;
    int error = 0;
    json_object_foreach(object, key, value)
    {
        if (error || (lenient && !key_find(key)) || !strcmp(key, "calls"))
            continue;
        char *dumped = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        const char *text = dumped ? dumped : json_string_value(value);
        error = text ? kvb_reading_set(r, key, text, why, why_bytes) : -ENOMEM;
        free(dumped);
    }
    return error;
}
