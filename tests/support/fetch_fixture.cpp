#include "tests/support/fetch_fixture.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "base/error.h"
#include "base/log.h"

namespace tierpack::support {

namespace fs = std::filesystem;

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (fs::temp_directory_path() / "tierpack-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary directory");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string noise(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(random());
  return out;
}

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

FetchTest::FetchTest() : model_(noise(kModelBytes, 1)) {
  // A test's environment is what it sets itself.
  for (const char* name : {"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY",
                           "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
                           "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_ENDPOINT", "MODELSCOPE_API_TOKEN"}) {
    ::unsetenv(name);
  }
  std::signal(SIGPIPE, SIG_IGN);
  set_log_level(LogLevel::kQuiet);
  write_text(root() / "o/m/model.bin", model_);
  write_text(root() / "o/m/config.json", "{\"hidden_size\": 64}\n");
}

FetchTest::~FetchTest() = default;

void FetchTest::start_hub(HubOptions hub_options) {
  hub_options.root = root();
  hub_ = std::make_unique<HubServer>(hub_options);
}

fetch::FetchOptions FetchTest::options() const {
  fetch::FetchOptions out;
  out.reference = "hf:o/m";
  out.endpoint = hub_->url();
  out.to = target().string();
  out.range_size = "512K";
  out.retry_wait_s = 0.01;
  out.retries = 4;
  return out;
}

int FetchTest::run(const fetch::FetchOptions& fetch_options) {
  message_.clear();
  try {
    return fetch::run_fetch(fetch_options);
  } catch (const Error& e) {
    message_ = e.what();
    return exit_code(e.kind());
  }
}

void FetchTest::expect_right_or_absent() const {
  if (exists("model.bin")) {
    EXPECT_TRUE(fetched("model.bin") == model_) << "model.bin has wrong content";
  }
}

uint64_t FetchTest::requests_to(const std::string& part) const {
  uint64_t count = 0;
  for (const HubRequest& request : hub_->requests()) count += request.target.find(part) != std::string::npos;
  return count;
}

uint64_t FetchTest::bytes_asked(const std::string& part) const {
  uint64_t sum = 0;
  for (const HubRequest& request : hub_->requests()) {
    const std::string range = request.header("range");
    const size_t dash = range.find('-');
    if (request.target.find(part) == std::string::npos || dash == std::string::npos || dash + 1 == range.size()) continue;
    sum += std::stoull(range.substr(dash + 1)) - std::stoull(range.substr(6, dash - 6)) + 1;
  }
  return sum;
}

Fault FetchTest::fault(std::string match, std::string action, int64_t bytes, int times, int skip) {
  Fault out;
  out.match = std::move(match);
  out.action = std::move(action);
  out.bytes = bytes;
  out.times = times;
  out.skip = skip;
  return out;
}

Fault FetchTest::status(std::string match, int code, int times, int skip) {
  Fault out = fault(std::move(match), "status", 0, times, skip);
  out.status = code;
  return out;
}

void FetchTest::serve_tree(const std::string& json) {
  Fault f = status("/tree/", 200, -1);
  f.text = json;
  hub_->add_fault(f);
}

fetch::FetchOptions FetchTest::plain_url(const std::string& path) const {
  fetch::FetchOptions out = options();
  out.endpoint.clear();
  out.reference = hub_->url() + "/files/" + path;
  return out;
}

fs::path FetchTest::state_file(const std::string& end) const {
  for (const auto& entry : fs::directory_iterator(target() / ".tierpack")) {
    if (entry.path().string().ends_with(end)) return entry.path();
  }
  throw std::runtime_error("no file " + end + " in the state directory");
}

}  // namespace tierpack::support
