#include "verify/structure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "tests/support/errors.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_directory.h"
#include "verify/content_scan.h"
#include "verify/verify_path.h"

namespace tierpack::verify {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::GgufBuilder;
using testing_support::TempDirectory;
using testing_support::write_file;

std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// One F32 tensor of `values`.
std::string one_tensor(const std::string& name, const std::vector<float>& values) {
  return safetensors(fmt::format(R"({{"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", name, values.size(), values.size() * 4),
                     {reinterpret_cast<const char*>(values.data()), values.size() * 4});
}

class Structure : public testing::Test {
 protected:
  Report verify(bool deep = false, const fs::path& path = {}) const {
    VerifyOptions options;
    options.path = path.empty() ? dir_.path() : path;
    options.deep = deep;
    options.jobs = 2;
    return verify_path(options);
  }
  // "kind where: message" of all findings but that there is no reference.
  static std::vector<std::string> told(const Report& report) {
    std::vector<std::string> out;
    for (const Finding& item : report.findings) {
      if (item.kind == Finding::Kind::kUnproved) continue;
      out.push_back(fmt::format("{} {}: {}", finding_kind_name(item.kind), item.where, item.message));
    }
    return out;
  }
  TempDirectory dir_;
};

TEST_F(Structure, PointersInsteadOfFilesAreFound) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 12345\n";
  write_file(dir_ / "model.safetensors", pointer);
  write_file(dir_ / "model.gguf", pointer);
  write_file(dir_ / "tokenizer.model", pointer);
  write_file(dir_ / "about.txt", "what version https://git-lfs.github.com/spec/v1 is");
  const Report report = verify();
  EXPECT_EQ(report.problems(), 3u);
  for (const std::string& line : told(report)) EXPECT_THAT(line, HasSubstr("git-lfs pointer"));
}

TEST_F(Structure, WebPagesInsteadOfModelsAreFound) {
  write_file(dir_ / "model.gguf", "<!DOCTYPE html><html>Please log in</html>");
  write_file(dir_ / "model.safetensors", "\n <HTML>");
  write_file(dir_ / "page.html", "<html>");
  const Report report = verify();
  EXPECT_EQ(report.problems(), 2u);
  for (const std::string& line : told(report)) EXPECT_THAT(line, HasSubstr("web page"));
}

TEST_F(Structure, PicklesAreWarnedOf) {
  write_file(dir_ / "pytorch_model.bin", std::string("PK\x03\x04") + "archive/data.pkl");
  write_file(dir_ / "old.pt", "\x80\x02}q\x01.");
  write_file(dir_ / "data.bin", "no pickle at all");
  write_file(dir_ / "photo.zip", "PK\x03\x04");
  const Report report = verify();
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(told(report), ElementsAre(HasSubstr("suspicious old.pt: is a Python pickle"),
                                        HasSubstr("suspicious pytorch_model.bin: is a Python pickle")));
}

TEST_F(Structure, NumberedShardsMustBeComplete) {
  write_file(dir_ / "model-00001-of-00003.safetensors", one_tensor("a", {1}));
  write_file(dir_ / "model-00003-of-00003.safetensors", one_tensor("b", {1}));
  EXPECT_THAT(told(verify()), ElementsAre(HasSubstr("one is missing: number 2")));
  write_file(dir_ / "model-00002-of-00003.safetensors", one_tensor("c", {1}));
  EXPECT_THAT(told(verify()), ElementsAre(HasSubstr("suspicious model-00003-of-00003.safetensors: is one of several shards, but there is no")));
  write_file(dir_ / "model.safetensors.index.json",
             R"({"weight_map":{"a":"model-00001-of-00003.safetensors","b":"model-00003-of-00003.safetensors"}})");
  EXPECT_THAT(told(verify()), IsEmpty());  // a shard that the index never mentions is nobody's
  write_file(dir_ / "model.safetensors.index.json",
             R"({"weight_map":{"a":"model-00001-of-00003.safetensors","b":"model-00003-of-00003.safetensors","d":"model-00002-of-00003.safetensors"}})");
  EXPECT_THAT(told(verify()), ElementsAre(HasSubstr("that file does not hold it")));
  fs::remove(dir_ / "model-00003-of-00003.safetensors");
  EXPECT_THAT(told(verify()), ElementsAre(HasSubstr("structure model.safetensors.index.json")));
  // One file alone is judged alone.
  EXPECT_TRUE(verify(false, dir_ / "model-00001-of-00003.safetensors").ok());
}

TEST_F(Structure, TensorsOutsideTheIndexAreMentioned) {
  write_file(dir_ / "model-00001-of-00001.safetensors",
             safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", "xyz"));
  write_file(dir_ / "model.safetensors.index.json", R"({"weight_map":{"a":"model-00001-of-00001.safetensors"}})");
  const Report report = verify();
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(told(report), ElementsAre(HasSubstr("does not mention 1 tensor that its shards hold, such as 'b'")));
}

TEST_F(Structure, AGgufWithoutItsFirstShardIsFound) {
  GgufBuilder builder;
  builder.string("general.architecture", "x");
  for (const char* name : {"a", "b", "c"}) builder.add_f32(name, {32}, std::vector<float>(32, 1.f));
  builder.write_split(dir_.path(), "m", 3);
  EXPECT_TRUE(verify().ok());
  fs::remove(dir_ / "m-00001-of-00003.gguf");
  EXPECT_THAT(told(verify()), ElementsAre(HasSubstr("one is missing: number 1")));
}

TEST_F(Structure, SafetensorsRangesAreChecked) {
  const struct {
    const char* header;
    const char* message;
  } cases[] = {
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", "gap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "truncated"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "twice"},
  };
  for (const auto& item : cases) {
    write_file(dir_ / "m.safetensors", safetensors(item.header, "xyz"));
    EXPECT_THAT(told(verify()), Contains(HasSubstr(item.message))) << item.header;
  }
}

TEST_F(Structure, NotFiniteValuesAreFoundInDepth) {
  std::vector<float> values(5000, 0.5f);
  values[4000] = std::nanf("");
  values[4999] = -INFINITY;
  write_file(dir_ / "m.safetensors", one_tensor("w", values));
  GgufBuilder builder;
  builder.string("general.architecture", "x");
  builder.add_f32("plain", {32}, std::vector<float>(32, INFINITY));
  std::vector<std::byte> blocks(144 * 3, std::byte{1});
  blocks[144 + 2] = std::byte{0x01};  // dmin of the second block is NaN
  blocks[144 + 3] = std::byte{0x7E};
  builder.add_tensor("blocks", DType::kQ4_K, {768}, blocks);
  builder.write(dir_ / "m.gguf");
  EXPECT_TRUE(verify().ok());
  EXPECT_THAT(told(verify(true)),
              testing::UnorderedElementsAre("not finite m.gguf: tensor 'plain' holds 0 NaN and 32 infinite values",
                                            "not finite m.gguf: tensor 'blocks' holds 1 NaN and 0 infinite block scales",
                                            "not finite m.safetensors: tensor 'w' holds 1 NaN and 1 infinite values"));
}

TEST_F(Structure, LongRunsOfZerosAreWarnedOf) {
  std::mt19937 random(1);
  std::vector<float> values(2u << 20);
  for (float& value : values) value = static_cast<float>(random() % 1000 + 1);
  std::fill_n(values.begin() + 300000, (1u << 18) + 2048, 0.f);  // 1 MiB and 8 KiB, not aligned
  std::fill_n(values.begin() + 1000000, (1u << 18) - 4096, 0.f);  // too short
  write_file(dir_ / "m.safetensors", one_tensor("w", values));
  const Report report = verify(true);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(told(report), ElementsAre(testing::AllOf(HasSubstr("suspicious m.safetensors: tensor 'w' has 1.0"), HasSubstr("of zeros"))));
  // A proved file is what its publisher made.
  write_file(dir_ / "SHA256SUMS", Sha256::of(as_bytes(testing_support::read_file(dir_ / "m.safetensors"))).hex() + "  m.safetensors\n");
  EXPECT_THAT(told(verify(true)), ElementsAre(HasSubstr("as published")));
}

TEST_F(Structure, AnInterruptedFetchIsMentioned) {
  fs::create_directory(dir_ / ".tierpack");
  write_file(dir_ / ".tierpack/model-0123.part", "half");
  write_file(dir_ / ".tierpack/model-0123.damaged", "old");
  EXPECT_THAT(told(verify()), ElementsAre(HasSubstr("is a damaged file"), HasSubstr("is an unfinished download")));
}

TEST_F(Structure, NothingToCheckIsNoSuccess) {
  EXPECT_EQ(testing_support::thrown_by([&] { verify(); }).kind, ErrorKind::kUsage);
  fs::create_symlink(dir_ / "gone", dir_ / "model.gguf");
  EXPECT_THAT(told(verify()), ElementsAre("unreadable model.gguf: is a symbolic link to nothing"));
}

}  // namespace
}  // namespace tierpack::verify
