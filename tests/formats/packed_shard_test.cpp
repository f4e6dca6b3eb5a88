#include "formats/packed_shard.h"

#include <atomic>
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/threads.h"
#include "tests/support/errors.h"
#include "tests/support/temp_directory.h"
#include "tests/support/tiny_pack.h"

namespace tierpack {
namespace {

using testing_support::read_file;
using testing_support::TempDirectory;
using testing_support::thrown_by;
using testing_support::TinyPack;
using testing_support::write_file;

TEST(PackedShard, GivesBackEveryRangeOfTheShard) {
  const TempDirectory dir;
  const TinyPack tiny = TinyPack::of_checkpoint();
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  ASSERT_EQ(tiny.shards.size(), 3u);
  std::mt19937 random(1);
  for (size_t i = 0; i < tiny.shards.size(); ++i) {
    const PackedShard shard(pack, i);
    const std::vector<std::byte>& want = tiny.shards[i];
    ASSERT_EQ(shard.size(), want.size());
    EXPECT_EQ(sha256_of(shard), pack.manifest().sources[i].sha256);
    for (int round = 0; round < 3000; ++round) {
      const size_t offset = random() % (want.size() + 1);
      const size_t bytes = random() % (round % 2 == 0 ? 40 : want.size() + 1);
      std::vector<std::byte> out(std::min(bytes, want.size() - offset));
      shard.read_at(offset, out);
      ASSERT_TRUE(std::equal(out.begin(), out.end(), want.begin() + static_cast<ptrdiff_t>(offset)))
          << "shard " << i << " [" << offset << ", +" << out.size() << ")";
    }
  }
}

// Piece by piece: each alone, its halves, every byte of its first and last rows.
TEST(PackedShard, GivesBackEveryPieceOfACheckpoint) {
  const TempDirectory dir;
  const TinyPack tiny = TinyPack::of_checkpoint();
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  const PackedShard shard(pack, 2);
  const std::vector<std::byte>& want = tiny.shards[2];
  const auto same = [&](uint64_t offset, uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    shard.read_at(offset, out);
    return std::equal(out.begin(), out.end(), want.begin() + static_cast<ptrdiff_t>(offset));
  };
  uint64_t at = 0;
  for (size_t i = 0; i < shard.shard().pieces.size(); ++i) {
    const SourcePiece& piece = shard.shard().pieces[i];
    EXPECT_TRUE(same(at, piece.bytes)) << "piece " << i;
    EXPECT_TRUE(same(at, piece.bytes / 2)) << "piece " << i;
    EXPECT_TRUE(same(at + piece.bytes / 2, piece.bytes - piece.bytes / 2)) << "piece " << i;
    for (uint64_t k = 0; k < std::min<uint64_t>(piece.bytes, 300); ++k) {
      EXPECT_TRUE(same(at + k, 1)) << "piece " << i << " byte " << k;
      EXPECT_TRUE(same(at + piece.bytes - 1 - k, 1)) << "piece " << i << " byte " << k << " from its end";
      EXPECT_TRUE(same(at + k, std::min<uint64_t>(97, piece.bytes - k))) << "piece " << i << " from byte " << k;
    }
    at += piece.bytes;
  }
  EXPECT_EQ(at, want.size());
}

std::vector<DType> quantised_types() {
  std::vector<DType> out;
  for (const DTypeTraits& t : ggml_dtypes()) {
    if (t.quantised) out.push_back(t.type);
  }
  return out;
}

class PackedShardOfType : public testing::TestWithParam<DType> {};

// Matrices without a whole group, with one and a rest, with several; rows of several blocks; a stack of matrices.
TEST_P(PackedShardOfType, ComesBackInRowOrder) {
  const TempDirectory dir;
  const uint64_t cols = 3ull * traits(GetParam()).block_elements;
  std::vector<testing_support::ExtraTensor> extra{{"vector", GetParam(), {cols}}, {"stack", GetParam(), {cols, 17, 2, 2}}};
  for (const uint64_t rows : {1, 15, 16, 17, 40}) extra.push_back({fmt::format("rows{}", rows), GetParam(), {cols, rows}});
  const TinyPack tiny(false, extra);
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  const PackedShard shard(pack, 2);
  const std::vector<std::byte>& want = tiny.shards[2];
  EXPECT_EQ(sha256_of(shard), pack.manifest().sources[2].sha256);
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t offset = random() % (want.size() + 1);
    const size_t bytes = random() % (round % 2 == 0 ? 40 : want.size() + 1);
    std::vector<std::byte> out(std::min(bytes, want.size() - offset));
    shard.read_at(offset, out);
    ASSERT_TRUE(std::equal(out.begin(), out.end(), want.begin() + static_cast<ptrdiff_t>(offset)))
        << "[" << offset << ", +" << out.size() << ")";
  }
  for (const size_t piece : {1ul, 7ul, 1000ul}) {
    std::vector<std::byte> all(want.size());
    for (size_t at = 0; at < all.size(); at += piece) {
      shard.read_at(at, MutableBytes(all).subspan(at, std::min(piece, all.size() - at)));
    }
    EXPECT_EQ(all, want) << "in pieces of " << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Quantised, PackedShardOfType, testing::ValuesIn(quantised_types()),
                         [](const auto& name) { return std::string(dtype_name(name.param)); });

TEST(PackedShard, IsReadByManyThreads) {
  const TempDirectory dir;
  const TinyPack tiny(false, {{"a", DType::kQ4_K, {1024, 250}}, {"b", DType::kQ8_0, {64, 5000}}});
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  const PackedShard shard(pack, 2);
  const std::vector<std::byte>& want = tiny.shards[2];
  ThreadTeam team(4);
  std::atomic<int> wrong = 0;
  team.for_each(8, [&](size_t seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::vector<std::byte> out;
    for (int round = 0; round < 200; ++round) {
      // Near each other, so that threads meet at the same groups.
      const size_t offset = static_cast<size_t>(round) * want.size() / 200 + random() % 500;
      out.resize(std::min<size_t>(random() % 20000, want.size() - std::min(offset, want.size())));
      if (out.empty()) continue;
      shard.read_at(offset, out);
      if (!std::equal(out.begin(), out.end(), want.begin() + static_cast<ptrdiff_t>(offset))) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(PackedShard, EndsWhereTheShardEnds) {
  const TempDirectory dir;
  const TinyPack tiny;
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  const PackedShard shard(pack, 0);
  std::vector<std::byte> out(2);
  EXPECT_EQ(thrown_by([&] { shard.read_at(shard.size() - 1, out); }).kind, ErrorKind::kCorrupt);
  EXPECT_EQ(thrown_by([&] { shard.read_at(UINT64_MAX, out); }).kind, ErrorKind::kCorrupt);
}

TEST(PackedShard, ProvesPagesAsItReadsThem) {
  const TempDirectory dir;
  const TinyPack tiny;
  tiny.write(dir / "tiny.tierpack");
  std::string rows = read_file(dir / "tiny.tierpack/rows.bin");
  rows[5000] = static_cast<char>(rows[5000] ^ 1);
  write_file(dir / "tiny.tierpack/rows.bin", rows);
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  const PackedShard shard(pack, 1);
  EXPECT_EQ(thrown_by([&] { sha256_of(shard); }).kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace tierpack
