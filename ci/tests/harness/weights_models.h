/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models with a published number of parameters, exact to the last digit: the fields of config.json (in single quotes,
 * without the braces), the layers, the number and its source.
 */
#ifndef KVB_TEST_WEIGHTS_MODELS_H
#define KVB_TEST_WEIGHTS_MODELS_H

#include "harness/size/weights.h"

#define ROWS(layers, what, q, kv, dim)                                                                                 \
    {                                                                                                                  \
        .n = layers, .kind = what, .heads = q, .kv_heads = kv, .k_dim = dim, .v_dim = dim                              \
    }
#define FULL(n, heads, kv_heads, dim)   ROWS(n, KVB_SIZED_FULL, heads, kv_heads, dim)
#define WINDOW(n, heads, kv_heads, dim) ROWS(n, KVB_SIZED_WINDOW, heads, kv_heads, dim)
#define LATENT(layers, q, nope, v, index)                                                                              \
    {                                                                                                                  \
        .n = layers, .kind = KVB_SIZED_LATENT, .heads = q, .kv_heads = 1, .v_dim = v, .latent_dim = 512,               \
        .nope_dim = nope, .rope_dim = 64, .index_dim = index                                                           \
    }
/* as in DeepSeek-V2 and later models */
#define MLA(layers, q, index) LATENT(layers, q, 128, 128, index)
#define STATE(layers)                                                                                                  \
    {                                                                                                                  \
        .n = layers, .kind = KVB_SIZED_STATE, .state_elements = 1                                                      \
    }
#define NONE(layers)                                                                                                   \
    {                                                                                                                  \
        .n = layers, .kind = KVB_SIZED_NONE                                                                            \
    }

