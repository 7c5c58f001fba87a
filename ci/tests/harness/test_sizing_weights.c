/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: parameters of published models, and bytes of quantised ones, are counted exactly; words of --weights; ranks;
 * refusals and their reasons. */
#include "ci/tests/harness/sized.h"
#include "harness/size/weights.h"
#include "weights_models.h"

/* A model with another value of a field. Takes the value. */
static kvb_sized_model *changed(const char *name, const char *field, json_t *value)
{
    kvb_sized_model *model = built_in(name), *other;

    json_object_set_new(model->config, field, value);
    other = read_json(name, model->config);
    kvb_sized_model_free(model);
    return other;
}

static uint64_t published_bytes(const kvb_sized_model *model)
{
    uint64_t bytes;

    if (kvb_weights_published(model->config, model, false, &bytes, why, sizeof why))
        fail_msg("%s: %s", model->name, why);
    return bytes;
}

TEST(published_parameters_are_met)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *row = &published[i];
        kvb_sized_model *model = row->config ? read_text(row->config) : built_in(row->name);
        const kvb_sized_parameters *p = &model->parameters;
        uint64_t total = 0;
        if (!p->known || p->total != row->parameters) {
            print_error("%s: %llu parameters, expected %llu (%s) %s\n", row->name, (unsigned long long)p->total,
                        (unsigned long long)row->parameters, row->source, p->why);
            wrong++;
        }
        for (int part = 0; part < KVB_WEIGHTS_PARTS; part++)
            total += p->part[part];
        assert_int_equal(total, p->total);
        kvb_sized_model_free(model);
    }
    assert_int_equal(wrong, 0);
}

/* A small nvidia/Llama-3_3-Nemotron-Super-49B-v1: layers of three kinds, counted by hand. */
TEST(blocks_that_do_nothing_have_no_tensors)
{
    kvb_sized_model *model =
        read_text("{'model_type':'nemotron-nas','hidden_size':512,'num_hidden_layers':3,'num_attention_heads':8,"
                  "'vocab_size':100,'block_configs':[{'attention':{'no_op':false,'n_heads_in_group':4},"
                  "'ffn':{'ffn_mult':2.625,'no_op':false}},{'attention':{'no_op':true},'ffn':{'ffn_mult':0.5,"
                  "'no_op':false}},{'attention':{'no_op':true},'ffn':{'no_op':true}}]}");
    const uint64_t *part = model->parameters.part;
    assert_true(model->parameters.known);
    assert_int_equal(part[KVB_WEIGHTS_ATTENTION], 2 * 512 * 512 + 2 * 512 * 128);
    assert_int_equal(part[KVB_WEIGHTS_DENSE],
                     3 * 512 * (1024 + 256)); /* 2/3 * 2.625 * 512 = 896, and 170.7, rounded up to multiples of 256 */
    assert_int_equal(part[KVB_WEIGHTS_NORMS], 512 * (1 + 3));
    kvb_sized_model_free(model);
}

TEST(widths_are_added_layer_by_layer)
{
    kvb_sized_model *model =
        read_text("{'model_type':'llama','hidden_size':512,'num_hidden_layers':3,'num_attention_heads':8,"
                  "'num_key_value_heads':2,'vocab_size':100,'intermediate_size':[1024,256,512]}");
    assert_int_equal(model->parameters.part[KVB_WEIGHTS_DENSE], 3 * 512 * (1024 + 256 + 512));
    kvb_sized_model_free(model);
}

/* The Hub's account of deepseek-ai/DeepSeek-V3: BF16 3918786560, F8_E4M3 680571043840, F32 41555600 elements. Its layer
 * for multi-token prediction is one more layer with embedding, output, a projection and three norms of its own in bf16.
 */
