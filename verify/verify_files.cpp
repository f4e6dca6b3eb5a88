// Source directories and single files: promises of a lock or SHA256SUMS, and the structure of the containers.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/threads.h"
#include "formats/lock.h"
#include "formats/pack.h"
#include "verify/promises.h"
#include "verify/structure.h"
#include "verify/verify_path.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

// A file to look at.
struct Candidate {
  std::string name;  // relative to the directory
  fs::path path;
  uint64_t bytes = 0;
  const PromisedFile* promise = nullptr;
};

bool is_bookkeeping(const std::string& name) {
  const std::string base = fs::path(name).filename().string();
  return base == kLockFileName || base == kSumsFileName || base.starts_with(".");
}

class FileVerification {
 public:
  explicit FileVerification(const VerifyOptions& options) : options_(options) {
    report_.path = options.path.string();
  }

  Report run() {
    const bool single = !fs::is_directory(options_.path);
    report_.what = single ? "file" : "directory";
    directory_ = single ? options_.path.parent_path() : options_.path;
    if (directory_.empty()) directory_ = ".";
    std::optional<Reference> reference = options_.against ? std::optional(read_reference(*options_.against))
                                                          : find_reference(directory_);
    if (single) {
      collect_single(reference);
    } else {
      collect_directory(reference);
    }
    if (reference) report_.references = reference->origins;
    hash_all();
    check_structure();
    if (!reference) {
      report_.add(Finding::Kind::kUnproved, "",
                  "no tierpack.lock.json or SHA256SUMS: only the structure was checked, not the content");
    }
    sort_findings(report_);
    return std::move(report_);
  }

 private:
  void collect_single(const std::optional<Reference>& reference) {
    Candidate file{options_.path.filename().string(), options_.path, fs::file_size(options_.path), nullptr};
    if (reference) {
      file.promise = reference->find(file.name);
      if (file.promise == nullptr) {
        report_.add(Finding::Kind::kUnlisted, file.name, "is not mentioned by " + reference->origins.front());
      }
    }
    files_.push_back(file);
  }

  void collect_directory(const std::optional<Reference>& reference) {
    std::set<std::string> promised;
    if (reference) {
      for (const PromisedFile& promise : reference->files) {
        promised.insert(promise.path);
        const fs::path path = directory_ / promise.path;
        std::error_code failed;
        if (!fs::is_regular_file(path, failed)) {
          report_.add(Finding::Kind::kMissing, promise.path, "is promised by " + promise.origin + " but not there");
          continue;
        }
        files_.push_back({promise.path, path, fs::file_size(path), &promise});
      }
    }
    size_t others = 0;  // no model files: a README, a corpus
    fs::recursive_directory_iterator entries(directory_, fs::directory_options::skip_permission_denied);
    for (const fs::directory_entry& entry : entries) {
      const std::string name = fs::relative(entry.path(), directory_).generic_string();
      if (entry.is_directory()) {
        if (entry.path().filename().string().starts_with(".")) entries.disable_recursion_pending();
        if (name.ends_with(".tierpack")) entries.disable_recursion_pending();
        continue;
      }
      if (!entry.is_regular_file() || promised.count(name) > 0 || is_bookkeeping(name)) continue;
      if (name.ends_with(".part") || name.find(".part.") != std::string::npos) {
        report_.add(Finding::Kind::kUnfinished, name, "is an unfinished download; run tierpack fetch again to complete it");
        continue;
      }
      if (!is_container(name)) {
        ++others;
        continue;
      }
      if (reference) report_.add(Finding::Kind::kUnlisted, name, "is not mentioned by " + reference->origins.front());
      files_.push_back({name, entry.path(), entry.file_size(), nullptr});
    }
    if (reference && others > 0) {
      report_.add(Finding::Kind::kUnlisted, "",
                  fmt::format("{} other file{} not mentioned by {}", others, others == 1 ? " is" : "s are",
                              reference->origins.front()));
    }
  }

  // Sizes first, since a wrong size needs no hashing; then SHA-256 of all promised files, the largest first.
  void hash_all() {
    report_.files = files_.size();
    std::vector<const Candidate*> todo;
    uint64_t total = 0;
    for (const Candidate& file : files_) {
      if (file.promise == nullptr) continue;
      if (file.promise->bytes && *file.promise->bytes != file.bytes) {
        report_.add(Finding::Kind::kSize, file.name,
                    fmt::format("has {} bytes, {} promises {}", file.bytes, file.promise->origin, *file.promise->bytes));
        continue;
      }
      todo.push_back(&file);
      total += file.bytes;
    }
    std::stable_sort(todo.begin(), todo.end(), [](const Candidate* a, const Candidate* b) { return a->bytes > b->bytes; });
    Progress progress("verifying " + report_.path, total, options_.progress);
    ThreadTeam team(std::max(1, options_.jobs));
    std::mutex mutex;
    team.for_each(todo.size(), [&](size_t i) {
      const Candidate& file = *todo[i];
      std::optional<Finding> finding;
      try {
        const File source = File::open(file.path, File::Mode::kRead);
        const Sha256Digest found = sha256_of(source, 0, source.size(), [&](uint64_t bytes) {
          throw_if_interrupted();
          progress.add(bytes);
        });
        if (found != file.promise->sha256) {
          finding = Finding{Finding::Kind::kDigest, file.name,
                            fmt::format("has SHA-256 {}, {} promises {}", found.hex(), file.promise->origin,
                                        file.promise->sha256.hex())};
        }
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::kInterrupted) throw;
        finding = Finding{Finding::Kind::kUnreadable, file.name, e.what()};
      }
      const std::lock_guard lock(mutex);
      report_.hashed_bytes += file.bytes;
      if (finding) {
        report_.findings.push_back(*finding);
      } else {
        ++report_.proved_files;
      }
    });
  }

  void check_structure() {
    std::vector<ContainerFile> containers;
    for (const Candidate& file : files_) containers.push_back({file.name, file.path});
    ThreadTeam team(std::max(1, options_.jobs));
    // A single file is judged alone; a directory should hold whole sets.
    const std::vector<Finding> findings = check_containers(containers, report_.what == "directory", options_.deep, team);
    report_.findings.insert(report_.findings.end(), findings.begin(), findings.end());
  }

  const VerifyOptions& options_;
  fs::path directory_;
  std::vector<Candidate> files_;
  Report report_;
};

}  // namespace

Report verify_files(const VerifyOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Report report = FileVerification(options).run();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

Report verify_path(const VerifyOptions& options) {
  if (!fs::exists(options.path)) fail(ErrorKind::kUsage, "{}: there is no such file or directory", options.path.string());
  const bool pack = fs::is_directory(options.path) && (fs::exists(options.path / kPackManifestName) ||
                                                       options.path.lexically_normal().string().ends_with(".tierpack"));
  return pack ? verify_pack(options) : verify_files(options);
}

}  // namespace tierpack::verify
