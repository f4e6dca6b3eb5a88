// What an action throws, as values to compare.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace tierpack::testing_support {

struct Thrown {
  std::optional<ErrorKind> kind;  // nullopt: nothing was thrown
  std::string message = "nothing was thrown";
};

template <typename Action>
Thrown thrown_by(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  return {};
}

}  // namespace tierpack::testing_support
