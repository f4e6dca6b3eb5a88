// A plan as text for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan.h"
#include "runtime/planning/memory_plan.h"
#include "runtime/planning/rate_model.h"

namespace tierpack {

struct PlanReport {
  PlanSubject subject;
  planning::MemoryOptions options;
  planning::MemoryPlan plan;
  planning::HitRates hits;
  std::string profile_name;  // empty without one
  uint64_t profile_tokens = 0;
  std::string hardware_name;  // empty: rates are not known
  planning::RatePrediction rates;
  std::vector<std::string> notes;
};

// With `explain`, how each number came about.
std::string plan_text(const PlanReport& report, bool explain);
std::string plan_json(const PlanReport& report);

}  // namespace tierpack
