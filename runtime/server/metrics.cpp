#include "runtime/server/metrics.h"

#include <chrono>

#include <fmt/core.h>

#include "runtime/expert_report.h"

namespace tierpack::server {

namespace {

const std::vector<double> kWaits_s = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
const std::vector<double> kTokens_s = {0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 3};

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <typename Value>
void single(std::string& out, const char* name, const char* type, const char* help, Value value) {
  head(out, name, type, help);
  out += fmt::format("{} {}\n", name, value);
}

std::string label(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void Histogram::observe(double seconds, uint64_t times) {
  size_t bucket = 0;
  while (bucket < bounds_s_.size() && seconds > bounds_s_[bucket]) ++bucket;
  counts_[bucket] += times;
  sum_s_ += seconds * static_cast<double>(times);
}

std::string Histogram::text(const std::string& name) const {
  std::string out;
  uint64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_s_.size() ? fmt::format("{}", bounds_s_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  return out + fmt::format("{}_sum {}\n{}_count {}\n", name, sum_s_, name, total);
}

Metrics::Metrics()
    : queued_(kWaits_s),
      first_token_(kWaits_s),
      per_token_(kTokens_s),
      whole_(kWaits_s),
      started_s_(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()) {}

void Metrics::on_response(const std::string& route, unsigned status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{route, status}];
}

void Metrics::on_generated(const GenerateResult& result, double queued_s) {
  const std::lock_guard lock(mutex_);
  ++finished_[finish_reason_name(result.finish)];
  prompt_tokens_ += result.prompt_tokens;
  reused_tokens_ += result.reused_tokens;
  generated_tokens_ += result.tokens.size();
  reasoning_tokens_ += result.reasoning_tokens;
  prefill_s_ += result.prefill_s;
  decode_s_ += result.decode_s;
  queued_.observe(queued_s);
  if (!result.tokens.empty()) first_token_.observe(queued_s + result.prefill_s);
  if (result.tokens.size() > 1) {
    const uint64_t steps = result.tokens.size() - 1;
    per_token_.observe(result.decode_s / static_cast<double>(steps), steps);
  }
  whole_.observe(queued_s + result.prefill_s + result.decode_s);
}

std::string Metrics::prometheus(const ServerGauges& gauges, const std::string& model) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  head(out, "tierpack_info", "gauge", "The program and the model it serves.");
  out += fmt::format("tierpack_info{{version=\"{}\",model=\"{}\"}} 1\n", TIERPACK_VERSION, label(model));
  single(out, "tierpack_start_time_seconds", "gauge", "Unix time when the server started.",
         fmt::format("{:.3f}", started_s_));
  single(out, "tierpack_ready", "gauge", "1 when the model is loaded.", gauges.ready ? 1 : 0);
  single(out, "tierpack_connections", "gauge", "Open connections.", gauges.connections);
  single(out, "tierpack_requests_running", "gauge", "Requests the model works on.", gauges.running);
  single(out, "tierpack_requests_waiting", "gauge", "Requests that wait for their turn.", gauges.waiting);

  head(out, "tierpack_http_responses_total", "counter",
       "Responses by route and status; 499 = the client left before its answer was complete.");
  for (const auto& [key, count] : responses_) {
    out += fmt::format("tierpack_http_responses_total{{route=\"{}\",code=\"{}\"}} {}\n", key.first, key.second, count);
  }
  head(out, "tierpack_generations_total", "counter", "Answers by how they ended.");
  for (const auto& [reason, count] : finished_) {
    out += fmt::format("tierpack_generations_total{{finish_reason=\"{}\"}} {}\n", reason, count);
  }
  single(out, "tierpack_prompt_tokens_total", "counter", "Prompt tokens of all requests.", prompt_tokens_);
  single(out, "tierpack_prompt_tokens_reused_total", "counter", "Prompt tokens that the session already held.",
         reused_tokens_);
  single(out, "tierpack_generated_tokens_total", "counter", "Generated tokens.", generated_tokens_);
  single(out, "tierpack_reasoning_tokens_total", "counter", "Generated tokens inside reasoning blocks.",
         reasoning_tokens_);
  single(out, "tierpack_prefill_seconds_total", "counter", "Time spent on prompts.", prefill_s_);
  single(out, "tierpack_decode_seconds_total", "counter", "Time spent on generated tokens after the first.", decode_s_);

  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    head(out, name, "histogram", help);
    out += values.text(name);
  };
  histogram("tierpack_queue_seconds", "Wait for the model.", queued_);
  histogram("tierpack_time_to_first_token_seconds", "From a request's arrival in the queue to its first token.",
            first_token_);
  histogram("tierpack_token_seconds", "Mean time a generated token of an answer, weighted by tokens.", per_token_);
  histogram("tierpack_generation_seconds", "From a request's arrival in the queue to the end of its answer.", whole_);

  for (const ExpertCounterField& field : expert_counter_fields()) {
    if (field.value == &ExpertCounters::stall_us) continue;  // in seconds, as others expect it
    const std::string name = fmt::format("tierpack_expert_{}_total", field.name);
    single(out, name.c_str(), "counter", field.help, gauges.experts.*field.value);
  }
  single(out, "tierpack_expert_stall_seconds_total", "counter", "Time the model waited for experts.",
         static_cast<double>(gauges.experts.stall_us) / 1e6);
  if (!gauges.layers.empty()) {
    head(out, "tierpack_expert_layer_requests_total", "counter", "Experts asked for, by block and where they were found.");
    for (const ExpertLayerCounters& l : gauges.layers) {
      for (const auto& [found, count] : {std::pair("vram", l.vram_hits), std::pair("ram", l.ram_hits), std::pair("late", l.late_hits),
                                         std::pair("disk", l.disk_reads)}) {
        out += fmt::format("tierpack_expert_layer_requests_total{{layer=\"{}\",found=\"{}\"}} {}\n", l.layer, found, count);
      }
    }
    head(out, "tierpack_expert_layer_stall_seconds_total", "counter", "Time the model waited for a block's experts.");
    for (const ExpertLayerCounters& l : gauges.layers) {
      out += fmt::format("tierpack_expert_layer_stall_seconds_total{{layer=\"{}\"}} {}\n", l.layer, static_cast<double>(l.stall_us) / 1e6);
    }
  }
  single(out, "tierpack_seed_bytes", "gauge", "Bytes of experts that the caches begin with.", gauges.seed.total_bytes);
  single(out, "tierpack_seed_loaded_bytes", "gauge", "Of them, bytes loaded.", gauges.seed.loaded_bytes);
  return out;
}

}  // namespace tierpack::server
