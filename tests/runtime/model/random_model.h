// Small models with random F32 weights: a GGUF for the program, and the same numbers by name for a plain computation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "tests/support/gguf_builder.h"

namespace tierpack::testing_support {

struct RandomModel {
  GgufBuilder gguf;
  std::map<std::string, std::vector<float>> tensors;

  // Adds a tensor with values from a normal distribution of this deviation around `mean`.
  void add(const std::string& name, std::vector<uint64_t> shape, double deviation, double mean = 0);
  // Removes a tensor from the GGUF.
  void remove(const std::string& name);

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15u;
  double uniform();
};

struct Qwen3MoeSizes {
  uint32_t hidden = 40, heads = 6, kv_heads = 2, head_dim = 10, experts = 7, ff = 24, layers = 2;
};

// Widths are no multiples of 32 and most sizes differ from each other, so that a wrong stride shows.
RandomModel random_qwen3moe(const Qwen3MoeSizes& sizes = {});
// Four blocks: delta nets at 0 and 2 (the n-gram embedding at 0), sparse attention at 1 and 3; one draft block.
RandomModel random_qwen4exp();

}  // namespace tierpack::testing_support
