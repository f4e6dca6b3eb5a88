#include "runtime/text/template_scopes.h"

#include <algorithm>
#include <unordered_set>

namespace tierpack::text::jinja {

namespace {

class Analysis {
 public:
  explicit Analysis(Template& target) : template_(target), enclosing_(target.names.size(), 0) {}

  void run() { template_.hidden = block(template_.body, {}); }

 private:
  // One block's names. `hidden`: assigned before anything else happened to them, outside any condition.
  struct Block {
    std::unordered_set<uint32_t> mentioned;
    std::vector<uint32_t> hidden;
  };

  void read(Block& block, uint32_t name) { block.mentioned.insert(name); }
  void assign(Block& block, uint32_t name, bool conditional) {
    if (block.mentioned.insert(name).second && !conditional && enclosing_[name] == 0) block.hidden.push_back(name);
  }
  void assign(Block& block, const Target& target, bool conditional) {
    if (target.is_tuple) {
      for (const Target& part : target.parts) assign(block, part, conditional);
    } else if (target.attribute.empty()) {
      assign(block, target.name, conditional);
    } else {
      read(block, target.name);
    }
  }
  void declare(Block& block, const Target& target) {  // a parameter: present from the start
    if (!target.is_tuple) block.mentioned.insert(target.name);
    for (const Target& part : target.parts) declare(block, part);
  }

  void read(Block& block, const ExpressionPtr& node) {
    if (!node) return;
    if (node->kind == ExpressionKind::kName) read(block, node->name);
    for (const ExpressionPtr& operand : node->operands) read(block, operand);
    for (const ExpressionPtr& argument : node->arguments.positional) read(block, argument);
    for (const auto& [name, argument] : node->arguments.named) read(block, argument);
    read(block, node->arguments.more_positional);
    read(block, node->arguments.more_named);
  }

  // What happens in the block itself, not in the blocks inside it.
  void visit(Block& block, const Body& body, bool conditional) {
    for (const auto& statement : body) visit(block, *statement, conditional);
  }
  void visit(Block& block, const Statement& statement, bool conditional) {
    switch (statement.kind) {
      case StatementKind::kIf:
        for (const Branch& branch : statement.branches) {
          read(block, branch.condition);
          visit(block, branch.body, true);
        }
        visit(block, statement.otherwise, true);
        break;
      case StatementKind::kSet:
        read(block, statement.expression);
        assign(block, statement.target, conditional);
        break;
      case StatementKind::kSetBlock:
      case StatementKind::kMacro: assign(block, statement.target, conditional); break;
      case StatementKind::kWith:
        for (const auto& [target, expression] : statement.assignments) read(block, expression);
        break;
      default: read(block, statement.expression);
    }
  }

  // A body as a block, and the blocks inside it, which see its names as those of an enclosing one.
  std::vector<uint32_t> block(Body& body, Block start) {
    visit(start, body, false);
    for (const uint32_t name : start.mentioned) ++enclosing_[name];
    inner_blocks(body);
    for (const uint32_t name : start.mentioned) --enclosing_[name];
    return std::move(start.hidden);
  }

  void inner_blocks(Body& body) {
    for (const auto& statement : body) inner_blocks(*statement);
  }
  void inner_blocks(Statement& statement) {
    Block start;
    switch (statement.kind) {
      case StatementKind::kIf:
        for (Branch& branch : statement.branches) inner_blocks(branch.body);
        inner_blocks(statement.otherwise);
        break;
      case StatementKind::kFor:
        declare(start, statement.target);
        statement.hidden = block(statement.body, std::move(start));
        statement.otherwise_hidden = block(statement.otherwise, {});
        break;
      case StatementKind::kMacro:
      case StatementKind::kCallBlock:
        for (const Parameter& parameter : statement.parameters) {
          start.mentioned.insert(parameter.name);
          read(start, parameter.fallback);
        }
        statement.hidden = block(statement.body, std::move(start));
        break;
      case StatementKind::kWith:
        for (const auto& [target, expression] : statement.assignments) declare(start, target);
        statement.hidden = block(statement.body, std::move(start));
        break;
      case StatementKind::kFilterBlock:
      case StatementKind::kSetBlock:
      case StatementKind::kScope: statement.hidden = block(statement.body, {}); break;
      default: break;
    }
  }

  Template& template_;
  std::vector<uint32_t> enclosing_;  // by name: how many enclosing blocks mention it
};

}  // namespace

void find_hidden_names(Template& target) { Analysis(target).run(); }

}  // namespace tierpack::text::jinja
