// What `bench` shows: one result as text for the terminal, JSON, Markdown and plots.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/bench_run.h"
#include "runtime/engine.h"

namespace tierpack {

// What was measured, for the heads of reports.
struct BenchSubject {
  std::string pack;          // its name
  std::string model;         // the name in its metadata
  std::string architecture;
  std::string routing_id;    // of the pack, hex
  std::string version;       // of this program
  std::string time;          // UTC, ISO 8601
  EngineOptions options;     // with defaults resolved
  uint32_t decode = 0;
  uint32_t runs = 0;
  std::string prompts;       // where the token ids came from
};

std::string bench_text(const BenchSubject& subject, const BenchResult& result);
// docs/benchmarks.md describes the fields.
std::string bench_json(const BenchSubject& subject, const BenchResult& result);
std::string bench_markdown(const BenchSubject& subject, const BenchResult& result);

// Throws kUsage unless `directory` can become a report: absent, or an empty directory, in a directory that exists.
void require_report_target(const std::filesystem::path& directory);
// report.json, report.md, prefill.svg and decode.svg: written beside, flushed, then given the name as one directory.
void write_report(const std::filesystem::path& directory, const BenchSubject& subject, const BenchResult& result);

}  // namespace tierpack
