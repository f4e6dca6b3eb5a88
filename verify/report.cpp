#include "verify/report.h"

#include <algorithm>
#include <tuple>

namespace tierpack::verify {

const char* finding_kind_name(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kMissing: return "missing";
    case Finding::Kind::kSize: return "size";
    case Finding::Kind::kDigest: return "digest";
    case Finding::Kind::kStructure: return "structure";
    case Finding::Kind::kRecord: return "record";
    case Finding::Kind::kPage: return "page";
    case Finding::Kind::kPadding: return "padding";
    case Finding::Kind::kNotFinite: return "not finite";
    case Finding::Kind::kShard: return "shard";
    case Finding::Kind::kUnreadable: return "unreadable";
    case Finding::Kind::kUnlisted: return "unlisted";
    case Finding::Kind::kUnfinished: return "unfinished";
    case Finding::Kind::kUnproved: return "unproved";
    case Finding::Kind::kSuspicious: return "suspicious";
    case Finding::Kind::kTranscoded: return "transcoded";
  }
  return "";
}

const char* status_name(FileResult::Status status) {
  switch (status) {
    case FileResult::Status::kProved: return "proved";
    case FileResult::Status::kWrong: return "wrong";
    case FileResult::Status::kMissing: return "missing";
    case FileResult::Status::kUnproved: return "unproved";
  }
  return "";
}

size_t Report::problems() const {
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(), [](const Finding& item) { return item.is_problem(); }));
}

void Report::add(Finding::Kind kind, std::string where, std::string message) {
  findings.push_back({kind, std::move(where), std::move(message)});
}

void sort_findings(Report& report) {
  std::stable_sort(report.findings.begin(), report.findings.end(), [](const Finding& a, const Finding& b) {
    return std::tuple(!a.is_problem(), a.where) < std::tuple(!b.is_problem(), b.where);
  });
}

}  // namespace tierpack::verify
