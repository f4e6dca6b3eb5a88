#include "formats/hardware.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/user_directories.h"

namespace tierpack {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "tierpack-hardware";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kHardwareBytesMax = uint64_t{1} << 20;

// Members of one object of the file, by their names; `source` says which object in errors.
class Fields {
 public:
  Fields(const Json& object, std::string source) : object_(object), source_(std::move(source)) {}

  std::string text(const char* key) const { return json_string(object_, key, source_); }
  uint64_t size(const char* key) const { return json_u64(object_, key, source_); }

  uint32_t count(const char* key) const {
    const uint64_t value = size(key);
    if (value > 1'000'000) fail(ErrorKind::kCorrupt, "{}: '{}' is {}; it must be at most 1000000", source_, key, value);
    return static_cast<uint32_t>(value);
  }

  bool flag(const char* key) const {
    const Json& value = json_member(object_, key, source_);
    if (!value.is_boolean()) {
      fail(ErrorKind::kCorrupt, "{}: '{}': expected true or false, found {}", source_, key, value.type_name());
    }
    return value.get<bool>();
  }

  double number(const char* key) const {
    const Json& value = json_member(object_, key, source_);
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      fail(ErrorKind::kCorrupt, "{}: '{}' is not a number", source_, key);
    }
    return value.get<double>();
  }

  double rate(const char* key) const {
    const double value = number(key);
    if (!(value >= 0)) fail(ErrorKind::kCorrupt, "{}: '{}' is {}; it must not be negative", source_, key, value);
    return value;
  }

  bool has(const char* key) const { return object_.contains(key); }
  bool absent(const char* key) const { return json_member(object_, key, source_).is_null(); }
  std::optional<uint64_t> maybe_size(const char* key) const {
    return absent(key) ? std::nullopt : std::optional(size(key));
  }
  std::optional<double> maybe_number(const char* key) const {
    return absent(key) ? std::nullopt : std::optional(number(key));
  }

  Fields object(const char* key) const {
    return {json_member(object_, key, source_), fmt::format("{}: '{}'", source_, key)};
  }
  std::vector<Fields> objects(const char* key) const {
    std::vector<Fields> out;
    for (const Json& one : array(key)) out.emplace_back(one, fmt::format("{}: '{}' {}", source_, key, out.size()));
    return out;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    for (const Json& one : array(key)) {
      if (!one.is_string()) {
        fail(ErrorKind::kCorrupt, "{}: '{}' holds {}, expected strings", source_, key, one.type_name());
      }
      out.push_back(one.get<std::string>());
    }
    return out;
  }

 private:
  const Json& array(const char* key) const {
    const Json& value = json_member(object_, key, source_);
    if (!value.is_array()) {
      fail(ErrorKind::kCorrupt, "{}: '{}': expected an array, found {}", source_, key, value.type_name());
    }
    return value;
  }

  const Json& object_;
  std::string source_;
};

CpuInfo parse_cpu(const Fields& in) {
  CpuInfo cpu;
  cpu.model = in.text("model");
  cpu.cores = in.count("cores");
  cpu.threads = in.count("threads");
  cpu.isa = in.texts("isa");
  cpu.l1d_bytes = in.size("l1d_bytes");
  cpu.l2_bytes = in.size("l2_bytes");
  cpu.l3_bytes = in.size("l3_bytes");
  cpu.numa_nodes = in.count("numa_nodes");
  return cpu;
}

Json encode_cpu(const CpuInfo& cpu) {
  return {{"model", cpu.model},         {"cores", cpu.cores},       {"threads", cpu.threads},
          {"isa", cpu.isa},             {"l1d_bytes", cpu.l1d_bytes}, {"l2_bytes", cpu.l2_bytes},
          {"l3_bytes", cpu.l3_bytes},   {"numa_nodes", cpu.numa_nodes}};
}

