/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: what the decoder records over every cache, and from a checkpoint. */
#include "ci/tests/tests.h"
#include "ci/tests/live/fixture.h"
#include "workloads/live/model.h"
#include "workloads/live/weights.h"
#include "workloads/safetensors.h"
#include "workloads/trace.h"
#include "workloads/values.h"

/* Shows: a recording reads back as a valid trace with the events of its scenario, and is the same file, byte for byte,
 * over every cache. The files in workloads/recorded are what the recorder writes today. */

/* Records with weights of the scenario's own geometry, like the files in workloads/recorded. */
static kvb_live_outcome recorded(const kvb_scenario *scenario, const kvb_cache_type *cache, const char *directory)
{
    kvb_live_options options = options_of(NULL, cache);
    kvb_live_outcome outcome;
    char why[320] = "";
    options.kernel = &kvb_live_kernel_exact;
    if (kvb_live_record(scenario, &options, directory, &outcome, why, sizeof why))
        fail_msg("%s", why);
    return outcome;
}

static void record(const kvb_scenario *scenario, const kvb_cache_type *cache, const char *directory)
{
    kvb_live_outcome outcome = recorded(scenario, cache, directory);
    kvb_live_outcome_free(&outcome);
}

static bool same_file(const char *one, const char *other, const char *name, const char *suffix)
{
    char path[8192];
    size_t bytes[2];
    snprintf(path, sizeof path, "%s/%s%s", other, name, suffix);
    char *a = tests_read(tests_path("%s/%s%s", one, name, suffix), &bytes[0]), *b = tests_read(path, &bytes[1]);
    bool same = a && b && bytes[0] == bytes[1] && !memcmp(a, b, bytes[0]);
    free(a);
    free(b);
    return same;
}

static bool same_twins(const char *one, const char *other, const kvb_scenario *scenario)
{
    char suffix[24], ending[32];
    bool same = true;
    for (unsigned i = 0; kvb_live_twin_suffix(scenario, i, suffix, sizeof suffix); i++) {
        snprintf(ending, sizeof ending, "%s.jsonl", suffix);
        same = same_file(one, other, scenario->name, ending) && same;
    }
    return same;
}

/* The right recording and tokens come from recompute, which reads no cached rows; where a scenario needs rows that are kept,
 * from slab or seq. */
static const kvb_cache_type *base_of(const kvb_scenario *scenario)
{
    return kvb_scenario_fits(scenario, &kvb_cache_recompute) ? &kvb_cache_recompute
           : kvb_scenario_fits(scenario, &kvb_cache_slab)    ? &kvb_cache_slab
                                                             : &kvb_cache_seq;
}

static kvb_live_outcome truths[64]; /* of each scenario, once recorded */

/* The folder of the right recordings, which several tests read. They are made once. */
static const char *all_recorded(void)
{
    static char folder[1024];
    if (*folder)
        return folder;
    snprintf(folder, sizeof folder, "%s", tests_folder());
    for (size_t i = 0; kvb_scenarios[i]; i++) {
        assert_true(i < sizeof truths / sizeof *truths);
        truths[i] = recorded(kvb_scenarios[i], base_of(kvb_scenarios[i]), folder);
    }
    return folder;
}

/* Over every cache the model has the same tokens; with the reference kernel, too, over each third cache in turn. */
TEST(test_recordings_do_not_depend_on_the_cache)
{
    static const char *const suffixes[] = {".jsonl", ".safetensors"};
    const char *own = all_recorded(), *other = tests_folder();
    for (const kvb_scenario *const *s = kvb_scenarios; *s; s++) {
        const kvb_cache_type *base = base_of(*s);
        const kvb_live_outcome truth = truths[s - kvb_scenarios];
        uint32_t others = 0;
        for (const kvb_cache_type *const *cache = kvb_builtin_caches; *cache; cache++) {
            if (*cache == &kvb_cache_recompute || !kvb_scenario_fits(*s, *cache))
                continue;
            kvb_live_outcome said = recorded(*s, *cache, other);
            if (!says_the_same(&said, &truth))
                fail_msg("%s over %s does not say what it says over %s", (*s)->name, (*cache)->name, base->name);
            kvb_live_outcome_free(&said);
            for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
                if (!same_file(own, other, (*s)->name, suffixes[i]))
                    fail_msg("%s%s differs over %s", (*s)->name, suffixes[i], (*cache)->name);
            if (!same_twins(own, other, *s))
                fail_msg("a twin of %s differs over %s", (*s)->name, (*cache)->name);

            others += *cache != base;
            if ((others + (s - kvb_scenarios)) % 3)
                continue;
            const kvb_live_options options = options_of(NULL, *cache);
            said = play(*s, &options);
            if (!says_the_same(&said, &truth))
                fail_msg("%s over %s: the reference kernel says something else", (*s)->name, (*cache)->name);
            kvb_live_outcome_free(&said);
        }
        print_message("# %s: %u caches say what %s says\n", (*s)->name, others, base->name);
        assert_true(others > 0 || (*s)->needs & KVB_CACHE_DIVIDE); /* only seq can divide */
    }
}

