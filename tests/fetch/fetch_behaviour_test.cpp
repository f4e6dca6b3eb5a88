// What a whole fetch does beyond surviving faults: resume, selection, tokens, hostile listings, locks, layouts.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "fetch/http_source.h"
#include "formats/lock.h"
#include "tests/support/fetch_fixture.h"

namespace tierpack::support {
namespace {

namespace fs = std::filesystem;

class Behaviour : public FetchTest {
 protected:
  static Fault fault(std::string match, std::string action, int64_t bytes = 0) {
    Fault out;
    out.match = std::move(match);
    out.action = std::move(action);
    out.bytes = bytes;
    return out;
  }
  // Answers requests for the file tree with `json`.
  void serve_tree(const std::string& json) {
    Fault f = fault("/tree/", "status");
    f.status = 200;
    f.times = -1;
    f.text = json;
    hub_->add_fault(f);
  }
  uint64_t bytes_served(const std::string& part) const {
    uint64_t sum = 0;
    for (const HubRequest& request : hub_->requests()) {
      const std::string range = request.header("range");
      if (request.target.find(part) == std::string::npos || range.empty()) continue;
      const size_t dash = range.find('-');
      sum += std::stoull(range.substr(dash + 1)) - std::stoull(range.substr(6, dash - 6)) + 1;
    }
    return sum;
  }
};

TEST_F(Behaviour, FetchesEverythingAndLocksIt) {
  start_hub();
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_EQ(fetched("config.json"), "{\"hidden_size\": 64}\n");
  const Lock lock = read_lock(target() / "tierpack.lock.json");
  EXPECT_EQ(lock.source, "hf:o/m");
  EXPECT_EQ(lock.revision, hub_->commit("o/m"));
  ASSERT_EQ(lock.files.size(), 2u);
  EXPECT_EQ(lock.files[0].path, "config.json");
  EXPECT_EQ(lock.files[0].hash_origin, "observed");
  EXPECT_TRUE(lock.files[0].git_sha1.has_value());
  EXPECT_EQ(lock.files[1].hash_origin, "hub");
  EXPECT_EQ(lock.files[1].sha256, Sha256::of(as_bytes(model_)));
  EXPECT_EQ(fs::status(target() / "model.bin").permissions() & fs::perms(0111), fs::perms::none);
}

TEST_F(Behaviour, NothingRightIsDownloadedTwice) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  ASSERT_EQ(run(), 0);
  EXPECT_EQ(requests_to("/cdn/") + requests_to("/resolve"), 0u);
}

TEST_F(Behaviour, ResumesWhereItStopped) {
  start_hub();
  Fault f = fault("/cdn/", "truncate", 100000);
  f.skip = 3;
  f.times = -1;
  hub_->add_fault(f);
  auto o = options();
  o.connections = "1";
  o.retries = 0;
  ASSERT_EQ(run(o), 5);
  EXPECT_FALSE(exists("model.bin"));
  hub_->clear_faults();
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  // Three ranges of 512 KiB and a piece of the fourth were kept.
  EXPECT_EQ(bytes_served("/cdn/"), kModelBytes - 3 * (512u << 10) - 100000);
}

TEST_F(Behaviour, ADamagedPartIsFoundOutAndFetchedAgain) {
  start_hub();
  Fault f = fault("/cdn/", "truncate", 100000);
  f.skip = 3;
  f.times = -1;
  hub_->add_fault(f);
  auto o = options();
  o.connections = "1";
  o.retries = 0;
  ASSERT_EQ(run(o), 5);
  for (const auto& entry : fs::directory_iterator(target() / ".tierpack")) {
    if (entry.path().extension() != ".part") continue;
    std::string bytes = read_text(entry.path());
    bytes[77] ^= 1;
    std::FILE* file = std::fopen(entry.path().c_str(), "r+");
    std::fwrite(bytes.data(), 1, 100, file);
    std::fclose(file);
  }
  hub_->clear_faults();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(Behaviour, ContinuesAtTheCommitItBeganWith) {
  start_hub();
  Fault f = fault("/cdn/", "truncate", 1000);
  f.times = -1;
  hub_->add_fault(f);
  auto o = options();
  o.retries = 0;
  ASSERT_EQ(run(o), 5);
  const std::string begun = hub_->commit("o/m");
  hub_->clear_faults();
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0);
  EXPECT_EQ(requests_to("/revision/" + begun), 1u);
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0);  // finished: the branch is asked again
  EXPECT_EQ(requests_to("/revision/main"), 1u);
}

