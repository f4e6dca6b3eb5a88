#include "runtime/model/gpu/device_experts.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "runtime/engine.h"

namespace tierpack::model {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatch = kExpertJobs;            // experts of one launch
constexpr size_t kCopyBatch = kStagedRecords / 2;  // copied while as many are computed

// One matrix of a record at a device address, or at an offset from one.
MatrixView record_matrix(const ExpertPart& part, uint64_t record) {
  MatrixView w{part.dtype, reinterpret_cast<const std::byte*>(record + part.offset), static_cast<uint32_t>(part.out),
               static_cast<uint32_t>(stored_elements(part.dtype, part.in))};
  if (part.scale_rows > 0) {
    TIERPACK_CHECK(set_scales(w, reinterpret_cast<const float*>(record + part.scale_offset), part.scale_rows, part.scale_columns));
  }
  return w;
}

MatrixView form_of(const ExpertPart& part) {
  MatrixView w{part.dtype};
  w.rows = 1;
  return w;
}

template <typename T>
MutableBytes bytes_of(T* array, size_t count) {
  return std::as_writable_bytes(std::span(array, count));
}

}  // namespace

DeviceExperts::DeviceExperts(const Pack& pack, const DeviceWeights& weights, ExpertStore& store, const Compute& compute, DeviceHostBuffers& host)
    : weights_(weights),
      store_(store),
      compute_(compute),
      host_(host),
      share_(0),
      staging_(device_staging_bytes(pack.manifest())),
      staged_bytes_(staging_.size() / kStagedRecords),
      slot_free_(kStagedRecords),
      resident_(pack.config().layers, 0),
      addresses_(size_t{pack.config().layers} * pack.config().experts, 0) {
  held_.reserve(pack.config().experts);
  untold_.reserve(pack.config().layers);
}

void DeviceExperts::run(const DevicePass& pass, const BlockWeights& block, const BlockWeights* next) {
  const MoeWeights& w = block.moe;
  const bool in_vram = resident(pass, block);
  const bool leased = pass.chunk.tokens > 1 || !in_vram;
  const bool guess = leased && next != nullptr && pass.chunk.tokens == 1 && store_.wants_guess(next->index);
  row_columns_ = static_cast<uint32_t>(stored_elements(w.experts->down.dtype, w.experts->down.in));
  const Routing routing = routing_of(pass, block.index);
  route(pass, w, routing, next, guess);
  if (leased) {
    leased_experts(pass, block, routing, next, guess, in_vram);
  } else {
    resident_experts(pass, block, routing);
  }
  const MoeScratch& s = pass.ws.moe;
  gpu::combine_experts(pass.stream, s.out, leased ? s.row : nullptr, routing.weights, pass.config.experts_used, w.has_shared ? s.shared_out : nullptr,
                       w.has_shared ? s.shared_weight : nullptr, pass.chunk.tokens, pass.config.hidden, pass.ws.y);
}

bool DeviceExperts::all_resident(const DevicePass& pass, std::span<const BlockWeights> blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [&](const BlockWeights& block) { return resident(pass, block); });
}

bool DeviceExperts::resident(const DevicePass& pass, const BlockWeights& block) {
  if (resident_[block.index]) return true;
  const size_t experts = pass.config.experts;
  const std::span<uint64_t> addresses = std::span(addresses_).subspan(block.index * experts, experts);
  if (!store_.device_addresses(block.index, addresses)) return false;
  pass.stream.copy_to_device(pass.scratch.addresses + block.index * experts, std::as_bytes(addresses));
  pass.stream.synchronize();
  resident_[block.index] = 1;
  return true;
}

// One token's routing is kept for every block, and comes to the host at once.
DeviceExperts::Routing DeviceExperts::routing_of(const DevicePass& pass, uint32_t block) const {
  if (pass.chunk.tokens > 1) return {pass.ws.moe.ids, pass.ws.moe.weights, host_.ids, host_.weights};
  const size_t at = size_t{block} * pass.config.experts_used;
  return {pass.scratch.ids + at, pass.scratch.weights + at, host_.ids + at, host_.weights + at};
}

