// Tuned settings as an engine takes them: only where the user chose nothing, only on the machine they were found on.
#include "runtime/tuned_settings.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/tuned.h"
#include "runtime/machine_probe.h"
#include "tests/support/temp_directory.h"
#include "tests/support/tiny_pack.h"

namespace tierpack {
namespace {

using namespace testing_support;

class TunedSettings : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_STATE_HOME", directory_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("XDG_STATE_HOME"); }

  static Pack tiny_pack(const std::filesystem::path& path) {
    TinyPack().write(path);
    return Pack::open(path);
  }
  void keep(const std::string& cpu, int cores) {
    TunedFile file;
    file.set({pack_.manifest().routing_id, cpu, static_cast<uint32_t>(cores), 3, 77, "reference", 1, 1, "test", "now"});
    write_tuned(default_tuned_path(), file);
  }

  TempDirectory directory_;
  Pack pack_ = tiny_pack(directory_ / "tiny.tierpack");
};

TEST_F(TunedSettings, FillInWhatIsOpen) {
  const MachineInfo machine = machine_info();
  EngineOptions options;
  EXPECT_EQ(apply_tuned(pack_, options), "");  // no file
  keep(machine.cpu, machine.cores);
  EXPECT_NE(apply_tuned(pack_, options).find("3 threads, chunks of 77, reference kernels"), std::string::npos);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.chunk, 77u);
  EXPECT_EQ(options.isa, "reference");
}

TEST_F(TunedSettings, LeaveWhatTheUserChose) {
  const MachineInfo machine = machine_info();
  keep(machine.cpu, machine.cores);
  EngineOptions options;
  options.threads = 1;
  options.chunk_given = true;  // of the default size
  EXPECT_NE(apply_tuned(pack_, options).find(": reference kernels"), std::string::npos);
  EXPECT_EQ(options.threads, 1);
  EXPECT_EQ(options.chunk, EngineOptions{}.chunk);
}

TEST_F(TunedSettings, OfAnotherMachineAreNotUsed) {
  const MachineInfo machine = machine_info();
  EngineOptions options;
  keep(machine.cpu + "x", machine.cores);
  EXPECT_EQ(apply_tuned(pack_, options), "");
  keep(machine.cpu, machine.cores + 1);
  EXPECT_EQ(apply_tuned(pack_, options), "");
  EXPECT_EQ(options.threads, 0);
}

TEST_F(TunedSettings, ABrokenFileChangesNothing) {
  std::filesystem::create_directories(default_tuned_path().parent_path());
  write_file(default_tuned_path(), "{");
  EngineOptions options;
  EXPECT_NE(apply_tuned(pack_, options).find("not used"), std::string::npos);
  EXPECT_EQ(options.threads, 0);
}

}  // namespace
}  // namespace tierpack
