#include "runtime/text/template_expression_parser.h"

#include <algorithm>

#include "runtime/text/template_builtins.h"

namespace tierpack::text::jinja {

namespace {
// Brackets, blocks and operators within each other; far beyond any template, well within a stack.
constexpr int kMaxNesting = 200;
// Operators, filters or subscripts in a row.
constexpr int kMaxChain = 2000;
}  // namespace

struct ExpressionParser::Nesting {
  explicit Nesting(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNesting) fail_unsupported(parser_.current().line, "expressions are nested too deep");
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ExpressionParser& parser_;
};

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_unexpected("'" + std::string(op) + "'");
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected("'" + std::string(name) + "'");
}

std::string ExpressionParser::expect_any_name() {
  if (current().kind != TokenKind::kName) fail_unexpected("a name");
  return take().text;
}

void ExpressionParser::fail_unexpected(const std::string& expected) {
  const Token& token = current();
  std::string found;
  switch (token.kind) {
    case TokenKind::kEnd: found = "the end of the template"; break;
    case TokenKind::kBlockEnd: found = "the end of the statement"; break;
    case TokenKind::kVariableEnd: found = "the end of the expression"; break;
    case TokenKind::kData:
    case TokenKind::kVariableBegin:
    case TokenKind::kBlockBegin: found = "text or a tag"; break;
    case TokenKind::kString: found = "a string"; break;
    default: found = "'" + token.text + "'";
  }
  fail_syntax(token.line, "expected " + expected + ", found " + found);
}