TEST_F(Behaviour, TokensGoToTheirOriginOnly) {
  HubOptions hub_options;
  hub_options.token = "hf_test_token";
  start_hub(hub_options);
  EXPECT_EQ(run(), 1);  // gated
  EXPECT_NE(message_.find("gated"), std::string::npos) << message_;
  write_text(root() / "token", "hf_test_token\n");
  ::chmod((root() / "token").c_str(), 0600);
  auto o = options();
  o.token_file = (root() / "token").string();
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0) << message_;
  for (const HubRequest& request : hub_->requests()) {
    EXPECT_EQ(request.header("authorization"), request.on_cdn ? "" : "Bearer hf_test_token") << request.target;
    EXPECT_EQ(request.header("cookie"), "");
  }
  EXPECT_EQ(read_text(target() / "tierpack.lock.json").find("hf_test_token"), std::string::npos);
}

TEST_F(Behaviour, EveryPayloadRequestHasARangeAndWantsPlainBytes) {
  start_hub();
  ASSERT_EQ(run(), 0);
  for (const HubRequest& request : hub_->requests()) {
    EXPECT_EQ(request.header("accept-encoding"), "identity");
    const bool payload = request.on_cdn || request.target.find("resolve") != std::string::npos;
    EXPECT_EQ(request.header("range").rfind("bytes=", 0) == 0, payload) << request.target;
  }
}

TEST_F(Behaviour, OneResolveServesAllRangesOfAFile) {
  start_hub();
  ASSERT_EQ(run(), 0);
  EXPECT_EQ(requests_to("/resolve/" + hub_->commit("o/m") + "/model.bin"), 1u);
  EXPECT_GE(requests_to("/cdn/"), 6u);
}

TEST_F(Behaviour, AnExpiredUrlIsResolvedOnceAndContinued) {
  start_hub();
  Fault f = fault("/cdn/", "status");
  f.status = 403;
  f.skip = 3;
  f.times = 1;
  hub_->add_fault(f);
  auto o = options();
  o.connections = "1";
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_EQ(requests_to("/resolve/" + hub_->commit("o/m") + "/model.bin"), 2u);
  EXPECT_EQ(bytes_served("/cdn/"), kModelBytes + (512u << 10));  // one range was asked for twice, none was lost
}

TEST_F(Behaviour, AUrlAboutToExpireIsNotReused) {
  HubOptions hub_options;
  hub_options.url_seconds = 5;
  start_hub(hub_options);
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_GT(requests_to("/resolve/" + hub_->commit("o/m") + "/model.bin"), 1u);
}

TEST_F(Behaviour, ListsOfSeveralPages) {
  for (int i = 0; i < 25; ++i) write_text(root() / "o/m/sub" / ("f" + std::to_string(i) + ".txt"), std::to_string(i));
  HubOptions hub_options;
  hub_options.page_entries = 4;
  start_hub(hub_options);
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_EQ(fetched("sub/f24.txt"), "24");
  EXPECT_EQ(read_lock(target() / "tierpack.lock.json").files.size(), 27u);
}

TEST_F(Behaviour, ANextPageElsewhereIsRefused) {
  start_hub();
  Fault f = fault("/tree/", "status");
  f.status = 200;
  f.text = "[]";
  f.headers = {{"Link", "<http://127.0.0.1:9/next>; rel=\"next\""}};
  hub_->add_fault(f);
  EXPECT_EQ(run(), 3);
}

