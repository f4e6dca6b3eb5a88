// Packs: every file's size and SHA-256, every record and page, the padding between them, and with --deep the source
// shards that the pack promises to give back. Each file is read once, front to back.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/threads.h"
#include "formats/expert_stacks.h"
#include "formats/gguf.h"
#include "formats/pack.h"
#include "formats/pack_layout.h"
#include "formats/packed_shard.h"
#include "verify/range_checksums.h"
#include "verify/reference_choice.h"
#include "verify/verify_path.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kPieceBytes = uint64_t{256} << 10;  // fits in a core's cache: hashed while warm
constexpr uint64_t kManifestBytesMax = uint64_t{64} << 20;
constexpr uint64_t kRecordsBytesMax = uint64_t{1} << 30;
constexpr size_t kFindingsPerFile = 20;  // a large hole would give thousands

class PackVerification {
 public:
  explicit PackVerification(const VerifyOptions& options) : options_(options), team_(std::max(1, options.jobs)) {
    report_.path = options.path.string();
    report_.what = "pack";
  }

  Report run() {
    report_.references.push_back((options_.path / kPackManifestName).string());
    if (read_manifest()) {
      check_files();
      check_metadata();
      check_others();
      if (!options_.against.empty()) check_against();
      note_transcoded();
      if (options_.deep && manifest_.reversible()) check_shards();
    }
    sort_findings(report_);
    give_advice();
    return std::move(report_);
  }

