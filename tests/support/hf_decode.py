"""The tensors that a GGUF of a checkpoint has, as f32 values, computed slowly; for hf_checkpoint.py.

decode(config, tensors) gives {GGUF name: (ne, values)}. Matrices keep HF's rows, so ne is the shape reversed.
"""
import array
import math
import re
import sys

from hf_numbers import Weights, floats, product


class Matrix:
    """Rows of equal length; everything the converters do is moving rows and columns."""

    def __init__(self, values, columns):
        self.values, self.columns = values, columns

    @property
    def rows(self):
        return len(self.values) // self.columns

    def slice(self, begin, end):
        return Matrix(self.values[begin * self.columns:end * self.columns], self.columns)

    def pick(self, rows):
        out = floats([])
        for row in rows:
            out.extend(self.values[row * self.columns:(row + 1) * self.columns])
        return Matrix(out, self.columns)

    def transposed(self):
        return Matrix(floats(self.values[r * self.columns + c] for c in range(self.columns) for r in range(self.rows)),
                      self.rows)


def joined(matrices):
    out = floats([])
    for matrix in matrices:
        out.extend(matrix.values)
    return Matrix(out, matrices[0].columns)


def tiled(k_heads, v_heads, width):
    """Positions of the rows of V heads in tiled order: new head j * k_heads + g is old head g * r + j."""
    r = v_heads // k_heads
    return [(g * r + j) * width + i for j in range(r) for g in range(k_heads) for i in range(width)]


