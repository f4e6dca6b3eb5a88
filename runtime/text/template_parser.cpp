#include "runtime/text/template_parser.h"

#include <algorithm>

#include "runtime/text/template_expression_parser.h"
#include "runtime/text/template_scopes.h"

namespace tierpack::text::jinja {

namespace {

constexpr int kMaxBlockNesting = 100;

class Parser : public ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, Template& target)
      : ExpressionParser(std::move(tokens), target), template_(target) {}

  void run() {
    template_.body = parse_body({});
    check_unknown();
  }

 private:
  using Names = std::vector<std::string_view>;

  // Statements up to a block tag of one of these names, which stays current; up to the end of the template if empty.
  Body parse_body(const Names& ends) {
    Body body;
    while (true) {
      const Token& token = current();
      switch (token.kind) {
        case TokenKind::kData: {
          auto data = make_statement(StatementKind::kData);
          data->text = take().text;
          body.push_back(std::move(data));
          break;
        }
        case TokenKind::kVariableBegin: {
          auto output = make_statement(StatementKind::kOutput);
          take();
          output->expression = parse_tuple(true);
          if (current().kind != TokenKind::kVariableEnd) fail_unexpected("the end of the expression");
          take();
          body.push_back(std::move(output));
          break;
        }
        case TokenKind::kBlockBegin: {
          take();
          if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return current().is_name(end); })) {
            return body;
          }
          parse_statement(body, ends);
          expect_block_end();
          break;
        }
        default: {
          if (ends.empty()) return body;
          std::string expected = "{% " + std::string(ends.back()) + " %}";
          fail_unexpected(expected);
        }
      }
    }
  }

  // The rest of an opening tag, a body, and the name of the tag that ends it.
  Body parse_block(const Names& ends) {
    if (++block_nesting_ > kMaxBlockNesting) fail_unsupported(current().line, "blocks are nested too deep");
    skip_operator(":");
    expect_block_end();
    Body body = parse_body(ends);
    --block_nesting_;
    return body;
  }

  // A block with a scope of its own. Jinja2 looks up the filters in it at once, even if it stands inside a conditional.
  Body parse_scoped_block(const Names& ends) {
    const int conditional = std::exchange(conditional_depth_, 0);
    Body body = parse_block(ends);
    conditional_depth_ = conditional;
    return body;
  }

  void expect_block_end() {
    if (current().kind != TokenKind::kBlockEnd) fail_unexpected("the end of the statement");
    take();
  }

  std::unique_ptr<Statement> make_statement(StatementKind kind) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = current().line;
    return statement;
  }

  void parse_statement(Body& body, const Names& ends) {
    if (current().kind != TokenKind::kName) fail_unexpected("the name of a tag");
    const std::string name = current().text;
    if (name == "if") return body.push_back(parse_if());
    if (name == "for") return body.push_back(parse_for());
    if (name == "set") return body.push_back(parse_set());
    if (name == "macro") return body.push_back(parse_macro());
    if (name == "call") return body.push_back(parse_call_block());
    if (name == "filter") return body.push_back(parse_filter_block());
    if (name == "with") return body.push_back(parse_with());
    if (name == "print") return parse_print(body);
    if (name == "generation") return body.push_back(parse_generation());
    if (name == "break" || name == "continue") {
      if (loop_nesting_ == 0) fail_syntax(current().line, "'" + name + "' outside a loop");
      body.push_back(make_statement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue));
      take();
      return;
    }
    for (const std::string_view known : {"extends", "block", "include", "import", "from", "autoescape"}) {
      if (name == known) fail_unsupported(current().line, "the statement '" + name + "'");
    }
    std::string message = "unknown tag '" + name + "'";
    if (!ends.empty()) message += "; a tag is open that ends with '" + std::string(ends.back()) + "'";
    fail_syntax(current().line, message);
  }

  // Assignment targets are parsed as expressions and converted.
  Target to_target(const Expression& expression) {
    Target target;
    if (expression.kind == ExpressionKind::kTuple) {
      target.is_tuple = true;
      for (const ExpressionPtr& part : expression.operands) target.parts.push_back(to_target(*part));
      return target;
    }
    if (expression.kind != ExpressionKind::kName) fail_syntax(expression.line, "this cannot be assigned to");
    if (expression.text == "loop" && for_nesting_ > 0) {
      fail_syntax(expression.line, "the special variable 'loop' cannot be assigned to inside a loop");
    }
    target.name = expression.name;
    return target;
  }

  Target parse_target(std::string_view end_name = {}) { return to_target(*parse_tuple(false, end_name, false, true)); }

  std::unique_ptr<Statement> parse_if() {
    auto node = make_statement(StatementKind::kIf);
    ++conditional_depth_;
    do {
      take();  // if, elif
      Branch branch;
      branch.condition = parse_tuple(false);
      branch.body = parse_block({"elif", "else", "endif"});
      node->branches.push_back(std::move(branch));
    } while (current().is_name("elif"));
    if (skip_name("else")) node->otherwise = parse_block({"endif"});
    expect_name("endif");
    --conditional_depth_;
    return node;
  }

  std::unique_ptr<Statement> parse_for() {
    auto node = make_statement(StatementKind::kFor);
    take();
    ++for_nesting_;
    node->target = parse_target("in");
    expect_name("in");
    node->expression = parse_tuple(false, "recursive");
    if (skip_name("if")) {
      const int conditional = std::exchange(conditional_depth_, 0);
      node->condition = parse_expression();
      conditional_depth_ = conditional;
    }
    node->recursive = skip_name("recursive");
    const int macros_before = macro_count_;
    ++loop_nesting_;
    node->body = parse_scoped_block({"endfor", "else"});
    --loop_nesting_;
    node->defines_macros = macro_count_ != macros_before;
    if (skip_name("else")) node->otherwise = parse_scoped_block({"endfor"});
    expect_name("endfor");
    --for_nesting_;
    return node;
  }

  std::unique_ptr<Statement> parse_set() {
    auto node = make_statement(StatementKind::kSet);
    take();
    if (look_ahead().is_operator(".")) {
      node->target.name = name_id(expect_any_name());
      take();
      node->target.attribute = expect_any_name();
    } else {
      node->target = parse_target();
    }
    if (skip_operator("=")) {
      node->expression = parse_tuple(true);
      return node;
    }
    node->kind = StatementKind::kSetBlock;
    node->expression = parse_filters(nullptr, false);
    node->body = parse_scoped_block({"endset"});
    expect_name("endset");
    return node;
  }

  void parse_parameters(Statement& node) {
    expect_operator("(");
    while (!current().is_operator(")")) {
      if (!node.parameters.empty()) expect_operator(",");
      Parameter parameter;
      parameter.name = name_id(expect_any_name());
      if (skip_operator("=")) {
        parameter.fallback = parse_expression();
      } else if (!node.parameters.empty() && node.parameters.back().fallback) {
        fail_syntax(current().line, "non-default argument follows default argument");
      }
      node.parameters.push_back(std::move(parameter));
    }
    expect_operator(")");
  }

  // The body of a macro or call block: loops outside do not reach into it.
  void parse_macro_body(Statement& node, std::string_view end) {
    ++macro_count_;
    macros_.push_back(&node);
    const int loops = std::exchange(loop_nesting_, 0);
    node.body = parse_scoped_block({end});
    loop_nesting_ = loops;
    macros_.pop_back();
    expect_name(end);
    // A parameter of such a name is an ordinary one.
    for (const Parameter& parameter : node.parameters) {
      const std::string& name = template_.names[parameter.name];
      if (name == "kwargs") node.uses_named = false;
      if (name == "varargs") node.uses_positional = false;
      if (name == "caller" && node.uses_caller) {
        if (!parameter.fallback) fail_syntax(node.line, "the parameter 'caller' must be left out or have a default");
        node.uses_caller = false;
      }
    }
  }

  std::unique_ptr<Statement> parse_macro() {
    auto node = make_statement(StatementKind::kMacro);
    take();
    node->text = expect_any_name();
    node->target.name = name_id(node->text);
    parse_parameters(*node);
    parse_macro_body(*node, "endmacro");
    return node;
  }

  std::unique_ptr<Statement> parse_call_block() {
    auto node = make_statement(StatementKind::kCallBlock);
    take();
    if (current().is_operator("(")) parse_parameters(*node);
    node->expression = parse_expression();
    if (node->expression->kind != ExpressionKind::kCall) fail_syntax(node->line, "expected a call");
    name_id("caller");
    parse_macro_body(*node, "endcall");
    return node;
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto node = make_statement(StatementKind::kFilterBlock);
    take();
    node->expression = parse_filters(nullptr, true);
    node->body = parse_scoped_block({"endfilter"});
    expect_name("endfilter");
    return node;
  }

  std::unique_ptr<Statement> parse_with() {
    auto node = make_statement(StatementKind::kWith);
    take();
    while (current().kind != TokenKind::kBlockEnd) {
      if (!node->assignments.empty()) expect_operator(",");
      Target target = parse_target();
      expect_operator("=");
      node->assignments.emplace_back(std::move(target), parse_expression());
    }
    node->body = parse_scoped_block({"endwith"});
    expect_name("endwith");
    return node;
  }

  void parse_print(Body& body) {
    take();
    bool first = true;
    while (current().kind != TokenKind::kBlockEnd) {
      if (!first) expect_operator(",");
      first = false;
      auto node = make_statement(StatementKind::kOutput);
      node->expression = parse_expression();
      body.push_back(std::move(node));
    }
  }

  // transformers' mark of what the assistant writes. Its body is a call block's, and as such a macro.
  std::unique_ptr<Statement> parse_generation() {
    auto node = make_statement(StatementKind::kScope);
    take();
    parse_macro_body(*node, "endgeneration");
    return node;
  }

  Template& template_;
  int block_nesting_ = 0;
  int loop_nesting_ = 0;  // for statements whose body a break would leave
  int for_nesting_ = 0;
  int macro_count_ = 0;
};

}  // namespace

Template parse_template(std::string_view source) {
  Template out;
  Parser(tokenize(source), out).run();
  find_hidden_names(out);
  return out;
}

}  // namespace tierpack::text::jinja
