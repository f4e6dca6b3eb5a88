#include "repack/copy_journal.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "formats/model_config.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "TPJOURNL";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kHeaderBytes = 40;
constexpr uint64_t kEntryBytes = 64;
constexpr uint64_t kSyncBytes = uint64_t{512} << 20;  // of pack, between two times that journal and pack are synced

enum Kind : uint32_t { kExtent = 1, kGather = 2, kDerived = 3, kShard = 4, kVerified = 5, kPartDone = 6, kCoded = 7, kForget = 8 };

std::vector<std::byte> header_of(uint32_t part, uint32_t parts, const Xxh128& plan) {
  std::vector<std::byte> out(kHeaderBytes);
  std::copy_n(as_bytes(kMagic).begin(), kMagic.size(), out.begin());
  store(&out[8], kVersion);
  store(&out[12], part);
  store(&out[16], parts);
  store(&out[24], plan.low);
  store(&out[32], plan.high);
  return out;
}

}  // namespace

struct Journal::Entry {
  uint32_t kind = 0;
  uint32_t shard = 0;
  uint64_t index = 0;
  std::array<std::byte, 32> payload{};

  static Entry with_sum(uint32_t kind, uint32_t shard, uint64_t index, const Xxh128& sum) {
    Entry out{kind, shard, index, {}};
    store(&out.payload[0], sum.low);
    store(&out.payload[8], sum.high);
    return out;
  }
  Xxh128 sum() const { return {load<uint64_t>(&payload[0]), load<uint64_t>(&payload[8])}; }
};

CopyState::CopyState(const RepackPlan& plan, std::vector<int64_t> shard_times)
    : gathers(plan.gathers.size()),
      gathered(plan.gathers.size()),
      derived(plan.derived.size()),
      written(plan.derived.size()),
      shards(plan.extents.size()),
      verified(plan.extents.size()),
      times(std::move(shard_times)),
      plan_(plan) {
  times.resize(plan.extents.size());
  for (const std::vector<Extent>& of_shard : plan.extents) {
    extents.emplace_back(of_shard.size());
    stored.emplace_back(of_shard.size());
    if (!plan.transcoded.empty()) coded.emplace_back(of_shard.size());
  }
}

void CopyState::forget(uint32_t shard) {
  std::fill(stored[shard].begin(), stored[shard].end(), uint8_t{0});
  for (const Extent& extent : plan_.extents[shard]) {
    if (extent.kind == Extent::Kind::kSpan) gathered[plan_.inputs[extent.input].gather] = 0;
  }
  shards[shard].reset();
  verified[shard] = 0;
}

bool CopyState::has_shard(uint32_t shard) const {
  return std::all_of(stored[shard].begin(), stored[shard].end(), [](uint8_t done) { return done != 0; });
}

Xxh128 plan_number(const RepackPlan& plan, const std::vector<Sha256Digest>& promised, uint64_t extent_bytes_max) {
  Xxh3Stream hash;
  const auto add = [&](Bytes bytes) { hash.update(bytes); };
  const auto number = [&](auto value) { add(std::as_bytes(std::span(&value, 1))); };
  PackManifest manifest = plan.manifest;
  manifest.nonfinite_allowed = false;
  add(as_bytes(encode_pack_json(manifest, plan.config)));
  add(encode_records(plan.manifest.records));
  add(encode_sources(plan.manifest.sources));
  add(plan.metadata);
  for (const Sha256Digest& digest : promised) add(digest.bytes);
  number(extent_bytes_max);
  number(kVersion);
  return hash.digest();
}

std::string Journal::file_name(uint32_t part, uint32_t parts) { return fmt::format("part-{:05}-of-{:05}.journal", part + 1, parts); }

Journal::Journal(const fs::path& directory, uint32_t part, uint32_t parts, const Xxh128& plan, CopyState& state) : part_(part), parts_(parts) {
  const fs::path path = directory / file_name(part, parts);
  lock_ = FileLock::try_acquire(path);
  if (!lock_) fail(ErrorKind::kUsage, "{} is being written by another process; wait for it", path.string());
  file_ = File::open(path, File::Mode::kReadWrite);
  if (file_->size() >= kHeaderBytes && read(*file_, part, parts, plan, state, &at_)) {
    file_->truncate(at_);
    return;
  }
  file_->truncate(0);
  file_->write_at(0, header_of(part, parts, plan));
  file_->sync();
  at_ = kHeaderBytes;
}

