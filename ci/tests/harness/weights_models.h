/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models with a published number of parameters, exact to the last digit, and its source. A model that is not built in has
 * its config.json here, in single quotes.
 */
#ifndef KVB_TEST_WEIGHTS_MODELS_H
#define KVB_TEST_WEIGHTS_MODELS_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
static const struct published {
    const char *name, *config; /* NULL: built in */
    uint64_t parameters;
    const char *source;
} published[] = {
    {"Llama-2-7b-hf", NULL, UINT64_C(6738417664) - 32 * 64,
     "Hub API, safetensors.total, without the rotary tables of old checkpoints"},
    {"Llama-2-70b-hf", NULL, UINT64_C(68976653312) - 80 * 64, "the same"},
    {"Llama-3.1-8B", NULL, UINT64_C(8030261248), "Hub API, safetensors.total"},
    {"Llama-3.1-70B", NULL, UINT64_C(70553706496), "Hub API, safetensors.total"},
    {"Llama-3.1-405B", NULL, UINT64_C(405853388800), "Hub API, safetensors.total"},
    {"SmolLM3-3B",
     "{'model_type':'smollm3','hidden_size':2048,'intermediate_size':11008,'vocab_size':128256,"
     "'num_hidden_layers':36,'num_attention_heads':16,'num_key_value_heads':4}",
     UINT64_C(3075098624), "Hub API, safetensors.total"},
    {"OLMo-2-1124-7B",
     "{'model_type':'olmo2','hidden_size':4096,'intermediate_size':11008,'vocab_size':100352,"
     "'num_hidden_layers':32,'num_attention_heads':32}",
     UINT64_C(7298617344), "Hub API, safetensors.total"},
    {"OLMo-2-1124-13B",
     "{'model_type':'olmo2','hidden_size':5120,'intermediate_size':13824,'vocab_size':100352,"
     "'num_hidden_layers':40,'num_attention_heads':40}",
     UINT64_C(13716198400), "Hub API, safetensors.total"},
    {"falcon-180B",
     "{'model_type':'falcon','hidden_size':14848,'vocab_size':65024,'new_decoder_architecture':true,"
     "'bias':false,'num_hidden_layers':80,'num_attention_heads':232,'num_kv_heads':8}",
     UINT64_C(179522565120) - UINT64_C(65024) * 14848,
     "Hub API, safetensors.total, which counts the tied output twice (vLLM, falcon.py)"},
    {"Mistral-7B-v0.1", NULL, UINT64_C(7241732096), "Hub API, safetensors.total"},
    {"Mixtral-8x7B-v0.1", NULL, UINT64_C(46702792704), "Hub API, safetensors.total"},
    {"Qwen3-8B", NULL, UINT64_C(8190735360), "Hub API, safetensors.total"},
    {"Qwen3-30B-A3B", NULL, UINT64_C(30532122624), "Hub API, safetensors.total"},
    {"Qwen2.5-72B", NULL, UINT64_C(72706203648), "Hub API, safetensors.total"},
    {"Qwen2.5-7B-Instruct", NULL, UINT64_C(7615616512), "Hub API, safetensors.total"},
    {"Qwen1.5-MoE-A2.7B", NULL, UINT64_C(14315784192), "Hub API, safetensors.total"},
    {"gpt2", NULL, UINT64_C(124439808), "transformers, GPT2LMHeadModel.num_parameters()"},
    {"pythia-2.8b",
     "{'model_type':'gpt_neox','hidden_size':2560,'intermediate_size':10240,'vocab_size':50304,"
     "'num_hidden_layers':32,'num_attention_heads':32}",
     UINT64_C(2517652480) + UINT64_C(2) * 50304 * 2560, "the same"},
    {"pythia-70m",
     "{'model_type':'gpt_neox','hidden_size':512,'intermediate_size':2048,'vocab_size':50304,"
     "'num_hidden_layers':6,'num_attention_heads':8}",
     UINT64_C(18915328) + UINT64_C(2) * 50304 * 512, "Pythia paper, table 1, and two embeddings"},
    {"gemma-7b", NULL, UINT64_C(8537680896), "keras_hub, gemma presets"},
    {"gemma-2-9b", NULL, UINT64_C(9241705984), "Hub API, safetensors.total"},
    {"gemma-3-1b-it", NULL, UINT64_C(999885952), "Hub API, safetensors.total"},
    {"phi-4", NULL, UINT64_C(14659507200), "Hub API, safetensors.total"},
    {"Phi-3.5-mini-instruct", NULL, UINT64_C(3821079552), "Hub API, safetensors.total"},
    {"phi-2", NULL, UINT64_C(2779683840), "Hub API, safetensors.total"},
    {"OLMoE-1B-7B",
     "{'model_type':'olmoe','hidden_size':2048,'intermediate_size':1024,'vocab_size':50304,'num_experts':64,"
     "'num_hidden_layers':16,'num_attention_heads':16}",
     UINT64_C(6919161856), "Hub API, safetensors.total"},
    {"gpt-oss-20b", NULL, UINT64_C(20914757184), "Hub API, safetensors.total"},
    {"gpt-oss-120b", NULL, UINT64_C(116829156672), "Hub API, safetensors.total"},
    {"DeepSeek-V3", NULL, UINT64_C(671026419200),
     "audit of the checkpoint's headers, without multi-token prediction and scales"},
    {"Kimi-K2-Instruct", NULL, UINT64_C(1026408232448), "together.ai, paramCount"},
    {"DeepSeek-V2-Lite", NULL, UINT64_C(15706484224), "Hub API, safetensors.total"},
    {"DeepSeek-V3.2", NULL, UINT64_C(685396921376) - UINT64_C(684531386000) + UINT64_C(671026419200) - 13959424 - 62 * 824,
     "Hub API, safetensors.total of V3.2 less that of V3: 62 indexers with their scales"},
    {"GLM-4.5-Air",
     "{'model_type':'glm4_moe','hidden_size':4096,'intermediate_size':10944,'vocab_size':151552,"
     "'attention_bias':true,'use_qk_norm':false,'n_routed_experts':128,'n_shared_experts':1,"
     "'moe_intermediate_size':1408,'first_k_dense_replace':1,'num_hidden_layers':46,'num_attention_heads':96,"
     "'num_key_value_heads':8,'head_dim':128}",
     UINT64_C(106852251264), "Hub API, safetensors.total of INTELLECT-3, the same shapes"},
    {"MiniMax-M2.5", NULL, UINT64_C(228689764864), "Hub API, safetensors.total"},
    {"MiniMax-Text-01", NULL, UINT64_C(456089655296), "Hub API, safetensors.total of MiniMax-M1-80k, the same shapes"},
    {"mamba-2.8b", NULL, UINT64_C(2768345600), "mamba_ssm's benchmark, \"Number of parameters\""},
    {"mamba-2.8b, as mamba_ssm writes it",
     "{'model_type':'mamba','d_model':2560,'vocab_size':50277,'num_hidden_layers':64}",
     UINT64_C(2768345600), "the same"},
    {"granite-4.0-h-small", NULL, UINT64_C(32207337984), "Hub API, safetensors.total"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B", NULL, UINT64_C(31577940288), "llama.cpp, n_params"},
    {"NVIDIA-Nemotron-3-Super-120B-A12B", NULL, UINT64_C(123611012096) - 2942324736 + 40 * 512,
     "public file id 70181782850: bf16 of the headers, without the MTP layer, with the routers' f32 biases"},
    {"Qwen3-Next-80B-A3B", NULL, UINT64_C(79674391296), "llama.cpp, n_params (Qwen3-Coder-Next)"},
    {"Qwen3.5-9B", NULL, UINT64_C(8953803264), "llama.cpp, n_params"},
    {"Qwen3.5-35B-A3B", NULL, UINT64_C(34660610688), "llama.cpp, n_params"},
    {"rwkv-4-169m-pile",
     "{'model_type':'rwkv','hidden_size':768,'vocab_size':50277,'attention_hidden_size':768,"
     "'intermediate_size':3072,'num_hidden_layers':12}",
     UINT64_C(169342464), "a table of parameters of RWKV's checkpoints"},
    {"gemma-4-26B-A4B", NULL, UINT64_C(25233142046) - 256, "llama.cpp, n_params, which counts its table of rope_freqs"},
    {"Llama-4-Maverick-17B-128E", NULL, UINT64_C(400711848960), "the publisher's total less the vision tower"},
    {"GLM-5.2", NULL, UINT64_C(753329940480) - UINT64_C(9943548672) - 9371904,
     "Hub API, safetensors.total, less its layer for multi-token prediction"},
    {"GLM-4.7", NULL, UINT64_C(358337791296) - UINT64_C(3988069792) - UINT64_C(2) * 151552 * 5120,
     "Hub API, safetensors.total, less its layer for multi-token prediction"},
};
/* clang-format on */

#endif