uint32_t ExpressionParser::name_id(const std::string& name) {
  const auto [at, added] = template_.name_ids.emplace(name, static_cast<uint32_t>(template_.names.size()));
  if (added) template_.names.push_back(name);
  return at->second;
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, uint32_t line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExpressionPtr ExpressionParser::binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right, uint32_t line,
                                       int& chain) const {
  if (++chain > kMaxChain) fail_unsupported(line, "too many operators in a row");
  ExpressionPtr node = make(kind, line);
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition, std::string_view end_name, bool in_parentheses,
                                            bool simplified) {
  const uint32_t line = current().line;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (true) {
    if (!parts.empty()) expect_operator(",");
    const TokenKind kind = current().kind;
    if (kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || current().is_operator(")") ||
        (!end_name.empty() && current().is_name(end_name))) {
      break;
    }
    parts.push_back(simplified ? parse_primary() : with_condition ? parse_condition() : parse_or());
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  if (!is_tuple && !in_parentheses) fail_unexpected("an expression");
  ExpressionPtr node = make(ExpressionKind::kTuple, line);
  node->operands = std::move(parts);
  return node;
}

ExpressionPtr ExpressionParser::parse_condition() {
  const Nesting nesting(*this);
  const uint32_t line = current().line;
  const size_t unknown_before = unknown_.size();
  int chain = 0;
  ExpressionPtr node = parse_or();
  while (skip_name("if")) {
    if (++chain > kMaxChain) fail_unsupported(line, "too many operators in a row");
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_condition() : nullptr;
    ExpressionPtr choice = make(ExpressionKind::kCondition, line);
    choice->operands.push_back(std::move(condition));
    choice->operands.push_back(std::move(node));
    choice->operands.push_back(std::move(otherwise));
    node = std::move(choice);
    for (size_t i = unknown_before; i < unknown_.size(); ++i) unknown_[i].deferred = true;
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  const uint32_t line = current().line;
  int chain = 0;
  ExpressionPtr left = parse_and();
  while (skip_name("or")) left = binary(ExpressionKind::kOr, std::move(left), parse_and(), line, chain);
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  const uint32_t line = current().line;
  int chain = 0;
  ExpressionPtr left = parse_not();
  while (skip_name("and")) left = binary(ExpressionKind::kAnd, std::move(left), parse_not(), line, chain);
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!current().is_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  ExpressionPtr node = make(ExpressionKind::kNot, take().line);
  node->operands.push_back(parse_not());
  return node;
}

ExpressionPtr ExpressionParser::parse_comparison() {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},     {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual}, {">", Comparison::kGreater},   {">=", Comparison::kGreaterEqual},
  };
  ExpressionPtr node = make(ExpressionKind::kCompare, current().line);
  node->operands.push_back(parse_sum());
  while (true) {
    const auto op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                 [&](const auto& one) { return current().is_operator(one.first); });
    if (op != std::end(kOperators)) {
      take();
      node->comparisons.push_back(op->second);
    } else if (skip_name("in")) {
      node->comparisons.push_back(Comparison::kIn);
    } else if (current().is_name("not") && look_ahead().is_name("in")) {
      take();
      take();
      node->comparisons.push_back(Comparison::kNotIn);
    } else {
      break;
    }
    node->operands.push_back(parse_sum());
  }
  return node->comparisons.empty() ? std::move(node->operands.front()) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_sum() {
  const uint32_t line = current().line;
  int chain = 0;
  ExpressionPtr left = parse_concatenation();
  while (current().is_operator("+") || current().is_operator("-")) {
    const auto kind = take().text == "+" ? ExpressionKind::kAdd : ExpressionKind::kSubtract;
    left = binary(kind, std::move(left), parse_concatenation(), line, chain);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  ExpressionPtr node = make(ExpressionKind::kConcat, current().line);
  node->operands.push_back(parse_product());
  while (skip_operator("~")) node->operands.push_back(parse_product());
  return node->operands.size() == 1 ? std::move(node->operands.front()) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, ExpressionKind> kOperators[] = {
      {"*", ExpressionKind::kMultiply},
      {"/", ExpressionKind::kDivide},
      {"//", ExpressionKind::kFloorDivide},
      {"%", ExpressionKind::kModulo},
  };
  const uint32_t line = current().line;
  int chain = 0;
  ExpressionPtr left = parse_power();
  while (true) {
    const auto op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                 [&](const auto& one) { return current().is_operator(one.first); });
    if (op == std::end(kOperators)) return left;
    take();
    left = binary(op->second, std::move(left), parse_power(), line, chain);
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  const uint32_t line = current().line;
  int chain = 0;
  ExpressionPtr left = parse_unary(true);
  while (skip_operator("**")) left = binary(ExpressionKind::kPower, std::move(left), parse_unary(true), line, chain);
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  const uint32_t line = current().line;
  ExpressionPtr node;
  if (current().is_operator("-") || current().is_operator("+")) {
    node = make(take().text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPlus, line);
    node->operands.push_back(parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Nesting nesting(*this);
  const Token& token = current();
  const uint32_t line = token.line;
  switch (token.kind) {
    case TokenKind::kName: return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += take().text;  // neighbours are one string
      ExpressionPtr node = make(ExpressionKind::kConstant, line);
      node->constant = Value::string(template_.strings.emplace_back(std::move(text)));
      return node;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      ExpressionPtr node = make(ExpressionKind::kConstant, line);
      node->constant = token.kind == TokenKind::kInteger ? Value::integer(token.integer) : Value::real(token.real);
      take();
      return node;
    }
    default: break;
  }
  if (skip_operator("(")) {
    ExpressionPtr node = parse_tuple(true, {}, true);
    expect_operator(")");
    return node;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  fail_unexpected("an expression");
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token token = take();
  ExpressionPtr node = make(ExpressionKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    node->constant = Value::boolean(true);
  } else if (token.text == "false" || token.text == "False") {
    node->constant = Value::boolean(false);
  } else if (token.text == "none" || token.text == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExpressionKind::kName;
    node->name = name_id(token.text);
    node->text = token.text;
    for (Statement* macro : macros_) {
      macro->uses_caller |= token.text == "caller";
      macro->uses_named |= token.text == "kwargs";
      macro->uses_positional |= token.text == "varargs";
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr node = make(ExpressionKind::kList, current().line);
  expect_operator("[");
  while (!current().is_operator("]")) {
    if (!node->operands.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    node->operands.push_back(parse_expression());
  }
  expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr node = make(ExpressionKind::kDict, current().line);
  expect_operator("{");
  while (!current().is_operator("}")) {
    if (!node->operands.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    node->operands.push_back(parse_expression());
    expect_operator(":");
    node->operands.push_back(parse_expression());
  }
  expect_operator("}");
  return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  for (int chain = 0;; ++chain) {
    if (chain > kMaxChain) fail_unsupported(node->line, "too many subscripts in a row");
    if (current().is_operator(".") || current().is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  for (int chain = 0;; ++chain) {
    if (chain > kMaxChain) fail_unsupported(node->line, "too many filters in a row");
    if (current().is_operator("|")) {
      node = parse_filters(std::move(node), false);
    } else if (current().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node) {
  const uint32_t line = current().line;
  if (skip_operator(".")) {
    if (current().kind == TokenKind::kName) {
      ExpressionPtr attribute = make(ExpressionKind::kAttribute, line);
      attribute->text = take().text;
      attribute->operands.push_back(std::move(node));
      return attribute;
    }
    if (current().kind != TokenKind::kInteger) fail_unexpected("a name or number");
    ExpressionPtr index = make(ExpressionKind::kConstant, line);
    index->constant = Value::integer(take().integer);
    ExpressionPtr item = make(ExpressionKind::kItem, line);
    item->operands.push_back(std::move(node));
    item->operands.push_back(std::move(index));
    return item;
  }
  expect_operator("[");
  std::vector<ExpressionPtr> parts;
  while (!current().is_operator("]")) {
    if (!parts.empty()) expect_operator(",");
    parts.push_back(parse_subscript_part());
  }
  expect_operator("]");
  ExpressionPtr item = make(ExpressionKind::kItem, line);
  item->operands.push_back(std::move(node));
  if (parts.size() == 1) {
    item->operands.push_back(std::move(parts.front()));
  } else {
    ExpressionPtr tuple = make(ExpressionKind::kTuple, line);
    for (const ExpressionPtr& part : parts) {
      if (part->kind == ExpressionKind::kSlice) fail_unsupported(line, "slices in several dimensions");
    }
    tuple->operands = std::move(parts);
    item->operands.push_back(std::move(tuple));
  }
  return item;
}

ExpressionPtr ExpressionParser::parse_subscript_part() {
  ExpressionPtr slice = make(ExpressionKind::kSlice, current().line);
  ExpressionPtr start;
  if (!current().is_operator(":")) {
    start = parse_expression();
    if (!current().is_operator(":")) return start;
  }
  take();
  slice->operands.push_back(std::move(start));
  const auto ends = [&] { return current().is_operator("]") || current().is_operator(","); };
  slice->operands.push_back(current().is_operator(":") || ends() ? nullptr : parse_expression());
  slice->operands.push_back(skip_operator(":") && !ends() ? parse_expression() : nullptr);
  return slice;
}

void ExpressionParser::parse_arguments(CallArguments& arguments) {
  const uint32_t line = current().line;
  const auto ensure = [&](bool fine) {
    if (!fine) fail_syntax(line, "invalid syntax for function call expression");
  };
  expect_operator("(");
  bool first = true;
  while (!current().is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      ensure(!arguments.more_positional && !arguments.more_named);
      arguments.more_positional = parse_expression();
    } else if (skip_operator("**")) {
      ensure(!arguments.more_named);
      arguments.more_named = parse_expression();
    } else if (current().kind == TokenKind::kName && look_ahead().is_operator("=")) {
      ensure(!arguments.more_named);
      std::string name = take().text;
      take();
      for (const auto& [other, unused] : arguments.named) {
        if (other == name) fail_syntax(line, "keyword argument repeated: " + name);
      }
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!arguments.more_positional && !arguments.more_named && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr node) {
  ExpressionPtr call = make(ExpressionKind::kCall, current().line);
  call->operands.push_back(std::move(node));
  parse_arguments(call->arguments);
  return call;
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_any_name();
  while (skip_operator(".")) name += "." + expect_any_name();
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr subject, bool inline_first) {
  for (int chain = 0; inline_first || current().is_operator("|"); ++chain) {
    if (chain > kMaxChain) fail_unsupported(current().line, "too many filters in a row");
    if (!inline_first) take();
    inline_first = false;
    ExpressionPtr node = make(ExpressionKind::kFilter, current().line);
    node->text = dotted_name();
    node->filter = find_filter(node->text);
    if (node->filter == nullptr)
      unknown_.push_back({"filter '" + node->text + "'", node->line, conditional_depth_ > 0});
    if (current().is_operator("(")) parse_arguments(node->arguments);
    node->operands.push_back(std::move(subject));
    subject = std::move(node);
  }
  return subject;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr node) {
  const uint32_t line = take().line;  // "is"
  const bool negated = skip_name("not");
  ExpressionPtr test = make(ExpressionKind::kTest, line);
  test->text = dotted_name();
  test->test = find_test(test->text);
  if (test->test == nullptr) unknown_.push_back({"test '" + test->text + "'", line, conditional_depth_ > 0});
  test->operands.push_back(std::move(node));
  const Token& next = current();
  const bool argument = next.kind == TokenKind::kName || next.kind == TokenKind::kString ||
                        next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat || next.is_operator("[") ||
                        next.is_operator("{");
  if (next.is_operator("(")) {
    parse_arguments(test->arguments);
  } else if (argument && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) fail_syntax(line, "tests with 'is' cannot be chained");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  if (!negated) return test;
  ExpressionPtr negation = make(ExpressionKind::kNot, line);
  negation->operands.push_back(std::move(test));
  return negation;
}

void ExpressionParser::check_unknown() const {
  for (const Unknown& one : unknown_) {
    if (!one.deferred) fail_unsupported(one.line, "there is no " + one.what);
  }
}

}  // namespace tierpack::text::jinja
