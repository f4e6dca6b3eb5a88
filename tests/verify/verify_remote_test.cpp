// Verification against a hub and repair from it, on the test hub: what main.cpp joins, joined here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fetch/refetch.h"
#include "formats/lock.h"
#include "tests/support/fetch_fixture.h"
#include "verify/verify_path.h"

namespace tierpack::support {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using verify::FileResult;
using verify::Finding;
using verify::Repair;
using verify::Report;
using verify::VerifyOptions;

class VerifyRemote : public FetchTest {
 protected:
  void fetch_all() {
    start_hub();
    ASSERT_EQ(run(), 0);
    hub_->clear_requests();
  }
  VerifyOptions verify_options() {
    network_.endpoint = hub_->url();
    network_.retry_wait_s = 0.01;
    network_.retries = 2;
    VerifyOptions out;
    out.path = target();
    out.jobs = 2;
    out.remote.list = [this](const std::string& reference, const std::string& endpoint, const verify::FileSelection& selection) {
      return fetch::list_promises(reference, endpoint, {selection.include, selection.exclude}, network_);
    };
    out.remote.repair = [this](const verify::RepairRequest& request) {
      std::vector<verify::RepairedFile> files;
      for (const fetch::RefetchedFile& file : fetch::refetch(
               {request.reference, request.endpoint, request.directory, request.is_cache, request.paths}, network_)) {
        files.push_back({file.path, file.bytes, file.downloaded_bytes, file.failure, file.message, file.kept_as});
      }
      return files;
    };
    out.remote.selects = [](const verify::FileSelection& selection, const std::string& path) {
      return fetch::Selection{selection.include, selection.exclude}.selects(path);
    };
    return out;
  }
  Report against(const std::string& reference) {
    VerifyOptions options = verify_options();
    options.against = reference;
    return verify::verify_path(options);
  }
  Report repair(const std::string& reference = {}, bool dry_run = false) {
    VerifyOptions options = verify_options();
    options.against = reference;
    options.repair = true;
    options.dry_run = dry_run;
    return verify::verify_path(options);
  }
  void damage(const fs::path& path, size_t offset = 1000) {
    std::string content = read_text(path);
    content.at(offset) = static_cast<char>(content.at(offset) ^ 1);
    write_text(path, content);
  }
  static std::vector<std::string> problems_of(const Report& report) {
    std::vector<std::string> out;
    for (const Finding& item : report.findings) {
      if (item.is_problem()) out.push_back(std::string(verify::finding_kind_name(item.kind)) + " " + item.where);
    }
    return out;
  }
  // Everything that a rewrite would change.
  static std::string identity(const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return std::to_string(info.st_ino) + " " + std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec);
  }
  uint64_t payload_requests() const {
    uint64_t count = 0;
    for (const HubRequest& request : hub_->requests()) {
      count += request.on_cdn || request.target.find("/resolve/") != std::string::npos || request.target.find("/blobs/") != std::string::npos;
    }
    return count;
  }
  fetch::NetworkOptions network_;
};

TEST_F(VerifyRemote, TheHubsListProvesFilesWithoutPayload) {
  fetch_all();
  for (const char* reference : {"hub", "hf:o/m", "ms:o/m"}) {
    SCOPED_TRACE(reference);
    const Report report = against(reference);
    EXPECT_TRUE(report.ok());
    ASSERT_EQ(report.results.size(), 2u);
    EXPECT_EQ(report.results[1].path, "model.bin");
    EXPECT_EQ(report.results[1].proof, "SHA-256, promised by the hub");
  }
  EXPECT_EQ(payload_requests(), 0u);
  EXPECT_THAT(against("hf:o/m").results[0].proof, HasSubstr("git blob id"));
}

TEST_F(VerifyRemote, ChecksumListsOnWebServersAreReferences) {
  fetch_all();
  write_text(root() / "o/m/SHA256SUMS", Sha256::of(as_bytes(model_)).hex() + "  model.bin\n");
  VerifyOptions options = verify_options();
  network_.endpoint.clear();  // is for hubs
  options.against = hub_->url() + "/files/o/m/SHA256SUMS";
  Report report = verify::verify_path(options);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.proved_files, 1u);
  damage(target() / "model.bin");
  options.repair = true;
  report = verify::verify_path(options);
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(VerifyRemote, ChangesOnEitherSideAreFound) {
  fetch_all();
  damage(target() / "model.bin");
  EXPECT_THAT(problems_of(against("hf:o/m")), ElementsAre("digest model.bin"));
  damage(target() / "model.bin");
  write_text(root() / "o/m/model.bin", noise(kModelBytes, 77));
  hub_->refresh();
  EXPECT_THAT(problems_of(against("hf:o/m")), ElementsAre("digest model.bin"));
  EXPECT_TRUE(against("").ok());  // the lock does not move
}

