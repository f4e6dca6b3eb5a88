#include "formats/profile_import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "formats/expert_stacks.h"

namespace tierpack {

ProfileTarget profile_target(const Pack& pack, const std::string& tool_version) {
  const ModelConfig& config = pack.config();
  const PackManifest& manifest = pack.manifest();
  ProfileTarget target;
  target.model = pack.directory().string();
  target.blocks = config.blocks();
  Profile& p = target.identity;
  p.architecture = architecture_name(config.architecture);
  p.routing_id = manifest.routing_id;
  p.layers = config.layers;
  p.experts = config.experts;
  p.used = config.experts_used;
  p.tool_version = tool_version;
  p.counts.assign(size_t{p.layers} * p.experts, 0);
  p.weights.assign(p.counts.size(), 0);
  for (const ExpertLayer& layer : manifest.expert_layers) {
    ProfileTarget::Layer one{layer.layer, {}};
    for (const ExpertPart* part : layer.parts()) {
      const bool seen = std::any_of(one.stacks.begin(), one.stacks.end(),
                                    [&](const ProfileTarget::Stack& s) { return s.tensor == part->tensor; });
      if (!seen) one.stacks.push_back({part->tensor, part->in});
    }
    target.layers.push_back(std::move(one));
  }
  for (const DenseTensor& tensor : manifest.dense) target.dense.push_back({tensor.name, tensor.shape.ne[0]});
  std::sort(target.dense.begin(), target.dense.end(),
            [](const ProfileTarget::Stack& a, const ProfileTarget::Stack& b) { return a.tensor < b.tensor; });
  return target;
}

namespace {

// The names of all stacks of experts, with their layers.
std::map<std::string_view, const ProfileTarget::Stack*> stacks_by_name(const ProfileTarget& target) {
  std::map<std::string_view, const ProfileTarget::Stack*> stacks;
  for (const ProfileTarget::Layer& layer : target.layers) {
    for (const ProfileTarget::Stack& stack : layer.stacks) stacks.emplace(stack.tensor, &stack);
  }
  return stacks;
}

// Every name that the file and the model share must have the same shape in both, and no block may be beyond the
// model's.
void require_same_model(const ProfileTarget& target, const Imatrix& imatrix) {
  const auto stacks = stacks_by_name(target);
  const auto refuse = [&](const Imatrix::Entry& entry, const std::string& found) {
    fail(ErrorKind::kUsage, "{}: {} {}: the file is of another model than {}", imatrix.source, entry.tensor, found,
         target.model);
  };
  for (const Imatrix::Entry& entry : imatrix.entries) {
    if (block_of(entry.tensor) >= int64_t{target.blocks}) {
      refuse(entry, fmt::format("is of a block beyond the model's {}", target.blocks));
    }
    if (const auto at = stacks.find(entry.tensor); at != stacks.end()) {
      if (entry.columns != at->second->columns || entry.matrices != target.identity.experts) {
        refuse(entry, fmt::format("has {} experts with {} columns there and {} with {} in the model", entry.matrices,
                                  entry.columns, target.identity.experts, at->second->columns));
      }
      continue;
    }
    if (entry.matrices > 1) refuse(entry, "is no stack of experts in the model");
    const auto dense = std::lower_bound(
        target.dense.begin(), target.dense.end(), entry.tensor,
        [](const ProfileTarget::Stack& stack, const std::string& wanted) { return stack.tensor < wanted; });
    if (dense != target.dense.end() && dense->tensor == entry.tensor && dense->columns != entry.columns) {
      refuse(entry, fmt::format("has {} columns there and {} in the model", entry.columns, dense->columns));
    }
  }
}

constexpr double kCountMax = 0x1p53;

uint64_t whole_count(double count, const Imatrix& imatrix, std::string_view tensor, uint64_t expert) {
  if (count > kCountMax) {
    fail(ErrorKind::kCorrupt, "{}: {}: expert {} was used {} times", imatrix.source, tensor, expert, count);
  }
  return static_cast<uint64_t>(std::llround(count));
}

// Counts of one layer, the largest of its stacks'. Adds a note where they differ.
std::vector<uint64_t> layer_counts(const ProfileTarget& target, const ProfileTarget::Layer& layer,
                                   const Imatrix& imatrix, std::vector<std::string>& notes) {
  std::vector<uint64_t> counts;
  bool differ = false;
  std::string missing;
  for (const ProfileTarget::Stack& stack : layer.stacks) {
    const Imatrix::Entry* const entry = imatrix.find(stack.tensor);
    if (entry == nullptr) {
      missing += (missing.empty() ? "" : ", ") + stack.tensor;
      continue;
    }
    const bool first = counts.empty();
    counts.resize(target.identity.experts);
    for (uint32_t e = 0; e < target.identity.experts; ++e) {
      const uint64_t count = whole_count(entry->counts[e], imatrix, stack.tensor, e);
      differ |= !first && count != counts[e];
      counts[e] = std::max(counts[e], count);
    }
  }
  if (counts.empty()) {
    fail(ErrorKind::kUsage, "{}: no counts for layer {} ({}): the file is of another model than {}, or not complete",
         imatrix.source, layer.layer, missing, target.model);
  }
  if (!missing.empty()) notes.push_back(fmt::format("layer {}: {} is not in the file", layer.layer, missing));
  if (differ) {
    notes.push_back(
        fmt::format("layer {}: the counts of gate, up and down differ; the largest are taken", layer.layer));
  }
  return counts;
}

}  // namespace

ImportedProfile import_imatrix_counts(const ProfileTarget& target, const Imatrix& imatrix,
                                      const std::string& corpus_name, const Sha256Digest& file_sha256) {
  if (!imatrix.has_expert_counts) {
    fail(ErrorKind::kUsage,
         "{}: the older form of importance matrices has no counts of experts: write it as GGUF (llama-imatrix -o "
         "F.gguf)",
         imatrix.source);
  }
  require_same_model(target, imatrix);
  ImportedProfile out{target.identity, {}};
  Profile& p = out.profile;
  uint64_t tokens = 0;
  bool even = p.experts > p.used;
  for (const ProfileTarget::Layer& layer : target.layers) {
    if (layer.layer >= p.layers) continue;  // drafts tokens
    const std::vector<uint64_t> counts = layer_counts(target, layer, imatrix, out.notes);
    uint64_t routed = 0;
    for (uint32_t e = 0; e < p.experts; ++e) {
      const size_t at = size_t{layer.layer} * p.experts + e;
      p.counts[at] = counts[e];
      p.weights[at] = static_cast<double>(counts[e]) / p.used;
      routed += counts[e];  // at most 2^16 * 2^53
      even &= counts[e] == counts[0];
    }
    tokens = std::max(tokens, (routed + p.used - 1) / p.used);
  }
  if (even || tokens == 0) {
    fail(ErrorKind::kUsage,
         "{}: every expert has the same count: the file was converted from the older form, which counts no experts",
         imatrix.source);
  }
  p.corpora.push_back({corpus_name, file_sha256, tokens});
  return out;
}

}  // namespace tierpack
