// What hubs list: pages, nonsense, empty files, selections.
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

class FetchListings : public FetchTest {};

TEST_F(FetchListings, ListsOfSeveralPages) {
  for (int i = 0; i < 25; ++i) write_text(root() / "o/m/sub" / ("f" + std::to_string(i) + ".txt"), std::to_string(i));
  HubOptions hub_options;
  hub_options.page_entries = 4;
  start_hub(hub_options);
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_EQ(fetched("sub/f24.txt"), "24");
  EXPECT_EQ(read_lock(target() / "tierpack.lock.json").files.size(), 27u);
}

TEST_F(FetchListings, PagesInACircleEnd) {
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

TEST_F(FetchListings, EmptyAndTinyFiles) {
  write_text(root() / "o/m/empty.gguf", "");
  write_text(root() / "o/m/empty.txt", "");
  write_text(root() / "o/m/one.bin", "x");
  start_hub();
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_TRUE(exists("empty.gguf"));
  EXPECT_TRUE(exists("empty.txt"));
  EXPECT_EQ(fetched("one.bin"), "x");
}

TEST_F(FetchListings, SelectionAndItsMistakes) {
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

TEST_F(FetchListings, ListingsThatContradictThemselves) {
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

TEST_F(FetchListings, EveryPayloadRequestHasARangeAndWantsPlainBytes) {
  start_hub();
  ASSERT_EQ(run(), 0);
  for (const HubRequest& request : hub_->requests()) {
    EXPECT_EQ(request.header("accept-encoding"), "identity");
    const bool payload = request.on_cdn || request.target.find("resolve") != std::string::npos;
    EXPECT_EQ(request.header("range").rfind("bytes=", 0) == 0, payload) << request.target;
  }
}

TEST_F(FetchListings, MoreThanAThousandEntries) {
  for (int i = 0; i < 1010; ++i) write_text(root() / "o/m/many" / ("f" + std::to_string(i) + ".txt"), std::to_string(i));
  start_hub();
  auto o = options();
  o.selection.include = {"many/f99?.txt"};
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_EQ(fetched("many/f999.txt"), "999");
  EXPECT_EQ(requests_to("/tree/"), 2u);
}

TEST_F(FetchListings, RefsAndDatasets) {
  start_hub();
  auto o = options();
  o.reference = "hf:o/m@refs/pr/3";
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_EQ(requests_to("/api/models/o/m/revision/refs%2Fpr%2F3"), 1u);
  fs::remove_all(target());
  o.reference = "hf:datasets/o/m";
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_GT(requests_to("/api/datasets/o/m/tree/"), 0u);
  EXPECT_GT(requests_to("/datasets/o/m/resolve/" + hub_->commit("o/m") + "/model.bin"), 0u);
  EXPECT_EQ(read_lock(target() / "tierpack.lock.json").source, "hf:datasets/o/m");
}

TEST_F(FetchListings, AFileThatFailsLetsTheOthersFinish) {
  write_text(root() / "o/m/a.bin", noise(100000, 4));
  write_text(root() / "o/m/z.bin", noise(100000, 5));
  start_hub();
  hub_->add_fault(status("model.bin?", 503, -1));
  EXPECT_EQ(run(), 5);
  EXPECT_FALSE(exists("model.bin"));
  EXPECT_TRUE(fetched("a.bin") == noise(100000, 4));
  EXPECT_TRUE(fetched("z.bin") == noise(100000, 5));
  EXPECT_FALSE(exists("tierpack.lock.json"));
}

TEST_F(FetchListings, ABusyHubIsNotAskedBeforeItsTime) {
  for (int i = 0; i < 12; ++i) write_text(root() / "o/m" / ("w" + std::to_string(i) + ".bin"), noise(3000, static_cast<uint64_t>(i)));
  start_hub();
  Fault f = status("/resolve/", 429);
  f.headers = {{"RateLimit", "\"resolvers\";r=0;t=1"}};
  hub_->add_fault(f);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_GT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1.8);  // t + 1 s
  // 14 files, one request each, one refused; at most the three others under way at that moment were sent in vain.
  EXPECT_LE(requests_to("/resolve/"), 18u);
}

TEST_F(FetchListings, AHubWhoseLimitIsUsedUpIsNotAskedForNothing) {
  write_text(root() / "o/m/w1.bin", noise(3000, 1));
  start_hub();
  Fault f = status("/resolve/" + hub_->commit("o/m") + "/model.bin", 302);
  f.headers = {{"Location", "/files/o/m/model.bin"}, {"RateLimit", "\"resolvers\";r=0;t=0"}};
  hub_->add_fault(f);
  auto o = options();
  o.jobs = 1;
  o.selection.include = {"*.bin"};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_GT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 0.9);  // t + 1 s
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_EQ(requests_to("/resolve/"), 2u);
}

}  // namespace
}  // namespace tierpack::support
