#include "formats/expert_stacks.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "formats/pack_layout.h"

namespace tierpack {

namespace {

constexpr std::string_view kRowTable = "per_layer_token_embd.weight";

// "ffn_gate_exps.weight" of "blk.3.ffn_gate_exps.weight"; empty when there is no block.
std::string_view within_block(std::string_view name) {
  if (block_of(name) < 0) return {};
  return name.substr(name.find('.', 4) + 1);
}

constexpr std::string_view kStacks[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight",
                                        "ffn_gate_up_exps.weight"};

bool is_stack(std::string_view rest) {
  return std::find(std::begin(kStacks), std::end(kStacks), rest) != std::end(kStacks);
}

struct Stacks {
  const TensorInfo* gate = nullptr;
  const TensorInfo* up = nullptr;
  const TensorInfo* down = nullptr;
  const TensorInfo* gate_up = nullptr;  // gate rows, then up rows, expert by expert
};

ExpertPart part_of(const TensorInfo& stack, uint64_t out) {
  ExpertPart part;
  part.tensor = stack.name;
  part.dtype = stack.dtype;
  part.in = stack.shape.ne[0];
  part.out = out;
  return part;
}

ExpertLayer layer_of(uint32_t block, const Stacks& stacks, const std::string& source) {
  const bool split = stacks.gate != nullptr && stacks.up != nullptr && stacks.gate_up == nullptr;
  const bool merged = stacks.gate_up != nullptr && stacks.gate == nullptr && stacks.up == nullptr;
  if ((!split && !merged) || stacks.down == nullptr) {
    fail(ErrorKind::kCorrupt,
         "{}: block {} does not have the experts' three matrices (ffn_gate_exps and ffn_up_exps, or ffn_gate_up_exps, and "
         "ffn_down_exps)",
         source, block);
  }
  const TensorInfo& first = split ? *stacks.gate : *stacks.gate_up;
  const TensorInfo& second = split ? *stacks.up : *stacks.gate_up;
  const TensorInfo& down = *stacks.down;
  const uint64_t experts = first.shape.ne[2];
  for (const TensorInfo* stack : {&first, &second, &down}) {
    if (stack->shape.ne[2] != experts || stack->shape.ne[3] != 1 || experts > UINT32_MAX) {
      fail(ErrorKind::kCorrupt, "{}: {} has shape {}, expected a stack of {} matrices", source, stack->name,
           stack->shape.text(), experts);
    }
  }
  if (merged && first.shape.ne[1] % 2 != 0) {
    fail(ErrorKind::kCorrupt, "{}: {} has shape {}: its rows are not two equal halves", source, first.name,
         first.shape.text());
  }
  ExpertLayer layer;
  layer.layer = block;
  layer.experts = static_cast<uint32_t>(experts);
  layer.gate = part_of(first, split ? first.shape.ne[1] : first.shape.ne[1] / 2);
  layer.up = part_of(second, split ? second.shape.ne[1] : second.shape.ne[1] / 2);
  layer.down = part_of(down, down.shape.ne[1]);
  if (layer.gate.in != layer.up.in || layer.gate.out != layer.up.out || layer.down.in != layer.gate.out ||
      layer.down.out != layer.gate.in) {
    fail(ErrorKind::kCorrupt, "{}: block {}: the shapes of the experts' gate {}, up {} and down {} do not fit together",
         source, block, first.shape.text(), second.shape.text(), down.shape.text());
  }
  TIERPACK_CHECK(place_parts(layer));
  return layer;
}

}  // namespace

int64_t block_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  uint32_t block = 0;
  const char* const end = name.data() + name.size();
  const auto [at, status] = std::from_chars(name.data() + kPrefix.size(), end, block);
  return status == std::errc() && at != end && *at == '.' ? int64_t{block} : -1;
}

bool is_expert_scale(std::string_view name) {
  const std::string_view rest = within_block(name);
  return rest.starts_with("ffn_") && rest.ends_with("_exps.scale");
}

TensorClass classify(const TensorInfo& tensor) {
  if (is_stack(within_block(tensor.name))) return TensorClass::kExpertStack;
  // Rows longer than the layout's limit fill pages by themselves: nothing is gained by calling them a table.
  if (tensor.name == kRowTable && place_rows(tensor.name, tensor.dtype, tensor.shape, 0)) return TensorClass::kRows;
  return TensorClass::kDense;
}

std::vector<ExpertLayer> expert_layers(const std::vector<TensorInfo>& tensors, const std::string& source) {
  std::map<uint32_t, Stacks> blocks;
  for (const TensorInfo& tensor : tensors) {
    const std::string_view rest = within_block(tensor.name);
    if (!is_stack(rest)) continue;
    Stacks& stacks = blocks[static_cast<uint32_t>(block_of(tensor.name))];
    const TensorInfo** const places[] = {&stacks.gate, &stacks.up, &stacks.down, &stacks.gate_up};
    *places[std::find(std::begin(kStacks), std::end(kStacks), rest) - std::begin(kStacks)] = &tensor;
  }
  std::vector<ExpertLayer> layers;
  for (const auto& [block, stacks] : blocks) layers.push_back(layer_of(block, stacks, source));
  return layers;
}

int64_t load_rank(std::string_view name) {
  const int64_t block = block_of(name);
  if (block >= 0) return block;
  return name.starts_with("output") ? INT64_MAX : -1;
}

std::vector<TensorInfo> in_load_order(std::vector<TensorInfo> dense) {
  std::stable_sort(dense.begin(), dense.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return load_rank(a.name) < load_rank(b.name); });
  return dense;
}

}  // namespace tierpack