// Router of every token: ids and weights, largest first; the guess for the next block.
void DeviceExperts::route(const DevicePass& pass, const MoeWeights& w, const Routing& routing, const BlockWeights* next, bool guess) {
  const ModelConfig& c = pass.config;
  MoeScratch& s = pass.ws.moe;
  const uint32_t tokens = pass.chunk.tokens;
  const MatrixView none{};
  quantize_for(pass, pass.ws.x, 0, tokens, w.router, form_of(w.experts->gate), form_of(w.experts->up),
               w.has_shared ? w.shared_gate_input : none, w.has_shared ? w.shared_gate : none, w.has_shared ? w.shared_up : none,
               guess ? next->moe.router : none);
  const kernels::ActivationView x = pass.ws.x.view(0, tokens);
  std::array<gpu::DeviceProduct, 3> products = {product(w.router, x, s.router, c.experts)};
  size_t count = 1;
  if (w.has_shared) products[count++] = product(w.shared_gate_input, x, s.shared_weight, 1);
  if (guess) products[count++] = product(next->moe.router, x, pass.scratch.next_router, c.experts);
  multiply(pass, std::span(products).first(count));
  gpu::route(pass.stream, s.router, tokens, c.experts, c.experts_used, routing.ids, routing.weights);
  if (!guess) return;
  gpu::route(pass.stream, pass.scratch.next_router, 1, c.experts, c.experts_used, pass.scratch.guess, pass.scratch.guess_weights);
  pass.stream.copy_to_host(bytes_of(host_.guess, c.experts_used), pass.scratch.guess);
}

void DeviceExperts::shared_expert(const DevicePass& pass, const MoeWeights& w) {
  if (!w.has_shared) return;
  MoeScratch& s = pass.ws.moe;
  const uint32_t tokens = pass.chunk.tokens;
  const kernels::ActivationView x = pass.ws.x.view(0, tokens);
  const uint32_t ff = w.shared_gate.rows;
  const gpu::DeviceProduct first[] = {product(w.shared_gate, x, s.shared_gate, ff), product(w.shared_up, x, s.shared_up, ff)};
  multiply(pass, first);
  const bool quantised = reads_quantised(w.shared_down);
  gpu::expert_hidden(pass.stream, s.shared_gate, s.shared_up, tokens, ff, s.shared_hidden.n, s.shared_hidden.x,
                     quantised ? s.shared_hidden.q : nullptr, s.shared_hidden.scale, s.shared_hidden.sum);
  const gpu::DeviceProduct second[] = {product(w.shared_down, s.shared_hidden.view(0, tokens), s.shared_out, pass.config.hidden)};
  multiply(pass, second);
}

// Pairs [first_row, first_row + rows): both products of their experts and what lies between.
void DeviceExperts::expert_products(const DevicePass& pass, const MoeWeights& w, uint32_t first_row, uint32_t rows,
                                    std::span<const gpu::DeviceProduct> gate_up, std::span<const gpu::DeviceProduct> down) {
  MoeScratch& s = pass.ws.moe;
  const size_t ff = pass.config.expert_ff;
  multiply(pass, gate_up);
  Activations hidden = s.hidden;
  hidden.n = row_columns_;
  const Activations own = hidden.from_row(first_row);
  const bool quantised = traits(w.experts->down.dtype).quantised;
  gpu::expert_hidden(pass.stream, s.gate + first_row * ff, s.up + first_row * ff, rows, pass.config.expert_ff, row_columns_, own.x,
                     quantised ? own.q : nullptr, own.scale, own.sum);
  multiply(pass, down);
}

