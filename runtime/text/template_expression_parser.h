// The half of the parser that reads expressions; template_parser.cpp builds statements on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/template_ast.h"
#include "runtime/text/template_lexer.h"

namespace tierpack::text::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Template& target) : tokens_(std::move(tokens)), template_(target) {}

 protected:
  const Token& current() const { return tokens_[at_]; }
  const Token& look_ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  [[noreturn]] void fail_unexpected(const std::string& expected);

  uint32_t name_id(const std::string& name);
  ExpressionPtr make(ExpressionKind kind, uint32_t line) const;

  // `end_name`: a name that may follow a trailing comma ("in", "recursive"), or empty.
  ExpressionPtr parse_tuple(bool with_condition, std::string_view end_name = {}, bool in_parentheses = false,
                            bool simplified = false);
  ExpressionPtr parse_expression() { return parse_condition(); }
  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  // Filters that follow; `subject` may be null, for blocks. `inline_first`: the first one comes without a pipe.
  ExpressionPtr parse_filters(ExpressionPtr subject, bool inline_first);
  void parse_arguments(CallArguments& arguments);
  ExpressionPtr parse_primary();

  // Throws for unknown filters and tests found outside conditionals.
  void check_unknown() const;

  struct Nesting;  // counts how deep the parser is in itself

  // How many if statements enclose the current position.
  int conditional_depth_ = 0;
  // Macros being parsed, innermost last: which special variables their bodies read.
  std::vector<Statement*> macros_;

 private:
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_subscript_part();
  ExpressionPtr parse_call(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_name();
  ExpressionPtr binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right, uint32_t line, int& chain) const;
  std::string dotted_name();

  struct Unknown {
    std::string what;
    uint32_t line;
    bool deferred;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Template& template_;
  std::vector<Unknown> unknown_;
  int nesting_ = 0;
};

}  // namespace tierpack::text::jinja
