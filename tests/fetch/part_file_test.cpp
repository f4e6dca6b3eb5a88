// Extents, the journal, directories that are not led astray, and parts.
#include "fetch/part_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "fetch/directory_lock.h"

namespace tierpack::fetch {
namespace {

namespace fs = std::filesystem;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "tierpack-part-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
std::string read_text(const fs::path& path) { return read_text_file(path, 1 << 20); }

TEST(Extents, AgreeWithABitmap) {
  std::minstd_rand random(1);
  for (int round = 0; round < 200; ++round) {
    ExtentSet set;
    std::vector<bool> bitmap(100);
    for (int i = 0; i < 12; ++i) {
      const uint64_t a = random() % 100;
      const uint64_t b = random() % 101;
      set.add({a, b});
      for (uint64_t k = a; k < b; ++k) bitmap[k] = true;
    }
    uint64_t bytes = 0;
    uint64_t prefix = 0;
    while (prefix < 100 && bitmap[prefix]) ++prefix;
    for (const bool bit : bitmap) bytes += bit;
    EXPECT_EQ(set.bytes(), bytes);
    EXPECT_EQ(set.prefix_end(), prefix);
    for (size_t i = 1; i < set.extents().size(); ++i) EXPECT_LT(set.extents()[i - 1].end, set.extents()[i].begin);
    uint64_t missing = 0;
    for (const Extent& gap : remaining_ranges(set, {}, 100)) {
      missing += gap.size();
      for (uint64_t k = gap.begin; k < gap.end; ++k) EXPECT_FALSE(bitmap[k]);
    }
    EXPECT_EQ(missing + bytes, 100u);
  }
}

TEST(Extents, RemainingRangesLeaveOutWhatIsOnItsWay) {
  ExtentSet done;
  done.add({0, 10});
  done.add({50, 60});
  const std::vector<Extent> expected = {{20, 50}, {60, 100}};
  EXPECT_EQ(remaining_ranges(done, {{10, 20}}, 100), expected);
  EXPECT_TRUE(remaining_ranges(done, {{10, 50}, {60, UINT64_MAX}}, 100).empty());
}

TEST(Extents, NextRangeIsAlignedAndBounded) {
  constexpr uint64_t kMiB = 1 << 20;
  ExtentSet done;
  done.add({0, 100});
  const Extent range = next_range(done, {}, 100 * kMiB, 16 * kMiB);
  EXPECT_EQ(range.begin, 100u);
  EXPECT_EQ(range.end, 16 * kMiB);
  EXPECT_EQ(next_range(done, {}, 120, 16 * kMiB), (Extent{100, 120}));
  EXPECT_EQ(next_range(done, {}, 100, 16 * kMiB).size(), 0u);
}

Journal sample() {
  Journal journal{.size = 1000, .sha256 = Sha256::of({}), .validator = "\"v\"", .device = 7, .inode = 8, .birth_ns = 9};
  journal.extents.add({0, 400});
  journal.extents.add({800, 900});
  return journal;
}

TEST(JournalFormat, RoundTrips) {
  EXPECT_EQ(parse_journal(encode_journal(sample())), sample());
  Journal bare;
  bare.extents.add({1, 2});
  EXPECT_EQ(parse_journal(encode_journal(bare)), bare);
}

TEST(JournalFormat, AnyDamageIsNoticed) {
  const std::string text = encode_journal(sample());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'\0', '0', '9', ' ', '\n'}) {
      std::string damaged = text;
      if (damaged[i] == c) continue;
      damaged[i] = c;
      EXPECT_FALSE(parse_journal(damaged).has_value()) << i;
    }
    EXPECT_FALSE(parse_journal(text.substr(0, i)).has_value());
  }
  EXPECT_FALSE(parse_journal(std::string(text.size(), '\0')).has_value());
  EXPECT_FALSE(parse_journal(text + "x").has_value());
}

