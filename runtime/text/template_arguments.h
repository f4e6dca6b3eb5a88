// Reads the arguments of a built-in by its parameter names, positional or named, as Python binds them.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/template_objects.h"
#include "runtime/text/template_operations.h"

namespace tierpack::text::jinja {

class Parameters {
 public:
  // Fails for too many arguments, unknown names and values given twice; `required` parameters must be given.
  Parameters(const char* callee, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t required = 0)
      : callee_(callee), names_(names), values_(names.size(), nullptr) {
    if (arguments.positional.size() > names_.size()) {
      throw TemplateError(std::string(callee) + "() takes at most " + std::to_string(names_.size()) + " arguments (" +
                          std::to_string(arguments.positional.size()) + " given)");
    }
    for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.named) {
      const size_t i = static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
      if (i == names_.size()) {
        throw TemplateError(std::string(callee) + "() got an unexpected keyword argument '" + std::string(name) + "'");
      }
      if (values_[i] != nullptr) {
        throw TemplateError(std::string(callee) + "() got multiple values for argument '" + std::string(name) + "'");
      }
      values_[i] = &value;
    }
    for (size_t i = 0; i < required; ++i) {
      if (values_[i] == nullptr) {
        throw TemplateError(std::string(callee) + "() missing required argument '" + std::string(names_[i]) + "'");
      }
    }
  }

  bool has(size_t i) const { return values_[i] != nullptr; }
  // Given and not None.
  bool is_set(size_t i) const { return has(i) && !values_[i]->is(Kind::kNone); }
  const Value& value(size_t i) const { return *values_[i]; }

  std::string_view text(size_t i, std::string_view fallback = {}) const {
    if (!has(i)) return fallback;
    if (!value(i).is_string()) {
      if (value(i).is_undefined()) fail_undefined(value(i));
      throw TemplateError(std::string(callee_) + "() argument '" + std::string(names_[i]) + "' must be str, not " +
                          type_name(value(i)));
    }
    return value(i).as_string();
  }
  int64_t integer(size_t i, int64_t fallback = 0) const {
    if (!has(i)) return fallback;
    if (!value(i).is_integral()) {
      if (value(i).is_undefined()) fail_undefined(value(i));
      throw TemplateError(std::string(callee_) + "() argument '" + std::string(names_[i]) + "' must be int, not " +
                          type_name(value(i)));
    }
    return value(i).as_integer();
  }
  bool flag(size_t i, bool fallback = false) const { return has(i) ? is_true(value(i)) : fallback; }

 private:
  const char* callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace tierpack::text::jinja
