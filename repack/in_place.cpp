#include "repack/in_place.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStateName = "in-place.json";
constexpr const char* kMetadataName = "in-place.metadata";
constexpr uint64_t kStateBytesMax = uint64_t{256} << 20;

std::string head_name(size_t shard) { return fmt::format("in-place.{:05}.head", shard + 1); }

// What is left of a deleted shard.
class RemovedShard final : public ByteSource {
 public:
  RemovedShard(std::string name, uint64_t size, std::vector<std::byte> head) : name_(std::move(name)), size_(size), head_(std::move(head)) {}
  uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  void read_at(uint64_t offset, MutableBytes out) const override {
    if (offset > head_.size() || out.size() > head_.size() - offset) {
      fail(ErrorKind::kUsage, "{}: was deleted by --in-place and its bytes from {} on are needed: they are in the unfinished pack. Run the same command "
           "with the same options and version again", name_, offset);
    }
    std::copy_n(head_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
  }

 private:
  std::string name_;
  uint64_t size_;
  std::vector<std::byte> head_;
};

// The same for the reader of GGUF headers, which reads ahead: zeros follow the head.
class PaddedHead final : public ByteSource {
 public:
  PaddedHead(std::string name, uint64_t size, std::vector<std::byte> head) : name_(std::move(name)), size_(size), head_(std::move(head)) {}
  uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  void read_at(uint64_t offset, MutableBytes out) const override {
    std::fill(out.begin(), out.end(), std::byte{0});
    if (offset >= head_.size()) return;
    std::copy_n(head_.begin() + static_cast<ptrdiff_t>(offset), std::min<uint64_t>(out.size(), head_.size() - offset), out.begin());
  }

 private:
  std::string name_;
  uint64_t size_;
  std::vector<std::byte> head_;
};

uint64_t head_bytes(const RepackShard& shard, const ShardLayout& layout) {
  if (!layout.of_checkpoint) return layout.gaps.empty() ? 0 : layout.gaps.front().bytes;
  std::array<std::byte, 8> first;
  shard.bytes->read_at(0, first);
  return safetensors_header_bytes(first, shard.bytes->size(), shard.name).value();
}

// Whether a source given as `path` is the model in `directory`: the directory, a folder above it, or a file in it.
bool names_model_in(const fs::path& path, const fs::path& directory) {
  constexpr int kFoldersBelow = 3;  // see open_gguf()
  fs::path asked = fs::absolute(path).lexically_normal();
  if (!asked.has_filename()) asked = asked.parent_path();
  fs::path folder = directory.lexically_normal();
  if (asked.parent_path() == folder) return true;
  for (int i = 0; i <= kFoldersBelow; ++i, folder = folder.parent_path()) {
    if (asked == folder) return true;
  }
  return false;
}

}  // namespace

void require_removable(const RepackSource& source) {
  if (source.pack) fail(ErrorKind::kUsage, "{}: is a pack; --in-place deletes the shards of a GGUF or a checkpoint", source.name);
  for (const RepackShard& shard : source.shards) {
    if (!shard.removable || shard.removed) continue;
    struct stat info {};
    if (::lstat(shard.path.c_str(), &info) != 0) fail_errno(fmt::format("cannot look at {}", shard.path.string()));
    if (S_ISLNK(info.st_mode) || info.st_nlink > 1) {
      fail(ErrorKind::kUsage, "{}: is a link, so deleting it would free nothing; name the directory that holds the files themselves, or leave out --in-place",
           shard.path.string());
    }
  }
}

uint64_t in_place_peak(const RepackPlan& plan, const RepackSource& source, const fs::path& part) {
  struct stat target {};
  if (::stat(part.c_str(), &target) != 0) fail_errno(fmt::format("cannot look at {}", part.string()));
  // What is deleted makes room only on its own filesystem.
  const auto makes_room = [&](const RepackShard& shard) {
    struct stat info {};
    return shard.removable && (shard.removed || (::stat(shard.path.c_str(), &info) == 0 && info.st_dev == target.st_dev));
  };
  // The last shard whose copying a shard has to wait for before it can go.
  std::vector<uint32_t> needed_until(source.shards.size());
  for (uint32_t i = 0; i < needed_until.size(); ++i) needed_until[i] = i;
  for (const Gather& gather : plan.gathers) {
    uint32_t last = 0;
    for (uint32_t i = gather.first_input; i < gather.first_input + gather.inputs; ++i) last = std::max(last, plan.inputs[i].shard);
    for (uint32_t i = gather.first_input; i < gather.first_input + gather.inputs; ++i) {
      uint32_t& until = needed_until[plan.inputs[i].shard];
      until = std::max(until, last);
    }
  }
  uint64_t peak = 0, used = plan.pack_bytes();
  for (int i = 0; i < kTargets; ++i) used -= plan.target_bytes(static_cast<Target>(i));
  uint64_t freed = 0;
  for (uint32_t shard = 0; shard < source.shards.size(); ++shard) {
    // Pages and record padding are counted with the tensors' bytes they belong to: a shard's share is at least what it had.
    for (const Extent& extent : plan.extents[shard]) used += extent.kind == Extent::Kind::kSpan ? extent.source_bytes : extent.target_bytes;
    peak = std::max(peak, used - std::min(used, freed));
    for (uint32_t i = 0; i <= shard; ++i) {
      if (needed_until[i] == shard && makes_room(source.shards[i])) freed += source.shards[i].bytes->size();
    }
  }
  const uint64_t end = plan.pack_bytes();
  return std::max(peak, end - std::min(end, freed));
}