 private:
  // Runs `body`; what it throws about the bytes becomes a finding about `where`.
  template <typename Body>
  bool guarded(const std::string& where, Finding::Kind kind, Body&& body) {
    try {
      body();
      return true;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kInterrupted || e.kind() == ErrorKind::kInternal) throw;
      add(e.kind() == ErrorKind::kIo ? Finding::Kind::kUnreadable : kind, where, e.what());
      return false;
    }
  }

  void add(Finding::Kind kind, const std::string& where, const std::string& message) {
    const std::lock_guard lock(mutex_);
    report_.add(kind, where, message);
  }

  bool read_manifest() {
    return guarded(kPackManifestName, Finding::Kind::kStructure, [&] {
      const std::string json = read_text_file(options_.path / kPackManifestName, kManifestBytesMax);
      const File file = File::open(options_.path / kPackRecordsName, File::Mode::kRead);
      std::vector<std::byte> sources;
      if (fs::exists(options_.path / kPackSourcesName)) {
        sources = read_all(File::open(options_.path / kPackSourcesName, File::Mode::kRead), kRecordsBytesMax);
      }
      manifest_ = parse_pack(json, read_all(file, kRecordsBytesMax), sources, options_.path.string());
    });
  }

  void check_files() {
    std::vector<const PackFile*> todo;
    uint64_t total = 0;
    for (const PackFile& file : manifest_.files) {
      todo.push_back(&file);
      total += file.bytes;
    }
    std::stable_sort(todo.begin(), todo.end(), [](const PackFile* a, const PackFile* b) { return a->bytes > b->bytes; });
    Progress progress("verifying " + report_.path, total, options_.progress);
    progress_ = &progress;
    team_.for_each(todo.size(), [&](size_t i) {
      guarded(todo[i]->name, Finding::Kind::kDigest, [&] { check_file(*todo[i]); });
    });
    progress_ = nullptr;
  }

  void check_file(const PackFile& promised) {
    const fs::path path = options_.path / promised.name;
    {
      const std::lock_guard lock(mutex_);
      ++report_.files;
    }
    if (!fs::exists(path)) return add(Finding::Kind::kMissing, promised.name, "belongs to the pack but is not there");
    const File file = File::open(path, File::Mode::kRead);
    if (file.size() != promised.bytes) {
      return add(Finding::Kind::kSize, promised.name,
                 fmt::format("has {} bytes, {} promises {}", file.size(), kPackManifestName, promised.bytes));
    }
    Sha256 hash;
    size_t found_before = 0;
    if (promised.name == segment_file_name(Segment::kRows)) {
      found_before = stream_pages(file, hash);
    } else {
      found_before = stream_records(file, promised.name, hash);
    }
    const Sha256Digest found = hash.finish();
    {
      const std::lock_guard lock(mutex_);
      report_.hashed_bytes += promised.bytes;
      if (found == promised.sha256) ++report_.proved_files;
    }
    if (found != promised.sha256) {
      add(Finding::Kind::kDigest, promised.name,
          fmt::format("has SHA-256 {}, {} promises {}{}", found.hex(), kPackManifestName, promised.sha256.hex(),
                      found_before > kFindingsPerFile ? fmt::format("; {} places are damaged", found_before) : ""));
    }
  }

  // Hashes a file and checks the records in it (none in most files); returns how many places are wrong.
  size_t stream_records(const File& file, const std::string& name, Sha256& hash) {
    std::vector<uint32_t> records;
    for (uint32_t i = 0; i < manifest_.records.size(); ++i) {
      if (segment_file_name(manifest_.records[i].segment) == name) records.push_back(i);
    }
    std::sort(records.begin(), records.end(),
              [&](uint32_t a, uint32_t b) { return manifest_.records[a].offset < manifest_.records[b].offset; });
    std::vector<ByteRange> ranges;
    for (const uint32_t i : records) ranges.push_back({manifest_.records[i].offset, manifest_.records[i].bytes});
    const bool segment = !records.empty();
    RangeChecksums sums(std::move(ranges));
    size_t wrong = 0;
    std::vector<std::byte> buffer(kPieceBytes);
    for (uint64_t at = 0; at < file.size();) {
      throw_if_interrupted();
      const MutableBytes piece = MutableBytes(buffer).first(std::min(file.size() - at, kPieceBytes));
      file.read_at(at, piece);
      hash.update(piece);
      if (segment) {
        sums.feed(
            piece,
            [&](size_t i, const Xxh128& found) {
              const Record& record = manifest_.records[records[i]];
              if (found == record.checksum) return;
              note_damage(records[i]);
              if (++wrong > kFindingsPerFile) return;
              add(Finding::Kind::kRecord, name,
                  fmt::format("record {} at byte {} ({} bytes, {}) has checksum {}, the pack says {}", records[i],
                              record.offset, record.bytes, owner_of(records[i]), found.hex(), record.checksum.hex()));
            },
            [&](uint64_t offset) {
              if (++wrong > kFindingsPerFile) return;
              add(Finding::Kind::kPadding, name, fmt::format("byte {} is padding but not zero", offset));
            });
      }
      at += piece.size();
      progress_->add(piece.size());
    }
    const std::lock_guard lock(mutex_);
    report_.records += records.size();
    return wrong;
  }

  size_t stream_pages(const File& file, Sha256& hash) {
    size_t wrong = 0;
    std::vector<std::byte> buffer;
    for (const RowTable& table : manifest_.rows) {
      const uint64_t units_per_piece = std::max<uint64_t>(1, kPieceBytes / table.unit_bytes());
      const uint64_t units = table.pages / table.pages_per_row;
      for (uint64_t unit = 0; unit < units; unit += units_per_piece) {
        throw_if_interrupted();
        const uint64_t count = std::min(units_per_piece, units - unit);
        const uint64_t first_page = table.first_page + unit * table.pages_per_row;
        buffer.resize(count * table.unit_bytes());
        file.read_at(first_page * kPageBytes, buffer);
        hash.update(buffer);
        for (uint64_t i = 0; i < count; ++i) {
          const Bytes one = Bytes(buffer).subspan(i * table.unit_bytes(), table.unit_bytes());
          const uint64_t page = first_page + i * table.pages_per_row;
          if (unit_is_intact(one, page)) continue;
          note_damage(table.name);
          if (++wrong > kFindingsPerFile) continue;
          add(Finding::Kind::kPage, segment_file_name(Segment::kRows),
              fmt::format("page {} at byte {} (rows {} and on of {}) does not match its checksum", page, page * kPageBytes,
                          (unit + i) * table.unit_rows(), table.name));
        }
        progress_->add(buffer.size());
      }
      const std::lock_guard lock(mutex_);
      report_.pages += table.pages;
    }
    return wrong;
  }

  std::string owner_of(uint32_t record) const {
    for (const DenseTensor& tensor : manifest_.dense) {
      if (tensor.record == record) return tensor.name;
    }
    for (const ExpertLayer& layer : manifest_.expert_layers) {
      if (record >= layer.first_record && record - layer.first_record < layer.experts) {
        return fmt::format("layer {} expert {}", layer.layer, record - layer.first_record);
      }
    }
    return "no owner";
  }

  void note_damage(const std::string& tensor) {
    const std::lock_guard lock(mutex_);
    damaged_tensors_.insert(tensor);
  }

  void note_damage(uint32_t record) {
    for (const DenseTensor& tensor : manifest_.dense) {
      if (tensor.record == record) return note_damage(tensor.name);
    }
    for (const ExpertLayer& layer : manifest_.expert_layers) {
      if (record < layer.first_record || record - layer.first_record >= layer.experts) continue;
      for (const ExpertPart* part : layer.parts()) note_damage(part->tensor);
    }
  }

  // A pack is made, not published: nobody has its bytes to download. What can be told is which shards of the source the
  // damaged records were made from.
  void give_advice() {
    if (report_.ok()) return;
    if (!damaged_tensors_.empty()) {
      std::string shards;
      for (const SourceShard& shard : manifest_.sources) {
        const bool needed = std::any_of(shard.pieces.begin(), shard.pieces.end(), [&](const SourcePiece& piece) {
          if (piece.from != SourcePiece::From::kTensor && piece.from != SourcePiece::From::kRows) return false;
          return damaged_tensors_.count(manifest_.tensor_name(piece.tensor)) > 0 ||
                 (piece.rows.ways == 2 && damaged_tensors_.count(manifest_.tensor_name(piece.rows.other)) > 0);
        });
        if (needed) shards += fmt::format("{}{} (SHA-256 {})", shards.empty() ? "" : ", ", shard.path, shard.sha256.hex());
      }
      report_.advice.push_back(fmt::format("the damaged bytes belong to {} tensor{} from {}", damaged_tensors_.size(),
                                           damaged_tensors_.size() == 1 ? "" : "s", shards));
    }
    report_.advice.push_back(fmt::format("a pack cannot be downloaded, so it is not repaired in place: fetch its source again and "
                                         "run tierpack repack SOURCE --to {}", report_.path));
  }

  // What the reader asks of the pack as a whole; files already found wrong are not complained about again.
  void check_metadata() {
    if (!report_.ok()) return;
    guarded(kPackManifestName, Finding::Kind::kStructure, [&] {
      pack_ = Pack::open(options_.path);
      pack_->profile();
    });
  }

  void check_others() {
    for (const fs::directory_entry& entry : fs::directory_iterator(options_.path)) {
      const std::string name = entry.path().filename().string();
      const bool known = name == kPackManifestName || std::any_of(manifest_.files.begin(), manifest_.files.end(),
                                                                  [&](const PackFile& file) { return file.name == name; });
      if (!known) add(Finding::Kind::kUnlisted, name, "is not part of the pack");
    }
  }

  // The measured error of what was coded anew, by class of tensor: what the names have in common over the blocks.
  void note_transcoded() {
    struct Class {
      size_t tensors = 0;
      double sum = 0, largest = 0;
    };
    std::map<std::string, Class> classes;
    for (const Transcoded& item : manifest_.transcoded) {
      const size_t dot = block_of(item.tensor) < 0 ? std::string::npos : item.tensor.find('.', 4);
      const std::string name = dot == std::string::npos ? item.tensor : item.tensor.substr(dot + 1);
      Class& c = classes[fmt::format("{}, {} from {}", name, dtype_name(item.to), dtype_name(item.from))];
      ++c.tensors;
      c.sum += item.error;
      c.largest = std::max(c.largest, item.error);
    }
    for (const auto& [name, c] : classes) {
      add(Finding::Kind::kTranscoded, kPackManifestName,
          fmt::format("{}: relative squared error {:.3g} on average, {:.3g} at most, over {} tensor{}", name, c.sum / static_cast<double>(c.tensors), c.largest,
                      c.tensors, c.tensors == 1 ? "" : "s"));
    }
  }

  // A reference for a pack speaks of its source shards.
  void check_against() {
    const Reference reference = read_against(options_);
    report_.references.push_back(options_.against);
    for (const SourceShard& shard : manifest_.sources) {
      const auto promised = std::find_if(reference.files.begin(), reference.files.end(), [&](const PromisedFile& file) {
        return fs::path(file.path).filename() == shard.path;
      });
      if (promised == reference.files.end()) {
        add(Finding::Kind::kUnlisted, shard.path, "is not mentioned by " + options_.against);
      } else if (!promised->sha256) {
        add(Finding::Kind::kUnlisted, shard.path, "has no SHA-256 in " + options_.against);
      } else if (*promised->sha256 != shard.sha256) {
        add(Finding::Kind::kShard, shard.path,
            fmt::format("the pack was made from a file with SHA-256 {}, {} promises {}", shard.sha256.hex(),
                        options_.against, promised->sha256->hex()));
      }
    }
  }

  void check_shards() {
    if (!pack_) {
      // Damage is already reported; the shards are recomputed all the same if the pack can be opened.
      if (!guarded(kPackManifestName, Finding::Kind::kStructure, [&] { pack_ = Pack::open(options_.path); })) return;
    }
    uint64_t total = 0;
    for (const SourceShard& shard : manifest_.sources) total += shard.bytes;
    Progress progress("recomputing the source of " + report_.path, total, options_.progress);
    team_.for_each(manifest_.sources.size(), [&](size_t i) {
      const SourceShard& shard = manifest_.sources[i];
      guarded(shard.path, Finding::Kind::kShard, [&] {
        const Sha256Digest found = sha256_of(PackedShard(*pack_, i), 0, shard.bytes, [&](uint64_t bytes) {
          throw_if_interrupted();
          progress.add(bytes);
        });
        if (found != shard.sha256) {
          add(Finding::Kind::kShard, shard.path,
              fmt::format("is given back with SHA-256 {}, expected {}", found.hex(), shard.sha256.hex()));
          return;
        }
        const std::lock_guard lock(mutex_);
        ++report_.shards;
      });
    });
  }

  const VerifyOptions& options_;
  ThreadTeam team_;
  PackManifest manifest_;
  std::optional<Pack> pack_;
  Progress* progress_ = nullptr;
  std::set<std::string> damaged_tensors_;
  std::mutex mutex_;
  Report report_;
};

}  // namespace

Report verify_pack(const VerifyOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Report report = PackVerification(options).run();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace tierpack::verify