// One token whose experts are all in VRAM: row i is the i-th of its selection.
void DeviceExperts::resident_experts(const DevicePass& pass, const BlockWeights& block, const Routing& routing) {
  const MoeWeights& w = block.moe;
  const ModelConfig& c = pass.config;
  MoeScratch& s = pass.ws.moe;
  untold_.push_back(block.index);
  shared_expert(pass, w);

  const uint64_t* const records = pass.scratch.addresses + size_t{block.index} * c.experts;
  const kernels::ActivationView x = pass.ws.x.view(0, 1);
  Activations hidden = s.hidden;
  hidden.n = row_columns_;
  for (uint32_t first = 0; first < c.experts_used; first += kBatch) {
    std::array<gpu::DeviceProduct, 2 * kBatch> gate_up;
    std::array<gpu::DeviceProduct, kBatch> down;
    const uint32_t count = std::min<uint32_t>(kBatch, c.experts_used - first);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t row = first + i;
      const auto of = [&](const ExpertPart& part, const float* scales, const kernels::ActivationView& input, float* y) {
        gpu::DeviceProduct p = product(record_matrix(part, 0), input, y, part.out);
        p.records = records;
        p.expert = routing.ids + row;
        p.expert_scales = scales;
        return p;
      };
      gate_up[2 * i] = of(w.experts->gate, w.gate_scales, x, s.gate + size_t{row} * c.expert_ff);
      gate_up[2 * i + 1] = of(w.experts->up, w.up_scales, x, s.up + size_t{row} * c.expert_ff);
      down[i] = of(w.experts->down, w.down_scales, hidden.view(row, 1), s.out + size_t{row} * c.hidden);
    }
    expert_products(pass, w, first, count, std::span(gate_up).first(2 * count), std::span(down).first(count));
  }
}

// Pairs by expert: host_.pairs from host_.first_pair on. Returns the number of distinct experts.
uint32_t DeviceExperts::group(const DevicePass& pass, const uint32_t* ids) {
  const ModelConfig& c = pass.config;
  const size_t pairs = size_t{pass.chunk.tokens} * c.experts_used;
  std::fill_n(host_.first_pair, c.experts + size_t{1}, 0u);
  for (size_t i = 0; i < pairs; ++i) ++host_.first_pair[ids[i] + 1];
  uint32_t distinct = 0;
  for (uint32_t e = 0; e < c.experts; ++e) {
    if (host_.first_pair[e + 1] > 0) {
      host_.counts[distinct] = host_.first_pair[e + 1];
      host_.requested[distinct++] = e;
    }
    host_.first_pair[e + 1] += host_.first_pair[e];
  }
  // first_pair serves as the write position of its expert, which leaves it at the start of the next.
  for (size_t i = 0; i < pairs; ++i) host_.pairs[host_.first_pair[ids[i]]++] = static_cast<uint32_t>(i);
  std::copy_backward(host_.first_pair, host_.first_pair + c.experts, host_.first_pair + c.experts + 1);
  host_.first_pair[0] = 0;
  return distinct;
}

uint32_t DeviceExperts::take_rows(const DevicePass& pass, uint32_t expert) {
  const uint32_t first = rows_;
  for (uint32_t i = host_.first_pair[expert]; i < host_.first_pair[expert + 1]; ++i, ++rows_) {
    const uint32_t pair = host_.pairs[i];
    host_.row[pair] = rows_;
    host_.pair_token[rows_] = pair / pass.config.experts_used;
  }
  return first;
}

