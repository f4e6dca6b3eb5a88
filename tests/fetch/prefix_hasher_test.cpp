#include "fetch/prefix_hasher.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <future>
#include <random>

namespace tierpack::fetch {
namespace {

std::shared_ptr<File> scratch_file(const std::string& name) {
  const auto path = std::filesystem::temp_directory_path() / ("tierpack-hasher-" + name);
  auto file = std::make_shared<File>(File::open(path, File::Mode::kCreateOrTruncate));
  std::filesystem::remove(path);
  return file;
}

std::vector<std::byte> noise(size_t size) {
  std::mt19937_64 random(7);
  std::vector<std::byte> out(size);
  for (auto& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(PrefixHasher, FollowsAGrowingFile) {
  const std::vector<std::byte> data = noise(20'000'003);
  const auto file = scratch_file("grow");
  PrefixHasher hasher(2);
  std::promise<HashResult> promise;
  const auto task = hasher.start(file, data.size(), [&](HashResult r) { promise.set_value(std::move(r)); });
  std::minstd_rand random(1);
  for (size_t at = 0; at < data.size();) {
    const size_t step = std::min<size_t>(1 + random() % 900'000, data.size() - at);
    file->write_at(at, Bytes(data).subspan(at, step));
    at += step;
    hasher.extend(task, at);
  }
  hasher.close(task, data.size());
  const HashResult result = promise.get_future().get();
  EXPECT_EQ(result.sha256, Sha256::of(data));
  Sha1 sha1;
  const std::string head = "blob " + std::to_string(data.size()) + '\0';
  sha1.update(as_bytes(head));
  sha1.update(data);
  EXPECT_EQ(result.git_sha1, sha1.finish().hex());
}

TEST(PrefixHasher, EmptyFile) {
  PrefixHasher hasher(1);
  std::promise<HashResult> promise;
  const auto task = hasher.start(scratch_file("empty"), std::nullopt, [&](HashResult r) { promise.set_value(std::move(r)); });
  hasher.close(task, 0);
  EXPECT_EQ(promise.get_future().get().sha256.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(PrefixHasher, ManyFilesShareThreads) {
  const std::vector<std::byte> data = noise(3'000'000);
  PrefixHasher hasher(3);
  std::vector<std::promise<HashResult>> promises(20);
  for (size_t i = 0; i < promises.size(); ++i) {
    const auto file = scratch_file("many" + std::to_string(i));
    file->write_at(0, Bytes(data).subspan(0, data.size() - i));
    const auto task = hasher.start(file, std::nullopt, [&, i](HashResult r) { promises[i].set_value(std::move(r)); });
    hasher.close(task, data.size() - i);
  }
  for (size_t i = 0; i < promises.size(); ++i) {
    EXPECT_EQ(promises[i].get_future().get().sha256, Sha256::of(Bytes(data).subspan(0, data.size() - i)));
  }
}

TEST(PrefixHasher, AFileThatCannotBeReadIsAnError) {
  PrefixHasher hasher(1);
  std::promise<HashResult> promise;
  const auto task = hasher.start(scratch_file("short"), std::nullopt, [&](HashResult r) { promise.set_value(std::move(r)); });
  hasher.close(task, 100);
  EXPECT_FALSE(promise.get_future().get().error.empty());
}

TEST(PrefixHasher, CancelledTasksStaySilent) {
  bool called = false;
  {
    PrefixHasher hasher(1);
    const auto task = hasher.start(scratch_file("cancel"), std::nullopt, [&](HashResult) { called = true; });
    hasher.cancel(task);
    hasher.close(task, 0);
  }
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace tierpack::fetch
