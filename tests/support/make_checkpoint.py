#!/usr/bin/env python3
"""An independent, slow writer and reader of small safetensors checkpoints in every form that tierpack recognises.

    make_checkpoint.py make   --form FORM --seed N --out DIR    random checkpoint, with the values a reader must find
    make_checkpoint.py decode DIR --out FILE [--only SUBSTRING] read a checkpoint, write every weight as f32
    make_checkpoint.py forms                                    list the forms

Written from the descriptions of the formats alone (docs/safetensors.md), on numpy, and sharing nothing with the C++
reader: floats are decoded by their formulas, not by tables. `make` writes expected.json beside the checkpoint, a list of
{"name", "shape", "offset"} into expected.f32: little-endian f32, computed element by element from what was written.
"""
import argparse
import json
import os
import struct
import sys

import numpy as np

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
         "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}
NUMPY = {"BOOL": "u1", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4",
         "F32": "<f4", "F64": "<f8", "I64": "<i8", "U64": "<u8"}
f32 = np.float32


# ---- numbers from codes, by formula

def e2m1(code):
    code = np.asarray(code, np.int64)
    exponent, mantissa = (code >> 1) & 3, code & 1
    size = np.where(exponent == 0, mantissa * 0.5, (1 + mantissa / 2) * 2.0 ** (exponent - 1))
    return np.where(code & 8, -size, size).astype(f32)


