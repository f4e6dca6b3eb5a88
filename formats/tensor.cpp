#include "formats/tensor.h"

#include <algorithm>

namespace tierpack {

std::string Shape::text() const {
  std::string out = "{";
  for (uint32_t i = 0; i < std::max(dims, uint32_t{1}); ++i) {
    if (i) out += ", ";
    out += std::to_string(ne[i]);
  }
  return out + "}";
}

}  // namespace tierpack
