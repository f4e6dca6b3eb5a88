#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>

#include "base/error.h"

namespace tierpack {
namespace {

namespace fs = std::filesystem;

std::string file_of(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  out += header;
  for (size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i * 7);
  return out;
}

SafetensorsHeader parse(std::string_view file) { return read_safetensors_header(MemorySource(as_bytes(file), "test")); }

// The kind and text of the failure; kInternal when there is none.
std::pair<ErrorKind, std::string> failure(std::string_view file) {
  try {
    parse(file);
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  return {ErrorKind::kInternal, "accepted"};
}

void expect_corrupt(std::string_view header, size_t data_bytes, const char* part) {
  const auto [kind, text] = failure(file_of(header, data_bytes));
  EXPECT_EQ(kind, ErrorKind::kCorrupt) << header;
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  from " << header;
}

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
    R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}   )";

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const SafetensorsHeader header = parse(file_of(kTwo, 16));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.data_offset, 8 + kTwo.size());
  EXPECT_EQ(header.file_bytes, 8 + kTwo.size() + 16);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, HfType::kBF16);
  EXPECT_EQ(hf_shape_text(header.tensors[0].shape), "[2, 3]");
  EXPECT_EQ(header.tensors[0].elements(), 6u);
  EXPECT_EQ(header.tensors[0].offset, header.data_offset);
  EXPECT_EQ(header.tensors[0].bytes, 12u);
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].elements(), 1u);
  EXPECT_EQ(hf_shape_text(header.tensors[1].shape), "[]");
  ASSERT_EQ(header.metadata.size(), 1u);
  EXPECT_EQ(header.metadata[0].second, "pt");
  EXPECT_EQ(header.find("b"), &header.tensors[1]);
  EXPECT_EQ(header.find("c"), nullptr);
}

TEST(Safetensors, ViewsSurviveAMove) {
  SafetensorsHeader header = parse(file_of(kTwo, 16));
  const SafetensorsHeader moved = std::move(header);
  EXPECT_EQ(moved.find("a")->name, "a");
  EXPECT_EQ(moved.tensors[0].shape[1], 3u);
}

TEST(Safetensors, AcceptsWhatTheReferenceAccepts) {
  EXPECT_EQ(parse(file_of("{}", 0)).tensors.size(), 0u);
  EXPECT_EQ(parse(file_of("{}      ", 0)).tensors.size(), 0u);
  EXPECT_EQ(parse(file_of(R"({"__metadata__":{}})", 0)).tensors.size(), 0u);
  // Empty tensors, anywhere; a dimension of 0 beside one that would overflow.
  const auto empty = parse(file_of(R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},
    "x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},
    "z":{"dtype":"F64","shape":[18446744073709551615,0,18446744073709551615],"data_offsets":[3,3]}})",
                                   3));
  EXPECT_EQ(empty.tensors.size(), 4u);
  // Members that a later version adds; sub-byte types that fill whole bytes; escaped names.
  const auto later =
      parse(file_of(R"({"a\u0062":{"dtype":"F4","shape":[2],"new":{"x":[1,{}]},"data_offsets":[0,1]}})", 1));
  EXPECT_EQ(later.tensors[0].name, "ab");
}

TEST(Safetensors, KnowsEveryType) {
  for (const HfTypeTraits& traits : all_hf_types()) {
    const uint64_t bytes = traits.bits;  // 8 elements
    const std::string header =
        fmt::format(R"({{"t":{{"dtype":"{}","shape":[8],"data_offsets":[0,{}]}}}})", traits.name, bytes);
    EXPECT_EQ(parse(file_of(header, bytes)).tensors[0].dtype, traits.type) << traits.name;
  }
  const auto [kind, text] = failure(file_of(R"({"t":{"dtype":"F8_E4M3B11","shape":[],"data_offsets":[0,1]}})", 1));
  EXPECT_EQ(kind, ErrorKind::kUnsupported);
  EXPECT_NE(text.find("F8_E4M3B11"), std::string::npos) << text;
  EXPECT_EQ(hf_type_from_name("bf16"), std::nullopt);
}

TEST(Safetensors, RefusesEveryTruncationAndExtension) {
  const std::string whole = file_of(kTwo, 16);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto [kind, text] = failure(std::string_view(whole).substr(0, size));
    EXPECT_EQ(kind, ErrorKind::kCorrupt) << size << ": " << text;
  }
  EXPECT_EQ(failure(whole + "x").first, ErrorKind::kCorrupt);
  EXPECT_NE(failure(whole + "x").second.find("belong to no tensor"), std::string::npos);
}

