// Runs token sequences through a model and writes down the experts it chose, as if they had been computed in chunks of a
// given size: routing does not depend on how tokens are computed together, so that the model may run in larger ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "runtime/experts/route_trace.h"

namespace tierpack {

struct RecordOptions {
  uint32_t chunk = 1;   // tokens recorded together; 1 is how answers are computed
  uint32_t prompt = 0;  // tokens at the head of a text that come as a prompt
  uint32_t prompt_chunk = 512;
  std::function<void(uint64_t tokens)> on_tokens;  // progress
  std::function<bool()> should_stop;               // throws kInterrupted when it returns true
};

// What a recording of this model begins with. Throws kUnsupported for a model without experts.
experts::RouteTraceHeader trace_header(const Engine& engine);

// Each text in windows that a session holds, every window from an empty session, with the model's beginning token where it
// wants one. `texts` are token ids.
void record_routes(Engine& engine, std::span<const std::vector<uint32_t>> texts, const RecordOptions& options,
                   experts::RouteTraceWriter& writer);

}  // namespace tierpack
