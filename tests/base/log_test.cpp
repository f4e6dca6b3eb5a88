#include "base/log.h"

#include <gtest/gtest.h>

namespace tierpack {
namespace {

TEST(Log, WhatMessagesQuoteCannotDriveTheTerminal) {
  testing::internal::CaptureStderr();
  log_error("said '\x1b]0;owned\x07', \xc2\x9b" "2J and \x7f\nsecond line\t\xc3\xa4");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: said '\\x1b]0;owned\\x07', \\xc2\x9b" "2J and \\x7f\nsecond line\t\xc3\xa4\n");
}

}  // namespace
}  // namespace tierpack
