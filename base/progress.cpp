#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "base/bytes.h"
#include "base/log.h"
#include "base/printable.h"

namespace tierpack {

namespace {

using Clock = std::chrono::steady_clock;

// Serialises everything that writes to the terminal. `bar_visible` says whether the last line is a progress bar, which
// stays at the cursor; `status_lines` how many lines of status stand above it.
struct Terminal {
  std::mutex mutex;
  bool bar_visible = false;
  size_t status_lines = 0;
  LogLevel level = LogLevel::kNormal;

  void clear_bar() {
    if (bar_visible) std::fputs("\r\x1b[K", stderr);
    bar_visible = false;
    for (; status_lines > 0; --status_lines) std::fputs("\x1b[1A\r\x1b[K", stderr);
  }
};

Terminal& terminal() {
  static Terminal instance;
  return instance;
}

// Messages quote servers and files.
void log_line(const std::string& line) {
  Terminal& out = terminal();
  const std::lock_guard lock(out.mutex);
  out.clear_bar();
  std::fprintf(stderr, "%s\n", printable_lines(line).c_str());
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Seconds covered by the rate shown: long enough to be readable, short enough to follow the network.
constexpr double kRateWindow = 5.0;

}  // namespace

void show_status(const std::vector<std::string>& lines) {
  if (isatty(STDERR_FILENO) == 0 || log_level() == LogLevel::kQuiet) return;
  Terminal& out = terminal();
  const std::lock_guard lock(out.mutex);
  out.clear_bar();
  const auto columns = static_cast<size_t>(terminal_columns());
  for (const std::string& line : lines) std::fprintf(stderr, "%s\n", line.substr(0, columns - 1).c_str());
  std::fflush(stderr);
  out.status_lines = lines.size();
}

void set_log_level(LogLevel level) { terminal().level = level; }
LogLevel log_level() { return terminal().level; }
void log_info(const std::string& line) {
  if (log_level() != LogLevel::kQuiet) log_line(line);
}
void log_detail(const std::string& line) {
  if (log_level() == LogLevel::kVerbose) log_line(line);
}
void log_warning(const std::string& line) { log_line("warning: " + line); }
void log_error(const std::string& line) { log_line("error: " + line); }

std::string format_duration(double seconds) {
  const auto total = static_cast<uint64_t>(std::max(0.0, seconds) + 0.5);
  const uint64_t h = total / 3600;
  const uint64_t m = total / 60 % 60;
  const uint64_t s = total % 60;
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{}:{:02}", m, s);
}

struct Progress::State {
  std::string what;
  std::string phase;
  uint64_t total = 0;
  ProgressStyle style = ProgressStyle::kSilent;
  ProgressUnit unit = ProgressUnit::kBytes;
  std::atomic<uint64_t> done{0};
  Clock::time_point start = Clock::now();
  std::atomic<int64_t> next_draw_ms{200};
  std::mutex mutex;
  double window_start = 0;
  uint64_t window_bytes = 0;
  double rate = 0;

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
  int64_t interval_ms() const { return style == ProgressStyle::kAuto ? 100 : style == ProgressStyle::kJson ? 500 : 5000; }

  void maybe_draw() {
    const double now = elapsed();
    int64_t due = next_draw_ms.load(std::memory_order_relaxed);
    const auto now_ms = static_cast<int64_t>(now * 1000);
    if (now_ms < due || !next_draw_ms.compare_exchange_strong(due, now_ms + interval_ms())) return;
    const std::lock_guard lock(mutex);
    draw(now);
  }

  void draw(double now) {
    const uint64_t bytes = done.load();
    const double span = now - window_start;
    if (span > 0) rate = static_cast<double>(bytes - std::min(bytes, window_bytes)) / span;
    if (span > kRateWindow) {
      window_start = now;
      window_bytes = bytes;
    }
    const double left = total > bytes && rate > 0 ? static_cast<double>(total - bytes) / rate : 0;
    const auto amount = [this](uint64_t n) {
      return unit == ProgressUnit::kBytes ? format_size(n) : format_count(n) + " tokens";
    };
    const std::string size = total > 0 ? fmt::format("{} / {} ({:.0f} %)", amount(bytes), amount(total),
                                                     100.0 * static_cast<double>(bytes) / static_cast<double>(total))
                                       : amount(bytes);
    std::string line = fmt::format("{}{}{}  {}  {}/s", what, phase.empty() ? "" : ": ", phase, size,
                                   amount(static_cast<uint64_t>(rate)));
    if (total > bytes && rate > 0) line += "  ETA " + format_duration(left);

    if (style == ProgressStyle::kJson) {
      Terminal& out = terminal();
      const std::lock_guard lock(out.mutex);
      std::printf("{\"event\":\"progress\",\"phase\":\"%s\",\"done_bytes\":%llu,\"total_bytes\":%llu,\"rate_bytes_per_s\":%.0f}\n",
                  phase.c_str(), static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(total), rate);
      std::fflush(stdout);
    } else if (style == ProgressStyle::kAuto) {
      Terminal& out = terminal();
      const std::lock_guard lock(out.mutex);
      const auto columns = static_cast<size_t>(terminal_columns());
      if (line.size() >= columns) line.resize(columns - 1);
      std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
      std::fflush(stderr);
      out.bar_visible = true;
    } else {
      log_info(line);
    }
  }
};

Progress::Progress(std::string what, uint64_t total_bytes, ProgressStyle style, ProgressUnit unit)
    : state_(std::make_unique<State>()) {
  state_->what = std::move(what);
  state_->total = total_bytes;
  state_->unit = unit;
  if (style == ProgressStyle::kAuto && !isatty(STDERR_FILENO)) style = ProgressStyle::kLines;
  if (style != ProgressStyle::kJson && log_level() == LogLevel::kQuiet) style = ProgressStyle::kSilent;
  state_->style = style;
  if (style == ProgressStyle::kLines) state_->next_draw_ms = 5000;
}

Progress::~Progress() {
  Terminal& out = terminal();
  const std::lock_guard lock(out.mutex);
  out.clear_bar();
  std::fflush(stderr);
}

void Progress::add(uint64_t bytes) {
  state_->done.fetch_add(bytes, std::memory_order_relaxed);
  if (state_->style != ProgressStyle::kSilent) state_->maybe_draw();
}

void Progress::set_phase(std::string phase) {
  const std::lock_guard lock(state_->mutex);
  state_->phase = std::move(phase);
}

uint64_t Progress::done() const { return state_->done.load(); }
double Progress::seconds() const { return state_->elapsed(); }

}  // namespace tierpack
