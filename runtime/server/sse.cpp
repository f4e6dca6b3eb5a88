#include "runtime/server/sse.h"

#include <fmt/core.h>

#include "base/error.h"

namespace tierpack::server {

std::string sse_event(std::string_view data) {
  std::string out;
  for (;;) {
    const size_t end = data.find_first_of("\r\n");
    out += "data: ";
    out += data.substr(0, end);
    out += '\n';
    if (end == std::string_view::npos) break;
    data.remove_prefix(end + (data.substr(end).starts_with("\r\n") ? 2 : 1));
  }
  return out += '\n';
}

std::string http_chunk(std::string_view data) {
  TIERPACK_CHECK(!data.empty());
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

}  // namespace tierpack::server