// A part of "abcdef", with its first four bytes journalled.
void leave_part(const Directory& state, const PartIdentity& identity) {
  PartFile part(state, "model.gguf", identity);
  part.write(0, as_bytes("abcd"));
  part.checkpoint(part.snapshot());
  part.write(4, as_bytes("ef"));  // not claimed
}

TEST(PartFile, ContinuesWhatTheJournalClaims) {
  const TemporaryDirectory dir;
  const Directory state = Directory::open(dir.path(), false);
  const PartIdentity identity{.size = 6, .sha256 = Sha256::of(as_bytes("abcdef"))};
  leave_part(state, identity);
  const PartFile part(state, "model.gguf", identity);
  EXPECT_EQ(part.resumed_bytes(), 4u);
  EXPECT_EQ(part.extents().prefix_end(), 4u);
}

TEST(PartFile, BeginsAnewForAnotherContent) {
  const PartIdentity identity{.size = 6, .sha256 = Sha256::of(as_bytes("abcdef"))};
  const PartIdentity others[] = {{.size = 6, .sha256 = Sha256::of(as_bytes("ABCDEF"))},
                                 {.size = 7, .sha256 = Sha256::of(as_bytes("abcdef"))},
                                 {.size = 6}};
  for (const PartIdentity& other : others) {
    const TemporaryDirectory dir;
    const Directory state = Directory::open(dir.path(), false);
    leave_part(state, identity);
    EXPECT_EQ(PartFile(state, "model.gguf", other).resumed_bytes(), 0u);
  }
}

TEST(PartFile, WithoutHashOnlyTheSameValidatorContinues) {
  for (const auto& [then, now, resumed] : std::vector<std::tuple<std::string, std::string, uint64_t>>{
           {"\"a\"", "\"a\"", 4}, {"\"a\"", "\"b\"", 0}, {"", "", 0}, {"\"a\"", "", 0}}) {
    const TemporaryDirectory dir;
    const Directory state = Directory::open(dir.path(), false);
    leave_part(state, {.size = 6, .validator = then});
    EXPECT_EQ(PartFile(state, "model.gguf", {.size = 6, .validator = now}).resumed_bytes(), resumed) << then << now;
  }
}

TEST(PartFile, DamagedOrMissingJournalMeansNothingIsKnown) {
  const PartIdentity identity{.size = 6, .sha256 = Sha256::of(as_bytes("abcdef"))};
  const std::string journal = state_name("model.gguf") + ".journal";
  for (const bool missing : {true, false}) {
    const TemporaryDirectory dir;
    const Directory state = Directory::open(dir.path(), false);
    leave_part(state, identity);
    missing ? state.remove(journal) : write_text(dir.path() / journal, std::string(300, '\0'));
    EXPECT_EQ(PartFile(state, "model.gguf", identity).resumed_bytes(), 0u);
  }
}

TEST(PartFile, ShortPartIsNotBelievedBeyondItsEnd) {
  const TemporaryDirectory dir;
  const Directory state = Directory::open(dir.path(), false);
  const PartIdentity identity{.size = 6, .sha256 = Sha256::of(as_bytes("abcdef"))};
  leave_part(state, identity);
  fs::resize_file(dir.path() / (state_name("model.gguf") + ".part"), 2);
  EXPECT_EQ(PartFile(state, "model.gguf", identity).resumed_bytes(), 2u);
}

