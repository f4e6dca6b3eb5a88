// Progress of long work: a bar with rate and ETA on a terminal, plain lines every few seconds otherwise, NDJSON events
// with --json. The work reports bytes from any thread; drawing happens at most ten times a second.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tierpack {

enum class ProgressStyle {
  kAuto,    // bar if stderr is a terminal, lines otherwise
  kLines,   // plain lines on stderr
  kJson,    // {"event":"progress",...} lines on stdout
  kSilent,
};

// What the amounts are; JSON events speak of bytes whatever the unit.
enum class ProgressUnit { kBytes, kTokens };

class Progress {
 public:
  // `what` is a verb phrase ("verifying model.gguf"); total 0 means unknown. Draws nothing before the first 200 ms.
  Progress(std::string what, uint64_t total_bytes, ProgressStyle style = ProgressStyle::kAuto,
           ProgressUnit unit = ProgressUnit::kBytes);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(uint64_t bytes);            // thread-safe
  void set_phase(std::string phase);   // shown after the name: "downloading", "verifying"
  uint64_t done() const;
  double seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Several lines of status at the bottom of the terminal, replacing the last ones; log lines appear above. Empty: removed.
// For work that shows more than one bar; does nothing when stderr is not a terminal or with --quiet.
void show_status(const std::vector<std::string>& lines);

// 75 -> "1:15", 3725 -> "1:02:05".
std::string format_duration(double seconds);

}  // namespace tierpack
