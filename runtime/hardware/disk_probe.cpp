#include "runtime/hardware/disk_probe.h"

#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "runtime/hardware/block_device.h"
#include "runtime/hardware/disk_reads.h"
#include "runtime/hardware/sysfs_files.h"

namespace tierpack::hardware {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTemporaryBytesMin = uint64_t{64} << 20;
constexpr uint64_t kPageReadBytes = 4096;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Where the table of mounts does not name the place's own, as behind a changed root: the kernel's number of the filesystem
// (linux/magic.h), by name where it is a common one.
std::string filesystem_by_number(const fs::path& place) {
  struct statfs status {};
  if (::statfs(place.c_str(), &status) != 0) return "unknown";
  switch (static_cast<uint32_t>(status.f_type)) {
    case 0xEF53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683E: return "btrfs";
    case 0xF2F52010: return "f2fs";
    case 0x2FC12FC1: return "zfs";
    case 0x01021994: return "tmpfs";
    case 0x794C7630: return "overlay";
    case 0x6969: return "nfs";
    case 0x65735546: return "fuse";
    case 0x9FA0: return "proc";
    default: return fmt::format("number {:#x}", static_cast<uint32_t>(status.f_type));
  }
}

void describe(const fs::path& place, DiskInfo& out) {
  struct stat status {};
  if (::stat(place.c_str(), &status) != 0) fail_errno(fmt::format("{}: cannot be examined", place.string()));
  std::string source;
  out.path = place.string();
  if (const auto mount = mount_of("/", place)) {
    out.path = mount->point;
    out.filesystem = mount->type;
    source = mount->source;
  } else {
    out.filesystem = filesystem_by_number(place);
  }
  const BlockDevice device = describe_block_device("/", status.st_dev, source);
  for (const std::string& disk : device.disks) out.device += out.device.empty() ? disk : "+" + disk;
  out.model = device.model;
  out.link = device.link;
  out.link_max = device.link_max;
  out.rotational = device.rotational;
  out.temperature_c = device.temperature_c;
  out.free_bytes = free_disk_bytes(place);
}

// Rounds over all patterns, so that what changes meanwhile changes all of them.
void measure(DiskReader& reader, const DiskQuestion& question, DiskInfo& out) {
  std::vector<double> sequential, records, pages, record_latency, page_latency;
  const auto append = [](std::vector<double>& to, const std::vector<double>& values) {
    to.insert(to.end(), values.begin(), values.end());
  };
  const double seconds = question.window_seconds;
  for (uint32_t window = 0; window < question.windows; ++window) {
    sequential.push_back(reader.sequential(seconds));
    records.push_back(reader.random(question.record_bytes, seconds));
    append(record_latency, reader.latencies(question.record_bytes, seconds));
    pages.push_back(reader.random(kPageReadBytes, seconds));
    append(page_latency, reader.latencies(kPageReadBytes, seconds));
  }
  out.sequential_bytes_s = median(sequential);
  out.record_bytes_s = median(records) * static_cast<double>(question.record_bytes);
  out.record_latency_us = median(record_latency);
  out.page_reads_s = median(pages);
  out.page_latency_us = median(page_latency);
}

File file_to_read(const DiskQuestion& question, const fs::path& directory, uint64_t free_bytes) {
  if (!question.file.empty()) return File::open(question.file, File::Mode::kRead);
  if (!question.measure) return make_probe_file(directory, kPageReadBytes);
  const uint64_t bytes = std::min(question.temporary_bytes, free_bytes / 4);
  if (bytes < std::min(kTemporaryBytesMin, question.temporary_bytes)) {
    fail(ErrorKind::kCapacity, "only {} are free for a file to measure with", format_size(free_bytes));
  }
  return make_probe_file(directory, bytes);
}

}  // namespace

DiskAnswer probe_disk(const DiskQuestion& question) {
  const fs::path directory = resolved(question.directory);
  DiskAnswer answer;
  describe(directory, answer.info);
  answer.info.record_bytes = question.record_bytes;
  try {
    File file = file_to_read(question, directory, answer.info.free_bytes);
    answer.measured_on = file.name();
    DiskReader reader(file, file.size());
    answer.info.direct_io = reader.direct();
    answer.info.io_uring = reader.io_uring();
    if (reader.io_uring()) answer.registered_buffers = reader.registered_buffers();
    if (question.measure) measure(reader, question, answer.info);
    if (!question.measure) answer.not_measured = "it was not asked for";
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInterrupted) throw;
    answer.not_measured = e.what();
  }
  return answer;
}

}  // namespace tierpack::hardware
