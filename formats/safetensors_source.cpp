// Checkpoints of several files: the index, and the files opened together.
#include <algorithm>
#include <map>

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

class IndexParser {
 public:
  IndexParser(std::string_view text, const std::string& source) : json_(text, source), source_(source) {}

  SafetensorsIndex parse() {
    bool seen = false;
    json_.object("a JSON object", [&](std::string_view key) {
      if (key != "weight_map") {
        json_.skip_value();
        return;
      }
      if (seen) json_.fail_here("weight_map appears twice");
      seen = true;
      json_.object("weight_map as an object", [&](std::string_view name) { parse_entry(name); });
    });
    json_.end();
    if (!seen) fail(ErrorKind::kCorrupt, "{}: 'weight_map' is missing", source_);
    check_names();
    sort_files();
    return std::move(index_);
  }

 private:
  void parse_entry(std::string_view name) {
    if (!is_tensor_name(name)) json_.fail_here("a tensor name that is too long or has control characters");
    if (index_.entries.size() == kMaxSafetensorsTensors) {
      json_.fail_here(fmt::format("weight_map names more than {} tensors", kMaxSafetensorsTensors));
    }
    const std::string_view kept = index_.arena.keep(name);
    const std::string_view file = json_.string("a file name in weight_map");
    index_.entries.push_back({kept, file_id(file)});
  }

  uint32_t file_id(std::string_view file) {
    if (const auto known = ids_.find(file); known != ids_.end()) return known->second;
    if (!is_plain_name(file)) {
      json_.fail_here("weight_map names a file outside the index's own directory, or one with an unusable name");
    }
    if (ids_.size() == kMaxSafetensorsShards) {
      json_.fail_here(fmt::format("weight_map names more than {} files", kMaxSafetensorsShards));
    }
    return ids_.emplace(std::string(file), static_cast<uint32_t>(ids_.size())).first->second;
  }

  void check_names() const {
    NameIndex names;
    names.reserve(index_.entries.size());
    for (const auto& entry : index_.entries) names.add(entry.tensor, entry.file);
    names.sort();
    if (const auto twice = names.duplicate()) {
      fail(ErrorKind::kCorrupt, "{}: weight_map lists tensor '{}' twice", source_, *twice);
    }
  }

  // Files in order of name, whatever the order of tensors.
  void sort_files() {
    std::vector<uint32_t> place(ids_.size());
    for (const auto& [name, id] : ids_) {
      place[id] = static_cast<uint32_t>(index_.files.size());
      index_.files.push_back(name);
    }
    for (auto& entry : index_.entries) entry.file = place[entry.file];
  }

  JsonCursor json_;
  std::string source_;
  SafetensorsIndex index_;
  std::map<std::string, uint32_t, std::less<>> ids_;
};

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

SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& source) {
  if (text.size() > kMaxIndexBytes) {
    fail(ErrorKind::kCorrupt, "{}: an index of {} bytes, more than {}", source, text.size(), kMaxIndexBytes);
  }
  return IndexParser(text, source).parse();
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
  source.index_.reserve(source.tensors_.size());
  for (size_t i = 0; i < source.tensors_.size(); ++i) {
    source.index_.add(source.tensors_[i].name, static_cast<uint32_t>(i));
  }
  source.index_.sort();
  return source;
}

SafetensorsSource SafetensorsSource::open_index(std::string_view index_text, const std::string& index_name,
                                                const Opener& opener) {
  const SafetensorsIndex listed = parse_safetensors_index(index_text, index_name);
  SafetensorsSource source;
  source.name_ = index_name;
  for (const std::string& name : listed.files) source.add_shard(opener(name), name);

  NameIndex present;  // a name may be in several shards; the index says which one counts
  present.reserve(source.tensors_.size());
  for (size_t i = 0; i < source.tensors_.size(); ++i) {
    source.tensors_[i].listed = false;
    present.add(source.tensors_[i].name, static_cast<uint32_t>(i));
  }
  present.sort();
  source.index_.reserve(listed.entries.size());
  for (const auto& entry : listed.entries) {
    SafetensorsTensor* found = nullptr;
    for (const uint32_t id : present.find_all(entry.tensor)) {
      if (source.tensors_[id].shard == entry.file) found = &source.tensors_[id];
    }
    if (found == nullptr) {
      fail(ErrorKind::kCorrupt, "{}: places tensor '{}' in {}, but that file does not hold it", index_name,
           entry.tensor, listed.files[entry.file]);
    }
    found->listed = true;
    source.index_.add(found->name, static_cast<uint32_t>(found - source.tensors_.data()));
  }
  source.index_.sort();
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
  const auto id = index_.find(name);
  return id ? &tensors_[*id] : nullptr;
}

void SafetensorsSource::read(const SafetensorsTensor& tensor, uint64_t offset, MutableBytes out) const {
  TIERPACK_CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  if (out.empty()) return;
  shards_[tensor.shard].file->read_at(tensor.offset + offset, out);
}

}  // namespace tierpack
