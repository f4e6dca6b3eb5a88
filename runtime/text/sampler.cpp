#include "runtime/text/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tierpack::text {

namespace {

// 2^k for -1022 <= k <= 1023.
double power_of_two(int k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); }

// e^x for x <= 0 from IEEE additions and multiplications alone, so that every machine draws the same token; the C
// library's exp may differ in the last bit. |relative error| < 1e-14, which no choice of a token can notice.
double exp_of(double x) {
  if (x < -708) return 0;  // below the smallest normal number
  constexpr double kLog2e = 1.4426950408889634;
  constexpr double kLn2High = 0.693147180369123816490, kLn2Low = 1.90821492927058770002e-10;
  constexpr double kToInteger = 0x1.8p52;  // added, leaves the nearest integer in the low bits
  const double shifted = x * kLog2e + kToInteger;
  const double k = shifted - kToInteger;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2
  // The Taylor polynomial of degree 13, even and odd powers apart: two short chains of operations instead of a long one.
  constexpr auto kInverseFactorial = [] {
    std::array<double, 14> out{};
    double factorial = 1;
    for (int i = 0; i < 14; ++i) factorial *= i == 0 ? 1 : i, out[static_cast<size_t>(i)] = 1 / factorial;
    return out;
  }();
  const double square = r * r;
  double even = kInverseFactorial[12], odd = kInverseFactorial[13];
  for (size_t i = 12; i > 0; i -= 2) {
    even = even * square + kInverseFactorial[i - 2];
    odd = odd * square + kInverseFactorial[i - 1];
  }
  return (even + odd * r) * power_of_two(static_cast<int>(k));
}

uint64_t next_random(uint64_t state[4]) {  // xoshiro256**, Blackman and Vigna
  const uint64_t result = std::rotl(state[1] * 5, 7) * 9;
  const uint64_t shifted = state[1] << 17;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= shifted;
  state[3] = std::rotl(state[3], 45);
  return result;
}

uint64_t split_mix(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

void check_range(const char* option, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    fail(ErrorKind::kUsage, "{} is {}, expected {} to {}", option, value, low, high);
  }
}

// Larger logits first, lower ids first among equal ones: an order without ties.
bool comes_before(const std::pair<float, uint32_t>& a, const std::pair<float, uint32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

void require_number(float logit, uint32_t id) {
  if (!std::isnan(logit) && logit != std::numeric_limits<float>::infinity()) return;
  fail(ErrorKind::kCorrupt,
       "the logit of token {} is {}: the model's weights or a computation on them are broken; run verify --deep", id, logit);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check_range("temperature", options.temperature, 0, 100);
  check_range("top_p", options.top_p, 0, 1);
  check_range("min_p", options.min_p, 0, 1);
  check_range("repetition_penalty", options.repetition_penalty, 0.01, 100);
  uint64_t state = options.seed;
  for (uint64_t& word : random_state_) word = split_mix(state);
}

void Sampler::offer(float logit, uint32_t id) {
  candidates_.push_back({logit, id});
  if (candidates_.size() < 2 * size_t{keep_}) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + (keep_ - 1), candidates_.end(), comes_before);
  candidates_.resize(keep_);
  floor_ = candidates_.back().first;
}

void Sampler::offer_all(std::span<const float> logits, uint32_t begin, uint32_t end) {
  // Later ids lose ties, so only a larger logit can still enter. Most stretches have none.
  constexpr uint32_t kStretch = 32;
  for (uint32_t first = begin; first < end; first += kStretch) {
    const uint32_t last = std::min(first + kStretch, end);
    bool any = false;
    for (uint32_t id = first; id < last; ++id) any |= !(logits[id] <= floor_);  // true for NaN
    if (!any) continue;
    for (uint32_t id = first; id < last; ++id) {
      require_number(logits[id], id);
      if (!(logits[id] <= floor_)) offer(logits[id], id);
    }
  }
}

