"""The tensors of each architecture as checkpoints name and shape them, and their config.json, for hf_checkpoint.py.

A tensor is (name, shape, kind); kinds:
    linear   a matrix [out, in], or a stack [n, out, in], that schemes quantise
    oss      a stack of gpt-oss: MXFP4, or plain numbers transposed
    plain    a matrix or kernel that stays in plain numbers; bias: a vector of them; table: rows of the n-gram table
    gamma    a norm's weight; gamma1: one that is never stored as weight - 1
    f32      a vector that stays F32
    ints     integers; instead of a shape, their values
"""
import argparse

NESTED = ("qwen35moe", "qwen4exp")  # model.language_model.layers.N
TOKEN_COUNT = 288                   # vocab_size: a little more than the tokenizer has


def primes_from(n, count):
    found = []
    while len(found) < count:
        if all(n % d for d in range(2, int(n ** 0.5) + 1)):
            found.append(n)
        n += 1
    return found


def splitmix(z):
    mask = (1 << 64) - 1
    z = (z + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return z ^ z >> 31


def ple_hash(c, vocab):
    """(multipliers, offsets, sizes, rows of the table) of the n-gram hash."""
    half = max(1, (2 ** 63 - 1) // vocab // 2)
    multipliers = [2 * (splitmix((1234 + 0x9E3779B97F4A7C15 * (i + 1)) % 2 ** 64) % half) + 1 for i in range(3)]
    sizes = primes_from(c.ngram_base, 2 * c.ngram_heads)
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    return multipliers, offsets, sizes, -(-sum(sizes) // 128) * 128


def is_linear_attention(c, layer):
    return c.arch in ("qwen3next", "qwen35moe", "qwen4exp") and (layer + 1) % c.interval != 0


def gated_attention(c, p):
    heads, kv, hd, e = c.heads, c.kv_heads, c.head_dim, c.hidden
    yield p + "self_attn.q_proj.weight", [2 * heads * hd, e], "linear"
    yield p + "self_attn.k_proj.weight", [kv * hd, e], "linear"
    yield p + "self_attn.v_proj.weight", [kv * hd, e], "linear"
    yield p + "self_attn.o_proj.weight", [e, heads * hd], "linear"
    yield p + "self_attn.q_norm.weight", [hd], "gamma"
    yield p + "self_attn.k_norm.weight", [hd], "gamma"
    if c.arch == "qwen4exp":
        ihd = c.indexer_head_dim
        yield p + "self_attn.indexer.index_qk_proj.weight", [(c.indexer_heads + 1) * ihd, e], "linear"
        yield p + "self_attn.indexer.q_layernorm.weight", [ihd], "gamma"
        yield p + "self_attn.indexer.k_layernorm.weight", [ihd], "gamma"


def linear_attention(c, p):
    e, kd, vd = c.hidden, c.linear_k_heads * c.linear_head_dim, c.linear_v_heads * c.linear_head_dim
    q = p + "linear_attn."
    if c.arch == "qwen3next":
        yield q + "in_proj_qkvz.weight", [2 * kd + 2 * vd, e], "linear"
        yield q + "in_proj_ba.weight", [2 * c.linear_v_heads, e], "plain"
    else:
        yield q + "in_proj_qkv.weight", [2 * kd + vd, e], "linear"
        yield q + "in_proj_z.weight", [vd, e], "linear"
        yield q + "in_proj_b.weight", [c.linear_v_heads, e], "plain"
        yield q + "in_proj_a.weight", [c.linear_v_heads, e], "plain"
    yield q + "conv1d.weight", [2 * kd + vd, 1, 4], "plain"
    yield q + "dt_bias", [c.linear_v_heads], "f32"
    yield q + "A_log", [c.linear_v_heads], "f32"
    yield q + "norm.weight", [c.linear_head_dim], "gamma1"
    yield q + "out_proj.weight", [e, vd], "linear"


def latent_attention(c, p):
    heads, e = c.heads, c.hidden
    if c.q_lora:
        yield p + "self_attn.q_a_proj.weight", [c.q_lora, e], "linear"
        yield p + "self_attn.q_a_layernorm.weight", [c.q_lora], "gamma"
        yield p + "self_attn.q_b_proj.weight", [heads * (c.nope_dim + c.rope_dim), c.q_lora], "linear"
    else:
        yield p + "self_attn.q_proj.weight", [heads * (c.nope_dim + c.rope_dim), e], "linear"
    yield p + "self_attn.kv_a_proj_with_mqa.weight", [c.kv_lora + c.rope_dim, e], "linear"
    yield p + "self_attn.kv_a_layernorm.weight", [c.kv_lora], "gamma"
    yield p + "self_attn.kv_b_proj.weight", [heads * (c.nope_dim + c.v_dim), c.kv_lora], "linear"
    yield p + "self_attn.o_proj.weight", [e, heads * c.v_dim], "linear"


def plain_attention(c, p):
    heads, kv, hd, e = c.heads, c.kv_heads, c.head_dim, c.hidden
    bias = c.arch in ("gpt_oss", "glm4moe")
    for name, rows, columns in [("q", heads * hd, e), ("k", kv * hd, e), ("v", kv * hd, e), ("o", e, heads * hd)]:
        yield p + f"self_attn.{name}_proj.weight", [rows, columns], "plain" if c.arch == "gpt_oss" else "linear"
        if bias and (name != "o" or c.arch == "gpt_oss"):
            yield p + f"self_attn.{name}_proj.bias", [rows], "bias"
    if c.arch == "gpt_oss":
        yield p + "self_attn.sinks", [heads], "bias"
    else:
        yield p + "self_attn.q_norm.weight", [hd], "gamma"
        yield p + "self_attn.k_norm.weight", [hd], "gamma"


def feed_forward(c, p, layer):
    e, ff, n = c.hidden, c.ff, c.experts
    if layer is not None and layer < c.dense_layers:
        for name, rows, columns in [("gate", c.dense_ff, e), ("up", c.dense_ff, e), ("down", e, c.dense_ff)]:
            yield p + f"mlp.{name}_proj.weight", [rows, columns], "linear"
        return
    if c.arch == "gpt_oss":
        yield p + "mlp.router.weight", [n, e], "plain"
        yield p + "mlp.router.bias", [n], "bias"
        yield p + "mlp.experts.gate_up_proj", [n, 2 * ff, e], "oss"
        yield p + "mlp.experts.gate_up_proj_bias", [n, 2 * ff], "bias"
        yield p + "mlp.experts.down_proj", [n, e, ff], "oss"
        yield p + "mlp.experts.down_proj_bias", [n, e], "bias"
        return
    yield p + "mlp.gate.weight", [n, e], "plain"
    if c.arch in ("deepseek", "glm4moe"):
        yield p + "mlp.gate.e_score_correction_bias", [n], "f32"
    if c.fused:
        yield p + "mlp.experts.gate_up_proj", [n, 2 * ff, e], "linear"
        yield p + "mlp.experts.down_proj", [n, e, ff], "linear"
    else:
        for x in range(n):
            for name, rows, columns in [("gate", ff, e), ("up", ff, e), ("down", e, ff)]:
                yield p + f"mlp.experts.{x}.{name}_proj.weight", [rows, columns], "linear"
    shared = "shared_experts" if c.arch in ("deepseek", "glm4moe") else "shared_expert"
    if c.arch != "qwen3moe":
        for name, rows, columns in [("gate", c.shared_ff, e), ("up", c.shared_ff, e), ("down", e, c.shared_ff)]:
            yield p + f"mlp.{shared}.{name}_proj.weight", [rows, columns], "linear"
    if c.arch in ("qwen3next", "qwen35moe", "qwen4exp"):
        yield p + "mlp.shared_expert_gate.weight", [1, e], "plain"


def mixer(c, p, inject):
    wide = c.streams * c.hidden
    yield p + "hc_norm.weight", [wide], "gamma"
    yield p + "input_mix_weight_down.weight", [c.low_rank, wide], "plain"
    yield p + "input_mix_weight_up.weight", [wide, c.low_rank], "plain"
    if inject:
        yield p + "block_inject_weight.weight", [c.streams, wide], "plain"


def ngram_embedding(c, p):
    e, wide = c.hidden, c.streams * c.hidden
    yield p + "ple.key_proj.weight", [wide, e], "plain"
    yield p + "ple.value_proj.weight", [e, e], "plain"
    for name in ["norm_key", "norm_query", "norm_conv"]:
        yield p + f"ple.{name}.weight", [wide], "gamma"
    yield p + "ple.conv1d.weight", [wide, 1, 4], "plain"
    multipliers, offsets, sizes, rows = ple_hash(c, TOKEN_COUNT)
    width = e // len(sizes)
    for name, values in [("layer_multipliers", multipliers), ("ngram_heads_offsets", offsets),
                         ("ngram_heads_vocab_sizes", sizes)]:
        yield p + "ple.ple_embedding." + name, values, "ints"
    for shard in range(c.ple_shards):
        begin, end = rows * shard // c.ple_shards, rows * (shard + 1) // c.ple_shards
        yield p + f"ple.ple_embedding.ngram_embedding.shard_{shard}.weight", [end - begin, width], "table"


def block(c, p, layer):
    """layer None: an MTP block."""
    if c.arch == "qwen4exp":
        yield from mixer(c, p + "attn_hyper_connection.", True)
        yield from mixer(c, p + "mlp_hyper_connection.", True)
    else:
        yield p + "input_layernorm.weight", [c.hidden], "gamma"
        yield p + "post_attention_layernorm.weight", [c.hidden], "gamma"
    if c.arch == "qwen4exp" and layer == 1:
        yield from ngram_embedding(c, p)
    if layer is not None and is_linear_attention(c, layer):
        yield from linear_attention(c, p)
    elif c.arch == "deepseek":
        yield from latent_attention(c, p)
    elif c.arch in ("qwen3next", "qwen35moe", "qwen4exp"):
        yield from gated_attention(c, p)
    else:
        yield from plain_attention(c, p)
    yield from feed_forward(c, p, layer)


def all_tensors(c):
    e, root = c.hidden, "model.language_model." if c.nested else "model."
    yield root + "embed_tokens.weight", [TOKEN_COUNT, e], "plain"
    if c.arch == "qwen4exp":
        yield from mixer(c, root + "hyper_connection_mixer.", False)
    else:
        yield root + "norm.weight", [e], "gamma"
    if not c.tie:
        yield "lm_head.weight", [TOKEN_COUNT, e], "plain"
    for layer in range(c.layers):
        yield from block(c, f"{root}layers.{layer}.", layer)
    for i in range(c.mtp):
        if c.arch in ("deepseek", "glm4moe"):
            p = f"{root}layers.{c.layers + i}."
            yield from block(c, p, None)
            for name in ["enorm", "hnorm", "shared_head.norm"]:
                yield p + name + ".weight", [e], "gamma"
            yield p + "eh_proj.weight", [e, 2 * e], "plain"
            if c.mtp_embeddings:
                yield p + "embed_tokens.weight", [TOKEN_COUNT, e], "plain"
                yield p + "shared_head.head.weight", [TOKEN_COUNT, e], "plain"
            continue
        yield from block(c, f"mtp.layers.{i}.", None)
        yield "mtp.pre_fc_norm_embedding.weight", [e], "gamma"
        if c.arch == "qwen4exp":
            yield "mtp.pre_fc_norm_hidden.weight", [c.streams * e], "gamma"
            yield "mtp.fc_embedding.weight", [e, e], "plain"
            yield "mtp.fc_hidden.weight", [e, e], "plain"
            yield from mixer(c, "mtp.hyper_connection_mixer.", False)
        else:
            yield "mtp.pre_fc_norm_hidden.weight", [e], "gamma"
            yield "mtp.fc.weight", [e, 2 * e], "plain"
            yield "mtp.norm.weight", [e], "gamma"
    if c.vision:
        yield "model.visual.patch_embed.proj.weight", [16, 3, 2, 4, 4], "plain"
        yield "model.visual.blocks.0.attn.qkv.weight", [48, 16], "plain"


def yarn(c, factor, kind):
    return {kind: "yarn", "factor": factor, "original_max_position_embeddings": 4096, "beta_fast": 32.0,
            "beta_slow": 1.0}


def hybrid_config(c):
    kinds = ["linear_attention" if is_linear_attention(c, i) else "full_attention" for i in range(c.layers)]
    return {"full_attention_interval": c.interval, "layer_types": kinds, "partial_rotary_factor": 0.25,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": c.linear_head_dim,
            "linear_value_head_dim": c.linear_head_dim, "linear_num_key_heads": c.linear_k_heads,
            "linear_num_value_heads": c.linear_v_heads, "shared_expert_intermediate_size": c.shared_ff,
            "attention_bias": False}


def config_json(c):
    types = {"qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe"), "qwen3next": ("Qwen3NextForCausalLM", "qwen3_next"),
             "qwen35moe": ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
             "qwen4exp": ("Qwen4ExpForConditionalGeneration", "qwen4_exp"),
             "deepseek": ("DeepseekV3ForCausalLM", "deepseek_v3"), "gpt_oss": ("GptOssForCausalLM", "gpt_oss"),
             "glm4moe": ("Glm4MoeForCausalLM", "glm4_moe")}
    architecture, model_type = types[c.arch]
    text = {"vocab_size": TOKEN_COUNT, "hidden_size": c.hidden, "num_hidden_layers": c.layers,
            "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
            "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "moe_intermediate_size": c.ff, "num_experts_per_tok": c.top, "norm_topk_prob": True,
            "tie_word_embeddings": c.tie, "eos_token_id": c.eos, "bos_token_id": None}
    if c.arch in ("qwen3moe", "qwen3next", "qwen35moe", "qwen4exp"):
        text["num_experts"] = c.experts
    if c.arch == "qwen3moe":
        text |= {"attention_bias": False, "decoder_sparse_step": 1, "mlp_only_layers": [],
                 "intermediate_size": 4 * c.ff, "rope_scaling": None}
    if c.arch in ("qwen3next", "qwen35moe", "qwen4exp"):
        text |= hybrid_config(c)
    if c.arch in ("qwen35moe", "qwen4exp"):
        pairs = c.head_dim // 8
        h, w = pairs // 3, pairs // 3
        del text["rope_theta"]
        text |= {"mtp_num_hidden_layers": c.mtp, "mtp_use_dedicated_embeddings": False, "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e6, "mrope_interleaved": True, "partial_rotary_factor": 0.25,
            "mrope_section": [pairs - h - w, h, w]}}
    if c.arch == "qwen4exp":
        text |= {"output_gate_type": "sigmoid", "hc_count": c.streams, "hc_lowrank": c.low_rank, "ple_layer_ids": [2],
                 "ple_embed_dim": c.hidden, "ple_conv_kernel_size": 4, "ngram_size": 3, "seed": 1234,
                 "heads_per_ngram": c.ngram_heads, "ngram_vocab_size_base": c.ngram_base,
                 "make_ngram_vocab_size_divisible_by": 128, "split_ngram_parts": c.ple_shards,
                 "indexer_n_heads": c.indexer_heads, "indexer_kv_heads": 1, "indexer_head_dim": c.indexer_head_dim,
                 "indexer_budget": 16, "indexer_compress_ratio": 4}
    if c.arch == "deepseek":
        del text["head_dim"]
        text |= {"first_k_dense_replace": c.dense_layers, "intermediate_size": c.dense_ff, "kv_lora_rank": c.kv_lora,
                 "q_lora_rank": c.q_lora or None, "qk_nope_head_dim": c.nope_dim, "qk_rope_head_dim": c.rope_dim,
                 "v_head_dim": c.v_dim, "num_key_value_heads": c.heads, "moe_layer_freq": 1, "n_group": 2,
                 "topk_group": 1, "n_routed_experts": c.experts, "n_shared_experts": c.shared_ff // c.ff,
                 "num_nextn_predict_layers": c.mtp, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
                 "topk_method": "noaux_tc", "attention_bias": False,
                 "rope_scaling": yarn(c, 40, "type") | {"mscale": 1.0, "mscale_all_dim": 1.0}, "rope_theta": 1e4}
    if c.arch == "glm4moe":
        text |= {"first_k_dense_replace": c.dense_layers, "intermediate_size": c.dense_ff, "n_group": 1,
                 "topk_group": 1, "n_routed_experts": c.experts, "n_shared_experts": c.shared_ff // c.ff,
                 "num_nextn_predict_layers": c.mtp, "routed_scaling_factor": 2.5, "use_qk_norm": True,
                 "attention_bias": True, "partial_rotary_factor": 0.5, "rope_scaling": None, "rms_norm_eps": 1e-5}
    if c.arch == "gpt_oss":
        del text["moe_intermediate_size"], text["norm_topk_prob"]
        kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(c.layers)]
        text |= {"intermediate_size": c.ff, "num_local_experts": c.experts, "experts_per_token": c.top,
                 "sliding_window": 8, "layer_types": kinds, "swiglu_limit": 7.0, "attention_bias": True,
                 "rope_scaling": yarn(c, 32.0, "rope_type") | {"truncate": False}, "rope_theta": 150000,
                 "rms_norm_eps": 1e-5}
    number = {"f16": "float16", "f32": "float32"}.get(c.scheme, "bfloat16")
    dtype = {"torch_dtype" if c.arch == "qwen3moe" else "dtype": number}
    if not c.nested:
        suffix = "_text" if c.arch in NESTED else ""
        return {"architectures": [architecture], "model_type": model_type + suffix} | dtype | text
    return {"architectures": [architecture], "model_type": model_type, "language_model_only": not c.vision,
            "tie_word_embeddings": c.tie, "text_config": {"model_type": model_type + "_text"} | text} | dtype


