#include "base/sha256_lanes.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tierpack {

namespace {

constexpr std::array<uint32_t, 8> kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

#if defined(__x86_64__)

// FIPS 180-4, section 4.2.2.
alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Runs `count` blocks of kLanes messages through the compression function, their instructions interleaved. The SHA
// instructions want the state as (a, b, e, f) and (c, d, g, h), highest word first.
template <int kLanes>
__attribute__((target("sha,sse4.1,ssse3"))) void compress(uint32_t* const (&state)[kLanes], const std::byte* (&data)[kLanes], size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i abef[kLanes];
  __m128i cdgh[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const __m128i low = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(state[lane])), 0xB1);
    const __m128i high = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(state[lane] + 4)), 0x1B);
    abef[lane] = _mm_alignr_epi8(low, high, 8);
    cdgh[lane] = _mm_blend_epi16(high, low, 0xF0);
  }
  for (; count > 0; --count) {
    __m128i abef_before[kLanes];
    __m128i cdgh_before[kLanes];
    __m128i words[kLanes][4];  // the last 16 of the message schedule
    for (int lane = 0; lane < kLanes; ++lane) {
      abef_before[lane] = abef[lane];
      cdgh_before[lane] = cdgh[lane];
    }
#pragma GCC unroll 16
    for (int group = 0; group < 16; ++group) {  // of four rounds
      const __m128i constants = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound + 4 * group));
#pragma GCC unroll 4
      for (int lane = 0; lane < kLanes; ++lane) {
        __m128i* const w = words[lane];
        if (group < 4) {
          w[group] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data[lane] + 16 * group)), big_endian);
        } else {
          const __m128i before = w[(group + 3) & 3];
          __m128i next = _mm_sha256msg1_epu32(w[group & 3], w[(group + 1) & 3]);
          next = _mm_add_epi32(next, _mm_alignr_epi8(before, w[(group + 2) & 3], 4));
          w[group & 3] = _mm_sha256msg2_epu32(next, before);
        }
        __m128i input = _mm_add_epi32(w[group & 3], constants);
        cdgh[lane] = _mm_sha256rnds2_epu32(cdgh[lane], abef[lane], input);
        input = _mm_shuffle_epi32(input, 0x0E);
        abef[lane] = _mm_sha256rnds2_epu32(abef[lane], cdgh[lane], input);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      abef[lane] = _mm_add_epi32(abef[lane], abef_before[lane]);
      cdgh[lane] = _mm_add_epi32(cdgh[lane], cdgh_before[lane]);
      data[lane] += 64;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const __m128i low = _mm_shuffle_epi32(abef[lane], 0x1B);
    const __m128i high = _mm_shuffle_epi32(cdgh[lane], 0xB1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state[lane]), _mm_blend_epi16(low, high, 0xF0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state[lane] + 4), _mm_alignr_epi8(high, low, 8));
  }
}

bool detect_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kSha = 1u << 29;
  return (b & kSha) != 0 && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3");
}

#else

template <int kLanes>
void compress(uint32_t* const (&)[kLanes], const std::byte* (&)[kLanes], size_t) {
  TIERPACK_CHECK(false);
}
bool detect_sha_instructions() { return false; }

#endif

}  // namespace

bool Sha256Lane::has_pairs() {
  static const bool yes = detect_sha_instructions();
  return yes;
}

Sha256Lane::Sha256Lane() : state_(kInitial) {
  if (!has_pairs()) plain_.emplace();
}

void Sha256Lane::update(Bytes data) {
  if (plain_) return plain_->update(data);
  const size_t held = bytes_ % 64;
  bytes_ += data.size();
  uint32_t* const state[1] = {state_.data()};
  if (held > 0) {
    const size_t step = std::min(64 - held, data.size());
    std::copy_n(data.begin(), step, pending_.begin() + static_cast<ptrdiff_t>(held));
    data = data.subspan(step);
    if (held + step < 64) return;
    const std::byte* from[1] = {pending_.data()};
    compress<1>(state, from, 1);
  }
  const std::byte* from[1] = {data.data()};
  if (data.size() >= 64) compress<1>(state, from, data.size() / 64);
  const Bytes rest = data.last(data.size() % 64);
  std::copy(rest.begin(), rest.end(), pending_.begin());
}

void Sha256Lane::update_pair(Sha256Lane& a, Bytes a_data, Sha256Lane& b, Bytes b_data) {
  TIERPACK_CHECK(a_data.size() == b_data.size() && a_data.size() % 64 == 0 && a.bytes_ % 64 == 0 && b.bytes_ % 64 == 0);
  if (a.plain_) {
    a.plain_->update(a_data);
    b.plain_->update(b_data);
    return;
  }
  uint32_t* const state[2] = {a.state_.data(), b.state_.data()};
  const std::byte* from[2] = {a_data.data(), b_data.data()};
  if (!a_data.empty()) compress<2>(state, from, a_data.size() / 64);
  a.bytes_ += a_data.size();
  b.bytes_ += b_data.size();
}

Sha256Digest Sha256Lane::finish() {
  if (plain_) return plain_->finish();
  // A one bit, zeros, and the length in bits as a big-endian number at the end of a block.
  std::array<std::byte, 128> end{};
  const size_t held = bytes_ % 64;
  end[0] = std::byte{0x80};
  const size_t padding = (held < 56 ? 56 : 120) - held;
  const uint64_t bits = bytes_ * 8;
  for (size_t i = 0; i < 8; ++i) end[padding + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update(Bytes(end).first(padding + 8));
  Sha256Digest out;
  for (size_t i = 0; i < 32; ++i) out.bytes[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

}  // namespace tierpack
