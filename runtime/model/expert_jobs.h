// Experts on the CPU: the products of some experts, each with the rows of activations that chose it. Used by the forward passes on the
// CPU for every expert, and beside a GPU for those that are cheaper to compute where they lie.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "formats/pack.h"
#include "runtime/experts/expert_slots.h"
#include "runtime/model/compute.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

// One expert and the rows of activations it is applied to.
struct ExpertJob {
  MatrixView gate, up, down;
  kernels::ActivationView input;  // (tokens, D)
  float* gate_out = nullptr;      // (tokens, F)
  float* up_out = nullptr;        // (tokens, F)
  Activations hidden;             // (tokens, columns of down), its row 0 the job's first
  float* out = nullptr;           // (tokens, D)
};

// Experts computed together: enough to keep a team busy, few enough to live on the stack; the store can always hold as
// many routed ones.
inline constexpr size_t kExpertJobs = kLeaseRecords;

// down (silu(gate x) * up x) of every job, at most kExpertJobs, in two loops over blocks of rows of all jobs.
void run_experts(const Compute& c, std::span<const ExpertJob> jobs);

// One matrix of an expert's record with its scales, from the record or one of `scales` (one an expert, null: none); bind_weights
// has checked them.
MatrixView expert_matrix(const ExpertPart& part, const std::byte* record, const float* scales, uint32_t expert);

}  // namespace tierpack::model
