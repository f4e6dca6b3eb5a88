#include "runtime/hardware/kernel_rates.h"

#include <gtest/gtest.h>

namespace tierpack::hardware {
namespace {

TEST(KernelRates, OfEveryTypeAsked) {
  ThreadTeam team(2);
  KernelQuestion question;
  question.dtypes = {DType::kQ4_K, DType::kNVFP4, DType::kBF16, DType::kF8_E4M3};
  question.rows = 100;  // not whole pieces, nor whole row groups
  question.cols = 512;
  question.memory_bytes = uint64_t{3} << 20;
  question.window_seconds = 0.002;
  const std::vector<KernelRate> rates = measure_kernels(kernels::best(), team, question);
  ASSERT_EQ(rates.size(), 4u);
  EXPECT_EQ(rates[0].dtype, "Q4_K");
  EXPECT_EQ(rates[3].dtype, "F8_E4M3");
  for (const KernelRate& rate : rates) {
    EXPECT_GT(rate.decode_bytes_s, 1e3) << rate.dtype;
    EXPECT_LT(rate.decode_bytes_s, 1e13) << rate.dtype;
    EXPECT_GT(rate.prefill_madds_s, 1e3) << rate.dtype;
  }
}

TEST(KernelRates, TypesOfAPackByTheirBytes) {
  PackManifest manifest;
  const auto dense = [&](DType dtype, uint32_t dims, uint64_t bytes) {
    DenseTensor tensor;
    tensor.dtype = dtype;
    tensor.shape.dims = dims;
    tensor.record = static_cast<uint32_t>(manifest.records.size());
    manifest.dense.push_back(tensor);
    manifest.records.push_back({0, bytes, Segment::kDense, {}});
  };
  dense(DType::kQ8_0, 2, 5000);
  dense(DType::kF32, 1, 900000);  // norms have no products
  dense(DType::kI32, 2, 900000);
  dense(DType::kBF16, 2, 40);     // too little to matter
  ExpertLayer layer;
  layer.experts = 8;
  layer.gate = {"", DType::kQ4_K, 256, 64, 0, 1000};
  layer.up = {"", DType::kQ4_K, 256, 64, 0, 1000};
  layer.down = {"", DType::kQ6_K, 256, 64, 0, 1500};
  manifest.expert_layers.push_back(layer);
  EXPECT_EQ(weight_types(manifest), (std::vector<DType>{DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}));
}

}  // namespace
}  // namespace tierpack::hardware