TEST(Safetensors, RefusesHeaderLengthsThatCannotBe) {
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7, uint64_t{3}}) {
    std::string file(reinterpret_cast<const char*>(&length), 8);
    EXPECT_EQ(failure(file + "{}").first, ErrorKind::kCorrupt) << length;
  }
  EXPECT_EQ(failure(file_of("", 0)).first, ErrorKind::kCorrupt);
}

TEST(Safetensors, RefusesLayoutsWithGapsOrOverlaps) {
  const auto two = [](int begin, int end) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},
      "b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       end - begin, begin, end);
  };
  EXPECT_EQ(parse(file_of(two(4, 8), 8)).tensors.size(), 2u);
  expect_corrupt(two(3, 8), 8, "overlap");
  expect_corrupt(two(0, 8), 8, "overlap");
  expect_corrupt(two(5, 8), 8, "gap");
  expect_corrupt(two(4, 8), 9, "belong to no tensor");
  expect_corrupt(two(4, 8), 7, "truncated");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, "gap");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1152921504606846976],"data_offsets":[0,1152921504606846976]}})", 9,
                 "truncated");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}})", 9,
                 "too large");
}

TEST(Safetensors, RefusesSizesThatContradictEachOther) {
  const auto one = [](const char* dtype, const char* shape, const char* offsets) {
    return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
  };
  expect_corrupt(one("F32", "[2]", "[0,4]"), 4, "takes 8 bytes");
  expect_corrupt(one("F32", "[]", "[0,0]"), 0, "takes 4 bytes");
  expect_corrupt(one("F32", "[0]", "[0,4]"), 4, "takes 0 bytes");
  expect_corrupt(one("F4", "[3]", "[0,2]"), 2, "whole number of bytes");
  expect_corrupt(one("F32", "[4294967296,4294967296]", "[0,4]"), 4, "too large");
  expect_corrupt(one("U8", "[18446744073709551615,2]", "[0,4]"), 4, "too large");
  expect_corrupt(one("U8", "[4]", "[4,0]"), 4, "data_offsets");
  expect_corrupt(one("U8", "[4]", "[0]"), 4, "data_offsets");
  expect_corrupt(one("U8", "[4]", "[0,4,4]"), 4, "data_offsets");
  expect_corrupt(one("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "dimensions");
}

TEST(Safetensors, RefusesMalformedHeaders) {
  expect_corrupt("[]", 0, "not a JSON object");
  expect_corrupt("null", 0, "not a JSON object");
  expect_corrupt("{} {}", 0, "after the end");
  expect_corrupt(std::string_view("{}\0\0", 4), 0, "after the end");
  expect_corrupt(R"({"a":1})", 0, "description");
  expect_corrupt(R"({"a":{}})", 0, "no dtype");
  expect_corrupt(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, "no shape");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[0]}})", 0, "no data_offsets");
  expect_corrupt(R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})", 0, "dtype");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":4,"data_offsets":[0,4]}})", 4, "shape");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4, "dimension");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", 4, "dimension");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,1e400]}})", 4, "offset");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})", 4, "dimension");
  expect_corrupt(R"({"__metadata__":{"a":1}})", 0, "__metadata__");
  expect_corrupt(R"({"__metadata__":[]})", 0, "__metadata__");
  expect_corrupt("{\"a\xFF\":{}}", 0, "UTF-8");
  expect_corrupt(R"({"\u001b[2J":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, "control");
  expect_corrupt(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}})", std::string(4097, 'x')),
                 0, "too long");
  expect_corrupt(R"({"a":)" + std::string(1'000'000, '['), 0, "description");
  expect_corrupt(R"({"a":{"x":)" + std::string(1'000'000, '['), 0, "nested");
}

TEST(Safetensors, RefusesDuplicateKeys) {
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
      "twice");
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      2, "twice");
  expect_corrupt(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "twice");
  expect_corrupt(R"({"__metadata__":{},"__metadata__":{}})", 0, "twice");
  expect_corrupt(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "twice");
}

TEST(Safetensors, APrefixIsCheckedAgainstThePromisedSize) {
  const std::string whole = file_of(kTwo, 16);
  const std::string_view head = std::string_view(whole).substr(0, 8 + kTwo.size());
  const MemorySource prefix(as_bytes(head), "part");
  EXPECT_EQ(read_safetensors_header(prefix, whole.size()).tensors.size(), 2u);
  EXPECT_THROW(read_safetensors_header(prefix, whole.size() + 1), Error);
  EXPECT_THROW(read_safetensors_header(prefix, whole.size() - 1), Error);
  EXPECT_THROW(read_safetensors_header(MemorySource(as_bytes(head.substr(0, 30)), "part"), whole.size()), Error);
  EXPECT_EQ(safetensors_header_bytes(as_bytes(head), whole.size(), "part"), head.size());
  EXPECT_EQ(safetensors_header_bytes(as_bytes(head.substr(0, 7)), whole.size(), "part"), std::nullopt);
  EXPECT_THROW(safetensors_header_bytes(as_bytes(head), 20, "part"), Error);
  EXPECT_THROW(safetensors_header_bytes(as_bytes(head), 5, "part"), Error);
}

