// A hub with one repository and a directory to fetch it into, for tests of whole fetches in this process.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "fetch/fetch_job.h"
#include "tests/support/hub_server.h"

namespace tierpack::support {

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Bytes that no range of which equals another: a wrong offset is always noticed.
std::string noise(size_t size, uint64_t seed);
void write_text(const std::filesystem::path& path, const std::string& text);  // makes directories
std::string read_text(const std::filesystem::path& path);

class FetchTest : public ::testing::Test {
 protected:
  FetchTest();
  ~FetchTest() override;

  // Starts the hub over root(); the repository o/m holds model.bin (kModelBytes) and config.json.
  void start_hub(HubOptions options = {});
  // Quick retries and small ranges, so that every case has several.
  fetch::FetchOptions options() const;
  // Exit code, as main.cpp would give it; the message of an exception is in `message`.
  int run(const fetch::FetchOptions& options);
  int run() { return run(options()); }

  std::filesystem::path root() const { return hub_directory_.path(); }
  std::filesystem::path target() const { return target_directory_.path() / "out"; }
  std::string fetched(const std::string& path) const { return read_text(target() / path); }
  bool exists(const std::string& path) const { return std::filesystem::exists(target() / path); }
  // The file is there and right, or not there at all.
  void expect_right_or_absent() const;
  uint64_t requests_to(const std::string& part) const;
  // Bytes asked for by closed ranges in requests whose target contains `part`.
  uint64_t bytes_asked(const std::string& part) const;
  static Fault fault(std::string match, std::string action, int64_t bytes = 0, int times = 1, int skip = 0);
  static Fault status(std::string match, int code, int times = 1, int skip = 0);
  // Answers requests for the file tree with `json`.
  void serve_tree(const std::string& json);
  // Options for one file below /files, of which no hub says anything.
  fetch::FetchOptions plain_url(const std::string& path = "o/m/model.bin") const;
  // The one file in the state directory whose name ends so.
  std::filesystem::path state_file(const std::string& end) const;

  static constexpr size_t kModelBytes = (3u << 20) + 12345;
  std::string model_;
  std::string message_;
  std::unique_ptr<HubServer> hub_;

 private:
  TemporaryDirectory hub_directory_;
  TemporaryDirectory target_directory_;
};

}  // namespace tierpack::support
