/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The architectures. Unless a row names another source, its rules are those of transformers' configuration_*.py and
 * modeling_*.py. Only architectures with known code have a row.
 */
#include "harness/size/model_reading.h"

#define HEADS_USUAL                                                                                                    \
    .heads = "num_attention_heads n_head n_heads", .kv_heads = "num_key_value_heads", .k_dim = "head_dim"

static const char encoder[] =
    "it is an encoder, or its decoder keeps rows of an input, and no config tells how long that is";

/* attention_head_dim is 2 hidden / heads, as attention reads the hidden state and the embedding. kv_channels is half of
 * it. */
static const kvb_head_fields zamba2_heads = {
    .heads = "num_attention_heads", .kv_heads = "num_key_value_heads", .k_dim = "attention_head_dim"};
static const kvb_head_fields gemma4_global = {
    .kv_heads = "num_global_key_value_heads", .k_dim = "global_head_dim", .v_dim = "global_head_dim"};
static const kvb_head_fields mimo_heads = {HEADS_USUAL, .v_dim = "v_head_dim"};
static const kvb_head_fields mimo_window = {.heads = "swa_num_attention_heads",
                                            .kv_heads = "swa_num_key_value_heads",
                                            .k_dim = "swa_head_dim",
                                            .v_dim = "swa_v_head_dim"};

static const kvb_head_fields swa_heads = {
    .heads = "swa_num_attention_heads", .kv_heads = "swa_num_key_value_heads", .k_dim = "swa_head_dim"};
static const kvb_head_fields step_heads = {
    .heads = "num_attention_heads", .kv_heads = "num_attention_groups num_key_value_heads", .k_dim = "head_dim"};
static const kvb_head_fields step_window = {.heads = "attention_other_setting.num_attention_heads",
                                            .kv_heads = "attention_other_setting.num_attention_groups",
                                            .k_dim = "attention_other_setting.head_dim"};
static const kvb_head_fields decoder_heads = {.heads = "decoder_attention_heads"};

static const kvb_mamba_fields mamba1 = {.inner = "intermediate_size d_inner",
                                        .expand = "expand",
                                        .state = "state_size d_state",
                                        .conv = "conv_kernel d_conv"};
static const kvb_mamba_fields mamba_ssm = {.expand = "ssm_cfg.expand expand",
                                           .heads = "ssm_cfg.nheads",
                                           .head_dim = "ssm_cfg.headdim headdim",
                                           .state = "ssm_cfg.d_state d_state",
                                           .groups = "ssm_cfg.ngroups ngroups",
                                           .conv = "ssm_cfg.d_conv d_conv"};
static const kvb_mamba_fields jamba = {.expand = "mamba_expand", .state = "mamba_d_state", .conv = "mamba_d_conv"};
static const kvb_mamba_fields mamba2 = {.expand = "expand",
                                        .heads = "num_heads",
                                        .head_dim = "head_dim",
                                        .state = "state_size",
                                        .groups = "n_groups",
                                        .conv = "conv_kernel"};
/* The width of Nemotron-H's mixer is mamba_num_heads x mamba_head_dim; its `expand` is not used. */
static const kvb_mamba_fields nemotron_h = {.heads = "mamba_num_heads",
                                            .head_dim = "mamba_head_dim",
                                            .state = "ssm_state_size",
                                            .groups = "n_groups mamba_n_groups",
                                            .conv = "conv_kernel mamba_d_conv"};
static const kvb_mamba_fields bamba = {.inner = "mamba_d_ssm",
                                       .expand = "mamba_expand",
                                       .heads = "mamba_n_heads",
                                       .head_dim = "mamba_d_head",
                                       .state = "mamba_d_state",
                                       .groups = "mamba_n_groups",
                                       .conv = "mamba_d_conv"};
static const kvb_mamba_fields zamba2 = {.expand = "mamba_expand expansion_factor",
                                        .heads = "n_mamba_heads",
                                        .head_dim = "mamba_headdim",
                                        .state = "mamba_d_state state_size",
                                        .groups = "mamba_ngroups",
                                        .conv = "mamba_d_conv conv_dimension"};

