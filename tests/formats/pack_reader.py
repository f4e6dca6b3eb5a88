#!/usr/bin/env python3
"""A second reader of packs, written from docs/pack_format.md alone: proves every number of a pack and gives back the source.

Usage: pack_reader.py PACK [--restore DIR]. Prints what it proved; any disagreement is an exception and exit code 1.
Python's standard library, libxxhash and libzstd are all it needs.
"""
import argparse
import ctypes
import hashlib
import json
import os
import struct

PAGE = 4096
SEAL_TAIL = b'"\n}\n'
NUMBERS = {"F8_E4M3": 1, "F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I8": 1, "I16": 2, "I32": 4, "I64": 8}  # bytes
# type: elements of a block, and its fields with their bytes in order
BLOCKS = {
    "Q4_0": (32, {"d": 2, "qs": 16}),
    "Q4_1": (32, {"d": 2, "m": 2, "qs": 16}),
    "Q5_0": (32, {"d": 2, "qh": 4, "qs": 16}),
    "Q5_1": (32, {"d": 2, "m": 2, "qh": 4, "qs": 16}),
    "Q8_0": (32, {"d": 2, "qs": 32}),
    "Q8_1": (32, {"d": 2, "s": 2, "qs": 32}),
    "IQ4_NL": (32, {"d": 2, "qs": 16}),
    "MXFP4": (32, {"e": 1, "qs": 16}),
    "NVFP4": (64, {"d": 4, "qs": 32}),
    "Q2_0": (64, {"d": 2, "qs": 16}),
    "Q1_0": (128, {"d": 2, "qs": 16}),
    "Q2_K": (256, {"scales": 16, "qs": 64, "d": 2, "dmin": 2}),
    "Q3_K": (256, {"hmask": 32, "qs": 64, "scales": 12, "d": 2}),
    "Q4_K": (256, {"d": 2, "dmin": 2, "scales": 12, "qs": 128}),
    "Q5_K": (256, {"d": 2, "dmin": 2, "scales": 12, "qh": 32, "qs": 128}),
    "Q6_K": (256, {"ql": 128, "qh": 64, "scales": 16, "d": 2}),
    "Q8_K": (256, {"d": 4, "qs": 256, "bsums": 32}),
    "IQ1_S": (256, {"d": 2, "qs": 32, "qh": 16}),
    "IQ1_M": (256, {"qs": 32, "qh": 16, "scales": 8}),
    "IQ2_XXS": (256, {"d": 2, "qs": 64}),
    "IQ2_XS": (256, {"d": 2, "qs": 64, "scales": 8}),
    "IQ2_S": (256, {"d": 2, "qs": 32, "signs": 32, "qh": 8, "scales": 8}),
    "IQ3_XXS": (256, {"d": 2, "qs": 64, "scales_and_signs": 32}),
    "IQ3_S": (256, {"d": 2, "qs": 64, "qh": 8, "signs": 32, "scales": 4}),
    "IQ4_XS": (256, {"d": 2, "scales_h": 2, "scales_l": 4, "qs": 128}),
    "TQ1_0": (256, {"qs": 48, "qh": 4, "d": 2}),
    "TQ2_0": (256, {"qs": 64, "d": 2}),
}
GROUP_ROWS = 16
GROUP_BYTES_MAX = 16 << 20
METADATA_MAX = 1 << 30
VALUES, NVFP4_CODES, NVFP4_SCALES, MXFP4_CODES, MXFP4_SCALES = range(5)
FIELD_COLUMNS = {VALUES: 1, NVFP4_CODES: 16, NVFP4_SCALES: 16, MXFP4_CODES: 32, MXFP4_SCALES: 32}
FIELD_TYPE = {NVFP4_CODES: "NVFP4", NVFP4_SCALES: "NVFP4", MXFP4_CODES: "MXFP4", MXFP4_SCALES: "MXFP4"}
LOW = bytes(b & 15 for b in range(256))
HIGH = bytes(b >> 4 for b in range(256))
UP = bytes((b & 15) << 4 for b in range(256))


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_128bits_withSeed.restype = Xxh128
_xxhash.XXH3_128bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def xxh3(data, seed=0):
    value = _xxhash.XXH3_128bits_withSeed(bytes(data), len(data), seed)
    return value.low, value.high