TEST_F(Behaviour, PagesInACircleEnd) {
  start_hub();
  Fault f = fault("/tree/", "status");
  f.status = 200;
  f.times = -1;
  f.text = "[]";
  f.headers = {{"Link", "<" + hub_->url() + "/api/models/o/m/tree/x?cursor=1>; rel=\"next\""}};
  hub_->add_fault(f);
  EXPECT_EQ(run(), 3);
  EXPECT_LE(requests_to("/tree/"), 3u);
}

TEST_F(Behaviour, EmptyAndTinyFiles) {
  write_text(root() / "o/m/empty.gguf", "");
  write_text(root() / "o/m/empty.txt", "");
  write_text(root() / "o/m/one.bin", "x");
  start_hub();
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_TRUE(exists("empty.gguf"));
  EXPECT_TRUE(exists("empty.txt"));
  EXPECT_EQ(fetched("one.bin"), "x");
}

TEST_F(Behaviour, SelectionAndItsMistakes) {
  start_hub();
  auto o = options();
  o.selection.include = {"*.json"};
  ASSERT_EQ(run(o), 0);
  EXPECT_TRUE(exists("config.json"));
  EXPECT_FALSE(exists("model.bin"));
  o.selection.include = {"*.jsn"};
  EXPECT_EQ(run(o), 2);
  EXPECT_NE(message_.find("config.json"), std::string::npos) << message_;
  // A second selection of the same revision adds to the lock.
  o.selection.include = {"model.bin"};
  ASSERT_EQ(run(o), 0);
  EXPECT_EQ(read_lock(target() / "tierpack.lock.json").files.size(), 2u);
}

TEST_F(Behaviour, HostileNamesWriteNothing) {
  start_hub();
  for (const char* name : {"../x.bin", "/tmp/x.bin", "a/../../x.bin", "a\\\\..\\\\x.bin", ".tierpack/x", "a//b", "C:/x", "x\\u0000y", "x\\ny"}) {
    hub_->clear_faults();
    serve_tree(std::string(R"([{"type":"file","path":")") + name +
               R"(","size":3,"oid":"0123456789012345678901234567890123456789"}])");
    EXPECT_EQ(run(), 3) << name;
    EXPECT_FALSE(fs::exists(target())) << name;
    EXPECT_FALSE(fs::exists(target().parent_path() / "x.bin")) << name;
  }
}

TEST_F(Behaviour, ListingsThatContradictThemselves) {
  start_hub();
  const std::string oid = std::string(64, 'a');
  for (const std::string& tree : {
           std::string(R"([{"type":"file","path":"a","size":-3,"oid":"x"}])"),
           std::string(R"([{"type":"file","path":"a","size":3.5,"oid":"x"}])"),
           std::string(R"([{"type":"file","path":"a","size":"3","oid":"x"}])"),
           std::string(R"([{"type":"file","path":"a","size":3,"lfs":{"oid":"short","size":3}}])"),
           R"([{"type":"file","path":"a","size":3,"lfs":{"oid":")" + oid + R"(","size":4}}])",
           std::string(R"({"error":"x"})"), std::string("[1]"), std::string("["), std::string(R"([{"path":"a","size":3}])"),
           std::string(100000, '['),
       }) {
    hub_->clear_faults();
    serve_tree(tree);
    EXPECT_EQ(run(), 3) << tree.substr(0, 80);
  }
}

TEST_F(Behaviour, PlantedLinksInTheTargetAreNotFollowed) {
  start_hub();
  const fs::path victim = root() / "victim";
  write_text(victim, "precious");
  fs::create_directories(target());
  fs::create_symlink(victim, target() / "model.bin");
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(read_text(victim), "precious");
  fs::remove(target() / "model.bin");

  fs::remove_all(target());
  fs::create_directories(target());
  fs::create_directory_symlink(root(), target() / ".tierpack");
  EXPECT_EQ(run(), 1);
  EXPECT_FALSE(exists("model.bin"));
}

