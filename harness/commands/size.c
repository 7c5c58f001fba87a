/* SPDX-License-Identifier: Apache-2.0 */
/* kvbench size: the memory that models need, by engine, and what fits; --verify compares with kvbench's caches. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/command_line.h"
#include "harness/size/cache_model.h"
#include "harness/size/arguments.h"
#include "harness/size/logged.h"
#include "harness/size/sizing.h"
#include "harness/size/weights.h"
#include "results/table.h"
#include "workloads/files.h"

typedef struct size {
    kvb_words words;
    const char *context, *sequences, *kv, *engine, *budget, *weights, *runtime, *margin, *output;
    const char *gpu, *utilization, *log, *split, *draft;
    bool explain, list, verify, suggest;
    kvb_size_ask ask;     /* of every row, but for context, sequences and formats */
    kvb_size_terms terms; /* the same, but for the weights */
    /* the options, parsed */
    kvb_table_format format;
    bool page; /* --format html */
    kvb_size_numbers contexts, counts;
    kvb_kv_pairs pairs;
    kvb_engine_list engines;
    kvb_sized_model *draft_model;
    kvb_logged logged; /* of --log */
    kvb_logged_options ran;
    kvb_sized_model **models;
    size_t n_models;
    kvb_sizes rows;
    size_t verdicts[KVB_SIZE_VERDICTS]; /* how many of each kind */
    char why[512];                      /* why nothing is written */
} size;

static const kvb_option options[] = {
    {"--context", "N,…", "tokens of each sequence; default: 4k,32k,128k", KVB_TEXT(size, context)},
    {"--sequences", "N,…", "sequences at once; default: a table of 1,4,16,64 for people, 1 for programs",
     KVB_TEXT(size, sequences)},
    {"--kv", "FORMAT,…", "of K and V rows: f16,e4m3,q8_0,a4g64, or q8_0:q4_0 for K:V; default: the model's dtype",
     KVB_TEXT(size, kv)},
    {"--engine", "NAME,…",
     "ideal, kvbench, llama.cpp, vllm, sglang, trtllm, mlx, or of a version: vllm@0.24; default: all, with --gpu "
     "without kvbench and mlx",
     KVB_TEXT(size, engine)},
    {"--budget", "SIZE", "memory of one rank: say what fits; 80GiB is binary, 80GB decimal", KVB_TEXT(size, budget)},
    {"--gpu", "DEVICE,…",
     "the same, by the device's name (H100-80GB, RTX-4090, M4 Max 64GB …), as each engine takes of it; several: "
     "stages of a pipeline, with layers by their memory or by --split",
     KVB_TEXT(size, gpu)},
    {"--split", "N,…", "stages of a pipeline with so many parts of the layers each: 3,1; the tightest one is shown",
     KVB_TEXT(size, split)},
    {"--draft", "MODEL", "a draft model beside it: all that it takes, with its weights as published",
     KVB_TEXT(size, draft)},
    {"--gpu-memory-utilization", "F", "what vllm takes of --gpu; default: 0.9", KVB_TEXT(size, utilization)},
    {"--weights", "WHAT", "a dtype, a size, FILE.gguf, FILE.safetensors[.index.json], or none; default: as published",
     KVB_TEXT(size, weights)},
    {"--runtime", "SIZE", "what the process needs besides; default: 0", KVB_TEXT(size, runtime)},
    {"--margin", "P%", "on top of everything; default: 0", KVB_TEXT(size, margin)},
    {"--tp", "N", "ranks that share the heads (tensor parallel); default: 1", KVB_NUMBER(size, ask.tp, 1, 65536)},
    {"--pp", "N", "ranks that share the layers (pipeline); the fullest is shown; default: 1",
     KVB_NUMBER(size, ask.pp, 1, 65536)},
    {"--spec-depth", "N", "drafted tokens: recurrent states are kept N + 1 times",
     KVB_NUMBER(size, ask.spec_depth, 0, 65536)},
    {"--mtp", NULL,
     "serve the model's own multi-token prediction layers too: their rows, and weights where their tensors are known",
     KVB_FLAG(size, ask.mtp)},
    {"--block", "N", "tokens of a block; default: 16", KVB_NUMBER(size, ask.block, 1, 1 << 20)},
    {"--batch", "N", "most tokens of one forward pass; default: the engine's", KVB_NUMBER(size, ask.batch, 1, 1 << 30)},
    {"--max-num-seqs", "N", "that vllm makes its buffers for; default: 256, on devices of 70 GiB and more 1024",
     KVB_NUMBER(size, ask.max_seqs, 1, 1 << 20)},
    {"--unified", NULL, "llama.cpp: one cache for all sequences, as its server without --parallel",
     KVB_FLAG(size, ask.unified)},
    {"--outputs", "N",
     "llama.cpp: most tokens of a pass with logits; default: its server's, one of each sequence and draft; "
     "llama-bench's: --batch",
     KVB_NUMBER(size, ask.outputs, 1, 1 << 30)},
    {"--no-flash", NULL, "llama.cpp: without flash attention, the scores of all heads are in the compute buffer",
     KVB_FLAG(size, ask.no_flash)},
    {"--prefix-caching", NULL,
     "vllm: it caches prompts' beginnings beside recurrent states, as --enable-prefix-caching before 0.27",
     KVB_FLAG(size, ask.prefix)},
    {"--whole-windows", NULL,
     "windows keep every token: --disable-hybrid-kv-cache-manager of vllm (KV connectors), "
     "--disable-hybrid-swa-memory of sglang, --swa-full of llama.cpp",
     KVB_FLAG(size, ask.whole)},
    {"--state", "DTYPE", "of recurrent states: f32, f16, bf16; default: the engine's", KVB_TEXT(size, ask.state)},
    {"--explain", NULL, "say which field gave which factor, line by line; with --engine vllm also pages and groups",
     KVB_FLAG(size, explain)},
    {"--verify", NULL,
     "build kvbench's caches for the model and compare the bytes that `size` counts with those that are allocated",
     KVB_FLAG(size, verify)},
    {"--suggest", NULL, "where it does not fit: which change of options does, the cheapest first",
     KVB_FLAG(size, suggest)},
    {"--log", "FILE",
     "what a log of vllm, llama.cpp, sglang or trtllm says, part by part, beside what is predicted for its settings",
     KVB_TEXT(size, log)},
    {"--list", NULL, "list the built-in models", KVB_FLAG(size, list)},
    {"--format", "FORMAT", "table, md, csv, json, or html (with a plot)", KVB_FORMAT(size, format, ", html")},
    {"-o", "FILE", "write there instead of to standard output", KVB_TEXT(size, output)},
    KVB_OPTIONS_END,
};