_zstd = ctypes.CDLL("libzstd.so.1")
_zstd.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
_zstd.ZSTD_getFrameContentSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_zstd.ZSTD_findFrameCompressedSize.restype = ctypes.c_size_t
_zstd.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_zstd.ZSTD_decompress.restype = ctypes.c_size_t
_zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def unzstd(frame):
    """The content of one whole zstd frame."""
    size = _zstd.ZSTD_getFrameContentSize(frame, len(frame))
    need(size <= METADATA_MAX, "a zstd frame without a size, or too large")
    need(_zstd.ZSTD_findFrameCompressedSize(frame, len(frame)) == len(frame), "not one zstd frame")
    out = ctypes.create_string_buffer(max(size, 1))
    need(_zstd.ZSTD_decompress(out, size, frame, len(frame)) == size, "a damaged zstd frame")
    return out.raw[:size]


def need(condition, message):
    if not condition:
        raise ValueError(message)


def align(n, to):
    return (n + to - 1) // to * to


def block_of(kind):
    """(elements, bytes) of a block."""
    if kind in NUMBERS:
        return 1, NUMBERS[kind]
    elements, fields = BLOCKS[kind]
    return elements, sum(fields.values())


def unit_of(size):
    """Bytes of the units that a field of `size` bytes is cut into."""
    return 4 if size % 4 == 0 else size


def whole_blocks(kind, columns):
    """Elements of a row as it is stored: rows of NVFP4 may end inside a block, after whole sixteens, and are filled up."""
    elements = block_of(kind)[0]
    need(columns % (16 if kind == "NVFP4" else elements) == 0, "blocks are not whole")
    return align(columns, elements)