class Decoder:
    def __init__(self, config, tensors):
        self.text = config.get("text_config", config)
        self.model_type = config["model_type"].removesuffix("_text")
        renamed = {name.replace("model.language_model.", "model."): t for name, t in tensors.items()}
        self.weights = Weights(renamed)
        self.names = set(renamed)
        self.out = {}
        self.plus_one = self.model_type in ("qwen3_next", "qwen3_5_moe", "qwen4_exp")
        self.grouped_linear = self.model_type == "qwen3_next"

    def has(self, name):
        return self.weights.has(name)

    def matrix(self, name):
        shape, values = self.weights(name)
        return Matrix(values, shape[-1])

    def emit(self, name, ne, values):
        if name in self.out or product(ne) != len(values):
            raise ValueError(f"{name} {ne}: {len(values)} values, or twice")
        self.out[name] = (list(ne), values)

    def copy(self, gguf, hf):
        shape, values = self.weights(hf)
        self.emit(gguf, shape[::-1], values)

    def copy_matrix(self, gguf, matrix):
        self.emit(gguf, [matrix.columns, matrix.rows], matrix.values)

    def vector(self, gguf, hf):
        values = self.weights(hf)[1]
        self.emit(gguf, [len(values)], values)

    def gamma(self, gguf, hf):
        values = self.weights(hf)[1]
        self.emit(gguf, [len(values)], floats(v + 1.0 for v in values) if self.plus_one else values)

    def linear(self, gguf, hf):
        """A matrix and, where there is one, its bias."""
        self.copy(gguf + ".weight", hf + ".weight")
        if self.has(hf + ".bias"):
            self.vector(gguf + ".bias", hf + ".bias")

    # ---- parts of a block

    def mixer(self, g, h):
        self.gamma(g + "norm.weight", h + "hc_norm.weight")
        self.copy(g + "down.weight", h + "input_mix_weight_down.weight")
        self.copy(g + "up.weight", h + "input_mix_weight_up.weight")
        if self.has(h + "block_inject_weight.weight"):
            self.copy(g + "inject.weight", h + "block_inject_weight.weight")

    def linear_attention(self, g, h):
        text, h = self.text, h + "linear_attn."
        k_heads, v_heads = text["linear_num_key_heads"], text["linear_num_value_heads"]
        kw, vw, r = text["linear_key_head_dim"], text["linear_value_head_dim"], v_heads // k_heads
        kd = k_heads * kw
        conv_shape, conv = self.weights(h + "conv1d.weight")
        conv = Matrix(conv, conv_shape[2])
        out = self.matrix(h + "out_proj.weight")
        a_log, dt = (Matrix(self.weights(h + n)[1], 1) for n in ("A_log", "dt_bias"))
        if self.grouped_linear:
            group = 2 * kw + 2 * r * vw
            fused = self.matrix(h + "in_proj_qkvz.weight")
            part = lambda begin, end: fused.pick(
                [head * group + i for head in range(k_heads) for i in range(begin, end)])
            q, k = part(0, kw), part(kw, 2 * kw)
            v, z = part(2 * kw, 2 * kw + r * vw), part(2 * kw + r * vw, group)
            self.copy_matrix(g + "attn_qkv.weight", joined([q, k, v]))
            self.copy_matrix(g + "attn_gate.weight", z)
            self.copy(g + "ssm_ba.weight", h + "in_proj_ba.weight")
        else:
            heads, rows = tiled(k_heads, v_heads, 1), tiled(k_heads, v_heads, vw)
            channels = list(range(2 * kd)) + [2 * kd + row for row in rows]
            self.copy_matrix(g + "attn_qkv.weight", self.matrix(h + "in_proj_qkv.weight").pick(channels))
            self.copy_matrix(g + "attn_gate.weight", self.matrix(h + "in_proj_z.weight").pick(rows))
            self.copy_matrix(g + "ssm_beta.weight", self.matrix(h + "in_proj_b.weight").pick(heads))
            self.copy_matrix(g + "ssm_alpha.weight", self.matrix(h + "in_proj_a.weight").pick(heads))
            conv, a_log, dt = conv.pick(channels), a_log.pick(heads), dt.pick(heads)
            out = out.transposed().pick(rows).transposed()
        self.copy_matrix(g + "ssm_conv1d.weight", conv)
        self.emit(g + "ssm_dt.bias", [v_heads], dt.values)
        self.emit(g + "ssm_a", [v_heads], floats(-math.exp(v) for v in a_log.values))
        self.vector(g + "ssm_norm.weight", h + "norm.weight")
        self.copy_matrix(g + "ssm_out.weight", out)

    def latent_attention(self, g, h):
        text = self.text
        if self.has(h + "q_a_proj.weight"):
            self.copy(g + "attn_q_a.weight", h + "q_a_proj.weight")
            self.gamma(g + "attn_q_a_norm.weight", h + "q_a_layernorm.weight")
            self.copy(g + "attn_q_b.weight", h + "q_b_proj.weight")
        else:
            self.copy(g + "attn_q.weight", h + "q_proj.weight")
        self.copy(g + "attn_kv_a_mqa.weight", h + "kv_a_proj_with_mqa.weight")
        self.gamma(g + "attn_kv_a_norm.weight", h + "kv_a_layernorm.weight")
        nope, wide, heads = text["qk_nope_head_dim"], text["v_head_dim"], text["num_attention_heads"]
        kv = self.matrix(h + "kv_b_proj.weight")
        head = lambda i, begin, end: kv.slice(i * (nope + wide) + begin, i * (nope + wide) + end)
        k = joined([head(i, 0, nope).transposed() for i in range(heads)])
        v = joined([head(i, nope, nope + wide) for i in range(heads)])
        self.emit(g + "attn_k_b.weight", [nope, kv.columns, heads], k.values)
        self.emit(g + "attn_v_b.weight", [kv.columns, wide, heads], v.values)
        self.copy(g + "attn_output.weight", h + "o_proj.weight")

    def attention(self, g, h):
        for gguf, hf in [("q", "q"), ("k", "k"), ("v", "v"), ("output", "o")]:
            self.linear(g + "attn_" + gguf, h + hf + "_proj")
        for name in ["q", "k"]:
            if self.has(h + name + "_norm.weight"):
                self.gamma(g + f"attn_{name}_norm.weight", h + name + "_norm.weight")
        if self.has(h + "sinks"):
            self.vector(g + "attn_sinks.weight", h + "sinks")
        if self.has(h + "indexer.index_qk_proj.weight"):
            both, width = self.matrix(h + "indexer.index_qk_proj.weight"), self.text["indexer_head_dim"]
            split = self.text["indexer_n_heads"] * width
            self.copy_matrix(g + "indexer.q_proj.weight", both.slice(0, split))
            self.copy_matrix(g + "indexer.k_proj.weight", both.slice(split, both.rows))
            for name in ["q", "k"]:
                self.gamma(g + f"indexer.{name}_norm.weight", h + f"indexer.{name}_layernorm.weight")

    def ngram_embedding(self, g, h):
        self.copy(g + "ple_key.weight", h + "key_proj.weight")
        self.copy(g + "ple_value.weight", h + "value_proj.weight")
        for name in ["norm_key", "norm_query", "norm_conv"]:
            self.gamma(g + f"ple_{name}.weight", h + name + ".weight")
        shape, conv = self.weights(h + "conv1d.weight")
        self.copy_matrix(g + "ple_conv1d.weight", Matrix(conv, shape[2]))
        shards, prefix = [], h + "ple_embedding.ngram_embedding.shard_"
        while self.has(f"{prefix}{len(shards)}.weight"):
            shards.append(self.matrix(f"{prefix}{len(shards)}.weight"))
        self.copy_matrix("per_layer_token_embd.weight", joined(shards))

    def stack(self, gguf, matrices):
        self.emit(gguf, [matrices[0].columns, matrices[0].rows, len(matrices)], joined(matrices).values)

    def experts(self, g, h):
        h += "experts."
        if not self.has(h + "gate_up_proj"):
            count = self.text.get("num_experts", self.text.get("n_routed_experts"))
            for name in ["gate", "up", "down"]:
                self.stack(g + f"ffn_{name}_exps.weight",
                           [self.matrix(f"{h}{x}.{name}_proj.weight") for x in range(count)])
            return
        stacks = {}
        for name in ["gate_up_proj", "down_proj"]:
            shape, values = self.weights(h + name)
            size = shape[1] * shape[2]
            stacks[name] = [Matrix(values[x * size:(x + 1) * size], shape[2]) for x in range(shape[0])]
            if self.model_type == "gpt_oss" and h + name in self.names:  # plain numbers, [in, out]
                stacks[name] = [matrix.transposed() for matrix in stacks[name]]
        both, half = stacks["gate_up_proj"], stacks["gate_up_proj"][0].rows // 2
        gate, up = range(half), range(half, 2 * half)
        if self.model_type == "gpt_oss":
            gate, up = range(0, 2 * half, 2), range(1, 2 * half, 2)
            bias, down_bias = self.matrix(h + "gate_up_proj_bias").transposed(), self.matrix(h + "down_proj_bias")
            self.copy_matrix(g + "ffn_gate_exps.bias", bias.pick(gate).transposed())
            self.copy_matrix(g + "ffn_up_exps.bias", bias.pick(up).transposed())
            self.copy_matrix(g + "ffn_down_exps.bias", down_bias)
        self.stack(g + "ffn_gate_exps.weight", [m.pick(gate) for m in both])
        self.stack(g + "ffn_up_exps.weight", [m.pick(up) for m in both])
        self.stack(g + "ffn_down_exps.weight", stacks["down_proj"])

    def feed_forward(self, g, h):
        if self.has(h + "gate_proj.weight"):
            for name in ["gate", "up", "down"]:
                self.copy(g + f"ffn_{name}.weight", h + name + "_proj.weight")
            return
        self.linear(g + "ffn_gate_inp", h + ("router" if self.has(h + "router.weight") else "gate"))
        if self.has(h + "gate.e_score_correction_bias"):
            self.vector(g + "exp_probs_b.bias", h + "gate.e_score_correction_bias")
        self.experts(g, h)
        for shared in ["shared_expert", "shared_experts"]:
            if self.has(h + shared + ".up_proj.weight"):
                for name in ["gate", "up", "down"]:
                    self.copy(g + f"ffn_{name}_shexp.weight", f"{h}{shared}.{name}_proj.weight")
        if self.has(h + "shared_expert_gate.weight"):
            self.vector(g + "ffn_gate_inp_shexp.weight", h + "shared_expert_gate.weight")

    def block(self, g, h):
        if self.has(h + "input_layernorm.weight"):
            second = "ffn_norm" if self.model_type in ("qwen3_moe", "deepseek_v3") else "post_attention_norm"
            self.gamma(g + "attn_norm.weight", h + "input_layernorm.weight")
            self.gamma(g + second + ".weight", h + "post_attention_layernorm.weight")
        else:
            self.mixer(g + "hc_attn_", h + "attn_hyper_connection.")
            self.mixer(g + "hc_ffn_", h + "mlp_hyper_connection.")
        if self.has(h + "ple.key_proj.weight"):
            self.ngram_embedding(g, h + "ple.")
        if h + "linear_attn.A_log" in self.names:
            self.linear_attention(g, h)
        elif self.has(h + "self_attn.kv_b_proj.weight"):
            self.latent_attention(g, h + "self_attn.")
        else:
            self.attention(g, h + "self_attn.")
        self.feed_forward(g, h + "mlp.")

    def draft_block(self, g, i):
        """mtp.layers.i of the Qwen models."""
        self.block(g, f"mtp.layers.{i}.")
        self.gamma(g + "nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight")
        self.gamma(g + "nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight")
        if self.has("mtp.fc.weight"):
            self.copy(g + "nextn.eh_proj.weight", "mtp.fc.weight")
            self.gamma(g + "nextn.shared_head_norm.weight", "mtp.norm.weight")
            return
        embedding, hidden = self.matrix("mtp.fc_embedding.weight"), self.matrix("mtp.fc_hidden.weight")
        both = joined([embedding.transposed(), hidden.transposed()]).transposed()
        self.copy_matrix(g + "nextn.eh_proj.weight", both)
        self.mixer(g + "nextn.hc_head_", "mtp.hyper_connection_mixer.")

    def next_token_block(self, g, h):
        """A block behind the trunk of DeepSeek and GLM: what it has beside a block."""
        for gguf, hf in [("eh_proj", "eh_proj"), ("enorm", "enorm"), ("hnorm", "hnorm"),
                         ("shared_head_norm", "shared_head.norm"), ("shared_head_head", "shared_head.head"),
                         ("embed_tokens", "embed_tokens")]:
            if self.has(h + hf + ".weight"):
                self.copy(f"{g}nextn.{gguf}.weight", h + hf + ".weight")

    def all(self):
        self.copy("token_embd.weight", "model.embed_tokens.weight")
        if self.has("model.norm.weight"):
            self.gamma("output_norm.weight", "model.norm.weight")
        else:
            self.mixer("output_hc_", "model.hyper_connection_mixer.")
        if self.has("lm_head.weight"):
            self.copy("output.weight", "lm_head.weight")
        layers = sorted({int(m[1]) for m in (re.match(r"model\.layers\.(\d+)\.", n) for n in self.names) if m})
        for layer in layers:
            self.block(f"blk.{layer}.", f"model.layers.{layer}.")
            self.next_token_block(f"blk.{layer}.", f"model.layers.{layer}.")
        drafts = sorted({int(m[1]) for m in (re.match(r"mtp\.layers\.(\d+)\.", n) for n in self.names) if m})
        for i in drafts:
            self.draft_block(f"blk.{len(layers) + i}.", i)
        return self.out


def decode(config, tensors):
    return Decoder(config, tensors).all()


def write_decoded(decoded, path, only=None):
    """path.txt: a line `name ne0,ne1,... offset` a tensor, offset in bytes into path.bin, little-endian f32."""
    stem = re.sub(r"\.(txt|bin)$", "", path)
    with open(stem + ".txt", "w", encoding="utf-8") as index, open(stem + ".bin", "wb") as data:
        for name, (ne, values) in sorted(decoded.items()):
            if only is not None and name != only:
                continue
            index.write(f"{name} {','.join(map(str, ne))} {data.tell()}\n")
            raw = array.array("f", values)
            if sys.byteorder == "big":
                raw.byteswap()
            data.write(raw.tobytes())