def add_size_options(parser):
    for name, default, what in [
            ("layers", 4, "blocks"), ("experts", 6, "routed experts a layer"), ("top", 2, "experts a token"),
            ("hidden", 128, ""), ("shared-ff", None, "default: ff"),
            ("ff", None, "width of a routed expert; default: 128 for fp8-block, otherwise 64"),
            ("heads", 4, ""), ("kv-heads", 2, ""), ("head-dim", 32, ""), ("interval", 2, "every n-th layer attends"),
            ("linear-k-heads", 2, ""), ("linear-v-heads", 6, ""),
            ("linear-head-dim", None, "default: 128 for fp8-block, otherwise 64"), ("dense-layers", 1, ""),
            ("dense-ff", 192, ""), ("q-lora", 96, "0: none"), ("kv-lora", 64, ""), ("nope-dim", 32, ""),
            ("rope-dim", 16, ""), ("v-dim", 48, ""), ("streams", 4, ""), ("low-rank", 16, ""), ("ngram-heads", 2, ""),
            ("ngram-base", 100, ""), ("ple-shards", 16, ""), ("indexer-heads", 2, ""),
            ("indexer-head-dim", None, "default: 128 for fp8-block, otherwise 32"),
            ("mtp", None, "MTP blocks; default: 1 but for qwen3moe, qwen3next and gpt_oss")]:
        parser.add_argument("--" + name, type=int, default=default, help=what or None)
    parser.add_argument("--tie", action="store_true", help="no lm_head")
    parser.add_argument("--vision", action="store_true", help="with tensors of a vision tower")
    parser.add_argument("--mtp-embeddings", action="store_true", help="deepseek, glm4moe: MTP blocks with their own")
    parser.add_argument("--nested", action=argparse.BooleanOptionalAction, default=None,
                        help="model.language_model.*; default: qwen35moe and qwen4exp")


def complete(c):
    """Fills the defaults that depend on the architecture and the scheme."""
    blocks = c.scheme == "fp8-block"  # parts of fused matrices begin with a block, as in published checkpoints
    c.ff = c.ff or (128 if blocks else 64)
    c.shared_ff = c.shared_ff or c.ff
    c.indexer_head_dim = c.indexer_head_dim or (128 if blocks else 32)
    c.linear_head_dim = c.linear_head_dim or (128 if blocks else 64)
    if c.mtp is None:
        c.mtp = 0 if c.arch in ("qwen3moe", "qwen3next", "gpt_oss") else 1
    if c.arch not in ("deepseek", "glm4moe"):
        c.dense_layers = 0
    if c.nested is None:
        c.nested = c.arch in NESTED
    if c.experts_layout == "auto":
        c.fused = c.arch in NESTED and c.scheme in ("bf16", "f16", "f32", "fp8-block")
    else:
        c.fused = c.experts_layout == "fused"
    return c