void Sampler::collect(std::span<const float> logits, std::span<const uint32_t> history, uint32_t keep) {
  if (logits.empty()) fail(ErrorKind::kInternal, "sampling from no logits at all");
  candidates_.clear();
  keep_ = keep;
  // Nothing is at most NaN: everything may enter until enough candidates are known.
  floor_ = std::numeric_limits<float>::quiet_NaN();
  recent_.clear();
  if (options_.repetition_penalty != 1) {
    const size_t window = std::min<size_t>(history.size(), options_.penalty_window);
    recent_.assign(history.end() - static_cast<ptrdiff_t>(window), history.end());
    std::sort(recent_.begin(), recent_.end());
    recent_.erase(std::unique(recent_.begin(), recent_.end()), recent_.end());
  }
  uint32_t next = 0;
  for (const uint32_t id : recent_) {
    if (id >= logits.size()) break;
    offer_all(logits, next, id);
    require_number(logits[id], id);
    const float logit = logits[id];
    const float penalised = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    if (!(penalised <= floor_)) offer(penalised, id);
    next = id + 1;
  }
  offer_all(logits, next, static_cast<uint32_t>(logits.size()));
}

uint32_t Sampler::sample(std::span<const float> logits, std::span<const uint32_t> history) {
  // The k best in no order among themselves, or all.
  const bool greedy = options_.temperature == 0 || options_.top_k == 1 || options_.top_p == 0;
  const auto all = static_cast<uint32_t>(logits.size());
  const uint32_t keep = greedy ? 1 : options_.top_k == 0 ? all : std::min(options_.top_k, all);
  collect(logits, history, keep);
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), comes_before);
  const float largest = best->first;
  if (largest == -std::numeric_limits<float>::infinity()) {
    fail(ErrorKind::kInternal, "every token is excluded: all {} logits are minus infinity", logits.size());
  }
  if (greedy) return best->second;
  size_t count = std::min<size_t>(candidates_.size(), keep);
  if (count < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count) - 1, candidates_.end(),
                     comes_before);
  }
  const double temperature = options_.temperature;
  const auto weight = [&](const std::pair<float, uint32_t>& one) {
    return exp_of((static_cast<double>(one.first) - static_cast<double>(largest)) / temperature);
  };
  // Sums run in the order of ids or of rank, never in the order that a selection happens to leave.
  const auto by_id = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto begin = candidates_.begin();
  if (keep < all) std::sort(begin, begin + static_cast<ptrdiff_t>(count), by_id);

  if (options_.top_p < 1) {
    double total = 0;
    for (size_t i = 0; i < count; ++i) total += weight(candidates_[i]);
    // The smallest set of best tokens whose share reaches top_p: the best move to the front of a heap one by one.
    const auto comes_after = [](const auto& a, const auto& b) { return comes_before(b, a); };
    const auto end = begin + static_cast<ptrdiff_t>(count);
    std::make_heap(begin, end, comes_after);
    double sum = 0;
    size_t kept = 0;
    while (kept < count && sum < static_cast<double>(options_.top_p) * total) {
      std::pop_heap(begin, end - static_cast<ptrdiff_t>(kept), comes_after);
      ++kept;
      sum += weight(candidates_[count - kept]);
    }
    std::move(end - static_cast<ptrdiff_t>(kept), end, begin);
    count = kept;
    std::sort(begin, begin + static_cast<ptrdiff_t>(count), by_id);
  }

  // min-p: relative to the best token, whose weight is 1.
  weights_.clear();
  double total = 0;
  // What lies well below the threshold needs no exponential; the logarithm's last bits do not matter for that.
  const double hopeless = options_.min_p > 0 ? static_cast<double>(largest) + temperature * (std::log(static_cast<double>(options_.min_p)) - 0.01)
                                             : -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < count; ++i) {
    if (static_cast<double>(candidates_[i].first) < hopeless) continue;
    const double one = weight(candidates_[i]);
    if (one < static_cast<double>(options_.min_p)) continue;
    candidates_[weights_.size()] = candidates_[i];
    total += one;
    weights_.push_back(total);
  }
  const double point = static_cast<double>(next_random(random_state_) >> 11) * power_of_two(-53) * total;
  const size_t drawn =
      static_cast<size_t>(std::upper_bound(weights_.begin(), weights_.end(), point) - weights_.begin());
  return candidates_[std::min(drawn, weights_.size() - 1)].second;
}

}  // namespace tierpack::text
