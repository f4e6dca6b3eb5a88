#include "fetch/http_head.h"

#include <gtest/gtest.h>

namespace tierpack::fetch {
namespace {

ResponseHead with(std::vector<HeaderField> fields) { return {.status = 200, .fields = std::move(fields)}; }

TEST(HeadCollector, SkipsInterimAnswersAndTrailers) {
  HeadCollector collector;
  using State = HeadCollector::State;
  EXPECT_EQ(collector.line("HTTP/1.1 100 Continue\r\n"), State::kReading);
  EXPECT_EQ(collector.line("X-Early: 1\r\n"), State::kReading);
  EXPECT_EQ(collector.line("\r\n"), State::kReading);
  EXPECT_EQ(collector.line("HTTP/1.1 206 Partial Content\r\n"), State::kReading);
  EXPECT_EQ(collector.line("Content-RANGE:  bytes 0-1/2 \r\n"), State::kReading);
  EXPECT_EQ(collector.line("X-Folded: a\r\n"), State::kReading);
  EXPECT_EQ(collector.line("  b\r\n"), State::kReading);
  EXPECT_EQ(collector.line("\r\n"), State::kComplete);
  EXPECT_EQ(collector.line("X-Trailer: 1\r\n"), State::kReading);
  EXPECT_EQ(collector.line("HTTP/1.1 302: not another head\r\n"), State::kReading);
  EXPECT_EQ(collector.line("\r\n"), State::kReading);
  EXPECT_EQ(collector.head().status, 206);
  EXPECT_EQ(collector.head().value("content-range"), "bytes 0-1/2");
  EXPECT_EQ(collector.head().value("x-folded"), "a b");
  EXPECT_EQ(collector.head().find("x-early"), nullptr);
  EXPECT_EQ(collector.head().find("x-trailer"), nullptr);
}

TEST(HeadCollector, RefusesEndlessHeads) {
  HeadCollector collector;
  collector.line("HTTP/1.1 200 OK\r\n");
  HeadCollector::State state = HeadCollector::State::kReading;
  for (int i = 0; i < 100000 && state == HeadCollector::State::kReading; ++i) state = collector.line("X: y\r\n");
  EXPECT_EQ(state, HeadCollector::State::kTooLarge);
}

TEST(ContentRange, AcceptsOnlyTheExactForm) {
  const auto range = parse_content_range("bytes 0-99/1000");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 0u);
  EXPECT_EQ(range->last, 99u);
  EXPECT_EQ(range->total, 1000u);
  EXPECT_FALSE(parse_content_range("bytes 0-99/*")->total.has_value());
  EXPECT_FALSE(parse_content_range("bytes */7")->satisfied);
  for (const char* bad : {"", "bytes", "bytes 0-99", "bytes 0-/5", "bytes -5/5", "bytes 5-4/9", "bytes 0-9/9", "bytes */*",
                          "bytes 0-9223372036854775808/*", "bytes 0x0-9/10", "bytes 0-9/10 x", "octets 0-9/10", "bytes0-9/10"}) {
    EXPECT_FALSE(parse_content_range(bad).has_value()) << bad;
  }
}

TEST(ContentLength, OneValueOrNone) {
  EXPECT_EQ(content_length(with({{"content-length", "5"}})), 5u);
  EXPECT_EQ(content_length(with({{"content-length", "5"}, {"content-length", "5"}})), 5u);
  EXPECT_FALSE(content_length(with({{"content-length", "5"}, {"content-length", "6"}})).has_value());
  EXPECT_FALSE(content_length(with({{"content-length", "-5"}})).has_value());
  EXPECT_FALSE(content_length(with({{"content-length", "99999999999999999999"}})).has_value());
  EXPECT_TRUE(has_conflicting_lengths(with({{"content-length", "5"}, {"transfer-encoding", "chunked"}})));
}

TEST(Etag, StrongOnly) {
  EXPECT_EQ(strong_etag(with({{"etag", "\"abc\""}})), "\"abc\"");
  for (const char* weak : {"W/\"abc\"", "abc", "\"\"", "\"a\"b\"", "\"a b\""}) {
    EXPECT_FALSE(strong_etag(with({{"etag", weak}})).has_value()) << weak;
  }
  EXPECT_FALSE(strong_etag(with({{"etag", "\"a\""}, {"etag", "\"b\""}})).has_value());
  EXPECT_EQ(bare_etag("W/\"abc\""), "abc");
  EXPECT_EQ(bare_etag(" \"abc\" "), "abc");
}

TEST(ServerWait, SecondsDatesAndRateLimits) {
  EXPECT_EQ(server_wait(with({{"retry-after", "120"}}), 0), 120.0);
  EXPECT_EQ(server_wait(with({{"retry-after", "Thu, 01 Jan 1970 00:01:40 GMT"}}), 40), 60.0);
  EXPECT_EQ(server_wait(with({{"retry-after", "Thu, 01 Jan 1970 00:01:40 GMT"}}), 500), 0.0);
  EXPECT_EQ(server_wait(with({{"ratelimit", "\"resolvers\";r=0;t=55"}}), 0), 56.0);
  EXPECT_FALSE(server_wait(with({{"ratelimit", "\"resolvers\";r=3;t=55"}}), 0).has_value());
  EXPECT_FALSE(server_wait(with({{"retry-after", "soon"}}), 0).has_value());
}

TEST(ServerWait, TheServersOwnClockCounts) {
  const ResponseHead head{.status = 429,
                          .fields = {{"retry-after", "Thu, 01 Jan 1970 00:10:05 GMT"}, {"date", "Thu, 01 Jan 1970 00:10:00 GMT"}}};
  EXPECT_EQ(server_wait(head, 1'700'000'000), 5.0);  // whatever ours says
}

TEST(HeadCollector, AHeadWithoutItsEmptyLineIsNotComplete) {
  HeadCollector collector;
  collector.line("HTTP/1.1 206 Partial Content\r\n");
  collector.line("Content-Range: bytes 0-1/2\r\n");
  EXPECT_FALSE(collector.is_complete());
  collector.line("\r\n");
  EXPECT_TRUE(collector.is_complete());
}

TEST(NextLink, FindsTheRelation) {
  EXPECT_EQ(next_link(with({{"link", "<https://h/a?c=1>; rel=\"next\""}})), "https://h/a?c=1");
  EXPECT_EQ(next_link(with({{"link", "<https://h/x>; rel=\"xet-auth\", <https://h/b>; rel=\"next\""}})), "https://h/b");
  EXPECT_FALSE(next_link(with({{"link", "<https://h/x>; rel=\"prev\""}})).has_value());
  EXPECT_FALSE(next_link(with({{"link", "<https://h/x"}})).has_value());
}

TEST(RepresentationDigest, OnlyOfTheWholeObject) {
  const std::string empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
  const auto digest = representation_sha256(with({{"repr-digest", "sha-256=:" + empty + ":"}}));
  ASSERT_TRUE(digest);
  EXPECT_EQ(*digest, Sha256::of({}));
  EXPECT_TRUE(representation_sha256(with({{"digest", "md5=x,SHA-256=" + empty}})).has_value());
  EXPECT_FALSE(representation_sha256(with({{"content-digest", "sha-256=:" + empty + ":"}})).has_value());
  EXPECT_FALSE(representation_sha256(with({{"repr-digest", "sha-256=:AAAA:"}})).has_value());
}

}  // namespace
}  // namespace tierpack::fetch
