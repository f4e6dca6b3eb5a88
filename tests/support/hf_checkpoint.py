#!/usr/bin/env python3
"""An independent, slow writer and reader of small Mixture-of-Experts checkpoints as hubs publish them.

    hf_checkpoint.py make DIR --arch A --scheme S --seed N [--shards K] [--layers L --experts E --hidden H ...]
    hf_checkpoint.py decode DIR --out FILE [--tensor GGUF_NAME]
    hf_checkpoint.py selftest

`make` writes config.json, the tokenizer's files and random weights; the same arguments give the same bytes. `decode`
reads any such checkpoint and writes each tensor that a GGUF of it has, after all transformations, as f32: FILE.txt has
a line `name ne0,ne1,... offset` for each, FILE.bin the values, little-endian. Plain Python, from the published
descriptions of the formats alone; it shares nothing with the C++ readers.
"""
import argparse
import fnmatch
import json
import math
import os
import random
import sys

import hf_decode
import hf_tensors
from hf_numbers import (E2M1, E4M3, Tensor, Weights, ceil_div, f32, plain_tensor, product, read_checkpoint,
                        write_safetensors)
from hf_tokenizer import write_tokenizer

ARCHITECTURES = ["qwen3moe", "qwen3next", "qwen35moe", "qwen4exp", "deepseek", "gpt_oss", "glm4moe"]
SCHEMES = ["bf16", "f16", "f32", "fp8-block", "fp8-pb-wo", "fp8-channel", "fp8-tensor", "nvfp4-modelopt", "nvfp4-ct",
           "mxfp4"]
# Modules that stay plain, besides those that no scheme quantises.
EXCLUDED = {"qwen4exp": ["*.linear_attn*", "*.self_attn*", "mtp*"], "qwen35moe": ["*.linear_attn*", "mtp*"],
            "qwen3next": ["*.linear_attn*", "mtp*"], "deepseek": ["*.self_attn*"], "glm4moe": ["*.self_attn*"]}


def uniform(rng, count, size, middle=0.0):
    return [middle + size * (2 * rng.random() - 1) for _ in range(count)]


def e4m3_codes(rng, count, positive=False):
    """Any code that is a number; NaN becomes the code below it."""
    codes = bytearray(rng.randbytes(count))
    for i, code in enumerate(codes):
        code = code & 127 if positive else code
        codes[i] = code - 1 if code & 127 == 127 else code
    return codes


