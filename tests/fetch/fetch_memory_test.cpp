// Memory does not grow with the file: the program's peak stays small for a file of several GiB over sixteen connections.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/fetch_fixture.h"

namespace tierpack::support {
namespace {

namespace fs = std::filesystem;

class FetchMemory : public FetchTest {};

TEST_F(FetchMemory, PeakStaysBelow100MiB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory is not the program's";
#endif
  constexpr uint64_t kBytes = uint64_t{3} << 30;
  write_text(root() / "big.bin", "");
  fs::resize_file(root() / "big.bin", kBytes);  // a hole: costs the test's disk nothing on the sending side
  start_hub();
  const std::string program = std::string(TIERPACK_BINARY_DIR) + "/tierpack";
  const std::string url = hub_->url() + "/files/big.bin";
  const std::string to = target().string();
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, STDERR_FILENO);
    ::dup2(null, STDOUT_FILENO);
    ::execl(program.c_str(), "tierpack", "fetch", url.c_str(), "--to", to.c_str(), "--connections", "16", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(fs::file_size(target() / "big.bin"), kBytes);
  EXPECT_LT(usage.ru_maxrss, 100 * 1024) << "KiB";  // ru_maxrss is in KiB
  RecordProperty("peak_KiB", static_cast<int>(usage.ru_maxrss));
}

}  // namespace
}  // namespace tierpack::support
