// What the test hub can do wrong, by name, and how it serves a file honestly.
//
// Instead of the answer:  status (status, headers, text = body) · html · drop (close unread) · garbage (no HTTP)
//   head_cut: half a head, then closed     head_drip: a head of one byte every `seconds`   head_huge: a head of 1 MiB
//   interim_flood: 103 after 103 for `seconds`          huge_length: a Content-Length of 20 digits
//   redirect (text = Location, status) · redirect_loop · hang (accept, never answer, `seconds`)
// A file's answer, wrongly:
//   full: 200 with the whole file         full_chunked: the same without length     full_unknown: ... ended by closing
//   tail_200: 200, Content-Range and the tail (ModelScope's habit)
//   wrong_start: 206 from byte 0          aligned_start: 206 from `bytes` bytes before
//   no_content_range, two_ranges, invalid_range (text)      multipart: 206 in MIME parts
//   total: Content-Range total is `bytes` more              no_total: ".../*"
//   short: an honest answer of only `bytes` bytes           length_mismatch: Content-Length is `bytes` more
//   416: "*/size"   416_total: "*/(size+bytes)"   416_bare: no Content-Range   412
//   gzip: Content-Encoding: gzip          chunked: no length, chunks; chunked_cut: ended after `bytes` without the last
//   truncate: closes after `bytes`        reset: the same with RST                  stall: sends `bytes`, then `seconds` nothing
//   slow: `bytes` bytes a second          extra: junk after the promised end
//   two_lengths, te_and_cl: contradictory framing
//   etag: another ETag (text)             corrupt: byte number `bytes` of the file is flipped
//   shift: bytes from 4 further on        other_file: from ROOT/text instead
//   noise: other bytes, right length      beyond: a range that ends later than asked     empty: 206 whose body is empty
//   interim: a 103 before an honest answer                  junk_after: a second answer that nobody asked for
//   bad_chunk: a chunk size that is none  chunk_overflow: one beyond 64 bits     trailers: chunks, and trailers that lie
//   reset_end: RST after the last byte    etag_each: another ETag every time
//   header: extra `headers` on an honest answer (any answer)
#include <algorithm>
#include <chrono>

#include "fetch/http_head.h"
#include "tests/support/hub_connection.h"

namespace tierpack::support {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kNoLimit = UINT64_MAX;

std::string content_range(uint64_t first, uint64_t last, const std::string& total) {
  return "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" + total;
}

// "bytes=a-b" or "bytes=a-"; false if there is no such header.
bool parse_range(const std::string& value, uint64_t size, uint64_t& first, uint64_t& last, bool& satisfiable) {
  if (value.rfind("bytes=", 0) != 0) return false;
  const size_t dash = value.find('-');
  const auto a = fetch::parse_decimal(std::string_view(value).substr(6, dash - 6));
  if (dash == std::string::npos || !a) return false;
  const auto b = fetch::parse_decimal(std::string_view(value).substr(dash + 1));
  first = *a;
  last = std::min(b.value_or(kNoLimit), size == 0 ? 0 : size - 1);
  satisfiable = first < size && first <= last;
  return true;
}

}  // namespace

bool HubConnection::answer_fault(const HubRequest& request, const Fault& fault) {
  if (fault.action == "status") {
    Headers headers = fault.headers;
    if (headers.empty()) headers.emplace_back("Content-Type", "application/json");
    respond(fault.status, headers, fault.text.empty() ? R"({"error":"told to"})" : fault.text);
  } else if (fault.action == "html") {
    respond(200, {{"Content-Type", "text/html; charset=utf-8"}}, "<html><body>Please log in.</body></html>");
  } else if (fault.action == "drop") {
    close_now(false);
  } else if (fault.action == "garbage") {
    write_all("\x16\x03\x01 this is not HTTP\r\n\r\n");
    close_now(false);
  } else if (fault.action == "head_cut") {
    write_all("HTTP/1.1 206 Partial Content\r\nContent-Ran");
    close_now(false);
  } else if (fault.action == "head_drip") {
    while (open_ && !hub_.stopping_) {
      for (const char c : std::string("HTTP/1.1 206 Partial Content\r\nX-Padding: 0123456789\r\nX-More: ")) {
        write_all({&c, 1});
        sleep_unless_stopped(fault.seconds);
      }
    }
  } else if (fault.action == "head_huge") {
    write_all("HTTP/1.1 206 Partial Content\r\n");
    for (int i = 0; i < 1024 && open_; ++i) write_all("X-Padding: " + std::string(1011, 'x') + "\r\n");
    close_now(false);
  } else if (fault.action == "interim_flood") {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(fault.seconds);
    while (open_ && !hub_.stopping_ && std::chrono::steady_clock::now() < until) {
      write_all("HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n");
    }
    close_now(false);
  } else if (fault.action == "huge_length") {
    write_head(206, {{"Content-Length", "99999999999999999999"}, {"Content-Range", "bytes 0-99999999999999999998/99999999999999999999"}});
    close_now(false);
  } else if (fault.action == "hang") {
    sleep_unless_stopped(fault.seconds > 0 ? fault.seconds : 3600);
    close_now(false);
  } else if (fault.action == "redirect" || fault.action == "redirect_loop") {
    Headers headers = {{"Location", fault.action == "redirect" ? fault.text : request.target}};
    headers.insert(headers.end(), fault.headers.begin(), fault.headers.end());
    respond(fault.status != 0 ? fault.status : 302, headers, "moved\n");
  } else {
    return false;
  }
  return true;
}

