"""Reads the metadata of a GGUF file, independently of the program under test."""
import struct


def read_metadata(path):
    data = open(path, "rb").read(4 << 20)
    at = 24
    formats = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def string():
        nonlocal at
        n = struct.unpack_from("<Q", data, at)[0]
        at += 8 + n
        return data[at - n:at].decode("utf-8")

    def value(kind):
        nonlocal at
        if kind == 8:
            return string()
        if kind == 9:
            inner, n = struct.unpack_from("<IQ", data, at)
            at += 12
            return [value(inner) for _ in range(n)]
        out = struct.unpack_from(formats[kind], data, at)[0]
        at += struct.calcsize(formats[kind])
        return out

    count = struct.unpack_from("<Q", data, 16)[0]
    found = {}
    for _ in range(count):
        key = string()
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        found[key] = value(kind)
    return found
