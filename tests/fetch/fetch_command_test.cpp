// The command as a user meets it: locks, offline, dry runs, space, events, environment, limits, early failure.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "fetch/http_source.h"
#include "formats/lock.h"
#include "tests/support/fetch_fixture.h"

namespace tierpack::support {
namespace {

namespace fs = std::filesystem;

class FetchCommand : public FetchTest {};

TEST_F(FetchCommand, FetchesEverythingAndLocksIt) {
  start_hub();
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_EQ(fetched("config.json"), "{\"hidden_size\": 64}\n");
  const Lock lock = read_lock(target() / "tierpack.lock.json");
  EXPECT_EQ(lock.source, "hf:o/m");
  EXPECT_EQ(lock.revision, hub_->commit("o/m"));
  ASSERT_EQ(lock.files.size(), 2u);
  EXPECT_EQ(lock.files[0].path, "config.json");
  EXPECT_EQ(lock.files[0].hash_origin, "observed");
  EXPECT_TRUE(lock.files[0].git_sha1.has_value());
  EXPECT_EQ(lock.files[1].hash_origin, "hub");
  EXPECT_EQ(lock.files[1].sha256, Sha256::of(as_bytes(model_)));
  EXPECT_EQ(fs::status(target() / "model.bin").permissions() & fs::perms(0111), fs::perms::none);
}

TEST_F(FetchCommand, ExistingFilesAreReplacedOnlyWhenAsked) {
  start_hub();
  write_text(target() / "model.bin", noise(kModelBytes, 99));
  write_text(target() / "config.json", "short");
  EXPECT_EQ(run(), 3);
  EXPECT_TRUE(fetched("model.bin") == noise(kModelBytes, 99));
  EXPECT_EQ(fetched("config.json"), "short");
  auto o = options();
  o.force = true;
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchCommand, ALockReproducesWithoutAskingTheApi) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  auto o = options();
  o.reference = (target() / "tierpack.lock.json").string();
  o.endpoint.clear();
  o.to = (root() / "copy").string();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(read_text(root() / "copy/model.bin") == model_);
  EXPECT_EQ(requests_to("/api/models"), 0u);
  EXPECT_EQ(read_text(root() / "copy/tierpack.lock.json"), read_text(target() / "tierpack.lock.json"));
}

TEST_F(FetchCommand, OfflineChecksWhatIsThere) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  auto o = options();
  o.offline = true;
  EXPECT_EQ(run(o), 0) << message_;
  fs::remove(target() / "config.json");
  EXPECT_EQ(run(o), 3);
  write_text(target() / "config.json", "{\"hidden_size\": 65}\n");
  EXPECT_EQ(run(o), 3);
  EXPECT_EQ(fetched("config.json"), "{\"hidden_size\": 65}\n");
  EXPECT_TRUE(hub_->requests().empty());
  fs::remove(target() / "tierpack.lock.json");
  EXPECT_EQ(run(o), 3);
}

TEST_F(FetchCommand, DryRunWritesNothing) {
  start_hub();
  auto o = options();
  o.dry_run = true;
  EXPECT_EQ(run(o), 0);
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_EQ(requests_to("/resolve"), 0u);
}

TEST_F(FetchCommand, WhatDoesNotFitIsNotBegun) {
  start_hub();
  serve_tree(R"([{"type":"file","path":"huge.bin","size":1000000000000000,"lfs":{"oid":")" + std::string(64, 'a') +
             R"(","size":1000000000000000}}])");
  EXPECT_EQ(run(), 4);
  auto o = options();
  o.dry_run = true;
  EXPECT_EQ(run(o), 4);
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(FetchCommand, RateLimitHolds) {
  start_hub();
  auto o = options();
  o.limit_rate = "1M";
  o.selection.include = {"model.bin"};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(o), 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(seconds, 2.4);  // 3 MiB at 1 MiB/s, less what a bucket saves up
}

// A GGUF of `size` bytes whose only tensor claims far more.
std::string gguf_that_lacks_bytes(size_t size) {
  std::string gguf = "GGUF";
  const auto put = [&](auto value) { gguf.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto put_text = [&](const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    gguf += text;
  };
  put(uint32_t{3});
  put(uint64_t{1});
  put(uint64_t{1});
  put_text("general.architecture");
  put(uint32_t{8});
  put_text("qwen3moe");
  put_text("w");
  put(uint32_t{1});
  put(uint64_t{1} << 30);
  put(uint32_t{0});
  put(uint64_t{0});
  gguf.resize(size, '\0');
  return gguf;
}

TEST_F(FetchCommand, AHeaderThatContradictsThePromisedSizeEndsEarly) {
  const std::string gguf = gguf_that_lacks_bytes(3u << 20);
  write_text(root() / "o/m/model.gguf", gguf);
  start_hub();
  auto o = options();
  o.selection.include = {"model.gguf"};
  o.connections = "1";
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(exists("model.gguf"));
  o.no_structure_check = true;
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.gguf") == gguf);
}

TEST_F(FetchCommand, AWrongHeaderIsToldAsSuchAlsoWhenReadAgain) {
  write_text(root() / "o/m/model.gguf", gguf_that_lacks_bytes(40000));
  start_hub();
  auto o = options();
  o.selection.include = {"model.gguf"};
  o.reread = true;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(run(o), 3) << message_;
    fs::remove_all(target());
  }
}

