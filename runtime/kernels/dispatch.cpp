// Which tables this CPU can run.
#include <string>

#include "base/error.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::kernels {

std::vector<const KernelTable*> available() {
  std::vector<const KernelTable*> tables = {&reference()};
  return tables;
}

const KernelTable& best() { return *available().back(); }

const KernelTable& by_name(std::string_view name) {
  std::string names;
  for (const KernelTable* table : available()) {
    if (table->name == name) return *table;
    names += names.empty() ? table->name : std::string(", ") + table->name;
  }
  fail(ErrorKind::kUsage, "no kernels named '{}' run on this CPU; available: {}", std::string(name), names);
}

}  // namespace tierpack::kernels