void DeviceExperts::leased_experts(const DevicePass& pass, const BlockWeights& block, const Routing& routing, const BlockWeights* next, bool guess,
                                   bool in_vram) {
  const MoeWeights& w = block.moe;
  const ModelConfig& c = pass.config;
  MoeScratch& s = pass.ws.moe;
  const uint32_t tokens = pass.chunk.tokens;
  const size_t pairs = size_t{tokens} * c.experts_used;
  pass.stream.copy_to_host(bytes_of(routing.host_ids, pairs), routing.ids);
  if (pass.chunk.observer != nullptr) pass.stream.copy_to_host(bytes_of(routing.host_weights, pairs), routing.weights);
  // Where all records stay in VRAM the CPU has no share.
  if (!in_vram) pass.stream.copy_to_host(bytes_of(host_.input.x, size_t{tokens} * c.hidden), pass.ws.x.x);
  pass.stream.record(routed_);
  shared_expert(pass, w);

  routed_.synchronize();
  // Everything queued before is done, with it what the block before read.
  held_.clear();
  lease_.reset();
  events_used_ = 0;
  rows_ = 0;
  if (tokens > 1) {
    tell(pass, block.index, routing.host_ids, routing.host_weights);
  } else if (pass.chunk.observer != nullptr) {
    untold_.push_back(block.index);
  }
  const uint32_t distinct = group(pass, routing.host_ids);
  lease_.emplace(store_.acquire(block.index, std::span<const uint32_t>(host_.requested, distinct),
                                {std::span<const uint32_t>(host_.counts, distinct), tokens}));
  if (guess) store_.prefetch(next->index, std::span<const uint32_t>(host_.guess, c.experts_used));
  share_.begin_layer();
  const Compute& compute = compute_;
  bool input_ready = false;

  std::array<Held, kBatch> on_device, to_copy, on_host;
  size_t device_count = 0, copy_count = 0, host_count = 0;
  std::array<uint64_t, kBatch> addresses{};
  const auto flush_device = [&] {
    if (device_count == 0) return;
    compute_on_device(pass, w, std::span(on_device).first(device_count), addresses.data(), next_event());
    device_count = 0;
  };
  const auto flush_copies = [&] {
    if (copy_count == 0) return;
    copy_and_compute(pass, w, std::span(to_copy).first(copy_count));
    copy_count = 0;
  };
  for (uint32_t taken = 0; taken < distinct || device_count + copy_count + host_count > 0;) {
    int index = taken < distinct ? lease_->poll_ready() : -1;
    if (index < 0 && device_count + copy_count + host_count == 0) {
      // Records in use are given back before anything is waited for: the store may need their room.
      give_back(false);
      index = lease_->poll_ready();
      if (index < 0 && !held_.empty()) {
        give_back(true);
        continue;
      }
      if (index < 0) index = lease_->next_ready();
      TIERPACK_CHECK(index >= 0);  // a store hands out every record it was asked for
    }
    if (index >= 0) {
      ++taken;
      const Bytes record = lease_->record(index);
      TIERPACK_CHECK(record.size() >= w.experts->record_bytes);
      if (lease_->on_device(index)) {
        addresses[device_count] = reinterpret_cast<uint64_t>(record.data());
        on_device[device_count++] = {index, 0};
        if (device_count == kBatch) flush_device();
      } else if (share_.choose(w.experts->record_bytes, host_.counts[index]) == MissShare::Side::kCpu) {
        on_host[host_count++] = {index, 0};
      } else {
        to_copy[copy_count++] = {index, 0};
        if (copy_count == kCopyBatch) flush_copies();
      }
      if (host_count < kBatch) continue;
    }
    // Nothing more is there at this moment. The device gets its work first, and the CPU works beside it.
    flush_device();
    flush_copies();
    if (host_count == 0) continue;
    if (!input_ready) {
      model::quantize_for(compute, host_.input, tokens, form_of(w.experts->gate), form_of(w.experts->up));
      input_ready = true;
    }
    compute_on_host(pass, block.index, w, std::span(on_host).first(host_count));
    host_count = 0;
  }
  pass.stream.copy_to_device(s.row, std::as_bytes(std::span(host_.row, pairs)));
}

