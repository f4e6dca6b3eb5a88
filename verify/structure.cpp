#include "verify/structure.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "verify/content_scan.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPointerStart = "version https://git-lfs.github.com/spec/v1";
constexpr uint64_t kPointerBytesMax = 1024;
constexpr size_t kHeadBytes = 64;
constexpr size_t kOdditiesShown = 20;  // of one file
constexpr size_t kNamesShown = 5;

bool is_index(const std::string& name) { return name.ends_with(".safetensors.index.json"); }

std::string folder_of(const std::string& name) { return fs::path(name).parent_path().generic_string(); }

bool is_pickle_name(const std::string& name) {
  constexpr std::string_view kEndings[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"};
  return std::any_of(std::begin(kEndings), std::end(kEndings), [&](std::string_view end) { return name.ends_with(end); });
}

// What the first bytes say a file is, when that is not what it should be; "" otherwise.
std::string page_in_disguise(std::string_view head) {
  std::string lower(head.substr(0, 16));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const size_t start = lower.find_first_not_of(" \t\r\n");
  const std::string_view text = start == std::string::npos ? std::string_view() : std::string_view(lower).substr(start);
  return text.starts_with("<!doctype") || text.starts_with("<html") || text.starts_with("<?xml")
             ? "is a web page, an error or log-in page perhaps, not a model file"
             : "";
}

class StructureCheck {
 public:
  StructureCheck(bool sets, bool deep) : sets_(sets), deep_(deep) {}

  void check(const ContainerFile& file) {
    bool foreign = false;
    guarded(file, [&] { foreign = check_head(file); });
    if (foreign) return;
    if (file.name.ends_with(".gguf")) {
      guarded(file, [&] { check_gguf(file); });
    } else if (is_index(file.name)) {
      if (sets_) guarded(file, [&] { check_index(file); });
    } else if (file.name.ends_with(".safetensors")) {
      guarded(file, [&] { check_safetensors(file); });
    }
  }

  // Numbered shards, by their names alone.
  void check_sets(const std::vector<ContainerFile>& files) {
    struct Set {
      size_t count = 0;  // promised by the names
      std::set<size_t> found;
      std::string any;
    };
    static const std::regex kShard(R"((.*)-(\d{5})-of-(\d{5})\.(gguf|safetensors))");
    std::map<std::string, Set> sets;
    std::set<std::string> indexed;  // folders with an index
    for (const ContainerFile& file : files) {
      if (is_index(file.name)) indexed.insert(folder_of(file.name));
      std::smatch match;
      if (!std::regex_match(file.name, match, kShard)) continue;
      Set& set = sets[match[1].str() + "-of-" + match[3].str() + "." + match[4].str()];
      set.count = std::stoul(match[3].str());
      set.found.insert(std::stoul(match[2].str()));
      set.any = file.name;
    }
    for (const auto& [name, set] : sets) {
      const bool gguf = set.any.ends_with(".gguf");
      // The first shard of a GGUF and an index name what is missing themselves.
      if (gguf ? set.found.count(1) > 0 : indexed.count(folder_of(set.any)) > 0) continue;
      if (set.found.size() < set.count) {
        std::string missing;
        size_t shown = 0;
        for (size_t i = 1; i <= set.count && shown < kNamesShown; ++i) {
          if (set.found.count(i) > 0) continue;
          missing += fmt::format("{}{}", shown++ > 0 ? ", " : "", i);
        }
        add(Finding::Kind::kStructure, set.any,
            fmt::format("is one of {} shards, of which {} missing: number {}{}", set.count,
                        set.count - set.found.size() == 1 ? "one is" : fmt::format("{} are", set.count - set.found.size()), missing,
                        set.count - set.found.size() > shown ? ", ..." : ""));
      } else if (!gguf && set.count > 1) {
        add(Finding::Kind::kSuspicious, set.any, "is one of several shards, but there is no .safetensors.index.json, which loaders need");
      }
    }
  }

  std::vector<Finding> take() { return std::move(findings_); }

 private:
  template <typename Body>
  void guarded(const ContainerFile& file, Body&& body) {
    try {
      body();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kInterrupted || e.kind() == ErrorKind::kInternal) throw;
      add(e.kind() == ErrorKind::kIo ? Finding::Kind::kUnreadable : Finding::Kind::kStructure, file.name, e.what());
    }
  }

  void add(Finding::Kind kind, const std::string& where, const std::string& message) {
    const std::lock_guard lock(mutex_);
    findings_.push_back({kind, where, message});
  }

  // True when the file is something else altogether, which makes a closer look pointless.
  bool check_head(const ContainerFile& file) {
    const File source = File::open(file.path, File::Mode::kRead);
    const uint64_t size = source.size();
    std::array<std::byte, kHeadBytes> buffer{};
    const MutableBytes bytes = MutableBytes(buffer).first(std::min<uint64_t>(size, kHeadBytes));
    source.read_at(0, bytes);
    const std::string_view head = as_text(bytes);
    if (size <= kPointerBytesMax && head.starts_with(kPointerStart)) {
      add(Finding::Kind::kStructure, file.name,
          fmt::format("is a git-lfs pointer of {} bytes, not the file it stands for; git lfs pull or tierpack fetch gets that", size));
      return true;
    }
    if (is_container(file.name)) {
      const std::string page = page_in_disguise(head);
      if (page.empty()) return false;
      add(Finding::Kind::kStructure, file.name, page);
      return true;
    }
    const bool zipped = head.starts_with("PK\x03\x04");
    const bool plain = head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
    if (is_pickle_name(file.name) && (zipped || plain)) {
      add(Finding::Kind::kSuspicious, file.name,
          "is a Python pickle: loading it can run any program its author wrote into it; prefer safetensors or GGUF");
    }
    return false;
  }

  void check_gguf(const ContainerFile& file) {
    const File source = File::open(file.path, File::Mode::kRead);
    const GgufHeader header = read_gguf_header(source);
    const bool first_of_several =
        header.metadata.u64_or("split.count", 1) > 1 && header.metadata.u64_or("split.no", 0) == 0;
    if (sets_ && first_of_several) open_gguf(file.path);
    if (deep_) tell_oddities(file, scan_contents(source, header));
  }

  void check_safetensors(const ContainerFile& file) {
    const SafetensorsSource source = SafetensorsSource::open(file.path);
    if (deep_) tell_oddities(file, scan_contents(source));
  }

  void check_index(const ContainerFile& file) {
    const SafetensorsSource source = SafetensorsSource::open(file.path);
    const auto unlisted = std::count_if(source.tensors().begin(), source.tensors().end(),
                                        [](const SafetensorsTensor& tensor) { return !tensor.listed; });
    if (unlisted > 0) {
      const auto first = std::find_if(source.tensors().begin(), source.tensors().end(),
                                      [](const SafetensorsTensor& tensor) { return !tensor.listed; });
      add(Finding::Kind::kSuspicious, file.name,
          fmt::format("does not mention {} tensor{} that its shards hold, such as '{}' in {}", unlisted, unlisted == 1 ? "" : "s",
                      first->name, source.shards()[first->shard].file_name));
    }
  }

  void tell_oddities(const ContainerFile& file, const std::vector<TensorOddity>& oddities) {
    const char* const published = file.is_proved ? "; the file is as published" : "";
    for (size_t i = 0; i < std::min(oddities.size(), kOdditiesShown); ++i) {
      const TensorOddity& odd = oddities[i];
      if (!odd.floats.clean()) {
        add(Finding::Kind::kNotFinite, file.name,
            fmt::format("tensor '{}' holds {} NaN and {} infinite {}{}", odd.tensor, odd.floats.nan, odd.floats.inf,
                        odd.counts_blocks ? "block scales" : "values", published));
      }
      if (odd.zero_run_bytes > 0) {
        add(Finding::Kind::kSuspicious, file.name,
            fmt::format("tensor '{}' has {} of zeros in a row from byte {} of the file{}", odd.tensor, format_size(odd.zero_run_bytes),
                        odd.zero_run_at, file.is_proved ? published : ", as a download with a hole would"));
      }
    }
    if (oddities.size() > kOdditiesShown) {
      add(Finding::Kind::kSuspicious, file.name, fmt::format("{} more tensors are odd in these ways", oddities.size() - kOdditiesShown));
    }
  }

  const bool sets_;
  const bool deep_;
  std::mutex mutex_;
  std::vector<Finding> findings_;
};

}  // namespace

bool is_container(const std::string& name) {
  return name.ends_with(".gguf") || name.ends_with(".safetensors") || is_index(name);
}

std::vector<Finding> check_structure(const std::vector<ContainerFile>& files, bool sets, bool deep, ThreadTeam& team) {
  StructureCheck check(sets, deep);
  team.for_each(files.size(), [&](size_t i) { check.check(files[i]); });
  if (sets) check.check_sets(files);
  return check.take();
}

}  // namespace tierpack::verify