void HubConnection::send_file(const HubRequest& request, const FileAnswer& answer) {
  std::error_code code;
  const uint64_t size = fs::file_size(answer.file, code);
  if (code) return respond(404, {}, "no such object\n");
  uint64_t first = 0;
  uint64_t last = size == 0 ? 0 : size - 1;
  bool satisfiable = true;
  bool ranged = parse_range(request.header("range"), size, first, last, satisfiable);
  const std::string if_range = request.header("if-range");
  if (ranged && !if_range.empty() && if_range != answer.etag) {
    ranged = false;
    first = 0;
    last = size == 0 ? 0 : size - 1;
    satisfiable = true;
  }
  if (fault_ && fault_->action != "header" && size > 0) {
    if (!satisfiable) first = last = 0;
    return send_wrong(request, answer, *fault_, size, first, last, ranged);
  }
  Headers headers = answer.headers;
  if (!answer.etag.empty()) headers.emplace_back("ETag", answer.etag);
  headers.emplace_back("Accept-Ranges", "bytes");
  headers.emplace_back("Content-Type", "application/octet-stream");
  if (!satisfiable) {
    headers.emplace_back("Content-Range", "bytes */" + std::to_string(size));
    return respond(416, headers, "");
  }
  const uint64_t length = size == 0 ? 0 : last - first + 1;
  if (ranged) headers.emplace_back("Content-Range", content_range(first, last, std::to_string(size)));
  headers.emplace_back("Content-Length", std::to_string(length));
  write_head(ranged ? 206 : 200, headers);
  if (!head_only_ && length > 0) write_file(answer.file, first, last, kNoLimit, 0);
}