/* clang-format off */
static const struct published {
    const char *name;
    uint32_t layers;
    kvb_sized_group groups[3];
    const char *config;
    uint64_t parameters;
    const char *source;
} published[] = {
    {"Llama-2-7b-hf", 32,
     {FULL(32, 32, 32, 128)},
     "'model_type':'llama','hidden_size':4096,'intermediate_size':11008,'vocab_size':32000",
     UINT64_C(6738417664) - 32 * 64, "Hub API, safetensors.total, without the rotary tables of old checkpoints"},
    {"Llama-2-70b-hf", 80,
     {FULL(80, 64, 8, 128)},
     "'model_type':'llama','hidden_size':8192,'intermediate_size':28672,'vocab_size':32000",
     UINT64_C(68976653312) - 80 * 64, "the same"},
    {"Llama-3.1-8B", 32,
     {FULL(32, 32, 8, 128)},
     "'model_type':'llama','hidden_size':4096,'intermediate_size':14336,'vocab_size':128256",
     UINT64_C(8030261248), "Hub API, safetensors.total"},
    {"Llama-3.1-70B", 80,
     {FULL(80, 64, 8, 128)},
     "'model_type':'llama','hidden_size':8192,'intermediate_size':28672,'vocab_size':128256",
     UINT64_C(70553706496), "Hub API, safetensors.total"},
    {"Llama-3.1-405B", 126,
     {FULL(126, 128, 8, 128)},
     "'model_type':'llama','hidden_size':16384,'intermediate_size':53248,'vocab_size':128256",
     UINT64_C(405853388800), "Hub API, safetensors.total"},
    {"SmolLM3-3B", 36,
     {FULL(36, 16, 4, 128)},
     "'model_type':'smollm3','hidden_size':2048,'intermediate_size':11008,'vocab_size':128256",
     UINT64_C(3075098624), "Hub API, safetensors.total"},
    {"OLMo-2-1124-7B", 32,
     {FULL(32, 32, 32, 128)},
     "'model_type':'olmo2','hidden_size':4096,'intermediate_size':11008,'vocab_size':100352",
     UINT64_C(7298617344), "Hub API, safetensors.total"},
    {"OLMo-2-1124-13B", 40,
     {FULL(40, 40, 40, 128)},
     "'model_type':'olmo2','hidden_size':5120,'intermediate_size':13824,'vocab_size':100352",
     UINT64_C(13716198400), "Hub API, safetensors.total"},
    {"falcon-180B", 80,
     {FULL(80, 232, 8, 64)},
     "'model_type':'falcon','hidden_size':14848,'vocab_size':65024,'new_decoder_architecture':true,'bias':false",
     UINT64_C(179522565120) - UINT64_C(65024) * 14848, "Hub API, safetensors.total, which counts the tied output twice (vLLM, falcon.py)"},
    {"Mistral-7B-v0.1", 32,
     {FULL(32, 32, 8, 128)},
     "'model_type':'mistral','hidden_size':4096,'intermediate_size':14336,'vocab_size':32000",
     UINT64_C(7241732096), "Hub API, safetensors.total"},
    {"Mixtral-8x7B-v0.1", 32,
     {FULL(32, 32, 8, 128)},
     "'model_type':'mixtral','hidden_size':4096,'intermediate_size':14336,'vocab_size':32000,'num_local_experts':8",
     UINT64_C(46702792704), "Hub API, safetensors.total"},
    {"Qwen3-8B", 36,
     {FULL(36, 32, 8, 128)},
     "'model_type':'qwen3','hidden_size':4096,'intermediate_size':12288,'vocab_size':151936",
     UINT64_C(8190735360), "Hub API, safetensors.total"},
    {"Qwen3-30B-A3B", 48,
     {FULL(48, 32, 4, 128)},
     "'model_type':'qwen3_moe','hidden_size':2048,'intermediate_size':6144,'vocab_size':151936,"
     "'moe_intermediate_size':768,'num_experts':128,'decoder_sparse_step':1,'mlp_only_layers':[]",
     UINT64_C(30532122624), "Hub API, safetensors.total"},
    {"Qwen2.5-72B", 80,
     {FULL(80, 64, 8, 128)},
     "'model_type':'qwen2','hidden_size':8192,'intermediate_size':29568,'vocab_size':152064",
     UINT64_C(72706203648), "Hub API, safetensors.total"},
    {"Qwen2.5-7B", 28,
     {FULL(28, 28, 4, 128)},
     "'model_type':'qwen2','hidden_size':3584,'intermediate_size':18944,'vocab_size':152064",
     UINT64_C(7615616512), "Hub API, safetensors.total"},
    {"Qwen1.5-MoE-A2.7B", 24,
     {FULL(24, 16, 16, 128)},
     "'model_type':'qwen2_moe','hidden_size':2048,'intermediate_size':5632,'vocab_size':151936,"
     "'moe_intermediate_size':1408,'shared_expert_intermediate_size':5632,'num_experts':60,"
     "'decoder_sparse_step':1",
     UINT64_C(14315784192), "Hub API, safetensors.total"},
    {"gpt2", 12,
     {FULL(12, 12, 12, 64)},
     "'model_type':'gpt2','n_embd':768,'n_positions':1024,'vocab_size':50257",
     UINT64_C(124439808), "transformers, GPT2LMHeadModel.num_parameters()"},
    {"pythia-2.8b", 32,
     {FULL(32, 32, 32, 80)},
     "'model_type':'gpt_neox','hidden_size':2560,'intermediate_size':10240,'vocab_size':50304",
     UINT64_C(2517652480) + UINT64_C(2) * 50304 * 2560, "the same"},
    {"pythia-70m", 6,
     {FULL(6, 8, 8, 64)},
     "'model_type':'gpt_neox','hidden_size':512,'intermediate_size':2048,'vocab_size':50304",
     UINT64_C(18915328) + UINT64_C(2) * 50304 * 512, "Pythia paper, table 1, and two embeddings"},
    {"gemma-7b", 28,
     {FULL(28, 16, 16, 256)},
     "'model_type':'gemma','hidden_size':3072,'intermediate_size':24576,'vocab_size':256000",
     UINT64_C(8537680896), "keras_hub, gemma presets"},
    {"gemma-2-9b", 42,
     {FULL(42, 16, 8, 256)},
     "'model_type':'gemma2','hidden_size':3584,'intermediate_size':14336,'vocab_size':256000",
     UINT64_C(9241705984), "Hub API, safetensors.total"},
    {"gemma-3-1b", 26,
     {FULL(26, 4, 1, 256)},
     "'model_type':'gemma3_text','hidden_size':1152,'intermediate_size':6912,'vocab_size':262144",
     UINT64_C(999885952), "Hub API, safetensors.total"},
    {"phi-4", 40,
     {FULL(40, 40, 10, 128)},
     "'model_type':'phi3','hidden_size':5120,'intermediate_size':17920,'vocab_size':100352",
     UINT64_C(14659507200), "Hub API, safetensors.total"},
    {"Phi-3.5-mini", 32,
     {FULL(32, 32, 32, 96)},
     "'model_type':'phi3','hidden_size':3072,'intermediate_size':8192,'vocab_size':32064",
     UINT64_C(3821079552), "Hub API, safetensors.total"},
    {"phi-2", 32,
     {FULL(32, 32, 32, 80)},
     "'model_type':'phi','hidden_size':2560,'intermediate_size':10240,'vocab_size':51200",
     UINT64_C(2779683840), "Hub API, safetensors.total"},
    {"OLMoE-1B-7B", 16,
     {FULL(16, 16, 16, 128)},
     "'model_type':'olmoe','hidden_size':2048,'intermediate_size':1024,'vocab_size':50304,'num_experts':64",
     UINT64_C(6919161856), "Hub API, safetensors.total"},
    {"gpt-oss-20b", 24,
     {FULL(24, 64, 8, 64)},
     "'model_type':'gpt_oss','hidden_size':2880,'intermediate_size':2880,'vocab_size':201088,"
     "'num_local_experts':32,'num_attention_heads':64",
     UINT64_C(20914757184), "Hub API, safetensors.total"},
    {"gpt-oss-120b", 36,
     {FULL(36, 64, 8, 64)},
     "'model_type':'gpt_oss','hidden_size':2880,'intermediate_size':2880,'vocab_size':201088,"
     "'num_local_experts':128,'num_attention_heads':64",
     UINT64_C(116829156672), "Hub API, safetensors.total"},
    {"DeepSeek-V3", 61,
     {MLA(61, 128, 0)},
     "'model_type':'deepseek_v3','hidden_size':7168,'intermediate_size':18432,'vocab_size':129280,"
     "'q_lora_rank':1536,'moe_intermediate_size':2048,'n_routed_experts':256,'n_shared_experts':1,"
     "'first_k_dense_replace':3,'moe_layer_freq':1",
     UINT64_C(671026419200), "audit of the checkpoint's headers, without multi-token prediction and scales"},
    {"Kimi-K2", 61,
     {MLA(61, 64, 0)},
     "'hidden_size':7168,'intermediate_size':18432,'vocab_size':163840,'q_lora_rank':1536,"
     "'moe_intermediate_size':2048,'n_routed_experts':384,'n_shared_experts':1,'first_k_dense_replace':1,"
     "'moe_layer_freq':1,'model_type':'kimi_k2'",
     UINT64_C(1026408232448), "together.ai, paramCount"},
    {"DeepSeek-V2-Lite", 27,
     {MLA(27, 16, 0)},
     "'model_type':'deepseek_v2','hidden_size':2048,'intermediate_size':10944,'vocab_size':102400,"
     "'q_lora_rank':null,'moe_intermediate_size':1408,'n_routed_experts':64,'n_shared_experts':2,"
     "'first_k_dense_replace':1,'moe_layer_freq':1",
     UINT64_C(15706484224), "Hub API, safetensors.total"},
    {"DeepSeek-V3.2", 61,
     {MLA(61, 128, 128)},
     "'model_type':'deepseek_v32','index_n_heads':64,'hidden_size':7168,'intermediate_size':18432,"
     "'vocab_size':129280,'q_lora_rank':1536,'moe_intermediate_size':2048,'n_routed_experts':256,"
     "'n_shared_experts':1,'first_k_dense_replace':3,'moe_layer_freq':1",
     UINT64_C(685396921376) - UINT64_C(684531386000) + UINT64_C(671026419200) - 13959424 - 62 * 824, "Hub API, safetensors.total of V3.2 less that of V3: 62 indexers with their scales"},
    {"GLM-4.5-Air", 46,
     {FULL(46, 96, 8, 128)},
     "'model_type':'glm4_moe','hidden_size':4096,'intermediate_size':10944,'vocab_size':151552,"
     "'attention_bias':true,'use_qk_norm':false,'n_routed_experts':128,'n_shared_experts':1,"
     "'moe_intermediate_size':1408,'first_k_dense_replace':1",
     UINT64_C(106852251264), "Hub API, safetensors.total of INTELLECT-3, the same shapes"},
    {"MiniMax-M2", 62,
     {FULL(62, 48, 8, 128)},
     "'model_type':'minimax_m2','hidden_size':3072,'intermediate_size':1536,'vocab_size':200064,"
     "'num_local_experts':256,'use_qk_norm':true,'use_routing_bias':true",
     UINT64_C(228689764864), "Hub API, safetensors.total"},
    {"MiniMax-Text-01", 80,
     {FULL(10, 64, 8, 128), STATE(70)},
     "'model_type':'minimax_text_01','hidden_size':6144,'intermediate_size':9216,'vocab_size':200064,"
     "'num_local_experts':32,'num_attention_heads':64,'head_dim':128",
     UINT64_C(456089655296), "Hub API, safetensors.total of MiniMax-M1-80k, the same shapes"},
    {"mamba-2.8b-hf", 64,
     {STATE(64)},
     "'model_type':'mamba','hidden_size':2560,'intermediate_size':5120,'vocab_size':50280,'state_size':16,"
     "'conv_kernel':4,'time_step_rank':160",
     UINT64_C(2768345600), "mamba_ssm's benchmark, \"Number of parameters\""},
    {"mamba-2.8b, as mamba_ssm writes it", 64,
     {STATE(64)},
     "'model_type':'mamba','d_model':2560,'vocab_size':50277",
     UINT64_C(2768345600), "the same"},
    {"granite-4.0-h-small", 40,
     {FULL(4, 32, 8, 128), STATE(36)},
     "'model_type':'granitemoehybrid','hidden_size':4096,'intermediate_size':768,"
     "'shared_intermediate_size':1536,'vocab_size':100352,'num_local_experts':72,'mamba_d_state':128,"
     "'mamba_d_conv':4,'mamba_expand':2,'mamba_n_heads':128,'mamba_d_head':64,'mamba_n_groups':1,"
     "'tie_word_embeddings':true",
     UINT64_C(32207337984), "Hub API, safetensors.total"},
    {"Nemotron-3-Nano", 52,
     {FULL(6, 32, 2, 128), STATE(23), NONE(23)},
     "'model_type':'nemotron_h','hidden_size':2688,"
     "'hybrid_override_pattern':'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME',"
     "'intermediate_size':1856,'mamba_head_dim':64,'mamba_num_heads':64,'head_dim':128,"
     "'moe_intermediate_size':1856,'moe_shared_expert_intermediate_size':3712,'n_groups':8,"
     "'n_routed_experts':128,'n_shared_experts':1,'ssm_state_size':128,'conv_kernel':4,'vocab_size':131072,"
     "'tie_word_embeddings':false",
     UINT64_C(31577940288), "llama.cpp, n_params"},
    {"Nemotron-3-Super", 88,
     {FULL(8, 32, 2, 128), STATE(40), NONE(40)},
     "'model_type':'nemotron_h','hidden_size':4096,'hybrid_override_pattern':"
     "'MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME',"
     "'mamba_head_dim':64,'mamba_num_heads':128,'head_dim':128,'moe_latent_size':1024,"
     "'moe_intermediate_size':2688,'moe_shared_expert_intermediate_size':5376,'n_groups':8,"
     "'n_routed_experts':512,'n_shared_experts':1,'ssm_state_size':128,'conv_kernel':4,'vocab_size':131072,"
     "'tie_word_embeddings':false",
     UINT64_C(123611012096) - 2942324736 + 40 * 512,
     "public file id 70181782850: bf16 of the headers, without the MTP layer, with the routers' f32 biases"},
    {"Qwen3-Next-80B-A3B", 48,
     {FULL(12, 16, 2, 256), STATE(36)},
     "'model_type':'qwen3_next','hidden_size':2048,'intermediate_size':5120,'vocab_size':151936,"
     "'moe_intermediate_size':512,'shared_expert_intermediate_size':512,'num_experts':512,"
     "'decoder_sparse_step':1,'tie_word_embeddings':false,'linear_conv_kernel_dim':4,'linear_key_head_dim':128,"
     "'linear_num_key_heads':16,'linear_num_value_heads':32,'linear_value_head_dim':128",
     UINT64_C(79674391296), "llama.cpp, n_params (Qwen3-Coder-Next)"},
    {"Qwen3.5-9B", 32,
     {FULL(8, 16, 4, 256), STATE(24)},
     "'model_type':'qwen3_5_text','hidden_size':4096,'intermediate_size':12288,'vocab_size':248320,"
     "'tie_word_embeddings':false,'linear_conv_kernel_dim':4,'linear_key_head_dim':128,"
     "'linear_num_key_heads':16,'linear_num_value_heads':32,'linear_value_head_dim':128",
     UINT64_C(8953803264), "llama.cpp, n_params"},
    {"Qwen3.5-35B-A3B", 40,
     {FULL(10, 16, 2, 256), STATE(30)},
     "'model_type':'qwen3_5_moe_text','hidden_size':2048,'vocab_size':248320,'moe_intermediate_size':512,"
     "'shared_expert_intermediate_size':512,'num_experts':256,'tie_word_embeddings':false,"
     "'linear_conv_kernel_dim':4,'linear_key_head_dim':128,'linear_num_key_heads':16,"
     "'linear_num_value_heads':32,'linear_value_head_dim':128",
     UINT64_C(34660610688), "llama.cpp, n_params"},
    {"rwkv-4-169m-pile", 12,
     {STATE(12)},
     "'model_type':'rwkv','hidden_size':768,'vocab_size':50277,'attention_hidden_size':768,'intermediate_size':3072",
     UINT64_C(169342464), "a table of parameters of RWKV's checkpoints"},
    {"Gemma-4-26B-A4B", 30,
     {WINDOW(25, 16, 8, 256), FULL(5, 16, 2, 512)},
     "'model_type':'gemma4_text','hidden_size':2816,'intermediate_size':2112,'vocab_size':262144,"
     "'moe_intermediate_size':704,'num_experts':128,'num_kv_shared_layers':0,'attention_k_eq_v':true,"
     "'hidden_size_per_layer_input':0",
     UINT64_C(25233142046) - 256, "llama.cpp, n_params, which counts its table of rope_freqs"},
    {"Llama-4-Maverick", 48,
     {FULL(48, 40, 8, 128)},
     "'model_type':'llama4_text','hidden_size':5120,'intermediate_size':8192,'intermediate_size_mlp':16384,"
     "'vocab_size':202048,'num_local_experts':128,'interleave_moe_layer_step':2",
     UINT64_C(400711848960), "the publisher's total less the vision tower"},
    {"GLM-5.2", 78,
     {LATENT(21, 64, 192, 256, 128), LATENT(57, 64, 192, 256, 0)},
     "'model_type':'glm_moe_dsa','hidden_size':6144,'intermediate_size':12288,'vocab_size':154880,'q_lora_rank':2048,"
     "'moe_intermediate_size':2048,'n_routed_experts':256,'n_shared_experts':1,'first_k_dense_replace':3,'index_n_heads':32",
     UINT64_C(753329940480) - UINT64_C(9943548672) - 9371904,
     "Hub API, safetensors.total, less its layer for multi-token prediction"},
    {"GLM-4.7", 92,
     {FULL(92, 96, 8, 128)},
     "'model_type':'glm4_moe','hidden_size':5120,'intermediate_size':12288,'vocab_size':151552,'moe_intermediate_size':1536,"
     "'n_routed_experts':160,'n_shared_experts':1,'first_k_dense_replace':3,'attention_bias':true,'use_qk_norm':true",
     UINT64_C(358337791296) - UINT64_C(3988069792) - UINT64_C(2) * 151552 * 5120,
     "Hub API, safetensors.total, less its layer for multi-token prediction"},
};
/* clang-format on */

#endif
