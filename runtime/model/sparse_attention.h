// Which tokens a query sees when attention has a budget. The context is cut into blocks of `ratio` tokens from its start; a
// small indexer scores the complete ones; the query attends to the tokens of the best budget / ratio blocks and to the
// incomplete tail (empty when the query completes a block). Equal scores go to the lower block. While the complete blocks fit
// the budget, nothing is scored and attention is dense.
#pragma once

#include <cstdint>

#include "runtime/model/pass.h"
#include "runtime/model/state.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

// Complete blocks that the query at `position` sees.
inline uint32_t complete_blocks(uint32_t position, uint32_t ratio) { return (position + 1) / ratio; }
// Whether the query at `position` sees less than everything before it.
inline bool is_sparse(uint32_t position, uint32_t ratio, uint32_t budget) {
  return ratio > 0 && complete_blocks(position, ratio) > budget / ratio;
}

// Tokens of the chunk, from its first on, that see everything before them: queries see more the later they are.
inline uint32_t dense_tokens(const Chunk& chunk, uint32_t ratio, uint32_t budget) {
  uint32_t dense = chunk.tokens;
  while (dense > 0 && is_sparse(chunk.position(dense - 1), ratio, budget)) --dense;
  return dense;
}

// After the products have filled ws.attention.index_raw behind the carried tail: the keys of blocks completed by this
// chunk, and the new tail.
//   block key = rotate(RMSNorm(mean of the block's raw keys) * k_norm, position of the block's first token)
void update_block_keys(const Pass& pass, const AttentionWeights& weights, const AttentionState& state);

// Rows of index_raw that the tail of earlier chunks fills.
inline uint32_t tail_tokens(const Chunk& chunk, uint32_t ratio) { return chunk.first % ratio; }

// ws.attention.index_q of the chunk, in place: RMSNorm per head, rotated at the query's position.
void prepare_index_queries(const Pass& pass, const AttentionWeights& weights);

// Selects for queries [first, first + count) of the chunk, count <= kSparseQueries, all of them sparse: ascending
// positions in ws.attention.visible (row i for query first + i) and visible_count.
//   score(b) = sum over index heads of relu(q_h . key_b)
void select_visible(const Pass& pass, const AttentionWeights& weights, const AttentionState& state, uint32_t first,
                    uint32_t count);

}  // namespace tierpack::model
