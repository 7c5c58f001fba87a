/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a configuration class fills in for fields that a config.json does not name, and what it does not read. Unless a
 * row names another source, it is transformers' src/transformers/models/MODEL/configuration_MODEL.py. A class that is
 * not here computes: KV heads are the heads, head_dim is hidden / heads (LlamaConfig, PhiConfig, GraniteConfig,
 * CohereConfig …).
 */
#include "results/sizing/model_reading.h"

#define DEFAULTS(...)                                                                                                  \
    .defaults = (const kvb_config_default[])                                                                           \
    {                                                                                                                  \
        __VA_ARGS__,                                                                                                   \
        {                                                                                                              \
            NULL, 0                                                                                                    \
        }                                                                                                              \
    }
#define KV_HEADS(n)                                                                                                    \
    {                                                                                                                  \
        "num_key_value_heads", n                                                                                       \
    }
#define HEAD_DIM(n)                                                                                                    \
    {                                                                                                                  \
        "head_dim", n                                                                                                  \
    }
/* Qwen3-Next's and Qwen3.5's gated DeltaNet. */
#define DELTA_NET                                                                                                      \
    {"linear_conv_kernel_dim", 4}, {"linear_key_head_dim", 128}, {"linear_value_head_dim", 128},                       \
        {"linear_num_key_heads", 16},                                                                                  \
    {                                                                                                                  \
        "linear_num_value_heads", 32                                                                                   \
    }

