// Repacks that stop on the way and go on, in shares, and --in-place: whatever happens, the pack is the one that a single run writes.
#include <atomic>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "repack/copy_journal.h"
#include "repack/repack_job.h"
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
using testing_support::Thrown;
using testing_support::thrown_by;
using testing_support::write_file;
using Outcome = RepackReport::Outcome;

RepackOptions options_for(const fs::path& source, const fs::path& target) {
  RepackOptions options;
  options.source = source;
  options.target = target;
  options.jobs = 2;
  options.tool_version = "test";
  options.allow_nonfinite = true;
  return options;
}

// A few MiB, so that there are many extents.
MoeGguf model_of(uint64_t seed, uint16_t shards = 2) {
  return {.seed = seed, .layers = 3, .experts = 24, .hidden = 512, .ff = 96, .shards = shards, .dirty_padding = true, .table_rows = 20000};
}

void write_profile_for(const fs::path& path, const fs::path& source, const MoeGguf& model, uint64_t seed) {
  Profile profile;
  profile.architecture = "qwen3moe";
  profile.routing_id = routing_id(*open_repack_source(source), model.layers);
  profile.layers = model.layers;
  profile.experts = model.experts;
  profile.used = 2;
  profile.tool_version = "test";
  profile.corpora.push_back({"noise", {}, 1000});
  std::mt19937_64 random(seed);
  for (uint32_t i = 0; i < model.layers * model.experts; ++i) {
    profile.counts.push_back(random() % 7);
    profile.weights.push_back(static_cast<double>(profile.counts.back()) / 2);
  }
  write_profile(path, profile);
}

// Stops a run as Ctrl-C would, once `bytes` were copied or read back.
RepackOptions stopped_after(RepackOptions options, uint64_t bytes) {
  const auto done = std::make_shared<std::atomic<uint64_t>>(0);
  options.on_bytes = [done, bytes](uint64_t more) {
    if ((*done += more) >= bytes) throw Error(ErrorKind::kInterrupted, "stopped");
  };
  return options;
}

class Resume : public testing::Test {
 protected:
  explicit Resume(uint16_t shards = 2)
      : model_(model_of(5, shards)), source_(MoeGgufWriter(model_).write(dir_ / "source", "noise")) {
    report_ = repack(options_for(source_, dir_ / "whole.tierpack"));
    whole_ = read_tree(dir_ / "whole.tierpack");
  }
  RepackOptions options() const { return options_for(source_, dir_ / "a.tierpack"); }
  fs::path journal() const { return dir_ / "a.tierpack.part" / Journal::file_name(0, 1); }
  void expect_whole() const {
    EXPECT_EQ(read_tree(dir_ / "a.tierpack"), whole_);
    EXPECT_FALSE(fs::exists(dir_ / "a.tierpack.part"));
  }

  TempDirectory dir_;
  MoeGguf model_;
  fs::path source_;
  RepackReport report_;
  std::map<std::string, std::string> whole_;
};

TEST_F(Resume, GoesOnWhereItWasStopped) {
  const uint64_t source = report_.source_bytes, all = source + report_.pack_bytes;
  uint64_t last = 0;
  for (const uint64_t stop : {uint64_t{1}, source / 4, source / 2, source - 1, source + 1, all / 10 * 9}) {
    EXPECT_EQ(thrown_by([&] { repack(stopped_after(options(), stop)); }).kind, ErrorKind::kInterrupted) << stop;
    EXPECT_FALSE(fs::exists(dir_ / "a.tierpack"));
    ASSERT_TRUE(fs::exists(journal())) << stop;
    const RepackReport report = repack(options());
    EXPECT_EQ(report.outcome, Outcome::kWritten);
    EXPECT_GT(report.resumed_bytes, 0u) << stop;
    EXPECT_GE(report.resumed_bytes, last) << stop;
    last = std::min(stop, source) / 2;  // threads do not stop at the same moment
    if (stop > source) {
      EXPECT_EQ(report.resumed_bytes, source);
    }
    expect_whole();
    fs::remove_all(dir_ / "a.tierpack");
  }
}

TEST_F(Resume, ManyStopsLeadToTheEnd) {
  size_t runs = 0;
  for (; runs < 1000; ++runs) {
    const Thrown thrown = thrown_by([&] { repack(stopped_after(options(), (uint64_t{1} << 20) * (1 + 2 * runs))); });
    if (!thrown.kind) break;
    ASSERT_EQ(thrown.kind, ErrorKind::kInterrupted) << thrown.message;
  }
  EXPECT_GT(runs, 3u);
  expect_whole();
}

