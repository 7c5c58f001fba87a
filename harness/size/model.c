/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models: read from a config.json (the JSON, the text config in a multimodal one, the architecture, then its layers), or
 * built into the program.
 */
#include "harness/size/model.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/command_line.h"
#include "harness/size/model_reading.h"
#include "harness/size/weights.h"
#include "results/table.h"
#include "workloads/files.h"

/* ---- reading a config -------------------------------------------------------------------------------------- */

/* Python writes Infinity and NaN (mamba's time_step_limit), which are not JSON. Replaces them by numbers of the same
 * length. */
static void numbers_mend(char *text, size_t n)
{
    static const struct {
        const char *word, *number;
    } words[] = {{"Infinity", "1e308   "}, {"NaN", "0.0"}};
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (text[i] == '\\' && in_string)
            i++;
        for (size_t w = 0; !in_string && w < sizeof words / sizeof *words; w++) {
            size_t length = strlen(words[w].word);
            if (n - i >= length && memcmp(text + i, words[w].word, length) == 0)
                memcpy(text + i, words[w].number, length);
        }
    }
}

/* NULL after a failure. */
static json_t *json_read(kvb_config_json *c, const char *text, size_t n)
{
    json_error_t error;
    char *copy = malloc(n + 1);
    const size_t mark = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark, from Windows */

    if (!copy) {
        kvb_config_fail(c, -ENOMEM, "no memory");
        return NULL;
    }
    n -= mark;
    memcpy(copy, text + mark, n);
    numbers_mend(copy, n);
    json_t *root = json_loadb(copy, n, JSON_REJECT_DUPLICATES, &error);
    free(copy);
    if (!root)
        kvb_config_fail(c, -EINVAL, "line %d: %s", error.line, error.text);
    else if (!json_is_object(root))
        kvb_config_fail(c, -EINVAL, "line 1: an object was expected, the config.json of one model");
    return root;
}

/* The config of Qwen-Omni's thinker, beside the ones of its talker and vocoder; else the config itself. */
static const json_t *wrapper_of(const json_t *root)
{
    const json_t *thinker = json_object_get(root, "thinker_config");

    return json_is_object(thinker) ? thinker : root;
}

/* The part of a multimodal config that describes the language model, or the whole config if it has no such part. */
static const json_t *text_config(kvb_config_json *c, const json_t *root)
{
    static const char *const nests[][2] = {{"text_config", "text_config."},
                                           {"llm_config", "llm_config."},
                                           {"language_config", "language_config."},
                                           {"decoder", "decoder."}};

    c->place = "";
    root = wrapper_of(root);
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        const json_t *inner = json_object_get(root, nests[i][0]);
        if (!inner || json_is_null(inner))
            continue;
        c->place = nests[i][1];
        if (json_is_object(inner))
            return inner;
        kvb_config_fail(c, -EINVAL, "%s: an object was expected", nests[i][0]);
    }
    return root;
}

/* A name. NULL: the value is absent or null, or it is no string, which is a failure. */
static const char *name_of(kvb_config_json *c, const json_t *value, const char *expected)
{
    if (value && !json_is_string(value) && !json_is_null(value))
        kvb_config_fail(c, -EINVAL, "%s%s", c->place, expected);
    return json_string_value(value);
}

/* mamba_ssm's own config.json names no architecture, but has these two fields. */
static const char *architecture_of_mamba_ssm(const json_t *root)
{
    const json_t *own = json_object_get(root, "ssm_cfg");
    const char *layer = json_string_value(json_object_get(own, "layer"));

    if (!json_is_object(own) || !json_object_get(root, "d_model"))
        return NULL;
    return layer && strcmp(layer, "Mamba2") == 0 ? "mamba_ssm Mamba2" : "mamba_ssm Mamba1";
}

/* Finds the family by model_type or architecture, of the text config, then of the enclosing config. If both names in one
 * object are known, they must agree. */
