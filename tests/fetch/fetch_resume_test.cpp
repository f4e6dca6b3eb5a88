// Fetches that stop and go on: what is taken over, what is not believed, and that nothing right is downloaded twice.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "fetch/directory_lock.h"
#include "fetch/http_source.h"
#include "formats/lock.h"
#include "tests/support/fetch_fixture.h"

namespace tierpack::support {
namespace {

namespace fs = std::filesystem;

class FetchResume : public FetchTest {
 protected:
  // A run in which every answer with content, but for the first `whole`, breaks off after 100,000 bytes.
  void cut_short(const fetch::FetchOptions& o, int whole = 0) {
    hub_->add_fault(fault("/cdn/", "truncate", 100000, -1, whole));
    ASSERT_EQ(run(o), 5);
  }
};

TEST_F(FetchResume, NothingRightIsDownloadedTwice) {
  start_hub();
  ASSERT_EQ(run(), 0);
  hub_->clear_requests();
  ASSERT_EQ(run(), 0);
  EXPECT_EQ(requests_to("/cdn/") + requests_to("/resolve"), 0u);
}

TEST_F(FetchResume, ResumesWhereItStopped) {
  start_hub();
  auto o = options();
  o.connections = "1";
  o.retries = 0;
  ASSERT_NO_FATAL_FAILURE(cut_short(o, 3));
  EXPECT_FALSE(exists("model.bin"));
  hub_->clear_faults();
  hub_->clear_requests();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  // Three ranges of 512 KiB and a piece of the fourth were kept.
  EXPECT_EQ(bytes_asked("/cdn/"), kModelBytes - 3 * (512u << 10) - 100000);
}

TEST_F(FetchResume, ADamagedPartIsFoundOutAndFetchedAgain) {
  start_hub();
  auto o = options();
  o.connections = "1";
  o.retries = 0;
  ASSERT_NO_FATAL_FAILURE(cut_short(o, 3));
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

TEST_F(FetchResume, ContinuesAtTheCommitItBeganWith) {
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

TEST_F(FetchResume, AnExpiredUrlIsResolvedOnceAndContinued) {
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
  EXPECT_EQ(bytes_asked("/cdn/"), kModelBytes + (512u << 10));  // one range was asked for twice, none was lost
}

TEST_F(FetchResume, AUrlAboutToExpireIsNotReused) {
  HubOptions hub_options;
  hub_options.url_seconds = 5;
  start_hub(hub_options);
  ASSERT_EQ(run(), 0) << message_;
  EXPECT_GT(requests_to("/resolve/" + hub_->commit("o/m") + "/model.bin"), 1u);
}

TEST_F(FetchResume, OneResolveServesAllRangesOfAFile) {
  start_hub();
  ASSERT_EQ(run(), 0);
  EXPECT_EQ(requests_to("/resolve/" + hub_->commit("o/m") + "/model.bin"), 1u);
  EXPECT_GE(requests_to("/cdn/"), 6u);
}

TEST_F(FetchResume, PlainUrlResumesOnlyTheSameVersion) {
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

TEST_F(FetchResume, AFileThatChangesUnderwayIsNotBlended) {
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

TEST_F(FetchResume, TwoFetchesDoNotWorkInOneDirectory) {
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

TEST_F(FetchResume, AFetchThatWaitedKeepsWhatTheOtherLocked) {
  start_hub();
  auto o = options();
  o.selection.include = {"model.bin"};
  ASSERT_EQ(run(o), 0) << message_;
  // Stands for the other fetch: it works in the directory, and writes its lock while ours waits.
  const fs::path lock = target() / "tierpack.lock.json";
  fs::rename(lock, root() / "lock");
  const auto directory = fetch::Directory::open(target(), false);
  const auto state = directory.below(".tierpack", true);
  std::string holder;
  auto held = fetch::DirectoryLock::try_acquire(state, holder);
  ASSERT_TRUE(held);
  hub_->clear_requests();
  std::jthread waiting([&] {
    auto second = options();
    second.selection.include = {"config.json"};
    second.wait = true;
    EXPECT_EQ(fetch::run_fetch(second), 0);
  });
  while (requests_to("/tree/") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  fs::rename(root() / "lock", lock);
  held.reset();
  waiting.join();
  EXPECT_EQ(read_lock(lock).files.size(), 2u);
}

TEST_F(FetchResume, RereadPublishesTheSame) {
  start_hub();
  auto o = options();
  o.reread = true;
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

// Leaves an unfinished model.bin behind: three ranges of 512 KiB.
#define ASSERT_BEGUN(o)                                           \
  do {                                                            \
    hub_->add_fault(fault("/cdn/", "truncate", 1000, -1, 3));     \
    (o).connections = "1";                                        \
    (o).retries = 0;                                              \
    ASSERT_EQ(run(o), 5) << message_;                             \
    ASSERT_FALSE(exists("model.bin"));                            \
    hub_->clear_faults();                                         \
    hub_->clear_requests();                                       \
  } while (false)

TEST_F(FetchResume, DamagedJournalsCostTimeButNeverBytes) {
  start_hub();
  const auto sealed = [](const std::string& text) { return text + "xxh3 " + xxh3_128(as_bytes(text)).hex() + "\n"; };
  for (const char* damage : {"truncated", "zeroed", "empty", "newer", "beyond", "text"}) {
    auto o = options();
    ASSERT_BEGUN(o);
    const fs::path journal = state_file(".journal");
    std::string text = read_text(journal);
    const std::string kind = damage;
    if (kind == "truncated") text.resize(text.size() / 2);
    if (kind == "zeroed") text.assign(text.size(), '\0');
    if (kind == "empty") text.clear();
    if (kind == "newer") text = sealed("tierpack-journal 2\nnobody knows what\n");
    if (kind == "beyond") {  // claims everything, with a right checksum: only the hash can tell
      text = text.substr(0, text.find("extents")) + "extents 0-" + std::to_string(kModelBytes) + "\n";
      text = sealed(text);
    }
    if (kind == "text") text = "size 5\n";
    write_text(journal, text);
    ASSERT_EQ(run(o), 0) << damage << ": " << message_;
    ASSERT_TRUE(fetched("model.bin") == model_) << damage;
    fs::remove_all(target());
  }
}

TEST_F(FetchResume, AJournalOfAnotherFileIsNotBelieved) {
  write_text(root() / "o/m/other.bin", noise(kModelBytes, 8));
  start_hub();
  auto o = options();
  o.jobs = 2;
  hub_->add_fault(fault("model.bin?", "truncate", 1000, -1, 3));
  hub_->add_fault(fault("other.bin?", "truncate", 1000, -1, 3));
  o.connections = "2";
  o.retries = 0;
  ASSERT_EQ(run(o), 5);
  std::vector<fs::path> journals;
  for (const auto& entry : fs::directory_iterator(target() / ".tierpack")) {
    if (entry.path().extension() == ".journal") journals.push_back(entry.path());
  }
  ASSERT_EQ(journals.size(), 2u);
  fs::rename(journals[0], target() / "swap");
  fs::rename(journals[1], journals[0]);
  fs::rename(target() / "swap", journals[1]);
  hub_->clear_faults();
  ASSERT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  EXPECT_TRUE(fetched("other.bin") == noise(kModelBytes, 8));
}

TEST_F(FetchResume, PartsThatBecameSomethingElseAreNotWrittenThrough) {
  start_hub();
  const fs::path victim = root() / "victim";
  for (const char* what : {"link", "fifo", "hardlink", "short"}) {
    auto o = options();
    ASSERT_BEGUN(o);
    write_text(victim, "precious");
    const fs::path part = state_file(".part");
    const std::string kind = what;
    if (kind == "short") {
      fs::resize_file(part, 100);
    } else if (kind == "hardlink") {
      fs::create_hard_link(part, root() / "alias");
    } else {
      fs::remove(part);
      if (kind == "link") fs::create_symlink(victim, part);
      if (kind == "fifo") {
        ASSERT_EQ(::mkfifo(part.c_str(), 0600), 0);
      }
    }
    ASSERT_EQ(run(o), 0) << what << ": " << message_;
    EXPECT_TRUE(fetched("model.bin") == model_) << what;
    EXPECT_EQ(read_text(victim), "precious") << what;
    EXPECT_EQ(fs::hard_link_count(target() / "model.bin"), 1u) << what;
    fs::remove_all(target());
  }
}

TEST_F(FetchResume, APartReplacedUnderwayIsNotPublished) {
  start_hub();
  hub_->add_fault(fault("/cdn/", "slow", 2 << 20, -1));
  auto o = options();
  o.selection.include = {"model.bin"};
  int code = -1;
  {
    const std::jthread fetching([&] { code = run(o); });
    while (!fs::exists(target() / ".tierpack") || requests_to("/cdn/") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    write_text(target() / "planted", noise(kModelBytes, 66));
    fs::rename(target() / "planted", state_file(".part"));
  }
  EXPECT_EQ(code, 1);
  EXPECT_FALSE(exists("model.bin"));
  hub_->clear_faults();
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchResume, ACommitThatVanishedIsSaidNotReplaced) {
  start_hub();
  auto o = options();
  ASSERT_BEGUN(o);
  const std::string changed = noise(kModelBytes, 21);
  write_text(root() / "o/m/model.bin", changed);
  hub_->refresh();  // another commit; the first is gone
  EXPECT_EQ(run(o), 1);
  EXPECT_NE(message_.find(".tierpack"), std::string::npos) << message_;
  EXPECT_FALSE(exists("model.bin"));
  fs::remove_all(target() / ".tierpack");
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == changed);
}

TEST_F(FetchResume, ALockedFileThatChangedIsRefused) {
  start_hub();
  ASSERT_EQ(run(), 0);
  auto o = options();
  o.reference = (target() / "tierpack.lock.json").string();
  o.endpoint.clear();
  o.to = (root() / "copy").string();
  hub_->add_fault(fault("/cdn/", "noise", 0, -1));
  EXPECT_EQ(run(o), 3);
  EXPECT_FALSE(fs::exists(root() / "copy/model.bin"));
}

TEST_F(FetchResume, WholeBodiesFillTheGapsOfWhatIsThere) {
  start_hub();
  auto o = options();
  ASSERT_BEGUN(o);
  // The server has lost the ability to serve ranges, and cuts every body after 2 MiB, until its last one.
  hub_->add_fault(fault("/cdn/", "full_unknown", 2 << 20, 4));
  hub_->add_fault(fault("/cdn/", "full", 0, -1));
  o.retries = 6;
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchResume, AFifoInPlaceOfTheJournalDoesNotHangIt) {
  start_hub();
  auto o = options();
  o.retries = 0;
  ASSERT_NO_FATAL_FAILURE(cut_short(o));
  const fs::path journal = state_file(".journal");
  fs::remove(journal);
  ASSERT_EQ(::mkfifo(journal.c_str(), 0600), 0);
  hub_->clear_faults();
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(FetchResume, ALinkedLockFileIsNotWritten) {
  start_hub();
  fs::create_directories(target() / ".tierpack");
  write_text(root() / "victim", "precious");
  fs::create_hard_link(root() / "victim", target() / ".tierpack/lock");
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(read_text(root() / "victim"), "precious");
}

// Bytes behind the promised end of a part are no part of the file.
TEST_F(FetchResume, ALongerPartIsPublishedAtItsPromisedSize) {
  start_hub();
  auto o = options();
  o.retries = 0;
  ASSERT_NO_FATAL_FAILURE(cut_short(o));
  std::ofstream(state_file(".part"), std::ios::app | std::ios::binary) << std::string(5000000, 'E');
  hub_->clear_faults();
  EXPECT_EQ(run(), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

// Answers that are cut short, each of which brings something.
TEST_F(FetchResume, ManySmallStepsAreProgress) {
  start_hub();
  hub_->add_fault(fault("/cdn/", "truncate", 100000, -1));
  auto o = options();
  o.connections = "1";
  o.retries = 5;
  o.retry_wait_s = 0.001;
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

}  // namespace
}  // namespace tierpack::support