// `batch`: indices of the lease, their records at device `addresses`. Records are held until `event`.
void DeviceExperts::compute_on_device(const DevicePass& pass, const MoeWeights& w, std::span<const Held> batch, const uint64_t* addresses,
                                      size_t event) {
  const ModelConfig& c = pass.config;
  MoeScratch& s = pass.ws.moe;
  const bool gathers = pass.chunk.tokens > 1;
  std::array<gpu::DeviceProduct, 2 * kBatch> gate_up;
  std::array<gpu::DeviceProduct, kBatch> down;
  Activations hidden = s.hidden;
  hidden.n = row_columns_;
  const uint32_t first_row = rows_;
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint32_t expert = host_.requested[batch[i].index];
    const uint32_t count = host_.counts[batch[i].index];
    const uint32_t row = take_rows(pass, expert);
    const auto of = [&](const ExpertPart& part, const float* scales, const kernels::ActivationView& input, float* y) {
      gpu::DeviceProduct p = product(record_matrix(part, addresses[i]), input, y, part.out);
      if (scales != nullptr) TIERPACK_CHECK(set_scales(p.w, scales + expert, 1, 1));
      return p;
    };
    kernels::ActivationView x = pass.ws.x.view(0, count);
    gate_up[2 * i] = of(w.experts->gate, w.gate_scales, x, s.gate + size_t{row} * c.expert_ff);
    gate_up[2 * i + 1] = of(w.experts->up, w.up_scales, x, s.up + size_t{row} * c.expert_ff);
    if (gathers) gate_up[2 * i].rows = gate_up[2 * i + 1].rows = s.pair_token + row;
    down[i] = of(w.experts->down, w.down_scales, hidden.view(row, count), s.out + size_t{row} * c.hidden);
  }
  const uint32_t rows = rows_ - first_row;
  if (gathers) pass.stream.copy_to_device(s.pair_token + first_row, std::as_bytes(std::span(host_.pair_token + first_row, rows)));
  expert_products(pass, w, first_row, rows, std::span(gate_up).first(2 * batch.size()), std::span(down).first(batch.size()));
  pass.stream.record(events_[event]);
  for (const Held& held : batch) held_.push_back({held.index, event});
}

void DeviceExperts::copy_and_compute(const DevicePass& pass, const MoeWeights& w, std::span<const Held> batch) {
  std::array<uint64_t, kBatch> addresses{};
  std::array<size_t, kBatch> slots{};
  if (copy_bytes_ > 0 && copy_end_.done()) {
    share_.measured_copy(copy_bytes_, copy_end_.seconds_since(copy_begin_));
    copy_bytes_ = 0;
  }
  const bool measure = copy_bytes_ == 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    slots[i] = next_slot_;
    next_slot_ = (next_slot_ + 1) % kStagedRecords;
    copies_.wait(slot_free_[slots[i]]);
  }
  if (measure) copies_.record(copy_begin_);
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint64_t offset = slots[i] * staged_bytes_;
    addresses[i] = reinterpret_cast<uint64_t>(staging_.address() + offset);
    copies_.copy_to_device(staging_, offset, lease_->record(batch[i].index).first(w.experts->record_bytes));
  }
  if (measure) {
    copies_.record(copy_end_);
    copy_bytes_ = batch.size() * w.experts->record_bytes;
  }
  gpu_copies_ += batch.size();
  gpu_copy_bytes_ += batch.size() * w.experts->record_bytes;
  const size_t copied = next_event();
  copies_.record(events_[copied]);
  pass.stream.wait(events_[copied]);
  compute_on_device(pass, w, batch, addresses.data(), next_event());
  for (size_t i = 0; i < batch.size(); ++i) pass.stream.record(slot_free_[slots[i]]);
}

