"""Made-up routing as recordings of `tierpack trace`, with the profile of what came before: popularity after Zipf, experts that
tokens keep from the one before, popularity that moves. Used by cache_policies.py."""
import bisect
import ctypes
import ctypes.util
import itertools
import json
import random
import struct

LAYERS, EXPERTS, USED = 12, 128, 8
PROFILE_TOKENS, TOKENS = 2000, 4000


class _Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _checksum(data):
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_128bits.restype = _Xxh128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    digest = library.XXH3_128bits(data, len(data))
    return struct.pack("<QQ", digest.low, digest.high)


class Routing:
    """`exponent` of the popularity; `kept`: probability that a token keeps an expert of the one before; every `period` tokens
    `moved` of the experts change places."""

    def __init__(self, exponent=1.0, kept=0.0, period=0, moved=0.3):
        self.random = random.Random("tierpack")
        self.kept, self.period, self.moved = kept, period, moved
        self.cumulative = list(itertools.accumulate(1 / rank**exponent for rank in range(1, EXPERTS + 1)))
        self.rank = [self.random.sample(range(EXPERTS), EXPERTS) for _ in range(LAYERS)]
        self.last = [[] for _ in range(LAYERS)]

    def token(self):
        for layer in range(LAYERS):
            chosen = [e for e in self.last[layer] if self.random.random() < self.kept]
            while len(chosen) < USED:
                at = bisect.bisect(self.cumulative, self.random.random() * self.cumulative[-1])
                expert = self.rank[layer][min(at, EXPERTS - 1)]
                if expert not in chosen:
                    chosen.append(expert)
            self.last[layer] = chosen
        return self.last

    def move(self):
        for rank in self.rank:
            for _ in range(int(EXPERTS * self.moved / 2)):
                a, b = self.random.randrange(EXPERTS), self.random.randrange(EXPERTS)
                rank[a], rank[b] = rank[b], rank[a]

    def write(self, trace, profile):
        counts = [[0] * EXPERTS for _ in range(LAYERS)]
        for _ in range(PROFILE_TOKENS):
            for layer, chosen in enumerate(self.token()):
                for expert in chosen:
                    counts[layer][expert] += 1
        with open(profile, "w", encoding="utf-8") as file:
            json.dump({"format": "tierpack-profile", "version": 1,
                       "model": {"architecture": "synthetic", "routing_id": "00" * 32, "layers": LAYERS, "experts": EXPERTS,
                                 "used": USED},
                       "tool": {"name": "synthetic_routing.py", "version": "1"},
                       "corpora": [{"name": "before", "sha256": "00" * 32, "tokens": PROFILE_TOKENS}],
                       "layers": [{"counts": row, "weights": [float(count) / USED for count in row]} for row in counts]}, file)
        data = bytearray(b"TPTRACE\0" + struct.pack("<IIII", 1, LAYERS, EXPERTS, USED) + bytes(32))
        for block in range(LAYERS):
            data += struct.pack("<IIQ", block, EXPERTS, 1 << 20)
        for t in range(TOKENS):
            if self.period and t and t % self.period == 0:
                self.move()
            data += struct.pack("<I", 1 | (1 << 31 if t == 0 else 0))
            for chosen in self.token():
                data += struct.pack(f"<{USED}H", *chosen)
        data += struct.pack("<IQQ", 0, TOKENS, TOKENS)
        with open(trace, "wb") as file:
            file.write(data + _checksum(bytes(data)))


KINDS = {
    "independent draws": dict(),
    "each expert kept for the next token with probability 0.3": dict(kept=0.3),
    "30 % of the experts change places every 512 tokens": dict(period=512),
    "nearly all change places every 1,024 tokens": dict(period=1024, moved=2.0),
    "kept with 0.3, and 30 % change places every 512 tokens": dict(kept=0.3, period=512),
    "independent draws, exponent 0.4": dict(exponent=0.4),
}
