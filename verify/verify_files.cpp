// Source directories, single files and repositories in the hub's cache: what is promised about them, and the structure of
// the containers; with --repair, what is damaged or missing is downloaded again.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/threads.h"
#include "formats/lock.h"
#include "formats/pack.h"
#include "verify/prove_files.h"
#include "verify/reference_choice.h"
#include "verify/structure.h"
#include "verify/verify_path.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStateDirectory = ".tierpack";  // of an unfinished fetch
constexpr size_t kNamesShown = 8;

bool is_bookkeeping(const std::string& name) {
  const std::string base = fs::path(name).filename().string();
  return base == kLockFileName || base == kSumsFileName || base.starts_with(".");
}

// "snapshots/COMMIT/path/in/repository" -> {COMMIT, path}.
std::pair<std::string, std::string> split_snapshot(const std::string& name) {
  const size_t first = name.find('/') + 1;
  const size_t second = name.find('/', first);
  return {name.substr(first, second - first), name.substr(second + 1)};
}

class FileVerification {
 public:
  explicit FileVerification(const VerifyOptions& options) : options_(options), team_(std::max(1, options.jobs)) {
    report_.path = options.path.string();
  }

  Report run() {
    const bool single = !fs::is_directory(options_.path);
    directory_ = single ? options_.path.parent_path() : options_.path;
    if (directory_.empty()) directory_ = ".";
    chosen_ = choose_reference(options_, directory_);
    if (chosen_.cache) directory_ = chosen_.cache->repository;
    report_.what = single ? "file" : chosen_.cache ? "cache" : "directory";
    report_.findings = chosen_.findings;
    if (chosen_.reference) report_.references = chosen_.reference->origins;
    single ? collect_single() : collect_directory();
    if (files_.empty() && bystanders_.empty() && report_.findings.empty()) {
      fail(ErrorKind::kUsage, "{}: holds no model files, and nothing says which should be there", report_.path);
    }

    std::vector<Candidate*> promised;
    for (auto& [name, file] : files_) {
      if (file.promise != nullptr) promised.push_back(&file);
    }
    hold_against_promises(promised);
    if (options_.repair) repair();
    check_structure();
    finish();
    return std::move(report_);
  }

 private:
  // A file that is looked at, by its name relative to the directory.
  struct Candidate {
    const PromisedFile* promise = nullptr;
    FileResult result;
    std::optional<Finding> finding;  // about its content
  };

  void add_file(const std::string& name, const PromisedFile* promise) {
    Candidate file;
    file.promise = promise;
    file.result.path = name;
    std::error_code failed;
    const uintmax_t bytes = fs::file_size(directory_ / name, failed);
    file.result.bytes = failed ? 0 : bytes;
    files_[name] = std::move(file);
  }

  void collect_single() {
    const std::string name = options_.path.filename().string();
    const PromisedFile* promise = nullptr;
    if (chosen_.reference) {
      promise = chosen_.reference->find(name);
      if (promise == nullptr) promise = find_by_last_name(name);
      if (promise == nullptr) {
        report_.add(Finding::Kind::kUnlisted, name, "is not mentioned by " + chosen_.reference->origins.front());
      }
    }
    add_file(name, promise);
  }

  // A hub lists "UD-Q4/model.gguf"; the user has model.gguf.
  const PromisedFile* find_by_last_name(const std::string& name) const {
    const PromisedFile* found = nullptr;
    for (const PromisedFile& promise : chosen_.reference->files) {
      if (fs::path(promise.path).filename() != name) continue;
      if (found != nullptr) return nullptr;
      found = &promise;
    }
    return found;
  }

  void collect_directory() {
    if (chosen_.reference) {
      for (const PromisedFile& promise : chosen_.reference->files) add_file(promise.path, &promise);
    }
    size_t others = 0;  // no model files: a README, a corpus
    const fs::path from = chosen_.cache ? options_.path : directory_;
    fs::recursive_directory_iterator entries(from, fs::directory_options::skip_permission_denied);
    for (const fs::directory_entry& entry : entries) {
      const std::string name = entry.path().lexically_relative(from).generic_string();
      std::error_code failed;  // of links that lead nowhere or to themselves
      if (entry.is_directory(failed)) {
        if (name == kStateDirectory) note_unfinished(entry.path());
        if (entry.path().filename().string().starts_with(".")) entries.disable_recursion_pending();
        if (name.ends_with(".tierpack")) entries.disable_recursion_pending();
        continue;
      }
      if (name.ends_with(".part") || name.ends_with(".incomplete") || name.find(".part.") != std::string::npos) {
        report_.add(Finding::Kind::kUnfinished, name, "is an unfinished download; run tierpack fetch again to complete it");
        continue;
      }
      if (entry.is_symlink() && !fs::exists(entry.path(), failed) && is_container(name) && !chosen_.cache && files_.count(name) == 0) {
        report_.add(Finding::Kind::kUnreadable, name, "is a symbolic link to nothing");
        continue;
      }
      // What is in a cache besides the blobs that name themselves is only links and references.
      if (chosen_.cache || !entry.is_regular_file(failed) || files_.count(name) > 0 || is_bookkeeping(name)) continue;
      if (!options_.selects(name)) continue;
      if (!is_container(name)) {
        ++others;
        bystanders_.push_back({name, entry.path()});
        continue;
      }
      if (chosen_.reference) {
        report_.add(Finding::Kind::kUnlisted, name, "is not mentioned by " + chosen_.reference->origins.front());
      }
      add_file(name, nullptr);
    }
    if (chosen_.reference && others > 0) {
      report_.add(Finding::Kind::kUnlisted, "",
                  fmt::format("{} other file{} not mentioned by {}", others, others == 1 ? " is" : "s are",
                              chosen_.reference->origins.front()));
    }
  }