TEST_F(VerifyRemote, ALockThatSaysOtherThanItsHubIsFound) {
  fetch_all();
  Lock lock = read_lock(target() / kLockFileName);
  lock.files[1].sha256 = Sha256::of(as_bytes("other"));
  write_lock(target() / kLockFileName, lock);
  EXPECT_THAT(problems_of(against("hub")), ElementsAre(std::string("structure ") + kLockFileName));
  EXPECT_THAT(problems_of(against("")), ElementsAre("digest model.bin"));
}

TEST_F(VerifyRemote, OnlyLockedOrSelectedFilesAreMissed) {
  start_hub();
  fetch::FetchOptions some = options();
  some.selection.include = {"*.json"};
  ASSERT_EQ(run(some), 0);
  EXPECT_TRUE(against("hf:o/m").ok());
  fs::remove(target() / kLockFileName);
  EXPECT_THAT(problems_of(against("hf:o/m")), ElementsAre("missing model.bin"));
  VerifyOptions selected = verify_options();
  selected.against = "hf:o/m";
  selected.selection.exclude = {"*.bin"};
  EXPECT_TRUE(verify::verify_path(selected).ok());
}

TEST_F(VerifyRemote, RepairReplacesExactlyWhatIsBad) {
  write_text(root() / "o/m/sub/other.bin", noise(400000, 5));
  fetch_all();
  const std::string lock = read_text(target() / kLockFileName);
  damage(target() / "model.bin");
  fs::remove(target() / "config.json");
  const std::string good = identity(target() / "sub/other.bin");

  const Report planned = repair("", true);
  EXPECT_FALSE(planned.ok());
  ASSERT_EQ(planned.repairs.size(), 2u);
  EXPECT_EQ(planned.repairs[1].bytes, kModelBytes);
  EXPECT_EQ(planned.repairs[1].outcome, Repair::Outcome::kPlanned);
  EXPECT_EQ(payload_requests(), 0u);

  const Report report = repair();
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.proved_files, 3u);
  ASSERT_EQ(report.repairs.size(), 2u);
  EXPECT_EQ(report.repairs[1].path, "model.bin");
  EXPECT_EQ(report.repairs[1].downloaded_bytes, kModelBytes);
  EXPECT_EQ(report.repairs[1].outcome, Repair::Outcome::kRepaired);
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_EQ(identity(target() / "sub/other.bin"), good);
  EXPECT_EQ(read_text(target() / kLockFileName), lock);
  EXPECT_FALSE(exists(".tierpack"));
  EXPECT_EQ(requests_to("other.bin"), 0u);
  EXPECT_TRUE(repair().repairs.empty());  // nothing left to do
}