TEST_F(Resume, OtherThreadsAndMemoryGoOnAsWell) {
  thrown_by([&] { repack(stopped_after(options(), report_.source_bytes / 2)); });
  RepackOptions other = options();
  other.jobs = 5;
  other.memory = kMemoryMin;
  EXPECT_GT(repack(other).resumed_bytes, 0u);
  expect_whole();
}

TEST_F(Resume, AnotherSourceOrOrderIsBegunAnew) {
  thrown_by([&] { repack(stopped_after(options(), report_.source_bytes / 2)); });
  RepackOptions ordered = options();
  ordered.profile = dir_ / "p.json";
  write_profile_for(dir_ / "p.json", source_, model_, 3);
  thrown_by([&] { repack(stopped_after(ordered, report_.source_bytes / 2)); });
  EXPECT_EQ(repack(options()).resumed_bytes, 0u);
  expect_whole();
  fs::remove_all(dir_ / "a.tierpack");

  // The same names and sizes, and other bytes.
  thrown_by([&] { repack(stopped_after(options(), report_.source_bytes / 2)); });
  const fs::file_time_type before = fs::last_write_time(source_);
  std::string content = read_file(source_);
  content.back() = static_cast<char>(content.back() ^ 1);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  write_file(source_, content);
  fs::last_write_time(source_, before + std::chrono::seconds(1));
  repack(options());
  repack(options_for(source_, dir_ / "changed.tierpack"));
  EXPECT_EQ(read_tree(dir_ / "a.tierpack"), read_tree(dir_ / "changed.tierpack"));
  EXPECT_NE(read_tree(dir_ / "a.tierpack"), whole_);
}

TEST_F(Resume, ATornJournalIsReadAsFarAsItGoes) {
  const auto stop = [&] { thrown_by([&] { repack(stopped_after(options(), report_.source_bytes)); }); };
  stop();
  const std::string good = read_file(journal());
  ASSERT_GT(good.size(), 40u + 3 * 64u);
  uint64_t last = UINT64_MAX;
  const std::string torn[] = {good + "x", good + std::string(63, '\0'), good + std::string(640, '\0'), good.substr(0, good.size() - 10),
                              good.substr(0, 40 + 3 * 64 + 1), good.substr(0, 40), good.substr(0, 20), ""};
  for (const std::string& content : torn) {
    if (!fs::exists(journal())) stop();
    write_file(journal(), content);
    const RepackReport report = repack(options());
    EXPECT_LE(report.resumed_bytes, last) << content.size();
    if (content.size() < 50) {
      EXPECT_EQ(report.resumed_bytes, 0u);
    }
    if (content.size() > good.size()) {
      EXPECT_GT(report.resumed_bytes, 0u);
    }
    if (content.size() < good.size()) last = report.resumed_bytes;
    expect_whole();
    fs::remove_all(dir_ / "a.tierpack");
  }
  // A damaged entry ends it.
  stop();
  std::string damaged = good;
  damaged[40 + 64 + 20] = static_cast<char>(damaged[40 + 64 + 20] ^ 1);
  write_file(journal(), damaged);
  repack(options());
  expect_whole();
}

// The journal is believed, the bytes are not.
TEST_F(Resume, WhatIsNoLongerInThePartIsNoticed) {
  thrown_by([&] { repack(stopped_after(options(), report_.source_bytes + 1)); });
  std::string experts = read_file(dir_ / "a.tierpack.part/experts.bin");
  experts[5000] = static_cast<char>(experts[5000] ^ 1);
  write_file(dir_ / "a.tierpack.part/experts.bin", experts);
  const Thrown thrown = thrown_by([&] { repack(options()); });
  EXPECT_EQ(thrown.kind, ErrorKind::kIo);
  EXPECT_THAT(thrown.message, HasSubstr("experts.bin"));
  repack(options());
  expect_whole();
}

using Shares = Resume;

TEST_F(Shares, GiveThePackOfASingleRun) {
  for (uint32_t parts = 1; parts <= 5; ++parts) {
    std::vector<uint32_t> order(parts);
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + parts / 2, order.end());
    for (const uint32_t part : order) {
      RepackOptions share = options();
      share.part = part;
      share.parts = parts;
      EXPECT_EQ(repack(share).outcome, parts == 1 ? Outcome::kWritten : Outcome::kPartWritten);
    }
    RepackOptions merge = options();
    merge.merge = true;
    EXPECT_EQ(repack(merge).outcome, parts == 1 ? Outcome::kAlreadyThere : Outcome::kWritten) << parts;
    expect_whole();
    fs::remove_all(dir_ / "a.tierpack");
  }
}