DiskInfo parse_disk(const Fields& in) {
  DiskInfo disk;
  disk.path = in.text("path");
  disk.device = in.text("device");
  disk.model = in.text("model");
  disk.link = in.text("link");
  disk.link_max = in.text("link_max");
  disk.rotational = in.flag("rotational");
  disk.filesystem = in.text("filesystem");
  disk.free_bytes = in.size("free_bytes");
  disk.direct_io = in.flag("direct_io");
  disk.io_uring = in.flag("io_uring");
  disk.sequential_bytes_s = in.rate("sequential_bytes_s");
  disk.record_bytes = in.size("record_bytes");
  disk.record_bytes_s = in.rate("record_bytes_s");
  disk.record_latency_us = in.rate("record_latency_us");
  disk.page_reads_s = in.rate("page_reads_s");
  disk.page_latency_us = in.rate("page_latency_us");
  disk.temperature_c = in.maybe_number("temperature_c");
  return disk;
}

// A rate is never negative, infinite or NaN; the JSON library would write the latter two as null.
double rate(double value) {
  TIERPACK_CHECK(value >= 0 && std::isfinite(value));
  return value;
}

template <typename T>
Json maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json encode_disk(const DiskInfo& disk) {
  if (disk.temperature_c) TIERPACK_CHECK(std::isfinite(*disk.temperature_c));
  return {{"path", disk.path},
          {"device", disk.device},
          {"model", disk.model},
          {"link", disk.link},
          {"link_max", disk.link_max},
          {"rotational", disk.rotational},
          {"filesystem", disk.filesystem},
          {"free_bytes", disk.free_bytes},
          {"direct_io", disk.direct_io},
          {"io_uring", disk.io_uring},
          {"sequential_bytes_s", rate(disk.sequential_bytes_s)},
          {"record_bytes", disk.record_bytes},
          {"record_bytes_s", rate(disk.record_bytes_s)},
          {"record_latency_us", rate(disk.record_latency_us)},
          {"page_reads_s", rate(disk.page_reads_s)},
          {"page_latency_us", rate(disk.page_latency_us)},
          {"temperature_c", maybe(disk.temperature_c)}};
}

GpuInfo parse_gpu(const Fields& in) {
  GpuInfo gpu;
  gpu.name = in.text("name");
  gpu.memory_bytes = in.size("memory_bytes");
  gpu.link = in.text("link");
  gpu.link_max = in.text("link_max");
  gpu.pinned_bytes_s = in.rate("pinned_bytes_s");
  gpu.pageable_bytes_s = in.rate("pageable_bytes_s");
  gpu.memory_bytes_s = in.has("memory_bytes_s") ? in.rate("memory_bytes_s") : 0;
  return gpu;
}

Json encode_gpu(const GpuInfo& gpu) {
  return {{"name", gpu.name},
          {"memory_bytes", gpu.memory_bytes},
          {"link", gpu.link},
          {"link_max", gpu.link_max},
          {"pinned_bytes_s", rate(gpu.pinned_bytes_s)},
          {"pageable_bytes_s", rate(gpu.pageable_bytes_s)},
          {"memory_bytes_s", rate(gpu.memory_bytes_s)}};
}

// One entry for each name, or a reader would have to choose.
template <typename T>
void require_distinct(const std::vector<T>& entries, std::string T::*name, const char* what, const std::string& source) {
  std::set<std::string> seen;
  for (const T& entry : entries) {
    if (!seen.insert(entry.*name).second) {
      fail(ErrorKind::kCorrupt, "{}: '{}' has '{}' twice", source, what, entry.*name);
    }
  }
}

// Whether both exist and lie on different filesystems.
bool known_apart(const fs::path& a, const fs::path& b) {
  struct stat one {}, other {};
  return ::stat(a.c_str(), &one) == 0 && ::stat(b.c_str(), &other) == 0 && one.st_dev != other.st_dev;
}

fs::path absolute_path(const fs::path& path) {
  fs::path out = fs::absolute(path).lexically_normal();
  return out.has_filename() ? out : out.parent_path();  // without the slash at the end
}

bool holds(const fs::path& directory, const fs::path& path) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

}  // namespace

const DiskInfo* HardwareProfile::disk_of(const fs::path& path) const {
  const fs::path wanted = absolute_path(path);
  const DiskInfo* best = nullptr;
  fs::path best_path;
  for (const DiskInfo& disk : disks) {
    const fs::path measured = absolute_path(disk.path);
    if (!holds(measured, wanted) || known_apart(measured, wanted)) continue;
    if (best != nullptr && measured.native().size() <= best_path.native().size()) continue;
    best = &disk;
    best_path = measured;
  }
  return best;
}

