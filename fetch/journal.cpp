#include "fetch/journal.h"

#include <fmt/core.h>

#include <algorithm>

#include "fetch/http_head.h"

namespace tierpack::fetch {

namespace {

// "name value\n" at the front of `text`: the value, and `text` moves on.
std::optional<std::string_view> take_field(std::string_view& text, std::string_view name) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || end < name.size() + 1) return std::nullopt;
  if (text.substr(0, name.size()) != name || text[name.size()] != ' ') return std::nullopt;
  const std::string_view value = text.substr(name.size() + 1, end - name.size() - 1);
  text.remove_prefix(end + 1);
  return value;
}

std::optional<ExtentSet> parse_extents(std::string_view text) {
  ExtentSet out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t dash = item.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto from = parse_decimal(item.substr(0, dash));
    const auto to = parse_decimal(item.substr(dash + 1));
    if (!from || !to || *from >= *to) return std::nullopt;
    out.add({*from, *to});
  }
  return out;
}

}  // namespace

std::string encode_journal(const Journal& journal) {
  std::string out = "tierpack-journal 1\n";
  out += fmt::format("size {}\n", journal.size ? std::to_string(*journal.size) : "-");
  out += fmt::format("sha256 {}\n", journal.sha256 ? journal.sha256->hex() : "-");
  out += fmt::format("validator {}\n", journal.validator.empty() ? "-" : journal.validator);
  out += fmt::format("part {} {} {}\n", journal.device, journal.inode, journal.birth_ns);
  out += "extents ";
  bool first = true;
  for (const Extent& extent : journal.extents.extents()) {
    out += fmt::format("{}{}-{}", first ? "" : " ", extent.begin, extent.end);
    first = false;
  }
  out += '\n';
  out += fmt::format("xxh3 {}\n", xxh3_128(as_bytes(out)).hex());
  return out;
}

std::optional<Journal> parse_journal(std::string_view text) {
  constexpr size_t kSealBytes = 5 + 32 + 1;  // "xxh3 <32 hex>\n"
  if (text.size() < kSealBytes) return std::nullopt;
  const std::string_view sealed = text.substr(0, text.size() - kSealBytes);
  if (text.substr(sealed.size()) != fmt::format("xxh3 {}\n", xxh3_128(as_bytes(sealed)).hex())) return std::nullopt;

  Journal out;
  std::string_view rest = sealed;
  const auto version = take_field(rest, "tierpack-journal");
  if (!version || *version != "1") return std::nullopt;
  const auto size = take_field(rest, "size");
  const auto sha256 = take_field(rest, "sha256");
  const auto validator = take_field(rest, "validator");
  const auto part = take_field(rest, "part");
  const auto extents = take_field(rest, "extents");
  if (!size || !sha256 || !validator || !part || !extents || !rest.empty()) return std::nullopt;
  if (*size != "-") {
    out.size = parse_decimal(*size);
    if (!out.size) return std::nullopt;
  }
  if (*sha256 != "-") {
    Sha256Digest digest;
    if (!from_hex(*sha256, digest.bytes)) return std::nullopt;
    out.sha256 = digest;
  }
  if (*validator != "-") out.validator = *validator;
  const size_t space = part->find(' ');
  const size_t second = space == std::string_view::npos ? space : part->find(' ', space + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto device = parse_decimal(part->substr(0, space));
  const auto inode = parse_decimal(part->substr(space + 1, second - space - 1));
  const auto birth = parse_decimal(part->substr(second + 1));
  auto set = parse_extents(*extents);
  if (!device || !inode || !birth || !set) return std::nullopt;
  out.birth_ns = *birth;
  out.device = *device;
  out.inode = *inode;
  out.extents = std::move(*set);
  if (out.size) out.extents.clip(*out.size);
  return out;
}

}  // namespace tierpack::fetch
