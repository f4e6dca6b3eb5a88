#include "fetch/url.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "fetch/address.h"
#include "fetch/credentials.h"
#include "fetch/redirect_rules.h"

namespace tierpack::fetch {
namespace {

Url url(const std::string& text) { return Url::require(text, "test"); }

TEST(Url, OriginIsSchemeHostAndPort) {
  EXPECT_EQ(url("https://Hub.Example/a").origin(), url("https://hub.example:443/b?c").origin());
  EXPECT_NE(url("https://hub.example/").origin(), url("http://hub.example/").origin());
  EXPECT_NE(url("https://hub.example/").origin(), url("https://hub.example:8443/").origin());
  EXPECT_NE(url("https://hub.example/").origin(), url("https://hub.example.evil/").origin());
  EXPECT_NE(url("https://hub.example/").origin(), url("https://evilhub.example/").origin());
}

TEST(Url, ParsesOnlyWhatItKnows) {
  for (const char* bad : {"", "hub.example/a", "ftp://h/a", "https://", "javascript:alert(1)", "http://h\n/a", "//h/a"}) {
    EXPECT_FALSE(Url::parse(bad).has_value()) << bad;
  }
  EXPECT_TRUE(Url::parse("file:///etc/passwd")->is_file());
  EXPECT_TRUE(Url::parse("http://user:pass@h/a")->has_credentials());
  EXPECT_EQ(url("http://127.1/a").origin().host, "127.0.0.1");
  EXPECT_EQ(url("http://h/a%20b/c%2Fd.gguf?x=1").file_name(), "c/d.gguf");
}

TEST(Url, ResolvesAgainstItself) {
  const Url base = url("https://h:8443/a/b?q=1");
  EXPECT_EQ(base.resolve("c d")->text(), "https://h:8443/a/c%20d");
  EXPECT_EQ(base.resolve("/x?y#z")->text(), "https://h:8443/x?y");
  EXPECT_EQ(base.resolve("//other/x")->origin().host, "other");
  EXPECT_EQ(base.resolve("http://o/x")->origin().scheme, "http");
  EXPECT_FALSE(base.resolve("").has_value());
}

TEST(Url, RedactsQueriesAndCredentials) {
  EXPECT_EQ(url("https://u:p@h/a/b?X-Amz-Signature=secret").redacted(), "https://h/a/b?...");
}

TEST(Url, KnowsWhenASignatureEnds) {
  EXPECT_EQ(signed_until(url("https://h/a?X-Amz-Date=20260930T120000Z&X-Amz-Expires=3600")), 1790773200);
  EXPECT_EQ(signed_until(url("https://h/a?Expires=1790773200&Signature=x")), 1790773200);
  EXPECT_EQ(signed_until(url("https://h/a?se=2026-09-30T13%3A00%3A00Z&sig=x")), 1790773200);
  EXPECT_FALSE(signed_until(url("https://h/a?x=1")).has_value());
  EXPECT_FALSE(signed_until(url("https://h/a?Expires=soon")).has_value());
}

TEST(PercentCoding, RoundTrips) {
  EXPECT_EQ(percent_encode("refs/pr/3"), "refs%2Fpr%2F3");
  EXPECT_EQ(percent_encode("a b/\xc3\xa9", "/"), "a%20b/%C3%A9");
  EXPECT_EQ(percent_decode("a%20b%2"), "a b%2");
  std::string all;
  for (int i = 1; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(percent_decode(percent_encode(all)), all);
}

TEST(Address, Classes) {
  const std::pair<const char*, AddressClass> cases[] = {
      {"8.8.8.8", AddressClass::kPublic},       {"10.0.0.1", AddressClass::kPrivate},    {"172.16.0.1", AddressClass::kPrivate},
      {"172.32.0.1", AddressClass::kPublic},    {"192.168.1.1", AddressClass::kPrivate}, {"100.64.0.1", AddressClass::kPrivate},
      {"127.0.0.1", AddressClass::kLoopback},   {"127.9.9.9", AddressClass::kLoopback},  {"0.0.0.0", AddressClass::kLoopback},
      {"169.254.169.254", AddressClass::kLinkLocal}, {"224.0.0.1", AddressClass::kReserved}, {"255.255.255.255", AddressClass::kReserved},
      {"[::1]", AddressClass::kLoopback},       {"::", AddressClass::kLoopback},         {"fe80::1", AddressClass::kLinkLocal},
      {"fd00::1", AddressClass::kPrivate},      {"ff02::1", AddressClass::kReserved},    {"2606:4700::1111", AddressClass::kPublic},
      {"::ffff:127.0.0.1", AddressClass::kLoopback}, {"::ffff:10.1.2.3", AddressClass::kPrivate},
      {"64:ff9b::a9fe:a9fe", AddressClass::kLinkLocal}, {"2002:7f00:1::1", AddressClass::kLoopback}, {"localhost", AddressClass::kLoopback},
  };
  for (const auto& [text, kind] : cases) EXPECT_EQ(classify_literal(text), kind) << text;
  EXPECT_FALSE(classify_literal("hub.example").has_value());
}

TEST(Address, RedirectsStayInTheirClass) {
  EXPECT_TRUE(redirect_may_reach(AddressClass::kPublic, AddressClass::kPublic));
  EXPECT_TRUE(redirect_may_reach(AddressClass::kPrivate, AddressClass::kPublic));
  EXPECT_TRUE(redirect_may_reach(AddressClass::kLoopback, AddressClass::kLoopback));
  EXPECT_FALSE(redirect_may_reach(AddressClass::kPublic, AddressClass::kPrivate));
  EXPECT_FALSE(redirect_may_reach(AddressClass::kPublic, AddressClass::kLoopback));
  EXPECT_FALSE(redirect_may_reach(AddressClass::kPrivate, AddressClass::kLoopback));
  EXPECT_FALSE(redirect_may_reach(AddressClass::kLinkLocal, AddressClass::kLinkLocal));
}

TEST(Credentials, OnlyToTheExactOrigin) {
  Credentials credentials;
  credentials.add(url("https://hub.example").origin(), "hf_secret");
  EXPECT_EQ(credentials.headers_for(url("https://hub.example/api")), std::vector<std::string>{"Authorization: Bearer hf_secret"});
  for (const char* other : {"http://hub.example/api", "https://hub.example:8443/", "https://cdn.hub.example/",
                            "https://hub.example.evil.com/", "https://evil.com/hub.example", "https://xhub.example/"}) {
    EXPECT_TRUE(credentials.headers_for(url(other)).empty()) << other;
  }
  EXPECT_EQ(credentials.redact("token hf_secret, again hf_secret"), "token ***, again ***");
}

TEST(Credentials, RefusesHeaderInjection) {
  Credentials credentials;
  EXPECT_THROW(credentials.add(url("https://h").origin(), "a\r\nX: y"), Error);
  EXPECT_THROW(credentials.add(url("https://h").origin(), "a b"), Error);
}

RedirectDecision redirect(const std::string& from, const std::string& location, bool allow_private = false) {
  Hop hop = first_hop(url(from));
  if (!hop.first_peer) hop.first_peer = AddressClass::kPublic;
  return follow_redirect(hop, {.status = 302, .fields = {{"location", location}}}, allow_private);
}

TEST(RedirectRules, FollowsAndTellsHubFromDeliveryNetwork) {
  const RedirectDecision relative = redirect("https://hub.example/a", "/b");
  ASSERT_TRUE(relative.next);
  EXPECT_TRUE(relative.next->on_hub);
  EXPECT_EQ(relative.next->number, 1);
  const RedirectDecision absolute = redirect("https://hub.example/a", "https://cdn.example/b?sig=1");
  ASSERT_TRUE(absolute.next);
  EXPECT_FALSE(absolute.next->on_hub);
  EXPECT_FALSE(redirect("https://hub.example/a", "//cdn.example/b").next->on_hub);
}

TEST(RedirectRules, Refuses) {
  for (const char* location : {"http://hub.example/b", "file:///etc/passwd", "ftp://h/x", "gopher://h/x", "https://u:p@h/x",
                               "https://127.0.0.1/x", "https://169.254.169.254/latest/meta-data", "https://10.0.0.1/", "https://[::1]/",
                               "https://2130706433/x", "https://0x7f.1/x", "https://localhost/x", "", "http://[::ffff:10.0.0.1]/"}) {
    EXPECT_FALSE(redirect("https://hub.example/a", location).next.has_value()) << location;
  }
  EXPECT_TRUE(redirect("https://hub.example/a", "https://10.0.0.1/", true).next.has_value());
  EXPECT_TRUE(redirect("http://127.0.0.1:1/a", "http://127.0.0.1:2/b").next.has_value());
  EXPECT_FALSE(redirect("http://127.0.0.1:1/a", "http://169.254.169.254/b").next.has_value());
  EXPECT_FALSE(redirect("http://127.0.0.1:1/a", "http://192.168.0.1/b").next.has_value());
}

TEST(RedirectRules, TwoLocationsAreNone) {
  const Hop hop = first_hop(url("https://hub.example/a"));
  EXPECT_FALSE(follow_redirect(hop, {.status = 302, .fields = {{"location", "/a"}, {"location", "/b"}}}, false).next.has_value());
}

TEST(RedirectRules, StopsAfterTen) {
  Hop hop = first_hop(url("https://hub.example/a"));
  int hops = 0;
  for (;;) {
    const RedirectDecision next = follow_redirect(hop, {.status = 302, .fields = {{"location", "/a"}}}, false);
    if (!next.next) break;
    hop = *next.next;
    ++hops;
  }
  EXPECT_EQ(hops, kMaxRedirects);
}

TEST(RedirectRules, NeverBackFromHttpsEvenLater) {
  Hop hop = first_hop(url("https://hub.example/a"));
  hop = *follow_redirect(hop, {.status = 302, .fields = {{"location", "https://cdn.example/b"}}}, false).next;
  EXPECT_FALSE(follow_redirect(hop, {.status = 302, .fields = {{"location", "http://cdn.example/c"}}}, false).next.has_value());
}

TEST(Url, SecretsAreLeftOutOfWhatIsKept) {
  EXPECT_EQ(url("https://h/a?x=1&access_token=s3&y=2").without_secrets(), "https://h/a?x=1&y=2");
  EXPECT_EQ(url("https://h/a?Token=s3").without_secrets(), "https://h/a");
  EXPECT_EQ(url("https://h/a?api%5Fkey=s3&sig=q&download=true").without_secrets(), "https://h/a?download=true");
  EXPECT_EQ(url("https://h/a?revision=main").without_secrets(), "https://h/a?revision=main");
  EXPECT_EQ(url("https://h/a").without_secrets(), "https://h/a");
  EXPECT_EQ(recorded_source("hf:org/name"), "hf:org/name");
  EXPECT_EQ(recorded_source("http://h/f.gguf?token=s3"), "http://h/f.gguf");
}

}  // namespace
}  // namespace tierpack::fetch
