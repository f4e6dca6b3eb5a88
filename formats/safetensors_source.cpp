// Checkpoints of several files: the index, and the files opened together.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/json_cursor.h"
#include "formats/safetensors.h"

namespace tierpack {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxIndexBytes = kMaxSafetensorsHeaderBytes;
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kFileSuffix = ".safetensors";

// A file of the index's own directory, as every index names its shards; anything else could reach out of it.
bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
}

// The file of a directory that opens its checkpoint: an index, or the only .safetensors file.
fs::path find_checkpoint(const fs::path& directory) {
  std::vector<fs::path> indexes, files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kIndexSuffix)) indexes.push_back(entry.path());
    if (name.ends_with(kFileSuffix)) files.push_back(entry.path());
  }
  const auto usual = [&](const std::vector<fs::path>& found, const std::string& name) {
    return std::find(found.begin(), found.end(), directory / name) != found.end();
  };
  if (indexes.size() == 1) return indexes.front();
  if (usual(indexes, "model.safetensors.index.json")) return directory / "model.safetensors.index.json";
  if (indexes.empty() && files.size() == 1) return files.front();
  if (indexes.empty() && usual(files, "model.safetensors")) return directory / "model.safetensors";
  if (indexes.empty() && files.empty()) {
    fail(ErrorKind::kUsage, "{}: holds no .safetensors file", directory.string());
  }
  fail(ErrorKind::kUsage, "{}: holds {} index files and {} .safetensors files; name the one to open",
       directory.string(), indexes.size(), files.size());
}

}  // namespace

void walk_safetensors_index(std::string_view text, const std::string& source,
                            const std::function<void(std::string_view tensor, std::string_view file)>& on_tensor) {
  if (text.size() > kMaxIndexBytes) {
    fail(ErrorKind::kCorrupt, "{}: an index of {} bytes, more than {}", source, text.size(), kMaxIndexBytes);
  }
  JsonCursor json(text, source);
  bool seen = false;
  uint64_t tensors = 0;
  std::string name;
  json.object("a JSON object", [&](std::string_view key) {
    if (key != "weight_map") {
      json.skip_value();
      return;
    }
    if (seen) json.fail_here("weight_map appears twice");
    seen = true;
    json.object("weight_map as an object", [&](std::string_view tensor) {
      if (!is_tensor_name(tensor)) json.fail_here("a tensor name that is too long or has control characters");
      if (tensors++ == kMaxSafetensorsTensors) {
        json.fail_here(fmt::format("weight_map names more than {} tensors", kMaxSafetensorsTensors));
      }
      name = tensor;  // the next string may overwrite the view
      const std::string_view file = json.string("a file name in weight_map");
      if (!is_plain_name(file)) {
        json.fail_here("weight_map names a file outside the index's own directory, or one with an unusable name");
      }
      on_tensor(name, file);
    });
  });
  json.end();
  if (!seen) fail(ErrorKind::kCorrupt, "{}: 'weight_map' is missing", source);
}

std::vector<std::string> safetensors_index_files(std::string_view text, const std::string& source) {
  std::set<std::string, std::less<>> files;
  walk_safetensors_index(text, source, [&](std::string_view, std::string_view file) {
    if (files.find(file) != files.end()) return;
    if (files.size() == kMaxSafetensorsShards) {
      fail(ErrorKind::kCorrupt, "{}: weight_map names more than {} files", source, kMaxSafetensorsShards);
    }
    files.emplace(file);
  });
  return {files.begin(), files.end()};
}

SafetensorsSource SafetensorsSource::open(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open(find_checkpoint(path));
  if (!path.filename().string().ends_with(".index.json")) {
    return open_single(std::make_unique<File>(File::open(path, File::Mode::kRead)), path.filename().string());
  }
  const std::string text = read_text_file(path, kMaxIndexBytes);
  return open_index(text, path.string(), [&](const std::string& name) -> std::unique_ptr<ByteSource> {
    const fs::path shard = path.parent_path() / name;
    std::error_code error;
    if (!fs::exists(shard, error)) {
      fail(ErrorKind::kCorrupt, "{}: lists the shard {}, which is not in its directory; fetch the missing file",
           path.string(), name);
    }
    return std::make_unique<File>(File::open(shard, File::Mode::kRead));
  });
}

SafetensorsSource SafetensorsSource::open_single(std::unique_ptr<ByteSource> file, std::string file_name) {
  SafetensorsSource source;
  source.name_ = file->name();
  source.add_shard(std::move(file), std::move(file_name));
  source.index_.build(source.tensors_.size(), [&](uint32_t id) { return source.tensor_name(id); });
  return source;
}

SafetensorsSource SafetensorsSource::open_index(std::string_view index_text, const std::string& index_name,
                                                const Opener& opener) {
  SafetensorsSource source;
  source.name_ = index_name;
  const std::vector<std::string> files = safetensors_index_files(index_text, index_name);
  for (const std::string& name : files) source.add_shard(opener(name), name);

  // A name may be in several shards; the index says which one counts.
  const auto names = [&](uint32_t id) { return source.tensor_name(id); };
  source.index_.build(source.tensors_.size(), names);
  for (SafetensorsTensor& tensor : source.tensors_) tensor.listed = false;
  walk_safetensors_index(index_text, index_name, [&](std::string_view tensor, std::string_view file) {
    const auto shard = static_cast<uint32_t>(std::lower_bound(files.begin(), files.end(), file) - files.begin());
    bool found = false, twice = false;
    source.index_.find_all(tensor, names, [&](uint32_t id) {
      SafetensorsTensor& candidate = source.tensors_[id];
      twice = twice || candidate.listed;
      if (candidate.shard == shard) candidate.listed = found = true;
    });
    if (twice) fail(ErrorKind::kCorrupt, "{}: weight_map lists tensor '{}' twice", index_name, tensor);
    if (!found) {
      fail(ErrorKind::kCorrupt, "{}: places tensor '{}' in {}, but that file does not hold it", index_name, tensor,
           file);
    }
  });
  source.index_.keep_if([&](uint32_t id) { return source.tensors_[id].listed; });
  return source;
}

void SafetensorsSource::add_shard(std::unique_ptr<ByteSource> file, std::string file_name) {
  SafetensorsHeader header = read_safetensors_header(*file);
  if (header.tensors.size() > UINT32_MAX - tensors_.size()) {
    fail(ErrorKind::kCorrupt, "{}: more than {} tensors", name_, UINT32_MAX);
  }
  const auto number = static_cast<uint32_t>(shards_.size());
  SafetensorsShard shard;
  shard.file_name = std::move(file_name);
  shard.file = std::move(file);
  shard.data_offset = header.data_offset;
  shard.file_bytes = header.file_bytes;
  shard.metadata = std::move(header.metadata);
  shard.first_tensor = tensors_.size();
  shard.tensor_count = header.tensors.size();
  for (SafetensorsTensor& tensor : header.tensors) tensor.shard = number;
  tensors_.insert(tensors_.end(), header.tensors.begin(), header.tensors.end());
  arenas_.push_back(std::move(header.arena));
  shards_.push_back(std::move(shard));
}

const SafetensorsTensor* SafetensorsSource::find(std::string_view name) const {
  const auto id = index_.find(name, [&](uint32_t i) { return tensor_name(i); });
  return id ? &tensors_[*id] : nullptr;
}

void SafetensorsSource::read(const SafetensorsTensor& tensor, uint64_t offset, MutableBytes out) const {
  TIERPACK_CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  if (out.empty()) return;
  shards_[tensor.shard].file->read_at(tensor.offset + offset, out);
}

}  // namespace tierpack
