#include "verify/inspection.h"

#include <algorithm>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/packed_shard.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

void take_tensor(Inspection& out, const TensorInfo& tensor) {
  const auto count = [&](SizeClass& into) {
    ++into.tensors;
    into.elements += tensor.shape.elements();
    into.bytes += tensor.bytes;
  };
  switch (classify(tensor)) {
    case TensorClass::kDense: count(out.dense); break;
    case TensorClass::kExpertStack: count(out.experts); break;
    case TensorClass::kRows: count(out.rows); break;
  }
  count(out.by_type[tensor.dtype]);
  out.tensors.push_back(tensor);
}

// The parts that need metadata and tensors without contradictions; otherwise the file is described without them.
void take_model(Inspection& out) {
  try {
    out.config = read_model_config(out.metadata);
    out.layers = expert_layers(out.tensors, out.path);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported && e.kind() != ErrorKind::kCorrupt) throw;
    out.config_problem = e.what();
  }
}

bool is_remote(const std::string& path) {
  return path.find("://") != std::string::npos || path.starts_with("hf:") || path.starts_with("ms:");
}

// "…-00001-of-00003.gguf" with another number.
std::string sibling_name(const std::string& first, uint64_t number, uint64_t count) {
  const std::string suffix = fmt::format("-00001-of-{:05}.gguf", count);
  if (!first.ends_with(suffix)) {
    fail(ErrorKind::kUsage, "{}: is the first of {} shards, but its name does not end in {}; the others cannot be found", first,
         count, suffix);
  }
  return first.substr(0, first.size() - suffix.size()) + fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

}  // namespace

std::vector<std::unique_ptr<ByteSource>> open_remote_shards(const std::string& reference, const RemoteOpener& remote) {
  if (!remote) fail(ErrorKind::kUsage, "{}: is no local path, and this program was built without remote sources", reference);
  std::vector<std::unique_ptr<ByteSource>> shards = remote(reference);
  if (shards.empty()) fail(ErrorKind::kUsage, "{}: holds no GGUF", reference);
  if (shards.size() == 1) {
    const uint64_t count = read_gguf_header(*shards[0]).metadata.u64_or("split.count", 1);
    if (count > GgufLimits::kShards) fail(ErrorKind::kCorrupt, "{}: claims {} shards", reference, count);
    for (uint64_t number = 2; number <= count; ++number) {
      std::vector<std::unique_ptr<ByteSource>> more = remote(sibling_name(reference, number, count));
      TIERPACK_CHECK(more.size() == 1);
      shards.push_back(std::move(more[0]));
    }
  }
  return shards;
}

namespace {

Inspection inspect_remote(const std::string& reference, const RemoteOpener& remote) {
  const std::vector<std::unique_ptr<ByteSource>> shards = open_remote_shards(reference, remote);
  std::vector<const ByteSource*> views;
  for (const auto& shard : shards) views.push_back(shard.get());
  return inspect_gguf(reference, views);
}

}  // namespace

uint64_t Inspection::bytes() const {
  uint64_t sum = 0;
  for (const InspectedFile& file : files) sum += file.bytes;
  return sum;
}

uint64_t Inspection::expert_bytes_per_token() const {
  uint64_t sum = 0;
  if (!config) return 0;
  for (const ExpertLayer& layer : layers) {
    if (layer.layer < config->layers) sum += layer.record_bytes * config->experts_used;
  }
  return sum;
}

Inspection inspect_gguf(const std::string& path, const std::vector<const ByteSource*>& shards) {
  TIERPACK_CHECK(!shards.empty());
  Inspection out;
  out.path = path;
  for (size_t i = 0; i < shards.size(); ++i) {
    GgufHeader header = read_gguf_header(*shards[i]);
    out.files.push_back({fs::path(shards[i]->name()).filename().string(), shards[i]->size(), header.tensors.size()});
    for (TensorInfo& tensor : header.tensors) {
      tensor.shard = static_cast<uint32_t>(i);
      take_tensor(out, tensor);
    }
    if (i > 0) continue;
    out.gguf_version = header.version;
    out.metadata = std::move(header.metadata);
  }
  take_model(out);
  return out;
}

Inspection inspect_pack(const fs::path& path) {
  const Pack pack = Pack::open(path);
  const PackManifest& manifest = pack.manifest();
  Inspection out;
  out.path = path.string();
  out.is_pack = true;
  out.metadata = pack.metadata();
  for (size_t i = 0; i < manifest.sources.size(); ++i) {
    const PackedShard shard(pack, i);
    out.sources.push_back({shard.shard().path, shard.shard().bytes, shard.shard().sha256, {}});
    if (!manifest.reversible() || !shard.shard().path.ends_with(".gguf")) continue;
    for (TensorInfo tensor : read_gguf_header(shard).tensors) {
      tensor.shard = static_cast<uint32_t>(i);
      take_tensor(out, tensor);
    }
  }
  // A checkpoint's own tensors have other names and forms: what the pack made of them is told.
  if (out.tensors.empty()) {
    for (const TensorInfo& tensor : pack_tensors(manifest)) take_tensor(out, tensor);
  }
  for (const PackFile& file : manifest.files) out.files.push_back({file.name, file.bytes, 0});
  out.files.push_back({kPackManifestName, fs::file_size(path / kPackManifestName), 0});
  out.config = pack.config();
  out.layers = manifest.expert_layers;
  out.tool_version = manifest.tool_version;
  out.routing_id = manifest.routing_id;
  out.profile = pack.profile();
  if (out.profile) out.coverage = profile_coverage(out.layers, *out.profile);
  return out;
}

Inspection inspect_path(const std::string& path, const RemoteOpener& remote) {
  if (is_remote(path)) return inspect_remote(path, remote);
  if (!fs::exists(path)) fail(ErrorKind::kUsage, "{}: there is no such file or directory", path);
  if (fs::is_directory(path) && fs::exists(fs::path(path) / kPackManifestName)) return inspect_pack(path);
  const GgufSource source = open_gguf(path);
  std::vector<const ByteSource*> shards;
  for (const File& file : source.files) shards.push_back(&file);
  return inspect_gguf(path, shards);
}

std::vector<CoveragePoint> profile_coverage(const std::vector<ExpertLayer>& layers, const Profile& profile) {
  struct Use {
    uint64_t count = 0;
    uint64_t bytes = 0;
  };
  std::vector<Use> uses;
  uint64_t all_uses = 0;
  uint64_t all_bytes = 0;
  for (const ExpertLayer& layer : layers) {
    for (uint32_t expert = 0; expert < layer.experts; ++expert) {
      const bool known = layer.layer < profile.layers && expert < profile.experts;
      uses.push_back({known ? profile.count(layer.layer, expert) : 0, layer.record_bytes});
      all_uses += uses.back().count;
      all_bytes += layer.record_bytes;
    }
  }
  std::stable_sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.count > b.count; });
  std::vector<CoveragePoint> out;
  for (const double share : {0.01, 0.05, 0.10, 0.25, 0.50, 0.75}) {
    const auto limit = static_cast<uint64_t>(share * static_cast<double>(all_bytes));
    uint64_t bytes = 0;
    uint64_t answered = 0;
    for (const Use& use : uses) {
      if (bytes + use.bytes > limit) break;
      bytes += use.bytes;
      answered += use.count;
    }
    out.push_back({share, all_uses > 0 ? static_cast<double>(answered) / static_cast<double>(all_uses) : 0});
  }
  return out;
}

}  // namespace tierpack::verify
