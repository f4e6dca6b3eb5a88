#include "runtime/model/expert_jobs.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tierpack::model {

void run_experts(const Compute& c, std::span<const ExpertJob> jobs) {
  TIERPACK_CHECK(jobs.size() <= kExpertJobs);
  std::array<Product, kExpertJobs> first{};
  std::array<Product, kExpertJobs> second{};
  for (size_t i = 0; i < jobs.size(); ++i) {
    const ExpertJob& job = jobs[i];
    first[i] = {&job.gate, job.input, job.gate_out, job.gate.rows};
    second[i] = {&job.down, job.hidden.view(0, job.input.tokens), job.out, job.down.rows};
  }
  // The piece that has a block of gate rows computes the same rows of up, then their hidden values.
  run_products(c, std::span(first).first(jobs.size()), [&](size_t i, uint32_t begin, uint32_t end) {
    const ExpertJob& job = jobs[i];
    const size_t ff = job.gate.rows;
    multiply(c, job.up, begin, end, job.input, job.up_out, ff);
    // Rows of down may be filled up to whole blocks: zeros there meet zeros here.
    const size_t filled = end == ff ? job.hidden.n - ff : 0;
    for (size_t t = 0; t < job.input.tokens; ++t) {
      const size_t at = t * ff + begin;
      const size_t to = t * job.hidden.n + begin;
      c.k.silu_mul(job.gate_out + at, job.up_out + at, end - begin, job.hidden.x + to);
      std::fill_n(job.hidden.x + to + (end - begin), filled, 0.0f);
      if (reads_quantised(c, job.down)) job.hidden.quantize(c, to, to + (end - begin) + filled);
    }
  });
  run_products(c, std::span(second).first(jobs.size()));
}

MatrixView expert_matrix(const ExpertPart& p, const std::byte* record, const float* scales, uint32_t expert) {
  MatrixView w{p.dtype, record + p.offset, static_cast<uint32_t>(p.out),
               static_cast<uint32_t>(stored_elements(p.dtype, p.in))};
  if (p.scale_rows > 0) {
    const auto* own = reinterpret_cast<const float*>(record + p.scale_offset);
    TIERPACK_CHECK(set_scales(w, own, p.scale_rows, p.scale_columns));
  } else if (scales != nullptr) {
    TIERPACK_CHECK(set_scales(w, scales + expert, 1, 1));
  }
  return w;
}

}  // namespace tierpack::model
