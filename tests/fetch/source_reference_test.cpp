// Small pure pieces: references, patterns, environment, listings, retry and connection control.
#include "fetch/source_reference.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/printable.h"
#include "fetch/connection_control.h"
#include "fetch/environment.h"
#include "fetch/fetch_plan.h"
#include "fetch/glob.h"
#include "fetch/listing.h"
#include "fetch/retry.h"

namespace tierpack::fetch {
namespace {

TEST(Reference, HubForms) {
  const Reference model = parse_reference("hf:Qwen/Qwen3-30B@refs/pr/3");
  EXPECT_EQ(model.kind, ReferenceKind::kHuggingFace);
  EXPECT_EQ(model.repo, "Qwen/Qwen3-30B");
  EXPECT_EQ(model.revision, "refs/pr/3");
  EXPECT_EQ(model.text, "hf:Qwen/Qwen3-30B");
  EXPECT_EQ(parse_reference("hf:gpt2").repo, "gpt2");
  EXPECT_EQ(parse_reference("hf:datasets/a/b").type, RepoType::kDataset);
  EXPECT_EQ(parse_reference("hf:datasets/a/b").text, "hf:datasets/a/b");
  EXPECT_EQ(parse_reference("ms:a/b").kind, ReferenceKind::kModelScope);
}

TEST(Reference, Registries) {
  const Reference ollama = parse_reference("ollama:qwen3:30b");
  EXPECT_EQ(ollama.host, "registry.ollama.ai");
  EXPECT_EQ(ollama.repo, "library/qwen3");
  EXPECT_EQ(ollama.revision, "30b");
  const Reference oci = parse_reference("oci:127.0.0.1:5000/a/b@sha256:" + std::string(64, 'a'));
  EXPECT_EQ(oci.host, "127.0.0.1:5000");
  EXPECT_EQ(oci.repo, "a/b");
  EXPECT_EQ(parse_reference("oci:ghcr.io/x/y").revision, "latest");
  EXPECT_EQ(parse_reference("ollama:hf.co/user/repo:Q4_K_M").host, "hf.co");
}

TEST(Reference, UrlsAndLocks) {
  EXPECT_EQ(parse_reference("https://h/a.gguf?sig=1").text, "https://h/a.gguf");
  EXPECT_EQ(parse_reference("x/tierpack.lock.json").kind, ReferenceKind::kLock);
}

TEST(Reference, RefusesWhatItCannotUse) {
  for (const char* bad : {"", "hf:", "hf:a/b/c", "hf:../x", "hf:a/..", "hf:a/b@", "hf:a/b@../../x", "hf:a b/c", "ms:solo", "oci:a", "ollama:",
                          "oci:host/a@sha256:xyz", "ftp://h/x", "https://user:pass@h/x", "nonsense", "hf:a/b@x y"}) {
    EXPECT_THROW(parse_reference(bad), Error) << bad;
  }
}

TEST(Glob, HubSemantics) {
  EXPECT_TRUE(glob_match("*.gguf", "sub/dir/x.gguf"));
  EXPECT_TRUE(glob_match("*Q4*", "UD-Q4/m-00001-of-00002.gguf"));
  EXPECT_TRUE(glob_match("a?c", "a/c"));
  EXPECT_TRUE(glob_match("[a-c]x[!0-9]", "bxy"));
  EXPECT_FALSE(glob_match("[a-c]x[!0-9]", "bx1"));
  EXPECT_TRUE(glob_match("[]]", "]"));
  EXPECT_TRUE(glob_match("a[b", "a[b"));
  EXPECT_FALSE(glob_match("*.GGUF", "x.gguf"));
  EXPECT_FALSE(glob_match("x", "xy"));
  EXPECT_TRUE(glob_match("**", ""));
  // Patterns that make naive matchers explode.
  EXPECT_FALSE(glob_match(std::string(30, '*') + "a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(Glob, EscapedPatternsMatchThemselvesOnly) {
  for (const char* name : {"a*b", "a?b", "a[b]c", "plain", "[!x]"}) {
    EXPECT_TRUE(glob_match(glob_escape(name), name)) << name;
    EXPECT_FALSE(glob_match(glob_escape(name), std::string(name) + "x")) << name;
  }
  EXPECT_FALSE(glob_match(glob_escape("a*b"), "axb"));
}

TEST(Printable, NoControlCharactersReachATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\n"), "a\\x1b[31mb\\x0a");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\x9b");
  EXPECT_EQ(printable(std::string(300, 'x'), 10), std::string(10, 'x') + "...");
}

TEST(Glob, Selection) {
  const Selection selection{.include = {"weights/", "*.json"}, .exclude = {"*secret*"}};
  EXPECT_TRUE(selection.selects("weights/a.bin"));
  EXPECT_TRUE(selection.selects("config.json"));
  EXPECT_FALSE(selection.selects("secret.json"));
  EXPECT_FALSE(selection.selects("readme.md"));
  EXPECT_TRUE(Selection{}.selects("anything"));
}

TEST(Glob, NothingMatchedNamesTheNearest) {
  Listing listing;
  listing.source = "hf:a/b";
  for (const char* name : {"model-Q4_K_M.gguf", "model-Q8_0.gguf", "README.md"}) listing.files.push_back({.path = name, .size = {}, .sha256 = {}, .git_sha1 = {}, .urls = {}, .validator = {}});
  try {
    select_files({.include = {"model-Q4KM.gguf"}}, listing);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(e.what()).find("are: model-Q4_K_M.gguf"), std::string::npos) << e.what();
  }
}

Environment environment(const std::map<std::string, std::string>& values) {
  return read_environment([&](const char* name) -> const char* {
    const auto at = values.find(name);
    return at != values.end() ? at->second.c_str() : nullptr;
  });
}

TEST(EnvironmentVariables, MeanWhatTheyMeanElsewhere) {
  const Environment plain = environment({{"HOME", "/home/u"}});
  EXPECT_EQ(plain.hf_cache, "/home/u/.cache/huggingface/hub");
  EXPECT_FALSE(plain.offline);
  EXPECT_TRUE(plain.hf_token.empty());
  const Environment full = environment({{"HOME", "/home/u"}, {"HF_HOME", "/hf"}, {"HF_TOKEN", " tok \n"}, {"HF_HUB_OFFLINE", "yes"},
                                        {"SSL_CERT_FILE", "/ca.pem"}, {"HF_ENDPOINT", "https://m"}});
  EXPECT_EQ(full.hf_cache, "/hf/hub");
  EXPECT_EQ(full.hf_token, "tok");
  EXPECT_TRUE(full.offline);
  EXPECT_EQ(full.ca_file, "/ca.pem");
  EXPECT_EQ(environment({{"HOME", "/h"}, {"HF_HUB_CACHE", "/c"}}).hf_cache, "/c");
  EXPECT_FALSE(environment({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}}).offline);
}

Listing listing_of(std::vector<std::string> names) {
  Listing listing;
  listing.source = "test";
  for (std::string& name : names) listing.files.push_back({.path = std::move(name), .size = {}, .sha256 = {}, .git_sha1 = {}, .urls = {}, .validator = {}});
  return listing;
}

TEST(ListingCheck, RefusesHostileNames) {
  for (const std::string& name :
       {std::string("../x"), std::string("/etc/x"), std::string("a/../../x"), std::string("a\\..\\x"), std::string("C:\\x"),
        std::string("a//b"), std::string(300, 'x'), std::string("a\nb"), std::string("a\0b", 3), std::string(""), std::string("."),
        std::string("a/./b"), std::string(".git/config"), std::string(".tierpack/lock"), std::string("x/.cache/y"), std::string("a\xff"),
        std::string("tierpack.lock.json"), std::string("a/"), std::string("\x1b[31m")}) {
    EXPECT_THROW(check_listing(listing_of({name})), Error) << name;
  }
  EXPECT_THROW(check_listing(listing_of({"README.md", "readme.md"})), Error);
  EXPECT_THROW(check_listing(listing_of({"a", "a/b"})), Error);
  EXPECT_THROW(check_listing(listing_of({"a", "a"})), Error);
  check_listing(listing_of({"a/b", "a/c", "\xe6\xa8\xa1\xe5\x9e\x8b.gguf", "a b.txt", "...x"}));
}

TEST(Retry, BackoffGrowsWithinItsCap) {
  const RetryPolicy policy;
  for (int failures = 1; failures < 40; ++failures) {
    EXPECT_LE(backoff_seconds(policy, failures, 0.999), policy.longest_wait_s);
    EXPECT_GE(backoff_seconds(policy, failures, 0.0), 0);
  }
  EXPECT_GT(backoff_seconds(policy, 5, 0.5), backoff_seconds(policy, 2, 0.5));
  EXPECT_EQ(wait_seconds(policy, 1, 0.5, 7.0), 7.0);
  EXPECT_GT(wait_seconds(policy, 1, 0.5, 0.0), 0);
}

// A network that gives each connection 10 up to a total limit.
int settle(double per_connection, double limit, int start, int most) {
  ConnectionControl control(start, most);
  for (int i = 0; i < 40; ++i) control.on_window(std::min(limit, per_connection * control.target()));
  return control.target();
}

TEST(ConnectionControlTest, RaisesOnlyWhileItHelps) {
  EXPECT_EQ(settle(10, 1e9, 4, 16), 16);   // throttled per connection: all of them help
  EXPECT_EQ(settle(100, 100, 4, 16), 4);   // one would do: no more are added
  EXPECT_EQ(settle(10, 80, 4, 16), 8);     // the link is full at eight
  EXPECT_EQ(settle(10, 1e9, 6, 6), 6);     // a fixed number stays
}

TEST(ConnectionControlTest, HalvesWhenThrottled) {
  ConnectionControl control(16, 32);
  control.on_throttled();
  EXPECT_EQ(control.target(), 8);
  for (int i = 0; i < 10; ++i) control.on_throttled();
  EXPECT_EQ(control.target(), 1);
  control.on_window(1);
  EXPECT_EQ(control.target(), 1);  // rests before it tries again
}

}  // namespace
}  // namespace tierpack::fetch
