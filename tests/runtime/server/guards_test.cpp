#include "runtime/server/guards.h"

#include <gtest/gtest.h>

namespace tierpack::server {
namespace {

TEST(Guards, HostNames) {
  EXPECT_EQ(host_name("LocalHost:8080"), "localhost");
  EXPECT_EQ(host_name("localhost."), "localhost");
  EXPECT_EQ(host_name("[::1]:8080"), "::1");
  EXPECT_EQ(host_name("[::1]"), "::1");
  EXPECT_EQ(host_name("127.0.0.1"), "127.0.0.1");
  for (const char* bad : {"", ":80", "[::1", "[::1]x", "a:b", "a:123456", "a:1:2"})
    EXPECT_EQ(host_name(bad), std::nullopt) << bad;
}

TEST(Guards, LoopbackServersAnswerToLoopbackNames) {
  const HostGuard guard("127.0.0.1", {"Box.example"});
  for (const char* good : {"localhost", "localhost:9", "127.0.0.1:8080", "127.1.2.3", "[::1]:80", "box.EXAMPLE:1"}) {
    EXPECT_TRUE(guard.accepts(good)) << good;
  }
  for (const char* bad : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", "",
                          "localhost@evil.example", "127.0.0.1 evil"}) {
    EXPECT_FALSE(guard.accepts(bad)) << bad;
  }
}

TEST(Guards, OpenServersAnswerToAddresses) {
  const HostGuard every("0.0.0.0", {});
  EXPECT_TRUE(every.accepts("192.168.1.5:8080"));
  EXPECT_TRUE(every.accepts("[fe80::1]:8080"));
  EXPECT_TRUE(every.accepts("localhost"));
  EXPECT_FALSE(every.accepts("evil.example"));
  const HostGuard named("box", {});
  EXPECT_TRUE(named.accepts("box:80"));
  EXPECT_TRUE(named.accepts("10.1.1.1"));
  EXPECT_FALSE(named.accepts("box.evil.example"));
}

TEST(Guards, Origins) {
  const OriginGuard none({});
  EXPECT_TRUE(none.accepts("http://localhost:8080", "localhost:8080"));
  EXPECT_TRUE(none.accepts("https://chat.example", "chat.example"));  // behind a TLS proxy
  EXPECT_FALSE(none.accepts("http://localhost:3000", "localhost:8080"));
  EXPECT_FALSE(none.accepts("https://evil.example", "localhost:8080"));
  EXPECT_FALSE(none.accepts("null", "localhost:8080"));
  const OriginGuard some({"https://Chat.example"});
  EXPECT_TRUE(some.accepts("https://chat.example", "localhost:8080"));
  EXPECT_FALSE(some.accepts("http://chat.example", "localhost:8080"));
  EXPECT_FALSE(some.accepts("https://chat.example.evil", "localhost:8080"));
  EXPECT_TRUE(OriginGuard({"*"}).accepts("null", "localhost:8080"));
}

TEST(Guards, Keys) {
  EXPECT_TRUE(KeyGuard({}).accepts(""));
  const KeyGuard guard({"secret", "other"});
  EXPECT_TRUE(guard.accepts("Bearer secret"));
  EXPECT_TRUE(guard.accepts("bearer  other"));
  for (const char* bad :
       {"", "secret", "Bearer", "Bearer ", "Bearer secret2", "Bearer secre", "Basic secret", "Bearer Secret"}) {
    EXPECT_FALSE(guard.accepts(bad)) << bad;
  }
}

}  // namespace
}  // namespace tierpack::server
