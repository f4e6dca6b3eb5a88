#include "runtime/planning/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "tests/runtime/planning/planned_model.h"
#include "tests/support/errors.h"

namespace tierpack::planning {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing_support::thrown_by;
using testing_support::Thrown;

constexpr uint64_t kGiB = 1024 * kMiB;

MemoryOptions with_ram(uint64_t bytes) {
  MemoryOptions options;
  options.ram_bytes = bytes;
  return options;
}

MemoryPlan planned(const PlannedModel& m, const MemoryOptions& options, const MachineMemory& machine = {}) {
  return plan_memory(m.manifest, m.config, {}, options, machine, "planned");
}

Thrown refusal(const PlannedModel& m, const MemoryOptions& options, const MachineMemory& machine = {}) {
  return thrown_by([&] { planned(m, options, machine); });
}

// The value behind `option` in a message.
std::string proposed(const std::string& message, const std::string& option) {
  const size_t at = message.find(option + " ", message.find("it would fit with"));
  if (at == std::string::npos) return "";
  const size_t begin = at + option.size() + 1;
  return message.substr(begin, message.find(' ', begin) - begin);
}

TEST(MemoryPlan, EverythingInRamWhereItFits) {
  const PlannedModel m({64 * kKiB, 96 * kKiB});
  const MemoryPlan plan = planned(m, with_ram(kGiB));
  EXPECT_EQ(plan.context, kContextDefault);
  EXPECT_EQ(plan.context_most, m.config.context);
  EXPECT_EQ(plan.chunk, 512u);
  EXPECT_TRUE(plan.slots.resident());
  EXPECT_EQ(plan.slots.ram_bytes(), 16 * 160 * kKiB);
  EXPECT_EQ(plan.item("expert cache")->bytes, 4 * kMiB);  // whole large pages
  EXPECT_EQ(plan.item("dense weights")->bytes, 8 * kMiB);
  EXPECT_EQ(plan.used(Tier::kRam) + plan.left(Tier::kRam), kGiB);
  EXPECT_EQ(plan.used(Tier::kVram), 0u);
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST(MemoryPlan, TheLedgerNeverExceedsItsBudgets) {
  const PlannedModel m({640 * kKiB, 96 * kKiB, 640 * kKiB}, 64, 4);
  const uint64_t whole = planned(m, with_ram(kGiB)).used(Tier::kRam);
  uint64_t plans = 0;
  for (uint64_t ram = kMiB; ram < whole + 2 * kMiB; ram += 3 * kMiB / 2 + 12345) {
    for (const uint64_t vram : {uint64_t{0}, 5 * kMiB, 30 * kMiB}) {
      MemoryOptions options = with_ram(ram);
      options.vram_bytes = vram;
      try {
        const MemoryPlan plan = planned(m, options);
        ++plans;
        EXPECT_LE(plan.used(Tier::kRam), ram);
        EXPECT_LE(plan.used(Tier::kVram), vram);
        EXPECT_LE(plan.context, plan.context_most);
        for (const PlannedClass& c : plan.slots.classes) EXPECT_GE(c.ram_slots, kLeaseRecords);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kCapacity);
      }
    }
  }
  EXPECT_GT(plans, 60u);
}

TEST(MemoryPlan, AChosenContextLeavesTheExpertsTheirRoom) {
  const PlannedModel m({1024 * kKiB, 1024 * kKiB}, 64, 2);
  // 32,768 tokens would take 16 MiB of what the experts could use.
  const uint64_t fixed = planned(m, with_ram(kGiB)).used(Tier::kRam) - 128 * kMiB;
  const MemoryPlan tight = planned(m, with_ram(fixed + 20 * kMiB));
  EXPECT_LT(tight.context, kContextDefault);
  EXPECT_GE(tight.context, kContextChosenMin);
  EXPECT_GE(tight.slots.ram_bytes(), 3 * tight.item("KV cache and states")->bytes);
  // Asked for, it is given.
  MemoryOptions options = with_ram(fixed + 20 * kMiB);
  options.context = kContextDefault;
  EXPECT_EQ(planned(m, options).context, kContextDefault);
}

TEST(MemoryPlan, ARefusalNamesPartsAndChangesThatWouldDo) {
  const PlannedModel m({512 * kKiB}, 64, 4);
  MemoryOptions options = with_ram(kGiB);
  options.context = 65536;
  options.kv = KvType::kF32;
  options.chunk = 2048;
  const MemoryPlan ample = planned(m, options);
  const uint64_t needed = ample.used(Tier::kRam) - ample.slots.ram_bytes() + 16 * 512 * kKiB;
  options.ram_bytes = needed;
  EXPECT_EQ(planned(m, options).slots.ram_bytes(), 16 * 512 * kKiB);
  options.ram_bytes = needed - 1;
  const Thrown thrown = refusal(m, options);
  EXPECT_EQ(thrown.kind, ErrorKind::kCapacity);
  for (const char* part : {"dense weights 8.00 MiB", "KV cache and states", "workspace", "program", "expert cache 8.00 MiB"}) {
    EXPECT_THAT(thrown.message, HasSubstr(part));
  }
  // Each proposal alone makes it fit, and nothing much less would.
  MemoryOptions changed = options;
  changed.context = static_cast<uint32_t>(std::stoul(proposed(thrown.message, "--context")));
  EXPECT_NO_THROW(planned(m, changed));
  changed.context += 256;
  EXPECT_THROW(planned(m, changed), Error);
  changed = options;
  changed.chunk = static_cast<uint32_t>(std::stoul(proposed(thrown.message, "--chunk")));
  EXPECT_EQ(changed.chunk, 1024u);
  EXPECT_NO_THROW(planned(m, changed));
  changed = options;
  EXPECT_EQ(proposed(thrown.message, "--kv"), "f16");
  changed.kv = KvType::kF16;
  EXPECT_NO_THROW(planned(m, changed));
  changed = options;
  changed.ram_bytes = parse_size(proposed(thrown.message, "--ram"));
  EXPECT_NO_THROW(planned(m, changed));
  EXPECT_LE(*changed.ram_bytes, needed + kMiB);
}

TEST(MemoryPlan, OnlyChangesThatSufficeAreProposed) {
  const PlannedModel m({512 * kKiB}, 64, 4, 64 * kMiB);
  const Thrown thrown = refusal(m, with_ram(40 * kMiB));
  EXPECT_EQ(thrown.kind, ErrorKind::kCapacity);
  EXPECT_THAT(thrown.message, Not(HasSubstr("--context")));
  EXPECT_THAT(thrown.message, Not(HasSubstr("--kv")));
  EXPECT_THAT(thrown.message, HasSubstr("it would fit with --ram "));
  EXPECT_NO_THROW(planned(m, with_ram(parse_size(proposed(thrown.message, "--ram")))));
}

TEST(MemoryPlan, RamThatAMachineDoesNotHaveIsNotProposed) {
  const PlannedModel m({512 * kKiB}, 64, 4, 64 * kMiB);
  MachineMemory machine;
  machine.available_bytes = 50 * kMiB;
  EXPECT_THAT(refusal(m, {}, machine).message, HasSubstr("of free memory"));
  EXPECT_THAT(refusal(m, {}, machine).message, HasSubstr("this machine has"));
  EXPECT_THAT(refusal(m, {}, machine).message, Not(HasSubstr("--ram")));
}

TEST(MemoryPlan, DecodedWeightsAreCountedPerThread) {
  const PlannedModel m({64 * kKiB});
  MemoryOptions options = with_ram(kGiB);
  options.activations = ActivationType::kF32;
  options.threads = 3;
  EXPECT_EQ(planned(m, options).item("decoded weights")->bytes, 3u * 64 * 16 * 4);
  options.activations = ActivationType::kInt8;
  EXPECT_EQ(planned(m, options).item("decoded weights"), nullptr);
}

TEST(MemoryPlan, RulesThatDoNotFitSayWhatWould) {
  const PlannedModel m({512 * kKiB, 512 * kKiB}, 64, 2);
  MemoryOptions options = with_ram(60 * kMiB);
  EXPECT_NO_THROW(planned(m, options));
  options.rules.push_back(parse_placement_rule("exps=ram"));
  EXPECT_THAT(refusal(m, options).message, HasSubstr("no --place"));
  options.rules = {parse_placement_rule("blk.0.*exps=vram")};
  options.vram_bytes = 10 * kMiB;
  const Thrown thrown = refusal(m, options);
  EXPECT_EQ(thrown.kind, ErrorKind::kCapacity);
  EXPECT_THAT(thrown.message, HasSubstr("--vram 32MiB"));
  options.vram_bytes = 32 * kMiB;
  const MemoryPlan plan = planned(m, options);
  EXPECT_EQ(plan.used(Tier::kVram), 32 * kMiB);
}

TEST(MemoryPlan, OptionsThatNoMachineServes) {
  PlannedModel m({64 * kKiB});
  const auto kind = [&](auto change) {
    MemoryOptions options = with_ram(kGiB);
    change(options);
    return refusal(m, options).kind;
  };
  EXPECT_EQ(kind([](MemoryOptions& o) { o.threads = 0; }), ErrorKind::kUsage);
  EXPECT_EQ(kind([](MemoryOptions& o) { o.threads = 1025; }), ErrorKind::kUsage);
  EXPECT_EQ(kind([](MemoryOptions& o) { o.chunk = 0; }), ErrorKind::kUsage);
  EXPECT_EQ(kind([](MemoryOptions& o) { o.chunk = 4097; }), ErrorKind::kUsage);
  EXPECT_EQ(kind([](MemoryOptions& o) { o.context = 131073; }), ErrorKind::kUsage);
  EXPECT_EQ(kind([](MemoryOptions& o) { o.kv = KvType::kQ8; }), std::nullopt);
  m.config.head_dim = 40;
  EXPECT_EQ(kind([](MemoryOptions& o) { o.kv = KvType::kQ8; }), ErrorKind::kUsage);
}

TEST(MachineMemory, DefaultsLeaveAReserve) {
  MachineMemory machine;
  EXPECT_EQ(machine.default_ram(), std::nullopt);
  machine.available_bytes = 8 * kGiB;
  EXPECT_EQ(machine.most_ram(), 8 * kGiB);
  EXPECT_EQ(machine.default_ram(), 8 * kGiB - 256 * kMiB);
  machine.cgroup_room_bytes = 3 * kGiB;
  EXPECT_EQ(machine.most_ram(), 3 * kGiB);
  EXPECT_EQ(machine.default_ram(), 3 * kGiB - 96 * kMiB);
  machine.cgroup_room_bytes = kMiB;
  EXPECT_EQ(machine.default_ram(), 0u);
  machine.cgroup_room_bytes = 512 * kGiB;
  machine.available_bytes = 500 * kGiB;
  EXPECT_EQ(machine.default_ram(), 499 * kGiB);
}

TEST(MemoryPlan, SizesAboveWhatThereIsAreClampedWithANote) {
  const PlannedModel m({64 * kKiB});
  MachineMemory machine;
  machine.available_bytes = kGiB;
  MemoryPlan plan = planned(m, with_ram(4 * kGiB), machine);
  EXPECT_EQ(plan.ram_bytes, kGiB);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_EQ(plan.notes[0], "--ram 4.00 GiB is more than this machine has to give: 1.00 GiB are used");
  machine.cgroup_room_bytes = 500 * kMiB;
  plan = planned(m, with_ram(4 * kGiB), machine);
  EXPECT_EQ(plan.ram_bytes, 500 * kMiB);
  EXPECT_THAT(plan.notes[0], HasSubstr("this control group"));
  EXPECT_THAT(planned(m, with_ram(500 * kMiB), machine).notes, IsEmpty());
  machine.vram_bytes = kMiB;
  MemoryOptions options = with_ram(400 * kMiB);
  options.vram_bytes = kGiB;
  plan = planned(m, options, machine);
  EXPECT_EQ(plan.vram_bytes, kMiB);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_THAT(plan.notes[0], HasSubstr("--vram 1.00 GiB"));
}

TEST(MemoryPlan, AModelWithoutExpertsHasNoCache) {
  PlannedModel m({});
  m.config.layers = 2;
  m.config.experts = m.config.experts_used = m.config.expert_ff = 0;
  const MemoryPlan plan = planned(m, with_ram(kGiB));
  EXPECT_EQ(plan.item("expert cache"), nullptr);
  EXPECT_TRUE(plan.slots.resident());
}

TEST(SizeArgument, IsRoundedUpAndCanBeTyped) {
  EXPECT_EQ(size_argument(1), "1MiB");
  EXPECT_EQ(size_argument(kGiB), "1024MiB");
  EXPECT_EQ(size_argument(12 * kGiB), "12GiB");
  EXPECT_EQ(size_argument(12 * kGiB + 1), "12.1GiB");
  for (const uint64_t bytes : {kMiB + 1, 10 * kGiB + 1, uint64_t{123456789012}}) {
    EXPECT_GE(parse_size(size_argument(bytes)), bytes);
    EXPECT_LE(parse_size(size_argument(bytes)), bytes + bytes / 50 + kMiB);
  }
}

}  // namespace
}  // namespace tierpack::planning