class Maker:
    def __init__(self, options, rng):
        self.c, self.rng, self.tensors = options, rng, {}
        scheme = options.scheme
        self.plain = {"bf16": "BF16", "f16": "F16", "f32": "F32"}.get(scheme, "BF16")
        self.quantises = self.plain == "BF16" and scheme not in ("bf16", "mxfp4")
        self.scale_type = options.scale_type or rng.choice(["F32", "BF16"])
        excluded = options.exclude
        if excluded is None:
            excluded = EXCLUDED.get(options.arch, []) if scheme.startswith("nvfp4") else []
        self.excluded = [pattern for pattern in excluded if pattern]
        self.channel_2d = rng.random() < 0.5
        self.plus_one = options.arch in ("qwen3next", "qwen35moe", "qwen4exp")

    def put(self, name, dtype, shape, values):
        self.tensors[name] = plain_tensor(dtype, shape, values)

    def scalar(self, name, value, shape=()):
        self.put(name, "F32", list(shape), [value])

    def scheme_of(self, name):
        """Of a linear weight."""
        if self.c.mtp_scheme and name.startswith("mtp."):
            return self.c.mtp_scheme
        module = name.removesuffix(".weight")
        if not self.quantises or any(fnmatch.fnmatch(module, p + tail) for p in self.excluded for tail in ("", ".*")):
            return None
        return self.c.scheme

    def linear(self, name, shape):
        scheme = self.scheme_of(name)
        if scheme is None or scheme in ("bf16", "f16", "f32"):
            self.put(name, self.plain, shape, uniform(self.rng, product(shape), math.sqrt(3 / shape[-1])))
        elif scheme.startswith("fp8"):
            self.fp8(name, shape, scheme)
        else:
            self.nvfp4(name.removesuffix(".weight"), shape, scheme)

    def fp8(self, name, shape, scheme):
        rng, (rows, columns) = self.rng, shape[-2:]
        self.tensors[name] = Tensor("F8_E4M3", shape, e4m3_codes(rng, product(shape)))
        typical = 1 / math.sqrt(columns) / 107  # over the root mean square of all codes
        draw = lambda n: [typical * (0.5 + rng.random()) for _ in range(n)]
        blocks = [ceil_div(rows, 128), ceil_div(columns, 128)]
        count = product(shape[:-2]) * product(blocks)
        if scheme == "fp8-block":
            self.put(name + "_scale_inv", self.scale_type, shape[:-2] + blocks, draw(count))
            return
        if len(shape) > 2:
            raise SystemExit(f"{scheme} has no fused experts; use --experts-layout unfused")
        if scheme == "fp8-pb-wo":
            self.put(name + "_scale", "F32", [blocks[0], 1, blocks[1], 1], draw(count))
        elif scheme == "fp8-channel":
            self.put(name + "_scale", self.scale_type, [rows, 1] if self.channel_2d else [rows], draw(rows))
        else:
            self.scalar(name + "_scale", draw(1)[0])
            self.scalar(name.removesuffix("weight") + "input_scale", 0.01)

    def nvfp4(self, module, shape, scheme):
        if len(shape) > 2:
            raise SystemExit(f"{scheme} has no fused experts; use --experts-layout unfused")
        rng, (rows, columns) = self.rng, shape
        if columns % 16:
            raise SystemExit(f"{module}: {columns} columns are not whole blocks of 16")
        data = Tensor("U8", [rows, columns // 2], rng.randbytes(rows * columns // 2))
        scales = bytearray(0x30 + byte % 25 for byte in rng.randbytes(rows * columns // 16))  # 0.5 .. 4
        scales[rng.randrange(len(scales))] = rng.choice([0, 1, 7, 8])
        self.tensors[module + ".weight_scale"] = Tensor("F8_E4M3", [rows, columns // 16], scales)
        factor = f32((0.5 + rng.random()) / math.sqrt(columns) / 5)
        if scheme == "nvfp4-ct":
            self.tensors[module + ".weight_packed"] = data
            self.scalar(module + ".weight_global_scale", 1 / factor, [1])
            if self.channel_2d:
                self.scalar(module + ".input_global_scale", 100.0, [1])
        else:
            self.tensors[module + ".weight"] = data
            self.scalar(module + ".weight_scale_2", factor, [1] if rng.random() < 0.2 else [])
            self.scalar(module + ".input_scale", 0.01)

    def gpt_oss_experts(self, name, shape):
        rng, (count, rows, columns) = self.rng, shape
        if self.c.scheme == "mxfp4":
            blocks = [count, rows, columns // 32]
            self.tensors[name + "_blocks"] = Tensor("U8", blocks + [16], rng.randbytes(16 * product(blocks)))
            middle = 127 - round(math.log2(3 * math.sqrt(columns)))
            scales = bytes(middle - 1 + b % 3 for b in rng.randbytes(product(blocks)))
            self.tensors[name + "_scales"] = Tensor("U8", blocks, scales)
        else:
            self.put(name, self.plain, [count, columns, rows], uniform(rng, product(shape), math.sqrt(3 / columns)))

    def add(self, name, shape, kind):
        rng, count = self.rng, product(shape)
        if kind == "linear":
            self.linear(name, shape)
        elif kind == "oss":
            self.gpt_oss_experts(name, shape)
        elif kind == "ints":
            self.put(name, "I64", [len(shape)], shape)
        elif kind in ("gamma", "gamma1"):
            self.put(name, self.plain, shape, uniform(rng, count, 0.2, 0 if self.plus_one and kind == "gamma" else 1))
        elif kind == "f32":
            middle = 1.0 if name.endswith("A_log") else 0.0
            self.put(name, "F32", shape, uniform(rng, count, 0.9 if middle else 0.1, middle))
        elif kind == "table" and self.c.table == "f8":
            self.tensors[name] = Tensor("F8_E4M3", shape, bytes(0x18 + b % 33 | b & 128 for b in rng.randbytes(count)))
        else:
            size = 0.1 if kind == "bias" else math.sqrt(3 / shape[-1])
            self.put(name, self.plain, shape, uniform(rng, count, size))

    def quantization(self):
        """(quantization_config of config.json or None, hf_quant_config.json or None)."""
        scheme = self.c.scheme
        plain = ["lm_head", "*embed_tokens", "*.mlp.gate", "*_hyper_connection*", "*.ple*", "*shared_expert_gate"]
        ignore = plain + self.excluded
        if scheme == "mxfp4":
            modules = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
            return {"quant_method": "mxfp4", "modules_to_not_convert": modules}, None
        if not self.quantises:
            return None, None
        if scheme == "fp8-block":
            return {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                    "activation_scheme": "dynamic", "modules_to_not_convert": ignore}, None
        if scheme == "nvfp4-ct" or scheme == "fp8-channel" and self.channel_2d:
            four = scheme == "nvfp4-ct"
            form = "nvfp4-pack-quantized" if four else "float-quantized"
            weights = {"num_bits": 4 if four else 8, "type": "float", "symmetric": True, "dynamic": False,
                       "strategy": "tensor_group" if four else "channel"} | ({"group_size": 16} if four else {})
            return {"quant_method": "compressed-tensors", "format": form,
                    "ignore": ["lm_head", "re:.*mlp.gate$"] + self.excluded,
                    "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "format": form}},
                    "kv_cache_scheme": None, "quantization_status": "compressed"}, None
        algorithm = {"nvfp4-modelopt": "NVFP4", "fp8-tensor": "FP8", "fp8-channel": "FP8_PC_PT",
                     "fp8-pb-wo": "FP8_PB_WO"}[scheme]
        if self.c.mtp_scheme:
            algorithm = "MIXED_PRECISION"
        producer = {"name": "modelopt", "version": "0.39.0"}
        both = {"quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": ignore}
        if algorithm == "NVFP4":
            both["group_size"] = 16
        config = {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ignore, "producer": producer}
        return (config if self.rng.random() < 0.5 else None), {"producer": producer, "quantization": both}


def write_shards(directory, tensors, shards, rng):
    if shards == 1:
        write_safetensors(os.path.join(directory, "model.safetensors"), tensors, rng)
        return
    weight_map = {name: f"model-{rng.randrange(shards) + 1:05d}-of-{shards:05d}.safetensors" for name in tensors}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        here = {name: tensor for name, tensor in tensors.items() if weight_map[name] == file}
        write_safetensors(os.path.join(directory, file), here, rng)
    total = sum(len(tensor.raw) for tensor in tensors.values())
    with open(os.path.join(directory, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, out, indent=2)


def make(options):
    rng = random.Random(f"{options.arch} {options.scheme} {options.seed}")
    if (options.scheme == "mxfp4") > (options.arch == "gpt_oss") or \
            options.arch == "gpt_oss" and options.scheme not in ("bf16", "f16", "f32", "mxfp4"):
        raise SystemExit("gpt_oss is published in plain numbers or mxfp4, and mxfp4 only for gpt_oss")
    hf_tensors.complete(options)
    os.makedirs(options.directory, exist_ok=True)
    options.eos = write_tokenizer(options.directory, options.arch, rng)
    maker = Maker(options, rng)
    for name, shape, kind in hf_tensors.all_tensors(options):
        maker.add(name, shape, kind)
    config = hf_tensors.config_json(options)
    quantization, hf_quant = maker.quantization()
    if quantization is not None:
        config["quantization_config"] = quantization
    if options.table == "f8":
        config["text_config"]["ple_embedding_dtype"] = "float8_e4m3fn"
    for name, content in [("config.json", config), ("hf_quant_config.json", hf_quant)]:
        if content is not None:
            with open(os.path.join(options.directory, name), "w", encoding="utf-8") as out:
                json.dump(content, out, indent=2)
    write_shards(options.directory, maker.tensors, options.shards, rng)


def decode(options):
    with open(os.path.join(options.directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    decoded = hf_decode.decode(config, read_checkpoint(options.directory))
    if options.tensor is not None and options.tensor not in decoded:
        raise SystemExit(f"no tensor {options.tensor}; there are {', '.join(sorted(decoded))}")
    hf_decode.write_decoded(decoded, options.out, options.tensor)


def selftest():
    """Values worked out by hand."""
    def equal(found, expected):
        if list(found) != list(expected):
            raise SystemExit(f"selftest: {list(found)} instead of {list(expected)}")

    equal(E2M1, [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    equal([E4M3[c] for c in (0x01, 0x08, 0x38, 0x3C, 0x7E, 0xB8, 0xFE)], [2 ** -9, 2 ** -6, 1, 1.5, 448, -1, -448])
    scalar = lambda value, shape=(): plain_tensor("F32", list(shape), [value])
    # 0x21: element 0 is code 1, element 1 is code 2
    packed = Tensor("U8", [1, 8], bytes([0x21, 0xF7]) + bytes(6))
    scale = Tensor("F8_E4M3", [1, 1], b"\x40")  # 2
    modelopt = {"X.weight": packed, "X.weight_scale": scale, "X.weight_scale_2": scalar(0.25)}
    equal(Weights(modelopt)("X.weight")[1][:4], [0.25, 0.5, 3, -3])
    divided = {"X.weight_packed": packed, "X.weight_scale": scale, "X.weight_global_scale": scalar(3.0, [1])}
    third = f32(1 / 3)
    equal(Weights(divided)("X.weight")[1][:4], [third, f32(2 * third), f32(12 * third), f32(-12 * third)])
    rows = Tensor("F8_E4M3", [2, 130], bytes([0x38]) * 260)
    blocks = {"X.weight": rows, "X.weight_scale_inv": plain_tensor("BF16", [1, 2], [0.5, 3])}
    equal(Weights(blocks)("X.weight")[1][126:132], [0.5, 0.5, 3, 3, 0.5, 0.5])
    channels = {"X.weight": rows, "X.weight_scale": plain_tensor("F32", [2, 1], [0.5, 3])}
    equal(Weights(channels)("X.weight")[1][128:132], [0.5, 0.5, 3, 3])
    stack = {"W_blocks": Tensor("U8", [1, 2, 1, 16], bytes([0x21] + [0] * 31)),
             "W_scales": Tensor("U8", [1, 2, 1], b"\x80\x7f")}
    equal(Weights(stack)("W")[1][:3], [1, 2, 0])
    equal(hf_decode.tiled(2, 4, 1), [0, 2, 1, 3])  # heads of K head 0 are 0, 1; of K head 1: 2, 3
    equal(hf_decode.tiled(2, 6, 2), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11])
    equal([plain_tensor("BF16", [1], [-1.5]).raw, plain_tensor("BF16", [2], [1, 3]).numbers()[1]], [b"\xc0\xbf", 3.0])
    qwen = {"model_type": "qwen3_5_moe", "text_config": {"linear_num_key_heads": 2, "linear_num_value_heads": 4,
            "linear_key_head_dim": 1, "linear_value_head_dim": 1, "num_experts": 1}}
    vector = lambda values, shape=None: plain_tensor("F32", shape or [len(values)], values)
    p = "model.language_model.layers.0.linear_attn."
    decoder = hf_decode.Decoder(qwen, {
        p + "in_proj_qkv.weight": vector(list(range(8)), [8, 1]), p + "in_proj_z.weight": vector([0, 1, 2, 3], [4, 1]),
        p + "in_proj_b.weight": vector([0, 1, 2, 3], [4, 1]), p + "in_proj_a.weight": vector([4, 5, 6, 7], [4, 1]),
        p + "conv1d.weight": vector(list(range(32)), [8, 1, 4]), p + "dt_bias": vector([0, 1, 2, 3]),
        p + "A_log": vector([0, 1, 2, 3]), p + "norm.weight": vector([5]),
        p + "out_proj.weight": vector([0, 1, 2, 3], [1, 4])})
    decoder.linear_attention("blk.0.", "model.layers.0.")
    equal(decoder.out["blk.0.attn_qkv.weight"][1], [0, 1, 2, 3, 4, 6, 5, 7])
    equal(decoder.out["blk.0.ssm_out.weight"][1], [0, 2, 1, 3])
    equal(decoder.out["blk.0.ssm_a"][1], [f32(-math.exp(v)) for v in (0, 2, 1, 3)])
    equal(decoder.out["blk.0.ssm_conv1d.weight"][0], [4, 8])
    sizes = {"model_type": "deepseek_v3", "qk_nope_head_dim": 2, "v_head_dim": 1, "num_attention_heads": 1}
    latent = hf_decode.Decoder(sizes, {
        f"model.{n}.weight": vector([0] * 2, [1, 2]) for n in ("q_proj", "kv_a_proj_with_mqa", "o_proj")} | {
        "model.kv_a_layernorm.weight": vector([1, 2]), "model.kv_b_proj.weight": vector([1, 2, 3, 4, 5, 6], [3, 2])})
    latent.latent_attention("", "model.")
    equal(latent.out["attn_k_b.weight"], ([2, 2, 1], vector([1, 3, 2, 4]).numbers()))
    equal(latent.out["attn_v_b.weight"][1], [5, 6])
    # the n-gram hash of the published model
    flagship = argparse.Namespace(ngram_base=20_000_000, ngram_heads=8)
    multipliers, offsets, sizes, table = hf_tensors.ple_hash(flagship, 248320)
    equal(multipliers, [23703573157769, 20109073645365, 8052911324071])
    equal([sizes[0], sizes[15], offsets[15], table], [20000003, 20000171, 300001275, 320001536])
    print("selftest: ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("directory")
    maker.add_argument("--arch", choices=ARCHITECTURES, required=True)
    maker.add_argument("--scheme", choices=SCHEMES, required=True)
    maker.add_argument("--seed", type=int, default=1)
    maker.add_argument("--shards", type=int, default=1)
    maker.add_argument("--experts-layout", choices=["auto", "fused", "unfused"], default="auto",
                       help="auto: fused for qwen35moe and qwen4exp in plain numbers or fp8-block")
    maker.add_argument("--exclude", action="append", metavar="GLOB",
                       help="modules that stay plain, instead of the usual ones; '' for none")
    maker.add_argument("--scale-type", choices=["F32", "BF16"], help="of FP8 scales; default: by the seed")
    maker.add_argument("--table", choices=["plain", "f8"], default="plain", help="type of the n-gram table")
    maker.add_argument("--mtp-scheme", choices=["fp8-block", "fp8-pb-wo"], help="another scheme for mtp.*")
    hf_tensors.add_size_options(maker)
    reader = commands.add_parser("decode")
    reader.add_argument("directory")
    reader.add_argument("--out", required=True)
    reader.add_argument("--tensor")
    commands.add_parser("selftest")
    options = parser.parse_args()
    {"make": make, "decode": decode, "selftest": lambda _: selftest()}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