TEST_F(Shares, AreWrittenAtTheSameTimeAndGoOn) {
  RepackOptions shares[3];
  for (uint32_t i = 0; i < 3; ++i) {
    shares[i] = options();
    shares[i].part = i;
    shares[i].parts = 3;
  }
  EXPECT_EQ(thrown_by([&] { repack(stopped_after(shares[1], report_.source_bytes / 6)); }).kind, ErrorKind::kInterrupted);
  std::atomic<uint64_t> resumed = 0;
  {
    std::vector<std::jthread> threads;
    for (const RepackOptions& share : shares) threads.emplace_back([&] { resumed += repack(share).resumed_bytes; });
  }
  EXPECT_GT(resumed, 0u);
  RepackOptions merge = options();
  merge.merge = true;
  EXPECT_EQ(thrown_by([&] { repack(stopped_after(merge, report_.pack_bytes / 2)); }).kind, ErrorKind::kInterrupted);
  EXPECT_EQ(repack(merge).outcome, Outcome::kWritten);
  expect_whole();
}

TEST_F(Shares, MissingAndForeignOnesAreRefused) {
  RepackOptions merge = options();
  merge.merge = true;
  EXPECT_EQ(thrown_by([&] { repack(merge); }).kind, ErrorKind::kUsage);
  EXPECT_FALSE(fs::exists(dir_ / "a.tierpack.part"));
  RepackOptions share = options();
  share.parts = 3;
  for (const uint32_t part : {0, 2}) {
    share.part = part;
    repack(share);
    const Thrown missing = thrown_by([&] { repack(merge); });
    EXPECT_EQ(missing.kind, ErrorKind::kUsage);
    EXPECT_THAT(missing.message, HasSubstr("2/3"));
  }
  write_profile_for(dir_ / "p.json", source_, model_, 3);
  RepackOptions other = share;
  other.part = 1;
  other.profile = dir_ / "p.json";
  EXPECT_EQ(thrown_by([&] { repack(other); }).kind, ErrorKind::kUsage);
  other = share;
  other.parts = 4;
  EXPECT_EQ(thrown_by([&] { repack(other); }).kind, ErrorKind::kUsage);
  RepackOptions ordered = merge;
  ordered.profile = dir_ / "p.json";
  EXPECT_EQ(thrown_by([&] { repack(ordered); }).kind, ErrorKind::kUsage);
  share.part = 1;
  repack(share);
  EXPECT_EQ(repack(merge).outcome, Outcome::kWritten);
  expect_whole();
}

class InPlace : public Resume {
 protected:
  InPlace() : Resume(4) { sources_ = read_tree(dir_ / "source"); }
  RepackOptions in_place() const {
    RepackOptions out = options();
    out.source = dir_ / "mine";
    out.in_place = true;
    return out;
  }
  // A source to lose.
  void copy_source() const {
    fs::remove_all(dir_ / "mine");
    fs::copy(dir_ / "source", dir_ / "mine");
  }
  size_t shards() const {
    size_t count = 0;
    for (const auto& [name, content] : sources_) count += fs::exists(dir_ / "mine" / name) ? 1 : 0;
    return count;
  }
  // Stops the run as soon as no more than `left` shards are there.
  RepackOptions stopped_at(size_t left) const {
    RepackOptions out = in_place();
    out.on_bytes = [this, left](uint64_t) {
      if (shards() <= left) throw Error(ErrorKind::kInterrupted, "stopped");
    };
    return out;
  }
  void expect_restored() {
    expect_whole();
    EXPECT_EQ(shards(), 0u);
    unpack({dir_ / "a.tierpack", dir_ / "out", 2, ProgressStyle::kSilent});
    for (const auto& [name, content] : sources_) EXPECT_EQ(read_file(dir_ / "out" / name), content) << name;
    fs::remove_all(dir_ / "out");
    fs::remove_all(dir_ / "a.tierpack");
  }
  std::map<std::string, std::string> sources_;
};

TEST_F(InPlace, ShardsGoOneAfterTheOther) {
  copy_source();
  std::vector<size_t> seen;
  std::mutex mutex;
  RepackOptions options = in_place();
  options.on_bytes = [&](uint64_t) {
    const std::lock_guard lock(mutex);
    if (seen.empty() || seen.back() != shards()) seen.push_back(shards());
  };
  const RepackReport report = repack(options);
  EXPECT_EQ(seen, (std::vector<size_t>{4, 3, 2, 1, 0}));
  EXPECT_EQ(report.freed_bytes, report.source_bytes);
  expect_restored();
}

TEST_F(InPlace, GoesOnAtEveryBoundary) {
  for (const bool by_file : {false, true}) {
    for (size_t left = 0; left <= 4; ++left) {
      copy_source();
      EXPECT_EQ(thrown_by([&] { repack(stopped_at(left)); }).kind, ErrorKind::kInterrupted);
      EXPECT_EQ(shards(), left);
      RepackOptions again = in_place();
      if (by_file) again.source = dir_ / "mine" / source_.filename();
      if (!by_file && left % 2 == 1) again.source = (dir_ / "mine").string() + "/";
      const RepackReport report = repack(again);
      if (left < 4) {
        EXPECT_GT(report.resumed_bytes, 0u);
      }
      expect_restored();
    }
  }
}