/* Events of each kind. */
static void count_kinds(const kvb_trace *trace, uint32_t count[KVB_EVENT_KINDS])
{
    memset(count, 0, KVB_EVENT_KINDS * sizeof *count);
    for (size_t i = 0; i < trace->n_events; i++)
        count[trace->events[i].kind]++;
}

static kvb_trace *trace_load(const char *directory, const char *name, const char *suffix)
{
    char why[320] = "";
    kvb_trace *trace = NULL;
    if (kvb_trace_load(tests_path("%s/%s%s.jsonl", directory, name, suffix), 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

/* The model must have so many layers. All but each `full_every`th have the scenario's limits. Each layer with sink
 * logits has its own logits, and so its own group. */
static void assert_limits(const kvb_model *model, const kvb_scenario *s, uint32_t layers, uint32_t full_every,
                          bool sink_logits)
{
    assert_int_equal(model->n_layers, layers);
    assert_int_equal(model->n_groups, sink_logits ? layers : full_every ? 2 : 1);
    for (uint32_t layer = 0; layer < layers; layer++) {
        const kvb_group *g = kvb_model_group(model, layer);
        bool whole = full_every && layer % full_every == full_every - 1;
        assert_int_equal(g->window, whole ? 0 : s->limits.window);
        assert_int_equal(g->sinks, whole ? 0 : s->limits.sinks);
        assert_int_equal(g->chunk, whole ? 0 : s->limits.chunk);
        assert_int_equal(g->sink_logits != NULL, sink_logits);
        for (uint32_t before = 0; sink_logits && before < layer; before++)
            assert_memory_not_equal(g->sink_logits, kvb_model_group(model, before)->sink_logits,
                                    g->heads * sizeof(float));
    }
}

TEST(test_recordings_read_back)
{
    /* Each trace: sequences, most tokens of a step, most live tokens (0: not checked), tokens; events of each kind. */
    static const char *const expected[] = {
        "plain-decode 1 48 192 192: step 64 prefill 6",
        "batched-multi-seq 8 24 332 466: step 52 prefill 5 seq_rm 10",
        "agent-fork 8 48 193 244: step 56 prefill 1 seq_cp 7 seq_rm 5 seq_keep 1",
        "eagle-tree 1 48 0 1296: prefill 1 propose 48 commit 48",
        "parallel-sample 9 40 232 232: step 24 prefill 1 seq_cp 8",
        "sliding-window 5 64 253 334: step 194 prefill 1 seq_cp 4 seq_rm 2 seq_keep 1",
        "sink-window 4 20 413 420: step 100 prefill 6 seq_cp 1 seq_rm 2",
        "mla-decode 1 48 192 192: step 64 prefill 6",
        "gemma-like 1 48 192 192: step 64 prefill 6",
        "gpt-oss-like 4 20 413 420: step 100 prefill 6 seq_cp 1 seq_rm 2",
        "chunked-local 5 64 253 334: step 194 prefill 1 seq_cp 4 seq_rm 2 seq_keep 1",
        "beam-search 5 36 0 109: step 24 prefill 1 reorder 24",
        "spec-batch 4 24 0 231: step 15 prefill 4 propose 8 commit 21 seq_rm 1",
        "context-shift 2 40 134 138: step 78 prefill 1 seq_cp 1 seq_rm 3 seq_add 4 defrag 2",
        "self-extend 2 40 106 124: step 72 prefill 1 seq_cp 1 seq_rm 2 seq_add 12 seq_div 6 defrag 1",
        "evict-rollback 2 40 0 162: step 83 prefill 1 seq_cp 1 seq_rm 5",
    };
    const char *directory = all_recorded();
    char why[320] = "";
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char name[40], kind[16];
        uint32_t want[KVB_EVENT_KINDS] = {0}, seqs, step, cells, tokens, times;
        int at, n;
        assert_int_equal(sscanf(expected[i], "%39s %u %u %u %u:%n", name, &seqs, &step, &cells, &tokens, &at), 5);
        for (; sscanf(expected[i] + at, "%15s %u%n", kind, &times, &n) == 2; at += n)
            for (int k = 0; k < KVB_EVENT_KINDS; k++)
                want[k] += strcmp(kvb_event_kind_name((kvb_event_kind)k), kind) ? 0 : times;
        const kvb_scenario *s = kvb_scenario_find(name);
        assert_non_null(s);
        kvb_trace *trace = trace_load(directory, s->name, "");
        uint32_t count[KVB_EVENT_KINDS];
        count_kinds(trace, count);
        print_message("# %s: %zu events, %u cells\n", s->name, trace->n_events, trace->needs.cells);
        assert_memory_equal(count, want, sizeof count);
        assert_int_equal(trace->needs.seqs, seqs);
        assert_int_equal(trace->needs.step, step);
        assert_int_equal(trace->needs.tokens, tokens);
        if (cells)
            assert_int_equal(trace->needs.cells, cells);
        assert_int_equal(trace->needs.tree, (s->needs & KVB_CACHE_TREE) != 0);
        assert_int_equal(trace->needs.seq, (s->needs & KVB_CACHE_SEQ) != 0);
        assert_int_equal(trace->needs.reorder, (s->needs & KVB_CACHE_REORDER) != 0);
        kvb_model_config config;
        kvb_scenario_config(s, &config);
        assert_true(trace->needs.rollback <= s->rollback || !kvb_group_limits(&s->limits));
        assert_true(trace->needs.rollback || !s->rollback);
        assert_limits(&trace->header.model, s, config.layers, s->full_every, config.sink_logits);
        assert_int_equal(trace->needs.shift, (s->needs & KVB_CACHE_SHIFT) != 0);
        assert_true((s->needs & KVB_CACHE_SHIFT) || (trace->needs.seq_len > 7 * s->limits.window &&
                                                     trace->needs.seq_len > 7 * s->limits.chunk)); /* far past */
        assert_int_equal(trace->header.model.groups[0].latent, s == &kvb_scenario_mla_decode);

        kvb_values *values = NULL; /* opening also checks that tensors have their shapes and are finite */
        if (kvb_values_open(trace, NULL, 0, NULL, NULL, &values, why, sizeof why))
            fail_msg("%s", why);
        assert_int_equal(values->tokens, tokens);
        kvb_values_free(values);

        char suffix[24];
        const kvb_group llama = {.heads = 32, .kv_heads = 8, .k_dim = 128, .v_dim = 128};
        unsigned twins = 0;
        for (; kvb_live_twin_suffix(s, twins, suffix, sizeof suffix); twins++) {
            kvb_trace *seeded = trace_load(directory, s->name, suffix);
            assert_int_equal(seeded->n_events, trace->n_events);
            assert_int_equal(seeded->needs.pairs, trace->needs.pairs);
            bool both = s->full_every; /* a layer of each kind */
            assert_limits(&seeded->header.model, s, both ? 2 : 1, both ? 2 : 0, config.sink_logits);
            const kvb_group *real = twins ? s->small : s->real ? s->real : &llama;
            for (uint32_t g = 0; g < seeded->header.model.n_groups; g++) {
                const kvb_group *group = &seeded->header.model.groups[g];
                assert_true(group->heads == real->heads && group->kv_heads == real->kv_heads &&
                            group->latent == real->latent && group->rope.known == ((s->needs & KVB_CACHE_SHIFT) != 0));
                assert_true(group->k_dim == real->k_dim && group->v_dim == real->v_dim);
            }
            assert_string_equal(seeded->header.profile, "llama");
            kvb_trace_free(seeded);
        }
        assert_int_equal(twins, s->small ? 2 : 1);
        kvb_trace_free(trace);
    }
}

TEST(test_scenarios_have_their_hard_parts)
{
    const char *directory = tests_folder();
    record(&kvb_scenario_agent_fork, &kvb_cache_seq, directory);
    record(&kvb_scenario_batched_multi_seq, &kvb_cache_seq, directory);
    kvb_trace *trace = trace_load(directory, "agent-fork", "");
    uint32_t part_copies = 0, suffixes = 0, branches_differ = 0;
    for (size_t i = 0; i < trace->n_events; i++) {
        const kvb_event *e = &trace->events[i];
        part_copies += e->kind == KVB_EVENT_SEQ_CP && e->src != 0 && e->p1 != KVB_TRACE_POS_END;
        suffixes += e->kind == KVB_EVENT_SEQ_RM && e->p0 > 0;
        for (uint32_t t = 1; e->kind == KVB_EVENT_STEP && t < e->n; t++)
            branches_differ += e->tok[t] != e->tok[0];
    }
    assert_int_equal(part_copies, 1);
    assert_int_equal(suffixes, 1);
    assert_true(branches_differ > 100);
    kvb_trace_free(trace);

    trace = trace_load(directory, "batched-multi-seq", "");
    uint32_t mixed = 0, alive_again = 0, left[64] = {0};
    for (size_t i = 0; i < trace->n_events; i++) {
        const kvb_event *e = &trace->events[i];
        if (e->kind == KVB_EVENT_SEQ_RM)
            left[e->src] = 1;
        if (e->kind == KVB_EVENT_STEP && e->n > 8)
            mixed++; /* more tokens than sequences: a chunk of a prompt beside decoding sequences */
        for (uint32_t t = 0; (e->kind == KVB_EVENT_STEP || e->kind == KVB_EVENT_PREFILL) && t < e->n; t++)
            alive_again += left[e->seq[t]] && e->pos[t] == 0;
    }
    assert_true(mixed >= 5);
    assert_int_equal(alive_again, 2);
    kvb_trace_free(trace);

    record(&kvb_scenario_beam_search, &kvb_cache_seq, directory);
    trace = trace_load(directory, "beam-search", "");
    uint32_t swaps = 0, narrowed = 0, both = 0;
    for (size_t i = 0; i < trace->n_events; i++) {
        const kvb_event *e = &trace->events[i];
        bool swap = false, dies[5] = {0};
        for (uint32_t a = 0; e->kind == KVB_EVENT_REORDER && a < e->n; a++)
            dies[a] = true;
        for (uint32_t a = 0; e->kind == KVB_EVENT_REORDER && a < e->n; a++) {
            dies[e->srcs[a]] = false;
            for (uint32_t b = 0; b < a; b++)
                swap = swap || (e->srcs[a] == b && e->srcs[b] == a);
        }
        swaps += swap;
        both += swap && (dies[0] || dies[1] || dies[2]);
        narrowed += e->kind == KVB_EVENT_STEP && i > 2 && e->n < trace->events[i - 2].n;
    }
    print_message("# beam-search: %u steps in which beams swap, in %u of them one dies; narrower %u times\n", swaps,
                  both, narrowed);
    assert_true(swaps >= 3 && both >= 1 && narrowed == 2);
    kvb_trace_free(trace);
}

TEST(test_long_decode)
{
    const char *directory = tests_folder();
    char why[320] = "";
    if (kvb_live_write_long_decode(&(kvb_live_options){.seed = SEED}, directory, why, sizeof why))
        fail_msg("%s", why);
    for (uint32_t i = 0; i < 2; i++) {
        kvb_trace *trace = trace_load(directory, i ? KVB_LONG_DECODE_RANK : KVB_LONG_DECODE, "");
        assert_true(trace->needs.fill);
        assert_int_equal(trace->n_events, 18);
        assert_int_equal(trace->needs.cells, 32768 + 17);
        assert_int_equal(trace->needs.queries, 17);
        assert_int_equal(trace->header.model.groups[0].kv_heads, i ? 2 : 8);
        assert_contains(trace->header.source, "synthetic");
        kvb_trace_free(trace);
    }
}

TEST(test_shipped_traces_are_current)
{
    if (access("workloads/recorded/plain-decode.jsonl", R_OK)) {
        print_message("# skipped: workloads/recorded is not here\n");
        skip();
    }
    const char *directory = all_recorded();
    char why[320] = "";
    for (const kvb_scenario *const *s = kvb_scenarios; *s; s++) {
        /* events and tokens only; the last bits of tensors depend on the maths library */
        if (!same_file(directory, "workloads/recorded", (*s)->name, ".jsonl") ||
            !same_twins(directory, "workloads/recorded", *s))
            fail_msg("%s is recorded otherwise than it ships", (*s)->name);
    }
    if (kvb_live_write_long_decode(&(kvb_live_options){.seed = SEED}, directory, why, sizeof why))
        fail_msg("%s", why);
    assert_true(same_file(directory, "workloads/recorded", KVB_LONG_DECODE, ".jsonl"));
    assert_true(same_file(directory, "workloads/recorded", KVB_LONG_DECODE_RANK, ".jsonl"));
}

TEST(test_unwritable_directory_is_named)
{
    kvb_live_options options = options_of(NULL, &kvb_cache_contiguous);
    kvb_live_outcome outcome;
    char why[320] = "";
    assert_true(kvb_live_record(&kvb_scenario_plain_decode, &options, "/nowhere/at/all", &outcome, why, sizeof why) <
                0);
    assert_contains(why, "/nowhere/at/all");
    kvb_live_outcome_free(&outcome);
}

/* Shows: weights saved as a Llama-style checkpoint and loaded give the same tokens. A checkpoint that would be computed
 * wrongly is refused; the reason names the key or tensor. */

static void round_trip(const kvb_model_config *config)
{
    const char *path = tests_path("model.safetensors");
    char why[320] = "";
    kvb_weights *saved = weights_new(config), *loaded = NULL;
    if (kvb_weights_save(saved, path, why, sizeof why) || kvb_weights_load(path, NULL, &loaded, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(saved->block_floats, loaded->block_floats);
    assert_memory_equal(saved->block, loaded->block, saved->block_floats * sizeof(float));
    assert_int_equal(loaded->config.qk_norm, config->qk_norm);
    assert_int_equal(loaded->config.tied, config->tied);

    kvb_live_options one = options_of(saved, &kvb_cache_contiguous), other = options_of(loaded, &kvb_cache_contiguous);
    kvb_live_outcome a = play(&kvb_scenario_plain_decode, &one), b = play(&kvb_scenario_plain_decode, &other);
    assert_true(says_the_same(&a, &b));
    kvb_live_outcome_free(&a);
    kvb_live_outcome_free(&b);
    kvb_weights_close(saved);
    kvb_weights_close(loaded);
}

TEST(test_saved_weights_say_the_same)
{
    round_trip(&kvb_model_config_default);
}

TEST(test_tied_without_qk_norm)
{
    kvb_model_config config = kvb_model_config_default;
    config.tied = true;
    config.qk_norm = false;
    config.rope_theta = 500000.5;
    config.norm_eps = 3e-6f;
    round_trip(&config);
}

/* config.json with `extra` after its opening brace, and the words that the refusal must have. */
TEST(test_configs_that_are_refused)
{
    static const struct {
        const char *text, *names;
    } bad[] = {
        {"", "column"},
        {"[]", "object"},
        {"{\"num_hidden_layers\":1", "column"},
        {"{}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":\"two\"}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":1.5}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":-1}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":99999999999}", "num_hidden_layers"},
        {"{\"num_hidden_layers\":1,\"num_hidden_layers\":1}", "num_hidden_layers"},
#define GOOD                                                                                                           \
    "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"hidden_size\":16,\"intermediate_size\":8,\"vocab_size\":32"
        {"{" GOOD ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "rope_scaling"},
        {"{" GOOD ",\"rope_parameters\":{\"rope_theta\":1}}", "rope_parameters"},
        {"{" GOOD ",\"attention_bias\":true}", "attention_bias"},
        {"{" GOOD ",\"sliding_window\":4096}", "sliding_window"},
        {"{" GOOD ",\"num_local_experts\":8}", "num_local_experts"},
        {"{" GOOD ",\"quantization_config\":{}}", "quantization_config"},
        {"{" GOOD ",\"model_type\":\"gpt2\"}", "gpt2"},
        {"{" GOOD ",\"hidden_act\":\"gelu\"}", "gelu"},
        {"{" GOOD ",\"num_key_value_heads\":3}", "multiple"},
        {"{" GOOD ",\"head_dim\":5}", "head_dim"},
        {"{" GOOD ",\"rope_theta\":\"many\"}", "rope_theta"},
        {"{" GOOD ",\"rope_theta\":0}", "rope_theta"},
        {"{" GOOD ",\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {"{" GOOD ",\"tie_word_embeddings\":1}", "tie_word_embeddings"},
    };
    kvb_model_config config;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[320] = "";
        const char *path = tests_text("config.json", bad[i].text);
        if (!kvb_model_config_load(path, &config, why, sizeof why))
            fail_msg("taken: %s", bad[i].text);
        if (!strstr(why, bad[i].names) || !strstr(why, path))
            fail_msg("%s: '%s' does not name %s", bad[i].text, why, bad[i].names);
        assert_null(strchr(why, '\n'));
    }
    char why[320] = "";
    tests_text("config.json", "{" GOOD ",\"rope_scaling\":null,\"attention_bias\":false,\"model_type\":\"llama\","
                              "\"torch_dtype\":\"bfloat16\"}");
    if (kvb_model_config_load(tests_path("config.json"), &config, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(config.kv_heads, 4);
    assert_int_equal(config.head_dim, 4);
    assert_true(!config.tied && config.rope_theta == 10000.0);
    assert_true(kvb_model_config_load(tests_path("missing.json"), &config, why, sizeof why) < 0);
    assert_contains(why, "missing.json");
}

/* Writes the default model's checkpoint with one tensor changed. */
static void save_changed(const char *path, const char *tensor, const char *renamed, uint64_t rows)
{
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    char why[320] = "";
    kvb_tensor tensors[64];
    const size_t n = weights->n_tensors;
    for (size_t i = 0; i < n; i++) {
        const kvb_weight *w = &weights->tensors[i];
        bool change = !strcmp(w->name, tensor);
        uint64_t shape0 = change && rows ? rows : w->shape[0];
        tensors[i] = (kvb_tensor){.name = change && renamed ? renamed : w->name,
                                  .dtype = KVB_DTYPE_F32,
                                  .n_dims = w->n_dims,
                                  .dims = {shape0, w->shape[1]},
                                  .data = w->data,
                                  .bytes = shape0 * w->shape[1] * sizeof(float)};
    }
    if (kvb_safetensors_write(path, tensors, n, NULL, why, sizeof why))
        fail_msg("%s", why);
    kvb_weights_close(weights);
}

TEST(test_tensors_that_are_refused)
{
    static const struct {
        const char *tensor, *renamed;
        uint64_t rows;
        const char *names;
    } bad[] = {
        {"model.layers.1.mlp.up_proj.weight", NULL, 127, "model.layers.1.mlp.up_proj.weight"},
        {"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.bias", 0, "up_proj.bias"},
        {"model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.bias", 0, "model.layers.0"},
        {"lm_head.weight", "model.layers.2.mlp.up_proj.weight", 0, "model.layers.2"},
    };
    const char *path = tests_path("%s/model.safetensors", tests_folder()), *config = tests_path("other.json");
    char why[320] = "";
    if (kvb_model_config_save(config, &kvb_model_config_default, why, sizeof why))
        fail_msg("%s", why);
    kvb_weights *weights = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        save_changed(path, bad[i].tensor, bad[i].renamed, bad[i].rows);
        assert_true(kvb_weights_load(path, config, &weights, why, sizeof why) < 0);
        assert_null(weights);
        assert_contains(why, bad[i].names);
    }
    save_changed(path, "", NULL, 0);
    if (kvb_weights_load(path, config, &weights, why, sizeof why))
        fail_msg("%s", why);
    kvb_weights_close(weights);
    assert_true(kvb_weights_load(path, NULL, &weights, why, sizeof why) < 0); /* no config.json beside it */
    assert_contains(why, "config.json");
}

/* Shows: speculative decoding gives the tokens of plain greedy decoding. */

TEST(test_eagle_says_what_greedy_says)
{
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        kvb_live_options options = options_of(weights, &kvb_cache_tree);
        options.seed = seed; /* chooses prompts and draft */
        kvb_live_outcome eagle = play(&kvb_scenario_eagle_tree, &options);
        options.cache = &kvb_cache_contiguous;
        options.n_greedy = (uint32_t)eagle.n;
        kvb_live_outcome greedy = play(&kvb_scenario_eagle_greedy, &options);
        assert_true(says_the_same(&eagle, &greedy));

        double per_pass = (double)eagle.spoken / eagle.rounds;
        print_message("# seed %u: %u rounds, %.2f tokens per target pass\n", (unsigned)seed, eagle.rounds, per_pass);
        assert_true(eagle.rounds >= 40);
        assert_true(per_pass >= 2.5 && per_pass <= 4.5);
        assert_int_equal(eagle.n, eagle.spoken + 1); /* the first comes from the prefill */
        kvb_live_outcome_free(&eagle);
        kvb_live_outcome_free(&greedy);
    }
    kvb_weights_close(weights);
}

/* Trees of three sequences at once, beside a fourth that decodes. Each seed has other prompts, drafts and paths. */
TEST(test_trees_say_what_greedy_says)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        kvb_live_options options = options_of(NULL, &kvb_cache_seq);
        options.seed = seed;
        kvb_live_outcome trees = play(&kvb_scenario_spec_batch, &options);
        kvb_live_outcome greedy = play(&kvb_scenario_spec_greedy, &options);
        assert_true(says_the_same(&trees, &greedy));
        print_message("# seed %u: %u rounds of up to three trees, %u tokens\n", (unsigned)seed, trees.rounds,
                      trees.spoken);
        kvb_live_outcome_free(&trees);
        kvb_live_outcome_free(&greedy);
    }
}

/* For a kernel that takes only bits the runner expands the mask once per step, for all layers. */
TEST(test_expanded_masks_are_of_this_step)
{
    static const struct {
        const kvb_scenario *scenario;
        const kvb_cache_type *cache;
    } pairs[] = {
        {&kvb_scenario_plain_decode, &kvb_cache_contiguous},
        {&kvb_scenario_agent_fork, &kvb_cache_seq},
        {&kvb_scenario_eagle_tree, &kvb_cache_tree},
        {&kvb_scenario_sliding_window, &kvb_cache_window}, /* two groups: each has its own mask */
        {&kvb_scenario_sliding_window, &kvb_cache_seq},
    };
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    kvb_kernel explicit_only = kvb_kernel_reference;
    explicit_only.masks = KVB_MASK_BIT(KVB_MASK_EXPLICIT);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        kvb_live_options options = options_of(weights, pairs[i].cache);
        kvb_live_outcome truth = play(pairs[i].scenario, &options);
        options.kernel = &explicit_only;
        kvb_live_outcome said = play(pairs[i].scenario, &options);
        assert_true(says_the_same(&said, &truth));
        kvb_live_outcome_free(&said);
        kvb_live_outcome_free(&truth);
    }
    kvb_weights_close(weights);
}

