/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families of models whose tensors are known, a row for each. Unless a row names another source, it is
 * transformers' modeling_NAME.py and configuration_NAME.py of its first name.
 */
#include "results/sizing/weights_tensors.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
static const kvb_weights_feed gated = {.width = "intermediate_size", .bias = "mlp_bias"};
static const kvb_weights_feed gated_use_bias = {.width = "intermediate_size", .bias = "use_bias"};
static const kvb_weights_feed plain = {.plain = true, .width = "intermediate_size", .bias = "+"};
static const kvb_weights_feed plain_use_bias = {.plain = true, .width = "intermediate_size", .bias = "+use_bias"};
static const kvb_weights_feed plain_mlp_bias = {.plain = true, .width = "intermediate_size", .bias = "mlp_bias"};
static const kvb_weights_feed plain_4 = {.plain = true, .width = "n_inner intermediate_size", .times = 4, .bias = "+"};
static const kvb_weights_feed falcon = {.plain = true, .width = "ffn_hidden_size", .times = 4, .bias = "bias"};
static const kvb_weights_feed mixtral = {.width = "intermediate_size", .experts = "num_local_experts num_experts",
                                 .expert_width = "intermediate_size"};
static const kvb_weights_feed gpt_oss = {.width = "intermediate_size", .experts = "num_local_experts",
                                 .expert_width = "intermediate_size", .expert_bias = true};
static const kvb_weights_feed qwen_moe = {.width = "intermediate_size", .experts = "num_experts",
                                  .expert_width = "moe_intermediate_size"};
static const kvb_weights_feed qwen_shared = {.width = "intermediate_size", .experts = "num_experts",
                                     .expert_width = "moe_intermediate_size",
                                     .shared_width = "shared_expert_intermediate_size", .shared_gate = true};
static const kvb_weights_feed deepseek_v2 = {.width = "intermediate_size", .needs = "first_k_dense_replace mlp_layer_types",
                                     .experts = "n_routed_experts", .expert_width = "moe_intermediate_size",
                                     .shared = "n_shared_experts", .shared_width = "moe_intermediate_size"};
static const kvb_weights_feed deepseek_v3 = {.width = "intermediate_size", .needs = "first_k_dense_replace mlp_layer_types",
                                     .experts = "n_routed_experts", .expert_width = "moe_intermediate_size",
                                     .correction = "+", .shared = "n_shared_experts", .shared_width = "moe_intermediate_size"};
static const kvb_weights_feed kimi = {.width = "intermediate_size", .needs = "first_k_dense_replace", .experts = "num_experts",
                              .expert_width = "moe_intermediate_size", .correction = "+", .shared = "num_shared_experts",
                              .shared_width = "moe_intermediate_size"};
static const kvb_weights_feed minimax_m2 = {.width = "intermediate_size", .experts = "num_local_experts",
                                    .expert_width = "intermediate_size", .correction = "+use_routing_bias"};
static const kvb_weights_feed llama4 = {.width = "intermediate_size_mlp", .needs = "interleave_moe_layer_step moe_layers",
                                .experts = "num_local_experts", .expert_width = "intermediate_size",
                                .shared_width = "intermediate_size"};
static const kvb_weights_feed jamba = {.width = "intermediate_size", .needs = "expert_layer_period", .experts = "num_experts",
                               .expert_width = "intermediate_size"};
static const kvb_weights_feed granite_moe = {.width = "intermediate_size", .experts = "num_local_experts",
                                     .expert_width = "intermediate_size"};
static const kvb_weights_feed granite_hybrid = {.width = "shared_intermediate_size", .experts = "num_local_experts",
                                        .expert_width = "intermediate_size", .beside = true};
static const kvb_weights_feed gemma4 = {.width = "intermediate_size", .experts = "num_experts",
                                .expert_width = "moe_intermediate_size", .beside = true};
