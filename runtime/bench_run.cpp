#include "runtime/bench_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>

#include "base/error.h"

namespace tierpack {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kReadProbeSeconds = 0.1;
constexpr double kInt8ProbeSeconds = 0.02;
constexpr uint32_t kWarmUpDecode = 8;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One timeline under the clock, which stands still while logits are hashed.
class Timeline {
 public:
  Timeline(Session& session, std::span<const uint32_t> tokens, uint32_t prompt, const std::function<bool()>& should_stop)
      : session_(session), tokens_(tokens), prompt_(prompt), should_stop_(should_stop) {}

  double prefill() {
    session_.clear();
    return timed(tokens_.first(prompt_));
  }
  // The i-th token after the prompt.
  double decode(uint32_t i) {
    if (should_stop_()) fail(ErrorKind::kInterrupted, "stopped while measuring; nothing was written");
    return timed(tokens_.subspan(prompt_ + i, 1));
  }
  Xxh128 fingerprint() const { return hash_.digest(); }

 private:
  // Until the next token could be chosen: with the search for the likeliest one, as an answer at temperature 0 has it.
  double timed(std::span<const uint32_t> piece) {
    double took = 0;
    const auto start = Clock::now();
    session_.append(piece, false, [&](uint32_t, std::span<const float> logits) {
      chosen_ += static_cast<uint64_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      took = seconds_since(start);
      hash_.update(std::as_bytes(logits));
    }, should_stop_);
    return took;
  }

  Session& session_;
  std::span<const uint32_t> tokens_;
  uint32_t prompt_;
  const std::function<bool()>& should_stop_;
  Xxh3Stream hash_;
  uint64_t chosen_ = 0;
};

class Measurement {
 public:
  Measurement(Engine& engine, const BenchPlan& plan, const std::function<void(uint64_t)>& on_tokens,
              const std::function<bool()>& should_stop)
      : engine_(engine), plan_(plan), on_tokens_(on_tokens), should_stop_(should_stop),
        peak_before_probe_(peak_resident_bytes()), team_(engine.options().threads), read_probe_(team_, plan.probe_bytes),
        first_(engine.new_session()) {
    result_.machine = machine_info();
    result_.work = pass_work(engine.pack().manifest(), engine.config());
    for (const uint32_t length : plan.lengths) result_.lengths.emplace_back().tokens = length;
  }

  BenchResult run() {
    warm_up();
    probe();
    for (uint32_t run = 0; run < plan_.runs; ++run) {
      for (LengthResult& length : result_.lengths) single(length, run == 0);
      pair();
    }
    for (LengthResult& length : result_.lengths) {
      length.prefill_ceiling = prompt_ceiling(length.tokens, median_limits());
      length.decode_ceiling = decode_ceiling(median_limits());
    }
    result_.pair_ceiling = pair_ceiling(median_limits());
    const uint64_t peak = peak_resident_bytes();
    result_.peak_bytes = std::max(peak_before_probe_, peak - std::min(peak, read_probe_.bytes()));
    return std::move(result_);
  }

 private:
  void warm_up() {
    const uint32_t prompt = plan_.lengths.front();
    Timeline timeline(*first_, plan_.tokens, prompt, should_stop_);
    timeline.prefill();
    const uint32_t decode = std::min(plan_.decode, kWarmUpDecode);
    for (uint32_t i = 0; i < decode; ++i) timeline.decode(i);
    on_tokens_(prompt + decode);
  }

  void single(LengthResult& length, bool first_run) {
    Timeline timeline(*first_, plan_.tokens, length.tokens, should_stop_);
    const double prefill_s = timeline.prefill();
    on_tokens_(length.tokens);
    double decode_s = 0;
    for (uint32_t i = 0; i < plan_.decode; ++i) decode_s += timeline.decode(i);
    on_tokens_(plan_.decode);
    if (first_run) length.fingerprint = timeline.fingerprint();
    require_same(length, timeline.fingerprint());

    const Limits limits = limits_around();
    const double rate = plan_.decode / decode_s;
    const double read = static_cast<double>(result_.work.decode_bytes()) * rate;
    length.prefill.add(length.tokens / prefill_s);
    length.first_token.add(prefill_s);
    length.prefill_share.add(prompt_ceiling(length.tokens, limits).seconds / prefill_s);
    length.decode.add(rate);
    length.decode_share.add(decode_ceiling(limits).seconds * rate);
    length.decode_read.add(read);
    length.decode_read_share.add(read / limits.read);
  }

