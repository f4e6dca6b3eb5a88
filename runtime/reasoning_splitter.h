// Separates what a model thinks (<think> ... </think>) from what it answers, on text as it arrives.
//
// Blocks are taken at the very beginning only: either the prompt's generation suffix opened one already (kInside), or the
// model may open it as its first word (kDetect). Another block straight after the first, which small models like to write,
// is reasoning as well. Whatever looks like a tag after the answer's first word is the answer's own text. Line breaks
// beside the tags belong to the tags; reasoning of two blocks is joined by an empty line. A block that is never closed is
// all reasoning.
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
    kAfterClosing,  // line breaks are skipped, and another block may open
    kAnswer,
  };
  bool step(const Sink& sink);  // false when more text is needed
  void think(const Sink& sink, std::string_view text);

  State state_;
  bool thought_ = false;     // some reasoning was passed on
  bool next_block_ = false;  // ... in a block that has ended
  std::string held_;
};

}  // namespace tierpack