TEST_F(Behaviour, LinkedSubdirectoriesAreNotWrittenInto) {
  write_text(root() / "o/m/sub/x.bin", "inside");
  start_hub();
  fs::create_directories(target());
  fs::create_directories(root() / "elsewhere");
  fs::create_directory_symlink(root() / "elsewhere", target() / "sub");
  EXPECT_EQ(run(), 1);
  EXPECT_FALSE(fs::exists(root() / "elsewhere/x.bin"));
}

TEST_F(Behaviour, OddThingsUnderTheFinalName) {
  start_hub();
  fs::create_directories(target() / "model.bin");
  EXPECT_EQ(run(), 1);
  fs::remove(target() / "model.bin");
  ASSERT_EQ(::mkfifo((target() / "model.bin").c_str(), 0600), 0);
  EXPECT_EQ(run(), 1);
}

TEST_F(Behaviour, ExistingFilesAreReplacedOnlyWhenAsked) {
  start_hub();
  write_text(target() / "model.bin", noise(kModelBytes, 99));
  write_text(target() / "config.json", "short");
  EXPECT_EQ(run(), 3);
  EXPECT_TRUE(fetched("model.bin") == noise(kModelBytes, 99));
  EXPECT_EQ(fetched("config.json"), "short");
  auto o = options();
  o.force = true;
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(Behaviour, ALockReproducesWithoutAskingTheApi) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  auto o = options();
  o.reference = (target() / "tierpack.lock.json").string();
  o.endpoint.clear();
  o.to = (root() / "copy").string();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(read_text(root() / "copy/model.bin") == model_);
  EXPECT_EQ(requests_to("/api/models"), 0u);
  EXPECT_EQ(read_text(root() / "copy/tierpack.lock.json"), read_text(target() / "tierpack.lock.json"));
}

TEST_F(Behaviour, OfflineChecksWhatIsThere) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  auto o = options();
  o.offline = true;
  EXPECT_EQ(run(o), 0) << message_;
  fs::remove(target() / "config.json");
  EXPECT_EQ(run(o), 3);
  write_text(target() / "config.json", "{\"hidden_size\": 65}\n");
  EXPECT_EQ(run(o), 3);
  EXPECT_EQ(fetched("config.json"), "{\"hidden_size\": 65}\n");
  EXPECT_TRUE(hub_->requests().empty());
  fs::remove(target() / "tierpack.lock.json");
  EXPECT_EQ(run(o), 3);
}

TEST_F(Behaviour, DryRunWritesNothing) {
  start_hub();
  auto o = options();
  o.dry_run = true;
  EXPECT_EQ(run(o), 0);
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_EQ(requests_to("/resolve"), 0u);
}

TEST_F(Behaviour, WhatDoesNotFitIsNotBegun) {
  start_hub();
  serve_tree(R"([{"type":"file","path":"huge.bin","size":1000000000000000,"lfs":{"oid":")" + std::string(64, 'a') +
             R"(","size":1000000000000000}}])");
  EXPECT_EQ(run(), 4);
  auto o = options();
  o.dry_run = true;
  EXPECT_EQ(run(o), 4);
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(Behaviour, PlainUrlWithAndWithoutAPromise) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = hub_->url() + "/files/o/m/model.bin";
  o.sha256 = Sha256::of(as_bytes(model_)).hex();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_EQ(read_lock(target() / "tierpack.lock.json").files[0].hash_origin, "user");
  fs::remove_all(target());
  o.sha256.clear();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_EQ(read_lock(target() / "tierpack.lock.json").files[0].hash_origin, "observed");
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0) << message_;  // recognised by the lock
  EXPECT_LE(bytes_served("/files/o/m/model.bin"), 1u);
  fs::remove_all(target());
  o.sha256 = std::string(64, '0');
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(exists("model.bin"));
}