TEST_F(FetchCommand, OfflineByTheEnvironment) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_TRUE(hub_->requests().empty());
  ::unsetenv("HF_HUB_OFFLINE");
}

TEST_F(FetchCommand, EndpointFromTheEnvironment) {
  start_hub();
  ::setenv("HF_ENDPOINT", (hub_->url() + "/").c_str(), 1);
  auto o = options();
  o.endpoint.clear();
  EXPECT_EQ(run(o), 0) << message_;
  ::unsetenv("HF_ENDPOINT");
}

TEST_F(FetchCommand, ProxiesAreUsedAndBypassed) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = "http://no-such-host.invalid/files/o/m/model.bin";
  ::setenv("http_proxy", hub_->url().c_str(), 1);
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_GT(requests_to("http://no-such-host.invalid/"), 0u);
  ::setenv("no_proxy", "no-such-host.invalid", 1);
  fs::remove_all(target());
  o.retries = 0;
  EXPECT_EQ(run(o), 5);
  ::unsetenv("http_proxy");
  ::unsetenv("no_proxy");
}

TEST_F(FetchCommand, EventsAreOneJsonObjectALine) {
  start_hub();
  Fault f = fault("/cdn/", "truncate", 1000);
  hub_->add_fault(f);
  auto o = options();
  o.json = true;
  ::testing::internal::CaptureStdout();
  const int code = run(o);
  const std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  std::map<std::string, int> seen;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const Json event = parse_json(line, "event");
    ++seen[json_string(event, "event", "event")];
    if (event["event"] == "file_end") {
      EXPECT_EQ(event["status"], "fetched");
    }
    if (event["event"] == "summary") {
      EXPECT_EQ(event["failed"], 0);
    }
  }
  EXPECT_EQ(seen["listing"], 1);
  EXPECT_EQ(seen["file_start"], 2);
  EXPECT_EQ(seen["file_end"], 2);
  EXPECT_EQ(seen["trouble"], 1);
  EXPECT_GE(seen["progress"], 1);
  EXPECT_EQ(seen["summary"], 1);
}

TEST_F(FetchCommand, RateLimitIsPreciseOverManyConnections) {
  start_hub();
  auto o = options();
  o.limit_rate = "2M";
  o.connections = "16";
  o.range_size = "64K";
  o.selection.include = {"model.bin"};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(o), 0) << message_;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double due = static_cast<double>(kModelBytes) / (2 << 20);
  EXPECT_GT(seconds, due - 0.3);
  EXPECT_LT(seconds, due * 1.5 + 1);
}

TEST_F(FetchCommand, FailuresAreEventsToo) {
  start_hub();
  serve_tree(R"([{"type":"file","path":"huge.bin","size":1000000000000000,"lfs":{"oid":")" + std::string(64, 'a') +
             R"(","size":1000000000000000}}])");
  auto o = options();
  o.json = true;
  ::testing::internal::CaptureStdout();
  const int code = run(o);
  const std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 4);
  const size_t last = output.rfind('\n', output.size() - 2);
  const Json event = parse_json(std::string_view(output).substr(last == std::string::npos ? 0 : last + 1), "event");
  EXPECT_EQ(event["event"], "error");
  EXPECT_EQ(event["kind"], "capacity");
  EXPECT_EQ(event["exit_code"], 4);
}

TEST_F(FetchCommand, UpperCaseProxiesAreUsedForPlainHttp) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = "http://no-such-host.invalid/files/o/m/model.bin";
  ::setenv("HTTP_PROXY", hub_->url().c_str(), 1);
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  ::setenv("NO_PROXY", "no-such-host.invalid", 1);
  fs::remove_all(target());
  o.retries = 0;
  EXPECT_EQ(run(o), 5);
  ::unsetenv("HTTP_PROXY");
  ::unsetenv("NO_PROXY");
}

TEST_F(FetchCommand, AServerWithOnlyTheOtherAddressFamilyEndsWithTheNetworkCode) {
  start_hub();
  auto o = options();
  o.endpoint = "http://localhost:" + std::to_string(hub_->port());
  o.ipv6 = true;
  o.retries = 0;
  EXPECT_EQ(run(o), 5);  // the hub listens on IPv4 alone
  o.ipv6 = false;
  o.ipv4 = true;
  o.allow_private = true;
  EXPECT_EQ(run(o), 0) << message_;
}

}  // namespace
}  // namespace tierpack::support