TEST(PartFile, PlantedLinksAndStrangersAreNotWrittenThrough) {
  const PartIdentity identity{.size = 6, .sha256 = Sha256::of(as_bytes("abcdef"))};
  const std::string name = state_name("model.gguf") + ".part";
  for (const int trick : {0, 1, 2, 3}) {
    const TemporaryDirectory dir;
    const Directory state = Directory::open(dir.path(), false);
    write_text(dir.path() / "victim", "precious");
    leave_part(state, identity);
    if (trick == 3) {
      // Another file under the name; made while the part exists, so that it cannot get the part's inode number.
      write_text(dir.path() / "stranger", "XXXXXX");
      fs::rename(dir.path() / "stranger", dir.path() / name);
    } else {
      fs::remove(dir.path() / name);
    }
    if (trick == 0) fs::create_symlink(dir.path() / "victim", dir.path() / name);
    if (trick == 1) fs::create_hard_link(dir.path() / "victim", dir.path() / name);
    if (trick == 2) {
      ASSERT_EQ(::mkfifo((dir.path() / name).c_str(), 0600), 0);
    }
    PartFile part(state, "model.gguf", identity);
    EXPECT_EQ(part.resumed_bytes(), 0u) << trick;
    part.write(0, as_bytes("abcdef"));
    EXPECT_EQ(read_text(dir.path() / "victim"), "precious") << trick;
    EXPECT_TRUE(part.publish(state, "model.gguf", 0644, false, Sha256Digest()));
    EXPECT_EQ(read_text(dir.path() / "model.gguf"), "abcdef");
    EXPECT_EQ(fs::status(dir.path() / "model.gguf").permissions(), fs::perms(0644));
  }
}

TEST(PartFile, PublishNeverOverwritesUnasked) {
  const TemporaryDirectory dir;
  const Directory state = Directory::open(dir.path(), false);
  write_text(dir.path() / "model.gguf", "mine");
  PartFile part(state, "model.gguf", {.size = 3});
  part.write(0, as_bytes("new"));
  EXPECT_FALSE(part.publish(state, "model.gguf", 0644, false, Sha256Digest()));
  EXPECT_EQ(read_text(dir.path() / "model.gguf"), "mine");
  EXPECT_TRUE(part.publish(state, "model.gguf", 0644, true, Sha256Digest()));
  EXPECT_EQ(read_text(dir.path() / "model.gguf"), "new");
}

TEST(PartFile, WhatLiesBeyondTheSizeIsNotPublished) {
  const TemporaryDirectory dir;
  const Directory state = Directory::open(dir.path(), false);
  PartFile part(state, "model.gguf", {.size = std::nullopt, .sha256 = Sha256::of(as_bytes("abcdef")), .validator = {}});
  part.write(0, as_bytes("abcdefgh"));  // from a source that did not say where the file ends
  part.set_size(6);
  EXPECT_TRUE(part.publish(state, "model.gguf", 0644, false, Sha256::of(as_bytes("abcdef"))));
  EXPECT_EQ(read_text(dir.path() / "model.gguf"), "abcdef");
}

TEST(PartFile, BytesThatAreThereAreNeverWrittenAgain) {
  const TemporaryDirectory temporary;
  const Directory state = Directory::open(temporary.path(), true);
  PartFile part(state, "model.gguf", {.size = 20, .sha256 = Sha256Digest(), .validator = {}});
  part.write(5, as_bytes("bbbbb"));
  part.write(0, as_bytes("aaaaaaaaaaaaaaa"));
  char text[16] = {};
  part.file().read_at(0, {reinterpret_cast<std::byte*>(text), 15});
  EXPECT_STREQ(text, "aaaaabbbbbaaaaa");
  ExtentSet bytes;
  bytes.add({3, 7});
  part.forget(bytes);
  EXPECT_EQ(part.extents().extents(), (std::vector<Extent>{{0, 3}, {7, 15}}));
}

TEST(PartFile, APartThatLostItsNameIsNotPublished) {
  const TemporaryDirectory temporary;
  const Directory state = Directory::open(temporary.path(), true);
  PartFile part(state, "model.gguf", {.size = 3, .sha256 = Sha256Digest(), .validator = {}});
  part.write(0, as_bytes("abc"));
  state.remove(part.name());
  EXPECT_THROW(part.publish(state, "model.gguf", 0644, false, Sha256Digest()), Error);
  state.create_file(part.name(), 0600).write_at(0, as_bytes("xyz"));
  EXPECT_THROW(part.publish(state, "model.gguf", 0644, true, Sha256Digest()), Error);
  EXPECT_EQ(state.kind("model.gguf"), EntryKind::kAbsent);
}