void DeviceExperts::compute_on_host(const DevicePass& pass, uint32_t block, const MoeWeights& w, std::span<const Held> batch) {
  const ModelConfig& c = pass.config;
  const DeviceWeights::ExpertScales& scales = weights_.expert_scales(block);
  const uint32_t first_row = rows_;
  const bool gathers = pass.chunk.tokens > 1;
  const bool plain = !traits(w.experts->gate.dtype).quantised || !traits(w.experts->up.dtype).quantised;
  const bool quantised = traits(w.experts->gate.dtype).quantised || traits(w.experts->up.dtype).quantised;
  std::array<ExpertJob, kBatch> jobs;
  Activations hidden = host_.hidden;
  hidden.n = row_columns_;
  double work = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const uint32_t expert = host_.requested[batch[i].index];
    const uint32_t count = host_.counts[batch[i].index];
    const std::byte* const record = lease_->record(batch[i].index).data();
    const uint32_t row = take_rows(pass, expert);
    ExpertJob& job = jobs[i];
    job.gate = expert_matrix(w.experts->gate, record, scales.gate, expert);
    job.up = expert_matrix(w.experts->up, record, scales.up, expert);
    job.down = expert_matrix(w.experts->down, record, scales.down, expert);
    job.input = gathers ? host_.gathered.view(row, count) : host_.input.view(0, 1);
    job.gate_out = host_.gate + size_t{row} * c.expert_ff;
    job.up_out = host_.up + size_t{row} * c.expert_ff;
    job.hidden = hidden.from_row(row);
    job.out = host_.out + size_t{row} * c.hidden;
    work += MissShare::cpu_work(w.experts->record_bytes, count);
  }
  const uint32_t rows = rows_ - first_row;
  const Clock::time_point begin = Clock::now();
  if (gathers) {
    for_ranges(compute_, rows, c.hidden * kElementCost / 4, [&](size_t from, size_t to) {
      for (size_t row = first_row + from; row < first_row + to; ++row) {
        const kernels::ActivationView x = host_.input.view(host_.pair_token[row], 1);
        const Activations own = host_.gathered.from_row(row);
        if (plain) std::copy_n(x.x, x.n, own.x);
        if (!quantised) continue;
        std::copy_n(x.q, x.n, own.q);
        std::copy_n(x.scale, x.n / 32, own.scale);
        std::copy_n(x.sum, x.n / 32, own.sum);
      }
    });
  }
  run_experts(compute_, std::span<const ExpertJob>(jobs).first(batch.size()));
  share_.measured_cpu(work, std::chrono::duration<double>(Clock::now() - begin).count());
  for (const Held& held : batch) lease_->done(held.index);
  cpu_computed_ += batch.size();
  pass.stream.copy_to_device(pass.ws.moe.out + size_t{first_row} * c.hidden,
                             std::as_bytes(std::span(host_.out + size_t{first_row} * c.hidden, size_t{rows} * c.hidden)));
}

size_t DeviceExperts::next_event() {
  if (events_used_ == events_.size()) events_.emplace_back();
  return events_used_++;
}

// Records that kernels and copies have done with; at least the oldest if `wait`.
void DeviceExperts::give_back(bool wait) {
  size_t given = 0;
  for (; given < held_.size(); ++given) {
    const device::Event& event = events_[held_[given].event];
    if (wait && given == 0) event.synchronize();
    if (!event.done()) break;
    lease_->done(held_[given].index);
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(given));
}

void DeviceExperts::tell(const DevicePass& pass, uint32_t block, const uint32_t* ids, const float* weights) {
  if (pass.chunk.observer == nullptr) return;
  const size_t used = pass.config.experts_used;
  for (uint32_t t = 0; t < pass.chunk.tokens; ++t) {
    pass.chunk.observer->on_route(block, pass.chunk.position(t), std::span(ids + t * used, used), std::span(weights + t * used, used));
  }
}

void DeviceExperts::end_pass(const DevicePass& pass) {
  if (untold_.empty()) return;
  const size_t count = size_t{pass.config.layers} * pass.config.experts_used;
  pass.stream.copy_to_host(bytes_of(host_.ids, count), pass.scratch.ids);
  if (pass.chunk.observer != nullptr) pass.stream.copy_to_host(bytes_of(host_.weights, count), pass.scratch.weights);
}

void DeviceExperts::finish(const DevicePass& pass) {
  held_.clear();
  lease_.reset();
  const size_t used = pass.config.experts_used;
  for (const uint32_t block : untold_) {
    const uint32_t* const ids = host_.ids + block * used;
    tell(pass, block, ids, host_.weights + block * used);
    if (resident_[block]) store_.acquire(block, std::span(ids, used));  // counts as hits
  }
  untold_.clear();
}

void DeviceExperts::add_counters(ExpertCounters& counters) const {
  counters.cpu_computed += cpu_computed_;
  counters.gpu_copies += gpu_copies_;
  counters.gpu_copy_bytes += gpu_copy_bytes_;
}

void DeviceExperts::abandon() {
  try {
    copies_.synchronize();  // from records that are given back now
  } catch (...) {           // what failed is being reported already
  }
  held_.clear();
  lease_.reset();
  untold_.clear();
}

}  // namespace tierpack::model
