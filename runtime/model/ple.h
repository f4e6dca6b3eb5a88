// The n-gram embedding: rows of a large lookup table, chosen by hashing the last few tokens, enter the streams of one block
// through gates and a dilated convolution.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/experts/row_store.h"
#include "runtime/model/pass.h"
#include "runtime/model/state.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

// Rows of the table for the last token of `timeline`, one per head, into `rows`.
//   x_n = t_0 m_0 xor ... xor t_{n-1} m_{n-1} (64-bit wraparound), t_0 the last token;  row = x_n mod size_h + offset_h
// for the heads of n = 2, 3, ... in turn. Going back, a missing token or one equal to `eos` reads as eos, and so does
// everything before it.
void ngram_rows(const ModelConfig::Ple& config, std::span<const uint32_t> timeline, std::span<uint64_t> rows);

// ws.streams += the embedding of the chunk's n-grams; moves the convolution's history.
//   e = rows of the table;  key = norm(key e), query = norm(R) per stream;  v = value e
//   s = key . query / sqrt(D);  gate = sigmoid(sign(s) sqrt(max(|s|, 1e-6)));  g = gate v
//   R += g + silu(conv(norm(g))), the convolution dilated by the n-gram size
void add_ngram_embedding(const Pass& pass, experts::RowStore& rows, const PleWeights& weights, const PleState& state);

// Begins to read the rows of the chunk's first tokens.
void request_ngram_rows(const ModelConfig::Ple& config, const Chunk& chunk, experts::RowStore& rows, const PleWeights& weights);
// e (T, heads * head_dim) of every token: one row of the table per head, end to end.
void read_ngram_rows(const kernels::KernelTable& k, const ModelConfig::Ple& config, const Chunk& chunk, experts::RowStore& store,
                     const PleWeights& weights, float* e);

}  // namespace tierpack::model
