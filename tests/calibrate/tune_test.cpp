#include "calibrate/tune.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "tests/support/fake_engine.h"

namespace tierpack::calibrate {
namespace {

using testing_support::FakeEngine;
using testing_support::FakeOptions;

CpuInfo cpu(uint32_t cores, uint32_t threads, std::vector<std::string> isa) {
  CpuInfo out;
  out.cores = cores;
  out.threads = threads;
  out.isa = std::move(isa);
  return out;
}

Stage stage_of(const std::vector<std::vector<double>>& decode_seconds) {
  Stage stage;
  for (size_t i = 0; i < decode_seconds.size(); ++i) {
    Trial trial;
    trial.settings.threads = static_cast<int>(i + 1);
    for (const double seconds : decode_seconds[i]) trial.rounds.push_back({seconds / kPromptPerAnswer, 0});
    stage.trials.push_back(trial);
  }
  return stage;
}

int winner(const std::vector<std::vector<double>>& seconds) {
  Stage stage = stage_of(seconds);
  const int threads = decide(stage).settings.threads;
  for (const Trial& trial : stage.trials) EXPECT_EQ(trial.chosen, trial.settings.threads == threads);
  return threads;
}

TEST(Decide, TheFastestByMoreThanTheNoise) {
  EXPECT_EQ(winner({{10, 10, 10, 10, 10}}), 1);
  EXPECT_EQ(winner({{10, 10, 10, 10, 10}, {9, 9, 9, 9, 9}, {8, 8, 8, 8, 8}}), 3);
  // 1 % is not worth a change.
  EXPECT_EQ(winner({{10, 10, 10, 10, 10}, {9.9, 9.9, 9.9, 9.9, 9.9}}), 1);
  // Faster at the median, but slower in two rounds of five: chance.
  EXPECT_EQ(winner({{10, 10, 10, 10, 10}, {9, 12, 9, 11, 9}}), 1);
  EXPECT_EQ(winner({{10, 10, 10, 10, 10}, {9, 9, 9, 11, 9}}), 2);
}

TEST(Decide, ComparesWithinARound) {
  // The machine becomes slower from round to round; in each of them the second is faster.
  EXPECT_EQ(winner({{10, 20, 30, 40, 50}, {9, 18, 27, 36, 45}}), 2);
  EXPECT_EQ(winner({{10, 20, 30, 40, 50}, {11, 22, 28, 44, 55}}), 1);
}

TEST(Decide, MediansOfEachSpeed) {
  Stage stage = stage_of({{4, 8, 400}});
  stage.trials[0].rounds[1].decode = 5;
  const Trial& trial = decide(stage);
  EXPECT_EQ(trial.median.prefill, 8 / kPromptPerAnswer);
  EXPECT_EQ(trial.median.decode, 0);
  EXPECT_EQ(trial.gain, 0);
}

TEST(Candidates, FewAndPresentChoiceFirst) {
  const Settings now{8, 512, "avx512"};
  const CpuInfo big = cpu(8, 16, {"avx512_vbmi", "avx512", "avx_vnni", "avx2", "reference"});
  EXPECT_EQ(kernel_candidates(now, big), (std::vector<Settings>{now, {8, 512, "avx512_vbmi"}, {8, 512, "avx_vnni"}}));
  EXPECT_EQ(thread_candidates(now, big), (std::vector<Settings>{now, {7, 512, "avx512"}, {16, 512, "avx512"}}));
  EXPECT_EQ(chunk_candidates(now, 600), (std::vector<Settings>{now, {8, 128, "avx512"}, {8, 256, "avx512"}}));
  EXPECT_EQ(chunk_candidates(now, 4000).size(), 4u);
  const CpuInfo small = cpu(1, 1, {"reference"});
  EXPECT_EQ(kernel_candidates(now, small), std::vector<Settings>{now});
  EXPECT_EQ(thread_candidates(now, small), std::vector<Settings>{now});
}

TEST(Tune, FindsTheBestOfAMachineOfWhichAllIsKnown) {
  const CpuInfo machine = cpu(8, 16, {"avx512", "avx2", "reference"});
  Workload workload;
  workload.prompt = 1024;
  std::vector<Settings> asked;
  double drift = 1;
  const auto measure = [&](const Settings& s, const Workload&) {
    asked.push_back(s);
    drift *= 1.001;  // the machine becomes slower all the time
    const double prefill = drift * (s.isa == "avx2" ? 0.8 : 1) * (s.chunk == 256 ? 0.9 : 1) / 100;
    return Speed{prefill, drift * (s.threads == 7 ? 0.7 : 1) / 10};
  };
  const TuneResult result = tune(machine, {8, 512, "avx512"}, workload, 5, measure);
  EXPECT_EQ(result.best, (Settings{7, 256, "avx2"}));
  ASSERT_EQ(result.stages.size(), 3u);
  EXPECT_EQ(result.stages[0].name, "kernels");
  EXPECT_EQ(asked.size(), 5u * (2 + 3 + 4));
  EXPECT_NE(asked[0], asked[1]);  // in turns
  EXPECT_GT(result.speed.decode, 0);
  // Nothing to choose from: nothing is run.
  asked.clear();
  EXPECT_TRUE(tune(cpu(1, 1, {"reference"}), {1, 64, "reference"}, Workload{{}, 64, 8}, 5, measure).stages.empty());
  EXPECT_TRUE(asked.empty());
}

TEST(Tune, MeasuresPromptAndAnswerApart) {
  FakeOptions options;
  options.chunk_time = std::chrono::microseconds(2000);
  options.token_time = std::chrono::microseconds(5000);
  FakeEngine engine(options);
  Workload workload;
  workload.prompt = 64;  // four chunks
  workload.decode = 3;
  workload.tokens = fixed_tokens(67, engine.config().vocab);
  const Speed speed = measure_session(engine, workload);
  EXPECT_GT(speed.prefill, 4 * 0.002 / 64 * 0.9);
  EXPECT_LT(speed.prefill, 0.05);
  EXPECT_GT(speed.decode, 0.001);
  EXPECT_EQ(engine.computed, 32u + 64 + 3);  // with the warm-up
  request_interrupt();
  EXPECT_THROW(measure_session(engine, workload), Error);
  EXPECT_TRUE(take_interrupt());
}

TEST(Tune, TokensAreFixedAndInTheVocabulary) {
  const std::vector<uint32_t> tokens = fixed_tokens(100, 7);
  EXPECT_EQ(tokens, fixed_tokens(100, 7));
  for (const uint32_t token : tokens) EXPECT_LT(token, 7u);
  EXPECT_NE(fixed_tokens(100, 50000), tokens);
}

}  // namespace
}  // namespace tierpack::calibrate