/* ---- options and models ------------------------------------------------------------------------------------------ */

static int bad(const char *option, const char *why)
{
    return kvb_complain("size", KVB_EXIT_USAGE, "%s: %s", option, why);
}

/* kvbench's own caches are for CPUs, mlx is for Apple's chips. */
static const char on_devices[] = "ideal,llama.cpp,vllm,sglang,trtllm", on_macs[] = "ideal,llama.cpp,mlx";

static int device_unknown(const char *name)
{
    char known[512] = "";

    for (const kvb_device *device = kvb_devices; device->name; device++)
        kvb_list_add(known, sizeof known, " ", "%s", device->name);
    return kvb_unknown("size", "--gpu: unknown device", name, known);
}

/* Reads the devices and the parts of stages. Of several devices without parts, layers are split by memory, as llama.cpp
 * does (src/llama-model.cpp: by free memory). */
static int stages_read(size *s)
{
    kvb_size_numbers parts = {0};
    char why[256], name[64];
    uint32_t n = 0;

    for (const char *at = s->gpu ? s->gpu : ""; *at; at += strcspn(at, ","), at += *at == ',') {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (n == KVB_SIZE_STAGES)
            return bad("--gpu", "64 devices at most");
        if (!(s->terms.stages[n++].device = kvb_device_find(name)))
            return device_unknown(name);
    }
    if (s->gpu && !n)
        return device_unknown(s->gpu);
    s->ask.device = s->terms.stages[0].device;
    if (s->split && kvb_numbers_parse(s->split, &parts, why, sizeof why))
        return bad("--split", why);
    bool fit = parts.n <= KVB_SIZE_STAGES && (!parts.n || n < 2 || parts.n == n);
    s->terms.n_stages = fit ? (uint32_t)(parts.n ? parts.n : n > 1 ? n : 0) : 0;
    for (uint32_t i = 0; i < s->terms.n_stages; i++) {
        kvb_size_stage *stage = &s->terms.stages[i];

        stage->part = parts.n ? (uint32_t)parts.at[i] : (uint32_t)(stage->device->memory >> 20);
        s->ask.parts += stage->part;
        fit = fit && (!parts.n || parts.at[i] <= 4096);
    }
    free(parts.at);
    if (!fit)
        return bad("--split", "a number of 1 to 4096 for each stage was expected, and as many as devices");
    if (s->terms.n_stages && s->ask.pp > 1 && s->ask.pp != s->terms.n_stages)
        return bad("--pp", "is not the number of stages of --split or --gpu");
    if (s->terms.n_stages && (s->page || s->explain || s->log))
        return bad(s->split ? "--split" : "--gpu", "several stages go without --explain, --log and --format html");
    s->ask.pp = s->terms.n_stages ? s->terms.n_stages : s->ask.pp;
    return KVB_EXIT_OK;
}

