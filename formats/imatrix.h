// Importance matrices: for every weight matrix of a model, the squared activations that met each of its columns while a
// text was run, as llama.cpp's llama-imatrix writes them.
//
// GGUF form: general.type = "imatrix"; imatrix.datasets (strings), imatrix.chunk_count, imatrix.chunk_size (integers:
// parts of text, and tokens in each); for a weight tensor NAME the F32 tensors NAME.in_sum2 {columns, matrices} with
// the sums of squares, and NAME.counts {1, matrices} with the tokens each sum is over. Stacks of experts have one
// matrix an expert, whose count is how often it was routed to.
//
// Older form (.dat), little-endian: i32 entries; per entry i32 name bytes, name, i32 calls, i32 values, f32 values;
// then optionally i32 chunks, i32 name bytes, name of the text. A value / calls is the mean square. Experts lie one
// behind the other in it, without counts of their own, so that how many matrices an entry has must be known from the
// model.
//
// Files come from anywhere: every number is checked before use, and reading needs memory in proportion to the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tierpack {

struct Imatrix {
  struct Entry {
    std::string tensor;          // "blk.0.ffn_gate_exps.weight"
    uint64_t columns = 0;        // values of one row of the weight; all matrices' together in the older form
    uint64_t matrices = 0;       // experts, or 1
    std::vector<float> sum2;     // (matrices, columns), finite and not negative
    std::vector<double> counts;  // (matrices), finite and not negative
  };

  std::string source;                 // for messages
  bool has_expert_counts = true;      // false for the older form
  std::vector<std::string> datasets;  // names of the texts
  uint64_t chunks = 0;                // 0 = the file does not say
  uint64_t chunk_tokens = 0;          // 0 = the file does not say
  std::vector<Entry> entries;         // by tensor name, each once

  const Entry* find(std::string_view tensor) const;
  // Mean squares of the columns of one matrix, for quantize_rows; all ones where the text never reached the matrix. In
  // the older form the entry is divided into `matrices` equal parts. Empty when the file has no such tensor; throws
  // kUsage when the entry has other columns or other matrices than the weight.
  std::vector<float> importance(std::string_view tensor, uint64_t columns, uint64_t matrices, uint64_t matrix) const;
};

// Reads either form, told apart by their first bytes. Throws kCorrupt; kUnsupported for a GGUF of another kind.
Imatrix read_imatrix(const ByteSource& source);
Imatrix read_imatrix(const std::filesystem::path& path);

}  // namespace tierpack
