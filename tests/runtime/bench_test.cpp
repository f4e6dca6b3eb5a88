// The command `bench` as a user calls it.
#include "runtime/bench.h"

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

#include "base/interrupt.h"
#include "base/json.h"
#include "runtime/bench_report.h"
#include "tests/runtime/model/model_fixture.h"
#include "tests/support/run_command.h"

namespace tierpack {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// Runs `bench ARGS` and returns what it printed on stdout.
std::string run_bench_command(std::vector<std::string> arguments) { return run_command(setup_bench, std::move(arguments)); }

class Bench : public testing::Test {
 protected:
  Json bench_json_of(std::vector<std::string> more) {
    std::vector<std::string> arguments = {pack_, "--json", "--runs", "2", "--decode", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse_json(run_bench_command(arguments), "out");
  }
  std::optional<ErrorKind> refused(std::vector<std::string> more) {
    more.insert(more.begin(), pack_);
    const Thrown thrown = thrown_by([&] { run_bench_command(more); });
    EXPECT_FALSE(thrown.message.empty());
    return thrown.kind;
  }
  TempDirectory directory_;
  const std::string pack_ = pebble_pack();
};

void expect_samples(const Json& samples, size_t runs) {
  ASSERT_EQ(samples["runs"].size(), runs) << samples;
  for (const Json& value : samples["runs"]) {
    EXPECT_GT(value.get<double>(), 0);
    EXPECT_LE(samples["min"].get<double>(), value.get<double>());
    EXPECT_GE(samples["max"].get<double>(), value.get<double>());
  }
  EXPECT_LE(samples["min"].get<double>(), samples["median"].get<double>());
  EXPECT_GE(samples["max"].get<double>(), samples["median"].get<double>());
}

TEST_F(Bench, EveryFigureIsThereWithItsCeiling) {
  const Json out = bench_json_of({"--lengths", "48,16", "--threads", "2"});
  EXPECT_EQ(out["format"], "tierpack-bench");
  EXPECT_EQ(out["format_version"], 1);
  EXPECT_EQ(out["pack"], "pebble");
  EXPECT_EQ(out["architecture"], "qwen4exp");
  EXPECT_EQ(out["options"]["threads"], 2);
  EXPECT_EQ(out["options"]["context"], 52);
  ASSERT_EQ(out["lengths"].size(), 2u);
  EXPECT_EQ(out["lengths"][0]["tokens"], 16);
  EXPECT_EQ(out["lengths"][1]["tokens"], 48);
  for (const Json& length : out["lengths"]) {
    expect_samples(length["prefill"]["tokens_per_s"], 2);
    expect_samples(length["prefill"]["first_token_s"], 2);
    expect_samples(length["prefill"]["share_of_ceiling"], 2);
    expect_samples(length["decode"]["tokens_per_s"], 2);
    expect_samples(length["decode"]["weight_bytes_per_s"], 2);
    expect_samples(length["decode"]["share_of_read_bandwidth"], 2);
    EXPECT_GT(length["prefill"]["ceiling_tokens_per_s"].get<double>(), 0);
    EXPECT_GT(length["decode"]["ceiling_tokens_per_s"].get<double>(), 0);
    EXPECT_EQ(length["fingerprint"].get<std::string>().size(), 32u);
    const double rate = length["decode"]["tokens_per_s"]["runs"][0];
    const double read = length["decode"]["weight_bytes_per_s"]["runs"][0];
    EXPECT_NEAR(read / rate, out["work"]["decode_weight_bytes"].get<double>(), 1);
  }
  EXPECT_NE(out["lengths"][0]["fingerprint"], out["lengths"][1]["fingerprint"]);
  expect_samples(out["two_requests"]["tokens_per_s"], 2);
  EXPECT_EQ(out["two_requests"]["prompt"], 16);
  expect_samples(out["read_bytes_per_s"], 1 + 2 * 3);
  expect_samples(out["int8_products_per_s"], 1 + 2 * 3);
  EXPECT_GT(out["load"]["seconds"].get<double>(), 0);
  EXPECT_GT(out["load"]["bytes"].get<uint64_t>(), 10'000'000u);
  EXPECT_LT(out["work"]["decode_weight_bytes"].get<uint64_t>(), out["load"]["bytes"].get<uint64_t>());
  EXPECT_GT(out["peak_resident_bytes"].get<uint64_t>(), out["load"]["bytes"].get<uint64_t>());
}

TEST_F(Bench, TheFingerprintIsThatOfTheLogits) {
  const Json out = bench_json_of({"--lengths", "20", "--threads", "1"});
  EngineOptions options;
  options.pack = pack_;
  options.threads = 1;
  options.context = 64;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  const LogitRows rows = append_all(*engine->new_session(), seeded_tokens(24, engine->config().vocab, 1));
  EXPECT_EQ(out["lengths"][0]["fingerprint"], fingerprint({rows.begin() + 19, rows.end()}));
}

TEST_F(Bench, TheFingerprintDoesNotDependOnThreadsChunksOrKernels) {
  const Json one = bench_json_of({"--lengths", "40", "--threads", "1"});
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--threads", "2"}, {"--threads", "3", "--chunk", "7"},
                                               {"--threads", "2", "--isa", "reference"}}) {
    std::vector<std::string> arguments = {"--lengths", "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(bench_json_of(arguments)["lengths"][0]["fingerprint"], one["lengths"][0]["fingerprint"]);
  }
}

TEST_F(Bench, ACorpusGivesTheTokens) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "Once upon a time, there was a kind girl named Lily. ";
  write_file(directory_ / "book.txt", text);
  const Json ids = bench_json_of({"--lengths", "30", "--threads", "1"});
  const Json out = bench_json_of({"--lengths", "30", "--threads", "1", "--corpus", directory_ / "book.txt"});
  EXPECT_NE(out["lengths"][0]["fingerprint"], ids["lengths"][0]["fingerprint"]);
  EXPECT_EQ(out["options"]["prompts"], "text of book.txt");
  write_file(directory_ / "short.txt", "Once upon a time");
  EXPECT_EQ(refused({"--lengths", "30", "--corpus", directory_ / "short.txt"}), ErrorKind::kUsage);
  EXPECT_EQ(refused({"--lengths", "30", "--corpus", directory_ / "absent.txt"}), ErrorKind::kIo);
}