/* A row: names, letters, and the other members that are not 0. */
#define FAMILY(NAMES, ...)                                                                                             \
    {                                                                                                                  \
        .names = NAMES, .letters = __VA_ARGS__                                                                         \
    }

static const kvb_layer_family families[] = {
    /* ---- every layer over every token -------------------------------------------------------------------------- */
    FAMILY(
        "LlamaForCausalLM llama GPTNeoXForCausalLM gpt_neox GPT2LMHeadModel gpt2 GPTJForCausalLM gptj OPTForCausalLM "
        "opt BloomForCausalLM bloom PhiForCausalLM phi phi-msft GemmaForCausalLM gemma StableLmForCausalLM stablelm "
        "CohereForCausalLM cohere OlmoForCausalLM olmo Olmo2ForCausalLM olmo2 OlmoeForCausalLM olmoe "
        "GraniteForCausalLM granite GraniteMoeForCausalLM granitemoe GlmForCausalLM glm Glm4ForCausalLM glm4 "
        "Glm4MoeForCausalLM glm4_moe BaichuanForCausalLM baichuan InternLMForCausalLM internlm InternLM2ForCausalLM "
        "internlm2 OrionForCausalLM orion QWenLMHeadModel qwen NemotronForCausalLM nemotron ExaoneForCausalLM exaone "
        "MPTForCausalLM mpt DbrxForCausalLM dbrx DeepseekForCausalLM deepseek SeedOssForCausalLM seed_oss "
        "ArceeForCausalLM arcee Ernie4_5ForCausalLM Ernie4_5_ForCausalLM ernie4_5 Ernie4_5_MoeForCausalLM ernie4_5_moe "
        "ApertusForCausalLM apertus Ernie4_5_VLMoeForConditionalGeneration ernie4_5_vl_moe ernie4_5_vl_moe_text "
        "ernie4_5_moe_vl BailingMoeForCausalLM bailing_moe BailingMoeV2ForCausalLM bailing_moe_v2 "
        "Glm4vForConditionalGeneration glm4v glm4v_text Glm4vMoeForConditionalGeneration glm4v_moe glm4v_moe_text",
        "F"),
    FAMILY("MiniMaxM2ForCausalLM minimax_m2", "F", .lists = "attn_type_list"), /* all ones */
    FAMILY("FalconForCausalLM falcon RefinedWebModel RefinedWeb", "F", .multi_query = "multi_query",
           .multi_query_else = true),
    FAMILY("ChatGLMModel chatglm", "F", .kv_flag = "multi_query_attention"), /* vLLM's models/chatglm.py */
    FAMILY("GPTBigCodeForCausalLM gpt_bigcode", "F", .multi_query = "multi_query", .multi_query_else = true),
    FAMILY(
        "HunYuanDenseV1ForCausalLM hunyuan_v1_dense HunYuanMoEV1ForCausalLM hunyuan_v1_moe HunYuanForCausalLM hunyuan",
        "F", .shares = true),
    FAMILY("DeciLMForCausalLM nemotron-nas", "F", .lists = "block_configs", .vary = kvb_block_config_vary),
    FAMILY("MiniMaxM3ForCausalLM MiniMaxM3SparseForCausalLM minimax_m3", "F", .vary_in = "sparse_attention_config",
           .vary = kvb_sparse_index_vary),

    /* ---- windows and chunks ------------------------------------------------------------------------------------ */
    FAMILY("MistralForCausalLM mistral", "FW", .other = 'W'),
    FAMILY("MixtralForCausalLM mixtral Phi3ForCausalLM phi3 Phi3VForCausalLM phi3_v Starcoder2ForCausalLM starcoder2 "
           "Ministral3ForCausalLM ministral3 Phi4MMForCausalLM phi4mm Phi4MultimodalForCausalLM phi4_multimodal",
           "FW", .other = 'W'),
    FAMILY("Qwen2ForCausalLM qwen2 Qwen3ForCausalLM qwen3 Qwen2MoeForCausalLM qwen2_moe "
           "Qwen2VLForConditionalGeneration qwen2_vl qwen2_vl_text Qwen2_5_VLForConditionalGeneration qwen2_5_vl "
           "qwen2_5_vl_text Qwen3VLForConditionalGeneration qwen3_vl qwen3_vl_text SmolLM3ForCausalLM smollm3 "
           "MiMoForCausalLM mimo Qwen2_5OmniModel Qwen2_5OmniForConditionalGeneration qwen2_5_omni qwen2_5_omni_text",
           "FW", .other = 'W', .window_off = true, .window_from = "max_window_layers"),
    FAMILY("Qwen3MoeForCausalLM qwen3_moe Qwen3VLMoeForConditionalGeneration qwen3_vl_moe qwen3_vl_moe_text "
           "Qwen3OmniMoeForConditionalGeneration qwen3_omni_moe qwen3_omni_moe_text",
           "FW", .other = 'W', .window_off = true),
    FAMILY("Gemma2ForCausalLM gemma2", "FW", .other = 'W', .period = 2, .offset = -1, .local_needed = "Gemma2Config"),
    FAMILY("Gemma3ForConditionalGeneration gemma3 Gemma3ForCausalLM gemma3_text", "FW",
           .lists = "sliding_window_pattern", .other = 'W', .period = 6, .period_in = "sliding_window_pattern",
           .offset = -1, .local_needed = "Gemma3TextConfig"),
    FAMILY("Gemma3nForConditionalGeneration gemma3n Gemma3nForCausalLM gemma3n_text", "FW", .other = 'W', .period = 5,
           .offset = -1, .local_needed = "Gemma3nTextConfig", .shares = true),
    FAMILY("Gemma4ForConditionalGeneration gemma4 Gemma4ForCausalLM gemma4_text", "FW", .other = 'W', .period = 6,
           .offset = -1, .local_needed = "Gemma4TextConfig", .last_full = true, .full_heads = &gemma4_global,
           .full_kv_flag = "attention_k_eq_v", .shares = true),
    FAMILY("Cohere2ForCausalLM cohere2", "FW", .lists = "sliding_window_pattern", .other = 'W', .period = 4,
           .period_in = "sliding_window_pattern", .offset = -1, .local_needed = "Cohere2Config"),
    FAMILY("GptOssForCausalLM gpt_oss", /* its sinks are learned logits, which store nothing */ "FW", .other = 'W',
           .period = 2, .offset = -1, .local_needed = "GptOssConfig"),
    FAMILY("Olmo3ForCausalLM olmo3", "FW", .other = 'W', .period = 4, .offset = -1, .local_needed = "Olmo3Config"),
    FAMILY("Exaone4ForCausalLM exaone4 Exaone4_5_ForConditionalGeneration exaone4_5 exaone4_5_text", "FW",
           .lists = "sliding_window_pattern", .other = 'W', .period = 4, .period_in = "sliding_window_pattern",
           .offset = -1),
    FAMILY("MiMoV2FlashForCausalLM mimo_v2_flash", "FW", .lists = "hybrid_layer_pattern", .period_must = true,
           .local_needed = "its code", .heads = &mimo_heads, .window_heads = &mimo_window),
    FAMILY("Dots1ForCausalLM dots1", "FW", .other = 'W', .window_from = "max_window_layers"),
    FAMILY("LagunaForCausalLM laguna", "FW", .vary = kvb_heads_vary),
    /* vLLM's models/step3p5.py */
    FAMILY("Step3p5ForCausalLM step3p5 Step3p7FlashForCausalLM Step3p7ForConditionalGeneration step3p7 step3p7_text",
           "FW", .period_must = true, .lists = "layer_types", .heads = &step_heads, .window_heads = &step_window),
    FAMILY("InklingForConditionalGeneration inkling_mm_model InklingForCausalLM inkling_text inkling_model", "FW",
           .lists = "local_layer_ids", .other = 'W', .period = 6, .offset = -1, .local_needed = "InklingTextConfig",
           .window_heads = &swa_heads, .beside = kvb_short_convs_beside),
    FAMILY("DeepseekV4ForCausalLM deepseek_v4", "W", .other = 'W', .local_needed = "DeepseekV4Config",
           .vary_in = "compress_ratios", .vary = kvb_one_row_vary, .beside = kvb_pooled_beside),
    FAMILY("Llama4ForConditionalGeneration llama4 Llama4ForCausalLM llama4_text", "FC", .lists = "no_rope_layers",
           .other = 'C', .period = 4, .period_in = "no_rope_layer_interval", .offset = -1),

    /* ---- latents ----------------------------------------------------------------------------------------------- */
    FAMILY("DeepseekV2ForCausalLM deepseek_v2 DeepseekV3ForCausalLM deepseek_v3 kimi_k2 "
           "KimiK25ForConditionalGeneration kimi_k25 Glm4MoeLiteForCausalLM glm4_moe_lite",
           "F", .latent = true),
    FAMILY("LongcatFlashForCausalLM LongcatCausalLM longcat_flash",
           /* num_hidden_layers counts both attentions of a layer */ "F", .count_in = "num_layers", .count_times = 2,
           .latent = true),
    FAMILY("DeepseekV32ForCausalLM deepseek_v32 GlmMoeDsaForCausalLM glm_moe_dsa", "F", .latent = true,
           .vary_in = "indexer_types", .vary = kvb_indexer_vary),
    FAMILY("KimiLinearForCausalLM kimi_linear KimiK3ForConditionalGeneration kimi_k3", "FS",
           .lists = "linear_attn_config", .lists_first = 1, .period_must = true, .latent = true, .mixer = kvb_kda_read),
    FAMILY("Glm5NextForCausalLM glm5_next", "FS", .lists = "linear_attn_config", .period_must = true, .latent = true,
           .mixer = kvb_kda_read, .beside = kvb_pooled_index_beside),

    /* ---- recurrent layers -------------------------------------------------------------------------------------- */
    FAMILY("Qwen3NextForCausalLM qwen3_next", "FS", .other = 'S', .period = 4, .period_in = "full_attention_interval",
           .offset = -1, .mixer = kvb_delta_net_read),
    FAMILY("Qwen3_5ForConditionalGeneration qwen3_5 Qwen3_5ForCausalLM qwen3_5_text Qwen3_5MoeForConditionalGeneration "
           "qwen3_5_moe Qwen3_5MoeForCausalLM qwen3_5_moe_text",
           "FS", .other = 'S', .period = 4, .period_in = "full_attention_interval", .offset = -1,
           .mixer = kvb_delta_net_read),
    FAMILY("Qwen4ExpForConditionalGeneration qwen4_exp Qwen4ExpForCausalLM qwen4_exp_text", "FS", .other = 'S',
           .period = 4, .period_in = "full_attention_interval", .offset = -1, .mixer = kvb_delta_net_read,
           .beside = kvb_qsa_beside),
    FAMILY("MiniMaxText01ForCausalLM minimax_text_01 MiniMaxM1ForCausalLM minimax_m1 MiniMaxForCausalLM minimax", "FS",
           .lists = "attn_type_list", .period_must = true, .mixer = kvb_lightning_read),
    /* inclusionAI's modeling_bailing_moe_linear_v2.py and modeling_bailing_moe_v2_5.py; in the latter F is MLA */
    FAMILY("BailingMoeLinearForCausalLM BailingMoeLinearV2ForCausalLM bailing_moe_linear", "FS", .other = 'S',
           .period_in = "layer_group_size", .offset = -1, .rest_full = true, .mixer = kvb_lightning_read),
    FAMILY("BailingMoeV2_5ForCausalLM bailing_hybrid bailing_moe_v2_5", "FS", .other = 'S',
           .period_in = "layer_group_size", .offset = -1, .rest_full = true, .latent = true,
           .mixer = kvb_lightning_read),
    FAMILY("Phi4FlashForCausalLM phi4flash", "FWS-", .lay = kvb_samba_lay, .local_needed = "Phi4FlashConfig",
           .mixer = kvb_mamba1_read, .mamba = &jamba),
    FAMILY("JambaForCausalLM jamba", "FS", .lists = "layers_block_type", .other = 'S', .period_in = "attn_layer_period",
           .offset_in = "attn_layer_offset", .mixer = kvb_mamba1_read, .mamba = &jamba),
    FAMILY("BambaForCausalLM bamba", "FS", .lists = "attn_layer_indices layers_block_type", .period_must = true,
           .mixer = kvb_mamba2_read, .mamba = &bamba),
    FAMILY("GraniteMoeHybridForCausalLM granitemoehybrid", "FS", .lists = "layers_block_type", .period_must = true,
           .mixer = kvb_mamba2_read, .mamba = &bamba),
    FAMILY("FalconH1ForCausalLM falcon_h1", "B", .other = 'B', .mixer = kvb_mamba2_read, .mamba = &bamba),
    FAMILY("Zamba2ForCausalLM zamba2", /* hybrid layers share weights, but each has its own rows and state */ "SB",
           .lists = "layers_block_type", .period_must = true, .heads = &zamba2_heads, .head_dim_times = 2,
           .mixer = kvb_mamba2_read, .mamba = &zamba2),
    FAMILY("NemotronHForCausalLM nemotron_h", "FS-", .lists = "layers_block_type hybrid_override_pattern",
           .layers_in = "layers_block_type hybrid_override_pattern", .period_must = true, .mixer = kvb_mamba2_read,
           .mamba = &nemotron_h),
    FAMILY("Lfm2ForCausalLM lfm2 Lfm2VlForConditionalGeneration lfm2_vl Lfm2MoeForCausalLM lfm2_moe", "FS",
           .lists = "full_attn_idxs", .period_must = true, .mixer = kvb_short_conv_read),
    FAMILY("RecurrentGemmaForCausalLM recurrent_gemma", "WS", .lists = "block_types", .period_must = true,
           .window_in = "attention_window_size", .local_needed = "RecurrentGemmaConfig", .mixer = kvb_rg_lru_read),
    FAMILY("MambaForCausalLM mamba FalconMambaForCausalLM falcon_mamba MambaLMHeadModel", "S", .other = 'S',
           .mixer = kvb_mamba1_read, .mamba = &mamba1),
    FAMILY("Mamba2ForCausalLM mamba2", "S", .other = 'S', .mixer = kvb_mamba2_read, .mamba = &mamba2),
    FAMILY("mamba_ssm_1", /* state-spaces/mamba, mamba_simple.py */ "S", .other = 'S', .mixer = kvb_mamba1_read,
           .mamba = &mamba_ssm),
    FAMILY("mamba_ssm_2", /* state-spaces/mamba, mamba2.py */ "S", .other = 'S', .mixer = kvb_mamba2_read,
           .mamba = &mamba_ssm),
    FAMILY("RwkvForCausalLM rwkv rwkv5 Rwkv5ForCausalLM rwkv6 Rwkv6ForCausalLM rwkv7 RWKV7ForCausalLM Rwkv7ForCausalLM",
           "S", .other = 'S', .mixer = kvb_rwkv_read),

    /* ---- rows of an encoder's output beside the model's own ------------------------------------------------------ */
    FAMILY("WhisperForConditionalGeneration whisper BartForConditionalGeneration bart", "F",
           .count_in = "decoder_layers", .heads = &decoder_heads, .beside = kvb_cross_beside),
    FAMILY("T5GemmaForConditionalGeneration t5gemma t5_gemma_module", "FW", .other = 'W', .period = 2, .offset = -1,
           .local_needed = "T5GemmaModuleConfig", .beside = kvb_cross_beside),

    /* ---- refused ----------------------------------------------------------------------------------------------- */
    FAMILY("MllamaForConditionalGeneration mllama mllama_text_model", NULL,
           .refusal = "cross-attention layers keep rows of the images, whose number no config tells"),
    FAMILY("T5ForConditionalGeneration t5 BertForMaskedLM BertModel bert RobertaForMaskedLM roberta", NULL,
           .refusal = encoder),
};

