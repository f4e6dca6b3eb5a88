// The program killed at random moments, without a chance to tidy up, and started again: it always completes, with the
// right bytes, and downloads at most what no journal claims twice.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include <fcntl.h>

#include "fetch/journal.h"
#include "tests/support/fetch_fixture.h"

namespace tierpack::support {
namespace {

namespace fs = std::filesystem;

class KillTest : public FetchTest {
 protected:
  pid_t start() {
    const std::string program = std::string(TIERPACK_BINARY_DIR) + "/tierpack";
    const std::string url = hub_->url();
    const std::string to = target().string();
    const pid_t child = ::fork();
    if (child == 0) {
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDERR_FILENO);
      ::dup2(null, STDOUT_FILENO);
      ::execl(program.c_str(), "tierpack", "fetch", "hf:o/m", "--endpoint", url.c_str(), "--to", to.c_str(), "--range-size",
              "512K", "--retry-wait", "0.01", "--checkpoint", "0.05", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    return child;
  }
  static int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // An honest hub with no requests yet. Another one: the last requests of an ended process may still be on their way to the
  // old one, and would be counted.
  void begin_counting() {
    hub_.reset();
    start_hub();
  }
};

int rounds() {
  const char* text = std::getenv("TIERPACK_KILL_ROUNDS");
  return text != nullptr ? std::atoi(text) : 25;
}

TEST_F(KillTest, KilledAnywhereItCompletesOnTheNextRun) {
  const std::string big = noise(24u << 20, 11);
  write_text(root() / "o/m/big.bin", big);
  start_hub();
  // Slow enough that most kills hit a running download, fast enough that the test is not long.
  Fault slow;
  slow.match = "/cdn/";
  slow.action = "slow";
  slow.bytes = 40 << 20;
  slow.times = -1;
  hub_->add_fault(slow);
  std::mt19937 random(std::random_device{}());
  int killed = 0;
  for (int round = 0; round < rounds(); ++round) {
    const pid_t child = start();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500000));
    ::kill(child, SIGKILL);
    const int status = wait_for(child);
    killed += status == -SIGKILL;
    ASSERT_TRUE(status == -SIGKILL || status == 0) << status;
    if (exists("big.bin")) {
      ASSERT_TRUE(fetched("big.bin") == big) << round;
    }
    expect_right_or_absent();
    // Every third time it may finish; the others pile one crash onto the next.
    if (round % 3 != 2) continue;
    ASSERT_EQ(wait_for(start()), 0) << round;
    ASSERT_TRUE(fetched("big.bin") == big);
    ASSERT_TRUE(fetched("model.bin") == model_);
    ASSERT_FALSE(exists(".tierpack"));
    fs::remove_all(target());
  }
  EXPECT_GT(killed, rounds() / 4);
  EXPECT_EQ(wait_for(start()), 0);
  EXPECT_TRUE(fetched("big.bin") == big);
}

TEST_F(KillTest, WhatTheJournalClaimsIsNotFetchedAgain) {
  const std::string big = noise(24u << 20, 13);
  write_text(root() / "o/m/big.bin", big);
  start_hub();
  Fault slow = fault("/cdn/", "slow", 8 << 20, -1);
  hub_->add_fault(slow);
  uint64_t claimed_most = 0;
  for (int round = 0; round < 4 || (claimed_most <= 1u << 20 && round < 30); ++round) {
    const pid_t child = start();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(child, SIGKILL);
    wait_for(child);
    uint64_t claimed = 0;
    for (const auto& entry : fs::directory_iterator(target() / ".tierpack")) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("big.bin") || !name.ends_with(".journal")) continue;
      const auto journal = fetch::parse_journal(read_text(entry.path()));
      ASSERT_TRUE(journal.has_value());
      claimed = journal->extents.bytes();
    }
    EXPECT_GE(claimed, claimed_most);  // a restart never forgets
    claimed_most = claimed;
  }
  EXPECT_GT(claimed_most, 1u << 20);
  begin_counting();
  ASSERT_EQ(wait_for(start()), 0);
  EXPECT_TRUE(fetched("big.bin") == big);
  EXPECT_EQ(bytes_asked("big.bin?"), big.size() - claimed_most);
}

TEST_F(KillTest, ASecondInterruptEndsAtOnceAndIsResumable) {
  const std::string big = noise(24u << 20, 14);
  write_text(root() / "o/m/big.bin", big);
  start_hub();
  hub_->add_fault(fault("/cdn/", "slow", 4 << 20, -1));
  const pid_t child = start();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(child, SIGINT);
  ::kill(child, SIGTERM);
  EXPECT_EQ(wait_for(child), 130);
  EXPECT_FALSE(exists("big.bin"));
  hub_->clear_faults();
  EXPECT_EQ(wait_for(start()), 0);
  EXPECT_TRUE(fetched("big.bin") == big);
}

TEST_F(KillTest, AnInterruptLeavesAStateThatContinues) {
  const std::string big = noise(24u << 20, 12);
  write_text(root() / "o/m/big.bin", big);
  start_hub();
  Fault slow;
  slow.match = "/cdn/";
  slow.action = "slow";
  slow.bytes = 4 << 20;
  slow.times = -1;
  hub_->add_fault(slow);
  const pid_t child = start();
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ::kill(child, SIGINT);
  EXPECT_EQ(wait_for(child), 130);
  EXPECT_FALSE(exists("big.bin"));
  begin_counting();
  EXPECT_EQ(wait_for(start()), 0);
  EXPECT_TRUE(fetched("big.bin") == big);
  // What had arrived was not asked for again: fewer bytes than the whole were requested.
  EXPECT_LT(bytes_asked("big.bin?"), big.size() - (1u << 20));
}

}  // namespace
}  // namespace tierpack::support
