// What a repack has done so far, on disk: a killed one goes on where it was, and the shares of several are joined.
//
// part-00001-of-00003.journal: "TPJOURNL", u32 version, u32 part, u32 parts, u32 zero, u128 plan, then entries of 64 bytes, each with
// a checksum of its own. An entry is written after the bytes it speaks of are on the disk. A torn last entry is as good as none.
// Journals are removed when the pack gets its name; their layout may change with every version, which the plan's number contains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "repack/repack_plan.h"

namespace tierpack::repack {

// What is known of a plan's parts; of everything else nothing is.
struct CopyState {
  // `shard_times` is empty where nothing may change.
  explicit CopyState(const RepackPlan& plan, std::vector<int64_t> shard_times = {});
  std::vector<std::vector<Xxh128>> extents;      // of the source's bytes, like plan.extents
  std::vector<std::vector<uint8_t>> stored;      // extents that are in the pack (spans: that were read)
  std::vector<Xxh128> gathers;                   // of the checksums of their inputs
  std::vector<uint8_t> gathered;
  // Transcoded extents, like plan.extents; empty in other plans.
  struct Coded {
    Xxh128 sum;  // of the bytes written
    double error = 0, square = 0;
  };
  std::vector<std::vector<Coded>> coded;
  std::vector<Xxh128> derived;                   // of the bytes written
  std::vector<uint8_t> written;                  // derived values that are in the pack
  std::vector<std::optional<Sha256Digest>> shards;
  std::vector<uint8_t> verified;                 // shards whose bytes were read back from the pack
  std::vector<uint8_t> parts_done;               // by part
  std::vector<int64_t> times;                    // of the shards' last change; what was said of a shard with another time is not believed

  bool has_shard(uint32_t shard) const;          // all its extents
  void forget(uint32_t shard);                   // it is to be copied anew

 private:
  const RepackPlan& plan_;
};

// A number for everything that journal entries refer to: the plan with the sizes of the source's files, what was promised about them, and the way
// extents are cut. Whether scales may be other than finite is not part of it.
Xxh128 plan_number(const RepackPlan& plan, const std::vector<Sha256Digest>& promised, uint64_t extent_bytes_max);

class Journal {
 public:
  // Opens or begins the journal of a part (0-based) in `directory`; entries of another plan are discarded. kUsage when another process has it.
  Journal(const std::filesystem::path& directory, uint32_t part, uint32_t parts, const Xxh128& plan, CopyState& state);

  // Bytes that entries wait for, and how they get onto the disk.
  void on_sync(std::function<void()> sync) { sync_ = std::move(sync); }
  void extent(uint32_t shard, uint64_t index, const Xxh128& sum, uint64_t bytes);
  void coded(uint32_t shard, uint64_t index, const CopyState::Coded& coded);  // before the extent itself
  void gather(uint64_t index, const Xxh128& sum, uint64_t bytes);
  void derived(uint64_t index, const Xxh128& sum);
  void shard(uint32_t shard, int64_t time, const Sha256Digest& digest);
  void verified(uint32_t shard, int64_t time);
  void forget(uint32_t shard);
  void part_done();
  // Everything said so far is on the disk.
  void flush();

  // Reads every journal of `parts` parts in the directory into `state`.
  static void read_all(const std::filesystem::path& directory, uint32_t parts, const Xxh128& plan, CopyState& state);
  static std::string file_name(uint32_t part, uint32_t parts);
  // Whether a directory holds a journal of another plan, or of another number of parts.
  static bool belongs_to_another(const std::filesystem::path& directory, uint32_t parts, const Xxh128& plan);

 private:
  struct Entry;
  void add(const Entry& entry, uint64_t bytes);
  static bool read(const File& file, uint32_t part, uint32_t parts, const Xxh128& plan, CopyState& state, uint64_t* end);

  uint32_t part_, parts_;
  std::optional<FileLock> lock_;
  std::optional<File> file_;
  uint64_t at_ = 0;
  std::function<void()> sync_;
  std::mutex adding_, flushing_;
  std::vector<std::byte> pending_;
  uint64_t pending_bytes_ = 0;
  bool failed_ = false;
};

}  // namespace tierpack::repack
