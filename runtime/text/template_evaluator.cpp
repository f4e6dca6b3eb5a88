#include "runtime/text/template_evaluator.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/text/template_builtins.h"

namespace tierpack::text::jinja {

namespace {
// Expressions, statements and macro calls within each other.
constexpr int kMaxDepth = 2500;
}  // namespace

class Evaluator::Depth {
 public:
  explicit Depth(Evaluator& evaluator) : evaluator_(evaluator) {
    if (evaluator_.depth_ >= kMaxDepth) throw TemplateError("maximum recursion depth exceeded", false);
    ++evaluator_.depth_;
  }
  ~Depth() { --evaluator_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Evaluator& evaluator_;
};

Evaluator::Evaluator(const Template& source, Heap& heap, const std::tm& now)
    : template_(source), heap_(heap), now_(now), globals_(source.names.size()) {
  for (size_t name = 0; name < source.names.size(); ++name) {
    if (const Function function = find_function(source.names[name])) {
      Callable* callable = new_callable();
      callable->name = source.names[name];
      callable->function = function;
      globals_[name] = Value::callable(callable);
    }
  }
}

std::string Evaluator::render(const Dict& variables) {
  for (const auto& [key, value] : variables.entries()) {
    const auto name = template_.name_ids.find(std::string(key.as_string()));
    if (name != template_.name_ids.end()) globals_[name->second] = value;
  }
  std::string out;
  out_ = &out;
  Scope& top = scopes_.emplace_back();
  hide(top, template_.hidden);
  try {
    execute(template_.body, top);
  } catch (const TemplateError& error) {
    fail(ErrorKind::kUsage, "chat template, line {}: {}", line_, error.what());
  }
  return out;
}

void Evaluator::write(std::string_view text) {
  heap_.charge(text.size());
  heap_.work_on(text);
  out_->append(text);
}

Scope& Evaluator::new_scope(Scope& parent, const std::vector<uint32_t>& hidden) {
  heap_.charge(sizeof(Scope));
  Scope& scope = scopes_.emplace_back();
  scope.parent = &parent;
  hide(scope, hidden);
  return scope;
}

void Evaluator::hide(Scope& scope, const std::vector<uint32_t>& names) {
  for (const uint32_t name : names) {
    set_variable(scope, name, Value::undefined(UndefinedKind::kName, template_.names[name]));
  }
}

void Evaluator::set_variable(Scope& scope, uint32_t name, const Value& value) {
  for (auto& [other, held] : scope.variables) {
    if (other == name) {
      held = value;
      return;
    }
  }
  heap_.charge(sizeof(std::pair<uint32_t, Value>));
  scope.variables.emplace_back(name, value);
}

Value Evaluator::evaluate_name(uint32_t name, const Scope& scope) {
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    for (const auto& [other, value] : at->variables) {
      if (other == name) return value;
    }
  }
  if (globals_[name]) return *globals_[name];
  return Value::undefined(UndefinedKind::kName, template_.names[name]);
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value holder = evaluate_name(target.name, scope);
    if (!holder.is(Kind::kNamespace)) throw TemplateError("cannot assign attribute on non-namespace object", false);
    heap_.set(holder.as_dict(), Value::string(target.attribute), value);
    return;
  }
  if (!target.is_tuple) return set_variable(scope, target.name, value);
  const List* items = items_of(heap_, value);
  if (items->items.size() != target.parts.size()) {
    throw TemplateError("cannot unpack " + std::to_string(items->items.size()) + " values into " +
                        std::to_string(target.parts.size()));
  }
  for (size_t i = 0; i < target.parts.size(); ++i) assign(target.parts[i], items->items[i], scope);
}

Value Evaluator::capture(const Body& body, Scope& scope) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  // A failure ends the rendering, so that out_ need not be restored then.
  execute(body, scope);
  out_ = outer;
  return this->text(text);
}

