// Reading of good GGUF files: single, split, by directory, from a prefix; and writing of heads.
#include "formats/gguf.h"

#include <cstring>

#include <gtest/gtest.h>

#include "formats/model_config.h"
#include "tests/support/errors.h"
#include "tests/support/gguf_builder.h"

namespace tierpack {
namespace {

namespace fs = std::filesystem;
using testing_support::GgufBuilder;
using testing_support::thrown_by;

const std::string kPebble = TIERPACK_SOURCE_DIR "/models/pebble/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf";

// A fresh directory for one test.
fs::path scratch() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const fs::path path =
      fs::path(testing::TempDir()) / (std::string("tierpack_") + test->test_suite_name() + "_" + test->name());
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

GgufBuilder example() {
  GgufBuilder b;
  b.string("general.architecture", "test").u8("a.u8", 200).i8("a.i8", -100).u16("a.u16", 60000).i16("a.i16", -30000);
  b.u32("a.u32", 4000000000u).i32("a.i32", -2000000000).u64("a.u64", ~uint64_t{0}).i64("a.i64", -1);
  b.f32("a.f32", 0.1f).f64("a.f64", 0.1).boolean("a.yes", true).boolean("a.no", false).string("a.text", "é\0x");
  b.u8s("b.u8", {1, 255}).u32s("b.u32", {1, 2}).i32s("b.i32", {-1, 2}).u64s("b.u64", {1ull << 63}).i64s("b.i64", {-9});
  b.f32s("b.f32", {0.5f}).f64s("b.f64", {0.25}).bools("b.bool", {1, 0}).strings("b.text", {"one", "", "three"});
  b.add_f32("first", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  b.add_tensor("second.weight", DType::kQ4_0, {32, 3, 2});
  b.add_f32("scalar", {}, {9});
  b.add_tensor("last", DType::kF16, {3});
  return b;
}

GgufHeader parse(const std::vector<std::byte>& file) { return read_gguf_header(MemorySource(file, "test.gguf")); }

TEST(Gguf, ReadsEveryValueType) {
  const GgufHeader header = parse(example().build());
  const Metadata& m = header.metadata;
  EXPECT_EQ(m.u64("a.u8"), 200u);
  EXPECT_EQ(m.i64_array("a.i8"), std::vector<int64_t>{-100});
  EXPECT_EQ(m.u64("a.u16"), 60000u);
  EXPECT_EQ(m.i64_array("a.i16"), std::vector<int64_t>{-30000});
  EXPECT_EQ(m.u64("a.u32"), 4000000000u);
  EXPECT_EQ(m.i64_array("a.i32"), std::vector<int64_t>{-2000000000});
  EXPECT_EQ(m.u64("a.u64"), ~uint64_t{0});
  EXPECT_EQ(m.i64_array("a.i64"), std::vector<int64_t>{-1});
  EXPECT_EQ(m.f64("a.f32"), double{0.1f});
  EXPECT_EQ(m.f64("a.f64"), 0.1);
  EXPECT_TRUE(m.boolean_or("a.yes", false));
  EXPECT_FALSE(m.boolean_or("a.no", true));
  EXPECT_EQ(m.string("a.text"), "é");
  EXPECT_EQ(m.u64_array("b.u8"), (std::vector<uint64_t>{1, 255}));
  EXPECT_EQ(m.i64_array("b.i32"), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(m.u64_array("b.u64"), std::vector<uint64_t>{1ull << 63});
  EXPECT_EQ(m.f64_array("b.f32"), std::vector<double>{0.5});
  EXPECT_EQ(m.u64_array("b.bool"), (std::vector<uint64_t>{1, 0}));
  EXPECT_EQ(m.string_array("b.text"), (std::vector<std::string>{"one", "", "three"}));
}

TEST(Gguf, TensorsHaveAbsoluteOffsets) {
  const std::vector<std::byte> file = example().build();
  const GgufHeader header = parse(file);
  EXPECT_EQ(header.version, 3u);
  EXPECT_EQ(header.alignment, 32u);
  EXPECT_EQ(header.file_bytes, file.size());
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.tensors[0].offset, header.data_offset);
  EXPECT_EQ(load<float>(file.data() + header.tensors[0].offset + 4), 2.0f);
  EXPECT_EQ(header.tensors[1].dtype, DType::kQ4_0);
  EXPECT_EQ(header.tensors[1].bytes, 6u * 18);
  EXPECT_EQ(header.tensors[1].shape.text(), "{32, 3, 2}");
  EXPECT_EQ(header.tensors[1].shape.elements(), 192u);
  EXPECT_EQ(header.tensors[1].shape.rows(), 6u);
  EXPECT_EQ(header.tensors[2].shape.dims, 0u);
  EXPECT_EQ(load<float>(file.data() + header.tensors[2].offset), 9.0f);
  EXPECT_EQ(header.tensors[3].offset % 32, 0u);
  EXPECT_EQ(header.tensors[3].bytes, 6u);
}

TEST(Gguf, VersionTwoAndOtherAlignments) {
  GgufBuilder b = example();
  b.version = 2;
  b.set_alignment(4096);
  const GgufHeader header = parse(b.build());
  EXPECT_EQ(header.version, 2u);
  EXPECT_EQ(header.alignment, 4096u);
  EXPECT_EQ(header.data_offset % 4096, 0u);
  EXPECT_EQ(header.tensors[1].offset, header.data_offset + 4096);
}

TEST(Gguf, LastTensorNeedsNoPadding) {
  const GgufBuilder b = example();
  std::vector<std::byte> file = b.build();
  file.resize(b.build_head().size() + 32 + 128 + 32 + 6);
  EXPECT_EQ(parse(file).tensors.back().bytes, 6u);
  file.pop_back();
  EXPECT_EQ(thrown_by([&] { parse(file); }).kind, ErrorKind::kCorrupt);
}

TEST(Gguf, OrderAndGapsOfDataAreFree) {
  GgufBuilder b;
  b.add_f32("a", {2}, {1, 2}).add_f32("b", {2}, {3, 4});
  b.tensors[0].offset = 96;
  b.tensors[1].offset = 0;
  std::vector<std::byte> file = b.build_head();
  file.resize(file.size() + 104);
  const GgufHeader header = parse(file);
  EXPECT_EQ(header.tensors[0].offset, header.data_offset + 96);
  EXPECT_EQ(header.tensors[1].offset, header.data_offset);
}

TEST(Gguf, NoTensorsNoPadding) {
  GgufBuilder b;
  b.u32("x", 1);
  const std::vector<std::byte> file = b.build();
  const GgufHeader header = parse(file);
  EXPECT_TRUE(header.tensors.empty());
  EXPECT_EQ(header.data_offset, file.size());
}

TEST(Gguf, PrefixIsEnough) {
  const std::vector<std::byte> file = example().build();
  const std::vector<std::byte> head = example().build_head();
  const GgufHeader header = read_gguf_header(MemorySource(head, "prefix"), file.size());
  EXPECT_EQ(header.file_bytes, file.size());
  EXPECT_EQ(header.tensors.size(), 4u);
  // A promise that is too small for the data, and a prefix that is too small for the head.
  EXPECT_EQ(thrown_by([&] { read_gguf_header(MemorySource(head, "prefix"), file.size() - 32); }).kind,
            ErrorKind::kCorrupt);
  const Bytes part = Bytes(head).first(head.size() / 2);
  EXPECT_EQ(thrown_by([&] { read_gguf_header(MemorySource(part, "prefix"), file.size()); }).kind, ErrorKind::kCorrupt);
}

TEST(Gguf, ReadsLittleMoreThanTheHead) {
  class CountingSource final : public ByteSource {
   public:
    CountingSource(Bytes data, uint64_t total_bytes) : data_(data), total_bytes_(total_bytes) {}
    uint64_t size() const override { return total_bytes_; }
    void read_at(uint64_t offset, MutableBytes out) const override {
      read_bytes += out.size();
      std::memset(out.data(), 0, out.size());
      if (offset < data_.size()) {
        std::memcpy(out.data(), data_.data() + offset, std::min<uint64_t>(out.size(), data_.size() - offset));
      }
    }
    const std::string& name() const override { return name_; }
    mutable uint64_t read_bytes = 0;

   private:
    Bytes data_;
    uint64_t total_bytes_;
    std::string name_ = "large.gguf";
  };
  const std::vector<std::byte> head = example().build_head();
  const CountingSource source(head, uint64_t{50} << 30);
  EXPECT_EQ(read_gguf_header(source).tensors.size(), 4u);
  EXPECT_LE(source.read_bytes, 65536u);
}

TEST(Gguf, EncodedHeadReadsBack) {
  for (const uint32_t alignment : {32u, 256u}) {
    GgufBuilder b = example();
    if (alignment != 32) b.set_alignment(alignment);
    const std::vector<std::byte> file = b.build();
    const GgufHeader header = parse(file);
    std::vector<TensorInfo> tensors = header.tensors;
    for (TensorInfo& tensor : tensors) tensor.offset -= header.data_offset;
    const std::vector<std::byte> again = encode_gguf_header(header.metadata, tensors, alignment);
    EXPECT_EQ(again, b.build_head());
  }
  EXPECT_EQ(thrown_by([] { encode_gguf_header(Metadata(), {}, 64); }).kind, ErrorKind::kInternal);
}

TEST(Gguf, PebbleReads) {
  const GgufSource source = open_gguf(kPebble);
  ASSERT_EQ(source.paths.size(), 2u);
  EXPECT_EQ(source.tensors.size(), source.metadata().u64("split.tensors.count"));
  const TensorInfo* rows = source.find("per_layer_token_embd.weight");
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->shard, 1u);
  EXPECT_EQ(rows->dtype, DType::kQ5_0);
  const TensorInfo* gate = source.find("blk.0.ffn_gate_exps.weight");
  ASSERT_TRUE(gate);
  EXPECT_EQ(gate->dtype, DType::kQ4_K);
  EXPECT_EQ(gate->shape.text(), "{256, 96, 32}");
  EXPECT_FALSE(source.find("blk.9.ffn_gate_exps.weight"));
  // Our writer gives back the head of every shard, byte for byte.
  for (size_t shard = 0; shard < 2; ++shard) {
    const GgufHeader& header = source.headers[shard];
    std::vector<TensorInfo> tensors = header.tensors;
    for (TensorInfo& tensor : tensors) tensor.offset -= header.data_offset;
    std::vector<std::byte> head(header.data_offset);
    source.files[shard].read_at(0, head);
    EXPECT_EQ(encode_gguf_header(header.metadata, tensors, header.alignment), head);
  }
}

TEST(GgufSplit, ShardsAreFoundFromTheFirst) {
  const fs::path directory = scratch();
  const fs::path first = example().write_split(directory, "model", 3);
  const GgufSource source = open_gguf(first);
  EXPECT_EQ(source.paths.size(), 3u);
  ASSERT_EQ(source.tensors.size(), 4u);
  EXPECT_EQ(source.find("first")->shard, 0u);
  EXPECT_EQ(source.find("last")->shard, 2u);
  EXPECT_EQ(source.headers[2].tensors[0].name, "scalar");
  EXPECT_EQ(source.metadata().string("general.architecture"), "test");
}

TEST(GgufSplit, OtherShardsAreRefusedWithTheNameOfTheFirst) {
  const fs::path directory = scratch();
  example().write_split(directory, "model", 3);
  const auto thrown = thrown_by([&] { open_gguf(directory / "model-00002-of-00003.gguf"); });
  EXPECT_EQ(thrown.kind, ErrorKind::kUsage);
  EXPECT_NE(thrown.message.find("model-00001-of-00003.gguf"), std::string::npos) << thrown.message;
}

TEST(GgufSplit, MissingShardsAreNamed) {
  const fs::path directory = scratch();
  const fs::path first = example().write_split(directory, "model", 3);
  fs::remove(directory / "model-00002-of-00003.gguf");
  const auto thrown = thrown_by([&] { open_gguf(first); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_NE(thrown.message.find("model-00002-of-00003.gguf"), std::string::npos) << thrown.message;
  EXPECT_EQ(thrown.message.find("model-00003-of-00003.gguf"), std::string::npos) << thrown.message;
}

TEST(GgufSplit, InconsistentSetsAreCorrupt) {
  const fs::path directory = scratch();
  const auto corrupt = [&](const std::string& part) {
    const auto thrown = thrown_by([&] { open_gguf(directory / "model-00001-of-00002.gguf"); });
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << thrown.message;
    EXPECT_NE(thrown.message.find(part), std::string::npos) << thrown.message;
  };
  const fs::path second = directory / "model-00002-of-00002.gguf";
  const auto files = example().build_split(2);

  example().write_split(directory, "model", 2);
  GgufBuilder::save(second, files[0]);
  corrupt("the header says shard 1 of 2");

  GgufBuilder lone;
  lone.add_f32("x", {1}, {1});
  lone.write(second);
  corrupt("split.no");

  GgufBuilder twice;
  twice.u16("split.no", 1).u16("split.count", 2).add_f32("first", {1}, {1}).write(second);
  corrupt("'first' is already in shard 1");

  GgufBuilder fewer;
  fewer.u16("split.no", 1).u16("split.count", 2).add_f32("other", {1}, {1}).write(second);
  corrupt("promises 4 tensors over all shards, found 3");

  fs::rename(directory / "model-00001-of-00002.gguf", directory / "renamed.gguf");
  const auto thrown = thrown_by([&] { open_gguf(directory / "renamed.gguf"); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_NE(thrown.message.find("-00001-of-00002.gguf"), std::string::npos) << thrown.message;

  GgufBuilder many;
  many.u16("split.no", 0).u16("split.count", 60000).write(directory / "model-00001-of-60000.gguf");
  EXPECT_EQ(thrown_by([&] { open_gguf(directory / "model-00001-of-60000.gguf"); }).kind, ErrorKind::kCorrupt);
}

TEST(GgufSplit, CountOfOneIsNotSplit) {
  const fs::path directory = scratch();
  GgufBuilder b = example();
  b.u16("split.count", 0).write(directory / "a.gguf");
  EXPECT_EQ(open_gguf(directory / "a.gguf").paths.size(), 1u);
}

TEST(GgufDirectory, HoldsExactlyOneModel) {
  const fs::path directory = scratch();
  EXPECT_EQ(thrown_by([&] { open_gguf(directory); }).kind, ErrorKind::kUsage);

  fs::create_directories(directory / "Q4_K_M");
  fs::create_directories(directory / ".cache");
  example().write_split(directory / "Q4_K_M", "model", 3);
  example().write(directory / "mmproj-model.gguf");
  example().write(directory / "mtp-model.gguf");
  example().write(directory / ".cache" / "x.gguf");
  example().write(directory / "notes.txt");
  EXPECT_EQ(open_gguf(directory).paths.size(), 3u);

  fs::remove(directory / "Q4_K_M" / "model-00001-of-00003.gguf");
  const auto missing = thrown_by([&] { open_gguf(directory); });
  EXPECT_EQ(missing.kind, ErrorKind::kCorrupt) << missing.message;

  example().write(directory / "other.gguf");
  const auto several = thrown_by([&] { open_gguf(directory); });
  EXPECT_EQ(several.kind, ErrorKind::kUsage);
  EXPECT_NE(several.message.find("other.gguf"), std::string::npos) << several.message;
}

TEST(GgufDirectory, MissingPathIsAnIoError) {
  EXPECT_EQ(thrown_by([&] { open_gguf(scratch() / "none.gguf"); }).kind, ErrorKind::kIo);
}

}  // namespace
}  // namespace tierpack
