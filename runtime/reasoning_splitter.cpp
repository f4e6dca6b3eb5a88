#include "runtime/reasoning_splitter.h"

#include <algorithm>

namespace tierpack {

namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kLineBreaks = "\r\n";

std::string_view trim_end(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

// Bytes at the end of `text` that may belong to a closing tag or to the line breaks before it.
size_t held_tail(std::string_view text) {
  size_t tag = std::min(text.size(), kClose.size() - 1);
  while (tag > 0 && !kClose.starts_with(text.substr(text.size() - tag))) --tag;
  const std::string_view before = text.substr(0, text.size() - tag);
  const size_t last = before.find_last_not_of(kLineBreaks);
  const size_t kept = last == std::string_view::npos ? 0 : last + 1;
  return text.size() - kept;
}

}  // namespace

ReasoningSplitter::Start ReasoningSplitter::after_prompt(std::string_view tail) {
  const std::string_view text = trim_end(tail);
  if (text.ends_with(kOpen)) return Start::kInside;
  if (text.ends_with(kClose)) return Start::kAnswer;
  return Start::kDetect;
}

bool ReasoningSplitter::step(const Sink& sink) {
  switch (state_) {
    case State::kUndecided: {
      const size_t first = held_.find_first_not_of(kSpace);
      const std::string_view word =
          first == std::string::npos ? std::string_view() : std::string_view(held_).substr(first);
      if (word.starts_with(kOpen)) {
        held_.erase(0, first + kOpen.size());
        state_ = State::kAfterOpening;
        return true;
      }
      if (kOpen.starts_with(word)) return false;
      state_ = State::kAnswer;
      return true;
    }
    case State::kAfterOpening:
    case State::kAfterClosing: {
      held_.erase(0, std::min(held_.find_first_not_of(kLineBreaks), held_.size()));
      if (held_.empty()) return false;
      if (state_ == State::kAfterOpening) {
        state_ = State::kInside;
      } else if (held_.starts_with(kOpen)) {
        held_.erase(0, kOpen.size());
        state_ = State::kAfterOpening;
      } else if (kOpen.starts_with(held_)) {
        return false;
      } else {
        state_ = State::kAnswer;
      }
      return true;
    }
    case State::kInside: {
      const size_t close = held_.find(kClose);
      if (close != std::string::npos) {
        std::string_view thought = std::string_view(held_).substr(0, close);
        const size_t last = thought.find_last_not_of(kLineBreaks);
        thought = thought.substr(0, last == std::string_view::npos ? 0 : last + 1);
        think(sink, thought);
        held_.erase(0, close + kClose.size());
        next_block_ = thought_;
        state_ = State::kAfterClosing;
        return true;
      }
      const size_t sure = held_.size() - held_tail(held_);
      think(sink, std::string_view(held_).substr(0, sure));
      held_.erase(0, sure);
      return false;
    }
    case State::kAnswer:
      if (!held_.empty()) sink(TextKind::kAnswer, held_);
      held_.clear();
      return false;
  }
  return false;
}

void ReasoningSplitter::think(const Sink& sink, std::string_view text) {
  if (text.empty()) return;
  if (next_block_) sink(TextKind::kReasoning, "\n\n");
  next_block_ = false;
  thought_ = true;
  sink(TextKind::kReasoning, text);
}

void ReasoningSplitter::push(std::string_view text, const Sink& sink) {
  held_ += text;
  while (step(sink)) {
  }
}

void ReasoningSplitter::finish(const Sink& sink) {
  if (inside()) {
    think(sink, held_);
  } else if (!held_.empty()) {
    sink(TextKind::kAnswer, held_);
  }
  held_.clear();
}

}  // namespace tierpack
