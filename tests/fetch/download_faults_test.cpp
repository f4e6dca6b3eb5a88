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

Fault cdn_fault(std::string action, int64_t bytes = 0, std::string text = {}) {
  Fault out;
  out.match = "/cdn/";
  out.action = std::move(action);
  out.bytes = bytes;
  out.text = std::move(text);
  return out;
}

Fault cdn_status(int code, std::vector<std::pair<std::string, std::string>> headers = {}, std::string match = "/cdn/") {
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
      {"row22_truncate_head", cdn_fault("truncate", 0), 0},
      {"row22_truncate_middle", cdn_fault("truncate", 1000), 0},
      {"row22_reset", cdn_fault("reset", 1000), 0},
      {"row22_drop", cdn_fault("drop"), 0},
      {"row22_garbage", cdn_fault("garbage"), 0},
      {"row2_wrong_start", cdn_fault("wrong_start"), 0},
      {"row2_aligned_start", cdn_fault("aligned_start", 16), 0},
      {"row4_no_content_range", cdn_fault("no_content_range"), 0},
      {"row3_two_ranges", cdn_fault("two_ranges"), 0},
      {"row3_invalid_range", cdn_fault("invalid_range", 0, "bytes 5-1/3"), 0},
      {"row5_multipart", cdn_fault("multipart"), 0},
      {"row1_no_total", cdn_fault("no_total"), 0},
      {"row1_short_range", cdn_fault("short", 5000), 0},
      {"row7_length_mismatch", cdn_fault("length_mismatch", 7), 0},
      {"row25_gzip", cdn_fault("gzip"), 0},
      {"row11_html", cdn_fault("html"), 0},
      {"row8_full", cdn_fault("full"), 0},
      {"row8_full_chunked", cdn_fault("full_chunked"), 0},
      {"row22_full_unknown_cut", cdn_fault("full_unknown", 4000), 0},
      {"row9_tail_200", cdn_fault("tail_200"), 0},
      {"row1_chunked", cdn_fault("chunked"), 0},
      {"row22_chunked_cut", cdn_fault("chunked_cut", 3000), 0},
      {"row21_extra", cdn_fault("extra"), 0},
      {"row24_two_lengths", cdn_fault("two_lengths"), 0},
      {"row24_te_and_cl", cdn_fault("te_and_cl"), 0},
      {"row6_other_etag", cdn_fault("etag", 0, "\"another\""), 0},
      {"hash_corrupt", cdn_fault("corrupt", 700000), 0},
      {"hash_shift", cdn_fault("shift"), 0},
      {"row12_unsatisfied", cdn_fault("416"), 0},
      {"row13_unsatisfied_bare", cdn_fault("416_bare"), 0},
      {"row14_precondition", cdn_fault("412"), 0},
      {"row19_s408", cdn_status(408), 0},
      {"row19_s425", cdn_status(425), 0},
      {"row19_s429_seconds", cdn_status(429, {{"Retry-After", "1"}}), 0},
      {"row19_s429_date", cdn_status(429, {{"Retry-After", http_date(1)}}), 0},
      {"row19_s429_ratelimit", cdn_status(429, {{"RateLimit", "\"resolvers\";r=0;t=0"}}), 0},
      {"row19_s429_bare", cdn_status(429), 0},
      {"row19_s500", cdn_status(500), 0},
      {"row19_s502", cdn_status(502), 0},
      {"row19_s503", cdn_status(503, {{"Retry-After", "0"}}), 0},
      {"row19_s504", cdn_status(504), 0},
      {"row19_s522", cdn_status(522), 0},
      {"row18_expired_403", cdn_status(403), 0},
      {"row18_expired_401", cdn_status(401), 0},
      {"row18_expired_400", cdn_status(400, {{"Content-Type", "text/html"}}), 0},
      {"row18_expired_410", cdn_status(410), 0},
      {"api_503", cdn_status(503, {}, "/api/models"), 0},
      {"tree_429", cdn_status(429, {{"Retry-After", "0"}}, "/tree/"), 0},
      {"api_drop", at("/api/models", cdn_fault("drop")), 0},
      {"resolve_500", cdn_status(500, {}, "/resolve/"), 0},
      {"resolve_drop", at("/resolve/", cdn_fault("drop")), 0},
      {"row1_interim_answer_before", cdn_fault("interim"), 0},
      {"row1_trailers_that_lie", cdn_fault("trailers"), 0},
      {"row3_range_beyond", cdn_fault("beyond"), 0},
      {"row3_huge_length", cdn_fault("huge_length"), 0},
      {"row6_other_total_once", cdn_fault("total", 5), 0},
      {"row7_empty_body", cdn_fault("empty"), 0},
      {"row12_other_total_once", cdn_fault("416_total", 5), 0},
      {"row16_204", cdn_status(204), 0},
      {"row16_203", cdn_status(203), 0},
      {"row16_304", cdn_status(304), 0},
      {"row16_status_999", cdn_status(999), 0},
      {"row19_507", cdn_status(507), 0},
      {"row21_second_answer", cdn_fault("junk_after"), 0},
      {"row22_head_cut", cdn_fault("head_cut"), 0},
      {"row22_head_huge", cdn_fault("head_huge"), 0},
      {"row22_bad_chunk", cdn_fault("bad_chunk"), 0},
      {"row22_chunk_overflow", cdn_fault("chunk_overflow"), 0},
      {"row22_reset_at_the_end", cdn_fault("reset_end"), 0},
      {"hash_noise_of_the_right_length", cdn_fault("noise"), 0},
      {"api_html_once", at("/api/models", cdn_fault("html")), 0},
      {"resolve_head_cut", at("/resolve/", cdn_fault("head_cut")), 0},
      {"tree_cut", at("/tree/", cdn_fault("head_cut")), 0},
      {"tree_garbage", at("/tree/", cdn_fault("garbage")), 0},
      {"tree_truncated_json", {"/tree/", "", "status", 0, 1, 0, 200, 0, R"([{"type":"file","pa)", {}}, 0},
      {"resolve_head_huge", at("/resolve/", cdn_fault("head_huge")), 0},
      {"small_file_truncated", at("/api/resolve-cache", cdn_fault("truncate", 3)), 0},
      {"small_file_corrupt", at("/api/resolve-cache", cdn_fault("corrupt", 3)), 0},
      {"small_file_gzip", at("/api/resolve-cache", cdn_fault("gzip")), 0},
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
  Fault flood = cdn_fault("interim_flood");
  flood.seconds = 30;
  return {
      {"row8_full", cdn_fault("full"), 0},
      {"row8_full_chunked", cdn_fault("full_chunked"), 0},
      {"row8_full_unknown", cdn_fault("full_unknown"), 0},
      {"row9_tail_200", cdn_fault("tail_200"), 0},
      {"row1_no_total", cdn_fault("no_total"), 0},
      {"row1_short_range", cdn_fault("short", 300000), 0},
      {"row1_chunked", cdn_fault("chunked"), 0},
      {"row21_extra", cdn_fault("extra"), 0},
      {"row2_wrong_start", cdn_fault("wrong_start"), 0},
      {"row2_aligned_start", cdn_fault("aligned_start", 16), 0},
      {"row6_other_etag", cdn_fault("etag", 0, "\"another\""), 0},
      {"slow", cdn_fault("slow", 8 << 20), 0},
      {"row4_no_content_range", cdn_fault("no_content_range"), 5},
      {"row3_two_ranges", cdn_fault("two_ranges"), 5},
      {"row3_invalid_range", cdn_fault("invalid_range", 0, "bytes x-y/z"), 5},
      {"row5_multipart", cdn_fault("multipart"), 5},
      {"row7_length_mismatch", cdn_fault("length_mismatch", 7), 5},
      {"row24_two_lengths", cdn_fault("two_lengths"), 5},
      {"row24_te_and_cl", cdn_fault("te_and_cl"), 5},
      {"row25_gzip", cdn_fault("gzip"), 5},
      {"row11_html", cdn_fault("html"), 5},
      {"row22_truncate", cdn_fault("truncate", 1000), 5},
      {"row1_trailers_that_lie", cdn_fault("trailers"), 0},
      {"row1_interim_answer_before", cdn_fault("interim"), 0},
      {"row1_crumbs", cdn_fault("short", 7), 5},
      {"row3_range_beyond", cdn_fault("beyond"), 0},
      {"row3_huge_length", cdn_fault("huge_length"), 5},
      {"row6_etag_of_every_answer_differs", cdn_fault("etag_each"), 0},
      {"row7_empty_body", cdn_fault("empty"), 5},
      {"row15_two_locations", {"/resolve/", "", "header", 0, 1, 0, 0, 0, "", {{"Location", "http://127.0.0.1:9/other"}}}, 1},
      {"row16_204", cdn_status(204), 5},
      {"row16_304", cdn_status(304), 5},
      {"row16_status_999", cdn_status(999), 5},
      {"row21_second_answer", cdn_fault("junk_after"), 0},
      {"row22_head_cut", cdn_fault("head_cut"), 5},
      {"row22_head_huge", cdn_fault("head_huge"), 5},
      {"row22_interim_flood", flood, 5},
      {"row22_bad_chunk", cdn_fault("bad_chunk"), 5},
      {"row22_chunk_overflow", cdn_fault("chunk_overflow"), 5},
      {"row22_one_stream_cut_late", cdn_fault("full_unknown", 2 << 20), 5},
      {"row19_429_with_a_number_too_large", cdn_status(429, {{"Retry-After", "99999999999999999999"}}), 5},
      {"row19_429_next_century", cdn_status(429, {{"Retry-After", "Fri, 01 Jan 2100 00:00:00 GMT"}}), 5},
      {"hash_noise_of_the_right_length", cdn_fault("noise"), 3},
      {"row22_reset", cdn_fault("reset", 1000), 5},
      {"row22_full_unknown_cut", cdn_fault("full_unknown", 4000), 5},
      {"row22_chunked_cut", cdn_fault("chunked_cut", 3000), 5},
      {"row22_drop", cdn_fault("drop"), 5},
      {"row22_garbage", cdn_fault("garbage"), 5},
      {"row12_unsatisfied", cdn_fault("416"), 5},
      {"row13_unsatisfied_bare", cdn_fault("416_bare"), 5},
      {"row14_precondition", cdn_fault("412"), 5},
      {"row19_s500", cdn_status(500), 5},
      {"row19_s503", cdn_status(503, {{"Retry-After", "0"}}), 5},
      {"row19_s429_far_away", cdn_status(429, {{"Retry-After", "86400"}}), 5},
      {"row18_expired", cdn_status(403), 5},
      {"row6_other_total", cdn_fault("total", 5), 3},
      {"row6_other_total_less", cdn_fault("total", -5000), 3},
      {"row12_unsatisfied_other_total", cdn_fault("416_total", 5), 3},
      {"hash_corrupt", cdn_fault("corrupt", 700000), 3},
      {"hash_shift", cdn_fault("shift"), 3},
      {"row20_s404", cdn_status(404), 1},
      {"row20_s451", cdn_status(451), 1},
      {"row17_hub_401", cdn_status(401, {}, "/resolve/"), 1},
      {"row17_hub_403_gated", cdn_status(403, {{"X-Error-Code", "GatedRepo"}}, "/resolve/"), 1},
      {"row20_hub_404", cdn_status(404, {{"X-Error-Code", "EntryNotFound"}}, "/resolve/"), 1},
      {"api_401", cdn_status(401, {}, "/api/models"), 1},
      {"api_404_revision", cdn_status(404, {{"X-Error-Code", "RevisionNotFound"}}, "/api/models"), 1},
      {"api_500", cdn_status(500, {}, "/api/models"), 5},
      {"api_drop", at("/api/models", cdn_fault("drop")), 5},
      {"api_html", at("/api/models", cdn_fault("html")), 3},
      {"tree_html", at("/tree/", cdn_fault("html")), 3},
      {"row15_redirect_loop", at("/resolve/", cdn_fault("redirect_loop")), 1},
      {"row15_redirect_file", at("/resolve/", cdn_fault("redirect", 0, "file:///etc/passwd")), 1},
      {"row15_redirect_metadata", at("/resolve/", cdn_fault("redirect", 0, "http://169.254.169.254/latest/meta-data")), 1},
      {"row15_redirect_private", at("/resolve/", cdn_fault("redirect", 0, "http://10.1.2.3/x")), 1},
      {"row15_redirect_credentials", at("/resolve/", cdn_fault("redirect", 0, "http://a:b@127.0.0.1:9/x")), 1},
      {"row15_redirect_nowhere", at("/resolve/", cdn_fault("redirect", 0, "http://127.0.0.1:9/x")), 5},
      {"row15_redirect_without_location", cdn_status(302, {{"X", "y"}}, "/resolve/"), 1},
      {"row6_other_commit", {"/resolve/", "", "status", 0, 1, 0, 302, 0, "", {{"Location", "/x"}, {"X-Repo-Commit", std::string(40, 'b')}}}, 3},
      {"row6_other_linked_size", {"/resolve/", "", "status", 0, 1, 0, 302, 0, "", {{"Location", "/x"}, {"X-Linked-Size", "17"}}}, 3},
      {"row6_other_linked_hash", {"/resolve/", "", "status", 0, 1, 0, 302, 0, "", {{"Location", "/x"}, {"X-Linked-Etag", "\"" + std::string(64, 'c') + "\""}}}, 3},
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
  Fault f = cdn_fault("stall", 2000);
  hub_->add_fault(f);
  auto o = options();
  o.stall_timeout_s = 1;
  EXPECT_EQ(run(o), 0) << message_;
  expect_right_or_absent();
  EXPECT_TRUE(exists("model.bin"));
}

// A server that dribbles: its head, its body, its list.
TEST_F(StallTest, AHeadByteByByteIsGivenUp) {
  start_hub();
  Fault f = cdn_fault("head_drip");
  f.seconds = 0.05;
  hub_->add_fault(f);
  auto o = options();
  o.stall_timeout_s = 1;
  EXPECT_EQ(run(o), 0) << message_;
  expect_right_or_absent();
  EXPECT_TRUE(exists("model.bin"));
}

TEST_F(StallTest, ABodyByteByByteIsGivenUp) {
  start_hub();
  Fault f = cdn_fault("slow", 50);
  f.times = 2;
  hub_->add_fault(f);
  auto o = options();
  o.stall_timeout_s = 1;
  EXPECT_EQ(run(o), 0) << message_;
  expect_right_or_absent();
  EXPECT_TRUE(exists("model.bin"));
}

TEST_F(StallTest, AListByteByByteIsGivenUp) {
  start_hub();
  Fault f = at("/tree/", cdn_fault("head_drip"));
  f.seconds = 0.05;
  f.times = -1;
  hub_->add_fault(f);
  auto o = options();
  o.stall_timeout_s = 1;
  o.retries = 1;
  EXPECT_EQ(run(o), 5) << message_;
}

TEST_F(StallTest, AServerThatNeverAnswersEndsWithTheNetworkCode) {
  start_hub();
  Fault f = cdn_fault("hang");
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
