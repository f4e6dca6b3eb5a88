#include "repack/repack_job.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/row_groups.h"
#include "repack/part_directory.h"
#include "repack/repack_source.h"
#include "repack/unpack_job.h"
#include "tests/support/errors.h"
#include "tests/support/moe_gguf.h"
#include "tests/support/temp_directory.h"

namespace tierpack::repack {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::MoeGguf;
using testing_support::MoeGgufWriter;
using testing_support::read_file;
using testing_support::read_tree;
using testing_support::TempDirectory;
using testing_support::thrown_by;
using testing_support::write_file;

const fs::path kPebble = fs::path(TIERPACK_SOURCE_DIR) / "models/pebble";

RepackOptions options_for(const fs::path& source, const fs::path& target) {
  RepackOptions options;
  options.source = source;
  options.target = target;
  options.jobs = 2;
  options.tool_version = "test";
  options.allow_nonfinite = source != kPebble;  // the others are noise
  return options;
}

// A profile that fits a source, with counts that follow no order.
Profile profile_for(const fs::path& path, uint32_t layers, uint32_t experts, uint64_t seed) {
  Profile profile;
  profile.architecture = "qwen3moe";
  profile.routing_id = routing_id(*open_repack_source(path), layers);
  profile.layers = layers;
  profile.experts = experts;
  profile.used = 2;
  profile.tool_version = "test";
  profile.corpora.push_back({"noise", {}, 1000});
  std::mt19937_64 random(seed);
  for (uint32_t i = 0; i < layers * experts; ++i) {
    profile.counts.push_back(random() % 7);  // with ties
    profile.weights.push_back(static_cast<double>(profile.counts.back()) / 2);
  }
  return profile;
}

// Shards of a directory by name, without what lies beside them.
std::map<std::string, std::string> shards_in(const fs::path& directory) {
  std::map<std::string, std::string> out = read_tree(directory);
  std::erase_if(out, [](const auto& item) { return !item.first.ends_with(".gguf"); });
  return out;
}

TEST(RepackJob, PebbleComesBackByteForByte) {
  const TempDirectory dir;
  const RepackReport report = repack(options_for(kPebble, dir / "pebble.tierpack"));
  EXPECT_EQ(report.outcome, RepackReport::Outcome::kWritten);
  ASSERT_EQ(report.proved_by.size(), 2u);
  EXPECT_THAT(report.proved_by[0], HasSubstr("SHA256SUMS"));
  EXPECT_TRUE(report.unproved.empty());
  EXPECT_FALSE(fs::exists(dir / "pebble.tierpack.part"));
  for (const UnpackedShard& shard : unpack({dir / "pebble.tierpack", dir / "out", 2, ProgressStyle::kSilent})) {
    EXPECT_TRUE(shard.written);
    EXPECT_EQ(read_file(kPebble / shard.path.filename()), read_file(shard.path)) << shard.path;
  }
}

// Row by row, as the runtime reads it.
std::vector<std::byte> rows_of(DType type, uint64_t cols, uint64_t rows, Bytes matrix) {
  std::vector<std::byte> out(matrix.size());
  for (uint64_t row = 0; row < rows; ++row) {
    load_grouped_row(type, matrix.data(), rows, cols, row, out.data() + row * row_bytes(type, cols));
  }
  return out;
}

TEST(RepackJob, PebblesRecordsAndRowsAreTheSourcesBytes) {
  const TempDirectory dir;
  repack(options_for(kPebble, dir / "pebble.tierpack"));
  const Pack pack = Pack::open(dir / "pebble.tierpack");
  const GgufSource source = open_gguf(kPebble);
  const auto bytes_of = [&](const TensorInfo& tensor, uint64_t offset, uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    source.files[tensor.shard].read_at(tensor.offset + offset, out);
    return out;
  };
  size_t seen = 0;
  for (const DenseTensor& dense : pack.manifest().dense) {
    const TensorInfo* tensor = source.find(dense.name);
    ASSERT_NE(tensor, nullptr) << dense.name;
    EXPECT_EQ(tensor->dtype, dense.dtype);
    EXPECT_EQ(tensor->shape, dense.shape);
    std::vector<std::byte> record(pack.manifest().records[dense.record].bytes);
    pack.read_record(dense.record, record);
    EXPECT_EQ(rows_of(dense.dtype, dense.shape.ne[0], dense.shape.rows(), record), bytes_of(*tensor, 0, tensor->bytes)) << dense.name;
    EXPECT_EQ(record == bytes_of(*tensor, 0, tensor->bytes), !has_row_groups(dense.dtype, dense.shape.rows())) << dense.name;
    EXPECT_EQ(pack.find_dense(dense.name), &dense);
    ++seen;
  }
  for (const ExpertLayer& layer : pack.manifest().expert_layers) {
    for (uint32_t expert = 0; expert < layer.experts; ++expert) {
      std::vector<std::byte> record(layer.record_bytes);
      pack.read_record(layer.first_record + expert, record);
      for (const ExpertPart* part : layer.parts()) {
        const TensorInfo* tensor = source.find(part->tensor);
        ASSERT_NE(tensor, nullptr) << part->tensor;
        const std::vector<std::byte> want = bytes_of(*tensor, expert * part->bytes, part->bytes);
        const Bytes matrix = Bytes(record).subspan(part->offset, part->bytes);
        EXPECT_EQ(rows_of(part->dtype, part->in, part->out, matrix), want) << part->tensor << " expert " << expert;
      }
    }
    EXPECT_EQ(pack.find_expert_layer(layer.layer), &layer);
    seen += 3;
  }
  ASSERT_EQ(pack.manifest().rows.size(), 1u);
  const RowTable& table = pack.manifest().rows[0];
  const TensorInfo* tensor = source.find(table.name);
  const std::vector<std::byte> want = bytes_of(*tensor, 0, tensor->bytes);
  std::vector<std::byte> row(table.row_bytes);
  for (uint64_t i = 0; i < table.shape.rows(); ++i) {
    pack.read_row(table, i, row);
    ASSERT_TRUE(std::equal(row.begin(), row.end(), want.begin() + static_cast<ptrdiff_t>(i * table.row_bytes))) << i;
  }
  EXPECT_EQ(seen + 1, source.tensors.size());
  EXPECT_EQ(pack.find_dense("nothing"), nullptr);
  EXPECT_EQ(pack.find_expert_layer(7), nullptr);
  EXPECT_EQ(pack.find_rows("nothing"), nullptr);
}

// Many odd sources: each must come back, and each must give the same pack for any number of threads and any memory, and
// through another pack.
class RepackSweep : public testing::TestWithParam<int> {};

TEST_P(RepackSweep, ComesBackAndIsDeterministic) {
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  MoeGguf model;
  model.seed = random();
  model.layers = 1 + random() % 3;
  model.experts = 2 + random() % 9;
  model.hidden = 256 * (1 + random() % 2);
  static constexpr uint32_t kWidths[] = {32, 64, 96, 160, 256, 17, 40, 15, 1};
  model.ff = kWidths[random() % std::size(kWidths)];
  static constexpr uint32_t kKeyRows[] = {0, 1, 15, 16, 17, 40};
  model.key_rows = kKeyRows[random() % std::size(kKeyRows)];
  model.alignment = 8u << (random() % 8);
  model.shards = static_cast<uint16_t>(1 + random() % 5);
  model.merged = random() % 3 == 0;
  model.shuffled = random() % 2 == 0;
  model.dirty_padding = random() % 2 == 0;
  static constexpr uint32_t kRows[] = {0, 32, 160, 1024, 2016, 4064, 8192, 40960};
  model.table_row = kRows[random() % std::size(kRows)];
  model.table_rows = 1 + random() % 500;
  model.table_type = random() % 2 == 0 ? DType::kQ4_0 : DType::kF32;
  model.trailing = random() % 4 == 0 ? 1 + random() % 5000 : 0;

  const TempDirectory dir;
  const fs::path source = MoeGgufWriter(model).write(dir / "source", "noise");
  const bool profiled = random() % 2 == 0;
  if (profiled) write_profile(dir / "p.json", profile_for(source, model.layers, model.experts, random()));
  RepackOptions options = options_for(source, dir / "a.tierpack");
  if (profiled) options.profile = dir / "p.json";
  repack(options);
  const auto pack = read_tree(dir / "a.tierpack");

  unpack({dir / "a.tierpack", dir / "out", 3, ProgressStyle::kSilent});
  EXPECT_EQ(shards_in(dir / "source"), shards_in(dir / "out"));

  options.target = dir / "b.tierpack";
  options.jobs = 7;
  options.memory = kMemoryMin;
  repack(options);
  EXPECT_EQ(pack, read_tree(dir / "b.tierpack")) << "seven threads, little memory";

  options.target = dir / "c.tierpack";
  options.jobs = 1;
  options.source = dir / "source";
  options.memory = kMemoryDefault;
  repack(options);
  EXPECT_EQ(pack, read_tree(dir / "c.tierpack")) << "one thread, from the directory";

  // Through a pack with another order.
  RepackOptions other = options_for(source, dir / "natural.tierpack");
  repack(other);
  options.source = dir / "natural.tierpack";
  options.target = dir / "d.tierpack";
  repack(options);
  EXPECT_EQ(pack, read_tree(dir / "d.tierpack")) << "from a pack in natural order";

  // A pack keeps its profile unless told otherwise.
  options.source = dir / "a.tierpack";
  options.profile.reset();
  options.target = dir / "e.tierpack";
  repack(options);
  EXPECT_EQ(pack, read_tree(dir / "e.tierpack")) << "the profile is kept";
  options.drop_profile = true;
  options.target = dir / "f.tierpack";
  repack(options);
  EXPECT_EQ(read_tree(dir / "natural.tierpack"), read_tree(dir / "f.tierpack")) << "the profile is dropped";
}

INSTANTIATE_TEST_SUITE_P(Odd, RepackSweep, testing::Range(0, 32));

TEST(RepackJob, ProfileOrdersRecordsHottestFirst) {
  const TempDirectory dir;
  const MoeGguf model{.seed = 5, .layers = 3, .experts = 8};
  const fs::path source = MoeGgufWriter(model).write(dir / "source", "noise");
  const Profile profile = profile_for(source, 3, 8, 9);
  write_profile(dir / "p.json", profile);
  RepackOptions options = options_for(source, dir / "a.tierpack");
  options.profile = dir / "p.json";
  const RepackReport report = repack(options);
  EXPECT_EQ(report.manifest.profile_id, profile.id());
  std::vector<std::tuple<uint64_t, uint64_t, uint32_t, uint32_t>> by_offset;
  for (const ExpertLayer& layer : report.manifest.expert_layers) {
    for (uint32_t e = 0; e < layer.experts; ++e) {
      by_offset.emplace_back(report.manifest.records[layer.first_record + e].offset, profile.count(layer.layer, e), layer.layer, e);
    }
  }
  std::sort(by_offset.begin(), by_offset.end());
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const auto [o1, count1, layer1, e1] = by_offset[i - 1];
    const auto [o2, count2, layer2, e2] = by_offset[i];
    EXPECT_TRUE(count1 > count2 || (count1 == count2 && std::pair(layer1, e1) < std::pair(layer2, e2))) << i;
  }
  EXPECT_EQ(Pack::open(dir / "a.tierpack").profile()->id(), profile.id());
}

