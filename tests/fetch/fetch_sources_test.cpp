// Every kind of source: plain URLs, checksum lists, local files, ModelScope, registries, the hub's cache.
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

class FetchSources : public FetchTest {};

TEST_F(FetchSources, PlainUrlWithAndWithoutAPromise) {
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
  EXPECT_LE(bytes_asked("/files/o/m/model.bin"), 1u);
  fs::remove_all(target());
  o.sha256 = std::string(64, '0');
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(exists("model.bin"));
}

TEST_F(FetchSources, ALocalFileThatCannotBeReadDoesNotStopTheOthers) {
  // Says that it has 4096 bytes, and ends earlier.
  const fs::path short_file = "/sys/kernel/mm/transparent_hugepage/enabled";
  std::error_code failed;
  if (fs::file_size(short_file, failed) != 4096) GTEST_SKIP() << "no " << short_file;
  start_hub();
  fs::create_symlink(short_file, root() / "o/m/a.txt");
  auto o = options();
  o.endpoint.clear();
  o.reference = "file://" + (root() / "o/m").string();
  EXPECT_EQ(run(o), 1);
  EXPECT_EQ(message_, "");  // the run went to its end
  EXPECT_FALSE(exists("a.txt"));
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchSources, AHostThatIsNotFoundIsANetworkFailure) {
  start_hub();
  auto o = plain_url();
  o.reference = "http://no-such-host.invalid/model.bin";
  EXPECT_EQ(run(o), 5) << message_;
  // Once, behind the hub: the fetch goes on.
  Fault f = fault("/resolve/", "redirect");
  f.text = "http://no-such-host.invalid/model.bin";
  f.status = 302;
  f.times = 2;
  hub_->add_fault(f);
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchSources, AnEmptyFileThatShouldHaveAnotherHashFails) {
  start_hub();
  write_text(root() / "o/e/empty.bin", "");
  write_text(root() / "o/e/SHA256SUMS", std::string(64, 'c') + "  empty.bin\n");
  auto o = options();
  o.endpoint.clear();
  o.reference = hub_->url() + "/files/o/e/";
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(exists("empty.bin"));
  write_text(root() / "o/e/SHA256SUMS", Sha256::of({}).hex() + "  empty.bin\n");
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(exists("empty.bin"));
}

// Without a promised hash nothing else would notice that two ranges are of two versions.
TEST_F(FetchSources, RangesOfNoNamedVersionAreNotJoined) {
  start_hub();
  Fault weak = fault("/files/o/m/model.bin", "etag", 0, -1);
  weak.text = "W/\"1\"";
  hub_->add_fault(weak);
  auto o = plain_url();
  o.connections = "4";
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  for (const HubRequest& request : hub_->requests()) {
    if (request.path() != "/files/o/m/model.bin" || request.method != "GET") continue;
    EXPECT_TRUE(request.header("range").starts_with("bytes=0-")) << request.header("range");
  }
}