static void family_choose(kvb_model_reading *reading, const json_t *root, const json_t *text)
{
    kvb_config_json *c = &reading->config;
    const char *own = architecture_of_mamba_ssm(root);
    const json_t *const objects[] = {text, root};

    for (int i = 0; i < 2 && !reading->family; i++) {
        const json_t *classes = json_object_get(objects[i], "architectures");
        const char *type = name_of(c, json_object_get(objects[i], "model_type"), "model_type: a name was expected");
        const char *architecture = name_of(c, json_is_array(classes) ? json_array_get(classes, 0) : classes,
                                           "architectures: a list of names was expected");
        const kvb_layer_family *by_type = type ? kvb_layer_family_find(type) : NULL;
        const kvb_layer_family *by_name = architecture ? kvb_layer_family_find(architecture) : NULL;
        if (by_type && by_name && by_type != by_name)
            kvb_config_fail(c, -EINVAL, "architectures says %.60s, but model_type says %.60s", architecture, type);
        reading->family = by_type ? by_type : by_name;
        reading->class = type ? kvb_config_class_find(type) : NULL;
        if (!reading->class && architecture)
            reading->class = kvb_config_class_find(architecture);
        if (type || architecture) {
            c->model_class = architecture ? architecture : type;
            if (!reading->family && objects[i] == text && text != root && type)
                break; /* the wrapper is known, but not the language model inside */
        }
    }
    if (!reading->family && own) {
        const char *name = strcmp(own, "mamba_ssm Mamba2") == 0 ? "mamba_ssm_2" : "mamba_ssm_1";

        c->model_class = own;
        reading->family = kvb_layer_family_find(name);
        reading->class = kvb_config_class_find(name);
    }
    if (!reading->family && !c->model_class)
        kvb_config_fail(c, -EINVAL, "architectures, model_type: missing: one of them was expected");
    else if (!reading->family)
        kvb_config_fail(c, -ENOTSUP, "%sarchitectures, model_type: \"%.60s\" is not known; nothing is guessed",
                        c->place, c->model_class);
    else if (reading->family->refusal)
        kvb_config_fail(c, -ENOTSUP, "%.60s: %s", c->model_class, reading->family->refusal);
}

/* Copies the fields that the weights need from the enclosing config. */
static void enclosing_fill(kvb_config_json *c, const json_t *root)
{
    static const char *const fields[] = {"tie_word_embeddings", "torch_dtype",  "dtype",   "quantization_config",
                                         "vision_config",       "audio_config", "encoder", "talker_config"};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *value = json_object_get(root, fields[i]);
        if (value && !json_object_get(c->fields, fields[i]) && json_object_set(c->fields, fields[i], value) != 0)
            kvb_config_fail(c, -ENOMEM, "no memory");
    }
}

static void dtype_read(kvb_model_reading *reading)
{
    static const struct {
        const char *word, *dtype;
    } dtypes[] = {{"bfloat16", "bf16"}, {"float16", "f16"}, {"float32", "f32"}};
    kvb_config_json *c = &reading->config;
    kvb_sized_model *model = reading->model;
    const char *word = kvb_config_text(c, "torch_dtype dtype");

    for (size_t i = 0; word && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(word + (strncmp(word, "torch.", 6) == 0 ? 6 : 0), dtypes[i].word) == 0)
            snprintf(model->dtype, sizeof model->dtype, "%s", dtypes[i].dtype);
    if (word && !model->dtype[0])
        kvb_config_fail(c, -EINVAL, "%storch_dtype: \"%.40s\" is none of bfloat16, float16 and float32", c->place,
                        word);
    if (!word)
        kvb_sized_model_note_add(reading, -1, "torch_dtype and dtype are absent",
                                 "dtype = 16 bits, taken for weights, KV and activations");
}

