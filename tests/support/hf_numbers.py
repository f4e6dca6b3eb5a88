"""Small floats, and safetensors files, for hf_checkpoint.py: slow, in plain Python, from the published formats alone.

Values are computed in double from exact codes and rounded once to f32. A product of a code (at most 6 significant bits)
and an f32 scale, and a sum of an f32 and 1, are then the f32 operations with their one rounding.
"""
import array
import json
import math
import os
import struct

SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1,
         "U8": 1, "I8": 1, "BOOL": 1}


def product(shape):
    count = 1
    for n in shape:
        count *= n
    return count


def ceil_div(a, b):
    return -(-a // b)


def f32(x):
    """The nearest f32."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def floats(values):
    return array.array("f", values)


def e2m1(code):
    """FP4. Code 8, minus zero, reads as plus zero, as it does in ggml's types."""
    exponent, mantissa = (code >> 1) & 3, code & 1
    size = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return -size if code & 8 and size else size


def e4m3(code):
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    size = mantissa * 2.0 ** -9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if code & 128 else size


E2M1 = [e2m1(code) for code in range(16)]
E4M3 = [e4m3(code) for code in range(256)]


class Tensor:
    """As it lies in a file."""

    def __init__(self, dtype, shape, raw):
        self.dtype, self.shape, self.raw = dtype, list(shape), bytes(raw)
        if len(self.raw) != product(shape) * SIZES[dtype]:
            raise ValueError(f"{dtype} {shape} has {len(raw)} bytes")

    def numbers(self):
        """Plain values as f32; integers as Python integers."""
        n = product(self.shape)
        if self.dtype == "F32":
            return floats(struct.unpack(f"<{n}f", self.raw))
        if self.dtype == "F16":
            return floats(struct.unpack(f"<{n}e", self.raw))
        if self.dtype == "BF16":
            return floats(struct.unpack(f"<{n}f", b"".join(b"\0\0" + self.raw[2 * i:2 * i + 2] for i in range(n))))
        if self.dtype == "F8_E4M3":
            return floats(E4M3[code] for code in self.raw)
        if self.dtype == "I64":
            return list(struct.unpack(f"<{n}q", self.raw))
        raise ValueError(f"no numbers of {self.dtype}")


def plain_tensor(dtype, shape, values):
    """Tensor of `values` in a plain type; BF16 cuts the low half of the f32 off."""
    if dtype == "F32":
        raw = struct.pack(f"<{len(values)}f", *values)
    elif dtype == "F16":
        raw = struct.pack(f"<{len(values)}e", *values)
    elif dtype == "BF16":
        words = struct.unpack(f"<{2 * len(values)}H", struct.pack(f"<{len(values)}f", *values))
        raw = struct.pack(f"<{len(values)}H", *words[1::2])
    elif dtype == "I64":
        raw = struct.pack(f"<{len(values)}q", *values)
    else:
        raise ValueError(dtype)
    return Tensor(dtype, shape, raw)


def write_safetensors(path, tensors, rng):
    """Data in random order, and the header in another."""
    names = list(tensors)
    rng.shuffle(names)
    entries, data = [], bytearray()
    for name in names:
        tensor = tensors[name]
        offsets = [len(data), len(data) + len(tensor.raw)]
        entries.append((name, {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}))
        data += tensor.raw
    rng.shuffle(entries)
    header = dict(entries)
    if rng.random() < 0.5:
        header = {"__metadata__": {"format": "pt"}, **header}
    text = json.dumps(header, separators=(",", ":") if rng.random() < 0.5 else None).encode()
    text += b" " * rng.randrange(9)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        blob = file.read()
    (length,) = struct.unpack_from("<Q", blob)
    header, data = json.loads(blob[8:8 + length]), blob[8 + length:]
    header.pop("__metadata__", None)
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, next_end = entry["data_offsets"]
        if begin != end:
            raise ValueError(f"{path}: {name} begins at {begin}, not at {end}")
        end = next_end
        tensors[name] = Tensor(entry["dtype"], entry["shape"], data[begin:end])
    if end != len(data):
        raise ValueError(f"{path}: {len(data) - end} bytes behind the last tensor")
    return tensors


def read_checkpoint(directory):
    """All tensors of a directory by name; an index, where there is one, must agree with the files."""
    index_path = os.path.join(directory, "model.safetensors.index.json")
    if not os.path.exists(index_path):
        return read_safetensors(os.path.join(directory, "model.safetensors"))
    with open(index_path, encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    tensors = {}
    for shard in sorted(set(weight_map.values())):
        for name, tensor in read_safetensors(os.path.join(directory, shard)).items():
            if weight_map.get(name) != shard or name in tensors:
                raise ValueError(f"{directory}: the index does not put {name} into {shard}")
            tensors[name] = tensor
    if set(tensors) != set(weight_map):
        raise ValueError(f"{directory}: the index names tensors that no shard has")
    return tensors


class Weights:
    """The weights of a checkpoint as numbers, whatever scheme stores them."""

    def __init__(self, tensors):
        self.tensors = tensors

    def has(self, name):
        """name: "X.weight", or a stack's name without suffix."""
        packed = name[:-len("weight")] + "weight_packed" if name.endswith(".weight") else name + "_blocks"
        return name in self.tensors or packed in self.tensors

    def __call__(self, name):
        """(shape, f32 values) of "X.weight" or of a stack."""
        tensors = self.tensors
        if name + "_blocks" in tensors:
            return self._mxfp4(tensors[name + "_blocks"], tensors[name + "_scales"])
        base = name[:-len(".weight")] if name.endswith(".weight") else None
        if base is not None and base + ".weight_packed" in tensors:
            divisor = tensors[base + ".weight_global_scale"].numbers()[0]
            return self._nvfp4(tensors[base + ".weight_packed"], tensors[base + ".weight_scale"], f32(1.0 / divisor))
        weight = tensors[name]
        if base is not None and weight.dtype == "U8":
            factor = tensors[base + ".weight_scale_2"].numbers()[0]
            return self._nvfp4(weight, tensors[base + ".weight_scale"], factor)
        if weight.dtype == "F8_E4M3":
            for scale in [name + "_scale_inv", name + "_scale"]:
                if scale in tensors:
                    return self._fp8(weight, tensors[scale])
        return weight.shape, weight.numbers()

    @staticmethod
    def _nvfp4(packed, scales, factor):
        out, columns = packed.shape[0], packed.shape[1] * 2
        if scales.shape != [out, columns // 16]:
            raise ValueError(f"NVFP4 scales {scales.shape} of {out} x {columns}")
        scale = scales.numbers()
        values = floats([])
        for k, byte in enumerate(packed.raw):  # 8 bytes a block of 16
            block = scale[k >> 3]
            values.append(E2M1[byte & 15] * block * factor)
            values.append(E2M1[byte >> 4] * block * factor)
        return [out, columns], values

    @staticmethod
    def _mxfp4(blocks, scales):
        shape = blocks.shape[:-2] + [blocks.shape[-2] * 32]
        values = floats([])
        for b, exponent in enumerate(scales.raw):
            scale = 2.0 ** (exponent - 127)
            for byte in blocks.raw[16 * b:16 * b + 16]:
                values.append(E2M1[byte & 15] * scale)
                values.append(E2M1[byte >> 4] * scale)
        return shape, values

    @staticmethod
    def _fp8(weight, scales):
        """One scale in all, one a row ([out] or [out, 1]), or one for each 128 x 128 ([.., r, c] or [r, 1, c, 1])."""
        rows, columns = weight.shape[-2], weight.shape[-1]
        stack = product(weight.shape[:-2])
        scale, tall, wide = scales.numbers(), ceil_div(rows, 128), ceil_div(columns, 128)
        if len(scale) == 1:
            stride, tall_block, wide_block = 0, rows, columns
        elif scales.shape in ([rows], [rows, 1]):
            stride, tall_block, wide_block = 1, 1, columns
        elif len(scale) == stack * tall * wide:
            stride, tall_block, wide_block = wide, 128, 128
        else:
            raise ValueError(f"FP8 scales {scales.shape} of {weight.shape}")
        values, k = floats([]), 0
        for matrix in range(stack):
            for row in range(rows):
                first = (matrix * tall + row // tall_block) * stride
                for column in range(columns):
                    values.append(E4M3[weight.raw[k]] * scale[first + column // wide_block])
                    k += 1
        return weight.shape, values