static const kvb_weights_feed nemotron_h = {.plain = true, .pattern = "hybrid_override_pattern",
                                    .width = "intermediate_size", .bias = "mlp_bias",
                                    .experts = "n_routed_experts", .expert_width = "moe_intermediate_size",
                                    .latent = "moe_latent_size", .correction = "+", .shared = "n_shared_experts",
                                    .shared_width = "moe_shared_expert_intermediate_size"};

static const kvb_weights_family families[] = {
    {.names = " llama mistral ministral ministral3 baichuan LlamaForCausalLM MistralForCausalLM ", .norms = 2, .feed = &gated,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias"},
    {.names = " granite GraniteForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .tied = true},
    {.names = " smollm3 SmolLM3ForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .tied = true},
    {.names = " internlm2 InternLM2ForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "+bias", .o_bias = "+bias"},
    {.names = " seed_oss SeedOssForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "+attention_bias",
     .o_bias = "attention_out_bias"},
    {.names = " ernie4_5 Ernie4_5ForCausalLM ", .norms = 2, .feed = &gated_use_bias, .qkv_bias = "use_bias",
     .o_bias = "use_bias", .tied = true},
    {.names = " exaone4 exaone4_5_text Exaone4ForCausalLM ", .norms = 2, .feed = &gated, .head_norm = "+"},
    {.names = " olmo2 olmo3 Olmo2ForCausalLM Olmo3ForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .row_norm = "+"},
    {.names = " olmoe OlmoeForCausalLM ", .norms = 2, .feed = &mixtral, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .row_norm = "+"},
    {.names = " olmo OlmoForCausalLM ", .norms = 0, .feed = &gated, .qkv_bias = "attention_bias", .o_bias = "attention_bias"},
    {.names = " mixtral MixtralForCausalLM ", .norms = 2, .feed = &mixtral},
    {.names = " granitemoe GraniteMoeForCausalLM ", .norms = 2, .feed = &granite_moe, .tied = true,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias"},
    {.names = " qwen2 qwen2_vl_text qwen2_5_vl_text Qwen2ForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "+"},
    {.names = " qwen3 qwen3_vl_text Qwen3ForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .head_norm = "+"},
    {.names = " qwen2_moe Qwen2MoeForCausalLM ", .norms = 2, .feed = &qwen_shared, .qkv_bias = "+qkv_bias"},
    {.names = " qwen3_moe qwen3_vl_moe_text Qwen3MoeForCausalLM ", .norms = 2, .feed = &qwen_moe,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias", .head_norm = "+"},
    {.names = " qwen3_next qwen3_5_moe_text qwen3_5_moe Qwen3NextForCausalLM Qwen3_5MoeForConditionalGeneration ", .norms = 2,
     .feed = &qwen_shared, .mixer = kvb_delta_net_add, .qkv_bias = "attention_bias", .o_bias = "attention_bias",
     .head_norm = "+", .gated_q = true},
    {.names = " qwen3_5_text qwen3_5 Qwen3_5ForConditionalGeneration ", .norms = 2, .feed = &gated,
     .mixer = kvb_delta_net_add, .qkv_bias = "attention_bias", .o_bias = "attention_bias", .head_norm = "+", .gated_q = true},
    {.names = " phi3 Phi3ForCausalLM ", .norms = 2, .feed = &gated},
    {.names = " phi PhiForCausalLM ", .norms = 1, .norm_bias = "+", .feed = &plain, .qkv_bias = "+", .o_bias = "+",
     .output_bias = "+", .unknown = "qk_layernorm"},
    {.names = " phimoe PhimoeForCausalLM PhiMoEForCausalLM ", .norms = 2, .norm_bias = "+", .feed = &mixtral,
     .qkv_bias = "!attention_bias", .o_bias = "!attention_bias", .output_bias = "!lm_head_bias"},
    {.names = " gpt2 GPT2LMHeadModel ", .norms = 2, .norm_bias = "+", .feed = &plain_4, .qkv_bias = "+", .o_bias = "+",
     .positions = "n_positions", .tied = true, .unknown = "add_cross_attention"},
    {.names = " gpt_bigcode GPTBigCodeForCausalLM ", .norms = 2, .norm_bias = "+", .feed = &plain_4, .qkv_bias = "+",
     .o_bias = "+", .positions = "n_positions", .tied = true},
    {.names = " gpt_neox GPTNeoXForCausalLM ", .norms = 2, .norm_bias = "+", .feed = &plain, .qkv_bias = "+attention_bias",
     .o_bias = "+attention_bias"},
    {.names = " gptj GPTJForCausalLM ", .norms = 1, .norm_bias = "+", .feed = &plain_4, .output_bias = "+"},
    {.names = " bloom BloomForCausalLM ", .norms = 2, .norm_bias = "+", .feed = &plain_4, .qkv_bias = "+", .o_bias = "+",
     .tied = true, .extras = kvb_bloom_extras},
    {.names = " falcon RefinedWebModel RefinedWeb FalconForCausalLM ", .norms = 1, .norm_bias = "+", .feed = &falcon,
     .qkv_bias = "bias", .o_bias = "bias", .tied = true, .extras = kvb_falcon_extras},
    {.names = " starcoder2 Starcoder2ForCausalLM ", .norms = 2, .norm_bias = "+", .feed = &plain_use_bias,
     .qkv_bias = "+use_bias", .o_bias = "+use_bias", .tied = true},
    {.names = " stablelm StableLmForCausalLM ", .norms = 2, .norm_bias = "+", .feed = &gated, .qkv_bias = "use_qkv_bias",
     .unknown = "use_parallel_residual qk_layernorm"},
    {.names = " nemotron NemotronForCausalLM ", .norms = 2, .norm_bias = "+", .feed = &plain_mlp_bias,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias"},
    {.names = " cohere CohereForCausalLM ", .norms = 1, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .row_norm = "use_qk_norm", .tied = true},
    {.names = " cohere2 Cohere2ForCausalLM ", .norms = 1, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .tied = true},
    {.names = " gemma GemmaForCausalLM ", .norms = 2, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .tied = true},
    {.names = " gemma2 Gemma2ForCausalLM ", .norms = 4, .feed = &gated, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias", .tied = true},
    {.names = " gemma3_text gemma3 Gemma3ForCausalLM Gemma3ForConditionalGeneration ", .norms = 4, .feed = &gated,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias", .head_norm = "+", .tied = true},
    {.names = " gemma3n_text gemma3n Gemma3nForCausalLM Gemma3nForConditionalGeneration ", .norms = 4, .feed = &gated,
     .head_norm = "+", .tied = true, .extras = kvb_gemma3n_extras},
    {.names = " gemma4_text gemma4 Gemma4ForCausalLM Gemma4ForConditionalGeneration ", .norms = 4, .feed = &gemma4,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias", .head_norm = "+", .k_is_v = "attention_k_eq_v", .tied = true,
     .extras = kvb_gemma4_extras, .unknown = "num_kv_shared_layers use_double_wide_mlp"},
    {.names = " gpt_oss GptOssForCausalLM ", .norms = 2, .feed = &gpt_oss, .qkv_bias = "+", .o_bias = "+",
     .extras = kvb_gpt_oss_extras},
    {.names = " llama4_text llama4 Llama4ForCausalLM Llama4ForConditionalGeneration ", .norms = 2, .feed = &llama4,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias"},
    {.names = " deepseek_v2 DeepseekV2ForCausalLM ", .norms = 2, .feed = &deepseek_v2, .qkv_bias = "attention_bias"},
    {.names = " deepseek_v3 kimi_k2 kimi_k25 glm4_moe_lite DeepseekV3ForCausalLM ", .norms = 2, .feed = &deepseek_v3,
     .qkv_bias = "attention_bias"},
    {.names = " deepseek_v32 glm_moe_dsa DeepseekV32ForCausalLM GlmMoeDsaForCausalLM ", .norms = 2, .feed = &deepseek_v3, .qkv_bias = "attention_bias"},
    {.names = " glm4_moe Glm4MoeForCausalLM ", .norms = 2, .feed = &deepseek_v3, .qkv_bias = "!attention_bias",
     .head_norm = "!use_qk_norm"},
    {.names = " glm4 Glm4ForCausalLM ", .norms = 4, .feed = &gated, .qkv_bias = "attention_bias"},
    {.names = " minimax_m2 MiniMaxM2ForCausalLM ", .norms = 2, .feed = &minimax_m2, .row_norm = "!use_qk_norm"},
    {.names = " minimax minimax_text_01 MiniMaxForCausalLM MiniMaxText01ForCausalLM ", .norms = 2, .feed = &mixtral,
     .mixer = kvb_lightning_add, .unknown = "shared_intermediate_size"},
    {.names = " kimi_linear KimiLinearForCausalLM ", .norms = 2, .feed = &kimi, .mixer = kvb_kimi_delta_add,
     .unknown = "linear_attn_config.use_full_rank_gate linear_attn_config.gate_lower_bound"},
    {.names = " mamba falcon_mamba MambaForCausalLM FalconMambaForCausalLM ", .norms = 1, .mixer = kvb_mamba1_add, .tied = true},
    {.names = " mamba2 Mamba2ForCausalLM ", .norms = 1, .mixer = kvb_mamba2_add},
    {.names = " jamba JambaForCausalLM ", .norms = 2, .feed = &jamba, .mixer = kvb_jamba_add},
    {.names = " bamba BambaForCausalLM ", .norms = 2, .feed = &gated, .mixer = kvb_mamba2_add, .qkv_bias = "attention_bias",
     .o_bias = "attention_bias"},
    {.names = " granitemoehybrid GraniteMoeHybridForCausalLM ", .norms = 2, .feed = &granite_hybrid,
     .mixer = kvb_mamba2_add, .qkv_bias = "attention_bias", .o_bias = "attention_bias", .tied = true},
    {.names = " falcon_h1 FalconH1ForCausalLM ", .norms = 2, .feed = &gated, .mixer = kvb_mamba2_add,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias"},
    {.names = " nemotron_h NemotronHForCausalLM ", .norms = 1, .feed = &nemotron_h, .mixer = kvb_mamba2_add,
     .qkv_bias = "attention_bias", .o_bias = "attention_bias"},
    {.names = " zamba2 Zamba2ForCausalLM ", .norms = 1, .mixer = kvb_mamba2_add, .extras = kvb_zamba2_extras, .shares_attention = true,
     .tied = true},
    {.names = " nemotron-nas DeciLMForCausalLM ", .norms = 0, .qkv_bias = "attention_bias", .o_bias = "attention_bias",
     .extras = kvb_deci_extras}, /* modeling_decilm.py of nvidia/Llama-3_3-Nemotron-Super-49B-v1 */
    {.names = " rwkv RwkvForCausalLM ", .unknown = "head_size", .mixer = kvb_rwkv4_add},
    {.names = " rwkv5 Rwkv5ForCausalLM ", .mixer = kvb_rwkv5_add},
};
/* clang-format on */

static const kvb_weights_family *named(const char *name)
{
    char word[96];
    snprintf(word, sizeof word, " %s ", name);
    for (size_t i = 0; *name && i < sizeof families / sizeof *families; i++)
        if (strstr(families[i].names, word))
            return &families[i];
    return NULL;
}

/* By the text config's own model_type, else by the model's, else by its architecture. */
const kvb_weights_family *kvb_weights_family_find(const kvb_weights_sum *sum)
{
    const char *own = json_string_value(json_object_get(sum->config, "model_type"));
    const kvb_weights_family *family = named(own ? own : "");
    if (!family && sum->model->type)
        family = named(sum->model->type);
    if (!family && sum->model->architecture)
        family = named(sum->model->architecture);
    return family;
}
