// Everything that hubs and servers say, from arbitrary bytes. The first byte chooses what the rest is: a file list, a
// manifest, a response's head, a journal, a URL. An Error or a value that keeps its promises, never anything else.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "fetch/glob.h"
#include "fetch/hub_answers.h"
#include "fetch/journal.h"
#include "fetch/redirect_rules.h"
#include "fetch/response_rules.h"
#include "fetch/source_reference.h"

using namespace tierpack;
using namespace tierpack::fetch;

namespace {

void check(bool promise) {
  if (!promise) std::abort();
}

void fuzz_listing(std::vector<RemoteFile> files) {
  Listing listing;
  listing.source = "fuzz";
  listing.files = std::move(files);
  check_listing(listing);
  for (const RemoteFile& file : listing.files) check(file.path.find("..") != 0 && file.path.front() != '/');
}

void fuzz_head(std::string_view text) {
  HeadCollector collector;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    if (collector.line(text.substr(0, end + 1)) != HeadCollector::State::kReading) break;
    text.remove_prefix(end + 1);
  }
  const ResponseHead& head = collector.head();
  PayloadRequest request;
  request.first = 400;
  request.last = 999;
  request.total = 1000;
  request.etag = "\"a\"";
  const Decision decision = judge_response(request, head);
  if (decision.verdict == Verdict::kWrite) {
    check(decision.offset == 400 && decision.length && *decision.length > 0 && 400 + *decision.length <= 1000);
  }
  PayloadRequest unknown;
  const Decision first = judge_response(unknown, head);
  if (first.verdict == Verdict::kWrite) check(first.offset == 0);
  const Hop hop = first_hop(Url::require("https://hub.example/a", "fuzz"));
  const RedirectDecision next = follow_redirect(hop, head, false);
  if (next.next) check(next.next->url.origin().scheme == "https" && !next.next->url.has_credentials());
  server_wait(head, 1000);
  next_link(head);
  representation_sha256(head);
  for (const HeaderField& field : head.fields) {
    for (const char c : printable(field.value)) check(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
}

void fuzz_text(std::string_view text) {
  if (const auto journal = parse_journal(text)) check(parse_journal(encode_journal(*journal)) == journal);
  if (const auto url = Url::parse(text)) {
    check(Url::parse(url->text()).has_value());
    url->resolve("/x");
    signed_until(*url);
    check(url->redacted().rfind(url->origin().text(), 0) == 0 && url->origin().text().find('@') == std::string::npos);
  }
  check(percent_decode(percent_encode(text)) == text);
  const std::string_view head = text.substr(0, 100);
  check(glob_match(glob_escape(head), head));
  glob_match(head, text.substr(head.size()));
  parse_reference(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
  try {
    size_t entries = 0;
    switch (data[0] % 5) {
      case 0: fuzz_listing(parse_huggingface_tree(text, "fuzz")); break;
      case 1: fuzz_listing(parse_modelscope_files(text, "fuzz", entries)); break;
      case 2: fuzz_listing(parse_registry_manifest(text, "fuzz", "model")); break;
      case 3: fuzz_head(text); break;
      default: fuzz_text(text); break;
    }
  } catch (const Error&) {
  }
  return 0;
}