Evaluator::Flow Evaluator::execute(const Body& body, Scope& scope) {
  for (const auto& statement : body) {
    const Flow flow = execute(*statement, scope);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, Scope& scope) {
  const Depth depth(*this);
  heap_.work(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kData: write(statement.text); break;
    case StatementKind::kOutput: write(to_text(evaluate(*statement.expression, scope))); break;
    case StatementKind::kIf: return execute_if(statement, scope);
    case StatementKind::kFor: execute_for(statement, scope); break;
    case StatementKind::kSet: assign(statement.target, evaluate(*statement.expression, scope), scope); break;
    case StatementKind::kSetBlock: execute_set_block(statement, scope); break;
    case StatementKind::kMacro: {
      Callable* macro = new_callable();
      heap_.charge(sizeof(Callable));
      macro->kind = CallableKind::kMacro;
      macro->name = statement.text;
      macro->macro = &statement;
      macro->scope = &scope;
      set_variable(scope, statement.target.name, Value::callable(macro));
      break;
    }
    case StatementKind::kCallBlock: execute_call_block(statement, scope); break;
    case StatementKind::kFilterBlock: {
      Scope& inner = new_scope(scope, statement.hidden);
      const Value block = capture(statement.body, inner);
      write(to_text(evaluate_filter(*statement.expression, inner, &block)));
      break;
    }
    case StatementKind::kWith: execute_with(statement, scope); break;
    case StatementKind::kScope: execute_scope(statement, scope); break;
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute_if(const Statement& statement, Scope& scope) {
  for (const Branch& branch : statement.branches) {
    if (is_true(evaluate(*branch.condition, scope))) return execute(branch.body, scope);
  }
  return execute(statement.otherwise, scope);
}

void Evaluator::execute_for(const Statement& statement, Scope& scope) {
  run_loop(statement, scope, evaluate(*statement.expression, scope), 0);
}

void Evaluator::run_loop(const Statement& statement, Scope& scope, const Value& iterable, int64_t depth) {
  List* items = items_of(heap_, iterable);
  Scope* inner = &new_scope(scope, {});
  if (statement.condition) {
    std::vector<Value> kept;
    for (const Value& one : items->items) {
      inner->variables.clear();
      assign(statement.target, one, *inner);
      if (is_true(evaluate(*statement.condition, *inner))) kept.push_back(one);
    }
    items->items = std::move(kept);
  }
  heap_.charge(sizeof(Loop));
  Loop& loop = loops_.emplace_back();
  loop.statement = &statement;
  loop.scope = &scope;
  loop.items = &items->items;
  loop.depth = depth;
  const auto loop_name = template_.name_ids.find("loop");
  bool completed = false;  // an iteration ran to its end
  for (size_t i = 0; i < items->items.size(); ++i) {
    heap_.work(1);
    loop.index = i;
    if (statement.defines_macros && i > 0) inner = &new_scope(scope, {});
    inner->variables.clear();
    hide(*inner, statement.hidden);
    if (loop_name != template_.name_ids.end()) set_variable(*inner, loop_name->second, Value::loop(&loop));
    assign(statement.target, items->items[i], *inner);
    const Flow flow = execute(statement.body, *inner);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) completed = true;
  }
  if (!completed) execute(statement.otherwise, new_scope(scope, statement.otherwise_hidden));
}

void Evaluator::execute_set_block(const Statement& statement, Scope& scope) {
  Scope& inner = new_scope(scope, statement.hidden);
  Value value = capture(statement.body, inner);
  if (statement.expression) value = evaluate_filter(*statement.expression, inner, &value);
  assign(statement.target, value, scope);
}

void Evaluator::execute_call_block(const Statement& statement, Scope& scope) {
  Callable* macro = new_callable();
  heap_.charge(sizeof(Callable));
  macro->kind = CallableKind::kMacro;
  macro->name = "caller";
  macro->macro = &statement;
  macro->scope = &scope;
  const Value caller = Value::callable(macro);
  write(to_text(evaluate_call(*statement.expression, scope, &caller)));
}

void Evaluator::execute_scope(const Statement& statement, Scope& scope) {
  Scope& inner = new_scope(scope, statement.hidden);
  if (statement.uses_caller) {
    set_variable(inner, template_.name_ids.at("caller"), Value::undefined(UndefinedKind::kHint, "No caller defined"));
  }
  if (statement.uses_named) set_variable(inner, template_.name_ids.at("kwargs"), Value::dict(heap_.new_dict()));
  if (statement.uses_positional) {
    set_variable(inner, template_.name_ids.at("varargs"), Value::list(heap_.new_list(ListKind::kTuple)));
  }
  execute(statement.body, inner);
}

void Evaluator::execute_with(const Statement& statement, Scope& scope) {
  Scope& inner = new_scope(scope, statement.hidden);
  for (const auto& [target, expression] : statement.assignments) assign(target, evaluate(*expression, scope), inner);
  execute(statement.body, inner);
}

Value Evaluator::evaluate(const Expression& node, Scope& scope) {
  const Depth depth(*this);
  heap_.work(1);
  switch (node.kind) {
    case ExpressionKind::kConstant: return node.constant;
    case ExpressionKind::kName: return evaluate_name(node.name, scope);
    case ExpressionKind::kTuple:
    case ExpressionKind::kList:
    case ExpressionKind::kDict: return evaluate_collection(node, scope);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: return evaluate_logic(node, scope);
    case ExpressionKind::kNot: return Value::boolean(!is_true(evaluate(*node.operands[0], scope)));
    case ExpressionKind::kCondition: return evaluate_condition(node, scope);
    case ExpressionKind::kCompare: return evaluate_comparison(node, scope);
    case ExpressionKind::kConcat: return evaluate_concatenation(node, scope);
    case ExpressionKind::kAttribute: return attribute(evaluate(*node.operands[0], scope), node.text);
    case ExpressionKind::kItem: return evaluate_item(node, scope);
    case ExpressionKind::kCall: return evaluate_call(node, scope, nullptr);
    case ExpressionKind::kFilter: return evaluate_filter(node, scope, nullptr);
    case ExpressionKind::kTest: return evaluate_test(node, scope);
    case ExpressionKind::kNegate: return negate(evaluate(*node.operands[0], scope));
    case ExpressionKind::kPlus: return plus(evaluate(*node.operands[0], scope));
    case ExpressionKind::kSlice: break;  // only inside kItem
    default: return evaluate_arithmetic(node, scope);
  }
  TIERPACK_CHECK(false);
  return Value();
}

Value Evaluator::evaluate_condition(const Expression& node, Scope& scope) {
  if (is_true(evaluate(*node.operands[0], scope))) return evaluate(*node.operands[1], scope);
  if (node.operands[2]) return evaluate(*node.operands[2], scope);
  return Value::undefined(UndefinedKind::kHint,
                          heap_.store("the inline if-expression on line " + std::to_string(node.line) +
                                      " evaluated to false and no else section was defined."));
}

// Chains of `and` or `or` lean to the left; they are walked without recursion.
Value Evaluator::evaluate_logic(const Expression& node, Scope& scope) {
  std::vector<const Expression*> chain = {&node};
  while (chain.back()->operands[0]->kind == node.kind) chain.push_back(chain.back()->operands[0].get());
  const bool stops_at = node.kind == ExpressionKind::kOr;
  Value value = evaluate(*chain.back()->operands[0], scope);
  for (auto at = chain.rbegin(); at != chain.rend() && is_true(value) != stops_at; ++at) {
    value = evaluate(*(*at)->operands[1], scope);
  }
  return value;
}

Value Evaluator::evaluate_comparison(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.operands[0], scope);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    const Value right = evaluate(*node.operands[i + 1], scope);
    bool holds = false;
    switch (node.comparisons[i]) {
      case Comparison::kEqual: holds = equal(heap_, left, right); break;
      case Comparison::kNotEqual: holds = !equal(heap_, left, right); break;
      case Comparison::kLess: holds = compare(heap_, left, right) < 0; break;
      case Comparison::kLessEqual: holds = compare(heap_, left, right) <= 0; break;
      case Comparison::kGreater: holds = compare(heap_, left, right) > 0; break;
      case Comparison::kGreaterEqual: holds = compare(heap_, left, right) >= 0; break;
      case Comparison::kIn: holds = contains(heap_, right, left); break;
      case Comparison::kNotIn: holds = !contains(heap_, right, left); break;
    }
    if (!holds) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

// Chains of binary operators lean to the left; they are walked without recursion.
Value Evaluator::evaluate_arithmetic(const Expression& node, Scope& scope) {
  const auto is_binary = [](const Expression& one) {
    return one.kind >= ExpressionKind::kAdd && one.kind <= ExpressionKind::kPower;
  };
  std::vector<const Expression*> chain = {&node};
  while (is_binary(*chain.back()->operands[0])) chain.push_back(chain.back()->operands[0].get());
  Value left = evaluate(*chain.back()->operands[0], scope);
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    const Value right = evaluate(*(*at)->operands[1], scope);
    switch ((*at)->kind) {
      case ExpressionKind::kAdd: left = add(heap_, left, right); break;
      case ExpressionKind::kSubtract: left = subtract(left, right); break;
      case ExpressionKind::kMultiply: left = multiply(heap_, left, right); break;
      case ExpressionKind::kDivide: left = divide(left, right); break;
      case ExpressionKind::kFloorDivide: left = floor_divide(left, right); break;
      case ExpressionKind::kModulo: left = modulo(heap_, left, right); break;
      default: left = power(left, right);
    }
  }
  return left;
}

Value Evaluator::evaluate_concatenation(const Expression& node, Scope& scope) {
  std::string_view text;
  for (const ExpressionPtr& operand : node.operands) text = heap_.join(text, to_text(evaluate(*operand, scope)));
  return Value::string(text);
}

Value Evaluator::evaluate_collection(const Expression& node, Scope& scope) {
  if (node.kind == ExpressionKind::kDict) {
    Dict* dict = heap_.new_dict();
    for (size_t i = 0; i < node.operands.size(); i += 2) {
      const Value key = evaluate(*node.operands[i], scope);
      hash_key(key);
      heap_.set(*dict, key, evaluate(*node.operands[i + 1], scope));
    }
    return Value::dict(dict);
  }
  List* list = heap_.new_list(node.kind == ExpressionKind::kTuple ? ListKind::kTuple : ListKind::kList);
  for (const ExpressionPtr& operand : node.operands) heap_.push(*list, evaluate(*operand, scope));
  return Value::list(list);
}

Value Evaluator::evaluate_item(const Expression& node, Scope& scope) {
  const Value object = evaluate(*node.operands[0], scope);
  const Expression& index = *node.operands[1];
  if (index.kind != ExpressionKind::kSlice) return item(object, evaluate(index, scope));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) bounds[i] = index.operands[i] ? evaluate(*index.operands[i], scope) : Value::none();
  return slice(heap_, object, bounds[0], bounds[1], bounds[2]);
}

