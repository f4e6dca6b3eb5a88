#include "runtime/server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tierpack::server {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, HistogramsAreCumulative) {
  Histogram h({0.1, 1});
  h.observe(0.1);
  h.observe(0.5, 3);
  h.observe(7);
  EXPECT_EQ(h.text("x"),
            "x_bucket{le=\"0.1\"} 1\nx_bucket{le=\"1\"} 4\nx_bucket{le=\"+Inf\"} 5\nx_sum 8.6\nx_count 5\n");
}

TEST(Metrics, CountsWhatHappened) {
  Metrics metrics;
  metrics.on_response("/health", 200);
  metrics.on_response("/health", 200);
  metrics.on_response("other", 404);
  GenerateResult result;
  result.finish = FinishReason::kLength;
  result.prompt_tokens = 10;
  result.reused_tokens = 4;
  result.tokens = {1, 2, 3};
  result.prefill_s = 0.5;
  result.decode_s = 0.25;
  metrics.on_generated(result, 0.25);
  ServerGauges gauges;
  gauges.ready = true;
  gauges.waiting = 2;
  gauges.running = 1;
  gauges.connections = 3;
  gauges.experts.requests = 7;
  gauges.experts.ram_hits = 5;
  gauges.experts.stall_us = 1500;
  gauges.seed = {30, 40, false};
  gauges.layers = {{.layer = 3, .requests = 7, .ram_hits = 5, .disk_reads = 2}};
  const std::string text = metrics.prometheus(gauges, "a\"b\\c\nd");
  for (const char* line : {
           "model=\"a\\\"b\\\\c\\nd\"} 1\n",
           "tierpack_ready 1\n",
           "tierpack_requests_waiting 2\n",
           "tierpack_http_responses_total{route=\"/health\",code=\"200\"} 2\n",
           "tierpack_http_responses_total{route=\"other\",code=\"404\"} 1\n",
           "tierpack_generations_total{finish_reason=\"length\"} 1\n",
           "tierpack_prompt_tokens_total 10\n",
           "tierpack_prompt_tokens_reused_total 4\n",
           "tierpack_generated_tokens_total 3\n",
           "tierpack_time_to_first_token_seconds_sum 0.75\n",
           "tierpack_token_seconds_count 2\n",
           "tierpack_generation_seconds_sum 1\n",
           "tierpack_expert_requests_total 7\n",
           "tierpack_expert_ram_hits_total 5\n",
           "tierpack_expert_layer_requests_total{layer=\"3\",found=\"disk\"} 2\n",
           "tierpack_expert_stall_seconds_total 0.0015\n",
           "tierpack_seed_loaded_bytes 30\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  // Every family is declared once, before its samples.
  EXPECT_EQ(text.find("# TYPE tierpack_queue_seconds histogram"),
            text.rfind("# TYPE tierpack_queue_seconds histogram"));
}

}  // namespace
}  // namespace tierpack::server
