// The forward passes once more, whole sequences at a time, in double precision with the standard library's functions and no
// care for speed: what the runtime is compared with. Written from the definition of the architectures (docs and the comments
// in runtime/model headers), sharing no code with the runtime.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/model_config.h"

namespace tierpack::testing_support {

class PlainModel {
 public:
  using Vector = std::vector<double>;
  using Rows = std::vector<Vector>;  // one a token

  PlainModel(const ModelConfig& config, const std::map<std::string, std::vector<float>>& tensors)
      : c_(config), tensors_(tensors) {}

  // Logits of every token.
  Rows run(const std::vector<uint32_t>& tokens);

  // Of the last run: experts by (block, position), and visible positions by (block, position).
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> routes;
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>> attended;

 private:
  const std::vector<float>& tensor(const std::string& name) const;
  Vector times(const std::string& name, const Vector& x, size_t first_row = 0, size_t rows = 0) const;
  Vector norm(const Vector& x, const std::string& gamma, size_t gamma_offset = 0) const;
  void rotate(Vector& head, uint32_t position) const;
  Rows attention(uint32_t block, const Rows& x, bool gated);
  std::set<uint32_t> visible(uint32_t block, const Rows& x, uint32_t position) const;
  Rows delta_net(uint32_t block, const Rows& x) const;
  Rows experts(uint32_t block, const Rows& x);
  Vector expert(const Vector& x, const std::string& gate, const std::string& up, const std::string& down, size_t index) const;
  void add_ngrams(const std::vector<uint32_t>& tokens, std::vector<Rows>& streams) const;
  Rows mix(const std::string& prefix, const std::vector<Rows>& streams, Rows* inject) const;

  ModelConfig c_;
  const std::map<std::string, std::vector<float>>& tensors_;
};

}  // namespace tierpack::testing_support
