// parse_pack over any bytes. Input: the text of pack.json without its last member, a NUL, u32 bytes of records.bin, records.bin, then
// sources.bin. "@SHA@" in the text stands for the SHA-256 of the records, "@SOURCES@" for that of the sources, and the seal is added here, so
// that mutations reach the checks behind the digests; a text that begins with '!' is parsed as it is.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/pack.h"
#include "tests/support/tiny_pack.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), input.size());
  std::string text(input.substr(0, cut));
  std::string_view rest = input.substr(std::min(cut + 1, input.size()));
  size_t records_bytes = 0;
  if (rest.size() >= sizeof(uint32_t)) {
    records_bytes = tierpack::load<uint32_t>(tierpack::as_bytes(rest).data());
    rest.remove_prefix(sizeof(uint32_t));
  }
  records_bytes = std::min(records_bytes, rest.size());
  const tierpack::Bytes records = tierpack::as_bytes(rest.substr(0, records_bytes));
  const tierpack::Bytes sources = tierpack::as_bytes(rest.substr(records_bytes));
  if (text.starts_with("!")) {
    text.erase(0, 1);
  } else {
    const auto put = [&](std::string_view mark, tierpack::Bytes content) {
      if (const size_t at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), tierpack::Sha256::of(content).hex());
    };
    put("@SHA@", records);
    put("@SOURCES@", sources);
    text = tierpack::testing_support::seal_json_body(text);
  }
  try {
    tierpack::parse_pack(text, records, sources, "fuzz");
  } catch (const tierpack::Error& e) {
    if (e.kind() != tierpack::ErrorKind::kCorrupt && e.kind() != tierpack::ErrorKind::kUnsupported) throw;
  }
  return 0;
}