TEST_F(Behaviour, PlainUrlResumesOnlyTheSameVersion) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = hub_->url() + "/files/o/m/model.bin";
  o.connections = "1";
  o.retries = 0;
  Fault f = fault("/files/", "truncate", 1000);
  f.skip = 4;  // the probe, the sidecar and two ranges
  f.times = -1;
  hub_->add_fault(f);
  ASSERT_EQ(run(o), 5);
  hub_->clear_faults();
  const std::string changed = noise(kModelBytes, 5);
  write_text(root() / "o/m/model.bin", changed);
  fs::last_write_time(root() / "o/m/model.bin", fs::file_time_type::clock::now() + std::chrono::seconds(5));
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == changed);  // no blend of the two
}

TEST_F(Behaviour, AFileThatChangesUnderwayIsNotBlended) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = hub_->url() + "/files/o/m/model.bin";
  o.connections = "1";
  write_text(root() / "other.bin", noise(kModelBytes, 5));
  Fault f = fault("/files/o/m/model.bin", "other_file");
  f.text = "other.bin";
  f.skip = 4;
  f.times = 1;
  Fault tag = f;
  hub_->add_fault(f);
  // The honest server tags by time, the other content has another tag.
  hub_->clear_faults();
  tag.action = "etag";
  tag.text = "\"version-2\"";
  hub_->add_fault(tag);
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(Behaviour, ChecksumLists) {
  start_hub();
  const std::string hex = Sha256::of(as_bytes(model_)).hex();
  write_text(root() / "o/m/SHA256SUMS", hex + "  model.bin\n");
  auto o = options();
  o.endpoint.clear();
  o.reference = hub_->url() + "/files/o/m/";
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_EQ(read_lock(target() / "tierpack.lock.json").files[0].hash_origin, "sums");
  fs::remove_all(target());
  write_text(root() / "o/m/SHA256SUMS", std::string(64, 'a') + "  model.bin\n");
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(exists("model.bin"));
  write_text(root() / "o/m/SHA256SUMS", hex + "  ../../model.bin\n");
  EXPECT_EQ(run(o), 3);
}

TEST_F(Behaviour, ALoginPageIsNotAModel) {
  start_hub();
  Fault f = fault("/files/", "html");
  f.times = -1;
  hub_->add_fault(f);
  auto o = options();
  o.endpoint.clear();
  o.reference = hub_->url() + "/files/o/m/model.bin";
  EXPECT_EQ(run(o), 1);
  EXPECT_FALSE(exists("model.bin"));
}

TEST_F(Behaviour, AnUnmarkedEndIsNotBelieved) {
  start_hub();
  Fault f = fault("/files/o/m/model.bin", "full_unknown", 5000);
  f.times = -1;
  hub_->add_fault(f);
  Fault none = fault(".sha256", "status");
  none.status = 404;
  hub_->add_fault(none);
  auto o = options();
  o.endpoint.clear();
  o.reference = hub_->url() + "/files/o/m/model.bin";
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(exists("model.bin"));
  o.accept_unknown_size = true;
  EXPECT_EQ(run(o), 0) << message_;
}

TEST_F(Behaviour, LocalFilesAndDirectories) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = "file://" + (root() / "o/m").string();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_TRUE(exists("config.json"));
}

TEST_F(Behaviour, ModelScope) {
  start_hub();
  auto o = options();
  o.reference = "ms:o/m";
  Fault f = fault("FilePath=model.bin", "tail_200");  // its habit
  f.times = -1;
  hub_->add_fault(f);
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  const Lock lock = read_lock(target() / "tierpack.lock.json");
  EXPECT_EQ(lock.source, "ms:o/m");
  for (const LockFile& file : lock.files) EXPECT_EQ(file.hash_origin, "hub");
  fs::remove_all(target());
  o.reference = "ms:datasets/o/m";
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(Behaviour, Registries) {
  write_text(root() / "o/m/model.gguf", noise(100000, 3));
  HubOptions hub_options;
  hub_options.registry_auth = true;
  start_hub(hub_options);
  auto o = options();
  o.reference = "ollama:o/m:latest";
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("m-latest.gguf") == noise(100000, 3));
  const Lock lock = read_lock(target() / "tierpack.lock.json");
  EXPECT_TRUE(lock.revision.starts_with("sha256:"));
  for (const HubRequest& request : hub_->requests()) {
    EXPECT_TRUE(!request.on_cdn || request.header("authorization").empty());
  }
  // From the lock alone: the anonymous token is asked for when the registry wants it.
  o.reference = (target() / "tierpack.lock.json").string();
  o.endpoint.clear();
  o.to = (root() / "copy").string();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(read_text(root() / "copy/m-latest.gguf") == noise(100000, 3));
}

