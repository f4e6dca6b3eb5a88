#include "runtime/planning/rate_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/planning/planned_model.h"

namespace tierpack::planning {
namespace {

constexpr double kMBs = 1e6;

// Parts of experts: three matrices of Q8_0 that fill the record.
PlannedModel model_of(uint32_t layers, uint32_t experts, uint32_t used) {
  PlannedModel m(std::vector<uint64_t>(layers, 3 * 64 * 34 * 64), experts, used);
  for (ExpertLayer& layer : m.manifest.expert_layers) {
    uint64_t at = 0;
    for (ExpertPart* part : {&layer.gate, &layer.up, &layer.down}) {
      part->dtype = DType::kQ8_0;
      part->in = 2048;
      part->out = 64;
      part->offset = at;
      part->bytes = 64 * 34 * 64;
      at += part->bytes;
    }
  }
  return m;
}

HardwareProfile machine() {
  HardwareProfile hardware;
  hardware.cpu.cores = 4;
  hardware.memory.read_bytes_s = 10000 * kMBs;
  hardware.kernels = {{"Q8_0", 5000 * kMBs, 100000 * kMBs}, {"F32", 8000 * kMBs, 20000 * kMBs}};
  DiskInfo disk;
  disk.record_bytes = 400 * 1024;
  disk.record_bytes_s = 1000 * kMBs;
  disk.record_latency_us = 500;
  disk.page_latency_us = 100;
  hardware.disks.push_back(disk);
  return hardware;
}

MemoryPlan plan_with_slots(const PlannedModel& m, const std::vector<float>& uses, uint64_t slots, uint64_t vram_slots = 0) {
  MemoryOptions options;
  options.context = 1024;
  options.threads = 4;
  const uint64_t slot = (m.manifest.expert_layers[0].record_bytes + 4095) / 4096 * 4096;
  MemoryPlan plan = plan_memory(m.manifest, m.config, uses, options, {}, "planned");
  const std::vector<Placement> placements(m.manifest.expert_layers.size(), Placement::kFree);
  const auto in_vram = fill_vram(classify_layers(m.manifest, m.config, placements), m.manifest, plan.order, uses, vram_slots * slot);
  plan.slots = fill_ram(in_vram.value(), m.manifest, plan.order, uses, slots * slot).value();
  return plan;
}

RatePrediction predicted(const PlannedModel& m, const MemoryPlan& plan, const HardwareProfile& hardware, int threads = 4) {
  RateOptions options;
  options.threads = threads;
  options.disk = hardware.disks.empty() ? nullptr : &hardware.disks[0];
  return predict_rates(m.manifest, m.config, plan, hardware, options);
}

TEST(HitRates, AreTheUsesOfWhatIsResident) {
  const PlannedModel m = model_of(1, 64, 2);
  const HitRates hits = predict_hits(m.manifest, m.config, plan_with_slots(m, m.skewed_uses(), 16, 3));
  EXPECT_TRUE(hits.profiled);
  EXPECT_EQ(hits.vram_entries, 3u);
  EXPECT_EQ(hits.ram_entries, 16u);
  EXPECT_EQ(hits.entries, 64u);
  EXPECT_NEAR(hits.vram, 1 - std::pow(0.5, 3), 1e-6);
  EXPECT_NEAR(hits.disk, std::pow(0.5, 19), 1e-9);
  EXPECT_NEAR(hits.vram + hits.ram + hits.disk, 1, 1e-12);
}

TEST(HitRates, WithoutAProfileAreTheShareThatIsResident) {
  const PlannedModel m = model_of(2, 64, 2);
  const HitRates hits = predict_hits(m.manifest, m.config, plan_with_slots(m, {}, 32));
  EXPECT_FALSE(hits.profiled);
  EXPECT_DOUBLE_EQ(hits.ram, 0.25);
  EXPECT_DOUBLE_EQ(hits.disk, 0.75);
}

TEST(HitRates, AdaptionSavesAShareOfTheMisses) {
  const PlannedModel m = model_of(2, 64, 2);
  const HitRates hits = predict_hits(m.manifest, m.config, plan_with_slots(m, {}, 32), 0.2);
  EXPECT_DOUBLE_EQ(hits.disk, 0.6);
  EXPECT_DOUBLE_EQ(hits.ram, 0.4);
}

TEST(HitRates, DraftingLayersAreNotCounted) {
  PlannedModel m = model_of(2, 64, 2);
  const MemoryPlan plan = plan_with_slots(m, {}, 128);
  m.config.layers = 1;
  EXPECT_EQ(predict_hits(m.manifest, m.config, plan).entries, 64u);
}

TEST(ReadSeconds, OneRecordTakesItsLatencyAndManyTheBandwidth) {
  const DiskInfo disk = machine().disks[0];
  EXPECT_DOUBLE_EQ(read_seconds(disk, 400 * 1024, 1), 500e-6);
  EXPECT_DOUBLE_EQ(read_seconds(disk, 4096, 1), 100e-6 + 400e-6 / 100);
  const double each = 400 * 1024 / 1e9;
  EXPECT_DOUBLE_EQ(read_seconds(disk, 400 * 1024, 9), 500e-6 + 8 * each);
  EXPECT_NEAR(read_seconds(disk, 400 * 1024, 1000), 1000 * each, 2e-4);
}

TEST(PredictedRates, OfAResidentModelAreThoseOfTheKernels) {
  const PlannedModel m = model_of(3, 64, 4);
  HardwareProfile hardware = machine();
  hardware.disks.clear();  // not needed
  const MemoryPlan plan = plan_with_slots(m, {}, 3 * 64);
  const RatePrediction rates = predicted(m, plan, hardware);
  ASSERT_TRUE(rates.decode && rates.prefill);
  const double dense = 8.0 * 1024 * 1024 / 8000e6;
  const double experts = 3 * 4 * 3 * 64.0 * 34 * 64 / 5000e6;
  EXPECT_NEAR(rates.decode->dense_s, dense, 1e-12);
  EXPECT_NEAR(rates.decode->experts_s, experts, 1e-12);
  EXPECT_DOUBLE_EQ(rates.decode->stall_s, 0);
  EXPECT_NEAR(rates.decode->tokens_s, 1 / (dense + experts), 1e-6);
  // Half the threads, half the rate.
  EXPECT_NEAR(predicted(m, plan, hardware, 2).decode->tokens_s, 0.5 / (dense + experts), 1e-6);
  EXPECT_TRUE(rates.notes.empty());
  // A chunk of 512 tokens is bound by its multiply-adds.
  EXPECT_NEAR(rates.prefill->tokens_s, 512 / (dense + 3 * 512 * 4 * 3 * 2048.0 * 64 / 100000e6), 1);
}

TEST(PredictedRates, MissesWaitForTheDisk) {
  const PlannedModel m = model_of(3, 64, 4);
  const HardwareProfile hardware = machine();
  const RatePrediction resident = predicted(m, plan_with_slots(m, {}, 192), hardware);
  const RatePrediction half = predicted(m, plan_with_slots(m, {}, 96), hardware);
  const RatePrediction least = predicted(m, plan_with_slots(m, {}, 16), hardware);
  ASSERT_TRUE(half.decode && least.decode);
  EXPECT_DOUBLE_EQ(half.decode->missed_records, 6);
  EXPECT_GT(resident.decode->tokens_s, half.decode->tokens_s);
  EXPECT_GT(half.decode->tokens_s, least.decode->tokens_s);
  // Never faster than the disk could deliver, never slower than one record after the other.
  const double record = 3 * 64.0 * 34 * 64;
  EXPECT_LE(half.decode->tokens_s, 1 / (6 * record / 1e9));
  EXPECT_GE(half.decode->tokens_s, 1 / (half.decode->dense_s + half.decode->experts_s + 6 * read_seconds(hardware.disks[0], 3 * 64 * 34 * 64, 1)));
  // A prompt reads every expert that is not there once a chunk.
  EXPECT_NEAR(half.prefill->records, 96, 0.1);
  EXPECT_LT(half.prefill->tokens_s, resident.prefill->tokens_s);
}

TEST(PredictedRates, AProfileThatIsSkewedIsFaster) {
  const PlannedModel m = model_of(3, 64, 4);
  const HardwareProfile hardware = machine();
  EXPECT_GT(predicted(m, plan_with_slots(m, m.skewed_uses(), 32), hardware).decode->tokens_s,
            2 * predicted(m, plan_with_slots(m, {}, 32), hardware).decode->tokens_s);
}

TEST(PredictedRates, SayWhatWasNotMeasured) {
  const PlannedModel m = model_of(2, 64, 4);
  HardwareProfile hardware = machine();
  hardware.disks.clear();
  RatePrediction rates = predicted(m, plan_with_slots(m, {}, 64), hardware);
  EXPECT_FALSE(rates.decode || rates.prefill);
  ASSERT_EQ(rates.notes.size(), 1u);
  EXPECT_EQ(rates.notes[0], "the disk that holds the pack was not measured");
  hardware.kernels.erase(hardware.kernels.begin());
  rates = predicted(m, plan_with_slots(m, {}, 128), hardware);
  EXPECT_TRUE(rates.decode && rates.prefill);
  ASSERT_EQ(rates.notes.size(), 1u);
  EXPECT_NE(rates.notes[0].find("Q8_0"), std::string::npos);
  EXPECT_FALSE(predicted(m, plan_with_slots(m, {}, 128), HardwareProfile()).decode);
}

}  // namespace
}  // namespace tierpack::planning