TEST(PartFile, IntoAnotherFileSystemTheContentIsCopiedAndProved) {
  struct stat here {};
  struct stat there {};
  const TemporaryDirectory temporary;
  if (::stat("/dev/shm", &there) != 0 || ::stat(temporary.path().c_str(), &here) != 0 || here.st_dev == there.st_dev) {
    GTEST_SKIP() << "no second file system at /dev/shm";
  }
  char name[] = "/dev/shm/tierpack-test-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  {
    const Directory state = Directory::open(temporary.path(), true);
    const Directory target = Directory::open(name, false);
    PartFile part(state, "model.gguf", {.size = 3, .sha256 = Sha256Digest(), .validator = {}});
    part.write(0, as_bytes("abc"));
    EXPECT_THROW(part.publish(target, "model.gguf", 0644, false, Sha256Digest()), Error);
    EXPECT_TRUE(target.names().empty());
    const Sha256Digest right = Sha256::of(as_bytes("abc"));
    EXPECT_TRUE(part.publish(target, "model.gguf", 0644, false, right));
    EXPECT_EQ(target.read_small("model.gguf", 10), "abc");
    PartFile again(state, "model.gguf", {.size = 3, .sha256 = Sha256Digest(), .validator = {}});
    again.write(0, as_bytes("abc"));
    EXPECT_FALSE(again.publish(target, "model.gguf", 0644, false, right));
    EXPECT_EQ(target.names(), std::vector<std::string>{"model.gguf"});
  }
  std::filesystem::remove_all(name);
}

TEST(PartFile, ACheckpointOfAnEarlierPartIsIgnored) {
  const TemporaryDirectory dir;
  const Directory state = Directory::open(dir.path(), false);
  PartFile part(state, "model.gguf", {.size = 6, .sha256 = Sha256::of({})});
  part.write(0, as_bytes("abc"));
  const Journal old = part.snapshot();
  part.begin_anew();
  part.checkpoint(old);
  EXPECT_EQ(state.kind(state_name("model.gguf") + ".journal"), EntryKind::kAbsent);
}

TEST(PartFile, StateNamesDifferAndStayShort) {
  EXPECT_NE(state_name("a/model.gguf"), state_name("b/model.gguf"));
  EXPECT_LT(state_name(std::string(255, 'x')).size(), 200u);
}

TEST(DirectoryBelow, RefusesLinksOnTheWay) {
  const TemporaryDirectory dir;
  const TemporaryDirectory outside;
  const Directory top = Directory::open(dir.path(), false);
  fs::create_directory_symlink(outside.path(), dir.path() / "sub");
  EXPECT_THROW(top.below("sub", true), Error);
  EXPECT_THROW(top.below("sub/deeper", true), Error);
  EXPECT_THROW(top.find_below("sub"), Error);
  EXPECT_FALSE(top.find_below("absent/x").has_value());
  top.below("a/b/c", true);
  EXPECT_TRUE(fs::is_directory(dir.path() / "a/b/c"));
  write_text(dir.path() / "file", "");
  EXPECT_THROW(top.below("file/x", true), Error);
}

TEST(DirectoryLockTest, OneHolderAtATime) {
  const TemporaryDirectory dir;
  const Directory state = Directory::open(dir.path(), false);
  std::string holder;
  auto first = DirectoryLock::try_acquire(state, holder);
  ASSERT_TRUE(first);
  EXPECT_FALSE(DirectoryLock::try_acquire(state, holder).has_value());
  EXPECT_NE(holder.find(std::to_string(::getpid())), std::string::npos);
  first->release_and_remove(state);
  EXPECT_TRUE(DirectoryLock::try_acquire(state, holder).has_value());
}

}  // namespace
}  // namespace tierpack::fetch