void save_in_place(const fs::path& part, const RepackSource& source, const std::vector<ShardLayout>& layouts, const Metadata& metadata,
                   const Sha256Digest& routing_id) {
  Json shards = Json::array();
  for (size_t i = 0; i < source.shards.size(); ++i) {
    const RepackShard& shard = source.shards[i];
    Json item{{"name", shard.name}, {"bytes", shard.bytes->size()}, {"time", shard.time}, {"removable", shard.removable}};
    if (shard.removable) {
      std::vector<std::byte> head(head_bytes(shard, layouts[i]));
      shard.bytes->read_at(0, head);
      write_file_atomically(part / head_name(i), head);
      Json gaps = Json::array();
      for (const Gap& gap : layouts[i].gaps) gaps.push_back({gap.offset, gap.bytes, gap.zeros});
      item["gaps"] = gaps;
      item["head"] = Sha256::of(head).hex();
    }
    shards.push_back(item);
  }
  write_file_atomically(part / kMetadataName, encode_gguf_header(metadata, {}, metadata.u64_or("general.alignment", 32)));
  const Json state{{"version", 1}, {"routing_id", routing_id.hex()}, {"directory", fs::absolute(source.shards.front().path).parent_path().string()},
                   {"shards", shards}};
  write_file_atomically(part / kStateName, as_bytes(dump_json(state)));
  sync_directory(part);
}

std::optional<InPlaceState> load_in_place(const fs::path& part, const fs::path& path) {
  if (!fs::exists(part / kStateName)) return std::nullopt;
  const std::string name = (part / kStateName).string();
  const Json state = parse_json(read_text_file(part / kStateName, kStateBytesMax), name);
  InPlaceState out;
  out.routing_id = Sha256Digest::from_hex(json_string(state, "routing_id", name));
  out.source = std::make_unique<RepackSource>();
  RepackSource& source = *out.source;
  source.name = path.string();
  const fs::path directory = json_string(state, "directory", name);
  const std::vector<std::byte> metadata = read_all(File::open(part / kMetadataName, File::Mode::kRead), GgufLimits::kHeaderBytes);
  const bool checkpoint = std::any_of(json_member(state, "shards", name).begin(), json_member(state, "shards", name).end(),
                                      [&](const Json& item) { return json_string(item, "name", name).ends_with(".safetensors"); });
  source.metadata = std::move(read_gguf_header(MemorySource(metadata, kMetadataName)).metadata);
  bool any_removed = false;
  for (const Json& item : json_member(state, "shards", name)) {
    RepackShard& shard = source.shards.emplace_back();
    shard.name = json_string(item, "name", name);
    shard.path = directory / shard.name;
    shard.time = json_member(item, "time", name).get<int64_t>();
    shard.removable = json_member(item, "removable", name).get<bool>();
    const uint64_t bytes = json_u64(item, "bytes", name);
    if (fs::exists(shard.path)) {
      source.files.push_back(std::make_unique<File>(File::open(shard.path, File::Mode::kRead)));
      shard.bytes = source.files.back().get();
      if (!checkpoint) source.gguf.headers.push_back(read_gguf_header(*shard.bytes));
      const auto time = fs::last_write_time(shard.path).time_since_epoch();
      shard.time = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    } else {
      if (!shard.removable) fail(ErrorKind::kCorrupt, "{}: belongs to the unfinished pack {} and is gone; if the model's directory was moved, move it back", shard.path.string(), part.string());
      shard.removed = true;
      any_removed = true;
      std::vector<std::byte> head = read_all(File::open(part / head_name(source.shards.size() - 1), File::Mode::kRead), kStateBytesMax);
      if (Sha256::of(head).hex() != json_string(item, "head", name)) fail(ErrorKind::kCorrupt, "{}: damaged", (part / head_name(source.shards.size() - 1)).string());
      if (!checkpoint) source.gguf.headers.push_back(read_gguf_header(PaddedHead(shard.path.string(), bytes, head)));
      source.removed.push_back(std::make_unique<RemovedShard>(shard.path.string(), bytes, std::move(head)));
      shard.bytes = source.removed.back().get();
      std::vector<Gap> gaps;
      for (const Json& gap : json_member(item, "gaps", name)) gaps.push_back({gap.at(0).get<uint64_t>(), gap.at(1).get<uint64_t>(), gap.at(2).get<bool>()});
      if (!checkpoint) shard.gaps = std::move(gaps);
    }
  }
  if (!any_removed) return std::nullopt;  // nothing is lost yet: the source itself says everything
  if (!names_model_in(path, directory)) {
    fail(ErrorKind::kUsage, "{}: is the unfinished --in-place pack of the model in {}, some of whose shards are deleted already; run that command again to "
         "finish it, or choose another name for this one", part.string(), directory.string());
  }
  read_repack_source(source);
  return out;
}

}  // namespace tierpack::repack