TEST(test_model_is_lively)
{
    kvb_weights *weights = weights_new(&kvb_model_config_default);
    kvb_live_options options = options_of(weights, &kvb_cache_contiguous);
    kvb_live_outcome said = play(&kvb_scenario_plain_decode, &options);
    size_t distinct = 0;
    for (size_t i = 0; i < said.n; i++) {
        size_t before = 0;
        while (before < i && said.tokens[before] != said.tokens[i])
            before++;
        distinct += before == i;
    }
    print_message("# %zu distinct tokens of %zu\n", distinct, said.n);
    assert_true(2 * distinct > said.n); /* a short cycle would have few */
    kvb_live_outcome_free(&said);
    kvb_weights_close(weights);
}

TEST(test_what_a_cache_cannot_do_is_named)
{
    static const struct {
        const kvb_scenario *scenario;
        const kvb_cache_type *cache;
        const char *why;
    } cases[] = {
        {&kvb_scenario_eagle_tree, &kvb_cache_contiguous,
         "eagle-tree needs propose and commit, which cache contiguous cannot do"},
        {&kvb_scenario_agent_fork, &kvb_cache_contiguous,
         "agent-fork needs several sequences, which cache contiguous cannot do"},
        {&kvb_scenario_plain_decode, &kvb_cache_window,
         "plain-decode: no layer has a window or chunks: cache window would be cache seq"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_live_options options = options_of(NULL, cases[i].cache);
        kvb_live_outcome outcome;
        char why[320] = "";
        assert_false(kvb_scenario_fits(cases[i].scenario, cases[i].cache));
        assert_int_equal(kvb_live_play(cases[i].scenario, &options, &outcome, why, sizeof why), -ENOTSUP);
        assert_string_equal(why, cases[i].why);
        kvb_live_outcome_free(&outcome);
    }
}
