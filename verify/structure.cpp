#include "verify/structure.h"

#include <mutex>

#include "base/error.h"
#include "base/interrupt.h"
#include "formats/float_scan.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

constexpr size_t kScanBytes = size_t{1} << 20;

bool is_index(const std::string& name) { return name.ends_with(".safetensors.index.json"); }

class ContainerCheck {
 public:
  ContainerCheck(bool sets, bool deep) : sets_(sets), deep_(deep) {}

  void check(const ContainerFile& file) {
    if (file.name.ends_with(".gguf")) {
      guarded(file, [&] { check_gguf(file); });
    } else if (is_index(file.name)) {
      if (sets_) guarded(file, [&] { SafetensorsSource::open(file.path); });
    } else if (file.name.ends_with(".safetensors")) {
      guarded(file, [&] { check_safetensors(file); });
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

  void check_gguf(const ContainerFile& file) {
    const File source = File::open(file.path, File::Mode::kRead);
    const GgufHeader header = read_gguf_header(source);
    const bool first_of_several =
        header.metadata.u64_or("split.count", 1) > 1 && header.metadata.u64_or("split.no", 0) == 0;
    if (sets_ && first_of_several) open_gguf(file.path);
  }

  void check_safetensors(const ContainerFile& file) {
    const SafetensorsSource source = SafetensorsSource::open(file.path);
    if (!deep_) return;
    std::vector<std::byte> buffer(kScanBytes);
    for (const SafetensorsTensor& tensor : source.tensors()) {
      throw_if_interrupted();
      const FloatScan scan = scan_tensor(source, tensor, buffer);
      if (scan.clean()) continue;
      add(Finding::Kind::kNotFinite, file.name,
          fmt::format("tensor '{}' holds {} NaN and {} infinite values", tensor.name, scan.nan, scan.inf));
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

std::vector<Finding> check_containers(const std::vector<ContainerFile>& files, bool sets, bool deep, ThreadTeam& team) {
  ContainerCheck check(sets, deep);
  team.for_each(files.size(), [&](size_t i) { check.check(files[i]); });
  return check.take();
}

}  // namespace tierpack::verify