void Evaluator::evaluate_arguments(const CallArguments& from, Scope& scope, Arguments& out) {
  for (const ExpressionPtr& one : from.positional) out.positional.push_back(evaluate(*one, scope));
  for (const auto& [name, one] : from.named) out.named.emplace_back(name, evaluate(*one, scope));
  if (from.more_positional) {
    const List* more = items_of(heap_, evaluate(*from.more_positional, scope));
    out.positional.insert(out.positional.end(), more->items.begin(), more->items.end());
  }
  if (!from.more_named) return;
  const Value more = evaluate(*from.more_named, scope);
  if (!more.is(Kind::kDict)) throw TemplateError("argument after ** must be a mapping");
  for (const auto& [key, value] : more.as_dict().entries()) {
    if (!key.is_string()) throw TemplateError("keywords must be strings");
    const std::string_view name = key.as_string();
    if (std::any_of(out.named.begin(), out.named.end(), [&](const auto& one) { return one.first == name; })) {
      throw TemplateError("multiple values for keyword argument '" + std::string(name) + "'");
    }
    out.named.emplace_back(name, value);
  }
}

Value Evaluator::evaluate_call(const Expression& node, Scope& scope, const Value* caller) {
  const Expression& callee = *node.operands[0];
  Arguments arguments;
  // A method called where it is looked up needs no object of its own.
  if (callee.kind == ExpressionKind::kAttribute) {
    const Value self = evaluate(*callee.operands[0], scope);
    if (const Method method = find_method(self, callee.text)) {
      evaluate_arguments(node.arguments, scope, arguments);
      line_ = node.line;
      return method(*this, self, arguments);
    }
    const Value function = attribute(self, callee.text);
    evaluate_arguments(node.arguments, scope, arguments);
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    line_ = node.line;
    return call(function, arguments);
  }
  const Value function = evaluate(callee, scope);
  evaluate_arguments(node.arguments, scope, arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = node.line;
  return call(function, arguments);
}

Value Evaluator::evaluate_filter(const Expression& node, Scope& scope, const Value* block) {
  Value subject;
  if (!node.operands[0]) {
    TIERPACK_CHECK(block != nullptr);
    subject = *block;
  } else if (node.operands[0]->kind == ExpressionKind::kFilter) {
    const Depth depth(*this);
    subject = evaluate_filter(*node.operands[0], scope, block);
  } else {
    subject = evaluate(*node.operands[0], scope);
  }
  Arguments arguments;
  evaluate_arguments(node.arguments, scope, arguments);
  line_ = node.line;
  if (node.filter == nullptr) throw TemplateError("no filter named '" + node.text + "' found", false);
  return node.filter(*this, subject, arguments);
}

Value Evaluator::evaluate_test(const Expression& node, Scope& scope) {
  const Value subject = evaluate(*node.operands[0], scope);
  Arguments arguments;
  evaluate_arguments(node.arguments, scope, arguments);
  if (node.test == nullptr) throw TemplateError("no test named '" + node.text + "' found", false);
  return Value::boolean(node.test(*this, subject, arguments));
}

}  // namespace tierpack::text::jinja
