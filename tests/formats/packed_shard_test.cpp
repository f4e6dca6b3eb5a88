#include "formats/packed_shard.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
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
  const TinyPack tiny;
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
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