TEST_F(FetchSources, ChecksumLists) {
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

TEST_F(FetchSources, ALoginPageIsNotAModel) {
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

TEST_F(FetchSources, AnUnmarkedEndIsNotBelieved) {
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

TEST_F(FetchSources, LocalFilesAndDirectories) {
  start_hub();
  auto o = options();
  o.endpoint.clear();
  o.reference = "file://" + (root() / "o/m").string();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_TRUE(exists("config.json"));
}

TEST_F(FetchSources, ModelScope) {
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

TEST_F(FetchSources, Registries) {
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

TEST_F(FetchSources, RegistryDigestsAreCheckedBeforeUse) {
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

TEST_F(FetchSources, CacheLayoutOfTheHub) {
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

TEST_F(FetchSources, CachedBlobsAreReusedOnlyIfTheirContentIsRight) {
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

TEST_F(FetchSources, ARemoteCheckpointIsAskedForWhenItIsRead) {
  write_text(root() / "o/c/model-00001-of-00002.safetensors", model_);
  write_text(root() / "o/c/model-00002-of-00002.safetensors", noise(1000, 4));
  write_text(root() / "o/c/config.json", "{}");
  write_text(root() / "o/c/README.md", "of no use");
  write_text(root() / "o/c/original/more.safetensors", "of no use");
  start_hub();
  const auto files = fetch::open_remote_checkpoint("hf:o/c", hub_->url());
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].name, "config.json");
  EXPECT_EQ(files[1].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(files[1].bytes->size(), kModelBytes);
  hub_->clear_requests();
  std::string bytes(8, '\0');
  files[1].bytes->read_at(1000, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  EXPECT_EQ(bytes, model_.substr(1000, 8));
  for (const auto& request : hub_->requests()) EXPECT_NE(request.path().find("model-00001"), std::string::npos) << request.target;
  // Where a GGUF lies, that is the model.
  write_text(root() / "o/c/model.gguf", "x");
  hub_->refresh();
  EXPECT_TRUE(fetch::open_remote_checkpoint("hf:o/c", hub_->url()).empty());
  EXPECT_TRUE(fetch::open_remote_checkpoint(hub_->url() + "/files/o/c/config.json").empty());
}

TEST_F(FetchSources, RemoteFilesAsByteSources) {
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
  // A name that no file can have is not looked at.
  serve_tree(R"([{"type":"file","path":")" + std::string(400000, 'a') +
             R"(-00001-of-00002.gguf","size":3,"oid":"0123456789012345678901234567890123456789"}])");
  EXPECT_THROW(fetch::open_remote_gguf("hf:o/m", hub_->url()), Error);
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  hub_->clear_requests();
  EXPECT_THROW(fetch::open_remote_gguf("hf:o/m", hub_->url()), Error);
  EXPECT_THROW(fetch::open_http_source(hub_->url() + "/files/o/m/model.bin"), Error);
  EXPECT_TRUE(hub_->requests().empty());
  ::unsetenv("HF_HUB_OFFLINE");
  Fault wrong = fault("/files/", "wrong_start");
  wrong.times = -1;
  hub_->add_fault(wrong);
  const auto source = fetch::open_http_source(hub_->url() + "/files/o/m/model.bin");
  std::byte byte[1];
  EXPECT_THROW(source->read_at(2000000, byte), Error);
}

TEST_F(FetchSources, AnLfsPointerIsNotTheFile) {
  write_text(root() / "o/m/pointer.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 12345\n");
  start_hub();
  EXPECT_EQ(run(plain_url("o/m/pointer.bin")), 3);
  EXPECT_FALSE(exists("pointer.bin"));
}

TEST_F(FetchSources, HostileChecksumLists) {
  start_hub();
  const std::string hex = Sha256::of(as_bytes(model_)).hex();
  auto o = plain_url("o/m/SHA256SUMS");
  for (const std::string& list : {
           hex + "  /etc/passwd\n", hex + "  a/../../model.bin\n", hex + "  .tierpack/x\n", "\\" + hex + "  mo\\ndel.bin\n",
           hex + "  model.bin\n" + std::string(64, 'a') + "  model.bin\n", std::string("<html></html>\n"), std::string("\0\0\0", 3),
           hex + " model.bin\n", hex.substr(1) + "  model.bin\n", hex + "  http://127.0.0.1:9/x\n" + hex + "  C:x\n",
           hex + "  model.bin\n" + hex + "  MODEL.BIN\n",
       }) {
    write_text(root() / "o/m/SHA256SUMS", list);
    EXPECT_EQ(run(o), 3) << list;
    EXPECT_FALSE(fs::exists(target())) << list;
  }
  write_text(root() / "o/m/SHA256SUMS", "# made by hand\r\n\r\n" + hex + " *./model.bin\r\n");
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchSources, ALockOfARegistryCanBeFetchedElsewhere) {
  write_text(root() / "o/m/model.gguf", noise(100000, 3));
  start_hub();
  auto o = options();
  o.reference = "ollama:o/m:latest";
  ASSERT_EQ(run(o), 0) << message_;
  HubOptions mirror_options;
  mirror_options.root = root();
  HubServer mirror(mirror_options);
  o.reference = (target() / "tierpack.lock.json").string();
  o.endpoint = mirror.url();
  o.to = (root() / "copy").string();
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(read_text(root() / "copy/m-latest.gguf") == noise(100000, 3));
  EXPECT_TRUE(hub_->requests().empty());
}

}  // namespace
}  // namespace tierpack::support