// A header as large as the largest published ones. The limit is loose because test machines are shared and sanitised.
TEST(Safetensors, ThreeHundredThousandTensorsParseInSeconds) {
  std::string header = "{";
  uint64_t at = 0;
  for (int i = 0; i < 300'000; ++i) {
    header += fmt::format(
        R"({}"model.language_model.layers.{}.mlp.experts.{}.gate_proj.weight_scale_{}":{{"dtype":"U8","shape":[1,2],"data_offsets":[{},{}]}})",
        i > 0 ? "," : "", i / 6144, i / 12 % 512, i % 12, at, at + 2);
    at += 2;
  }
  header += "}";
  const std::string file = file_of(header, at);
  const auto start = std::chrono::steady_clock::now();
  const SafetensorsHeader parsed = parse(file);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(parsed.tensors.size(), 300'000u);
  EXPECT_LT(std::chrono::duration<double>(took).count(), 20.0);
  EXPECT_EQ(parsed.find("model.language_model.layers.49.mlp.experts.511.gate_proj.weight_scale_3"), nullptr);
  EXPECT_NE(parsed.find("model.language_model.layers.3.mlp.experts.11.gate_proj.weight_scale_3"), nullptr);
}

// ---- split checkpoints

class Split : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(TIERPACK_BINARY_DIR) / "test_files" / "safetensors" /
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void write(const std::string& name, std::string_view content) const {
    std::ofstream(directory_ / name, std::ios::binary) << content;
  }
  // A file with U8 tensors of one byte each.
  void write_shard(const std::string& name, const std::vector<std::string>& tensors) const {
    std::string header = "{";
    for (size_t i = 0; i < tensors.size(); ++i) {
      header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i > 0 ? "," : "",
                            tensors[i], i, i + 1);
    }
    write(name, file_of(header + "}", tensors.size()));
  }
  void write_index(const std::map<std::string, std::string>& map,
                   const char* name = "model.safetensors.index.json") const {
    std::string text;
    for (const auto& [tensor, file] : map)
      text += fmt::format("{}\"{}\":\"{}\"", text.empty() ? "" : ",", tensor, file);
    write(name, R"({"metadata":{"total_size":1.5e9},"weight_map":{)" + text + "}}");
  }
  std::pair<ErrorKind, std::string> failure() const {
    try {
      SafetensorsSource::open(directory_);
    } catch (const Error& e) {
      return {e.kind(), e.what()};
    }
    return {ErrorKind::kInternal, "accepted"};
  }
  void expect_failure(ErrorKind kind, const char* part) const {
    const auto [found, text] = failure();
    EXPECT_EQ(found, kind) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  fs::path directory_;
};

