#include "base/sha256_lanes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tierpack {
namespace {

std::vector<std::byte> noise(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(size);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(Sha256Lanes, KnownAnswers) {
  Sha256Lane empty;
  EXPECT_EQ(empty.finish().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256Lane abc;
  abc.update(as_bytes("abc"));
  EXPECT_EQ(abc.finish().hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Lanes, OneLaneEqualsOpenSslAtEverySizeAndSplit) {
  std::mt19937_64 random(1);
  for (size_t size = 0; size <= 400; ++size) {
    const auto data = noise(size, size);
    Sha256Lane lane;
    for (Bytes left = data; !left.empty();) {
      const size_t step = 1 + random() % left.size();
      lane.update(left.first(step));
      left = left.subspan(step);
    }
    EXPECT_EQ(lane.finish(), Sha256::of(data)) << size;
  }
}

TEST(Sha256Lanes, TwoInStepEqualEachAlone) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 50; ++round) {
    const size_t common = random() % 40 * 64;
    const auto a = noise(common + random() % 200, random());
    const auto b = noise(common + random() % 200, random());
    Sha256Lane lane_a;
    Sha256Lane lane_b;
    for (size_t at = 0; at < common;) {
      const size_t step = (1 + random() % ((common - at) / 64)) * 64;
      Sha256Lane::update_pair(lane_a, Bytes(a).subspan(at, step), lane_b, Bytes(b).subspan(at, step));
      at += step;
    }
    Sha256Lane::update_pair(lane_a, {}, lane_b, {});
    lane_a.update(Bytes(a).subspan(common));
    lane_b.update(Bytes(b).subspan(common));
    EXPECT_EQ(lane_a.finish(), Sha256::of(a)) << round;
    EXPECT_EQ(lane_b.finish(), Sha256::of(b)) << round;
  }
}

}  // namespace
}  // namespace tierpack