bool Journal::read(const File& file, uint32_t part, uint32_t parts, const Xxh128& plan, CopyState& state, uint64_t* end) {
  const uint64_t size = file.size();
  std::vector<std::byte> head(kHeaderBytes);
  if (size < kHeaderBytes) return false;
  file.read_at(0, head);
  if (head != header_of(part, parts, plan)) return false;
  constexpr uint64_t kPiece = kEntryBytes * 4096;
  std::vector<std::byte> buffer;
  uint64_t at = kHeaderBytes;
  while (size - at >= kEntryBytes) {
    buffer.resize(std::min(kPiece, (size - at) / kEntryBytes * kEntryBytes));
    file.read_at(at, buffer);
    for (size_t i = 0; i < buffer.size(); i += kEntryBytes, at += kEntryBytes) {
      const std::byte* const raw = &buffer[i];
      Entry entry;
      entry.kind = load<uint32_t>(raw);
      entry.shard = load<uint32_t>(raw + 4);
      entry.index = load<uint64_t>(raw + 8);
      std::copy_n(raw + 16, entry.payload.size(), entry.payload.begin());
      bool good = load<uint64_t>(raw + 56) == xxh3_128({raw, 56}).low;
      if (good) {
        switch (entry.kind) {
          case kExtent:
            good = entry.shard < state.extents.size() && entry.index < state.extents[entry.shard].size();
            if (!good) break;
            state.extents[entry.shard][entry.index] = entry.sum();
            state.stored[entry.shard][entry.index] = 1;
            break;
          case kCoded:
            good = entry.shard < state.coded.size() && entry.index < state.coded[entry.shard].size();
            if (!good) break;
            state.coded[entry.shard][entry.index] = {entry.sum(), load<double>(&entry.payload[16]), load<double>(&entry.payload[24])};
            break;
          case kGather:
            good = entry.index < state.gathers.size();
            if (!good) break;
            state.gathers[entry.index] = entry.sum();
            state.gathered[entry.index] = 1;
            break;
          case kDerived:
            good = entry.index < state.derived.size();
            if (!good) break;
            state.derived[entry.index] = entry.sum();
            state.written[entry.index] = 1;
            break;
          case kShard: {
            good = entry.shard < state.shards.size();
            if (!good) break;
            Sha256Digest digest;
            std::copy(entry.payload.begin(), entry.payload.end(), digest.bytes.begin());
            if (entry.index == static_cast<uint64_t>(state.times[entry.shard])) state.shards[entry.shard] = digest;
            break;
          }
          case kVerified:
            good = entry.shard < state.verified.size();
            if (good && entry.index == static_cast<uint64_t>(state.times[entry.shard])) state.verified[entry.shard] = 1;
            break;
          case kForget:
            good = entry.shard < state.shards.size();
            if (good) state.forget(entry.shard);
            break;
          case kPartDone:
            state.parts_done.resize(parts);
            state.parts_done[part] = 1;
            break;
          default: good = false;
        }
      }
      if (!good) {  // torn, or not ours
        if (end != nullptr) *end = at;
        return true;
      }
    }
  }
  if (end != nullptr) *end = at;
  return true;
}

void Journal::read_all(const fs::path& directory, uint32_t parts, const Xxh128& plan, CopyState& state) {
  state.parts_done.assign(parts, 0);
  for (uint32_t part = 0; part < parts; ++part) {
    const fs::path path = directory / file_name(part, parts);
    if (fs::exists(path)) read(File::open(path, File::Mode::kRead), part, parts, plan, state, nullptr);
  }
}

bool Journal::belongs_to_another(const fs::path& directory, uint32_t parts, const Xxh128& plan) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".journal") continue;
    std::vector<std::byte> head(kHeaderBytes);
    const File file = File::open(entry.path(), File::Mode::kRead);
    if (file.size() < kHeaderBytes) continue;  // just begun
    file.read_at(0, head);
    const auto part = load<uint32_t>(&head[12]);
    if (head != header_of(part, parts, plan)) return true;
  }
  return false;
}

void Journal::add(const Entry& entry, uint64_t bytes) {
  std::array<std::byte, kEntryBytes> raw{};
  store(&raw[0], entry.kind);
  store(&raw[4], entry.shard);
  store(&raw[8], entry.index);
  std::copy(entry.payload.begin(), entry.payload.end(), raw.begin() + 16);
  store(&raw[56], xxh3_128({raw.data(), 56}).low);
  bool full = false;
  {
    const std::lock_guard lock(adding_);
    pending_.insert(pending_.end(), raw.begin(), raw.end());
    pending_bytes_ += bytes;
    full = pending_bytes_ >= kSyncBytes;
    if (full) pending_bytes_ = 0;
  }
  if (full) flush();
}

void Journal::flush() {
  const std::lock_guard one_at_a_time(flushing_);
  std::vector<std::byte> entries;
  {
    const std::lock_guard lock(adding_);
    entries.swap(pending_);
  }
  if (entries.empty()) return;
  // The kernel tells of a failed write once: after one, nothing more is said to be on the disk.
  if (failed_) fail(ErrorKind::kIo, "{}: an earlier write failed", file_->name());
  failed_ = true;
  if (sync_) sync_();
  file_->write_at(at_, entries);
  file_->sync_data();
  at_ += entries.size();
  failed_ = false;
}

void Journal::extent(uint32_t shard, uint64_t index, const Xxh128& sum, uint64_t bytes) {
  add(Entry::with_sum(kExtent, shard, index, sum), bytes);
}
void Journal::coded(uint32_t shard, uint64_t index, const CopyState::Coded& coded) {
  Entry entry = Entry::with_sum(kCoded, shard, index, coded.sum);
  store(&entry.payload[16], coded.error);
  store(&entry.payload[24], coded.square);
  add(entry, 0);
}

void Journal::gather(uint64_t index, const Xxh128& sum, uint64_t bytes) { add(Entry::with_sum(kGather, 0, index, sum), bytes); }
void Journal::derived(uint64_t index, const Xxh128& sum) { add(Entry::with_sum(kDerived, 0, index, sum), 0); }

void Journal::shard(uint32_t shard, int64_t time, const Sha256Digest& digest) {
  Entry entry{kShard, shard, static_cast<uint64_t>(time), {}};
  std::copy(digest.bytes.begin(), digest.bytes.end(), entry.payload.begin());
  add(entry, 0);
}

void Journal::verified(uint32_t shard, int64_t time) { add({kVerified, shard, static_cast<uint64_t>(time), {}}, 0); }
void Journal::forget(uint32_t shard) { add({kForget, shard, 0, {}}, 0); }

void Journal::part_done() {
  flush();
  add({kPartDone, part_, 0, {}}, 0);
  flush();
}

}  // namespace tierpack::repack