  void note_unfinished(const fs::path& state) {
    for (const fs::directory_entry& entry : fs::directory_iterator(state)) {
      const std::string name = kStateDirectory + std::string("/") + entry.path().filename().string();
      if (name.ends_with(".part")) {
        report_.add(Finding::Kind::kUnfinished, name, "is an unfinished download; the command that began it completes it");
      } else if (name.ends_with(".damaged")) {
        report_.add(Finding::Kind::kUnfinished, name, "is a damaged file that an unfinished repair keeps");
      }
    }
  }

  // What can be told without hashing; true when the content has to be read.
  bool needs_hashing(Candidate& file) {
    const PromisedFile& promise = *file.promise;
    file.result.reference = promise.origin;
    std::error_code failed;
    const fs::path path = directory_ / file.result.path;
    if (!fs::is_regular_file(path, failed)) {
      file.result.status = FileResult::Status::kMissing;
      file.result.bytes = promise.bytes.value_or(0);
      file.finding = Finding{Finding::Kind::kMissing, file.result.path, "is promised by " + promise.origin + " but not there"};
      return false;
    }
    file.result.bytes = fs::file_size(path);
    if (promise.bytes && *promise.bytes != file.result.bytes) {
      file.result.status = FileResult::Status::kWrong;
      file.finding = Finding{Finding::Kind::kSize, file.result.path,
                             fmt::format("has {} bytes, {} promises {}", file.result.bytes, promise.origin, *promise.bytes)};
      return false;
    }
    return promise.sha256 || promise.git_sha1;  // a plain web server may promise nothing but the name
  }

  // Hashes these files, the largest first so that none is left over at the end.
  void hold_against_promises(const std::vector<Candidate*>& files) {
    std::vector<Candidate*> todo;
    uint64_t total = 0;
    for (Candidate* const file : files) {
      file->finding.reset();
      if (!needs_hashing(*file)) continue;
      todo.push_back(file);
      total += file->result.bytes;
    }
    std::stable_sort(todo.begin(), todo.end(), [](const Candidate* a, const Candidate* b) { return a->result.bytes > b->result.bytes; });
    Progress progress("verifying " + report_.path, total, options_.progress);
    std::vector<ProofTask> tasks;
    for (const Candidate* file : todo) tasks.push_back({directory_ / file->result.path, file->promise});
    std::vector<FileProof> proofs = prove_files(tasks, team_, [&](uint64_t bytes) {
      throw_if_interrupted();
      progress.add(bytes);
    });
    for (size_t i = 0; i < todo.size(); ++i) {
      Candidate& file = *todo[i];
      file.result.status = proofs[i].equal ? FileResult::Status::kProved : FileResult::Status::kWrong;
      file.result.proof = std::move(proofs[i].proof);
      if (proofs[i].equal) continue;
      file.finding = Finding{proofs[i].unreadable ? Finding::Kind::kUnreadable : Finding::Kind::kDigest, file.result.path,
                             std::move(proofs[i].problem)};
    }
    report_.hashed_bytes += total;
  }

  void repair() {
    std::vector<Candidate*> bad;
    std::vector<std::string> hopeless;
    std::map<std::string, RepairRequest> requests;  // by what is asked
    for (auto& [name, file] : files_) {
      if (!file.finding || file.promise == nullptr) continue;
      RepairRequest request{.reference = chosen_.repair_from, .endpoint = chosen_.repair_endpoint, .directory = directory_, .paths = {}};
      std::string path = name;
      if (chosen_.cache && !chosen_.cache->reference.empty() && name.starts_with("snapshots/")) {
        const auto [revision, inner] = split_snapshot(name);
        request.reference = chosen_.cache->reference + "@" + revision;
        request.is_cache = true;
        path = inner;
      } else if (chosen_.repairable.count(name) == 0 || file.promise->path != name) {
        hopeless.push_back(name);
        continue;
      }
      requests.try_emplace(request.reference, request).first->second.paths.push_back(path);
      bad.push_back(&file);
      Repair planned;
      planned.path = name;
      planned.bytes = file.promise->bytes.value_or(file.result.bytes);
      report_.repairs.push_back(std::move(planned));
      report_.repair_source = request.reference;
    }
    if (!hopeless.empty()) {
      report_.advice.push_back(fmt::format("nothing says where to download {}{} from; give --against a reference such as hf:ORG/NAME",
                                           hopeless.front(), hopeless.size() > 1 ? fmt::format(" and {} more", hopeless.size() - 1) : ""));
    }
    if (bad.empty()) return;
    announce_repair();
    if (options_.dry_run) return;
    if (!options_.remote.repair) fail(ErrorKind::kUsage, "{} cannot be repaired without a network", report_.path);
    for (const auto& [reference, request] : requests) run_repair(request);
    hold_against_promises(bad);
  }

