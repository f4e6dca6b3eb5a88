// How long to wait before trying again, and when to give up. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace tierpack::fetch {

struct RetryPolicy {
  int attempts = 8;                // failures in a row, without progress in between, that are still retried
  double first_wait_s = 1;         // the longest wait after the first failure; doubles with each
  double longest_wait_s = 60;      // cap of our own waits
  double longest_server_wait_s = 600;  // a server that asks for more than this is given up on
  uint64_t progress_bytes = uint64_t{256} << 10;  // this much received since the last reset resets the count
};

// Full jitter: uniformly random between 0 and the exponential cap. `failures` >= 1, `random` in [0, 1).
inline double backoff_seconds(const RetryPolicy& policy, int failures, double random) {
  const double cap = std::min(policy.longest_wait_s, policy.first_wait_s * std::exp2(std::min(failures - 1, 30)));
  return cap * random;
}

// What the server asked for, never less than the small wait that keeps a zero from becoming a busy loop.
inline double wait_seconds(const RetryPolicy& policy, int failures, double random, std::optional<double> asked) {
  return asked ? std::max(*asked, policy.first_wait_s * 0.05) : backoff_seconds(policy, failures, random);
}

}  // namespace tierpack::fetch
