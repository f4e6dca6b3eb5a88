#include "runtime/model/moe.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "runtime/experts/expert_slots.h"
#include "runtime/engine.h"
#include "runtime/model/expert_jobs.h"

namespace tierpack::model {

namespace {

constexpr size_t kJobs = kExpertJobs;

// Router of every token: ids and weights, largest first.
void route(const Pass& pass, const MoeWeights& w, uint32_t block) {
  const ModelConfig& c = pass.config;
  const kernels::KernelTable& k = pass.compute.k;
  MoeScratch& s = pass.ws.moe;
  const uint32_t tokens = pass.chunk.tokens;
  const kernels::ActivationView x = pass.ws.x.view(0, tokens);
  const Product products[] = {{&w.router, x, s.router, c.experts}, {&w.shared_gate_input, x, s.shared_weight, 1}};
  run_products(pass.compute, std::span(products, w.has_shared ? 2 : 1));
  for_ranges(pass.compute, tokens, c.experts * kElementCost * 2, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* const p = s.router + t * c.experts;
      uint32_t* const ids = s.ids + t * c.experts_used;
      float* const weights = s.weights + t * c.experts_used;
      k.softmax(p, c.experts, p);
      kernels::top_k(p, c.experts, c.experts_used, ids);
      float sum = 0;
      for (uint32_t i = 0; i < c.experts_used; ++i) sum += p[ids[i]];
      for (uint32_t i = 0; i < c.experts_used; ++i) weights[i] = p[ids[i]] / sum;
    }
  });
  if (pass.chunk.observer == nullptr) return;
  for (uint32_t t = 0; t < tokens; ++t) {
    pass.chunk.observer->on_route(block, pass.chunk.position(t), std::span(s.ids + size_t{t} * c.experts_used, c.experts_used),
                                  std::span(s.weights + size_t{t} * c.experts_used, c.experts_used));
  }
}

// Tells the store what the router of the next block would choose for this block's input. Right or wrong, it changes when
// records are read, nothing else.
void guess_experts(const Pass& pass, const MoeWeights& next, ExpertStore& store, uint32_t block) {
  const ModelConfig& c = pass.config;
  const MoeScratch& s = pass.ws.moe;
  quantize_for(pass.compute, pass.ws.x, 1, next.router);
  const Product product[] = {{&next.router, pass.ws.x.view(0, 1), s.router, c.experts}};
  run_products(pass.compute, product);
  kernels::top_k(s.router, c.experts, c.experts_used, s.guess);
  store.prefetch(block, std::span<const uint32_t>(s.guess, c.experts_used));
}

// Rows for every (token, expert) pair, grouped by expert, tokens ascending. Returns the number of distinct experts.
uint32_t group_by_expert(const ModelConfig& c, uint32_t tokens, MoeScratch& s) {
  const size_t pairs = size_t{tokens} * c.experts_used;
  std::fill_n(s.first_row, c.experts + size_t{1}, 0u);
  for (size_t i = 0; i < pairs; ++i) ++s.first_row[s.ids[i] + 1];
  uint32_t distinct = 0;
  for (uint32_t e = 0; e < c.experts; ++e) {
    if (s.first_row[e + 1] > 0) s.requested[distinct++] = e;
    s.first_row[e + 1] += s.first_row[e];
  }
  // first_row serves as the write position of its expert, which leaves it at the end of the group: the start of the next.
  for (size_t i = 0; i < pairs; ++i) {
    s.row[i] = s.first_row[s.ids[i]]++;
    s.pair_token[s.row[i]] = static_cast<uint32_t>(i / c.experts_used);
  }
  std::copy_backward(s.first_row, s.first_row + c.experts, s.first_row + c.experts + 1);
  s.first_row[0] = 0;
  return distinct;
}

// Copies the forms of x that the experts read into their rows.
void gather(const Pass& pass, const MoeWeights& w) {
  const MoeScratch& s = pass.ws.moe;
  const Activations& x = pass.ws.x;
  const bool gate = reads_quantised(pass.compute, MatrixView{w.experts->gate.dtype});
  const bool up = reads_quantised(pass.compute, MatrixView{w.experts->up.dtype});
  const bool quantised = gate || up;
  const bool plain = !gate || !up;
  const size_t pairs = size_t{pass.chunk.tokens} * pass.config.experts_used;
  for_ranges(pass.compute, pairs, x.n * kElementCost / 4, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const size_t token = s.pair_token[row];
      if (plain) std::copy_n(x.row(token), x.n, s.input.row(row));
      if (!quantised) continue;
      const size_t blocks = x.n / 32;
      std::copy_n(x.q + token * x.n, x.n, s.input.q + row * x.n);
      std::copy_n(x.scale + token * blocks, blocks, s.input.scale + row * blocks);
      std::copy_n(x.sum + token * blocks, blocks, s.input.sum + row * blocks);
    }
  });
}