void HubConnection::send_wrong(const HubRequest& request, const FileAnswer& answer, const Fault& fault, uint64_t size,
                               uint64_t first, uint64_t last, bool ranged) {
  const std::string& action = fault.action;
  const std::string total = std::to_string(size);
  const auto amount = static_cast<uint64_t>(std::max<int64_t>(0, fault.bytes));
  uint64_t length = last - first + 1;

  int status = ranged ? 206 : 200;
  fs::path file = answer.file;
  std::string range = ranged ? content_range(first, last, total) : "";
  std::string declared = std::to_string(length);
  std::string etag = answer.etag;
  Headers extra;
  bool chunked = false;
  bool close_after = false;
  bool finish_chunks = true;
  uint64_t limit = kNoLimit;
  double rate = 0;
  std::string trailing;
  std::string whole_body;  // sent instead of file content
  const auto whole_file = [&] {
    status = 200;
    range.clear();
    first = 0;
    last = size - 1;
    length = size;
    declared = total;
  };

  if (action == "full") whole_file();
  else if (action == "full_chunked") { whole_file(); declared.clear(); chunked = true; }
  else if (action == "full_unknown") { whole_file(); declared.clear(); close_after = true; if (amount > 0) limit = amount; }
  else if (action == "tail_200") status = 200;
  else if (action == "wrong_start") { first = 0; length = last + 1; range = content_range(0, last, total); declared = std::to_string(length); }
  else if (action == "aligned_start") {
    first -= std::min(first, amount);
    length = last - first + 1;
    range = content_range(first, last, total);
    declared = std::to_string(length);
  }
  else if (action == "no_content_range") range.clear();
  else if (action == "two_ranges") extra.emplace_back("Content-Range", content_range(first, last, total));
  else if (action == "invalid_range") range = fault.text;
  else if (action == "total") range = content_range(first, last, std::to_string(static_cast<int64_t>(size) + fault.bytes));
  else if (action == "no_total") range = content_range(first, last, "*");
  else if (action == "short") {
    last = std::min(last, first + std::max<uint64_t>(1, amount) - 1);
    length = last - first + 1;
    range = content_range(first, last, total);
    declared = std::to_string(length);
  }
  else if (action == "length_mismatch") { declared = std::to_string(length + amount); close_after = true; }
  else if (action == "multipart") {
    whole_body = "--B\r\nContent-Type: application/octet-stream\r\nContent-Range: " + range + "\r\n\r\n" +
                 read_file(file, first, std::min(last, first + 9999)) + "\r\n--B--\r\n";
    extra.emplace_back("Content-Type", "multipart/byteranges; boundary=B");
    range.clear();
    declared = std::to_string(whole_body.size());
  }
  else if (action == "416") return respond(416, {{"Content-Range", "bytes */" + total}}, "");
  else if (action == "416_total") return respond(416, {{"Content-Range", "bytes */" + std::to_string(static_cast<int64_t>(size) + fault.bytes)}}, "");
  else if (action == "416_bare") return respond(416, {}, "");
  else if (action == "412") return respond(412, {}, "");
  else if (action == "gzip") extra.emplace_back("Content-Encoding", "gzip");
  else if (action == "chunked") { declared.clear(); chunked = true; }
  else if (action == "chunked_cut") { declared.clear(); chunked = true; finish_chunks = false; limit = amount; close_after = true; }
  else if (action == "truncate") { limit = amount; close_after = true; }
  else if (action == "reset" || action == "stall") limit = amount;
  else if (action == "slow") rate = static_cast<double>(std::max<uint64_t>(1, amount));
  else if (action == "extra") { trailing = "EXTRA BYTES BEYOND THE PROMISED END"; close_after = true; }
  else if (action == "two_lengths") extra.emplace_back("Content-Length", std::to_string(length / 2 + 1));
  else if (action == "te_and_cl") { chunked = true; }
  else if (action == "etag") etag = fault.text;
  else if (action == "shift") whole_body = read_file(file, std::min(first + 4, last), last) + "XXXX";
  else if (action == "noise") { whole_body.assign(length, 'n'); }
  else if (action == "beyond") { last = std::min(size - 1, last + 4096); length = last - first + 1; range = content_range(first, last, total); declared = std::to_string(length); }
  else if (action == "empty") { declared = "0"; limit = 0; }
  else if (action == "bad_chunk" || action == "chunk_overflow") { declared.clear(); chunked = true; limit = 0; finish_chunks = false; close_after = true; }
  else if (action == "trailers") { declared.clear(); chunked = true; finish_chunks = false; }
  else if (action == "etag_each") etag = "\"" + std::to_string(hub_.requests().size()) + "-each\"";
  else if (action == "interim" || action == "junk_after" || action == "reset_end") {}
  else if (action == "other_file") file = hub_.options_.root / fault.text;
  else if (action == "corrupt") {
    whole_body = read_file(file, first, last);
    if (amount >= first && amount <= last) whole_body[amount - first] = static_cast<char>(whole_body[amount - first] ^ 0x55);
  }
  else return respond(500, {}, "unknown fault " + action + "\n");

  Headers headers = answer.headers;
  if (!etag.empty()) headers.emplace_back("ETag", etag);
  headers.insert(headers.end(), fault.headers.begin(), fault.headers.end());
  if (!range.empty()) headers.emplace_back("Content-Range", range);
  if (!declared.empty()) headers.emplace_back("Content-Length", declared);
  headers.insert(headers.end(), extra.begin(), extra.end());
  if (chunked) headers.emplace_back("Transfer-Encoding", "chunked");
  if (close_after) headers.emplace_back("Connection", "close");
  if (action == "interim") write_all("HTTP/1.1 103 Early Hints\r\nContent-Range: bytes 7-8/9\r\nETag: \"early\"\r\n\r\n");
  write_head(status, headers);
  if (head_only_) return;

  if (!whole_body.empty()) {
    write_all(whole_body.substr(0, action == "shift" ? length : std::string::npos));
  } else if (chunked) {
    const uint64_t end = first + std::min(last + 1 - first, limit);
    for (uint64_t at = first; at < end && open_;) {
      const std::string piece = read_file(file, at, std::min(end, at + 65536) - 1);
      char head[32];
      std::snprintf(head, sizeof head, "%zx\r\n", piece.size());
      write_all(head + piece + "\r\n");
      at += piece.size();
    }
    if (finish_chunks) write_all("0\r\n\r\n");
    if (action == "bad_chunk") write_all("zz\r\nbytes that belong nowhere\r\n0\r\n\r\n");
    if (action == "chunk_overflow") write_all("FFFFFFFFFFFFFFFFF\r\n" + std::string(5000, 'o'));
    if (action == "trailers") write_all("0\r\nContent-Range: bytes 0-1/2\r\nETag: \"late\"\r\nContent-Length: 2\r\n\r\n");
  } else {
    write_file(file, first, last, limit, rate);
  }
  if (!trailing.empty()) write_all(trailing);
  if (action == "stall") sleep_unless_stopped(fault.seconds > 0 ? fault.seconds : 3600);
  if (action == "junk_after") {
    sleep_unless_stopped(0.05);
    write_all("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/" + total + "\r\nContent-Length: 10\r\n\r\nJUNKJUNKJU");
  }
  if (action == "reset" || action == "reset_end") return close_now(true);
  if (close_after || action == "stall") close_now(false);
  (void)request;
}

}  // namespace tierpack::support
