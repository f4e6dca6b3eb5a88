// A checkpoint whose rows are spread over shards: codes, scales, windows of columns, alternating rows and transposed matrices, put together
// by gathers. Whole, stopped on the way, in shares and with shards that go while the others are copied.
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/pack_layout.h"
#include "formats/packed_shard.h"
#include "formats/row_groups.h"
#include "repack/pack_writer.h"
#include "tests/support/errors.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/naive_rows.h"
#include "tests/support/temp_directory.h"

namespace tierpack::repack {
namespace {

namespace fs = std::filesystem;
using testing_support::GgufBuilder;
using testing_support::naive_source_row;
using testing_support::read_tree;
using testing_support::TempDirectory;
using testing_support::thrown_by;

constexpr uint32_t kExperts = 8, kHidden = 256, kFf = 128;
constexpr size_t kShards = 3;

// The bytes of a deleted file.
class Gone final : public ByteSource {
 public:
  Gone(std::string name, uint64_t size) : name_(std::move(name)), size_(size) {}
  uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  void read_at(uint64_t, MutableBytes) const override { fail(ErrorKind::kUsage, "{}: was deleted", name_); }

 private:
  std::string name_;
  uint64_t size_;
};

class Gathers : public testing::Test {
 protected:
  Gathers() {
    const uint32_t embedding = add("token_embd.weight", DType::kF32, {kHidden, 4});
    const uint32_t router = add("blk.0.ffn_gate_inp.weight", DType::kF32, {kHidden, kExperts});
    const uint32_t query = add("blk.0.attn_q.weight", DType::kMXFP4, {kHidden, 200});
    const uint32_t gate = add("blk.0.ffn_gate_exps.weight", DType::kNVFP4, {kHidden, kFf, kExperts});
    const uint32_t up = add("blk.0.ffn_up_exps.weight", DType::kNVFP4, {kHidden, kFf, kExperts});
    const uint32_t down = add("blk.0.ffn_down_exps.weight", DType::kF8_E4M3, {kFf, kHidden, kExperts});
    const uint32_t table = add("per_layer_token_embd.weight", DType::kBF16, {64, 3000});
    derived_ = {info("blk.0.attn_norm.weight", DType::kF32, {kHidden}), info("blk.0.ffn_gate_exps.scale", DType::kF32, {1, 1, kExperts}),
                info("blk.0.ffn_up_exps.scale", DType::kF32, {kExperts}), info("blk.0.ffn_down_exps.scale", DType::kF32, {1, kHidden, kExperts})};
    // What is gathered with the codes of shard 1 lies before and behind it, the table's columns in shards 1 and 2.
    keep(0, 1000);
    for (uint64_t e = 0; e < kExperts; ++e) alternate(0, gate, up, RowField::kNvfp4Scales, e);
    rows(0, embedding, {.rows = 4, .columns = kHidden, .tiles = {}});
    for (uint64_t e = 0; e < kExperts / 2; ++e) transposed(0, down, e);
    keep(1, 500);
    for (uint64_t e = 0; e < kExperts; ++e) alternate(1, gate, up, RowField::kNvfp4Codes, e);
    rows(1, table, {.rows = 3000, .first_column = 24, .columns = 40, .tiles = {}});
    rows(1, query, {.field = RowField::kMxfp4Scales, .rows = 200, .columns = kHidden, .tiles = {2, 4, 32}});
    keep(2, 77);
    rows(2, table, {.rows = 3000, .columns = 24, .tiles = {}});
    rows(2, query, {.field = RowField::kMxfp4Codes, .rows = 200, .columns = kHidden, .tiles = {2, 4, 32}});
    rows(2, router, {.rows = kExperts, .columns = kHidden, .tiles = {2, 2, 64}});
    for (uint64_t e = kExperts / 2; e < kExperts; ++e) transposed(2, down, e);
    keep(2, 9);
    write_files();
  }