  void announce_repair() const {
    uint64_t bytes = 0;
    std::string names;
    for (size_t i = 0; i < report_.repairs.size(); ++i) {
      bytes += report_.repairs[i].bytes;
      if (i < kNamesShown) names += (i > 0 ? ", " : "") + report_.repairs[i].path;
    }
    if (report_.repairs.size() > kNamesShown) names += fmt::format(" and {} more", report_.repairs.size() - kNamesShown);
    log_info(fmt::format("{} {} file{} as a whole, {}, from {}: {}", options_.dry_run ? "would download" : "downloading",
                         report_.repairs.size(), report_.repairs.size() == 1 ? "" : "s", format_size(bytes),
                         report_.repair_source, names));
  }

  void run_repair(const RepairRequest& request) {
    const std::string prefix =
        request.is_cache ? "snapshots/" + request.reference.substr(request.reference.rfind('@') + 1) + "/" : std::string();
    std::vector<RepairedFile> done;
    try {
      done = options_.remote.repair(request);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kInterrupted || e.kind() == ErrorKind::kInternal) throw;
      for (const std::string& path : request.paths) {
        done.push_back({.path = path, .failure = e.kind(), .message = e.what(), .kept_as = {}});
      }
    }
    for (const RepairedFile& file : done) {
      for (Repair& repair : report_.repairs) {
        if (repair.path != prefix + file.path) continue;
        repair.outcome = file.failure ? Repair::Outcome::kFailed : Repair::Outcome::kRepaired;
        if (file.bytes > 0) repair.bytes = file.bytes;
        repair.downloaded_bytes = file.downloaded_bytes;
        repair.failure = file.failure;
        repair.message = file.message;
        repair.kept_as = file.kept_as;
      }
    }
  }

  void check_structure() {
    std::vector<ContainerFile> files = bystanders_;
    for (const auto& [name, file] : files_) {
      if (file.result.status == FileResult::Status::kMissing) continue;
      files.push_back({name, directory_ / name, file.result.status == FileResult::Status::kProved});
    }
    // The longest work first.
    if (options_.deep) {
      std::stable_sort(files.begin(), files.end(), [&](const ContainerFile& a, const ContainerFile& b) {
        std::error_code failed;
        return fs::file_size(a.path, failed) > fs::file_size(b.path, failed);
      });
    }
    // A single file is judged alone; a directory should hold whole sets.
    const std::vector<Finding> findings = verify::check_structure(files, report_.what != "file", options_.deep, team_);
    report_.findings.insert(report_.findings.end(), findings.begin(), findings.end());
  }

  void finish() {
    for (auto& [name, file] : files_) {
      if (file.finding) report_.findings.push_back(*file.finding);
      report_.files += file.result.status != FileResult::Status::kMissing;
      report_.proved_files += file.result.status == FileResult::Status::kProved;
      report_.results.push_back(std::move(file.result));
    }
    if (!chosen_.reference) {
      report_.add(Finding::Kind::kUnproved, "",
                  "no tierpack.lock.json or SHA256SUMS: only the structure was checked, not the content");
    }
    sort_findings(report_);
    give_advice();
  }

  void give_advice() {
    if (options_.repair) {
      const bool failed = std::any_of(report_.repairs.begin(), report_.repairs.end(), [](const Repair& r) {
        return r.failure == ErrorKind::kNetwork;
      });
      if (failed) report_.advice.push_back("the network gave up; the same command continues where it stopped");
      return;
    }
    const bool content = std::any_of(report_.findings.begin(), report_.findings.end(), [](const Finding& item) {
      return item.kind <= Finding::Kind::kDigest;
    });
    const bool source = chosen_.cache ? !chosen_.cache->reference.empty() : !chosen_.repair_from.empty();
    if (!content) return;
    if (source) {
      report_.advice.push_back("--repair downloads again what is damaged or missing, and nothing else");
    } else {
      report_.advice.push_back("--repair --against hf:ORG/NAME downloads again what is damaged or missing");
    }
  }

  const VerifyOptions& options_;
  ThreadTeam team_;
  fs::path directory_;
  ChosenReference chosen_;
  std::map<std::string, Candidate> files_;
  std::vector<ContainerFile> bystanders_;  // neither promised nor containers; only their heads are looked at
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