/* The number of layers: from its own field, else from the family's list of layers. */
static kvb_config_fact layers_count(kvb_model_reading *reading)
{
    static const char usual[] = "num_hidden_layers n_layer n_layers num_layers";
    kvb_config_json *c = &reading->config;
    const char *name, *names = reading->family->count_in ? reading->family->count_in : usual;
    const json_t *list = kvb_config_has(c, names) ? NULL : kvb_config_find(c, reading->family->layers_in, &name);
    kvb_config_fact fact = {.value = json_is_string(list) ? json_string_length(list) : json_array_size(list)};

    if (!fact.value) {
        fact = kvb_config_count(c, names);
        fact.value *= reading->family->count_times ? reading->family->count_times : 1;
        return fact;
    }
    snprintf(fact.source, sizeof fact.source, "entries of %s%s", c->place, name);
    return fact;
}

/* The width of the widest feed-forward block; Gemma 3n has a list of widths. */
static uint32_t intermediate_read(kvb_config_json *c)
{
    const json_t *field = kvb_config_find(c, "intermediate_size", NULL);
    json_int_t most = json_is_array(field) ? 0 : (json_int_t)kvb_config_number(c, "intermediate_size");

    for (size_t i = 0; i < json_array_size(field); i++) {
        json_int_t width = json_integer_value(json_array_get(field, i));
        most = width > most && width <= INT32_MAX ? width : most;
    }
    return (uint32_t)most;
}

/* The first number that is not 0. fields: end with NULL. */
static uint64_t number_of_first(kvb_config_json *c, const char *const *fields)
{
    uint64_t number = 0;

    for (; *fields && !number; fields++)
        number = kvb_config_number(c, *fields);
    return number;
}

/* Reads facts of the whole model. */
static void whole_read(kvb_model_reading *reading)
{
    kvb_config_json *c = &reading->config;
    kvb_sized_model *model = reading->model;
    kvb_config_fact layers = layers_count(reading);

    if (layers.value > KVB_LAYERS_MOST)
        kvb_config_fail(c, -EINVAL, "%s: %ju layers are more than the %u that sizing takes", layers.source,
                        (uintmax_t)layers.value, KVB_LAYERS_MOST);
    if (c->error)
        return;
    reading->n_layers = model->n_layers = (uint32_t)layers.value;
    kvb_sized_model_note_add(reading, -1, layers.source, "layers = %u", model->n_layers);
    model->hidden = (uint32_t)kvb_config_count(c, "hidden_size n_embd d_model n_embed").value;
    model->intermediate = intermediate_read(c);
    model->vocab = (uint32_t)kvb_config_number(c, "vocab_size padded_vocab_size");
    /* some configs have two of these with different values */
    model->max_context = number_of_first(
        c, (const char *const[]){"max_position_embeddings", "n_positions",
                                 "seq_length max_seq_len context_length max_target_positions model_max_length", NULL});
    model->mtp_layers = (uint32_t)number_of_first(
        c, (const char *const[]){"num_nextn_predict_layers", "mtp_num_hidden_layers num_mtp_modules num_mtp_layers",
                                 NULL});
    dtype_read(reading);
}

/* Fills in names, and the text config with everything that belongs to it. */
static void model_begin(kvb_model_reading *reading, const json_t *root, const json_t *text)
{
    kvb_config_json *c = &reading->config;
    kvb_sized_model *model = reading->model;
    const char *type = json_string_value(json_object_get(root, "model_type")),
               *outer = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));

    model->name = strdup(c->file);
    model->architecture = strdup(outer ? outer : c->model_class);
    model->type = strdup(type ? type : "");
    model->config = c->fields = json_copy((json_t *)text);
    c->given = text;
    c->class_name = reading->class ? reading->class->class_name : c->model_class;
    c->inert = reading->class ? reading->class->inert : NULL;
    if (!model->name || !model->architecture || !model->type || !c->fields)
        return kvb_config_fail(c, -ENOMEM, "no memory");
    enclosing_fill(c, wrapper_of(root));
    enclosing_fill(c, root);
    kvb_config_default_fill(c, reading->class ? reading->class->defaults : NULL);
    if (text != root)
        kvb_sized_model_note_add(reading, -1, "the config has a part for the text",
                                 "the language model alone is sized");
}

