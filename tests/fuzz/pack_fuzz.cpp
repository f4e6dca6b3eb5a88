// parse_pack over any bytes. Input: the text of pack.json without its last member, a NUL, then records.bin. "@SHA@" in the
// text stands for the SHA-256 of the records and the seal is added here, so that mutations reach the checks behind the
// digests; a text that begins with '!' is parsed as it is.
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
  const tierpack::Bytes records = tierpack::as_bytes(input.substr(std::min(cut + 1, input.size())));
  if (text.starts_with("!")) {
    text.erase(0, 1);
  } else {
    if (const size_t at = text.find("@SHA@"); at != std::string::npos) {
      text.replace(at, 5, tierpack::Sha256::of(records).hex());
    }
    text = tierpack::testing_support::seal_json_body(text);
  }
  try {
    tierpack::parse_pack(text, records, "fuzz");
  } catch (const tierpack::Error& e) {
    if (e.kind() != tierpack::ErrorKind::kCorrupt && e.kind() != tierpack::ErrorKind::kUnsupported) throw;
  }
  return 0;
}
