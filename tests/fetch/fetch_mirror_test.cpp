// Several places for one file: which is asked, and what a lying one can do (nothing).
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

class FetchMirrors : public FetchTest {};

TEST_F(FetchMirrors, MirrorsTakeOver) {
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

TEST_F(FetchMirrors, ALyingMirrorCannotSpoilTheFile) {
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

TEST_F(FetchMirrors, OnlyWhatALiarBroughtIsFetchedAgain) {
  start_hub();
  HubOptions mirror_options;
  mirror_options.root = root();
  HubServer mirror(mirror_options);
  mirror.add_fault(fault("/cdn/", "noise", 0, -1));
  hub_->add_fault(status("/cdn/", 500, 2, 2));  // two ranges go to the mirror
  auto o = options();
  o.connections = "1";
  o.retry_wait_s = 0.3;
  o.mirrors = {mirror.url()};
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_GT(mirror.requests().size(), 0u);
  // What the origin had sent was right and is not asked for again.
  EXPECT_LE(bytes_asked("/cdn/"), kModelBytes + 3 * (512u << 10));
}

TEST_F(FetchMirrors, AnHonestMirrorOvercomesALyingOrigin) {
  start_hub();
  HubOptions mirror_options;
  mirror_options.root = root();
  HubServer mirror(mirror_options);
  hub_->add_fault(fault("/cdn/", "corrupt", 700000, -1));
  auto o = options();
  o.mirrors = {mirror.url()};
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchMirrors, ARangeThatFailsAtTheOriginComesFromTheMirror) {
  start_hub();
  HubOptions mirror_options;
  mirror_options.root = root();
  HubServer mirror(mirror_options);
  Fault broken = fault("/cdn/", "reset", 100, -1);
  broken.range = "bytes=1048576-";
  hub_->add_fault(broken);
  auto o = options();
  o.mirrors = {mirror.url()};
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchMirrors, AMirrorWithAnotherFileIsLeftAlone) {
  start_hub();
  TemporaryDirectory other;
  write_text(other.path() / "o/m/model.bin", noise(kModelBytes + 7, 3));
  HubOptions mirror_options;
  mirror_options.root = other.path();
  HubServer mirror(mirror_options);
  hub_->add_fault(status("/cdn/", 500, 2, 1));
  auto o = options();
  o.mirrors = {mirror.url()};
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchMirrors, AnotherHubStandsInWhereItsListAgrees) {
  start_hub();
  hub_->add_fault(status("/resolve/", 404, -1));
  auto o = options();
  o.mirrors = {"ms:o/m"};
  o.selection.include = {"model.bin"};
  ::setenv("MODELSCOPE_ENDPOINT", hub_->url().c_str(), 1);
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_GT(requests_to("FilePath=model.bin"), 0u);
  ::unsetenv("MODELSCOPE_ENDPOINT");
}

TEST_F(FetchMirrors, AMirrorThatCannotBeListedIsLeftOut) {
  start_hub();
  auto o = options();
  o.mirrors = {"ms:o/m"};
  o.retries = 0;
  ::setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9", 1);
  EXPECT_EQ(run(o), 0) << message_;
  ::unsetenv("MODELSCOPE_ENDPOINT");
}

}  // namespace
}  // namespace tierpack::support