const kvb_layer_family *kvb_layer_family_find(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (kvb_names_have(families[i].names, name))
            return &families[i];
    return NULL;
}

/*
 * The defaults of a configuration class for fields that a config.json does not name, and the fields that it does not read.
 * Unless a row names another source, it is transformers' src/transformers/models/MODEL/configuration_MODEL.py. A class
 * that is not here computes its defaults: KV heads = heads, head_dim = hidden / heads (LlamaConfig, PhiConfig,
 * GraniteConfig, CohereConfig …).
 */

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
     .inert = "no_rope_layers"}, /* it chooses windows only if use_sliding_window is true */
    {"Glm4ForCausalLM glm4", "Glm4Config", DEFAULTS(KV_HEADS(2), HEAD_DIM(128))},
    {"Glm4MoeForCausalLM glm4_moe", "Glm4MoeConfig", DEFAULTS(KV_HEADS(8))},
    {"SeedOssForCausalLM seed_oss", "SeedOssConfig", DEFAULTS(KV_HEADS(8), HEAD_DIM(128))},
    {"Ernie4_5ForCausalLM Ernie4_5_ForCausalLM ernie4_5", "Ernie4_5Config", DEFAULTS(KV_HEADS(2), HEAD_DIM(128))},
    {"Ernie4_5_MoeForCausalLM ernie4_5_moe", "Ernie4_5_MoeConfig", DEFAULTS(KV_HEADS(4))},
    {"Dots1ForCausalLM dots1", "Dots1Config",
     DEFAULTS(KV_HEADS(32), {"sliding_window", 4096}, {"max_window_layers", 62})},
    {"Glm4vForConditionalGeneration glm4v glm4v_text", "Glm4vTextConfig", DEFAULTS(KV_HEADS(2))},
    {"Glm4vMoeForConditionalGeneration glm4v_moe glm4v_moe_text", "Glm4vMoeTextConfig", DEFAULTS(KV_HEADS(8))},
    {"InklingForConditionalGeneration inkling_mm_model InklingForCausalLM inkling_text inkling_model",
     "InklingTextConfig",
     DEFAULTS(KV_HEADS(8), HEAD_DIM(128), {"swa_num_attention_heads", 64}, {"swa_num_key_value_heads", 16},
              {"swa_head_dim", 128}, {"sliding_window_size sliding_window", 512},
              {"conv_kernel_size sconv_kernel_size", 4})},
    {"DeepseekV4ForCausalLM deepseek_v4", "DeepseekV4Config",
     DEFAULTS(KV_HEADS(1), HEAD_DIM(512), {"sliding_window", 128}, {"index_head_dim", 128})},
    {"Glm5NextForCausalLM glm5_next", "Glm5NextTextConfig", DEFAULTS({"first_k_dense_replace mlp_layer_types", 3})},
    {"T5GemmaForConditionalGeneration t5gemma t5_gemma_module", "T5GemmaModuleConfig",
     DEFAULTS(KV_HEADS(4), HEAD_DIM(256), {"sliding_window", 4096})},
    {"DeepseekV32ForCausalLM deepseek_v32 GlmMoeDsaForCausalLM glm_moe_dsa", "GlmMoeDsaConfig",
     DEFAULTS({"index_skip_topk_offset", 2})}, /* vLLM's models/deepseek_v2.py */
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
    {"Phi4FlashForCausalLM phi4flash", "Phi4FlashConfig",
     DEFAULTS({"mamba_d_state", 16}, {"mamba_d_conv", 4}, {"mamba_expand", 2})},
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