TEST(published_bytes_of_deepseek_v3_are_met)
{
    const uint64_t hub = UINT64_C(680571043840) + 2 * UINT64_C(3918786560) + 4 * UINT64_C(41555600);
    const uint64_t own = UINT64_C(2) * 129280 * 7168 + UINT64_C(2) * 7168 * 7168 + 3 * 7168;
    kvb_sized_model *model = changed("DeepSeek-V3", "num_hidden_layers", json_integer(62));
    assert_int_equal(published_bytes(model) + 2 * own, hub);
    kvb_sized_model_free(model);
}

/* model.safetensors.index.json of openai/gpt-oss-20b: "total_size": 13761264768. */
TEST(published_bytes_of_gpt_oss_are_met)
{
    kvb_sized_model *model = built_in("gpt-oss-20b");
    assert_int_equal(published_bytes(model), UINT64_C(13761264768));
    kvb_sized_model_free(model);
}

/* A llama of layers with two heads, as the next two tests count by hand. */
static kvb_sized_model *quantised(int layers, const char *quantization)
{
    char text[1024];

    snprintf(text, sizeof text,
             "{'model_type':'llama','hidden_size':256,'num_hidden_layers':%d,'num_attention_heads':2,"
             "'num_key_value_heads':1,'vocab_size':100,'intermediate_size':512,'torch_dtype':'bfloat16',"
             "'quantization_config':{%s}}",
             layers, quantization);
    return read_text(text);
}

/* One layer: q and o of 256 x 256, k and v of 128 x 256, gate and up of 512 x 256, down of 256 x 512; 2 x 100 x 256 and
 * three norms are not quantised. Counted by hand. */
