// Packs and engines for tests of the runtime: repacking, and runs that keep what they decided.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "repack/repack_job.h"
#include "runtime/engine.h"
#include "tests/support/errors.h"
#include "tests/support/temp_directory.h"

namespace tierpack::testing_support {

// Repacks `source` into `directory`/NAME.tierpack.
inline std::filesystem::path make_pack(const std::filesystem::path& source, const std::filesystem::path& directory,
                                       const std::string& name = "model") {
  repack::RepackOptions options;
  options.source = source;
  options.target = directory / (name + ".tierpack");
  options.jobs = 2;
  repack::repack(options);
  return options.target;
}

// The embedded model as a pack, made once per process.
inline const std::filesystem::path& pebble_pack() {
  static const TempDirectory directory;
  static const std::filesystem::path pack =
      make_pack(std::filesystem::path(TIERPACK_SOURCE_DIR) / "models/pebble", directory.path(), "pebble");
  return pack;
}

struct Decisions final : ForwardObserver {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> routes;
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>> attended;
  void on_route(uint32_t layer, uint32_t position, std::span<const uint32_t> experts, std::span<const float>) override {
    routes[{layer, position}].assign(experts.begin(), experts.end());
  }
  bool wants_attention() const override { return true; }
  void on_attend(uint32_t layer, uint32_t position, std::span<const uint32_t> visible) override {
    attended[{layer, position}] = {visible.begin(), visible.end()};
  }
};

using LogitRows = std::vector<std::vector<float>>;

// Appends tokens and returns all their logits.
inline LogitRows append_all(Session& session, std::span<const uint32_t> tokens) {
  LogitRows rows;
  const uint32_t before = session.length();
  session.append(tokens, true, [&](uint32_t position, std::span<const float> logits) {
    EXPECT_EQ(position, before + rows.size());
    rows.emplace_back(logits.begin(), logits.end());
  });
  return rows;
}

inline std::string fingerprint(const LogitRows& rows) {
  Xxh3Stream hash;
  for (const std::vector<float>& row : rows) hash.update(std::as_bytes(std::span(row)));
  return hash.digest().hex();
}

// Deterministic token ids below `vocab`.
inline std::vector<uint32_t> some_tokens(size_t count, uint32_t vocab, uint32_t seed = 1) {
  std::vector<uint32_t> tokens(count);
  uint64_t state = seed;
  for (uint32_t& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<uint32_t>((state >> 33) % vocab);
  }
  return tokens;
}

}  // namespace tierpack::testing_support