const KernelRate* HardwareProfile::kernel(std::string_view dtype) const {
  const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const KernelRate& k) { return k.dtype == dtype; });
  return found == kernels.end() ? nullptr : &*found;
}

std::string encode_hardware(const HardwareProfile& hardware) {
  Json disks = Json::array(), gpus = Json::array(), kernels = Json::array();
  for (const DiskInfo& disk : hardware.disks) disks.push_back(encode_disk(disk));
  for (const GpuInfo& gpu : hardware.gpus) gpus.push_back(encode_gpu(gpu));
  for (const KernelRate& kernel : hardware.kernels) {
    kernels.push_back({{"dtype", kernel.dtype},
                       {"decode_bytes_s", rate(kernel.decode_bytes_s)},
                       {"prefill_madds_s", rate(kernel.prefill_madds_s)}});
  }
  const MemoryInfo& memory = hardware.memory;
  return dump_json({{"format", kFormat},
                    {"version", kVersion},
                    {"tool_version", hardware.tool_version},
                    {"measured_at", hardware.measured_at},
                    {"cpu", encode_cpu(hardware.cpu)},
                    {"memory",
                     {{"total_bytes", memory.total_bytes},
                      {"swap_bytes", memory.swap_bytes},
                      {"read_bytes_s", rate(memory.read_bytes_s)}}},
                    {"disks", std::move(disks)},
                    {"gpus", std::move(gpus)},
                    {"kernels", std::move(kernels)},
                    {"limits",
                     {{"cgroup_bytes", maybe(hardware.limits.cgroup_bytes)},
                      {"memlock_bytes", maybe(hardware.limits.memlock_bytes)}}}});
}

HardwareProfile parse_hardware(std::string_view text, const std::string& source) {
  JsonLimits limits;
  limits.max_bytes = kHardwareBytesMax;
  limits.max_depth = 8;
  const Json json = parse_json(text, source, limits);
  const Fields root(json, source);
  if (root.text("format") != kFormat) {
    fail(ErrorKind::kCorrupt, "{}: this is not a tierpack description of a machine: 'format' is not '{}'", source, kFormat);
  }
  if (const uint64_t version = root.size("version"); version != kVersion) {
    fail(ErrorKind::kUnsupported, "{}: hardware version {}; this program reads version {}; measure again with `tierpack calibrate --hardware`",
         source, version, kVersion);
  }

  HardwareProfile out;
  out.tool_version = root.text("tool_version");
  out.measured_at = root.text("measured_at");
  out.cpu = parse_cpu(root.object("cpu"));
  const Fields memory = root.object("memory");
  out.memory = {memory.size("total_bytes"), memory.size("swap_bytes"), memory.rate("read_bytes_s")};
  for (const Fields& disk : root.objects("disks")) out.disks.push_back(parse_disk(disk));
  for (const Fields& gpu : root.objects("gpus")) out.gpus.push_back(parse_gpu(gpu));
  for (const Fields& kernel : root.objects("kernels")) {
    out.kernels.push_back({kernel.text("dtype"), kernel.rate("decode_bytes_s"), kernel.rate("prefill_madds_s")});
  }
  const Fields bounds = root.object("limits");
  out.limits = {bounds.maybe_size("cgroup_bytes"), bounds.maybe_size("memlock_bytes")};
  require_distinct(out.disks, &DiskInfo::path, "disks", source);
  require_distinct(out.kernels, &KernelRate::dtype, "kernels", source);
  return out;
}

HardwareProfile read_hardware(const fs::path& path) {
  return parse_hardware(read_text_file(path, kHardwareBytesMax), path.string());
}

void write_hardware(const fs::path& path, const HardwareProfile& hardware) {
  if (path.empty()) {
    fail(ErrorKind::kUsage, "there is no place for the description of this machine: neither HOME nor XDG_STATE_HOME is set; name a file");
  }
  std::error_code ignored;  // writing says what is wrong
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
  write_file_atomically(path, as_bytes(encode_hardware(hardware)));
}

fs::path default_hardware_path() {
  const fs::path state = user_state_directory();
  return state.empty() ? fs::path() : state / "hardware.json";
}

}  // namespace tierpack