def e4m3(code):
    code = np.asarray(code, np.int64)
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = np.where(exponent == 0, mantissa * 2.0 ** -9, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    size = np.where((code & 127) == 127, np.nan, size)
    return np.where(code & 128, -size, size).astype(f32)


def e5m2(code):
    code = np.asarray(code, np.int64)
    exponent, mantissa = (code >> 2) & 31, code & 3
    size = np.where(exponent == 0, mantissa * 2.0 ** -16, (1 + mantissa / 4) * 2.0 ** (exponent - 15))
    size = np.where(exponent == 31, np.where(mantissa == 0, np.inf, np.nan), size)
    return np.where(code & 128, -size, size).astype(f32)


def e8m0(code):
    code = np.asarray(code, np.int64)
    return np.where(code == 255, np.nan, 2.0 ** (code - 127)).astype(f32)


def bf16(code):
    return (np.asarray(code, np.uint32) << 16).view(f32)


def numbers(dtype, raw, shape):
    """Plain tensor -> f32."""
    if dtype == "BF16":
        values = bf16(np.frombuffer(raw, "<u2"))
    elif dtype in ("F8_E4M3", "F8_E5M2", "F8_E8M0"):
        values = {"F8_E4M3": e4m3, "F8_E5M2": e5m2, "F8_E8M0": e8m0}[dtype](np.frombuffer(raw, "u1"))
    else:
        values = np.frombuffer(raw, NUMPY[dtype]).astype(f32)
    return values.reshape(shape)


def nibbles(raw, shape):
    """Packed E2M1: byte k of a row holds element 2k below and 2k+1 above."""
    packed = np.frombuffer(raw, "u1").reshape(shape)
    codes = np.zeros(list(shape[:-1]) + [shape[-1] * 2], np.uint8)
    codes[..., 0::2] = packed & 15
    codes[..., 1::2] = packed >> 4
    return e2m1(codes)


# ---- container

class Tensor:
    def __init__(self, dtype, shape, raw):
        self.dtype, self.shape, self.raw = dtype, list(shape), raw
        count = 1
        for n in shape:
            count *= n
        assert len(raw) == count * SIZES[dtype], (dtype, shape, len(raw))

    def values(self):
        return numbers(self.dtype, self.raw, self.shape)


def write_file(path, tensors, rng, metadata):
    """Tensors in random order in the data and, independently, in the header."""
    names = list(tensors)
    rng.shuffle(names)
    header, data = {}, b""
    for name in names:
        t = tensors[name]
        header[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [len(data), len(data) + len(t.raw)]}
        data += t.raw
    order = list(header)
    rng.shuffle(order)
    header = {name: header[name] for name in order}
    if metadata:
        header = {"__metadata__": {"format": "pt"}, **header}
    text = json.dumps(header, ensure_ascii=bool(rng.integers(2)), indent=None if rng.integers(2) else 1).encode()
    text += b" " * int(rng.integers(0, 9))
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def read_file(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: Tensor(t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def read_checkpoint(directory):
    index = os.path.join(directory, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_file(os.path.join(directory, "model.safetensors"))
    weight_map = json.load(open(index))["weight_map"]
    files = {name: read_file(os.path.join(directory, name)) for name in set(weight_map.values())}
    return {name: files[file][name] for name, file in weight_map.items()}


# ---- reading weights: companions by name, value by the formula of the form

def spread(scale, shape, block):
    """A grid of scales repeated over blocks and cut to `shape`."""
    for axis, n in ((-2, block[0]), (-1, block[1])):
        scale = np.repeat(scale, n, axis=axis)
    return scale[..., :shape[-2], :shape[-1]]


def read_weights(tensors, block=(128, 128)):
    """{name: f32 values} of every weight; scales are consumed by the weight that they belong to."""
    out, used = {}, set()

    def get(name):
        if name in tensors:
            used.add(name)
            return tensors[name]
        return None

    for name, t in tensors.items():
        if name.endswith("_blocks"):
            base = name[:-len("_blocks")]
            scale = e8m0(np.frombuffer(get(base + "_scales").raw, "u1")).reshape(t.shape[:-1] + [1])
            out[base] = (nibbles(t.raw, t.shape) * scale).reshape(t.shape[:-2] + [t.shape[-2] * 32])
            used.add(name)
        elif name.endswith(".weight_packed") or t.dtype == "U8":
            base = name[:-len("_packed")] if name.endswith("_packed") else name
            scale = get(base + "_scale") or get(base + "_weight_scale")
            if scale is None:
                continue
            values = nibbles(t.raw, t.shape)
            if scale.dtype == "F8_E4M3":
                second, divisor = get(base + "_scale_2") or get(base + "_weight_scale_2"), get(base + "_global_scale")
                values = values * np.repeat(scale.values(), 16, axis=-1)
                g = (second or divisor).values().reshape(-1)
                rows = values.reshape(len(g), -1)
                values = ((rows * g[:, None]) if second else (rows / g[:, None])).reshape(values.shape)
            else:
                values = values * np.repeat(e8m0(np.frombuffer(scale.raw, "u1")).reshape(scale.shape), 32, axis=-1)
            out[base] = values.astype(f32)
            used.add(name)
        elif t.dtype in ("F8_E4M3", "F8_E5M2"):
            scale = get(name + "_scale_inv") or get(name + "_scale") or get(name + "_weight_scale")
            if scale is None:
                continue
            out[name] = (t.values() * fp8_scales(scale, t.shape, block)).astype(f32)
            used.add(name)
    for name, t in tensors.items():
        ignored = name.endswith(("input_scale", ".input_global_scale", ".k_scale", ".v_scale"))
        if name not in used and not ignored:
            out[name] = t.values()
    return out


def fp8_scales(scale, shape, block):
    """Scales of an FP8 tensor, broadcast to its shape."""
    lead, rows, columns = shape[:-2], shape[-2], shape[-1]
    if scale.dtype == "U8":
        s = e8m0(np.frombuffer(scale.raw, "u1")).reshape(scale.shape)
    else:
        s = scale.values()
    if s.size == 1:
        return s.reshape(())
    tail = list(s.shape[len(lead):])
    if tail in ([], [1], [1, 1]):
        return s.reshape(lead + [1, 1])
    if tail in ([rows], [rows, 1]):
        return s.reshape(lead + [rows, 1])
    if tail == [rows, columns // 32]:
        return np.repeat(s, 32, axis=-1)
    grid = [-(-rows // block[0]), -(-columns // block[1])]
    if tail in (grid, [grid[0], 1, grid[1], 1]):
        return spread(s.reshape(lead + grid), shape, block)
    assert tail in ([2], [2, 1]), (shape, scale.shape)  # gate and up of a fused stack
    return np.repeat(s.reshape(lead + [2]), rows // 2, axis=-1).reshape(lead + [rows, 1])


# ---- writing: random tensors of each form

class Maker:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tensors = {}
        self.config = {}
        self.hf_quant = None

    def bytes(self, shape, low=0, high=256):
        return self.rng.integers(low, high, int(np.prod(shape)), np.uint8).tobytes()

    def put(self, name, dtype, shape, raw=None):
        if raw is None:
            raw = self.random(dtype, shape)
        self.tensors[name] = Tensor(dtype, shape, raw)

    def random(self, dtype, shape):
        n = int(np.prod(shape)) if len(shape) else 1
        if dtype == "F32":
            # many magnitudes, a subnormal now and then
            return (self.rng.standard_normal(n) * 2.0 ** self.rng.integers(-20, 12, n)).astype("<f4").tobytes()
        if dtype == "BF16":
            return (self.rng.standard_normal(n).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        if dtype == "F16":
            return self.rng.standard_normal(n).astype("<f2").tobytes()
        if dtype == "F64":
            return self.rng.standard_normal(n).astype("<f8").tobytes()
        if dtype == "BOOL":
            return self.bytes([n], 0, 2)
        return self.bytes([n * SIZES[dtype]])

    def scales(self, dtype, shape):
        """Positive, as quantisers write them."""
        n = int(np.prod(shape)) if len(shape) else 1
        values = np.exp(self.rng.uniform(-12, 3, n)).astype("<f4")
        if dtype == "BF16":
            return (values.view("<u4") >> 16).astype("<u2").tobytes()
        if dtype == "F8_E4M3":
            return self.bytes([n], 0, 127)
        if dtype in ("U8", "F8_E8M0"):
            return self.bytes([n], 100, 150)
        return values.tobytes()

    def size(self, multiple, low=1, high=20):
        return int(self.rng.integers(low, high)) * multiple

    def common(self):
        """What every checkpoint has beside its quantised layers."""
        self.put("model.embed_tokens.weight", "BF16", [self.size(1, 3), self.size(8)])
        self.put("model.norm.weight", "BF16", [self.size(4)])
        self.put("model.layers.0.linear_attn.A_log", "F32", [4])
        self.put("model.layers.0.mlp.gate.weight", "F16", [self.size(1), self.size(8)])
        self.put("model.layers.0.self_attn.k_proj.k_scale", "F32", [], self.scales("F32", []))

    # one method a form

    def plain(self):
        for dtype in ("F32", "F16", "BF16", "F64", "F8_E5M2", "I8", "U16", "I64", "BOOL", "U8"):
            self.put(f"t.{dtype}", dtype, [self.size(1), self.size(1), 3][:int(self.rng.integers(1, 4))])
        self.put("ple.ngram_embedding.shard_0.weight", "F8_E4M3", [self.size(1), 16])
        self.put("scalar", "F32", [])
        self.put("empty", "BF16", [0, 5])
        self.put("conv1d.weight", "BF16", [self.size(4), 1, 4])
        self.put("näme \u4e2d \U0001f600 \"quoted\" back\\slash", "F32", [2])

    def fp8_block(self):
        self.config = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
        for i, dtype in enumerate(("F32", "BF16", "F8_E8M0")):
            out, columns = int(self.rng.integers(1, 400)), int(self.rng.integers(1, 400))
            grid = [-(-out // 128), -(-columns // 128)]
            name = f"model.layers.{i}.self_attn.q_proj.weight"
            self.put(name, "F8_E4M3", [out, columns])
            self.put(name + "_scale_inv", dtype, grid, self.scales(dtype, grid))
        for name, suffix in (("mlp.experts.gate_up_proj", "_scale_inv"), ("mlp.experts.down_proj", "_weight_scale")):
            shape = [3, int(self.rng.integers(100, 300)), int(self.rng.integers(100, 300))]
            grid = [3, -(-shape[1] // 128), -(-shape[2] // 128)]
            self.put(name, "F8_E4M3", shape)
            self.put(name + suffix, "F32", grid, self.scales("F32", grid))
        self.put("mtp.layers.0.mlp.experts.0.up_proj.weight", "F8_E4M3", [260, 130])
        self.put("mtp.layers.0.mlp.experts.0.up_proj.weight_scale", "F32", [3, 1, 2, 1], self.scales("F32", [3, 1, 2, 1]))

    def fp8_small_block(self):
        self.config = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "block_structure": [32, 48]}}}}
        out, columns = int(self.rng.integers(60, 200)), int(self.rng.integers(60, 200))
        grid = [-(-out // 32), -(-columns // 48)]
        self.put("a.weight", "F8_E4M3", [out, columns])
        self.put("a.weight_scale", "BF16", grid, self.scales("BF16", grid))

    def fp8_channel(self):
        self.config = {"quant_method": "compressed-tensors", "format": "float-quantized"}
        for i, tail in enumerate(([], [1])):
            out, columns = self.size(1, 2), self.size(1, 2)
            self.put(f"l.{i}.weight", "F8_E4M3", [out, columns])
            self.put(f"l.{i}.weight_scale", "F32", [out] + tail, self.scales("F32", [out]))
        self.put("experts.gate_up_proj", "F8_E4M3", [4, 6, 8])
        self.put("experts.gate_up_proj_scale", "BF16", [4, 6, 1], self.scales("BF16", [4, 6]))

    def fp8_tensor(self):
        self.hf_quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
        for i, shape in enumerate(([], [1], [1, 1])):
            self.put(f"l.{i}.weight", "F8_E5M2" if i == 1 else "F8_E4M3", [self.size(1), self.size(1)])
            self.put(f"l.{i}.weight_scale", "F32", shape, self.scales("F32", shape))
            self.put(f"l.{i}.input_scale", "F32", [], self.scales("F32", []))
        for i, shape in enumerate(([3], [3, 1, 1], [3, 2], [3, 2, 1])):
            self.put(f"m.{i}.experts.gate_up_proj", "F8_E4M3", [3, 10, 7])
            self.put(f"m.{i}.experts.gate_up_proj_scale_inv", "F32", shape, self.scales("F32", shape))

    def nvfp4_modelopt(self):
        self.config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
        self.hf_quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
        for e in range(3):
            for part in ("gate_proj", "up_proj", "down_proj"):
                out, columns = self.size(1), self.size(16)
                name = f"model.layers.0.mlp.experts.{e}.{part}"
                shape = [] if self.rng.integers(2) else [1]
                self.put(name + ".weight", "U8", [out, columns // 2])
                self.put(name + ".weight_scale", "F8_E4M3", [out, columns // 16], self.scales("F8_E4M3", [out, columns // 16]))
                self.put(name + ".weight_scale_2", "F32", shape, self.scales("F32", shape))
                self.put(name + ".input_scale", "F32", [], self.scales("F32", []))
        for i, shape in enumerate(([4], [], [4, 2, 1], [4, 1, 1])):
            name = f"model.layers.{i + 1}.moe.experts.gate_up_proj"
            self.put(name, "U8", [4, 6, 24])
            self.put(name + "_weight_scale", "F8_E4M3", [4, 6, 3], self.scales("F8_E4M3", [72]))
            self.put(name + "_weight_scale_2", "F32", shape, self.scales("F32", shape))
            self.put(name + "_input_scale", "F32", [4], self.scales("F32", [4]))

    def nvfp4_compressed(self):
        self.config = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
        for i in range(6):
            out, columns = self.size(1), self.size(16)
            name = f"model.layers.{i}.self_attn.q_proj"
            self.put(name + ".weight_packed", "U8", [out, columns // 2])
            self.put(name + ".weight_scale", "F8_E4M3", [out, columns // 16], self.scales("F8_E4M3", [out, columns // 16]))
            self.put(name + ".weight_global_scale", "F32", [1], self.scales("F32", [1]))
            if i % 2:
                self.put(name + ".input_global_scale", "F32", [1], self.scales("F32", [1]))
            self.put(name + ".bias", "BF16", [out])

    def mxfp4(self):
        self.config = {"quant_method": "mxfp4"}
        experts, out, groups = 3, self.size(2), self.size(1, 1, 5)
        for part in ("gate_up_proj", "down_proj"):
            name = f"model.layers.0.mlp.experts.{part}"
            self.put(name + "_blocks", "U8", [experts, out, groups, 16])
            self.put(name + "_scales", "U8", [experts, out, groups], self.scales("U8", [experts, out, groups]))
            self.put(name + "_bias", "BF16", [experts, out])
        for name, dtype in (("a.weight", "U8"), ("b.weight", "F8_E8M0"), ("c.weight_packed", "U8")):
            out, columns = self.size(1), self.size(32, 1, 6)
            self.put(name, "U8", [out, columns // 2])
            # every scale but NaN: the smallest are subnormals of f32, the largest overflow
            raw = self.bytes([out * columns // 32], 0, 255)
            self.put(name.replace("_packed", "") + "_scale", dtype, [out, columns // 32], raw)

    def mxfp8(self):
        self.hf_quant = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MXFP8"}}
        for name, dtype in (("a.weight", "U8"), ("b.weight", "F8_E8M0")):
            out, columns = self.size(1, 2), self.size(32, 1, 6)
            self.put(name, "F8_E4M3", [out, columns])
            self.put(name + "_scale", dtype, [out, columns // 32], self.scales(dtype, [out, columns // 32]))

    def mixed(self):
        """One checkpoint with several forms, as published ones have (NVFP4 experts, FP8 draft layer, BF16 rest)."""
        for form in (self.plain, self.fp8_block, self.fp8_tensor, self.mxfp4, self.nvfp4_modelopt):
            form()
        self.config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "weight_block_size": None}


FORMS = ["plain", "fp8_block", "fp8_small_block", "fp8_channel", "fp8_tensor", "nvfp4_modelopt", "nvfp4_compressed",
         "mxfp4", "mxfp8", "mixed"]


def block_size(config):
    if config.get("weight_block_size"):
        return tuple(config["weight_block_size"])
    for group in config.get("config_groups", {}).values():
        if "block_structure" in group.get("weights", {}):
            return tuple(group["weights"]["block_structure"])
    return (128, 128)


def save_values(values, directory, only=""):
    listing, at = [], 0
    with open(os.path.join(directory, "expected.f32"), "wb") as out:
        for name in sorted(values):
            if only in name:
                raw = np.ascontiguousarray(values[name], "<f4").tobytes()
                listing.append({"name": name, "shape": list(values[name].shape), "offset": at})
                out.write(raw)
                at += len(raw)
    with open(os.path.join(directory, "expected.json"), "w") as out:
        json.dump(listing, out)


def make(form, seed, directory):
    maker = Maker([seed, FORMS.index(form)])
    maker.common()
    getattr(maker, form)()
    rng, tensors = maker.rng, maker.tensors
    os.makedirs(directory, exist_ok=True)
    shards = int(rng.integers(1, 4))
    if shards == 1 and rng.integers(2):
        write_file(os.path.join(directory, "model.safetensors"), tensors, rng, rng.integers(2))
    else:
        place = {name: int(rng.integers(shards)) for name in tensors}
        files = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
        for i, file in enumerate(files):
            held = {name: t for name, t in tensors.items() if place[name] == i}
            # a tensor that the index does not know, or knows elsewhere
            held["left.over"] = Tensor("F32", [1], b"\0\0\0\0")
            if shards > 1:
                held.setdefault("model.norm.weight", Tensor("F32", [], b"\0\0\0\0"))
            write_file(os.path.join(directory, file), held, rng, rng.integers(2))
        names = list(tensors)
        rng.shuffle(names)
        index = {"metadata": {"total_size": 1.5e3}, "weight_map": {name: files[place[name]] for name in names}}
        with open(os.path.join(directory, "model.safetensors.index.json"), "w") as out:
            json.dump(index, out, indent=2)
    with open(os.path.join(directory, "config.json"), "w") as out:
        config = {"model_type": "test"}
        if maker.config:
            config["quantization_config"] = maker.config
        json.dump(config, out)
    if maker.hf_quant:
        with open(os.path.join(directory, "hf_quant_config.json"), "w") as out:
            json.dump(maker.hf_quant, out)
    save_values(read_weights(tensors, block_size(maker.config)), directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("make")
    one.add_argument("--form", choices=FORMS, required=True)
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--out", required=True)
    two = commands.add_parser("decode")
    two.add_argument("directory")
    two.add_argument("--out", required=True)
    two.add_argument("--only", default="")
    commands.add_parser("forms")
    options = parser.parse_args()
    np.seterr(over="ignore", invalid="ignore", under="ignore")
    if options.command == "make":
        make(options.form, options.seed, options.out)
    elif options.command == "decode":
        config = os.path.join(options.directory, "config.json")
        quant = json.load(open(config)).get("quantization_config", {}) if os.path.exists(config) else {}
        os.makedirs(options.out, exist_ok=True)
        save_values(read_weights(read_checkpoint(options.directory), block_size(quant)), options.out, options.only)
    else:
        print("\n".join(FORMS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
