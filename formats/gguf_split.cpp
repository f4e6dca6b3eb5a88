// Split sets of GGUF files and the search for the one model of a directory.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "formats/gguf.h"

namespace tierpack {
namespace {

namespace fs = std::filesystem;

// "PREFIX-00002-of-00005.gguf": file `number` (from 1) of `count`.
struct ShardName {
  std::string prefix;
  uint64_t number = 0;
  uint64_t count = 0;
};

std::string shard_name(const std::string& prefix, uint64_t number, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

std::optional<ShardName> parse_shard_name(const std::string& name) {
  constexpr size_t kSuffix = sizeof("-00001-of-00001.gguf") - 1;
  if (name.size() <= kSuffix) return std::nullopt;
  const std::string suffix = name.substr(name.size() - kSuffix);
  ShardName out{name.substr(0, name.size() - kSuffix), 0, 0};
  for (size_t i = 0; i < 5; ++i) {
    const auto digit = [&](size_t at) { return static_cast<uint64_t>(suffix[at] - '0'); };
    if (digit(1 + i) > 9 || digit(10 + i) > 9) return std::nullopt;
    out.number = out.number * 10 + digit(1 + i);
    out.count = out.count * 10 + digit(10 + i);
  }
  if (name != shard_name(out.prefix, out.number, out.count)) return std::nullopt;
  return out;
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return name.starts_with(p); });
}

// The first shard (or only file) of each model below `directory`, keyed by its path.
void collect_models(const fs::path& directory, int depth, std::map<fs::path, fs::path>& models) {
  constexpr int kDepthMax = 3;
  std::error_code problem;
  fs::directory_iterator entries(directory, problem);
  if (problem && depth > 0) return;  // not ours to read: no model of ours
  if (problem) fail(ErrorKind::kIo, "cannot list the directory {}: {}", directory.string(), problem.message());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (starts_with_any(name, {".", "mmproj", "mtp-"})) continue;
    if (entry.is_directory(problem) && !entry.is_symlink(problem)) {
      if (depth < kDepthMax) collect_models(entry.path(), depth + 1, models);
      continue;
    }
    if (entry.path().extension() != ".gguf" || !entry.is_regular_file(problem)) continue;
    const auto shard = parse_shard_name(name);
    const fs::path first = shard ? directory / shard_name(shard->prefix, 1, shard->count) : entry.path();
    models.emplace(first, entry.path());
  }
}

fs::path find_model(const fs::path& directory) {
  std::map<fs::path, fs::path> models;
  collect_models(directory, 0, models);
  if (models.empty()) {
    fail(ErrorKind::kUsage, "{}: the directory holds no .gguf model; name the file or the directory it is in",
         directory.string());
  }
  if (models.size() > 1) {
    std::string list;
    for (const auto& [first, found] : models) list += "\n  " + first.string();
    fail(ErrorKind::kUsage, "{}: the directory holds {} models; name one of them:{}", directory.string(), models.size(),
         list);
  }
  const auto& [first, found] = *models.begin();
  if (!fs::exists(first)) {
    fail(ErrorKind::kCorrupt, "{}: the first shard of the model is missing, only others like {} are there; fetch it",
         first.string(), found.filename().string());
  }
  return first;
}

// Number of shards according to the head of a file, 1 if it is not split.
uint64_t split_count(const GgufHeader& header) {
  const uint64_t count = header.metadata.u64_or("split.count", 1);
  if (count > GgufLimits::kShards) {
    fail(ErrorKind::kCorrupt, "{}: split.count is {}, more than the limit of {} shards", header.metadata.source(),
         count, GgufLimits::kShards);
  }
  return std::max<uint64_t>(count, 1);
}

void append_shard(GgufSource& source, const fs::path& path, File file, GgufHeader header) {
  const auto shard = static_cast<uint32_t>(source.files.size());
  if (source.tensors.size() + header.tensors.size() > GgufLimits::kTensors) {
    fail(ErrorKind::kCorrupt, "{}: the shards hold more than {} tensors together", path.string(), GgufLimits::kTensors);
  }
  for (const TensorInfo& tensor : header.tensors) {
    if (!source.by_name.emplace(tensor.name, source.tensors.size()).second) {
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' is already in shard {}", path.string(), tensor.name,
           source.find(tensor.name)->shard + 1);
    }
    source.tensors.push_back(tensor);
    source.tensors.back().shard = shard;
  }
  source.paths.push_back(path);
  source.files.push_back(std::move(file));
  source.headers.push_back(std::move(header));
}

void require_first_shard(const fs::path& path, const GgufHeader& header, uint64_t count) {
  const uint64_t number = header.metadata.u64_or("split.no", 0);
  if (number == 0) return;
  const auto name = parse_shard_name(path.filename().string());
  const std::string first = name ? shard_name(name->prefix, 1, name->count) : "the first one";
  fail(ErrorKind::kUsage, "{}: this is shard {} of {}; name {} instead, the others are found from it", path.string(),
       number + 1, count, first);
}

void append_siblings(GgufSource& source, const fs::path& first, uint64_t count) {
  const auto name = parse_shard_name(first.filename().string());
  if (!name || name->number != 1 || name->count != count) {
    fail(ErrorKind::kCorrupt,
         "{}: the header says this is the first of {} shards, so the name must end in {} for the others to be found; "
         "give the shards their published names",
         first.string(), count, shard_name("", 1, count));
  }
  std::vector<fs::path> paths;
  std::string missing;
  for (uint64_t number = 2; number <= count; ++number) {
    paths.push_back(first.parent_path() / shard_name(name->prefix, number, count));
    if (!fs::exists(paths.back())) missing += "\n  " + paths.back().filename().string();
  }
  if (!missing.empty()) {
    fail(ErrorKind::kCorrupt, "{}: of its {} shards these are missing; fetch them:{}", first.string(), count, missing);
  }
  for (uint64_t index = 1; index < count; ++index) {
    const fs::path& path = paths[index - 1];
    File file = File::open(path, File::Mode::kRead);
    GgufHeader header = read_gguf_header(file);
    const uint64_t said_index = header.metadata.u64("split.no");
    const uint64_t said_count = header.metadata.u64("split.count");
    if (said_index != index || said_count != count) {
      fail(ErrorKind::kCorrupt, "{}: the name says shard {} of {}, the header says shard {} of {}", path.string(),
           index + 1, count, said_index + 1, said_count);
    }
    append_shard(source, path, std::move(file), std::move(header));
  }
  const uint64_t promised = source.metadata().u64("split.tensors.count");
  if (promised != source.tensors.size()) {
    fail(ErrorKind::kCorrupt, "{}: split.tensors.count promises {} tensors over all shards, found {}", first.string(),
         promised, source.tensors.size());
  }
}

}  // namespace

const TensorInfo* GgufSource::find(std::string_view name) const {
  const auto at = by_name.find(std::string(name));
  return at == by_name.end() ? nullptr : &tensors[at->second];
}

GgufSource open_gguf(const fs::path& path) {
  const fs::path first = fs::is_directory(path) ? find_model(path) : path;
  File file = File::open(first, File::Mode::kRead);
  GgufHeader header = read_gguf_header(file);
  const uint64_t count = split_count(header);
  GgufSource source;
  if (count > 1) require_first_shard(first, header, count);
  append_shard(source, first, std::move(file), std::move(header));
  if (count > 1) append_siblings(source, first, count);
  return source;
}

}  // namespace tierpack