#define LEAST_BUDGET (1u << 20) /* fewest bytes of a budget without a unit */

/* Parses the options that are more than a word or a number. */
static int options_read(size *s)
{
    char why[512];

    s->page = s->format == KVB_TABLE_HTML;
    if (s->explain && (s->page || s->format > KVB_TABLE_MD))
        return bad("--explain", "is text: it goes with --format table or md");
    if (s->ask.state && !kvb_names_have("f32 f16 bf16", s->ask.state))
        return kvb_complain("size", KVB_EXIT_USAGE, "--state: '%s' is not f32, f16 or bf16", s->ask.state);
    if (s->context && kvb_numbers_parse(s->context, &s->contexts, why, sizeof why))
        return bad("--context", why);
    bool people = s->page || s->format <= KVB_TABLE_MD;
    const char *counts = s->sequences                                      ? s->sequences
                         : people && !s->page && !s->verify && !s->suggest ? "1,4,16,64"
                                                                           : "1";
    if (kvb_numbers_parse(counts, &s->counts, why, sizeof why))
        return bad("--sequences", why);
    if (s->kv && kvb_kv_parse(s->kv, &s->pairs, why, sizeof why))
        return bad("--kv", why);
    if (s->budget && kvb_bytes_parse(s->budget, &s->terms.budget, why, sizeof why))
        return bad("--budget", why);
    if (s->budget && !s->terms.budget)
        return bad("--budget", "is 0: nothing fits");
    if (s->budget && s->terms.budget < LEAST_BUDGET && strspn(s->budget, "0123456789.") == strlen(s->budget))
        return kvb_complain("size", KVB_EXIT_USAGE, "--budget: %s is so many bytes: %sGiB (binary) or %sGB (decimal)?",
                            s->budget, s->budget, s->budget);
    if (s->suggest && (!(s->gpu || s->budget) || s->page || s->explain))
        return bad("--suggest", "is a table for a --gpu or --budget, without --explain");
    int code = stages_read(s);
    if (code)
        return code;
    const char *usual = !s->ask.device ? NULL : s->ask.device->mac ? on_macs : on_devices;
    if (kvb_engines_parse(s->engine ? s->engine : usual, &s->engines, why, sizeof why))
        return bad("--engine", why);
    if (s->draft && s->page)
        return bad("--draft", "goes without --format html");
    if (s->gpu && s->budget)
        return bad("--gpu", "is a budget: it does not go with --budget");
    if (s->utilization && (!s->gpu || kvb_fraction_parse(s->utilization, &s->ask.utilization)))
        return bad("--gpu-memory-utilization", "a fraction of --gpu was expected, above 0 and up to 1, like 0.9");
    if (s->runtime && kvb_bytes_parse(s->runtime, &s->terms.runtime_bytes, why, sizeof why))
        return bad("--runtime", why);
    if (s->margin && kvb_percent_parse(s->margin, &s->terms.margin, why, sizeof why))
        return bad("--margin", why);
    return KVB_EXIT_OK;
}

static int models_open(size *s)
{
    char why[512];

    s->models = calloc(s->words.n, sizeof *s->models);
    if (!s->models)
        return kvb_complain("size", KVB_EXIT_MACHINE, "no memory");
    if (s->draft && kvb_size_open(s->draft, &s->draft_model, why, sizeof why))
        return bad("--draft", why);
    for (; s->n_models < s->words.n; s->n_models++) {
        int error = kvb_size_open(s->words.at[s->n_models], &s->models[s->n_models], why, sizeof why);

        if (error)
            return kvb_complain("size", error == -ENOMEM ? KVB_EXIT_MACHINE : KVB_EXIT_USAGE, "%s", why);
        if (s->ask.pp > s->models[s->n_models]->n_layers) {
            s->n_models++;
            return bad("--pp", "is more than the model has layers");
        }
    }
    return KVB_EXIT_OK;
}