def row_order(kind, columns, rows, data):
    """The rows of one matrix, one after the other, from its bytes in dense.bin or experts.bin."""
    if kind in NUMBERS or rows < GROUP_ROWS:
        return data
    elements, block = block_of(kind)
    stride = whole_blocks(kind, columns) // elements * block
    need(GROUP_ROWS * stride <= GROUP_BYTES_MAX, "a row group is too large")
    out = bytearray(data)  # the rows behind the last group are where they were
    places = []  # of byte i of a block of row 0 in its column, and the distance to the same byte of the next row
    for size in BLOCKS[kind][1].values():
        unit = unit_of(size)
        start = GROUP_ROWS * len(places)
        places += [(start + i // unit * unit * GROUP_ROWS + i % unit, unit) for i in range(size)]
    for first in range(0, rows - rows % GROUP_ROWS, GROUP_ROWS):
        group, end = first * stride, (first + GROUP_ROWS) * stride
        for row in range(GROUP_ROWS):
            begin = group + row * stride
            for i, (place, step) in enumerate(places):
                # Byte i of every block of the row at once.
                out[begin + i: begin + stride: block] = data[group + place + row * step: end: GROUP_ROWS * block]
    return bytes(out)


def tensor_bytes(kind, shape):
    elements, size = block_of(kind)
    count = whole_blocks(kind, shape[0] if shape else 1) // elements
    for dimension in shape[1:]:
        count *= dimension
    return count * size


def plane(field, kind, data):
    """What a field takes from the rows of a tensor, in the order of its columns, and (bytes of an item, columns of an item); codes
    have a byte each."""
    if field == VALUES:
        need(kind in NUMBERS, "values of " + kind)
        return data, NUMBERS[kind], 1
    need(FIELD_TYPE[field] == kind, "a field of another type")
    elements, block = block_of(kind)
    blocks = len(data) // block
    if field == MXFP4_SCALES:
        return data[0::17], 1, 32
    if field == NVFP4_SCALES:
        out = bytearray(4 * blocks)
        for s in range(4):
            out[s::4] = data[s::36]
        return bytes(out), 1, 16
    out = bytearray(elements * blocks)
    if field == NVFP4_CODES:
        for s in range(4):
            for j in range(8):
                pairs = data[4 + 8 * s + j::36]
                out[16 * s + j::64] = pairs.translate(LOW)
                out[16 * s + j + 8::64] = pairs.translate(HIGH)
    else:
        for j in range(16):
            pairs = data[1 + j::17]
            out[j::32] = pairs.translate(LOW)
            out[j + 16::32] = pairs.translate(HIGH)
    return bytes(out), 1, 1


def pack_nibbles(codes):
    """Element 2k in the low nibble of byte k, 2k + 1 in the high one."""
    even, odd = codes[0::2], codes[1::2].translate(UP)
    return (int.from_bytes(even, "little") | int.from_bytes(odd, "little")).to_bytes(len(even), "little")


class PackReader:
    def __init__(self, path):
        self.path = path
        text = self.file("pack.json")
        need(text.endswith(SEAL_TAIL), "pack.json does not end in its seal")
        body, digest = text[: -len(SEAL_TAIL) - 64], text[-len(SEAL_TAIL) - 64: -len(SEAL_TAIL)].decode()
        need(body.endswith(b'"sha256": "'), "pack.json has no seal")
        need(hashlib.sha256(body).hexdigest() == digest, "pack.json does not match its seal")
        self.json = json.loads(text)
        need(self.json["format"] == "tierpack-pack" and self.json["version"] == 1, "another format")
        need(self.json["row_group_rows"] == GROUP_ROWS, "another layout of quantised matrices")
        self.files = {item["name"]: item for item in self.json["files"]}
        self.content = {}
        for name, item in self.files.items():
            data = self.file(name)
            need(len(data) == item["bytes"], name + ": size")
            need(hashlib.sha256(data).hexdigest() == item["sha256"], name + ": SHA-256")
            self.content[name] = data
        head = unzstd(self.content["metadata.gguf.zst"])
        need(struct.unpack_from("<4sIQ", head) == (b"GGUF", 3, 0), "metadata.gguf.zst")
        self.read_records()
        self.read_tensors()
        self.number_tensors()
        self.read_sources()
        need(self.json["reversible"] == (not self.json["transcoded"]), "reversible")

    def file(self, name):
        with open(os.path.join(self.path, name), "rb") as file:
            return file.read()

    def read_records(self):
        data = self.content["records.bin"]
        magic, version, zero, count = struct.unpack_from("<8sIIQ", data)
        need((magic, version, zero) == (b"TPRECORD", 1, 0) and len(data) == 24 + 48 * count, "records.bin")
        self.records = []
        for i in range(count):
            offset, size, segment, zero, low, high, zero2 = struct.unpack_from("<QQIIQQQ", data, 24 + 48 * i)
            need(zero == 0 and zero2 == 0 and offset % PAGE == 0 and segment in (0, 1), f"record {i}")
            record = self.content[("dense.bin", "experts.bin")[segment]][offset: offset + size]
            need(len(record) == size and xxh3(record) == (low, high), f"record {i}: checksum")
            self.records.append((segment, offset, record))
        for segment, name in enumerate(("dense.bin", "experts.bin")):
            at = 0
            for _, offset, record in sorted((r for r in self.records if r[0] == segment), key=lambda r: r[1]):
                need(offset == at, name + ": a gap or an overlap")
                at = align(offset + len(record), PAGE)
                need(not any(self.content[name][offset + len(record): at]), name + ": padding")
            need(at == len(self.content[name]), name + ": size")

    def read_tensors(self):
        """name -> bytes as published."""
        self.tensors = {}
        for item in self.json["dense"]:
            record = self.records[item["record"]][2]
            need(len(record) == tensor_bytes(item["type"], item["shape"]), item["name"])
            columns, rows = (item["shape"] + [1, 1])[:2]
            matrix = tensor_bytes(item["type"], [columns, rows])
            self.tensors[item["name"]] = b"".join(row_order(item["type"], columns, rows, record[at: at + matrix])
                                                  for at in range(0, len(record), matrix))
        for layer in self.json["experts"]:
            parts = [layer[key] for key in ("gate", "up", "down")]
            at = 0
            for part in parts:
                at = align(at, 64)
                size = tensor_bytes(part["type"], [part["in"], part["out"]])
                need((part["offset"], part["bytes"]) == (at, size), part["tensor"])
                at += size
            for part in parts:
                scales = part.get("scales")
                if scales is None:
                    continue
                at = align(at, 64)
                need(scales["offset"] == at, part["tensor"] + ": scales")
                shape = (scales["rows"], scales["columns"])
                blocks = (align(part["out"], 128) // 128, align(part["in"], 128) // 128)
                need(shape == (1, 1) or part["type"] == "F8_E4M3" and shape in ((part["out"], 1), blocks), part["tensor"] + ": scales")
                at += 4 * shape[0] * shape[1]
            need(layer["record_bytes"] == at, "record_bytes")
            stacks = {part["tensor"]: [] for part in parts}
            for expert in range(layer["experts"]):
                record = self.records[layer["first_record"] + expert][2]
                need(len(record) == at, "an expert's record")
                for part in parts:
                    matrix = record[part["offset"]: part["offset"] + part["bytes"]]
                    stacks[part["tensor"]].append(row_order(part["type"], part["in"], part["out"], matrix))
            for name, pieces in stacks.items():
                self.tensors[name] = b"".join(pieces)
        page = 0
        for table in self.json["rows"]:
            need(table["first_page"] == page, table["name"])
            self.tensors[table["name"]] = self.read_rows(table)
            page += table["pages"]

    def read_rows(self, table):
        size = tensor_bytes(table["type"], table["shape"][:1])
        rows = table["shape"][1] if len(table["shape"]) > 1 else 1
        per_page = (PAGE - 16) // size
        pages_per_row = 1 if per_page else align(size + 16, PAGE) // PAGE
        need((table["row_bytes"], table["rows_per_page"], table["pages_per_row"]) == (size, per_page, pages_per_row), "rows")
        per_unit = per_page or 1
        units = -(-rows // per_unit)
        need(table["pages"] == units * pages_per_row, "pages")
        out = []
        for unit in range(units):
            page = table["first_page"] + unit * pages_per_row
            data = self.content["rows.bin"][page * PAGE: (page + pages_per_row) * PAGE]
            need(xxh3(data[:-16], page) == struct.unpack("<QQ", data[-16:]), f"page {page}")
            used = min(per_unit, rows - unit * per_unit) * size
            need(not any(data[used:-16]), f"page {page}: padding")
            out.append(data[:used])
        return b"".join(out)

    def number_tensors(self):
        """(name, type, columns) by number; None for up of a merged stack."""
        first = lambda shape: shape[0] if shape else 1
        self.numbers = [(item["name"], item["type"], first(item["shape"])) for item in self.json["dense"] + self.json["rows"]]
        self.merged = set()
        for layer in self.json["experts"]:
            gate, up, down = (layer[key] for key in ("gate", "up", "down"))
            merged = gate["tensor"] == up["tensor"]
            if merged:
                self.merged.add(gate["tensor"])
            for part in (gate, None if merged else up, down):
                self.numbers.append(part and (part["tensor"], part["type"], part["in"]))

    def read_sources(self):
        data = self.content["sources.bin"]
        magic, version, zero, count = struct.unpack_from("<8sIIQ", data)
        need((magic, version, zero) == (b"TPSOURCE", 1, 0) and len(data) == 24 + 96 * count, "sources.bin")
        need(count == sum(shard["pieces"] for shard in self.json["sources"]), "sources.bin: pieces")
        self.pieces = list(struct.iter_unpack("<IIQQIIQQQQQIIIIQ", data[24:]))
        self.used = [0] * len(self.numbers)
        self.planes = {}

    def source_bytes(self, number):
        """Bytes that the source has of a tensor: all but what fills up its rows."""
        name, kind, columns = self.numbers[number]
        stored = whole_blocks(kind, columns)
        return len(self.tensors[name]) if stored == columns else len(self.tensors[name]) // (stored // 64 * 36) * (columns // 16 * 9)

    def use(self, number, size):
        name, kind, columns = self.numbers[number]
        self.used[number] += size
        need(self.used[number] <= self.source_bytes(number), name + " is used twice")
        return name, kind, columns

    def plane_of(self, number, field):
        if (number, field) not in self.planes:
            name, kind, columns = self.numbers[number]
            need(name not in self.merged, "rows of a merged stack")
            self.planes[number, field] = plane(field, kind, self.tensors[name]) + (whole_blocks(kind, columns),)
        return self.planes[number, field]

    def rows_piece(self, piece):
        _, field, size, _, tensor, other, first_row, other_first_row, rows, first, columns, groups, per_group, block, flags, _ = piece
        alternate, transposed = flags & 1, flags & 2
        data, item, of_columns, width = self.plane_of(tensor, field)
        need(columns > 0 and columns % FIELD_COLUMNS[field] == 0 and first % FIELD_COLUMNS[field] == 0, "columns of a piece")
        out = []
        if transposed:
            need(field == VALUES and not alternate and not groups and first + rows <= width, "a transposed piece")
            self.use(tensor, size)
            for i in range(rows):
                begin = (first_row * width + first + i) * item
                out += [data[begin + j * width * item: begin + j * width * item + item] for j in range(columns)]
        else:
            need(first + columns <= self.numbers[tensor][2], "columns of a piece")
            need(groups == 0 or groups * per_group * block == columns and block % FIELD_COLUMNS[field] == 0, "tiles of a piece")
            self.use(tensor, size >> alternate)
            ways = [(data, first_row)]
            if alternate:
                need(self.numbers[other][1:] == self.numbers[tensor][1:] and rows % 2 == 0, "alternate rows")
                self.use(other, size // 2)
                ways.append((self.plane_of(other, field)[0], other_first_row))
            in_bytes = lambda n: n // of_columns * item
            for i in range(rows):
                source, row = ways[i % len(ways)]
                begin = in_bytes((row + i // len(ways)) * width + first)
                line = source[begin: begin + in_bytes(columns)]
                if groups:
                    cells = [line[at: at + in_bytes(block)] for at in range(0, len(line), in_bytes(block))]
                    line = b"".join(cells[j * groups + g] for g in range(groups) for j in range(per_group))
                out.append(line)
        data = b"".join(out)
        return pack_nibbles(data) if field in (NVFP4_CODES, MXFP4_CODES) else data

    def shards(self):
        """(file name, bytes) of every source shard, proved; none of a pack that does not give its source back."""
        if not self.json["reversible"]:
            need(not self.pieces and not self.content["source.bin"], "pieces of a source that is not given back")
            return
        pieces = iter(self.pieces)
        source_at = 0
        for shard in self.json["sources"]:
            out = []
            for _ in range(shard["pieces"]):
                piece = next(pieces)
                kind, field, size, offset, tensor = piece[:5]
                need(kind == 3 or not any(piece[5:]) and field == 0, shard["path"] + ": fields that a piece does not have")
                need(kind == 1 or offset == 0, shard["path"] + ": offset")
                need(piece[14] < 4 and piece[15] == 0, shard["path"] + ": flags")
                if kind == 0:
                    out.append(bytes(size))
                elif kind == 1:
                    need(offset == source_at, shard["path"] + ": source.bin is not used in order")
                    source_at += size
                    out.append(self.content["source.bin"][offset: offset + size])
                elif kind == 2:
                    name, kind_of, columns = self.use(tensor, size)
                    need(whole_blocks(kind_of, columns) == columns, name + ": filled up")
                    out.append(self.tensors[name])
                else:
                    need(kind == 3, shard["path"] + ": unknown piece")
                    out.append(self.rows_piece(piece))
                need(size > 0 and len(out[-1]) == size, shard["path"] + ": a piece")
            data = b"".join(out)
            need(len(data) == shard["bytes"] and hashlib.sha256(data).hexdigest() == shard["sha256"], shard["path"])
            yield shard["path"], data
        need(source_at == len(self.content["source.bin"]), "source.bin: size")
        for i, (number, used) in enumerate(zip(self.numbers, self.used)):
            computed = number and used == 0 and number[1] == "F32"
            need(not number or computed or used == self.source_bytes(i), "a tensor is not whole in the pieces")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pack")
    parser.add_argument("--restore", help="directory for the shards")
    args = parser.parse_args()
    reader = PackReader(args.pack)
    pages = sum(table["pages"] for table in reader.json["rows"])
    print(f"{len(reader.files)} files, {len(reader.records)} records, {pages} pages, {len(reader.tensors)} tensors")
    for path, data in reader.shards():
        print(f"{hashlib.sha256(data).hexdigest()}  {path}")
        if args.restore:
            os.makedirs(args.restore, exist_ok=True)
            with open(os.path.join(args.restore, path), "wb") as file:
                file.write(data)


if __name__ == "__main__":
    main()