ExpertJob routed_job(const Pass& pass, const MoeWeights& w, uint32_t expert, Bytes record) {
  const MoeScratch& s = pass.ws.moe;
  const size_t row = s.first_row[expert];
  const uint32_t count = s.first_row[expert + 1] - s.first_row[expert];
  const size_t ff = pass.config.expert_ff;
  ExpertJob job;
  job.gate = expert_matrix(w.experts->gate, record.data(), w.gate_scales, expert);
  job.up = expert_matrix(w.experts->up, record.data(), w.up_scales, expert);
  job.down = expert_matrix(w.experts->down, record.data(), w.down_scales, expert);
  // One token: its experts all read the same vector.
  job.input = pass.chunk.tokens == 1 ? pass.ws.x.view(0, 1) : s.input.view(row, count);
  job.gate_out = s.gate + row * ff;
  job.up_out = s.up + row * ff;
  job.hidden = s.hidden.from_row(row);
  job.hidden.n = job.down.cols;
  job.out = s.out + row * pass.config.hidden;
  return job;
}

ExpertJob shared_job(const Pass& pass, const MoeWeights& w) {
  const MoeScratch& s = pass.ws.moe;
  return {w.shared_gate, w.shared_up,   w.shared_down,   pass.ws.x.view(0, pass.chunk.tokens),
          s.shared_gate, s.shared_up,   s.shared_hidden, s.shared_out};
}

// The weighted sum of every token, in the order of selection, then the shared expert.
void sum_experts(const Pass& pass, const MoeWeights& w) {
  const kernels::KernelTable& k = pass.compute.k;
  const MoeScratch& s = pass.ws.moe;
  const uint32_t dim = pass.config.hidden;
  const uint32_t used = pass.config.experts_used;
  if (w.has_shared) k.sigmoid(s.shared_weight, pass.chunk.tokens, s.shared_weight);
  for_ranges(pass.compute, pass.chunk.tokens, uint64_t{dim} * used * kElementCost / 4, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* const y = pass.ws.y + t * dim;
      const uint32_t* const row = s.row + t * used;
      const float* const weights = s.weights + t * used;
      k.scale(s.out + size_t{row[0]} * dim, weights[0], dim, y);
      for (uint32_t i = 1; i < used; ++i) k.add_scaled(s.out + size_t{row[i]} * dim, weights[i], dim, y);
      if (w.has_shared) k.add_scaled(s.shared_out + t * dim, s.shared_weight[t], dim, y);
    }
  });
}

}  // namespace

void mixture_of_experts(const Pass& pass, const MoeWeights& w, ExpertStore& store, uint32_t block, const BlockWeights* next) {
  MoeScratch& s = pass.ws.moe;
  const uint32_t tokens = pass.chunk.tokens;
  const MatrixView gate{w.experts->gate.dtype};
  const MatrixView up{w.experts->up.dtype};
  if (w.has_shared) {
    quantize_for(pass.compute, pass.ws.x, tokens, w.router, gate, up, w.shared_gate_input, w.shared_gate, w.shared_up);
  } else {
    quantize_for(pass.compute, pass.ws.x, tokens, w.router, gate, up);
  }
  route(pass, w, block);
  const uint32_t distinct = group_by_expert(pass.config, tokens, s);
  for (uint32_t i = 0; i < distinct; ++i) s.counts[i] = s.first_row[s.requested[i] + 1] - s.first_row[s.requested[i]];
  ExpertStore::Lease lease = store.acquire(block, std::span<const uint32_t>(s.requested, distinct),
                                           {std::span<const uint32_t>(s.counts, distinct), tokens});
  if (next != nullptr && tokens == 1 && store.wants_guess(next->index)) guess_experts(pass, next->moe, store, next->index);
  if (tokens > 1) gather(pass, w);

  // The shared expert needs no waiting: it leads the first batch. A batch is what is ready when it begins.
  std::array<ExpertJob, kJobs> jobs;
  std::array<int, kJobs> held;
  size_t count = 0;
  size_t held_count = 0;
  if (w.has_shared) jobs[count++] = shared_job(pass, w);
  for (uint32_t done = 0; done < distinct || count > 0;) {
    while (count < kJobs && done < distinct) {
      const int index = count == 0 ? lease.next_ready() : lease.poll_ready();
      if (index < 0) {
        TIERPACK_CHECK(count > 0);  // a store hands out every record it was asked for
        break;
      }
      const Bytes record = lease.record(index);
      TIERPACK_CHECK(record.size() >= w.experts->record_bytes);
      jobs[count++] = routed_job(pass, w, s.requested[index], record);
      held[held_count++] = index;
      ++done;
    }
    run_experts(pass.compute, std::span<const ExpertJob>(jobs).first(count));
    for (size_t i = 0; i < held_count; ++i) lease.done(held[i]);
    count = held_count = 0;
  }
  sum_experts(pass, w);
}

}  // namespace tierpack::model
