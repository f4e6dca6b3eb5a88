// Separates what a model thinks (<think> ... </think>) from what it answers, on text as it arrives.
//
// Only one block is taken, at the very beginning: either the prompt's generation suffix opened it already (kInside), or
// the model may open it as its first word (kDetect). Whatever looks like a tag later on is the answer's own text. Line
// breaks beside the tags belong to the tags. A block that is never closed is all reasoning.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tierpack {

enum class TextKind { kReasoning, kAnswer };

class ReasoningSplitter {
 public:
  enum class Start { kAnswer, kDetect, kInside };
  using Sink = std::function<void(TextKind kind, std::string_view text)>;

  explicit ReasoningSplitter(Start start)
      : state_(start == Start::kAnswer   ? State::kAnswer
               : start == Start::kDetect ? State::kUndecided
                                         : State::kAfterOpening) {}

  // How a model begins after a prompt that ends with `tail`: inside a block that the prompt opened, in the answer after
  // one that the prompt closed, undecided otherwise.
  static Start after_prompt(std::string_view tail);

  // Passes on what is certain; text that could still become part of a tag is held back.
  void push(std::string_view text, const Sink& sink);
  void finish(const Sink& sink);
  // Whether the text pushed last was reasoning.
  bool inside() const { return state_ == State::kAfterOpening || state_ == State::kInside; }

 private:
  enum class State {
    kUndecided,     // nothing but white space and a possible beginning of <think> so far
    kAfterOpening,  // the tag was seen, line breaks are skipped
    kInside,
    kAfterClosing,  // line breaks are skipped
    kAnswer,
  };
  bool step(const Sink& sink);  // false when more text is needed

  State state_;
  std::string held_;
};

}  // namespace tierpack