/* Finds the weights of one rank of model i. Returns an exit code. If they cannot be known, terms->weights_known is
 * false, and weights_why has the reason. */
static int weights_read(const size *s, size_t i, kvb_size_terms *terms)
{
    char *why = terms->weights_why;
    const size_t why_bytes = sizeof terms->weights_why;
    const kvb_sized_model *m = s->models[i];
    const char *weights = s->weights ? s->weights
                          : kvb_weights_is_file(s->words.at[i])
                              ? s->words.at[i] /* the model was named by its file of weights */
                              : NULL;
    uint64_t all = 0;
    int error = 0;

    if (weights && strcmp(weights, "none") == 0)
        terms->weight_bytes = 0; /* the user asked not to count them */
    else if (!weights)
        error = kvb_weights_published(m->config, m, s->ask.mtp, &all, why, why_bytes);
    else if (kvb_weights_is_file(weights))
        error = kvb_weights_file(weights, &all, why, why_bytes);
    else
        error = kvb_weights_bytes(&m->parameters, weights, &all, why, why_bytes);
    terms->all_weight_bytes = error ? 0 : all;
    if (!error && (terms->draft = s->draft_model)) {
        char note[256];
        error = kvb_weights_published(terms->draft->config, terms->draft, false, &terms->all_draft_bytes, note,
                                      sizeof note);
        if (*note)
            snprintf(why + strlen(why), why_bytes - strlen(why), "%s%s: %s", *why ? "; " : "", terms->draft->name,
                     note);
    }
    if (!error)
        error = kvb_size_weights_share(m, &s->ask, terms, why, why_bytes);
    terms->weights_known = !error;
    if (error)
        terms->all_weight_bytes = 0;
    if (error && error != -ENOTSUP)
        return kvb_complain("size", KVB_EXIT_USAGE, "%s: --weights: %s", m->name, why);
    return KVB_EXIT_OK;
}

/* The contexts to show if the user names none: the usual ones that the model can have, else the longest that it can
 * have. */
