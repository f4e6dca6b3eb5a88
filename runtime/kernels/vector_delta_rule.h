// The gated delta rule, one token of one V head; follows `delta_rule` in reference.cpp. Compiled by each instruction set's
// file, after its vector header.
//
// With 32 registers, a row of the usual width stays in them from its decay to its result; otherwise it is stored between.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/vector_lanes.h"

namespace tierpack::kernels {
namespace {

constexpr uint32_t kRowInRegisters = 128;

[[gnu::always_inline]] inline float delta_row_in_registers(float* row, const Wide* q, const Wide* k, float v, Wide decays, float beta) {
  constexpr uint32_t kVectors = kRowInRegisters / kWideLanes;
  Wide s[kVectors];
  Sums32 predicted = Sums32::zero();
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kVectors; ++i) {
    s[i] = load(row + i * kWideLanes) * decays;
    predicted.part[i % kSumParts] = fma(s[i], k[i], Wide{predicted.part[i % kSumParts]}).value;
  }
  const Wide d = Wide::of(beta * (v - predicted.total()));
  Sums32 read = Sums32::zero();
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kVectors; ++i) {
    s[i] = fma(d, k[i], s[i]);
    store(row + i * kWideLanes, s[i]);
    read.part[i % kSumParts] = fma(s[i], q[i], Wide{read.part[i % kSumParts]}).value;
  }
  return read.total();
}

void vector_delta_rule(float* state, const float* q, const float* k, const float* v, float decay, float beta, uint32_t dk,
                       uint32_t dv, float* out) {
  const Wide decays = Wide::of(decay);
  if constexpr (kWideLanes == 16) {
    if (dk == kRowInRegisters) {
      Wide qs[kRowInRegisters / kWideLanes];
      Wide ks[kRowInRegisters / kWideLanes];
      for (uint32_t i = 0; i < kRowInRegisters / kWideLanes; ++i) qs[i] = load(q + i * kWideLanes);
      for (uint32_t i = 0; i < kRowInRegisters / kWideLanes; ++i) ks[i] = load(k + i * kWideLanes);
      for (uint32_t j = 0; j < dv; ++j) {
        out[j] = delta_row_in_registers(state + size_t{j} * kRowInRegisters, qs, ks, v[j], decays, beta);
      }
      return;
    }
  }
  for (uint32_t j = 0; j < dv; ++j) {
    float* const row = state + size_t{j} * dk;
    Sums32 predicted = Sums32::zero();
    for_each_wide(dk, [&](uint32_t i, uint32_t part, uint32_t lanes) __attribute__((always_inline)) {
      const Wide decayed = load_lanes(row + i, lanes) * decays;
      store_lanes(row + i, lanes, decayed);
      predicted.part[part] = fma_lanes(decayed.value, load_lanes(k + i, lanes).value, predicted.part[part], lanes);
    });
    const Wide d = Wide::of(beta * (v[j] - predicted.total()));
    Sums32 read = Sums32::zero();
    for_each_wide(dk, [&](uint32_t i, uint32_t part, uint32_t lanes) __attribute__((always_inline)) {
      const Wide updated = fma(d, load_lanes(k + i, lanes), load_lanes(row + i, lanes));
      store_lanes(row + i, lanes, updated);
      read.part[part] = fma_lanes(updated.value, load_lanes(q + i, lanes).value, read.part[part], lanes);
    });
    out[j] = read.total();
  }
}

}  // namespace
}  // namespace tierpack::kernels