TEST_F(Behaviour, RegistryDigestsAreCheckedBeforeUse) {
  start_hub();
  auto o = options();
  o.reference = "ollama:o/m:latest";
  for (const char* digest : {"sha256:../../../../etc/passwd", "sha256:abc", "md5:abc", "sha256-abc"}) {
    hub_->clear_faults();
    Fault f = fault("/manifests/", "status");
    f.status = 200;
    f.text = std::string(R"({"layers":[{"mediaType":"x","digest":")") + digest + R"(","size":3}]})";
    hub_->add_fault(f);
    EXPECT_EQ(run(o), 3) << digest;
  }
}

TEST_F(Behaviour, ARealmElsewhereGetsNothing) {
  start_hub();
  Fault f = fault("/manifests/", "status");
  f.status = 401;
  f.headers = {{"WWW-Authenticate", "Bearer realm=\"http://127.0.0.1:9/token\",service=\"x\""}};
  hub_->add_fault(f);
  auto o = options();
  o.reference = "ollama:o/m:latest";
  EXPECT_EQ(run(o), 1);
  EXPECT_NE(message_.find("not its own host"), std::string::npos) << message_;
}

TEST_F(Behaviour, MirrorsTakeOver) {
  start_hub();
  HubOptions mirror_options;
  mirror_options.root = root();
  HubServer mirror(mirror_options);
  Fault f = fault("/cdn/", "truncate", 1000);
  f.skip = 2;
  f.times = -1;
  hub_->add_fault(f);
  auto o = options();
  o.mirrors = {mirror.url()};
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_GT(mirror.requests().size(), 0u);
  for (const HubRequest& request : mirror.requests()) EXPECT_EQ(request.header("authorization"), "");
}

TEST_F(Behaviour, ALyingMirrorCannotSpoilTheFile) {
  start_hub();
  HubOptions mirror_options;
  mirror_options.root = root();
  HubServer mirror(mirror_options);
  Fault lie = fault("/cdn/", "shift");
  lie.times = -1;
  mirror.add_fault(lie);
  Fault f = fault("/cdn/", "status");
  f.status = 500;
  f.skip = 2;
  f.times = 2;
  hub_->add_fault(f);
  auto o = options();
  o.mirrors = {mirror.url()};
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(Behaviour, RateLimitHolds) {
  start_hub();
  auto o = options();
  o.limit_rate = "1M";
  o.selection.include = {"model.bin"};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(o), 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(seconds, 2.4);  // 3 MiB at 1 MiB/s, less what a bucket saves up
}

TEST_F(Behaviour, RereadPublishesTheSame) {
  start_hub();
  auto o = options();
  o.reread = true;
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(Behaviour, TwoFetchesDoNotWorkInOneDirectory) {
  start_hub();
  Fault slow = fault("/cdn/", "slow", 1 << 20);
  slow.times = -1;
  hub_->add_fault(slow);
  std::jthread first([&] { EXPECT_EQ(fetch::run_fetch(options()), 0); });
  while (!fs::exists(target() / ".tierpack/lock")) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  int second = 0;
  std::string text;
  try {
    fetch::run_fetch(options());
  } catch (const Error& e) {
    second = exit_code(e.kind());
    text = e.what();
  }
  EXPECT_EQ(second, 1);
  EXPECT_NE(text.find("another fetch"), std::string::npos);
  auto o = options();
  o.wait = true;
  EXPECT_EQ(fetch::run_fetch(o), 0);
  first.join();
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(Behaviour, AHeaderThatContradictsThePromisedSizeEndsEarly) {
  // A GGUF whose only tensor claims far more bytes than the file is promised to have.
  std::string gguf = "GGUF";
  const auto put = [&](auto value) { gguf.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto put_text = [&](const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    gguf += text;
  };
  put(uint32_t{3});
  put(uint64_t{1});
  put(uint64_t{1});
  put_text("general.architecture");
  put(uint32_t{8});
  put_text("qwen3moe");
  put_text("w");
  put(uint32_t{1});
  put(uint64_t{1} << 30);
  put(uint32_t{0});
  put(uint64_t{0});
  gguf.resize(3u << 20, '\0');
  write_text(root() / "o/m/model.gguf", gguf);
  start_hub();
  auto o = options();
  o.selection.include = {"model.gguf"};
  o.connections = "1";
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(exists("model.gguf"));
  o.no_structure_check = true;
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.gguf") == gguf);
}

TEST_F(Behaviour, CacheLayoutOfTheHub) {
  write_text(root() / "o/m/sub/model2.bin", model_);  // equal content: one blob, two links
  start_hub();
  auto o = options();
  o.to.clear();
  o.use_hf_cache = true;
  o.hf_cache = target().string();
  ASSERT_EQ(run(o), 0) << message_;
  const fs::path repo = target() / "models--o--m";
  const std::string commit = hub_->commit("o/m");
  EXPECT_EQ(read_text(repo / "refs/main"), commit);
  EXPECT_TRUE(read_text(repo / "snapshots" / commit / "model.bin") == model_);
  EXPECT_TRUE(read_text(repo / "snapshots" / commit / "sub/model2.bin") == model_);
  EXPECT_EQ(fs::read_symlink(repo / "snapshots" / commit / "sub/model2.bin"),
            "../../../blobs/" + Sha256::of(as_bytes(model_)).hex());
  EXPECT_TRUE(fs::is_symlink(repo / "snapshots" / commit / "config.json"));
  EXPECT_FALSE(fs::exists(repo / ".tierpack"));
  EXPECT_EQ(std::distance(fs::directory_iterator(repo / "blobs"), fs::directory_iterator()), 2);
  // Offline, against the lock that was left.
  hub_->clear_requests();
  o.offline = true;
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(hub_->requests().empty());
}

TEST_F(Behaviour, CachedBlobsAreReusedOnlyIfTheirContentIsRight) {
  start_hub();
  auto o = options();
  o.to.clear();
  o.use_hf_cache = true;
  o.hf_cache = (root() / "cache").string();
  ASSERT_EQ(run(o), 0) << message_;
  ::setenv("HF_HUB_CACHE", (root() / "cache").c_str(), 1);
  hub_->clear_requests();
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_EQ(requests_to("/cdn/"), 0u);
  EXPECT_TRUE(fetched("model.bin") == model_);
  // The same name and size, other bytes: found out, and fetched.
  fs::remove_all(target());
  write_text(root() / "cache/models--o--m/blobs" / Sha256::of(as_bytes(model_)).hex(), noise(kModelBytes, 77));
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_GT(requests_to("/cdn/"), 0u);
  EXPECT_TRUE(fetched("model.bin") == model_);
  ::unsetenv("HF_HUB_CACHE");
}

TEST_F(Behaviour, TheEnvironmentsTokenIsForTheHubItself) {
  HubOptions hub_options;
  hub_options.token = "hf_env_token";
  start_hub(hub_options);
  ::setenv("HF_TOKEN", "hf_env_token", 1);
  EXPECT_EQ(run(), 1);
  for (const HubRequest& request : hub_->requests()) EXPECT_EQ(request.header("authorization"), "");
  auto o = options();
  o.send_token = true;
  EXPECT_EQ(run(o), 0) << message_;
  ::unsetenv("HF_TOKEN");
}

TEST_F(Behaviour, OfflineByTheEnvironment) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_TRUE(hub_->requests().empty());
  ::unsetenv("HF_HUB_OFFLINE");
}

TEST_F(Behaviour, EndpointFromTheEnvironment) {
  start_hub();
  ::setenv("HF_ENDPOINT", (hub_->url() + "/").c_str(), 1);
  auto o = options();
  o.endpoint.clear();
  EXPECT_EQ(run(o), 0) << message_;
  ::unsetenv("HF_ENDPOINT");
}

TEST_F(Behaviour, ProxiesAreUsedAndBypassed) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = "http://no-such-host.invalid/files/o/m/model.bin";
  ::setenv("http_proxy", hub_->url().c_str(), 1);
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_GT(requests_to("http://no-such-host.invalid/"), 0u);
  ::setenv("no_proxy", "no-such-host.invalid", 1);
  fs::remove_all(target());
  o.retries = 0;
  EXPECT_EQ(run(o), 5);
  ::unsetenv("http_proxy");
  ::unsetenv("no_proxy");
}

TEST_F(Behaviour, EventsAreOneJsonObjectALine) {
  start_hub();
  Fault f = fault("/cdn/", "truncate", 1000);
  hub_->add_fault(f);
  auto o = options();
  o.json = true;
  ::testing::internal::CaptureStdout();
  const int code = run(o);
  const std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  std::map<std::string, int> seen;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const Json event = parse_json(line, "event");
    ++seen[json_string(event, "event", "event")];
    if (event["event"] == "file_end") {
      EXPECT_EQ(event["status"], "fetched");
    }
    if (event["event"] == "summary") {
      EXPECT_EQ(event["failed"], 0);
    }
  }
  EXPECT_EQ(seen["listing"], 1);
  EXPECT_EQ(seen["file_start"], 2);
  EXPECT_EQ(seen["file_end"], 2);
  EXPECT_EQ(seen["trouble"], 1);
  EXPECT_GE(seen["progress"], 1);
  EXPECT_EQ(seen["summary"], 1);
}

TEST_F(Behaviour, MessagesOfServersCannotDriveTheTerminal) {
  start_hub();
  Fault f = fault("/api/models", "status");
  f.status = 403;
  f.text = "{\"error\":\"\\u001b]0;owned\\u0007\"}";
  hub_->add_fault(f);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(message_.find('\x1b'), std::string::npos);
}

TEST_F(Behaviour, RemoteFilesAsByteSources) {
  write_text(root() / "o/m/a-00001-of-00002.gguf", model_);
  write_text(root() / "o/m/a-00002-of-00002.gguf", noise(1000, 4));
  start_hub();
  for (const std::string& reference : {hub_->url() + "/files/o/m/model.bin", std::string("hf:o/m/model.bin")}) {
    const auto source = fetch::open_http_source(reference, reference.starts_with("hf:") ? hub_->url() : "");
    EXPECT_EQ(source->size(), kModelBytes);
    for (const uint64_t offset : {uint64_t{0}, uint64_t{262143}, uint64_t{1000000}, uint64_t{kModelBytes - 5}}) {
      std::string bytes(5, '\0');
      source->read_at(offset, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
      EXPECT_EQ(bytes, model_.substr(offset, 5)) << offset;
    }
    std::byte beyond[2];
    EXPECT_THROW(source->read_at(kModelBytes - 1, beyond), Error);
  }
  const auto shards = fetch::open_remote_gguf("hf:o/m", hub_->url());
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[1]->size(), 1000u);
  write_text(root() / "o/m/b.gguf", "x");
  hub_->refresh();
  EXPECT_THROW(fetch::open_remote_gguf("hf:o/m", hub_->url()), Error);
  EXPECT_THROW(fetch::open_http_source("hf:o/m/none.gguf", hub_->url()), Error);
  Fault wrong = fault("/files/", "wrong_start");
  wrong.times = -1;
  hub_->add_fault(wrong);
  const auto source = fetch::open_http_source(hub_->url() + "/files/o/m/model.bin");
  std::byte byte[1];
  EXPECT_THROW(source->read_at(2000000, byte), Error);
}

}  // namespace
}  // namespace tierpack::support