static const kvb_config_class classes[] = {
    /* ---- attention --------------------------------------------------------------------------------------------- */
    {"GemmaForCausalLM gemma", "GemmaConfig", DEFAULTS(KV_HEADS(16), HEAD_DIM(256))},
    {"Gemma2ForCausalLM gemma2", "Gemma2Config",
     DEFAULTS(KV_HEADS(4), HEAD_DIM(256), {"sliding_window sliding_window_size", 4096})},
    {"Gemma3ForConditionalGeneration gemma3 Gemma3ForCausalLM gemma3_text", "Gemma3TextConfig",
     DEFAULTS({"num_attention_heads", 8}, KV_HEADS(4), HEAD_DIM(256), {"sliding_window", 4096}, {"vocab_size", 262208},
              {"max_position_embeddings", 131072})},
    {"Gemma3nForConditionalGeneration gemma3n Gemma3nForCausalLM gemma3n_text", "Gemma3nTextConfig",
     DEFAULTS({"num_kv_shared_layers", 15}, {"sliding_window", 512}, KV_HEADS(2), HEAD_DIM(256))},
    {"Gemma4ForConditionalGeneration gemma4 Gemma4ForCausalLM gemma4_text", "Gemma4TextConfig",
     DEFAULTS(KV_HEADS(4), HEAD_DIM(256), {"global_head_dim", 512}, {"sliding_window", 512})},
    {"MistralForCausalLM mistral", "MistralConfig",
     DEFAULTS(KV_HEADS(8), {"sliding_window sliding_window_size", 4096})},
    {"MixtralForCausalLM mixtral", "MixtralConfig", DEFAULTS(KV_HEADS(8))},
    {"Starcoder2ForCausalLM starcoder2", "Starcoder2Config", DEFAULTS(KV_HEADS(2))},
    {"StableLmForCausalLM stablelm", "StableLmConfig", DEFAULTS(KV_HEADS(32))},
    {"Qwen2ForCausalLM qwen2", "Qwen2Config", DEFAULTS(KV_HEADS(32))},
    {"Qwen2MoeForCausalLM qwen2_moe", "Qwen2MoeConfig", DEFAULTS(KV_HEADS(16))},
    {"Qwen3ForCausalLM qwen3", "Qwen3Config", DEFAULTS(KV_HEADS(32), HEAD_DIM(128))},
    {"Qwen3MoeForCausalLM qwen3_moe", "Qwen3MoeConfig", DEFAULTS(KV_HEADS(4))},
    {"SmolLM3ForCausalLM smollm3", "SmolLM3Config", DEFAULTS(KV_HEADS(4)),
     .inert = "no_rope_layers"}, /* only where use_sliding_window is true does it choose windows */
    {"Glm4ForCausalLM glm4", "Glm4Config", DEFAULTS(KV_HEADS(2), HEAD_DIM(128))},
    {"Glm4MoeForCausalLM glm4_moe", "Glm4MoeConfig", DEFAULTS(KV_HEADS(8))},
    {"SeedOssForCausalLM seed_oss", "SeedOssConfig", DEFAULTS(KV_HEADS(8), HEAD_DIM(128))},
    {"MiniMaxM2ForCausalLM minimax_m2", "MiniMaxM2Config", DEFAULTS(KV_HEADS(8), HEAD_DIM(128))},
    {"MiniMaxForCausalLM minimax", "MiniMaxConfig", DEFAULTS(KV_HEADS(8))},
    {"Cohere2ForCausalLM cohere2", "Cohere2Config", DEFAULTS({"sliding_window", 4096})},
    {"GptOssForCausalLM gpt_oss", "GptOssConfig", DEFAULTS(KV_HEADS(8), HEAD_DIM(64), {"sliding_window", 128})},
    {"Olmo3ForCausalLM olmo3", "Olmo3Config", DEFAULTS({"sliding_window", 4096})},
    {"Exaone4ForCausalLM exaone4 Exaone4_5_ForConditionalGeneration exaone4_5 exaone4_5_text", "Exaone4Config",
     DEFAULTS(KV_HEADS(32), {"sliding_window", 4096})},
    {"Llama4ForConditionalGeneration llama4 Llama4ForCausalLM llama4_text", "Llama4TextConfig",
     DEFAULTS(KV_HEADS(8), HEAD_DIM(128), {"attention_chunk_size", 8192})},
    {"MiMoV2FlashForCausalLM mimo_v2_flash", "MiMoV2FlashConfig",
     .inert = "attention_chunk_size"}, /* modeling_mimo_v2_flash.py masks by sliding_window alone */

    /* ---- recurrent layers -------------------------------------------------------------------------------------- */
    {"Qwen3NextForCausalLM qwen3_next", "Qwen3NextConfig", DEFAULTS(KV_HEADS(2), HEAD_DIM(256), DELTA_NET)},
    {"Qwen3_5ForConditionalGeneration qwen3_5 Qwen3_5ForCausalLM qwen3_5_text", "Qwen3_5TextConfig",
     DEFAULTS(KV_HEADS(4), HEAD_DIM(256), DELTA_NET)},
    {"Qwen3_5MoeForConditionalGeneration qwen3_5_moe Qwen3_5MoeForCausalLM qwen3_5_moe_text", "Qwen3_5MoeTextConfig",
     DEFAULTS(KV_HEADS(2), HEAD_DIM(256), DELTA_NET)},
    {"JambaForCausalLM jamba", "JambaConfig",
     DEFAULTS(KV_HEADS(8), {"attn_layer_period", 8}, {"attn_layer_offset", 4}, {"mamba_expand", 2},
              {"mamba_d_state", 16}, {"mamba_d_conv", 4})},
    {"BambaForCausalLM bamba", "BambaConfig",
     DEFAULTS({"mamba_n_groups", 1}, {"mamba_d_conv", 4}, {"mamba_expand", 2})},
    {"GraniteMoeHybridForCausalLM granitemoehybrid", "GraniteMoeHybridConfig",
     DEFAULTS({"mamba_n_heads", 128}, {"mamba_n_groups", 1}, {"mamba_d_state", 256}, {"mamba_d_conv", 4},
              {"mamba_expand", 2})},
    {"FalconH1ForCausalLM falcon_h1", "FalconH1Config",
     DEFAULTS(KV_HEADS(8), {"mamba_d_ssm", 1024}, {"mamba_n_heads", 128}, {"mamba_d_state", 256}, {"mamba_n_groups", 1},
              {"mamba_d_conv", 4})},
    {"Zamba2ForCausalLM zamba2", "Zamba2Config",
     DEFAULTS({"mamba_ngroups", 1}, {"mamba_d_conv conv_dimension", 4}, {"mamba_expand expansion_factor", 2},
              {"mamba_d_state state_size", 64})},
    {"NemotronHForCausalLM nemotron_h", "NemotronHConfig", DEFAULTS({"head_dim attention_head_dim", 128})},
    {"Lfm2ForCausalLM lfm2 Lfm2VlForConditionalGeneration lfm2_vl", "Lfm2Config",
     DEFAULTS(KV_HEADS(8), {"conv_L_cache", 3})},
    {"Lfm2MoeForCausalLM lfm2_moe", "Lfm2MoeConfig", DEFAULTS({"conv_L_cache", 3})},
    {"RecurrentGemmaForCausalLM recurrent_gemma", "RecurrentGemmaConfig",
     DEFAULTS({"attention_window_size", 2048}, {"conv1d_width", 4})},
    {"MambaForCausalLM mamba FalconMambaForCausalLM falcon_mamba MambaLMHeadModel", "MambaConfig",
     DEFAULTS({"state_size d_state", 16}, {"expand", 2}, {"conv_kernel d_conv", 4})},
    {"Mamba2ForCausalLM mamba2", "Mamba2Config", DEFAULTS({"expand", 2}, {"conv_kernel", 4})},
    {"mamba_ssm_1", "mamba_ssm", /* state-spaces/mamba, mamba_simple.py */
     DEFAULTS({"d_state ssm_cfg.d_state", 16}, {"expand ssm_cfg.expand", 2}, {"d_conv ssm_cfg.d_conv", 4})},
    {"mamba_ssm_2", "mamba_ssm", /* state-spaces/mamba, mamba2.py */
     DEFAULTS({"d_state ssm_cfg.d_state", 128}, {"expand ssm_cfg.expand", 2}, {"d_conv ssm_cfg.d_conv", 4},
              {"headdim ssm_cfg.headdim", 64}, {"ngroups ssm_cfg.ngroups", 1})},
};

const kvb_config_class *kvb_config_class_find(const char *name)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (kvb_names_have(classes[i].names, name))
            return &classes[i];
    return NULL;
}