int kvb_sized_model_read(const char *text, size_t n, json_t *config, const char *name, kvb_sized_model **model,
                         char *why, size_t why_bytes)
{
    *model = calloc(1, sizeof **model);
    kvb_model_reading reading = {.model = *model};
    kvb_config_json *c = &reading.config;

    if (!*model)
        return kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", name);
    *c = (kvb_config_json){.file = name, .place = "", .why = why, .why_bytes = why_bytes, .asked = json_object()};
    json_t *root = text ? json_read(c, text, n) : json_incref(config);
    const json_t *inner = c->error ? NULL : text_config(c, root);

    if (!c->error)
        family_choose(&reading, root, inner);
    if (!c->error)
        model_begin(&reading, root, inner);
    if (!c->error)
        whole_read(&reading);
    if (!c->error)
        kvb_layers_read(&reading);
    kvb_sized_parameters *parameters = &(*model)->parameters; /* unknown ones are no failure */
    if (!c->error && kvb_sized_parameters_read(c->fields, *model, parameters) != 0)
        kvb_config_fail(c, -EINVAL, "%s%s", c->place, parameters->why);
    const int error = c->error;
    json_decref(root);
    json_decref(c->asked);
    if (!error)
        return 0;
    kvb_sized_model_free(*model);
    *model = NULL;
    kvb_utf8_clean(why);
    for (char *p = why; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    return error;
}

void kvb_sized_model_free(kvb_sized_model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->n_notes; i++) {
        free(model->notes[i].text);
        free(model->notes[i].source);
    }
    free(model->notes);
    free(model->groups);
    free(model->name);
    free(model->architecture);
    free(model->type);
    free(model->source);
    json_decref(model->config);
    free(model);
}

bool kvb_sized_grows(const kvb_sized_model *model, const kvb_sized_group *g, uint64_t context)
{
    bool local = g->kind == KVB_SIZED_WINDOW || g->kind == KVB_SIZED_CHUNK;
    bool inert = local && model->max_context && g->window >= model->max_context && g->window >= context;

    return g->kind == KVB_SIZED_FULL || g->kind == KVB_SIZED_LATENT || g->kind == KVB_SIZED_POOLED || inert;
}

/* ---- built-in models --------------------------------------------------------------------------------------- */

#define NEAR_MOST   4u
#define NAME_SHOWN  64u /* bytes of an unknown name, and more than a built-in one has */
#define MODELS_MOST 512u

/* models.jsonl has one line {"name", "source", "config"} for each model; the config is read like one from a file. The
 * assembler includes the file unchanged, with a 0 at its end. */