static int contexts_default(const kvb_sized_model *m, kvb_size_numbers *numbers)
{
    char why[256];
    int error = kvb_numbers_parse("4k,32k,128k", numbers, why, sizeof why);
    size_t n = 0;

    for (size_t i = 0; i < numbers->n; i++)
        if (!m->max_context || numbers->at[i] <= m->max_context)
            numbers->at[n++] = numbers->at[i];
    if (!error && !n)
        numbers->at[n++] = m->max_context;
    numbers->n = n;
    return error;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int row_compute(const kvb_sized_model *m, kvb_size_row *row)
{
    row->error = kvb_size_compute(m, row->engine, &row->ask, &row->terms, &row->size, row->why, sizeof row->why);
    if (row->error == -EOVERFLOW && row->engine->layer == kvb_size_engine_ideal.layer)
        return kvb_complain("size", KVB_EXIT_USAGE, "%s: %s: context %" PRIu64 ", sequences %" PRIu64 ": %s", m->name,
                            row->engine->name, row->ask.context, row->ask.sequences, row->why);
    if (row->error == -ENOMEM)
        return kvb_complain("size", KVB_EXIT_MACHINE, "%s: %s: %s", m->name, row->engine->name, row->why);
    return KVB_EXIT_OK;
}

/* Appends the rows of one model. */
static int model_size(size *s, size_t i)
{
    kvb_sizes *rows = &s->rows;
    const kvb_sized_model *m = s->models[i];
    const kvb_kv_format *own = kvb_kv_format_find(*m->dtype ? m->dtype : "f16");
    kvb_kv_pair own_pair = {own, own};
    kvb_kv_pairs pairs = s->pairs.n ? s->pairs : (kvb_kv_pairs){&own_pair, 1};
    kvb_size_numbers contexts = s->contexts;
    kvb_size_terms terms = s->terms;
    int code = weights_read(s, i, &terms);

    if (code || (!contexts.n && contexts_default(m, &contexts)))
        return code ? code : kvb_complain("size", KVB_EXIT_MACHINE, "no memory");
    size_t each = pairs.n * contexts.n * s->counts.n * s->engines.n;
    kvb_size_row *grown = realloc(rows->at, (rows->n + each) * sizeof *grown);

    code = grown ? KVB_EXIT_OK : kvb_complain("size", KVB_EXIT_MACHINE, "no memory");
    rows->at = grown ? grown : rows->at;
    rows->n_formats = pairs.n;
    for (size_t j = 0; j < each && !code; j++) {
        size_t rest = j / s->engines.n;
        kvb_size_row *row = &rows->at[rows->n++];

        *row = (kvb_size_row){.model = m, .engine = &s->engines.at[j % s->engines.n], .ask = s->ask, .terms = terms};
        row->ask.sequences = s->counts.at[rest % s->counts.n];
        row->ask.context = contexts.at[rest / s->counts.n % contexts.n];
        row->ask.version = row->engine->version;
        row->terms.most_only = rows->matrix && s->format <= KVB_TABLE_MD;
        row->terms.sized_only = rows->matrix && rest % s->counts.n; /* one limit for each line of the matrix */
        row->ask.k = pairs.at[rest / s->counts.n / contexts.n].k;
        row->ask.v = pairs.at[rest / s->counts.n / contexts.n].v;
        code = row_compute(m, row);
    }
    if (contexts.at != s->contexts.at)
        free(contexts.at);
    return code;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

/* Prints the derivations, which come before the tables. */
static int explanations_print(const size *s, FILE *out)
{
    const kvb_sizes *rows = &s->rows;
    const char *fence = s->format == KVB_TABLE_MD ? "```\n" : "";
    int error = 0;

    fputs(fence, out);
    for (size_t i = 0; i < rows->n && !error; i++)
        if (i == 0 || rows->at[i].model != rows->at[i - 1].model) {
            error = kvb_size_explain(rows->at[i].model, &rows->at[i].ask, out);
            for (size_t e = 0; s->engine && e < s->engines.n; e++)
                if (s->engines.at[e].explain) {
                    fprintf(out, "  %s:", s->engines.at[e].name);
                    s->engines.at[e].explain(rows->at[i].model, &rows->at[i + e].ask, out);
                }
            fputc('\n', out);
        }
    fputs(fence, out);
    return error;
}

static int output_print(size *s, FILE *out)
{
    const kvb_sizes *rows = &s->rows;

    if (s->log)
        return kvb_logged_print(&s->logged, rows->at, s->format, out);
    int error = s->explain ? explanations_print(s, out) : 0;

    if (s->suggest)
        return kvb_size_suggest(rows, s->format, out);
    if (!error)
        error = s->page ? kvb_size_page(rows, out) : kvb_size_table(rows, s->format, out);
    return error;
}

static int list_print(size *s, FILE *out)
{
    kvb_table *table = kvb_table_new((const char *const[]){"model", "architecture", "source", NULL});
    int error = 0;
    const char *name;

    for (size_t i = 0; (name = kvb_sized_model_name(i)) && !error; i++) {
        kvb_sized_model *m;

        error = kvb_sized_model_built_in(name, &m, s->why, sizeof s->why);
        if (error)
            break;
        kvb_table_put(table, "%s\t%s\t%s", name, m->architecture, m->source);
        kvb_sized_model_free(m);
    }
    if (!error)
        return kvb_table_end(table, s->format, out);
    kvb_table_free(table);
    return error;
}

/* Writes what print() prints, if that succeeds, to standard output or to a file that appears complete or not at all. 0, or
 * a negative errno with s->why. */
static int output_write(size *s, int (*print)(size *, FILE *))
{
    kvb_output_file file;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    snprintf(s->why, sizeof s->why, "no memory");
    int error = memory ? print(s, memory) : -ENOMEM;

    if (memory && fclose(memory) && !error)
        error = -ENOMEM;
    if (!error && s->output)
        error = kvb_output_file_open(s->output, false, &file, s->why, sizeof s->why);
    if (!error) /* errors are reported at close, or at the program's end */
        fwrite(text, 1, bytes, s->output ? file.stream : stdout);
    if (!error && s->output)
        error = kvb_output_file_close(&file, true, s->why, sizeof s->why);
    free(text);
    return error;
}

static int tables_write(size *s, int (*print)(size *, FILE *))
{
    int error = output_write(s, print);

    return error && s->output ? kvb_complain("size", KVB_EXIT_MACHINE, "%s", s->why) : kvb_printed("size", error);
}

/* ---- --verify ---------------------------------------------------------------------------------------------------- */

/* Are there options about a budget, ranks or engines? --verify and --list do not take them. */
static bool asks_more(const size *s)
{
    const kvb_size_ask *a = &s->ask;

    return s->engine || s->budget || s->weights || s->runtime || s->margin || s->gpu || s->explain || s->suggest ||
           s->split || s->draft || a->state || a->tp > 1 || a->pp > 1 || a->spec_depth || a->block || a->batch ||
           a->max_seqs || a->mtp || a->unified || a->whole || a->outputs || a->no_flash || a->prefix;
}

/* --verify takes no lists and makes no page. */
static int verify_check(const size *s)
{
    if (asks_more(s))
        return bad("--verify", "goes with --context, --sequences, --kv, --format and -o alone");
    if (s->page)
        return bad("--verify", "is a table: --format table, md, csv or json");
    if (s->contexts.n > 1 || s->counts.n > 1)
        return bad("--verify", "takes one --context and one --sequences");
    return KVB_EXIT_OK;
}

/* Takes the pairs of built-in pools that were asked for, or all. */
static int pools_take(const size *s, kvb_pool_pair *pools, size_t max, size_t *n, char *why, size_t why_bytes)
{
    *n = 0;
    for (size_t i = 0; i < s->pairs.n; i++) {
        const kvb_kv_pair *pair = &s->pairs.at[i];
        kvb_pool_pair pool = {kvb_size_pool_find(pair->k->name), kvb_size_pool_find(pair->v->name)};

        if (!pool.k || !pool.v || *n == max)
            return kvb_why_set(-EINVAL, why, why_bytes, "--kv: kvbench has no pool of format %s to verify",
                               pool.k ? pair->v->name : pair->k->name);
        pools[(*n)++] = pool;
    }
    if (s->pairs.n)
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

/* Adds the verdicts of one model: for people only those that differ, for programs all. */
static int verdicts_add(const kvb_sized_model *model, const kvb_size_verdicts *verdicts, bool people, kvb_table *table)
{
    int error = 0;

    for (size_t i = 0; i < verdicts->n && !error; i++) {
        const kvb_size_verified *v = &verdicts->at[i];
        const kvb_cache_options *o = &v->options;
        const uint64_t of[6] = {v->model.n_layers, v->layers, v->cells, v->counted, v->allocated, v->whole};
        const char *cells[13] = {model->name}; /* NULL: there is no such cache */
        char numbers[6][24];

        if (people && v->verdict != KVB_SIZE_DIFFERS)
            continue;
        if (v->cache) {
            cells[1] = v->cache->name;
            cells[2] = o->k_pool->name;
            cells[3] = o->v_pool->name;
            cells[4] = kvb_growth_names[o->growth];
        }
        for (size_t k = 0; k < 6 && v->cache; k++) {
            snprintf(numbers[k], sizeof numbers[k], "%" PRIu64, of[k]);
            cells[5 + k] = numbers[k];
        }
        cells[11] = kvb_size_verdict_names[v->verdict];
        cells[12] = *v->why ? v->why : NULL;
        error = kvb_table_row(table, cells);
    }
    return error;
}

/* Adds a row for each cache and shape of layers; its verdicts lie one behind the other. */
static void summary_add(const kvb_sized_model *model, const kvb_size_verdicts *verdicts, kvb_table *table)
{
    for (size_t i = 0, n; i < verdicts->n; i += n) {
        const kvb_size_verified *v = &verdicts->at[i], *shown = v;
        size_t count[KVB_SIZE_VERDICTS] = {0};
        char layers[32] = "", cells[24] = "";
        const char *reason = "";

        for (n = 0; i + n < verdicts->n; n++) {
            const kvb_size_verified *w = &verdicts->at[i + n];

            if (n && (!v->cache || w->cache != v->cache))
                break;
            count[w->verdict]++;
            shown = w->cells > shown->cells ? w : shown;
            reason = *reason ? reason : w->why;
        }
        if (v->cache) {
            snprintf(layers, sizeof layers, "%u of %u", shown->model.n_layers, shown->layers);
            snprintf(cells, sizeof cells, "%" PRIu64, shown->cells);
        }
        kvb_table_put(table, "%s\t%s\t%s\t%s\t%zu\t%zu\t%zu\t%s", model->name, v->cache ? v->cache->name : "-", layers,
                      cells, count[KVB_SIZE_EQUAL], count[KVB_SIZE_DIFFERS], count[KVB_SIZE_UNAVAILABLE], reason);
    }
}

static int tables_print(const size *s, const kvb_size_verdicts *verdicts, FILE *out)
{
    bool people = s->format == KVB_TABLE_TEXT || s->format == KVB_TABLE_MD;
    kvb_table *summary = kvb_table_new((const char *const[]){"model", "cache", ">layers built", ">cells", ">equal",
                                                             ">differs", ">unavailable", "note (the first)", NULL});
    kvb_table *all = kvb_table_new((const char *const[]){"model", "cache", "pool_k", "pool_v", "growth",
                                                         ">layers_built", ">layers", ">cells", ">counted", ">allocated",
                                                         ">counted_all_layers", "verdict", "reason", NULL});
    size_t differs = 0;
    int error = summary && all ? 0 : -ENOMEM;

    for (size_t i = 0; i < s->n_models && !error; i++) {
        differs += verdicts[i].count[KVB_SIZE_DIFFERS];
        summary_add(s->models[i], &verdicts[i], summary);
        error = verdicts_add(s->models[i], &verdicts[i], people, all);
    }
    if (!error && people)
        error = kvb_table_print(summary, s->format, out);
    if (!error && people && differs)
        fputs("\nNot as counted:\n\n", out);
    if (!error && (!people || differs))
        error = kvb_table_print(all, s->format, out);
    kvb_table_free(summary);
    kvb_table_free(all);
    return error;
}

/* Prints for people a row for each cache and shape of layers, and every differing verdict; for programs all verdicts.
 * Counts verdicts in s. 0; -EINVAL or -ENOMEM with s->why; -EIO. */
static int verify_print(size *s, FILE *out)
{
    enum { POOLS = 256 };
    kvb_pool_pair pools[POOLS];
    const uint64_t context = s->context ? s->contexts.at[0] : 0;
    const uint64_t sequences = s->sequences ? s->counts.at[0] : 0;
    kvb_size_asked asked = {.pools = pools, .context = (uint32_t)context, .sequences = (uint32_t)sequences};
    kvb_size_verdicts *verdicts = calloc(s->n_models, sizeof *verdicts);
    int error = verdicts ? pools_take(s, pools, POOLS, &asked.n_pools, s->why, sizeof s->why) : -ENOMEM;

    if (!error && (context > UINT32_MAX || sequences > UINT32_MAX)) {
        snprintf(s->why, sizeof s->why, "--verify takes contexts and sequences below 2^32");
        error = -EINVAL;
    }
    for (size_t i = 0; i < s->n_models && !error; i++) {
        error = kvb_size_verify(s->models[i], &asked, &verdicts[i], s->why, sizeof s->why);
        for (size_t k = 0; k < KVB_SIZE_VERDICTS; k++)
            s->verdicts[k] += verdicts[i].count[k];
    }
    if (!error)
        error = tables_print(s, verdicts, out);
    if (!error && (s->format == KVB_TABLE_TEXT || s->format == KVB_TABLE_MD))
        fprintf(out, "\n%zu equal, %zu differ, %zu unavailable\n", s->verdicts[KVB_SIZE_EQUAL],
                s->verdicts[KVB_SIZE_DIFFERS], s->verdicts[KVB_SIZE_UNAVAILABLE]);
    for (size_t i = 0; verdicts && i < s->n_models; i++)
        free(verdicts[i].at);
    free(verdicts);
    return error;
}

static int verify_do(size *s)
{
    int error = output_write(s, verify_print);

    if (error)
        return kvb_complain("size", error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s", s->why);
    if (s->verdicts[KVB_SIZE_DIFFERS])
        return KVB_EXIT_FAILED;
    return s->verdicts[KVB_SIZE_EQUAL] ? KVB_EXIT_OK
                                       : kvb_complain("size", KVB_EXIT_MACHINE, "--verify: nothing could be verified");
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Takes settings and the model from the log, unless options give them. */
static int log_read(size *s)
{
    kvb_logged_options *ran = &s->ran;
    char why[512];

    if (kvb_logged_read(s->log, &s->logged, why, sizeof why))
        return bad("--log", why);
    if (s->words.n > 1 || s->sequences || s->budget || s->gpu || s->explain || s->verify || s->suggest || s->list)
        return bad("--log", "takes one model, as its engine ran: without --sequences, --budget, --gpu, --explain, "
                            "--verify, --suggest, --list");
    kvb_logged_options_make(&s->logged, ran, &s->ask);
    if (s->engine && strncmp(s->engine, s->logged.engine, strcspn(s->engine, "@")) != 0)
        return kvb_complain("size", KVB_EXIT_USAGE, "--engine: %s, but %s is a log of %s", s->engine, s->log,
                            s->logged.engine);
    s->engine = s->engine ? s->engine : ran->engine;
    s->context = s->context ? s->context : *ran->context ? ran->context : NULL;
    s->sequences = ran->sequences;
    s->kv = s->kv ? s->kv : *ran->kv ? ran->kv : NULL;
    if (!s->words.n && *s->logged.at[KVB_LOGGED_MODEL].word && (s->words.at = calloc(2, sizeof *s->words.at)))
        s->words.at[s->words.n++] = s->logged.at[KVB_LOGGED_MODEL].word;
    if (!s->context)
        return bad("--log", "does not say a context or the tokens of its pool: --context N");
    return KVB_EXIT_OK;
}

static int size_do(size *s)
{
    int code = s->log ? log_read(s) : KVB_EXIT_OK;

    code = code ? code : options_read(s);
    if (!code && s->log && (s->contexts.n != 1 || s->pairs.n > 1 || s->engines.n != 1 || s->page))
        return bad("--log", "takes one --context, --kv and --engine, and makes no page");

    if (!code && s->list && (s->words.n || s->context || s->sequences || s->kv || s->verify || asks_more(s)))
        return bad("--list", "goes with --format and -o alone");
    if (!code && s->list)
        return s->page ? bad("--list", "is a table: --format table, md, csv or json") : tables_write(s, list_print);
    if (!code && !s->words.n)
        return kvb_complain("size", KVB_EXIT_USAGE, "name a model or a config.json, or --list; see --help");
    if (!code && s->verify)
        code = verify_check(s);
    if (!code)
        code = models_open(s);
    if (!code && s->verify)
        return verify_do(s);
    s->rows.n_engines = s->engines.n;
    s->rows.matrix = !s->sequences && !s->page && !s->suggest;
    for (size_t i = 0; i < s->n_models && !code; i++)
        code = model_size(s, i);
    return code ? code : tables_write(s, output_print);
}

static int size_run(void *typed, int argc, char **argv)
{
    size *s = typed;
    const int code = size_do(s);

    (void)argc, (void)argv;
    for (size_t i = 0; i < s->n_models; i++)
        kvb_sized_model_free(s->models[i]);
    free(s->rows.at);
    free(s->models);
    kvb_sized_model_free(s->draft_model);
    free(s->contexts.at);
    free(s->counts.at);
    free(s->pairs.at);
    free(s->engines.at);
    return code;
}

const kvb_command kvb_command_size = {
    .name = "size",
    .summary = "what memory a model needs, by engine, and what fits",
    .run = size_run,
    .bytes = sizeof(size),
    .usual = &(const size){.ask = {.tp = 1, .pp = 1}},
    .synopsis = "MODEL... [options]",
    .about =
        "How much memory do N sequences of a model need, and what fits? MODEL is a Hugging Face config.json, "
        "a folder with one, - (standard input), the name of a built-in model, or its weights: FILE.gguf, or "
        "an index of safetensors beside a config.json.\n\n"
        "  kvbench size Llama-3.1-8B --gpu H100-80GB              what fits: contexts and sequences, by engine\n"
        "  kvbench size Llama-3.1-8B --sequences 1,8              each engine's allocation beside the ideal minimum\n"
        "  kvbench size Llama-3.1-70B --gpu H100-80GB --context 32k --sequences 16 --suggest\n"
        "  kvbench size DeepSeek-V3 --context 1 --explain         which field gave which factor\n"
        "  kvbench size config.json --context 32k --sequences 1,8 --kv f16,q8_0 --budget 80GiB --margin 5%\n"
        "  kvbench size gemma-3-27b-it gpt-oss-20b --format html -o size.html\n"
        "  kvbench size Llama-3.1-8B DeepSeek-V3 --verify         counted against allocated: caches, formats, growth "
        "policies\n"
        "  kvbench size Llama-3.1-8B --log vllm.log               predicted, logged, and which rule differs\n"
        "  kvbench size --list\n\n"
        "All sizes are for one rank of --tp x --pp. ideal is every row and state that a later token may read; "
        "the others are what that engine allocates. KiB, MiB, GiB are powers of 1024, as are k, M, G of "
        "tokens. Activations: of vllm its profiling run's peak, of sglang what it reserves, of llama.cpp its "
        "compute buffer; else at least what one layer needs for --batch tokens, and f32 logits of each "
        "sequence. trtllm leaves a ninth of its rows' memory free besides. In csv and json all sizes are "
        "bytes, and what is not known is empty or null, with a reason.",
    .options = options,
    .words = offsetof(size, words),
    .takes_words = true,
};