  static TensorInfo info(const std::string& name, DType dtype, std::vector<uint64_t> dims) {
    TensorInfo out;
    out.name = name;
    out.dtype = dtype;
    out.shape.dims = static_cast<uint32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), out.shape.ne.begin());
    out.bytes = *checked_tensor_bytes(dtype, out.shape);
    return out;
  }
  std::vector<std::byte> noise(uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random_());
    return out;
  }
  uint32_t add(const std::string& name, DType dtype, std::vector<uint64_t> dims) {
    tensors_.push_back(info(name, dtype, std::move(dims)));
    content_.push_back(noise(tensors_.back().bytes));
    return static_cast<uint32_t>(tensors_.size() - 1);
  }
  void keep(size_t shard, uint64_t bytes) {
    const std::vector<std::byte> more = noise(bytes);
    bytes_[shard].insert(bytes_[shard].end(), more.begin(), more.end());
  }
  void rows(size_t shard, uint32_t tensor, const RowPiece& piece) {
    MovedRows moved{bytes_[shard].size(), 0, tensor, piece};
    const TensorInfo& t = tensors_[tensor];
    const RowLayout layout{t.dtype, t.shape.ne[0], piece.field, piece.first_column, piece.columns, piece.tiles};
    const uint64_t stride = row_bytes(t.dtype, t.shape.ne[0]);
    for (uint64_t i = 0; i < piece.rows; ++i) {
      std::vector<std::byte> row;
      if (piece.transposed) {  // elements of one byte
        for (uint64_t j = 0; j < piece.columns; ++j) row.push_back(content_[tensor][(piece.first_row + j) * stride + piece.first_column + i]);
      } else {
        const bool odd = piece.ways == 2 && i % 2 == 1;
        row = naive_source_row(layout, &content_[odd ? piece.other : tensor][((odd ? piece.other_first_row : piece.first_row) + i / piece.ways) * stride]);
      }
      bytes_[shard].insert(bytes_[shard].end(), row.begin(), row.end());
      moved.bytes += row.size();
    }
    moved_[shard].push_back(moved);
  }
  void alternate(size_t shard, uint32_t gate, uint32_t up, RowField field, uint64_t e) {
    rows(shard, gate, {.field = field, .ways = 2, .other = up, .first_row = e * kFf, .other_first_row = e * kFf, .rows = 2 * kFf, .columns = kHidden,
                       .tiles = {}});
  }
  void transposed(size_t shard, uint32_t down, uint64_t e) {
    rows(shard, down, {.transposed = true, .first_row = e * kHidden, .rows = kFf, .columns = kHidden, .tiles = {}});
  }

  fs::path file(size_t shard) const { return dir_ / fmt::format("model-{}.safetensors", shard); }
  void write_files() const {
    for (size_t i = 0; i < kShards; ++i) GgufBuilder::save(file(i), bytes_[i]);
  }

  static Metadata metadata() {
    GgufBuilder builder;
    builder.string("general.architecture", "qwen3moe").string("general.name", "gathers");
    builder.u32("qwen3moe.block_count", 1).u32("qwen3moe.context_length", 128).u32("qwen3moe.embedding_length", kHidden);
    builder.u32("qwen3moe.attention.head_count", 2).u32("qwen3moe.attention.key_length", 32);
    builder.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f).f32("qwen3moe.rope.freq_base", 1e6f);
    builder.u32("qwen3moe.expert_count", kExperts).u32("qwen3moe.expert_used_count", 2);
    builder.u32("qwen3moe.expert_feed_forward_length", kFf);
    builder.strings("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
    const std::vector<std::byte> head = builder.build_head();
    return read_gguf_header(MemorySource(head, "metadata")).metadata;
  }

  std::vector<float> derive(uint32_t i, uint64_t matrix) const {
    std::vector<float> out(derived_[i].shape.elements() / (i == 0 ? 1 : kExperts));
    std::iota(out.begin(), out.end(), static_cast<float>(i * 1000 + matrix * 10));
    return out;
  }

  // One process's view of the source and of what was done.
  struct Run {
    Run(const Gathers& test, const fs::path& part, uint32_t number, uint32_t parts) {
      for (size_t i = 0; i < kShards; ++i) {
        const fs::path path = test.file(i);
        if (fs::exists(path)) {
          source.files.push_back(std::make_unique<File>(File::open(path, File::Mode::kRead)));
        } else {
          source.removed.push_back(std::make_unique<Gone>(path.string(), test.bytes_[i].size()));
        }
        RepackShard& shard = source.shards.emplace_back();
        shard.name = path.filename().string();
        shard.path = path;
        shard.bytes = fs::exists(path) ? static_cast<const ByteSource*>(source.files.back().get()) : source.removed.back().get();
        shard.removable = true;
      }
      source.derive = [&test](uint32_t i, uint64_t matrix) { return test.derive(i, matrix); };
      PlanInputs inputs;
      inputs.extent_bytes_max = kExtentBytesMin;
      inputs.source_name = "test";
      inputs.tool_version = "test";
      inputs.nonfinite_allowed = true;
      inputs.metadata = metadata();
      inputs.tensors = test.tensors_;
      inputs.derived = test.derived_;
      for (size_t i = 0; i < kShards; ++i) {
        inputs.shards.push_back({source.shards[i].name, test.bytes_[i].size(), {}, {}, test.moved_[i], true});
      }
      plan = plan_repack(inputs);
      fs::create_directories(part);
      state.emplace(plan);
      files.emplace(plan, part, true);
      key = plan_number(plan, {}, kExtentBytesMin);
      journal.emplace(part, number, parts, key, *state);
      options.extent_bytes_max = kExtentBytesMin;
      options.allow_nonfinite = true;
      options.part = number;
      options.parts = parts;
    }
    void copy() {
      Progress progress("x", 0, ProgressStyle::kSilent);
      try {
        copy_source(source, plan, options, *files, *journal, *state, team, progress);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::kInterrupted) journal->flush();
        throw;
      }
    }
    void prove(const fs::path& part) {
      Progress progress("x", 0, ProgressStyle::kSilent);
      prove_pack(plan, *state, options, *files, part, team, progress);
      for (uint32_t i = 0; i < options.parts; ++i) fs::remove(part / Journal::file_name(i, options.parts));
    }
    RepackSource source;
    RepackPlan plan;
    std::optional<CopyState> state;
    std::optional<TargetFiles> files;
    std::optional<Journal> journal;
    Xxh128 key;
    WriteOptions options;
    ThreadTeam team{3};
  };

  std::map<std::string, std::string> whole() {
    Run run(*this, dir_ / "whole", 0, 1);
    run.copy();
    run.prove(dir_ / "whole");
    return read_tree(dir_ / "whole");
  }

  TempDirectory dir_;
  std::mt19937 random_{9};
  std::vector<TensorInfo> tensors_, derived_;
  std::vector<std::vector<std::byte>> content_;
  std::array<std::vector<std::byte>, kShards> bytes_;
  std::array<std::vector<MovedRows>, kShards> moved_;
};

