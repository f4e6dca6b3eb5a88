// The decision table, row by row. Wanted: bytes 400-999 of a file of 1000 bytes unless a case says otherwise.
#include "fetch/response_rules.h"

#include <gtest/gtest.h>

namespace tierpack::fetch {
namespace {

using Fields = std::vector<HeaderField>;

ResponseHead head(int status, Fields fields) { return {.status = status, .fields = std::move(fields)}; }

PayloadRequest wanted() {
  PayloadRequest request;
  request.first = 400;
  request.last = 999;
  request.total = 1000;
  return request;
}

Decision judge(int status, Fields fields, const PayloadRequest& request = wanted()) {
  return judge_response(request, head(status, std::move(fields)));
}

TEST(ResponseRules, Row1ExactRangeIsWritten) {
  const Decision d = judge(206, {{"content-range", "bytes 400-999/1000"}, {"content-length", "600"}});
  EXPECT_EQ(d.verdict, Verdict::kWrite);
  EXPECT_EQ(d.row, 1);
  EXPECT_EQ(d.offset, 400u);
  EXPECT_EQ(d.length, 600u);
  EXPECT_FALSE(d.whole_body);
}

TEST(ResponseRules, Row1ShorterAnswerIsWrittenAsFarAsItGoes) {
  const Decision d = judge(206, {{"content-range", "bytes 400-499/1000"}});
  EXPECT_EQ(d.verdict, Verdict::kWrite);
  EXPECT_EQ(d.length, 100u);
}

TEST(ResponseRules, Row1UnknownTotalNeedsAKnownOne) {
  EXPECT_EQ(judge(206, {{"content-range", "bytes 400-999/*"}}).verdict, Verdict::kWrite);
}

TEST(ResponseRules, Row1TeachesTheTotalWhenItWasUnknown) {
  PayloadRequest request;
  const Decision d = judge(206, {{"content-range", "bytes 0-999/1000"}}, request);
  EXPECT_EQ(d.verdict, Verdict::kWrite);
  EXPECT_EQ(d.total, 1000u);
}

TEST(ResponseRules, Row1OffsetsBeyond4GiB) {
  PayloadRequest request;
  request.first = 5'000'000'000;
  request.last = 5'000'000'099;
  request.total = 5'000'000'100;
  const Decision d = judge(206, {{"content-range", "bytes 5000000000-5000000099/5000000100"}}, request);
  EXPECT_EQ(d.verdict, Verdict::kWrite);
  EXPECT_EQ(d.offset, 5'000'000'000u);
}

TEST(ResponseRules, Row2WrongStart) {
  for (const char* range : {"bytes 0-999/1000", "bytes 384-999/1000", "bytes 401-999/1000"}) {
    const Decision d = judge(206, {{"content-range", range}});
    EXPECT_EQ(d.verdict, Verdict::kRangeBroken) << range;
    EXPECT_EQ(d.row, 2) << range;
  }
}

TEST(ResponseRules, Row3InvalidContentRange) {
  for (const char* range : {"bytes 400-1000/1000", "bytes 999-400/1000", "bytes 400-x/1000", "items 400-999/1000",
                            "bytes 400-99999999999999999999/1000", "bytes 400-999", "bytes=400-999/1000", "bytes -400-999/1000",
                            "bytes 400-999/-1", "bytes 400-999/1000, bytes 0-1/1000", "", "bytes */1000"}) {
    const Decision d = judge(206, {{"content-range", range}});
    EXPECT_EQ(d.verdict, Verdict::kRangeBroken) << range;
    EXPECT_EQ(d.row, 3) << range;
  }
}

TEST(ResponseRules, Row3MoreThanAskedFor) {
  PayloadRequest request = wanted();
  request.last = 499;
  EXPECT_EQ(judge(206, {{"content-range", "bytes 400-999/1000"}}, request).verdict, Verdict::kRangeBroken);
}

TEST(ResponseRules, Row3TwoContentRanges) {
  const Decision d = judge(206, {{"content-range", "bytes 400-999/1000"}, {"content-range", "bytes 400-999/1000"}});
  EXPECT_EQ(d.verdict, Verdict::kRangeBroken);
  EXPECT_EQ(d.row, 3);
}

TEST(ResponseRules, Row4NoContentRange) {
  const Decision d = judge(206, {{"content-length", "600"}});
  EXPECT_EQ(d.verdict, Verdict::kRangeBroken);
  EXPECT_EQ(d.row, 4);
}

TEST(ResponseRules, Row5Multipart) {
  const Decision d = judge(206, {{"content-type", "Multipart/ByteRanges; boundary=B"}, {"content-length", "700"}});
  EXPECT_EQ(d.verdict, Verdict::kRangeBroken);
  EXPECT_EQ(d.row, 5);
}

TEST(ResponseRules, Row6OtherTotal) {
  const Decision d = judge(206, {{"content-range", "bytes 400-999/1005"}});
  EXPECT_EQ(d.verdict, Verdict::kChanged);
  EXPECT_EQ(d.row, 6);
}

TEST(ResponseRules, Row6OtherValidator) {
  PayloadRequest request = wanted();
  request.etag = "\"a\"";
  const Decision d = judge(206, {{"content-range", "bytes 400-999/1000"}, {"etag", "\"b\""}}, request);
  EXPECT_EQ(d.verdict, Verdict::kOtherVersion);
  EXPECT_EQ(judge(206, {{"content-range", "bytes 400-999/1000"}, {"etag", "\"a\""}}, request).verdict, Verdict::kWrite);
  // A weak tag proves nothing in either direction.
  EXPECT_EQ(judge(206, {{"content-range", "bytes 400-999/1000"}, {"etag", "W/\"b\""}}, request).verdict, Verdict::kWrite);
}

TEST(ResponseRules, Row6OtherLastModified) {
  PayloadRequest request = wanted();
  request.last_modified = "Mon, 01 Jan 2024 00:00:00 GMT";
  EXPECT_EQ(judge(206, {{"content-range", "bytes 400-999/1000"}, {"last-modified", "Tue, 02 Jan 2024 00:00:00 GMT"}}, request).verdict,
            Verdict::kOtherVersion);
}

TEST(ResponseRules, Row7LengthContradictsRange) {
  for (const char* length : {"599", "601", "1000", "550"}) {
    const Decision d = judge(206, {{"content-range", "bytes 400-999/1000"}, {"content-length", length}});
    EXPECT_EQ(d.verdict, Verdict::kRangeBroken) << length;
    EXPECT_EQ(d.row, 7) << length;
  }
}

TEST(ResponseRules, Row8WholeFileToARangeInTheMiddle) {
  for (const Fields& fields : {Fields{{"content-length", "1000"}}, Fields{}, Fields{{"transfer-encoding", "chunked"}},
                               Fields{{"content-length", "1000"}, {"accept-ranges", "bytes"}}}) {
    const Decision d = judge(200, fields);
    EXPECT_EQ(d.verdict, Verdict::kNoRange);
    EXPECT_EQ(d.row, 8);
  }
}

TEST(ResponseRules, Row9TailUnderStatus200) {
  const Decision d = judge(200, {{"content-range", "bytes 400-999/1000"}, {"content-length", "600"}});
  EXPECT_EQ(d.verdict, Verdict::kWrite);
  EXPECT_EQ(d.row, 9);
  EXPECT_EQ(d.offset, 400u);
  EXPECT_EQ(d.length, 600u);
}

TEST(ResponseRules, Row9NotBelievedWithoutProof) {
  // The length is that of the whole file, so the whole file it is.
  EXPECT_EQ(judge(200, {{"content-range", "bytes 400-999/1000"}, {"content-length", "1000"}}).verdict, Verdict::kNoRange);
  // No length: it could be anything.
  EXPECT_EQ(judge(200, {{"content-range", "bytes 400-999/1000"}}).verdict, Verdict::kRangeBroken);
  EXPECT_EQ(judge(200, {{"content-range", "bytes 300-999/1000"}, {"content-length", "700"}}).verdict, Verdict::kRangeBroken);
}

TEST(ResponseRules, Row10WholeFileFromTheStart) {
  PayloadRequest request = wanted();
  request.first = 0;
  const Decision d = judge(200, {{"content-length", "1000"}}, request);
  EXPECT_EQ(d.verdict, Verdict::kWrite);
  EXPECT_EQ(d.row, 10);
  EXPECT_EQ(d.offset, 0u);
  EXPECT_EQ(d.length, 1000u);
  EXPECT_FALSE(d.whole_body);
  request.last = 99;
  EXPECT_TRUE(judge(200, {{"content-length", "1000"}}, request).whole_body);
}

TEST(ResponseRules, Row10WithoutLengthEndsAtTheKnownSize) {
  PayloadRequest request = wanted();
  request.first = 0;
  EXPECT_EQ(judge(200, {{"transfer-encoding", "chunked"}}, request).length, 1000u);
}

TEST(ResponseRules, Row11AnotherObject) {
  for (const Fields& fields : {Fields{{"content-length", "15"}, {"content-type", "text/html"}}, Fields{{"content-length", "132"}},
                               Fields{{"content-length", "400"}}, Fields{{"content-type", "text/html; charset=utf-8"}}}) {
    const Decision d = judge(200, fields);
    EXPECT_EQ(d.verdict, Verdict::kWrongObject);
    EXPECT_EQ(d.row, 11);
  }
}

TEST(ResponseRules, Row12UnsatisfiedIsNeverSuccess) {
  EXPECT_EQ(judge(416, {{"content-range", "bytes */1000"}}).verdict, Verdict::kBackOff);
  const Decision d = judge(416, {{"content-range", "bytes */400"}});
  EXPECT_EQ(d.verdict, Verdict::kChanged);
  EXPECT_EQ(d.row, 12);
}

TEST(ResponseRules, Row12TellsTheSizeOfAnUnknownFile) {
  PayloadRequest request;
  request.first = 400;
  const Decision d = judge(416, {{"content-range", "bytes */400"}}, request);
  EXPECT_EQ(d.verdict, Verdict::kAtEnd);
  EXPECT_EQ(d.total, 400u);
}

TEST(ResponseRules, Row13UnsatisfiedWithoutSize) {
  const Decision d = judge(416, {});
  EXPECT_EQ(d.verdict, Verdict::kProbe);
  EXPECT_EQ(d.row, 13);
}

TEST(ResponseRules, Row14PreconditionFailedOrValidatorChanged) {
  EXPECT_EQ(judge(412, {}).verdict, Verdict::kOtherVersion);
  PayloadRequest request = wanted();
  request.etag = "\"a\"";
  request.sent_if_range = true;
  const Decision d = judge(200, {{"content-length", "1000"}, {"etag", "\"b\""}}, request);
  EXPECT_EQ(d.verdict, Verdict::kOtherVersion);
  EXPECT_EQ(d.row, 14);
  // The same version, only without ranges.
  EXPECT_EQ(judge(200, {{"content-length", "1000"}, {"etag", "\"a\""}}, request).verdict, Verdict::kNoRange);
}

TEST(ResponseRules, Row15Redirects) {
  for (const int status : {301, 302, 303, 307, 308}) {
    EXPECT_EQ(judge(status, {{"location", "/x"}, {"content-length", "1236"}}).verdict, Verdict::kRedirect) << status;
  }
}

TEST(ResponseRules, Row16NoPayloadStatus) {
  for (const int status : {201, 203, 204, 205, 207, 300, 304, 305}) {
    const Decision d = judge(status, {{"content-length", "1000"}});
    EXPECT_EQ(d.verdict, Verdict::kWrongObject) << status;
    EXPECT_EQ(d.row, 16) << status;
  }
}

TEST(ResponseRules, Row17And18DeniedByTheHubExpiredElsewhere) {
  PayloadRequest elsewhere = wanted();
  elsewhere.on_hub = false;
  for (const int status : {401, 403}) {
    EXPECT_EQ(judge(status, {}).verdict, Verdict::kDenied) << status;
    EXPECT_EQ(judge(status, {}, elsewhere).verdict, Verdict::kExpired) << status;
  }
  for (const int status : {400, 410}) {
    EXPECT_EQ(judge(status, {}).verdict, Verdict::kGone) << status;
    EXPECT_EQ(judge(status, {}, elsewhere).verdict, Verdict::kExpired) << status;
  }
}

TEST(ResponseRules, Row19BackOff) {
  for (const int status : {408, 425, 429, 500, 502, 503, 504, 520, 524}) {
    EXPECT_EQ(judge(status, {}).verdict, Verdict::kBackOff) << status;
  }
}

TEST(ResponseRules, Row20Permanent) {
  for (const int status : {402, 404, 405, 406, 409, 411, 413, 414, 415, 417, 421, 422, 423, 451}) {
    const Decision d = judge(status, {{"content-length", "600"}});
    EXPECT_EQ(d.verdict, Verdict::kGone) << status;
    EXPECT_EQ(d.row, 20) << status;
  }
}

// Rows 21 and 22 are about bodies, not heads: download_faults_test.cpp (extra, truncate, chunked_cut).

TEST(ResponseRules, Row23EndNotMarked) {
  PayloadRequest request;
  const Decision d = judge(200, {}, request);
  EXPECT_EQ(d.verdict, Verdict::kWrite);
  EXPECT_EQ(d.row, 23);
  EXPECT_FALSE(d.length.has_value());
}

TEST(ResponseRules, Row24ContradictoryFraming) {
  for (const Fields& fields :
       {Fields{{"content-range", "bytes 400-999/1000"}, {"content-length", "600"}, {"content-length", "400"}},
        Fields{{"content-range", "bytes 400-999/1000"}, {"content-length", "600"}, {"transfer-encoding", "chunked"}},
        Fields{{"content-range", "bytes 400-999/1000"}, {"content-length", "600, 600"}},
        Fields{{"content-range", "bytes 400-999/1000"}, {"content-length", "+600"}}}) {
    const Decision d = judge(206, fields);
    EXPECT_EQ(d.verdict, Verdict::kRangeBroken);
    EXPECT_EQ(d.row, 24);
  }
}

TEST(ResponseRules, Row25Encoded) {
  for (const char* encoding : {"gzip", "br", "zstd", "deflate", "identity, gzip"}) {
    const Decision d = judge(206, {{"content-range", "bytes 400-999/1000"}, {"content-encoding", encoding}});
    EXPECT_EQ(d.verdict, Verdict::kEncoded) << encoding;
    EXPECT_EQ(d.row, 25) << encoding;
  }
  EXPECT_EQ(judge(206, {{"content-range", "bytes 400-999/1000"}, {"content-encoding", "identity"}}).verdict, Verdict::kWrite);
}

TEST(ResponseRules, EmptyFile) {
  PayloadRequest request;
  const Decision whole = judge(200, {{"content-length", "0"}}, request);
  EXPECT_EQ(whole.verdict, Verdict::kAtEnd);
  EXPECT_EQ(whole.total, 0u);
  const Decision unsatisfied = judge(416, {{"content-range", "bytes */0"}}, request);
  EXPECT_EQ(unsatisfied.verdict, Verdict::kAtEnd);
  EXPECT_EQ(unsatisfied.total, 0u);
}

// Whatever the head says: bytes are accepted only at the offset that was asked for, and never beyond what was asked.
TEST(ResponseRules, NoCombinationPlacesBytesElsewhere) {
  const std::vector<std::string> ranges = {"", "bytes 400-999/1000", "bytes 0-999/1000", "bytes 400-1999/2000", "bytes 400-450/*",
                                           "bytes */1000", "junk"};
  const std::vector<std::string> lengths = {"", "600", "1000", "51", "0", "1600", "abc"};
  for (const int status : {200, 206}) {
    for (const std::string& range : ranges) {
      for (const std::string& length : lengths) {
        for (const bool chunked : {false, true}) {
          Fields fields;
          if (!range.empty()) fields.push_back({"content-range", range});
          if (!length.empty()) fields.push_back({"content-length", length});
          if (chunked) fields.push_back({"transfer-encoding", "chunked"});
          const Decision d = judge(status, fields);
          if (d.verdict != Verdict::kWrite) continue;
          EXPECT_EQ(d.offset, 400u) << status << " " << range << " " << length;
          ASSERT_TRUE(d.length.has_value());
          EXPECT_LE(d.offset + *d.length, 1000u) << status << " " << range << " " << length;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tierpack::fetch