  void pair() {
    if (!second_) second_ = engine_.new_session();
    const uint32_t prompt = plan_.lengths.front();
    Timeline one(*first_, plan_.tokens, prompt, should_stop_);
    Timeline two(*second_, plan_.second, prompt, should_stop_);
    one.prefill();
    two.prefill();
    on_tokens_(uint64_t{prompt} * 2);
    double took = 0;
    for (uint32_t i = 0; i < plan_.decode; ++i) took += one.decode(i) + two.decode(i);
    on_tokens_(uint64_t{plan_.decode} * 2);
    require_same(result_.lengths.front(), one.fingerprint());
    const double rate = 2 * plan_.decode / took;
    result_.pair.add(rate);
    result_.pair_share.add(pair_ceiling(limits_around()).seconds / 2 * rate);
  }

  // What the machine could do at one time.
  struct Limits {
    double read = 0;      // bytes/s
    double products = 0;  // multiply-adds/s
  };

  void probe() {
    last_ = {read_probe_.measure(kReadProbeSeconds), measure_int8_rate(team_, engine_.options().isa, kInt8ProbeSeconds)};
    result_.read_bandwidth.add(last_.read);
    result_.int8_rate.add(last_.products);
  }

  // The mean of the last probe and one made now.
  Limits limits_around() {
    const Limits before = last_;
    probe();
    return {(before.read + last_.read) / 2, (before.products + last_.products) / 2};
  }
  Limits median_limits() const { return {result_.read_bandwidth.median(), result_.int8_rate.median()}; }

  Ceiling prompt_ceiling(uint64_t tokens, const Limits& limits) const {
    const PassWork& work = result_.work;
    return ceiling_of(work.prompt_bytes(tokens, engine_.options().chunk), work.prompt_products(tokens), limits.read,
                      limits.products);
  }
  Ceiling decode_ceiling(const Limits& limits) const {
    return ceiling_of(result_.work.decode_bytes(), result_.work.prompt_products(1), limits.read, limits.products);
  }
  Ceiling pair_ceiling(const Limits& limits) const {
    return ceiling_of(result_.work.pass_bytes(2), 2 * result_.work.prompt_products(1), limits.read, limits.products);
  }

  // Placement, runs and neighbours change speed, never the answer.
  static void require_same(const LengthResult& length, const Xxh128& found) {
    if (found == length.fingerprint) return;
    fail(ErrorKind::kInternal, "the logits after a prompt of {} tokens differ between runs: fingerprint {}, before {}",
         length.tokens, found.hex(), length.fingerprint.hex());
  }

  Engine& engine_;
  const BenchPlan& plan_;
  const std::function<void(uint64_t)>& on_tokens_;
  const std::function<bool()>& should_stop_;
  uint64_t peak_before_probe_;
  ThreadTeam team_;  // of the probes; asleep while the engine's own computes
  ReadProbe read_probe_;
  Limits last_;
  std::unique_ptr<Session> first_;
  std::unique_ptr<Session> second_;
  BenchResult result_;
};

}  // namespace

uint64_t BenchPlan::total_tokens() const {
  uint64_t each = 2 * (uint64_t{lengths.front()} + decode);
  for (const uint32_t length : lengths) each += uint64_t{length} + decode;
  return each * runs + lengths.front() + std::min(decode, kWarmUpDecode);
}

BenchResult run_bench(Engine& engine, const BenchPlan& plan, const std::function<void(uint64_t)>& on_tokens,
                      const std::function<bool()>& should_stop) {
  TIERPACK_CHECK(!plan.lengths.empty() && plan.decode > 0 && plan.runs > 0);
  TIERPACK_CHECK(plan.tokens.size() >= size_t{plan.lengths.back()} + plan.decode);
  TIERPACK_CHECK(plan.second.size() >= size_t{plan.lengths.front()} + plan.decode);
  return Measurement(engine, plan, on_tokens, should_stop).run();
}

}  // namespace tierpack