TEST_F(Gathers, PutEveryRowInItsPlaceAndGiveTheShardsBack) {
  whole();
  const Pack pack = Pack::open(dir_ / "whole");
  for (size_t i = 0; i < kShards; ++i) {
    const PackedShard shard(pack, i);
    std::vector<std::byte> out(shard.size());
    shard.read_at(0, out);
    EXPECT_TRUE(out == bytes_[i]) << "shard " << i;
    EXPECT_EQ(pack.manifest().sources[i].sha256, Sha256::of(bytes_[i]));
  }
  const auto rows_of = [](DType type, uint64_t cols, uint64_t rows, Bytes matrix) {
    std::vector<std::byte> out(matrix.size());
    for (uint64_t row = 0; row < rows; ++row) load_grouped_row(type, matrix.data(), rows, cols, row, out.data() + row * row_bytes(type, cols));
    return out;
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = tensors_[i];
    if (const DenseTensor* dense = pack.find_dense(tensor.name)) {
      std::vector<std::byte> record(tensor.bytes);
      pack.read_record(dense->record, record);
      EXPECT_TRUE(rows_of(tensor.dtype, tensor.shape.ne[0], tensor.shape.ne[1], record) == content_[i]) << tensor.name;
    } else if (const RowTable* table = pack.find_rows(tensor.name)) {
      std::vector<std::byte> row(table->row_bytes);
      for (uint64_t r = 0; r < 3000; ++r) {
        pack.read_row(*table, r, row);
        ASSERT_TRUE(std::equal(row.begin(), row.end(), content_[i].begin() + static_cast<ptrdiff_t>(r * row.size()))) << r;
      }
    }
  }
  const ExpertLayer& layer = *pack.find_expert_layer(0);
  for (uint32_t e = 0; e < kExperts; ++e) {
    std::vector<std::byte> record(layer.record_bytes);
    pack.read_record(layer.first_record + e, record);
    for (uint32_t k = 0; k < 3; ++k) {
      const ExpertPart& part = *layer.parts()[k];
      const std::vector<std::byte> found = rows_of(part.dtype, part.in, part.out, Bytes(record).subspan(part.offset, part.bytes));
      const std::vector<std::byte>& want = content_[3 + k];
      EXPECT_TRUE(std::equal(found.begin(), found.end(), want.begin() + static_cast<ptrdiff_t>(e * part.bytes))) << part.tensor << " " << e;
      const std::vector<float> scales = derive(1 + k, e);
      ASSERT_EQ(part.scale_bytes(), scales.size() * sizeof(float));
      EXPECT_EQ(std::memcmp(&record[part.scale_offset], scales.data(), part.scale_bytes()), 0) << part.tensor << " " << e;
    }
  }
  std::vector<float> norm(kHidden);
  pack.read_record(pack.find_dense("blk.0.attn_norm.weight")->record, std::as_writable_bytes(std::span(norm)));
  EXPECT_EQ(norm, derive(0, 0));
}

