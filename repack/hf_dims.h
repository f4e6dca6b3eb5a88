// The widths of a checkpoint, under the names that the tables write shapes in.
#pragma once

#include <array>
#include <initializer_list>
#include <string>

#include "formats/model_config.h"
#include "formats/quant_scheme.h"
#include "repack/hf_tables.h"
#include "repack/hf_targets.h"

namespace tierpack::repack {

class HfDims {
 public:
  // What the configuration says; zeros there are unknown here.
  HfDims(const ModelConfig& config, std::string source);

  // A dimension of a shape; `factor` of them side by side.
  struct Wanted {
    Dim dim = Dim::kNone;
    uint64_t factor = 1;
  };
  // Checks the shape of a weight, written in ggml order, and learns what is not known yet. Dimensions of 1 count for
  // nothing. Throws kCorrupt.
  void expect(const QuantWeight& weight, std::initializer_list<Wanted> shape);
  void expect(const QuantWeight& weight, const std::array<Dim, 3>& shape);

  // Learns what the configuration does not give from the tensors of the block whose names begin with `block`: the
  // widths of the indexer, when attention is dense everywhere, and those of latent attention.
  void learn_indexer(const HfTargets& targets, const std::string& block);
  void learn_latent(const HfTargets& targets, const std::string& block);

  // Throws kCorrupt when it is not known or 0; `whose` names the tensor that needs it.
  uint64_t need(Dim dim, std::string_view whose) const;
  uint64_t known(Dim dim) const { return at(dim); }  // 0 = not known
  void set(Dim dim, uint64_t value) { at(dim) = value; }

 private:
  uint64_t& at(Dim dim) { return values_[static_cast<size_t>(dim)]; }
  uint64_t at(Dim dim) const { return values_[static_cast<size_t>(dim)]; }
  void expect_span(const QuantWeight& weight, std::span<const Wanted> shape);
  std::array<uint64_t, static_cast<size_t>(Dim::kCount)> values_{};
  std::string source_;
};

}  // namespace tierpack::repack
