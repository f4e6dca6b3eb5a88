// The model that a server answers with, as its threads see it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/chat_format.h"
#include "runtime/engine.h"

namespace tierpack::server {

struct ServedModel {
  std::unique_ptr<Engine> engine;
  std::optional<ChatFormat> format;  // none: the model brings no chat template
};

// Loads the model on the server's model thread. on_load may throw kInterrupted to stop.
using ModelLoader = std::function<ServedModel(const std::function<void(uint64_t done, uint64_t total)>& on_load)>;

enum class Phase { kLoading, kReady, kStopping };

// Written by the model's thread before the phase becomes kReady, read by the others after.
struct ServerState {
  std::atomic<Phase> phase{Phase::kLoading};
  std::atomic<double> load_progress{0};  // 0 to 1
  const ServedModel* model = nullptr;
  uint32_t context = 0;  // tokens a prompt and its answer may take together
};

}  // namespace tierpack::server