TEST(RepackJob, ProfileOfAnotherModelIsRefused) {
  const TempDirectory dir;
  const fs::path source = MoeGgufWriter({.seed = 5}).write(dir / "source", "noise");
  const fs::path other = MoeGgufWriter({.seed = 6}).write(dir / "other", "noise");
  write_profile(dir / "p.json", profile_for(other, 2, 6, 1));
  RepackOptions options = options_for(source, dir / "a.tierpack");
  options.profile = dir / "p.json";
  const auto thrown = thrown_by([&] { repack(options); });
  EXPECT_EQ(thrown.kind, ErrorKind::kUsage);
  EXPECT_THAT(thrown.message, HasSubstr("p.json"));
  EXPECT_FALSE(fs::exists(dir / "a.tierpack.part"));
}

TEST(RepackJob, DryRunWritesNothing) {
  const TempDirectory dir;
  RepackOptions options = options_for(kPebble, dir / "a.tierpack");
  options.dry_run = true;
  const RepackReport report = repack(options);
  EXPECT_EQ(report.outcome, RepackReport::Outcome::kPlanned);
  EXPECT_EQ(report.source_bytes, 16802944u + 709824u);
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(RepackJob, ExistingTargetIsKeptIdenticalOrRefusedOrReplaced) {
  const TempDirectory dir;
  const fs::path source = MoeGgufWriter({.seed = 5}).write(dir / "source", "noise");
  const fs::path other = MoeGgufWriter({.seed = 6}).write(dir / "other", "noise");
  repack(options_for(source, dir / "a.tierpack"));
  const auto before = read_tree(dir / "a.tierpack");
  EXPECT_EQ(repack(options_for(source, dir / "a.tierpack")).outcome, RepackReport::Outcome::kAlreadyThere);
  // A trailing slash names the same directory.
  EXPECT_EQ(repack(options_for(source, (dir / "a.tierpack").string() + "/")).outcome, RepackReport::Outcome::kAlreadyThere);

  const auto refused = thrown_by([&] { repack(options_for(other, dir / "a.tierpack")); });
  EXPECT_EQ(refused.kind, ErrorKind::kUsage);
  EXPECT_THAT(refused.message, HasSubstr("--force"));
  EXPECT_EQ(before, read_tree(dir / "a.tierpack"));

  RepackOptions forced = options_for(other, dir / "a.tierpack");
  forced.force = true;
  EXPECT_EQ(repack(forced).outcome, RepackReport::Outcome::kWritten);
  EXPECT_NE(before, read_tree(dir / "a.tierpack"));
  EXPECT_FALSE(fs::exists(dir / "a.tierpack.part"));

  // A damaged pack is not "already there".
  write_file(dir / "a.tierpack/pack.json", "{}");
  EXPECT_EQ(thrown_by([&] { repack(options_for(other, dir / "a.tierpack")); }).kind, ErrorKind::kUsage);

  // Directories that are no packs are never replaced.
  fs::create_directories(dir / "precious");
  write_file(dir / "precious/thesis.txt", "x");
  forced.target = dir / "precious";
  EXPECT_EQ(thrown_by([&] { repack(forced); }).kind, ErrorKind::kUsage);
  EXPECT_EQ(read_file(dir / "precious/thesis.txt"), "x");
  write_file(dir / "file", "x");
  forced.target = dir / "file";
  EXPECT_EQ(thrown_by([&] { repack(forced); }).kind, ErrorKind::kUsage);
}

TEST(RepackJob, PackIsRewrittenInPlace) {
  const TempDirectory dir;
  const fs::path source = MoeGgufWriter({.seed = 5}).write(dir / "source", "noise");
  write_profile(dir / "p.json", profile_for(source, 2, 6, 1));
  repack(options_for(source, dir / "a.tierpack"));
  RepackOptions options = options_for(dir / "a.tierpack", dir / "a.tierpack");
  options.profile = dir / "p.json";
  EXPECT_EQ(thrown_by([&] { repack(options); }).kind, ErrorKind::kUsage);
  options.force = true;
  repack(options);
  options.source = source;
  options.target = dir / "b.tierpack";
  repack(options);
  EXPECT_EQ(read_tree(dir / "a.tierpack"), read_tree(dir / "b.tierpack"));
}

TEST(RepackJob, BrokenPromisesStopIt) {
  const TempDirectory dir;
  const fs::path source = MoeGgufWriter({.seed = 5, .shards = 2}).write(dir / "source/deep", "noise");
  std::string sums;
  for (const auto& [name, content] : read_tree(dir / "source")) {
    sums += Sha256::of(as_bytes(content)).hex() + "  " + name + "\n";
  }
  write_file(dir / "source/SHA256SUMS", sums);
  EXPECT_THAT(repack(options_for(source, dir / "a.tierpack")).proved_by, testing::Each(HasSubstr("SHA256SUMS")));

  // One bit of the second shard's last byte.
  const fs::path second = dir / "source/deep/noise-00002-of-00002.gguf";
  std::string content = read_file(second);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_file(second, content);
  const auto thrown = thrown_by([&] { repack(options_for(source, dir / "b.tierpack")); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(thrown.message, HasSubstr("noise-00002-of-00002.gguf"));
  EXPECT_FALSE(fs::exists(dir / "b.tierpack"));
  EXPECT_FALSE(fs::exists(dir / "b.tierpack.part"));
}

TEST(RepackJob, ScalesThatAreNotFiniteStopIt) {
  const TempDirectory dir;
  fs::create_directory(dir / "source");
  for (const auto& file : fs::directory_iterator(kPebble)) {
    if (file.path().extension() == ".gguf") fs::copy_file(file.path(), dir / "source" / file.path().filename());
  }
  const auto damage = [&](DType type, uint64_t field) {
    const GgufSource source = open_gguf(dir / "source");
    for (const TensorInfo& tensor : source.tensors) {
      if (tensor.dtype != type) continue;
      const fs::path shard = source.files[tensor.shard].name();
      std::string bytes = read_file(shard);
      bytes.replace(tensor.offset + 5 * traits(type).block_bytes + field, 2, std::string("\x00\x7E", 2));
      write_file(shard, bytes);
      return;
    }
    ADD_FAILURE() << "no tensor of " << dtype_name(type);
  };
  damage(DType::kQ4_K, 2);
  RepackOptions options = options_for(dir / "source", dir / "a.tierpack");
  options.allow_nonfinite = false;
  const auto thrown = thrown_by([&] { repack(options); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(thrown.message, HasSubstr("1 of the Q4_K block scales"));
  EXPECT_FALSE(fs::exists(dir / "a.tierpack"));
  options.allow_nonfinite = true;
  repack(options);
  unpack({dir / "a.tierpack", dir / "out", 2, ProgressStyle::kSilent});
  EXPECT_EQ(shards_in(dir / "source"), shards_in(dir / "out"));
}

TEST(RepackJob, ShardThatTheSumsDoNotMentionIsReported) {
  const TempDirectory dir;
  const fs::path source = MoeGgufWriter({.seed = 5, .shards = 2}).write(dir / "source", "noise");
  write_file(dir / "source/SHA256SUMS", Sha256::of(as_bytes(read_file(source))).hex() + "  noise-00001-of-00002.gguf\n");
  EXPECT_THAT(repack(options_for(source, dir / "a.tierpack")).unproved, testing::ElementsAre("noise-00002-of-00002.gguf"));
}

TEST(RepackJob, DamagedPackAsSourceIsRefused) {
  const TempDirectory dir;
  const fs::path source = MoeGgufWriter({.seed = 5}).write(dir / "source", "noise");
  repack(options_for(source, dir / "a.tierpack"));
  std::string experts = read_file(dir / "a.tierpack/experts.bin");
  experts[12345] = static_cast<char>(experts[12345] ^ 4);
  write_file(dir / "a.tierpack/experts.bin", experts);
  EXPECT_EQ(thrown_by([&] { repack(options_for(dir / "a.tierpack", dir / "b.tierpack")); }).kind, ErrorKind::kCorrupt);
  EXPECT_FALSE(fs::exists(dir / "b.tierpack"));
  EXPECT_EQ(thrown_by([&] { unpack({dir / "a.tierpack", dir / "out", 2, ProgressStyle::kSilent}); }).kind, ErrorKind::kCorrupt);
  EXPECT_TRUE(fs::is_empty(dir / "out"));
}

TEST(RepackJob, WhatAKilledProcessLeftIsReplaced) {
  const TempDirectory dir;
  fs::create_directories(dir / "a.tierpack.part");
  write_file(dir / "a.tierpack.part/experts.bin", std::string(100000, 'x'));
  write_file(dir / "a.tierpack.part/stray", "x");
  repack(options_for(kPebble, dir / "a.tierpack"));
  EXPECT_FALSE(fs::exists(dir / "a.tierpack.part"));
  repack(options_for(kPebble, dir / "b.tierpack"));
  EXPECT_EQ(read_tree(dir / "a.tierpack"), read_tree(dir / "b.tierpack"));
}

TEST(RepackJob, ASecondWriterIsTurnedAway) {
  const TempDirectory dir;
  const PartDirectory first(dir / "a.tierpack");
  const auto thrown = thrown_by([&] { repack(options_for(kPebble, dir / "a.tierpack")); });
  EXPECT_EQ(thrown.kind, ErrorKind::kUsage);
  EXPECT_THAT(thrown.message, HasSubstr("another process"));
}

TEST(RepackJob, EveryTypeAndNumberOfRowsComesBack) {
  const TempDirectory dir;
  MoeGguf model{.seed = 11};
  for (const DTypeTraits& t : ggml_dtypes()) {
    for (const uint64_t rows : {1, 15, 16, 17, 40}) {
      model.extra.push_back({fmt::format("{}.{}", dtype_name(t.type), rows), t.type, {2ull * t.block_elements, rows, 3}});
    }
  }
  const fs::path path = MoeGgufWriter(model).write(dir / "source", "noise");
  repack(options_for(path, dir / "a.tierpack"));
  const Pack pack = Pack::open(dir / "a.tierpack");
  const GgufSource source = open_gguf(path);
  for (const MoeGguf::Extra& extra : model.extra) {
    const DenseTensor* dense = pack.find_dense(extra.name);
    ASSERT_NE(dense, nullptr) << extra.name;
    std::vector<std::byte> record(pack.manifest().records[dense->record].bytes);
    pack.read_record(dense->record, record);
    std::vector<std::byte> want(record.size());
    source.files[0].read_at(source.find(extra.name)->offset, want);
    const size_t matrix = record.size() / 3;
    for (size_t i = 0; i < 3; ++i) {
      const Bytes stored = Bytes(record).subspan(i * matrix, matrix);
      const std::vector<std::byte> rows = rows_of(dense->dtype, dense->shape.ne[0], dense->shape.ne[1], stored);
      EXPECT_TRUE(std::equal(rows.begin(), rows.end(), want.begin() + static_cast<ptrdiff_t>(i * matrix))) << extra.name;
    }
  }
  unpack({dir / "a.tierpack", dir / "out", 2, ProgressStyle::kSilent});
  EXPECT_EQ(shards_in(dir / "source"), shards_in(dir / "out"));
}

// Rows so long that one group needs more than the usual buffer.
TEST(RepackJob, LongRowsTakeLargerBuffersOrSaySo) {
  const TempDirectory dir;
  const auto source = [&](const std::string& name, uint64_t cols) {
    MoeGguf model{.seed = 12};
    model.extra.push_back({"wide", DType::kQ4_0, {cols, 35}});
    return MoeGgufWriter(model).write(dir / name, "noise");
  };
  // Groups of 5.625 MiB: four buffers of them are half of 45 MiB.
  const fs::path wide = source("wide", 640 << 10);
  RepackOptions options = options_for(wide, dir / "a.tierpack");
  repack(options);
  unpack({dir / "a.tierpack", dir / "out", 2, ProgressStyle::kSilent});
  EXPECT_EQ(shards_in(dir / "wide"), shards_in(dir / "out"));
  options.target = dir / "b.tierpack";
  options.memory = kMemoryMin;
  const auto small = thrown_by([&] { repack(options); });
  EXPECT_EQ(small.kind, ErrorKind::kCapacity);
  EXPECT_THAT(small.message, HasSubstr("45"));
  options.memory = uint64_t{45} << 20;
  repack(options);
  EXPECT_EQ(read_tree(dir / "a.tierpack"), read_tree(dir / "b.tierpack"));

  const auto thrown = thrown_by([&] { repack(options_for(source("wider", 2 << 20), dir / "c.tierpack")); });
  EXPECT_EQ(thrown.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(thrown.message, HasSubstr("wide"));
}

TEST(RepackJob, TooLittleMemoryIsSaid) {
  const TempDirectory dir;
  RepackOptions options = options_for(kPebble, dir / "a.tierpack");
  options.memory = kMemoryMin - 1;
  EXPECT_EQ(thrown_by([&] { repack(options); }).kind, ErrorKind::kUsage);
}

TEST(RepackJob, RoutingIdIsTheSameForEveryQuantisation) {
  // The same routers, as f32 and as bf16, in other files with other experts.
  const TempDirectory dir;
  const auto build = [&](DType type, uint64_t seed) {
    testing_support::GgufBuilder builder;
    std::mt19937_64 random(3);
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<std::byte> bytes;
      for (int i = 0; i < 64 * 4; ++i) {
        const uint32_t bits = static_cast<uint32_t>(random() % 0x4000 + 0x3c00) << 16;  // exact in bf16
        const auto* first = reinterpret_cast<const std::byte*>(&bits);
        bytes.insert(bytes.end(), first + (type == DType::kBF16 ? 2 : 0), first + 4);
      }
      builder.add_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", layer), type, {64, 4}, bytes);
    }
    builder.u64("seed", seed);
    const fs::path path = dir / fmt::format("{}.gguf", seed);
    builder.write(path);
    return routing_id(*open_repack_source(path), 2);
  };
  EXPECT_EQ(build(DType::kF32, 1), build(DType::kBF16, 2));
}

}  // namespace
}  // namespace tierpack::repack
