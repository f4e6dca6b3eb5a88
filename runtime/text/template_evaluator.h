// Runs a parsed template over its variables. One Evaluator renders once; what it allocates lives in the Heap it is
// given. The public part is what built-in filters, tests and methods need.
#pragma once

#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/template_ast.h"
#include "runtime/text/template_operations.h"

namespace tierpack::text::jinja {

// Variables of one block; a name is looked up from the innermost scope outwards.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<uint32_t, Value>> variables;
};

class Evaluator {
 public:
  // `now` is what strftime_now formats. Both references must outlive the evaluator.
  Evaluator(const Template& source, Heap& heap, const std::tm& now);

  // Throws kUsage with the line for whatever the template does wrong, and for raise_exception with its message.
  std::string render(const Dict& variables);

  Heap& heap() { return heap_; }
  const std::tm& now() const { return now_; }
  // A string value with a copy of the text.
  Value text(std::string_view text, bool markup = false) { return Value::string(heap_.store(text), markup); }
  std::string_view to_text(const Value& value) { return jinja::to_text(heap_, value); }

  // object.name and object[key]: attributes (methods) first, or elements first.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& callee, Arguments& arguments);
  Callable* new_callable() { return &callables_.emplace_back(); }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Depth;

  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_name(uint32_t name, const Scope& scope);
  Value evaluate_condition(const Expression& node, Scope& scope);
  Value evaluate_logic(const Expression& node, Scope& scope);
  Value evaluate_comparison(const Expression& node, Scope& scope);
  Value evaluate_arithmetic(const Expression& node, Scope& scope);
  Value evaluate_concatenation(const Expression& node, Scope& scope);
  Value evaluate_collection(const Expression& node, Scope& scope);
  Value evaluate_item(const Expression& node, Scope& scope);
  Value evaluate_call(const Expression& node, Scope& scope, const Value* caller);
  // A filter's innermost operand, where it is missing, is `block`.
  Value evaluate_filter(const Expression& node, Scope& scope, const Value* block);
  Value evaluate_test(const Expression& node, Scope& scope);
  void evaluate_arguments(const CallArguments& from, Scope& scope, Arguments& out);

  Flow execute(const Body& body, Scope& scope);
  Flow execute(const Statement& statement, Scope& scope);
  Flow execute_if(const Statement& statement, Scope& scope);
  void execute_for(const Statement& statement, Scope& scope);
  void run_loop(const Statement& statement, Scope& scope, const Value& iterable, int64_t depth);
  void execute_set_block(const Statement& statement, Scope& scope);
  void execute_call_block(const Statement& statement, Scope& scope);
  void execute_scope(const Statement& statement, Scope& scope);
  void execute_with(const Statement& statement, Scope& scope);
  // The output of a body, in the heap.
  Value capture(const Body& body, Scope& scope);

  Value call_macro(const Callable& macro, Arguments& arguments);
  Value call_loop(const Loop& loop, Arguments& arguments);
  Value loop_attribute(Loop& loop, std::string_view name);
  Value callable_attribute(const Callable& callable, std::string_view name);
  void assign(const Target& target, const Value& value, Scope& scope);
  void set_variable(Scope& scope, uint32_t name, const Value& value);
  Scope& new_scope(Scope& parent, const std::vector<uint32_t>& hidden);
  void hide(Scope& scope, const std::vector<uint32_t>& names);
  void write(std::string_view text);

  const Template& template_;
  Heap& heap_;
  std::tm now_;
  uint32_t line_ = 1;
  int depth_ = 0;
  std::string* out_ = nullptr;
  std::vector<std::optional<Value>> globals_;  // by name: the variables given, then functions
  std::deque<Scope> scopes_;
  std::deque<Loop> loops_;
  std::deque<Callable> callables_;
};

}  // namespace tierpack::text::jinja
