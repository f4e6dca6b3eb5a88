// The parsed form of a template: statements and expressions, immutable once parsed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/text/template_objects.h"
#include "runtime/text/template_value.h"

namespace tierpack::text::jinja {

using Filter = Value (*)(Evaluator& evaluator, const Value& value, Arguments& arguments);
using Test = bool (*)(Evaluator& evaluator, const Value& value, Arguments& arguments);

enum class ExpressionKind : uint8_t {
  kConstant,
  kName,
  kTuple,
  kList,
  kDict,
  kAnd,
  kOr,
  kNot,
  kCondition,
  kCompare,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegate,
  kPlus,
  kConcat,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *expression
  ExpressionPtr more_named;       // **expression
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  uint32_t line = 0;
  uint32_t name = 0;  // kName: index in Template::names
  Value constant;     // kConstant
  std::string text;   // kAttribute: its name; kFilter, kTest: theirs
  // Operands in order. kDict: key, value, key, value. kCondition: condition, then, else (null: undefined).
  // kSlice: start, stop, step, each possibly null. kFilter of a filter block has a null operand.
  std::vector<ExpressionPtr> operands;
  std::vector<Comparison> comparisons;  // kCompare: between operand i and i + 1
  CallArguments arguments;              // kCall, kFilter, kTest
  Filter filter = nullptr;              // null for a name that is not known
  Test test = nullptr;
};

// What is assigned to: a name, an attribute of a namespace, or several targets.
struct Target {
  uint32_t name = 0;
  std::string attribute;      // of the namespace `name`, if not empty
  std::vector<Target> parts;  // a tuple, if is_tuple
  bool is_tuple = false;
};

enum class StatementKind : uint8_t {
  kData,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Parameter {
  uint32_t name = 0;
  ExpressionPtr fallback;  // may be null
};

struct Statement {
  StatementKind kind = StatementKind::kData;
  uint32_t line = 0;
  std::string text;  // kData
  ExpressionPtr
      expression;  // kOutput, kSet: value; kFor: iterable; kCallBlock: the call; kFilterBlock, kSetBlock: filter
  ExpressionPtr condition;                                    // kFor: its `if`
  Target target;                                              // kFor, kSet, kSetBlock; kMacro: its name
  std::vector<Branch> branches;                               // kIf
  std::vector<std::pair<Target, ExpressionPtr>> assignments;  // kWith
  std::vector<Parameter> parameters;                          // kMacro, kCallBlock
  Body body;
  Body otherwise;                                  // kIf, kFor
  std::vector<uint32_t> hidden, otherwise_hidden;  // names that body and otherwise hide; see template_scopes.h
  bool recursive = false;                          // kFor
  bool defines_macros = false;                     // kFor: an iteration's scope may live on
  bool uses_caller = false, uses_named = false, uses_positional = false;  // kMacro: caller, kwargs, varargs
};

struct Template {
  Body body;
  std::vector<uint32_t> hidden;    // names that the top hides; see template_scopes.h
  std::vector<std::string> names;  // of variables
  std::unordered_map<std::string, uint32_t> name_ids;
  std::deque<std::string> strings;  // what constants refer to
};

}  // namespace tierpack::text::jinja
