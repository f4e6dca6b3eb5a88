// Which tensors of a GGUF are what: routed experts by layer, lookup tables, and everything else.
#pragma once

#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/pack.h"

namespace tierpack {

enum class TensorClass { kDense, kExpertStack, kRows };

// "blk.7.ffn_gate_exps.weight", up, down and gate_up are stacks, "per_layer_token_embd.weight" is a lookup table.
TensorClass classify(const TensorInfo& tensor);

// "blk.7.ffn_gate_exps.scale" and its like: factors of a stack, which lie in the experts' records.
bool is_expert_scale(std::string_view name);

// The layers that have routed experts, ascending, their parts placed; records are not numbered yet. Throws kCorrupt when
// a layer lacks a part or shapes do not fit together.
std::vector<ExpertLayer> expert_layers(const std::vector<TensorInfo>& tensors, const std::string& source);

// Block number of "blk.N.rest", -1 for any other name.
int64_t block_of(std::string_view name);

// Where a tensor comes in that order: singles -1, then its block, what belongs to the output last.
int64_t load_rank(std::string_view name);

// Dense tensors in the order a model is loaded and run: embedding and other singles, blocks ascending, output.
std::vector<TensorInfo> in_load_order(std::vector<TensorInfo> dense);

}  // namespace tierpack
