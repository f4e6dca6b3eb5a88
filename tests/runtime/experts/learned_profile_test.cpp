#include "runtime/experts/learned_profile.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/support/temp_directory.h"

namespace tierpack::experts {
namespace {

Profile small_model() {
  Profile model;
  model.architecture = "test";
  model.routing_id = Sha256::of(as_bytes("router"));
  model.layers = 2;
  model.experts = 4;
  model.used = 1;
  model.tool_version = "1";
  return model;
}

void use(LearnedProfile& learned, uint32_t expert, uint32_t tokens) {
  const std::vector<uint32_t> experts = {expert};
  const std::vector<float> weights = {0.5f};
  for (uint32_t t = 0; t < tokens; ++t) {
    learned.add(0, experts, weights);
    learned.add(1, experts, weights);
    learned.end_tokens(1);
  }
}

class LearnedProfileTest : public testing::Test {
 protected:
  testing_support::TempDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "learned" / "0123" / "chat.json";
};

TEST_F(LearnedProfileTest, BeginsWithWhatTheRunBeforeLeft) {
  LearnedProfile first(small_model(), path_);
  EXPECT_EQ(first.load(), std::nullopt);
  use(first, 2, 100);
  first.save();
  LearnedProfile second(small_model(), path_);
  EXPECT_EQ(second.load(), std::nullopt);
  use(second, 3, 50);
  const Profile profile = second.profile();
  EXPECT_EQ(profile.tokens(), 150u);
  EXPECT_EQ(profile.count(1, 2), 100u);
  EXPECT_EQ(profile.count(1, 3), 50u);
  EXPECT_DOUBLE_EQ(profile.weights[2], 50);
  second.save();
  EXPECT_EQ(read_profile(path_).count(0, 3), 50u);
}

TEST_F(LearnedProfileTest, PresentUseWinsOverTheEarlier) {
  LearnedProfile first(small_model(), path_);
  use(first, 0, 40 * LearnedProfile::kHalfLifeTokens / 8);
  EXPECT_LE(first.tokens(), 2 * LearnedProfile::kHalfLifeTokens);
  first.save();
  LearnedProfile second(small_model(), path_);
  second.load();
  EXPECT_LE(second.tokens(), LearnedProfile::kHalfLifeTokens);
  use(second, 1, 2 * LearnedProfile::kHalfLifeTokens);
  EXPECT_GT(second.profile().count(0, 1), 2 * second.profile().count(0, 0));
}

TEST_F(LearnedProfileTest, DamagedAndForeignFilesAreLeftOutWithAReason) {
  LearnedProfile first(small_model(), path_);
  use(first, 2, 10);
  first.save();
  const std::string good = read_text_file(path_, 1 << 20);
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), std::string("{}"), std::string("\0\1\2", 3)}) {
    std::ofstream(path_, std::ios::trunc) << bad;
    LearnedProfile learned(small_model(), path_);
    const auto reason = learned.load();
    ASSERT_TRUE(reason.has_value());
    EXPECT_NE(reason->find("is not used"), std::string::npos);
    EXPECT_EQ(learned.tokens(), 0u);
    use(learned, 1, 5);
    learned.save();
    EXPECT_EQ(read_profile(path_).count(0, 1), 5u);
  }
  Profile other = small_model();
  other.routing_id = Sha256::of(as_bytes("another"));
  LearnedProfile learned(other, path_);
  EXPECT_TRUE(learned.load().has_value());
  EXPECT_EQ(learned.tokens(), 0u);
}

TEST_F(LearnedProfileTest, AKilledProcessLeavesTheFileWhole) {
  LearnedProfile learned(small_model(), path_);
  use(learned, 0, 1);
  learned.save();
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) learned.save();
    }
    usleep(static_cast<useconds_t>(2000 + 1500 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(read_profile(path_).tokens(), 1u);
  }
}

TEST_F(LearnedProfileTest, IsKeptInTheStateDirectory) {
  setenv("XDG_STATE_HOME", "/state", 1);
  const Sha256Digest id = small_model().routing_id;
  EXPECT_EQ(learned_profile_path(id, "chat"), std::filesystem::path("/state/tierpack/learned") / id.hex().substr(0, 16) / "chat.json");
  for (const char* const name : {"", "../x", "a/b", ".hidden", "a b", "\xc3\xa9"}) {
    EXPECT_THROW(learned_profile_path(id, name), Error) << name;
  }
}

}  // namespace
}  // namespace tierpack::experts