TEST_F(Split, OpensShardsThroughTheIndex) {
  write_shard("model-00001-of-00002.safetensors", {"a", "b"});
  write_shard("model-00002-of-00002.safetensors", {"c", "d", "b"});
  write_index({{"d", "model-00002-of-00002.safetensors"},
               {"a", "model-00001-of-00002.safetensors"},
               {"b", "model-00002-of-00002.safetensors"}});
  const SafetensorsSource source = SafetensorsSource::open(directory_);
  ASSERT_EQ(source.shards().size(), 2u);
  EXPECT_EQ(source.shards()[1].file_name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(source.shards()[1].first_tensor, 2u);
  EXPECT_EQ(source.tensors().size(), 5u);
  EXPECT_EQ(source.find("c"), nullptr) << "not listed";
  ASSERT_NE(source.find("b"), nullptr);
  EXPECT_EQ(source.find("b")->shard, 1u) << "the index decides between two shards with the same name";
  size_t listed = 0;
  for (const auto& tensor : source.tensors()) listed += tensor.listed;
  EXPECT_EQ(listed, 3u);
  std::byte value{};
  source.read(*source.find("d"), 0, {&value, 1});
  EXPECT_EQ(value, std::byte{7});
  source.read(*source.find("b"), 0, {&value, 1});
  EXPECT_EQ(value, std::byte{14});
}

TEST_F(Split, OpensASingleFileByFolderOrName) {
  write_shard("model.safetensors", {"a"});
  EXPECT_EQ(SafetensorsSource::open(directory_).tensors().size(), 1u);
  EXPECT_EQ(SafetensorsSource::open(directory_ / "model.safetensors").find("a")->shard, 0u);
  write_shard("consolidated.safetensors", {"a", "b"});
  EXPECT_EQ(SafetensorsSource::open(directory_).tensors().size(), 1u) << "the usual name";
  EXPECT_EQ(SafetensorsSource::open(directory_ / "consolidated.safetensors").tensors().size(), 2u);
}

TEST_F(Split, FollowsLinksAsHubCachesHaveThem) {
  fs::create_directory(directory_ / "blobs");
  write_shard("blobs/1234", {"a"});
  fs::create_symlink("blobs/1234", directory_ / "model.safetensors");
  EXPECT_EQ(SafetensorsSource::open(directory_).tensors().size(), 1u);
}

TEST_F(Split, SaysWhenTheFolderIsUnclear) {
  expect_failure(ErrorKind::kUsage, "holds no .safetensors file");
  write_shard("x.safetensors", {"a"});
  write_shard("y.safetensors", {"a"});
  expect_failure(ErrorKind::kUsage, "name the one to open");
  write_index({{"a", "x.safetensors"}}, "x.safetensors.index.json");
  EXPECT_EQ(SafetensorsSource::open(directory_).shards().size(), 1u);
  write_index({{"a", "y.safetensors"}}, "y.safetensors.index.json");
  expect_failure(ErrorKind::kUsage, "2 index files");
  EXPECT_EQ(SafetensorsSource::open(directory_ / "y.safetensors.index.json").shards()[0].file_name, "y.safetensors");
}

TEST_F(Split, MissingShardsAndTensorsAreNamed) {
  write_shard("one.safetensors", {"a"});
  write_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  expect_failure(ErrorKind::kCorrupt, "two.safetensors");
  write_shard("two.safetensors", {"c"});
  expect_failure(ErrorKind::kCorrupt, "places tensor 'b' in two.safetensors");
  write_shard("two.safetensors", {"b"});
  EXPECT_EQ(SafetensorsSource::open(directory_).tensors().size(), 2u);
  write("two.safetensors", "short");
  expect_failure(ErrorKind::kCorrupt, "two.safetensors");
}

TEST_F(Split, AnIndexCannotReachOutOfItsFolder) {
  fs::create_directory(directory_ / "sub");
  write_shard("sub/x.safetensors", {"a"});
  for (const char* name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".", "", "a\\\\b", "a\\u0000b",
                           "a\\nb", "./x.safetensors"}) {
    write_index({{"a", name}});
    expect_failure(ErrorKind::kCorrupt, "weight_map names a file outside");
  }
  write_index({{"a", std::string(256, 'x')}});
  expect_failure(ErrorKind::kCorrupt, "weight_map names a file outside");
  write_index({{"a", "sub"}});
  EXPECT_NE(failure().first, ErrorKind::kInternal);
}

TEST_F(Split, ATensorListedTwiceIsRefused) {
  write_shard("x.safetensors", {"a", "b"});
  write_shard("y.safetensors", {"a"});
  for (const char* map : {R"("a":"x.safetensors","b":"x.safetensors","a":"x.safetensors")",
                          R"("a":"x.safetensors","\u0061":"x.safetensors")",
                          R"("a":"x.safetensors","a":"y.safetensors")", R"("a":"y.safetensors","a":"x.safetensors")"}) {
    write("model.safetensors.index.json", fmt::format(R"({{"weight_map":{{{}}}}})", map));
    expect_failure(ErrorKind::kCorrupt, "lists tensor 'a' twice");
  }
}

TEST(SafetensorsIndex, RefusesMalformedText) {
  for (const char* text :
       {"", "[]", "{}", "{\"weight_map\":[]}", "{\"weight_map\":{\"a\":1}}", "{\"weight_map\":{\"a\":null}}",
        "{\"weight_map\":{\"a\":\"f\"}", "{\"weight_map\":{},\"weight_map\":{}}", "{\"weight_map\":{\"\\n\":\"f\"}}",
        "{\"weight_map\":{}} x"}) {
    try {
      safetensors_index_files(text, "index");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kCorrupt) << text;
    }
  }
}

TEST(SafetensorsIndex, GivesFilesSortedAndTensorsInOrder) {
  const std::string text = R"({"weight_map":{"z":"2.s","\u0061":"\u0031.s","m":"2.s"},"metadata":{"x":[{}]}})";
  EXPECT_EQ(safetensors_index_files(text, "index"), (std::vector<std::string>{"1.s", "2.s"}));
  std::string seen;
  walk_safetensors_index(text, "index", [&](std::string_view tensor, std::string_view file) {
    seen += fmt::format("{} in {}; ", tensor, file);
  });
  EXPECT_EQ(seen, "z in 2.s; a in 1.s; m in 2.s; ");
}

}  // namespace
}  // namespace tierpack
