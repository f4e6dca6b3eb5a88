// Every way the hub can misbehave, once and for ever. Whatever happens, the final name holds the right bytes or does not
// exist, and the exit code says which kind of end it was.
#include <gtest/gtest.h>

#include <ctime>

#include "tests/support/fetch_fixture.h"

namespace tierpack::support {
namespace {

struct Case {
  std::string name;
  Fault fault;
  int exit;  // 0: the file is there and right
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Fault fault(std::string action, int64_t bytes = 0, std::string text = {}) {
  Fault out;
  out.match = "/cdn/";
  out.action = std::move(action);
  out.bytes = bytes;
  out.text = std::move(text);
  return out;
}

Fault status(int code, std::vector<std::pair<std::string, std::string>> headers = {}, std::string match = "/cdn/") {
  Fault out;
  out.match = std::move(match);
  out.action = "status";
  out.status = code;
  out.headers = std::move(headers);
  return out;
}

Fault at(std::string match, Fault f) {
  f.match = std::move(match);
  return f;
}

std::string http_date(int64_t offset_s) {
  const std::time_t when = std::time(nullptr) + offset_s;
  char text[64];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&when));
  return text;
}

// A misbehaviour that happens once (or a few times) is overcome.
std::vector<Case> passing_cases() {
  return {
      {"truncate_head", fault("truncate", 0), 0},
      {"truncate_middle", fault("truncate", 1000), 0},
      {"reset", fault("reset", 1000), 0},
      {"drop", fault("drop"), 0},
      {"garbage", fault("garbage"), 0},
      {"wrong_start", fault("wrong_start"), 0},
      {"aligned_start", fault("aligned_start", 16), 0},
      {"no_content_range", fault("no_content_range"), 0},
      {"two_ranges", fault("two_ranges"), 0},
      {"invalid_range", fault("invalid_range", 0, "bytes 5-1/3"), 0},
      {"multipart", fault("multipart"), 0},
      {"no_total", fault("no_total"), 0},
      {"short_range", fault("short", 5000), 0},
      {"length_mismatch", fault("length_mismatch", 7), 0},
      {"gzip", fault("gzip"), 0},
      {"html", fault("html"), 0},
      {"full", fault("full"), 0},
      {"full_chunked", fault("full_chunked"), 0},
      {"full_unknown_cut", fault("full_unknown", 4000), 0},
      {"tail_200", fault("tail_200"), 0},
      {"chunked", fault("chunked"), 0},
      {"chunked_cut", fault("chunked_cut", 3000), 0},
      {"extra", fault("extra"), 0},
      {"two_lengths", fault("two_lengths"), 0},
      {"te_and_cl", fault("te_and_cl"), 0},
      {"other_etag", fault("etag", 0, "\"another\""), 0},
      {"corrupt", fault("corrupt", 700000), 0},
      {"shift", fault("shift"), 0},
      {"unsatisfied", fault("416"), 0},
      {"unsatisfied_bare", fault("416_bare"), 0},
      {"precondition", fault("412"), 0},
      {"s408", status(408), 0},
      {"s425", status(425), 0},
      {"s429_seconds", status(429, {{"Retry-After", "1"}}), 0},
      {"s429_date", status(429, {{"Retry-After", http_date(1)}}), 0},
      {"s429_ratelimit", status(429, {{"RateLimit", "\"resolvers\";r=0;t=0"}}), 0},
      {"s429_bare", status(429), 0},
      {"s500", status(500), 0},
      {"s502", status(502), 0},
      {"s503", status(503, {{"Retry-After", "0"}}), 0},
      {"s504", status(504), 0},
      {"s522", status(522), 0},
      {"expired_403", status(403), 0},
      {"expired_401", status(401), 0},
      {"expired_400", status(400, {{"Content-Type", "text/html"}}), 0},
      {"expired_410", status(410), 0},
      {"api_503", status(503, {}, "/api/models"), 0},
      {"tree_429", status(429, {{"Retry-After", "0"}}, "/tree/"), 0},
      {"api_drop", at("/api/models", fault("drop")), 0},
      {"resolve_500", status(500, {}, "/resolve/"), 0},
      {"resolve_drop", at("/resolve/", fault("drop")), 0},
      {"small_file_truncated", at("/api/resolve-cache", fault("truncate", 3)), 0},
      {"small_file_corrupt", at("/api/resolve-cache", fault("corrupt", 3)), 0},
      {"small_file_gzip", at("/api/resolve-cache", fault("gzip")), 0},
  };
}

class OnceTest : public FetchTest, public ::testing::WithParamInterface<Case> {};

TEST_P(OnceTest, IsOvercome) {
  start_hub();
  Fault f = GetParam().fault;
  f.skip = 1;  // not always the very first request
  f.times = 1;
  hub_->add_fault(f);
  EXPECT_EQ(run(), 0) << message_;
  ASSERT_TRUE(exists("model.bin"));
  expect_right_or_absent();
  EXPECT_TRUE(exists("tierpack.lock.json"));
  EXPECT_FALSE(exists(".tierpack"));
}

TEST_P(OnceTest, IsOvercomeWhenItIsTheFirstAnswer) {
  start_hub();
  Fault f = GetParam().fault;
  f.times = 2;
  hub_->add_fault(f);
  EXPECT_EQ(run(), 0) << message_;
  expect_right_or_absent();
  EXPECT_TRUE(exists("model.bin"));
}

INSTANTIATE_TEST_SUITE_P(Faults, OnceTest, ::testing::ValuesIn(passing_cases()), [](const auto& one) { return one.param.name; });

// A misbehaviour that never ends: some can be lived with, the others end the fetch with the right code.
std::vector<Case> lasting_cases() {
  Fault stalled = fault("stall", 2000);
  Fault hanging = fault("hang");
  return {
      {"full", fault("full"), 0},
      {"full_chunked", fault("full_chunked"), 0},
      {"full_unknown", fault("full_unknown"), 0},
      {"tail_200", fault("tail_200"), 0},
      {"no_total", fault("no_total"), 0},
      {"short_range", fault("short", 300000), 0},
      {"chunked", fault("chunked"), 0},
      {"extra", fault("extra"), 0},
      {"wrong_start", fault("wrong_start"), 0},
      {"aligned_start", fault("aligned_start", 16), 0},
      {"other_etag", fault("etag", 0, "\"another\""), 0},
      {"slow", fault("slow", 8 << 20), 0},
      {"no_content_range", fault("no_content_range"), 5},
      {"two_ranges", fault("two_ranges"), 5},
      {"invalid_range", fault("invalid_range", 0, "bytes x-y/z"), 5},
      {"multipart", fault("multipart"), 5},
      {"length_mismatch", fault("length_mismatch", 7), 5},
      {"two_lengths", fault("two_lengths"), 5},
      {"te_and_cl", fault("te_and_cl"), 5},
      {"gzip", fault("gzip"), 5},
      {"html", fault("html"), 5},
      {"truncate", fault("truncate", 1000), 5},
      {"reset", fault("reset", 1000), 5},
      {"full_unknown_cut", fault("full_unknown", 4000), 5},
      {"chunked_cut", fault("chunked_cut", 3000), 5},
      {"drop", fault("drop"), 5},
      {"garbage", fault("garbage"), 5},
      {"unsatisfied", fault("416"), 5},
      {"unsatisfied_bare", fault("416_bare"), 5},
      {"precondition", fault("412"), 5},
      {"s500", status(500), 5},
      {"s503", status(503, {{"Retry-After", "0"}}), 5},
      {"s429_far_away", status(429, {{"Retry-After", "86400"}}), 5},
      {"expired", status(403), 5},
      {"other_total", fault("total", 5), 3},
      {"other_total_less", fault("total", -5000), 3},
      {"unsatisfied_other_total", fault("416_total", 5), 3},
      {"corrupt", fault("corrupt", 700000), 3},
      {"shift", fault("shift"), 3},
      {"s404", status(404), 1},
      {"s451", status(451), 1},
      {"hub_401", status(401, {}, "/resolve/"), 1},
      {"hub_403_gated", status(403, {{"X-Error-Code", "GatedRepo"}}, "/resolve/"), 1},
      {"hub_404", status(404, {{"X-Error-Code", "EntryNotFound"}}, "/resolve/"), 1},
      {"api_401", status(401, {}, "/api/models"), 1},
      {"api_404_revision", status(404, {{"X-Error-Code", "RevisionNotFound"}}, "/api/models"), 1},
      {"api_500", status(500, {}, "/api/models"), 5},
      {"api_drop", at("/api/models", fault("drop")), 5},
      {"api_html", at("/api/models", fault("html")), 3},
      {"tree_html", at("/tree/", fault("html")), 3},
      {"redirect_loop", at("/resolve/", fault("redirect_loop")), 1},
      {"redirect_file", at("/resolve/", fault("redirect", 0, "file:///etc/passwd")), 1},
      {"redirect_metadata", at("/resolve/", fault("redirect", 0, "http://169.254.169.254/latest/meta-data")), 1},
      {"redirect_private", at("/resolve/", fault("redirect", 0, "http://10.1.2.3/x")), 1},
      {"redirect_credentials", at("/resolve/", fault("redirect", 0, "http://a:b@127.0.0.1:9/x")), 1},
      {"redirect_nowhere", at("/resolve/", fault("redirect", 0, "http://127.0.0.1:9/x")), 5},
      {"redirect_without_location", status(302, {{"X", "y"}}, "/resolve/"), 1},
      {"other_commit", {"/resolve/", "", "status", 0, 1, 0, 302, 0, "", {{"Location", "/x"}, {"X-Repo-Commit", std::string(40, 'b')}}}, 3},
      {"other_linked_size", {"/resolve/", "", "status", 0, 1, 0, 302, 0, "", {{"Location", "/x"}, {"X-Linked-Size", "17"}}}, 3},
      {"other_linked_hash", {"/resolve/", "", "status", 0, 1, 0, 302, 0, "", {{"Location", "/x"}, {"X-Linked-Etag", "\"" + std::string(64, 'c') + "\""}}}, 3},
  };
}

class AlwaysTest : public FetchTest, public ::testing::WithParamInterface<Case> {};

TEST_P(AlwaysTest, EndsAsItMust) {
  start_hub();
  Fault f = GetParam().fault;
  f.times = -1;
  hub_->add_fault(f);
  const int code = run();
  EXPECT_EQ(code, GetParam().exit) << message_;
  expect_right_or_absent();
  EXPECT_EQ(exists("model.bin"), code == 0);
  EXPECT_EQ(exists("tierpack.lock.json"), code == 0);

  // Once the hub is well again, the same command completes.
  hub_->clear_faults();
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_TRUE(exists("model.bin"));
  expect_right_or_absent();
}

INSTANTIATE_TEST_SUITE_P(Faults, AlwaysTest, ::testing::ValuesIn(lasting_cases()), [](const auto& one) { return one.param.name; });

class StallTest : public FetchTest {};

TEST_F(StallTest, AStalledConnectionIsGivenUpAndAnotherFinishes) {
  start_hub();
  Fault f = fault("stall", 2000);
  hub_->add_fault(f);
  auto o = options();
  o.stall_timeout_s = 1;
  EXPECT_EQ(run(o), 0) << message_;
  expect_right_or_absent();
  EXPECT_TRUE(exists("model.bin"));
}

TEST_F(StallTest, AServerThatNeverAnswersEndsWithTheNetworkCode) {
  start_hub();
  Fault f = fault("hang");
  f.times = -1;
  hub_->add_fault(f);
  auto o = options();
  o.stall_timeout_s = 1;
  o.retries = 0;
  EXPECT_EQ(run(o), 5);
  EXPECT_FALSE(exists("model.bin"));
}

}  // namespace
}  // namespace tierpack::support
