#include "base/memory_placement.h"

#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/support/temp_directory.h"

namespace tierpack {
namespace {

using namespace testing_support;
using Nodes = std::vector<uint32_t>;

TEST(NodeList, ReadsWhatTheKernelWrites) {
  EXPECT_EQ(parse_node_list("0"), Nodes{0});
  EXPECT_EQ(parse_node_list("0-3"), (Nodes{0, 1, 2, 3}));
  EXPECT_EQ(parse_node_list("0-1,4,8-9"), (Nodes{0, 1, 4, 8, 9}));
  EXPECT_EQ(parse_node_list("1023"), Nodes{1023});
}

TEST(NodeList, RefusesEverythingElse) {
  for (const char* text : {"", "-", "a", "0-", "-1", "1-0", "0,", ",0", "0,,1", "0 1", "1024", "0-1024", "0-1,1", "2,1", "99999999999"}) {
    EXPECT_EQ(parse_node_list(text), std::nullopt) << text;
  }
}

class MemoryNodes : public testing::Test {
 protected:
  Nodes nodes_with(const std::string& content) {
    const std::filesystem::path folder = directory_ / "devices/system/node";
    std::filesystem::create_directories(folder);
    write_file(folder / "has_memory", content);
    return memory_nodes(directory_.path());
  }
  TempDirectory directory_;
};

TEST_F(MemoryNodes, AreThoseThatHaveMemory) {
  EXPECT_EQ(nodes_with("0-1\n"), (Nodes{0, 1}));
  EXPECT_EQ(nodes_with("0,2\n"), (Nodes{0, 2}));
  EXPECT_EQ(nodes_with("1\n"), Nodes{1});
}

TEST_F(MemoryNodes, AreOneWhenTheSystemDoesNotSay) {
  EXPECT_EQ(memory_nodes(directory_.path()), Nodes{0});
  EXPECT_EQ(nodes_with("\n"), Nodes{0});
  EXPECT_EQ(nodes_with("many\n"), Nodes{0});
}

TEST_F(MemoryNodes, OfThisMachine) { EXPECT_FALSE(memory_nodes().empty()); }

TEST(AllocatePlaced, IsAlignedAndUsable) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{5000}, kLargePageBytes - 1, kLargePageBytes, 2 * kLargePageBytes + 1}) {
    std::byte* const memory = allocate_placed(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % (bytes >= kLargePageBytes ? kLargePageBytes : 4096), 0u);
    std::memset(memory, 7, bytes);
    EXPECT_EQ(memory[bytes - 1], std::byte{7});
    std::free(memory);
  }
}

TEST(AllocatePlaced, RefusesWhatNoMachineHas) {
  for (const uint64_t bytes : {uint64_t{1} << 47, UINT64_MAX, UINT64_MAX - kLargePageBytes}) EXPECT_EQ(allocate_placed(bytes), nullptr);
}

}  // namespace
}  // namespace tierpack
