#include "runtime/server/sse.h"

#include <gtest/gtest.h>

namespace tierpack::server {
namespace {

TEST(Sse, Events) {
  EXPECT_EQ(sse_event("x"), "data: x\n\n");
  EXPECT_EQ(sse_event(""), "data: \n\n");
  EXPECT_EQ(sse_event("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
}

TEST(Sse, Chunks) {
  EXPECT_EQ(http_chunk("hello"), "5\r\nhello\r\n");
  EXPECT_EQ(http_chunk(std::string(26, 'x')).substr(0, 4), "1a\r\n");
  EXPECT_ANY_THROW(http_chunk(""));
}

}  // namespace
}  // namespace tierpack::server