TEST_F(Bench, TheReportIsOneDirectory) {
  const std::filesystem::path report = directory_ / "report";
  const std::string printed = run_bench_command({pack_, "--lengths", "16,32", "--decode", "3", "--runs", "1", "--json", "--report", report});
  EXPECT_EQ(read_file(report / "report.json"), printed);
  EXPECT_THAT(read_file(report / "report.md"), HasSubstr("| 16 |"));
  EXPECT_THAT(read_file(report / "report.md"), HasSubstr("![decode](decode.svg)"));
  for (const char* plot : {"prefill.svg", "decode.svg"}) EXPECT_THAT(read_file(report / plot), HasSubstr("</svg>"));
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_.path())) ++entries;
  EXPECT_EQ(entries, 1u);  // nothing is left beside it

  EXPECT_EQ(refused({"--lengths", "16", "--report", report}), ErrorKind::kUsage);  // there is a report already
  EXPECT_EQ(read_file(report / "report.json"), printed);
  EXPECT_EQ(refused({"--lengths", "16", "--report", directory_ / "absent/report"}), ErrorKind::kUsage);
  EXPECT_EQ(refused({"--lengths", "16", "--report", report / "report.json"}), ErrorKind::kUsage);
  std::filesystem::create_directory(directory_ / "empty");
  run_bench_command({pack_, "--lengths", "16", "--decode", "1", "--runs", "1", "--report", (directory_ / "empty").string() + "/"});
  EXPECT_TRUE(std::filesystem::exists(directory_ / "empty/report.json"));
}

TEST(Report, AFailureLeavesNothingBehind) {
  const TempDirectory directory;
  BenchResult result;
  LengthResult& length = result.lengths.emplace_back();
  length.tokens = 16;
  length.prefill_ceiling = length.decode_ceiling = result.pair_ceiling = {1, true};
  for (Samples* samples : {&length.prefill, &length.first_token, &length.decode, &length.decode_read, &length.prefill_share,
                           &length.decode_share, &length.decode_read_share, &result.read_bandwidth, &result.int8_rate, &result.pair,
                           &result.pair_share}) {
    samples->add(1);
  }
  const BenchSubject subject;
  // Too long a name for a file system, once the suffix of the unfinished directory is there.
  const std::string name(254, 'r');
  EXPECT_EQ(thrown_by([&] { write_report(directory / name, subject, result); }).kind, ErrorKind::kIo);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  write_report(directory / "report", subject, result);
  EXPECT_TRUE(std::filesystem::exists(directory / "report/decode.svg"));
}

TEST_F(Bench, TheTableNamesWhatWasMeasured) {
  const std::string out = run_bench_command({pack_, "--lengths", "16", "--decode", "3", "--runs", "1", "--threads", "1"});
  for (const char* part : {"pebble: qwen4exp", "1 thread,", "prefill tokens/s", "of bandwidth", "read bandwidth", "two requests", "peak memory"}) {
    EXPECT_THAT(out, HasSubstr(part));
  }
}

TEST_F(Bench, WhatCannotBeMeasuredIsRefusedBeforeLoading) {
  for (const char* lengths : {"0", "x", "16,", "-5", "1.5K"}) EXPECT_EQ(refused({"--lengths", lengths}), ErrorKind::kUsage) << lengths;
  const Thrown too_long = thrown_by([&] { run_bench_command({pack_, "--lengths", "4090", "--decode", "7"}); });
  EXPECT_EQ(too_long.kind, ErrorKind::kUsage);
  EXPECT_THAT(too_long.message, HasSubstr("4096"));
  EXPECT_EQ(thrown_by([&] { run_bench_command({directory_ / "absent.tierpack"}); }).kind, ErrorKind::kUsage);
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--runs", "0"}, {"--decode", "0"}, {"--threads", "-1"}, {"--lengths", ""},
                                              {"--context", "9"}}) {
    std::vector<std::string> arguments = {pack_};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    EXPECT_THROW(run_bench_command(arguments), CLI::ParseError) << bad[0];
  }
}

TEST_F(Bench, AnInterruptEndsItWithoutAReport) {
  install_interrupt_handlers();
  request_interrupt();
  const std::optional<ErrorKind> kind = refused({"--lengths", "16", "--report", directory_ / "report"});
  take_interrupt();
  EXPECT_EQ(kind, ErrorKind::kInterrupted);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "report"));
}

}  // namespace
}  // namespace tierpack