TEST_F(InPlace, StopsAfterEveryStepLeadToTheEnd) {
  copy_source();
  size_t runs = 0;
  for (; runs < 1000; ++runs) {
    const Thrown thrown = thrown_by([&] { repack(stopped_after(in_place(), (uint64_t{1} << 20) * (1 + 2 * runs))); });
    if (!thrown.kind) break;
    ASSERT_EQ(thrown.kind, ErrorKind::kInterrupted) << thrown.message;
  }
  EXPECT_GT(runs, 3u);
  expect_restored();
}

TEST_F(InPlace, OtherOptionsAfterADeletionAreRefused) {
  copy_source();
  thrown_by([&] { repack(stopped_at(2)); });
  ASSERT_EQ(shards(), 2u);
  const auto part = read_tree(dir_ / "a.tierpack.part");
  const auto refused = [&](auto change) {
    RepackOptions options = in_place();
    change(options);
    const Thrown thrown = thrown_by([&] { repack(options); });
    EXPECT_EQ(thrown.kind, ErrorKind::kUsage) << thrown.message;
    EXPECT_EQ(shards(), 2u);
    EXPECT_EQ(read_tree(dir_ / "a.tierpack.part"), part);
  };
  write_profile_for(dir_ / "p.json", source_, model_, 3);
  refused([&](RepackOptions& o) { o.profile = dir_ / "p.json"; });
  refused([](RepackOptions& o) { o.tool_version = "other"; });
  refused([](RepackOptions& o) { o.in_place = false, o.parts = 2; });
  refused([](RepackOptions& o) { o.in_place = false, o.merge = true; });
  refused([&](RepackOptions& o) { o.source = source_; });  // another model for the same name
  refused([&](RepackOptions& o) { o.source = source_, o.in_place = false; });
  // A shard with another time is read again.
  const fs::path last = dir_ / "mine" / std::prev(sources_.end())->first;
  fs::last_write_time(last, fs::last_write_time(last) + std::chrono::seconds(1));
  // Without --in-place it is finished, and what is left of the source stays.
  RepackOptions rest = in_place();
  rest.in_place = false;
  repack(rest);
  expect_whole();
  EXPECT_EQ(shards(), 2u);
}

TEST_F(InPlace, AnOrdinaryRunGoesOnBeforeAnyDeletion) {
  copy_source();
  thrown_by([&] { repack(stopped_after(in_place(), 1)); });
  ASSERT_EQ(shards(), 4u);
  RepackOptions rest = in_place();
  rest.in_place = false;
  EXPECT_GT(repack(rest).resumed_bytes, 0u);
  expect_whole();
  EXPECT_EQ(shards(), 4u);
}

TEST_F(InPlace, LinksAndPacksAreRefused) {
  copy_source();
  const fs::path last = dir_ / "mine" / std::prev(sources_.end())->first;
  const auto refused = [&](const fs::path& source) {
    RepackOptions options = in_place();
    options.source = source;
    const Thrown thrown = thrown_by([&] { repack(options); });
    EXPECT_EQ(thrown.kind, ErrorKind::kUsage) << thrown.message;
    EXPECT_FALSE(fs::exists(dir_ / "a.tierpack.part"));
    EXPECT_EQ(shards(), 4u);
  };
  fs::remove(last);
  fs::create_symlink(dir_ / "source" / last.filename(), last);
  refused(dir_ / "mine");
  fs::remove(last);
  fs::create_hard_link(dir_ / "source" / last.filename(), last);
  refused(dir_ / "mine");
  refused(dir_ / "whole.tierpack");
}

TEST_F(InPlace, AShardThatThePackDoesNotGiveBackStays) {
  copy_source();
  RepackOptions options = in_place();
  options.jobs = 1;
  // Damages what was written while the first shard is copied.
  std::atomic<bool> once = false;
  options.on_bytes = [&](uint64_t) {
    if (once.exchange(true)) return;
    const std::string name = (dir_ / "a.tierpack.part/source.bin").string();
    std::string bytes = read_file(name);
    bytes[10] = static_cast<char>(bytes[10] ^ 1);
    std::fstream(name, std::ios::binary | std::ios::in | std::ios::out).write(bytes.data(), 11);
  };
  const Thrown thrown = thrown_by([&] { repack(options); });
  EXPECT_EQ(thrown.kind, ErrorKind::kIo);
  EXPECT_THAT(thrown.message, HasSubstr("not deleted"));
  EXPECT_EQ(shards(), 4u);
}

}  // namespace
}  // namespace tierpack::repack