TEST_F(Gathers, GoOnWhereTheyWereStopped) {
  const auto want = whole();
  for (int stop = 1; stop < 30; ++stop) {
    const fs::path part = dir_ / "part";
    bool stopped = false;
    {
      Run run(*this, part, 0, 1);
      std::atomic<int> calls = 0;
      run.options.on_bytes = [&](uint64_t) {
        if (++calls >= stop) throw Error(ErrorKind::kInterrupted, "stopped");
      };
      stopped = thrown_by([&] { run.copy(); }).kind == ErrorKind::kInterrupted;
    }
    Run run(*this, part, 0, 1);
    run.copy();
    run.prove(part);
    EXPECT_EQ(read_tree(part), want) << stop;
    fs::remove_all(part);
    if (!stopped) {
      EXPECT_GT(stop, 5);
      return;
    }
  }
}

// What was computed of a source that changed before the next run is not kept.
TEST_F(Gathers, ValuesAreComputedAgain) {
  const auto want = whole();
  const fs::path part = dir_ / "part";
  {
    Run run(*this, part, 0, 1);
    run.source.derive = [this](uint32_t i, uint64_t matrix) {
      std::vector<float> values = derive(i, matrix);
      values.back() += 1;
      return values;
    };
    run.options.on_bytes = [&](uint64_t) { throw Error(ErrorKind::kInterrupted, "stopped"); };
    EXPECT_EQ(thrown_by([&] { run.copy(); }).kind, ErrorKind::kInterrupted);
  }
  Run run(*this, part, 0, 1);
  EXPECT_EQ(run.state->written[0], 1);
  run.copy();
  run.prove(part);
  EXPECT_EQ(read_tree(part), want);
}

// Shards go as soon as they can; each stop is followed by a run that can read only what is left.
TEST_F(Gathers, GoOnWithWhatIsLeftOfTheShards) {
  const auto want = whole();
  for (int stop = 1; stop < 30; ++stop) {
    write_files();
    const fs::path part = dir_ / "part";
    bool stopped = false;
    {
      Run run(*this, part, 0, 1);
      run.options.remove_sources = true;
      std::atomic<int> calls = 0;
      run.options.on_bytes = [&](uint64_t) {
        if (++calls >= stop) throw Error(ErrorKind::kInterrupted, "stopped");
      };
      stopped = thrown_by([&] { run.copy(); }).kind == ErrorKind::kInterrupted;
    }
    Run run(*this, part, 0, 1);
    run.options.remove_sources = true;
    run.copy();
    for (size_t i = 0; i < kShards; ++i) EXPECT_FALSE(fs::exists(file(i))) << i;
    run.prove(part);
    EXPECT_EQ(read_tree(part), want) << stop;
    fs::remove_all(part);
    if (!stopped) return;
  }
}

TEST_F(Gathers, AreTheSameInShares) {
  const auto want = whole();
  for (uint32_t parts = 2; parts <= 5; ++parts) {
    const fs::path part = dir_ / "part";
    for (uint32_t i = 0; i < parts; ++i) {
      Run run(*this, part, i, parts);
      run.copy();
      run.files->sync();
      run.journal->part_done();
    }
    Run run(*this, part, 0, parts);
    Journal::read_all(part, parts, run.key, *run.state);
    for (uint32_t i = 0; i < kShards; ++i) {
      EXPECT_TRUE(run.state->has_shard(i));
      run.state->shards[i] = Sha256::of(bytes_[i]);
    }
    require_same_gathers(run.plan, *run.state);
    run.prove(part);
    EXPECT_EQ(read_tree(part), want) << parts;
    fs::remove_all(part);
  }
}

// A range that is read for a gather and again with its shard, and has changed in between.
TEST_F(Gathers, WhatChangesWhileItIsReadIsNoticed) {
  Run run(*this, dir_ / "part", 0, 1);
  run.copy();
  const uint32_t input = run.plan.gathers[0].first_input;
  run.state->extents[run.plan.inputs[input].shard][run.plan.inputs[input].extent].low ^= 1;
  EXPECT_EQ(thrown_by([&] { require_same_gathers(run.plan, *run.state); }).kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace tierpack::repack
