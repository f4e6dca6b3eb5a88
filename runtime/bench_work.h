// What a forward pass has to read and multiply, and how figures of several runs become one: the arithmetic of `bench`,
// without a clock.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/pack.h"

namespace tierpack {

// Of a pack's trunk (drafting blocks are not run). Rows of lookup tables and the KV cache are not weights and not counted.
struct PassWork {
  uint64_t dense_bytes = 0;    // read by every pass: all dense tensors but the embedding, of which a token reads one row
  uint64_t output_bytes = 0;   // of those, the output matrix, which only tokens whose logits are wanted need
  uint64_t expert_bytes = 0;   // one expert of every block
  uint32_t experts = 0;        // in a block
  uint32_t experts_used = 0;   // by a token in a block
  uint64_t dense_products = 0;   // multiply-adds of a token in dense matrices, without the output matrix
  uint64_t output_products = 0;  // multiply-adds of one row of logits
  uint64_t expert_products = 0;  // multiply-adds of a token in one expert of every block

  // Weight bytes of one pass over `tokens` tokens that share every weight they both need: distinct experts at most.
  uint64_t pass_bytes(uint64_t tokens) const;
  uint64_t decode_bytes() const { return pass_bytes(1); }
  // Weight bytes and multiply-adds of a prompt of `tokens` tokens computed in chunks, with the logits of its last token.
  uint64_t prompt_bytes(uint64_t tokens, uint64_t chunk) const;
  uint64_t prompt_products(uint64_t tokens) const;
};
PassWork pass_work(const PackManifest& manifest, const ModelConfig& config);

// The smallest time the work can take, in seconds, and what sets it.
struct Ceiling {
  double seconds = 0;
  bool memory = true;  // false: arithmetic
};
Ceiling ceiling_of(uint64_t bytes, uint64_t products, double bytes_per_second, double products_per_second);

// Figures of several runs. Median of an even number: the mean of the two in the middle.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  const std::vector<double>& values() const { return values_; }  // in the order of the runs
  double median() const;
  double min() const;
  double max() const;

 private:
  std::vector<double> values_;
};

// "512,1K,4k" -> ascending, distinct; K = 1024. Throws kUsage for anything else, for 0, more than `most` and more than 64 of
// them.
std::vector<uint32_t> parse_lengths(std::string_view text, uint32_t most);

// `count` token ids below `vocab`, the same for the same seed.
std::vector<uint32_t> seeded_tokens(size_t count, uint32_t vocab, uint64_t seed);

}  // namespace tierpack