__asm__(".pushsection .rodata\n"
        ".global kvb_models_text\n"
        ".hidden kvb_models_text\n"
        "kvb_models_text: .incbin \"harness/size/models.jsonl\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char kvb_models_text[] __attribute__((visibility("hidden")));

/* The lines, and the name with which each begins. Only the chosen model's line is read as JSON. */
static struct {
    const char *text;
    char name[NAME_SHOWN];
} lines[MODELS_MOST];
static pthread_once_t lines_once = PTHREAD_ONCE_INIT;

static void lines_read(void)
{
    size_t i = 0;
    for (const char *line = kvb_models_text;
         i < MODELS_MOST && sscanf(line, "{\"name\":\"%63[^\"]", lines[i].name) == 1; line += strcspn(line, "\n") + 1)
        lines[i++].text = line;
}

const char *kvb_sized_model_name(size_t i)
{
    pthread_once(&lines_once, lines_read);
    return i < MODELS_MOST && lines[i].text ? lines[i].name : NULL;
}

/* The part of a name after its last slash, or the last but a trailing one: "Llama-3.1-8B" of "meta-llama/Llama-3.1-8B". */
static const char *part_of(const char *name)
{
    const char *part = name;

    for (const char *c = name; *c; c++)
        if (*c == '/' && c[1 + strspn(c + 1, "/")])
            part = c + 1;
    return part;
}

/* Copies the letters and digits of a name: so "llama3" is a part of "Llama-3.1-8B". */
static void letters_of(const char *name, char *letters, size_t bytes)
{
    size_t n = 0;

    for (; *name && n + 1 < bytes; name++)
        if (isalnum((unsigned char)*name))
            letters[n++] = *name;
    letters[n] = '\0';
}

static void near_tell(const char *name, char *why, size_t why_bytes)
{
    const char *near[NEAR_MOST] = {NULL};
    uint32_t far[NEAR_MOST], n = 0;
    char safe[NAME_SHOWN], letters[NAME_SHOWN], other[NAME_SHOWN];

    letters_of(part_of(name), letters, sizeof letters);
    for (size_t i = 0; kvb_sized_model_name(i); i++) { /* keeps the nearest ones, sorted */
        const uint32_t apart = kvb_name_distance(part_of(name), part_of(kvb_sized_model_name(i)));
        letters_of(part_of(kvb_sized_model_name(i)), other, sizeof other);
        const uint32_t close = kvb_name_distance(letters, other), d = close < apart ? close : apart;
        uint32_t at = n;
        while (at > 0 && d < far[at - 1])
            at--;
        if (at == NEAR_MOST || d > 1 + strlen(part_of(name)) / 3)
            continue;
        n += n < NEAR_MOST;
        for (uint32_t j = n - 1; j > at; j--) {
            far[j] = far[j - 1];
            near[j] = near[j - 1];
        }
        far[at] = d;
        near[at] = kvb_sized_model_name(i);
    }
    snprintf(safe, sizeof safe, "%s", name);
    snprintf(why, why_bytes, "\"%s\": no built-in model of this name", safe);
    for (uint32_t i = 0; i < n; i++)
        kvb_list_add(why, why_bytes, i == 0 ? "; similar: " : ", ", "%s", near[i]);
}

/* A name's last part without words for further training, which does not change the shape: "llama-3.1-8b" of
 * "Meta-Llama-3.1-8B-Instruct". */
static void stem_of(const char *name, char *stem, size_t bytes)
{
    static const char *const ends[] = {"-instruct", "-chat", "-it", "-hf", "-base"};
    const char *part = part_of(name);

    snprintf(stem, bytes, "%s", strncasecmp(part, "meta-", 5) == 0 ? part + 5 : part);
    for (char *c = stem; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    for (size_t i = 0, n = strlen(stem); i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(stem + n - strlen(ends[i]), ends[i]) == 0) {
            stem[n - strlen(ends[i])] = '\0';
            return;
        }
}

/* The line of the model with this name, else with its stem. -1: none. */
static int line_find(const char *name)
{
    char stem[NAME_SHOWN], other[NAME_SHOWN];

    for (size_t i = 0; kvb_sized_model_name(i); i++)
        if (strcasecmp(name, kvb_sized_model_name(i)) == 0 ||
            strcasecmp(part_of(name), part_of(kvb_sized_model_name(i))) == 0)
            return (int)i;
    stem_of(name, stem, sizeof stem);
    for (size_t i = 0; kvb_sized_model_name(i); i++) {
        stem_of(kvb_sized_model_name(i), other, sizeof other);
        if (strcmp(stem, other) == 0)
            return (int)i;
    }
    return -1;
}

int kvb_sized_model_built_in(const char *name, kvb_sized_model **model, char *why, size_t why_bytes)
{
    int i = line_find(name), error;

    *model = NULL;
    if (i < 0) {
        near_tell(name, why, why_bytes);
        return -ENOENT;
    }
    const char *text = lines[i].text;
    json_t *line = json_loadb(text, strcspn(text, "\n"), 0, NULL);
    error = kvb_sized_model_read(NULL, 0, json_object_get(line, "config"), lines[i].name, model, why, why_bytes);
    if (!error && !((*model)->source = strdup(json_string_value(json_object_get(line, "source"))))) {
        kvb_sized_model_free(*model);
        *model = NULL;
        error = kvb_why_set(-ENOMEM, why, why_bytes, "%s: no memory", name);
    }
    json_decref(line);
    return error;
}