TEST_F(VerifyRemote, RepairFromAReferenceNeedsNoLock) {
  fetch_all();
  fs::remove(target() / kLockFileName);
  damage(target() / "model.bin");
  Report report = repair();
  EXPECT_TRUE(report.ok());  // nothing promises anything, so nothing is known to be wrong
  report = repair("hf:o/m");
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(VerifyRemote, SumsWithoutASourceCannotBeRepairedFrom) {
  fetch_all();
  fs::remove(target() / kLockFileName);
  write_text(target() / "SHA256SUMS", Sha256::of(as_bytes(model_)).hex() + "  model.bin\n");
  damage(target() / "model.bin");
  const Report report = repair();
  EXPECT_FALSE(report.ok());
  EXPECT_TRUE(report.repairs.empty());
  ASSERT_FALSE(report.advice.empty());
  EXPECT_THAT(report.advice[0], HasSubstr("--against"));
}

TEST_F(VerifyRemote, TheDamagedFileIsKeptUntilTheNewOneIsProved) {
  fetch_all();
  damage(target() / "model.bin");
  const std::string damaged = fetched("model.bin");
  Fault cut;
  cut.match = "/cdn/";
  cut.action = "truncate";
  cut.bytes = 100000;
  cut.times = -1;
  hub_->add_fault(cut);
  VerifyOptions options = verify_options();
  network_.retries = 0;
  options.repair = true;
  Fault down;
  down.match = "/resolve/";
  down.action = "drop";
  down.skip = 2;
  down.times = -1;
  hub_->add_fault(down);
  Report report = verify::verify_path(options);
  ASSERT_EQ(report.repairs.size(), 1u);
  EXPECT_EQ(report.repairs[0].failure, ErrorKind::kNetwork);
  EXPECT_FALSE(exists("model.bin"));
  ASSERT_FALSE(report.repairs[0].kept_as.empty());
  EXPECT_TRUE(read_text(report.repairs[0].kept_as) == damaged);

  // The hub lies: still nothing lost, nothing wrong under the name.
  hub_->clear_faults();
  Fault wrong;
  wrong.match = "/cdn/";
  wrong.action = "corrupt";
  wrong.bytes = 2000000;
  wrong.times = -1;
  hub_->add_fault(wrong);
  report = repair();
  EXPECT_EQ(report.repairs.at(0).failure, ErrorKind::kCorrupt);
  EXPECT_FALSE(exists("model.bin"));
  EXPECT_TRUE(read_text(report.repairs[0].kept_as) == damaged);

  hub_->clear_faults();
  report = repair();
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_FALSE(exists(".tierpack"));
}

TEST_F(VerifyRemote, RepairIsNoUpdate) {
  fetch_all();
  write_text(root() / "o/m/model.bin", noise(kModelBytes, 78));
  hub_->refresh();
  EXPECT_THROW(repair("hf:o/m"), Error);
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(VerifyRemote, AFullDiskIsNoticedBeforeAnythingMoves) {
  fetch_all();
  Lock lock = read_lock(target() / kLockFileName);
  lock.files[1].size = uint64_t{1} << 60;
  write_lock(target() / kLockFileName, lock);
  const Report report = repair();
  EXPECT_EQ(report.repairs.at(0).failure, ErrorKind::kCapacity);
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(VerifyRemote, APlantedLinkDoesNotLeadTheDamagedFileElsewhere) {
  fetch_all();
  damage(target() / "model.bin");
  fs::create_directory_symlink(root(), target() / ".tierpack");
  const Report report = repair();
  EXPECT_EQ(report.repairs.at(0).failure, ErrorKind::kIo);
  EXPECT_TRUE(exists("model.bin"));
}

TEST_F(VerifyRemote, TheHubsCacheProvesAndRepairsItself) {
  start_hub();
  fetch::FetchOptions cached = options();
  cached.to.clear();
  cached.use_hf_cache = true;
  cached.hf_cache = (target() / "hub").string();
  ASSERT_EQ(run(cached), 0);
  const fs::path repository = target() / "hub/models--o--m";
  const std::string snapshot = "snapshots/" + hub_->commit("o/m") + "/";
  VerifyOptions options = verify_options();
  options.path = repository;
  Report report = verify::verify_path(options);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.what, "cache");
  EXPECT_EQ(report.proved_files, 2u);
  ASSERT_EQ(report.results.size(), 2u);
  EXPECT_EQ(report.results[1].path, snapshot + "model.bin");
  EXPECT_THAT(report.results[0].proof, HasSubstr("git blob id"));
  EXPECT_THAT(report.results[1].proof, HasSubstr("name of the cached blob"));

  damage(repository / snapshot / "model.bin");
  write_text(repository / "blobs" / std::string(64, 'a'), "not what its name says");
  EXPECT_THAT(problems_of(verify::verify_path(options)),
              ElementsAre("digest blobs/" + std::string(64, 'a'), "digest " + snapshot + "model.bin"));
  fs::remove(repository / "blobs" / std::string(64, 'a'));
  options.path = repository / "snapshots" / hub_->commit("o/m");
  options.repair = true;
  report = verify::verify_path(options);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.repairs.size(), 1u);
  EXPECT_TRUE(read_text(repository / snapshot / "model.bin") == model_);
  fs::remove(fs::canonical(repository / snapshot / "config.json"));  // a link to nothing
  report = verify::verify_path(options);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.repairs.size(), 1u);
}

TEST_F(VerifyRemote, ReferencesThatAreNoneAreRefused) {
  fetch_all();
  Fault gone;
  gone.match = "/api/models/o/none";
  gone.action = "status";
  gone.status = 404;
  gone.times = -1;
  hub_->add_fault(gone);
  EXPECT_THROW(against("hf:o/none"), Error);
  EXPECT_THROW(against("nonsense"), Error);
  fs::remove(target() / kLockFileName);
  EXPECT_THROW(against("hub"), Error);
}

}  // namespace
}  // namespace tierpack::support
