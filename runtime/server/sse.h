// Server-sent events and the chunks that carry them.
#pragma once

#include <string>
#include <string_view>

namespace tierpack::server {

inline constexpr const char* kEventStreamType = "text/event-stream; charset=utf-8";
inline constexpr const char* kHeartbeat = ": still working\n\n";

// One event; `data` may have several lines.
std::string sse_event(std::string_view data);

// HTTP/1.1 chunked transfer coding. `data` must not be empty: an empty chunk ends the body.
std::string http_chunk(std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace tierpack::server
