#include "verify/prove_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "base/error.h"
#include "tests/support/temp_directory.h"

namespace tierpack::verify {
namespace {

namespace fs = std::filesystem;
using testing_support::TempDirectory;
using testing_support::write_file;

class ProveFiles : public testing::Test {
 protected:
  // A file of noise that is promised as it is.
  void add(size_t size) {
    std::mt19937_64 random(size);
    std::string content(size, '\0');
    for (char& c : content) c = static_cast<char>(random());
    const std::string name = std::to_string(promises_.size());
    write_file(dir_ / name, content);
    promises_.push_back({.path = name, .bytes = size, .sha256 = Sha256::of(as_bytes(content)), .hash_origin = "hub", .origin = "test"});
    total_ += size;
  }
  std::vector<FileProof> prove(int threads) {
    std::vector<ProofTask> tasks;
    for (const PromisedFile& promise : promises_) tasks.push_back({dir_ / promise.path, &promise});
    ThreadTeam team(threads);
    told_ = 0;
    return prove_files(tasks, team, [&](uint64_t bytes) { told_ += bytes; });
  }
  TempDirectory dir_;
  std::vector<PromisedFile> promises_;
  uint64_t total_ = 0;
  std::atomic<uint64_t> told_{0};
};

TEST_F(ProveFiles, AnyNumberOfFilesOnAnyNumberOfThreads) {
  for (const size_t size : {3u << 20, (1u << 20) + 1, 1u << 20, (1u << 20) - 1, 262144u, 131072u, 131073u, 131071u, 64u, 63u, 1u, 0u}) add(size);
  for (const int threads : {1, 2, 3, 8, 20}) {
    const auto proofs = prove(threads);
    ASSERT_EQ(proofs.size(), promises_.size());
    for (size_t i = 0; i < proofs.size(); ++i) EXPECT_TRUE(proofs[i].equal) << i << ": " << proofs[i].problem;
    EXPECT_EQ(told_, total_);
  }
  promises_.clear();
  EXPECT_TRUE(prove(2).empty());
}

TEST_F(ProveFiles, DamageStaysWithItsFile) {
  for (int i = 0; i < 5; ++i) add((1u << 20) + static_cast<size_t>(i) * 1000);
  std::string content = testing_support::read_file(dir_ / "2");
  content[700000] ^= 1;
  write_file(dir_ / "2", content);
  fs::remove(dir_ / "3");
  for (const int threads : {1, 2, 4}) {
    const auto proofs = prove(threads);
    for (size_t i = 0; i < proofs.size(); ++i) EXPECT_EQ(proofs[i].equal, i != 2 && i != 3) << i;
    EXPECT_FALSE(proofs[2].unreadable);
    EXPECT_TRUE(proofs[3].unreadable);
  }
}

TEST_F(ProveFiles, GitBlobIdsAreComputedWhereNobodyPromisedSha256) {
  write_file(dir_ / "a", "hello\n");
  const std::string id = "ce013625030ba8dba906f756967f9e9ca394464a";
  promises_ = {{.path = "a", .git_sha1 = id, .origin = "test"},
               {.path = "a", .sha256 = Sha256::of(as_bytes("hello\n")), .git_sha1 = id, .hash_origin = "observed", .origin = "test"},
               {.path = "a", .git_sha1 = std::string(40, '0'), .origin = "test"},
               // A SHA-256 that was promised is proof enough.
               {.path = "a", .sha256 = Sha256::of(as_bytes("hello\n")), .git_sha1 = std::string(40, '0'), .hash_origin = "hub", .origin = "test"}};
  const auto proofs = prove(1);
  EXPECT_TRUE(proofs[0].equal);
  EXPECT_EQ(proofs[1].proof, "git blob id (SHA-1), promised by the hub; SHA-256, observed at download");
  EXPECT_FALSE(proofs[2].equal);
  EXPECT_TRUE(proofs[3].equal);
}

TEST_F(ProveFiles, AnExceptionEndsEverything) {
  for (int i = 0; i < 6; ++i) add(1u << 20);
  std::vector<ProofTask> tasks;
  for (const PromisedFile& promise : promises_) tasks.push_back({dir_ / promise.path, &promise});
  ThreadTeam team(2);
  EXPECT_THROW(prove_files(tasks, team, [](uint64_t) { fail(ErrorKind::kInterrupted, "stop"); }), Error);
}

}  // namespace
}  // namespace tierpack::verify
