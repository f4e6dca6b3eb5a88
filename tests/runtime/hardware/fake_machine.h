// Folders like /proc and /sys, made of a test's own files and links.
#pragma once

#include <string>

#include "tests/support/temp_directory.h"

namespace tierpack::testing_support {

class FakeMachine {
 public:
  const std::filesystem::path& root() const { return directory_.path(); }
  void put(const std::string& path, const std::string& line) {
    std::filesystem::create_directories((root() / path).parent_path());
    write_file(root() / path, line + "\n");
  }
  void folder(const std::string& path) { std::filesystem::create_directories(root() / path); }
  // `link` leads to `target`, both below the root.
  void link(const std::string& link, const std::string& target) {
    std::filesystem::create_directories((root() / link).parent_path());
    std::filesystem::create_symlink(root() / target, root() / link);
  }

 private:
  TempDirectory directory_;
};

}  // namespace tierpack::testing_support