TEST(quantised_bytes_follow_the_config)
{
    enum { PLAIN = 2 * (2 * 100 * 256 + 3 * 256), ATTENTION = 196608, DENSE = 393216, ROWS = 2048 };
    static const struct {
        const char *quantization;
        uint64_t bytes; /* 0: refused */
    } cases[] = {
#define PACKED(bits, more)                                                                                             \
    "'quant_method':'compressed-tensors','config_groups':{'group_0':{'targets':['Linear'],'weights':{'type':'int',"    \
    "'num_bits':" #bits "," more "}}}"
        {PACKED(4, "'strategy':'group','group_size':128"),
         PLAIN + (ATTENTION + DENSE) / 2 + (ATTENTION + DENSE) / 128 * 2 + 7 * 16},
        {PACKED(4, "'strategy':'group','group_size':128") ",'ignore':['lm_head','re:.*self_attn.*']",
         PLAIN + 2 * ATTENTION + DENSE / 2 + DENSE / 128 * 2 + 3 * 16},
        {PACKED(4, "'strategy':'group','group_size':128,'symmetric':false"),
         PLAIN + (ATTENTION + DENSE) / 2 + (ATTENTION + DENSE) / 128 * 20 / 8 + 7 * 16},
        {PACKED(8, "'strategy':'channel'"), PLAIN + ATTENTION + DENSE + 4 * ROWS + 7 * 16},
        {PACKED(8, "'strategy':'token'"), 0},
        {PACKED(3, "'strategy':'channel'"), 0},
        {"'quant_method':'compressed-tensors'", 0},
        {"'quant_method':'modelopt','quant_algo':'NVFP4','ignore':['lm_head','model.visual*']",
         PLAIN + (ATTENTION + DENSE) / 16 * 9 + 7 * 8},
        {"'quant_method':'modelopt','quant_algo':'FP8','ignore':['model.layers.0.mlp.down_proj']",
         PLAIN + ATTENTION + 2 * DENSE + 4 * 8},
        {"'quant_method':'modelopt','quant_algo':'MIXED_PRECISION'", 0},
        {"'quant_method':'modelopt','quant_algo':'MIXED_PRECISION','quantized_layers':['mlp']", 0},
#define MIXED(feed)                                                                                                    \
    "'quant_method':'modelopt','quant_algo':'MIXED_PRECISION','ignore':['model.layers.0.mlp*'],'quantized_layers':{"   \
    "'model.layers.0.self_attn.q_proj':{'quant_algo':'FP8'}" feed "}"
        {MIXED(",'model.layers.0.mlp.up_proj':{'quant_algo':'W4A16_NVFP4','group_size':16}"),
         PLAIN + ATTENTION + DENSE / 16 * 9 + 7 * 8},
        {MIXED(""), PLAIN + ATTENTION + 2 * DENSE + 4 * 8},
        {MIXED(",'model.layers.0.mlp.up_proj':{'quant_algo':'W2A8'}"), 0},
        {"'quant_method':'fp8','weight_block_size':null", PLAIN + ATTENTION + DENSE + 7 * 8},
        {"'quant_method':'fp8','weight_block_size':[128,128]", PLAIN + ATTENTION + DENSE + (12 + 24) * 4},
        {"'quant_method':'fp8','weight_block_size':[128,-1]", 0},
        {"'quant_method':'fp8','modules_to_not_convert':['strange']", PLAIN + 2 * (ATTENTION + DENSE)},
        {"'quant_method':'gptq','bits':4", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model *model = quantised(1, cases[i].quantization);
        uint64_t bytes;
        int err = kvb_weights_published(model->config, model, false, &bytes, why, sizeof why);
        if (err != (cases[i].bytes ? 0 : -ENOTSUP) || (!err && bytes != cases[i].bytes))
            fail_msg("%s: %llu bytes, expected %llu: %s", cases[i].quantization, (unsigned long long)bytes,
                     (unsigned long long)cases[i].bytes, why);
        assert_non_null(strstr(why, err ? "is not known" : "at most"));
        kvb_sized_model_free(model);
    }
}

/* A name excludes the tensors that it matches, here attention and MLP in so many of twelve equal layers. */
TEST(names_leave_out_what_they_match)
{
    enum { ATTENTION = 196608, DENSE = 393216, VECTORS = 2 * (2 * 100 * 256 + 25 * 256) };
    static const struct {
        const char *names;
        uint32_t attention, dense; /* layers in which this part is excluded */
    } cases[] = {
        {"'lm_head','model.visual*','mtp.layers.0.mlp.up_proj'", 0, 0},
        {"'model.layers.12.eh_proj','model.layers.12.mlp*'", 0, 0},
        {"'model.layers.3.mlp*','model.layers.3.mlp.down_proj','model.layers.0.mlp.up_proj'", 0, 2},
        {"'model.layers.1*'", 3, 3},
        {"'model.layers.1.*','model.layers.2'", 2, 2},
        {"'model.layers.0*'", 1, 1},
        {"'re:.*layers\\\\.1\\\\.self_attn.*'", 1, 0},
        {"'re:.*layers\\\\.1.*'", 3, 3},
        {"'re:.*layers\\\\.[0-3]\\\\..*mlp.*'", 0, 12},
        {"'model.layers.7.self_attn.indexer.weights_proj','model.layers.7.mlp.gate'", 0, 0},
        {"'strange'", 12, 12},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        uint64_t codes = 12 * (ATTENTION + DENSE) + cases[i].attention * ATTENTION + cases[i].dense * DENSE;
        uint64_t scales = 8 * ((12 - cases[i].attention) * 4 + (12 - cases[i].dense) * 3);
        snprintf(text, sizeof text, "'quant_method':'fp8','modules_to_not_convert':[%s]", cases[i].names);
        kvb_sized_model *model = quantised(12, text);
        if (published_bytes(model) != codes + scales + VECTORS)
            fail_msg("%s: not %llu bytes", cases[i].names, (unsigned long long)(codes + scales + VECTORS));
        kvb_sized_model_free(model);
    }
}

/* Lists as nvidia/Kimi-K2.6-NVFP4 and zai-org/GLM-5-FP8 have them: attention, the dense layer and towers (its files
 * hold some 594e9 bytes); what lies beside matrices, and the layer for multi-token prediction. */
TEST(lists_by_layers_leave_experts_quantised)
{
    static const struct {
        const char *model, *quantization, *names[4];
        double least, most;
    } cases[] = {
        {"Kimi-K2.5",
         "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}",
         {"language_model.model.layers.%u.self_attn*", "language_model.model.layers.0.mlp*", "vision_tower*"},
         588e9,
         594e9},
        {"GLM-5.2",
         "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}",
         {"model.layers.%u.mlp.gate", "model.layers.%u.self_attn.indexer.weights_proj", "model.layers.78.eh_proj"},
         744e9,
         760e9},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model *model = built_in(cases[i].model);
        char name[128];
        json_t *quantization = json_loads(cases[i].quantization, 0, NULL), *list = json_array();
        for (size_t k = 0; k < 4 && cases[i].names[k]; k++)
            for (uint32_t layer = 0; layer < 79; layer++) {
                const char *at = strchr(cases[i].names[k], '%');
                snprintf(name, sizeof name, "%.*s%u%s", at ? (int)(at - cases[i].names[k]) : 0, cases[i].names[k],
                         layer, at ? at + 2 : "");
                json_array_append_new(list, json_string(at ? name : cases[i].names[k]));
            }
        json_object_set_new(quantization, "ignore", list);
        json_object_set_new(model->config, "quantization_config", quantization);
        const double bytes = (double)published_bytes(model);
        if (bytes < cases[i].least || bytes > cases[i].most)
            fail_msg("%s: %.0f bytes", cases[i].model, bytes);
        kvb_sized_model_free(model);
    }
}

/* The Hub's account of google/gemma-3-4b-it: 4,300,079,472 parameters in bf16, vision tower and projector among
 * them. */
TEST(vision_towers_are_counted_or_named)
{
    static const char config[] =
        "{'model_type':'gemma3','architectures':['Gemma3ForConditionalGeneration'],'text_config':{'hidden_size':2560,"
        "'intermediate_size':10240,'num_hidden_layers':34,'num_attention_heads':8,'num_key_value_heads':4,"
        "'head_dim':256,'sliding_window':1024,'vocab_size':262208},'torch_dtype':'bfloat16',"
        "'vision_config':{'hidden_size':1152,'image_size':896,'intermediate_size':4304,"
        "'model_type':'siglip_vision_model','num_hidden_layers':27,'patch_size':14,'vision_use_head':false}}";
    char text[sizeof config];
    kvb_sized_model *model = read_text(config);

    assert_int_equal(published_bytes(model), 2 * UINT64_C(4300079472));
    assert_string_equal(why, "");
    assert_string_equal(model->parameters.why, "without the vision tower");
    kvb_sized_model_free(model);
    memcpy(text, config, sizeof text);
    memcpy(strstr(text, "siglip"), "strang", 6);
    model = read_text(text);
    assert_int_equal(published_bytes(model), 2 * UINT64_C(3880263168));
    assert_string_equal(why, "without the vision tower");
    kvb_sized_model_free(model);
}

/* The Hub's counts of parameters, towers among them. */
TEST(vision_towers_of_other_models)
{
    static const struct {
        const char *config;
        uint64_t parameters;
    } cases[] = {
        {"{'model_type':'qwen2_5_vl','hidden_size':3584,'intermediate_size':18944,'num_hidden_layers':28,"
         "'num_attention_heads':28,'num_key_value_heads':4,'vocab_size':152064,'vision_config':{'depth':32,"
         "'hidden_size':1280,'intermediate_size':3420,'patch_size':14,'temporal_patch_size':2,'spatial_merge_size':2,"
         "'out_hidden_size':3584},'torch_dtype':'bfloat16'}",
         8292166656},
        {"{'model_type':'qwen3_vl','text_config':{'model_type':'qwen3_vl_text','hidden_size':2048,"
         "'intermediate_size':6144,'num_hidden_layers':28,'num_attention_heads':16,'num_key_value_heads':8,"
         "'head_dim':128,'vocab_size':151936,'tie_word_embeddings':true},'vision_config':{'depth':24,"
         "'hidden_size':1024,'intermediate_size':4096,'patch_size':16,'temporal_patch_size':2,'spatial_merge_size':2,"
         "'out_hidden_size':2048,'num_position_embeddings':2304,'deepstack_visual_indexes':[5,11,17]},"
         "'torch_dtype':'bfloat16'}",
         2127532032},
        {"{'model_type':'mistral3','text_config':{'model_type':'mistral','hidden_size':5120,'intermediate_size':32768,"
         "'num_hidden_layers':40,'num_attention_heads':32,'num_key_value_heads':8,'head_dim':128,'vocab_size':131072,"
         "'sliding_window':null},'spatial_merge_size':2,'vision_config':{'model_type':'pixtral','hidden_size':1024,"
         "'intermediate_size':4096,'num_hidden_layers':24,'patch_size':14,'image_size':1540},'torch_dtype':'bfloat16'}",
         24011361280},
        /* InternViT-300M (304.01 million by its card), a projection, and Qwen2.5-7B with another vocabulary */
        {"{'model_type':'internvl_chat','llm_config':{'model_type':'qwen2','hidden_size':3584,"
         "'intermediate_size':18944,'num_hidden_layers':28,'num_attention_heads':28,'num_key_value_heads':4,"
         "'vocab_size':151674},'vision_config':{'model_type':'intern_vit_6b','hidden_size':1024,"
         "'intermediate_size':4096,'num_hidden_layers':24,'patch_size':14,'image_size':448,'qkv_bias':true,"
         "'qk_normalization':false},'torch_dtype':'bfloat16'}",
         UINT64_C(304012288) + 27540480 + 7615616512 - 2 * 390 * 3584},
        {"{'model_type':'llama4','text_config':{'model_type':'llama4_text','hidden_size':5120,'intermediate_size':8192,"
         "'intermediate_size_mlp':16384,'num_hidden_layers':48,'num_attention_heads':40,'num_key_value_heads':8,"
         "'head_dim':128,'vocab_size':202048,'num_local_experts':16,'interleave_moe_layer_step':1,"
         "'attention_chunk_size':8192},'vision_config':{'model_type':'llama4_vision_model','hidden_size':1408,"
         "'intermediate_size':5632,'num_hidden_layers':34,'patch_size':14,'image_size':336,'projector_input_dim':4096,"
         "'projector_output_dim':4096,'vision_output_dim':4096},'torch_dtype':'bfloat16'}",
         108641793536},
        /* Qwen3-Omni's thinker: its transformer, SigLIP2 and AuT as its technical report has them, 540 M and 650 M. */
        {"{'model_type':'qwen3_omni_moe','thinker_config':{'model_type':'qwen3_omni_moe_thinker','text_config':{"
         "'model_type':'qwen3_omni_moe_text','hidden_size':2048,'num_hidden_layers':48,'num_attention_heads':32,"
         "'num_key_value_heads':4,'head_dim':128,'moe_intermediate_size':768,'num_experts':128,'num_experts_per_tok':8,"
         "'vocab_size':152064,'intermediate_size':768},'vision_config':{'depth':27,'hidden_size':1152,"
         "'intermediate_size':4304,'patch_size':16,'temporal_patch_size':2,'spatial_merge_size':2,'out_hidden_size':"
         "2048,"
         "'num_position_embeddings':2304,'deepstack_visual_indexes':[8,16,24]},'audio_config':{'model_type':"
         "'qwen3_omni_moe_audio_encoder','d_model':1280,'encoder_ffn_dim':5120,'encoder_layers':32,"
         "'downsample_hidden_size':480,'num_mel_bins':128,'output_dim':2048}},'torch_dtype':'bfloat16'}",
         31719205488},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_sized_model *model = read_text(cases[i].config);

        if (published_bytes(model) != 2 * cases[i].parameters || *why)
            fail_msg("%s: %s", model->type, why);
        kvb_sized_model_free(model);
    }
}

/* The Hub counts 228,703,644,928 values, which are 228,689,764,864 parameters and the rest scales. */
TEST(quantised_bytes_of_minimax_m2_5)
{
    const uint64_t parameters = 228689764864,
                   plain = 2 * 200064UL * 3072 + 62 * (3072 * 256 + 256) + (2 * 62 + 1) * 3072 + 62 * (6144 + 1024);
    kvb_sized_model *model = built_in("MiniMax-M2.5");

    assert_int_equal(published_bytes(model), parameters + plain + 4 * (228703644928 - parameters));
    kvb_sized_model_free(model);
}

TEST(published_bytes_are_the_dtype_s_or_refused)
{
    static const char *const dtypes[] = {"bf16", "", "f32"};
    kvb_sized_model *model = built_in("Qwen3-8B");
    uint64_t bytes;
    for (size_t i = 0; i < 3; i++) {
        snprintf(model->dtype, sizeof model->dtype, "%s", dtypes[i]);
        assert_int_equal(published_bytes(model), (i == 2 ? 4 : 2) * model->parameters.total);
    }
    kvb_sized_model_free(model);
    model = changed("Qwen3-8B", "quantization_config", unquoted("{'quant_method':'awq'}"));
    assert_int_equal(kvb_weights_published(model->config, model, false, &bytes, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "quantization_config (awq)"));
    kvb_sized_model_free(model);
}

TEST(unknown_or_wrong_fields_are_named)
{
    static kvb_sized_group group = {.n = 2, .heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 16};
    static const struct {
        const char *config;
        int err;
        const char *why;
    } cases[] = {
        {"{'model_type':'llama','hidden_size':64,'vocab_size':100}", 0, "intermediate_size is missing"},
        {"{'model_type':'strange','hidden_size':64}", 0, "are not known"},
        {"{'model_type':'llama','intermediate_size':100,'vocab_size':100}", 0, "hidden_size is missing"},
        {"{'model_type':'deepseek_v3','hidden_size':64,'vocab_size':100,'intermediate_size':9,'n_routed_experts':4}", 0,
         "first_k_dense_replace is missing"},
        {"{'model_type':'glm4_moe','hidden_size':64,'vocab_size':100,'attention_bias':true}", 0,
         "use_qk_norm is missing"},
        {"{'model_type':'minimax','hidden_size':64,'vocab_size':100,'shared_intermediate_size':7}", 0,
         "shared_intermediate_size"},
        {"{'model_type':'phi','hidden_size':64,'vocab_size':100,'intermediate_size':9,'qk_layernorm':true}", 0,
         "qk_layernorm"},
        {"{'model_type':'llama','hidden_size':0,'vocab_size':100,'intermediate_size':9}", -EINVAL, "hidden_size"},
        {"{'model_type':'llama','hidden_size':64,'vocab_size':-1,'intermediate_size':9}", -EINVAL, "vocab_size"},
        {"{'model_type':'llama','hidden_size':64,'vocab_size':100,'intermediate_size':'9'}", -EINVAL,
         "intermediate_size"},
        {"{'model_type':'llama','hidden_size':64,'vocab_size':100,'intermediate_size':9.5}", -EINVAL,
         "intermediate_size"},
        {"{'model_type':'llama','hidden_size':64,'vocab_size':100,'intermediate_size':9,'attention_bias':1}", -EINVAL,
         "attention_bias"},
        {"{'model_type':'qwen3_moe','hidden_size':64,'vocab_size':100,'num_experts':4,'decoder_sparse_step':0}",
         -EINVAL, "decoder_sparse_step"},
        {"{'model_type':'deepseek_v3','hidden_size':64,'vocab_size':100,'n_routed_experts':4,'mlp_layer_types':['dense'"
         "]}",
         -EINVAL, "mlp_layer_types"},
        {"{'model_type':'nemotron-nas','hidden_size':64,'vocab_size':100,'block_configs':[{}]}", -EINVAL,
         "block_configs"},
        {"{'model_type':'llama','hidden_size':1099511627776,'vocab_size':1099511627776,'intermediate_size':9}",
         -EOVERFLOW, "overflow"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *config = unquoted(cases[i].config);
        const char *type = json_string_value(json_object_get(config, "model_type"));
        const kvb_sized_model model = {.type = (char *)type, .n_layers = 2, .groups = &group, .n_groups = 1};
        kvb_sized_parameters p;
        assert_int_equal(kvb_sized_parameters_read(config, &model, &p), cases[i].err);
        assert_false(p.known);
        if (!strstr(p.why, cases[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].config, p.why, cases[i].why);
        json_decref(config);
    }
}

TEST(known_parameters_say_what_is_not_in_them)
{
    kvb_sized_model *model = built_in("Llama-3.1-8B");
    kvb_sized_parameters p;
    assert_string_equal(model->parameters.why, "");
    kvb_sized_model_free(model);
    model = built_in("gemma-4-26B-A4B");
    model->mtp_layers = 1;
    assert_int_equal(kvb_sized_parameters_read(model->config, model, &p), 0);
    assert_true(p.known);
    assert_non_null(strstr(p.why, "vision"));
    assert_non_null(strstr(p.why, "multi-token"));
    kvb_sized_model_free(model);
}

TEST(words_give_bytes)
{
    const kvb_sized_parameters known = {.known = true, .total = 1000}, most = {.known = true, .total = UINT64_MAX / 2};
    const kvb_sized_parameters unknown = {.why = "intermediate_size is missing"};
    static const struct {
        const char *word;
        int err;
        uint64_t bytes;
    } cases[] = {
        {"f32", 0, 4000},
        {"bf16", 0, 2000},
        {"F16", 0, 2000},
        {"int8", 0, 1000},
        {"e4m3", 0, 1000},
        {"q8_0", 0, 32 * 34}, /* 1000 elements in whole blocks of 32 */
        {"q4_0", 0, 32 * 18},
        {"mxfp4", 0, 32 * 17},
        {"nvfp4", 0, 63 * 9},
        {"a4g64", 0, 16 * 36},
        {"a8g32", 0, 32 * 36},
        {"140GiB", 0, UINT64_C(140) << 30},
        {"1.5KiB", 0, 1536},
        {"70e9", 0, UINT64_C(70000000000)},
        {"12", 0, 12},
        {"2GB", 0, 2000000000},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -EOVERFLOW, 0},
        {"1e30", -EOVERFLOW, 0},
        {"20000PiB", -EOVERFLOW, 0},
        {"", -EINVAL, 0},
        {"f15", -EINVAL, 0},
        {"q4_k", -EINVAL, 0},
        {"-5", -EINVAL, 0},
        {"nan", -EINVAL, 0},
        {"inf", -EINVAL, 0},
        {"0", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"5XiB", -EINVAL, 0},
        {"5 GiB", -EINVAL, 0},
        {"a4g0", -EINVAL, 0},
        {"a9g64", -EINVAL, 0},
        {"a4g64x", -EINVAL, 0},
        {"GiB", -EINVAL, 0},
        {".", -EINVAL, 0},
    };
    uint64_t bytes;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        why[0] = '\0';
        const int err = kvb_weights_bytes(&known, cases[i].word, &bytes, why, sizeof why);
        if (err != cases[i].err || (!err && bytes != cases[i].bytes) || (err && !why[0]))
            fail_msg("\"%s\": %d, %llu bytes, \"%s\"", cases[i].word, err, (unsigned long long)bytes, why);
    }
    assert_int_equal(kvb_weights_bytes(&most, "f32", &bytes, why, sizeof why), -EOVERFLOW);
    assert_int_equal(kvb_weights_bytes(&unknown, "f32", &bytes, why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "intermediate_size is missing"));
    assert_int_equal(kvb_weights_bytes(&unknown, "1GiB", &bytes, why, sizeof why), 0);
}

/* Llama-3.1-8B by hand: hidden 4096, 8 KV heads of 128, 14336 wide, 32 layers, 128256 words. */
TEST(ranks_hold_their_share)
{
    const uint64_t words = UINT64_C(128256) * 4096, qo = UINT64_C(32) * 2 * 4096 * 4096,
                   kv = UINT64_C(32) * 2 * 4096 * 1024;
    const uint64_t dense = UINT64_C(32) * 3 * 4096 * 14336, norms = 65 * 4096;
    kvb_sized_model *model = built_in("Llama-3.1-8B");
    kvb_sized_parameters rank;
    uint64_t bytes;
    assert_int_equal(kvb_sized_parameters_rank(model, 1, 1, 1, &rank, why, sizeof why), 0);
    assert_memory_equal(&rank, &model->parameters, sizeof rank);
    assert_int_equal(kvb_sized_parameters_rank(model, 8, 1, 1, &rank, why, sizeof why), 0);
    assert_int_equal(rank.total, (2 * words + qo + kv + dense) / 8 + norms);
    assert_int_equal(kvb_sized_parameters_rank(model, 32, 1, 1, &rank, why, sizeof why),
                     0); /* 4 ranks share a KV head */
    assert_int_equal(rank.total, (2 * words + qo + dense) / 32 + kv / 8 + norms);
    assert_int_equal(kvb_sized_parameters_rank(model, 1, 1, 4, &rank, why, sizeof why), 0);
    assert_int_equal(rank.total, words + (qo + kv + dense) / 4 + (norms + 3) / 4);
    assert_int_equal(kvb_sized_parameters_rank(model, 1, 1, 5, &rank, why, sizeof why), 0); /* 7 of 32 layers */
    assert_int_equal(rank.part[KVB_WEIGHTS_DENSE], dense / 32 * 7);
    assert_int_equal(kvb_weights_rank(model, 2 * model->parameters.total, 8, 1, 1, &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, 2 * ((2 * words + qo + kv + dense) / 8 + norms));
    assert_int_equal(kvb_sized_parameters_rank(model, 0, 1, 1, &rank, why, sizeof why), -EINVAL);
    assert_int_equal(kvb_sized_parameters_rank(model, 1, 1, 33, &rank, why, sizeof why), -EINVAL);
    model->parameters.known = false;
    assert_int_equal(kvb_weights_rank(model, 100, 1, 1, 1, &bytes, why, sizeof why), 0);
    assert_int_equal(bytes, 100);
    assert_int_equal(kvb_weights_rank(model, 100, 2, 1, 1, &bytes, why, sizeof why), -ENOTSUP);
    kvb_sized_model_free(model);
}

/* MLA's low-rank inputs, norms and routers are on every rank. */
TEST(what_is_not_divided_is_whole_on_a_rank)
{
    kvb_sized_model *model = built_in("DeepSeek-V3");
    const uint64_t *all = model->parameters.part;
    kvb_sized_parameters rank;
    assert_int_equal(all[KVB_WEIGHTS_OTHER], UINT64_C(61) * 7168 * (1536 + 576));
    assert_int_equal(kvb_sized_parameters_rank(model, 16, 1, 1, &rank, why, sizeof why), 0);
    assert_int_equal(rank.part[KVB_WEIGHTS_OTHER], all[KVB_WEIGHTS_OTHER]);
    assert_int_equal(rank.part[KVB_WEIGHTS_ROUTER], all[KVB_WEIGHTS_ROUTER]);
    assert_int_equal(rank.part[KVB_WEIGHTS_NORMS], all[KVB_WEIGHTS_NORMS]);
    assert_int_equal(rank.part[KVB_WEIGHTS_EXPERTS], all[KVB_WEIGHTS_EXPERTS] / 16);
    assert_int_equal(rank.part[KVB_WEIGHTS_ATTENTION], all[KVB_WEIGHTS_ATTENTION] / 16);
    kvb_sized_model_free(model);
}
