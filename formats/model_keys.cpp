#include "formats/model_keys.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/printable.h"

namespace tierpack {

uint32_t ModelKeys::count(const char* name, uint32_t low, uint32_t high) const {
  return in_range(name, metadata_.u64(key(name)), low, high);
}

uint32_t ModelKeys::count_or(const char* name, uint32_t fallback, uint32_t low, uint32_t high) const {
  return has(name) ? count(name, low, high) : fallback;
}

double ModelKeys::positive(const char* name, double high) const {
  const double value = metadata_.f64(key(name));
  if (!(value > 0 && value <= high)) {
    corrupt(fmt::format("{} is {}; it must be above 0 and at most {}", key(name), value, high));
  }
  return value;
}

uint32_t ModelKeys::uniform_count(const char* name, uint32_t low, uint32_t high,
                                  const std::vector<bool>& skipped) const {
  const std::vector<uint64_t> values = metadata_.u64_array(key(name));
  if (values.size() == 1) return in_range(name, values.front(), low, high);
  require_blocks(name, values.size(), skipped.size());
  std::optional<uint64_t> largest;
  for (size_t i = 0; i < skipped.size(); ++i) {
    if (skipped[i] && values[i] == 0) continue;
    in_range(name, values[i], low, high);
    if (largest && *largest != values[i]) {
      cannot_compute(fmt::format("{} differs between blocks ({} and {})", key(name), *largest, values[i]));
    }
    largest = std::max(largest.value_or(0), values[i]);
  }
  if (!largest) corrupt(fmt::format("{} is 0 for every block", key(name)));
  return static_cast<uint32_t>(*largest);
}

std::vector<uint32_t> ModelKeys::block_counts(const char* name, size_t blocks, uint32_t high) const {
  const std::vector<uint64_t> values = metadata_.u64_array(key(name));
  require_blocks(name, values.size(), blocks);
  std::vector<uint32_t> out;
  for (size_t i = 0; i < blocks; ++i) out.push_back(in_range(name, values[i], 0, high));
  return out;
}

uint32_t ModelKeys::any_count(const char* name, uint32_t high) const {
  const MetaValue* found = metadata_.find(key(name));
  if (found == nullptr) return 0;
  std::vector<uint64_t> values;
  try {
    values = metadata_.u64_array(key(name));
  } catch (const Error&) {
    return 0;
  }
  uint64_t common = 0;
  for (const uint64_t value : values) {
    if (value == 0) continue;
    if (common != 0 && common != value) return 0;
    common = value;
  }
  return common <= high ? static_cast<uint32_t>(common) : 0;
}

void ModelKeys::corrupt(const std::string& message) const {
  fail(ErrorKind::kCorrupt, "{}: {}", metadata_.source(), printable(message, 500));
}

uint32_t ModelKeys::in_range(const char* name, uint64_t value, uint32_t low, uint32_t high) const {
  if (value < low || value > high) {
    corrupt(fmt::format("{} is {}; it must be from {} to {}", key(name), value, low, high));
  }
  return static_cast<uint32_t>(value);
}

void ModelKeys::require_blocks(const char* name, size_t found, size_t blocks) const {
  if (found < blocks) {
    corrupt(fmt::format("{} has {} values for {} blocks", key(name), found, blocks));
  }
}

}  // namespace tierpack
