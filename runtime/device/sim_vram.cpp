#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "runtime/device/device.h"
#include "runtime/device/vram_memory.h"

namespace tierpack::device {

namespace {

class SimVram final : public VramMemory {
 public:
  SimVram(uint64_t bytes, double link_bytes_s) : memory_(bytes), link_bytes_s_(link_bytes_s) {}

  uint64_t size() const override { return memory_.bytes().size(); }
  void copy_in(uint64_t offset, Bytes from) override { copy(memory_.bytes().subspan(offset, from.size()), from); }
  void copy_out(uint64_t offset, MutableBytes to) override { copy(to, memory_.bytes().subspan(offset, to.size())); }
  const std::byte* address(uint64_t offset) const override { return memory_.bytes().data() + offset; }
  bool host_readable() const override { return true; }
  const char* name() const override { return "sim"; }

 private:
  void copy(MutableBytes to, Bytes from) const {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    if (link_bytes_s_ > 0) {
      std::this_thread::sleep_until(begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                std::chrono::duration<double>(static_cast<double>(from.size()) / link_bytes_s_)));
    }
  }

  PinnedBuffer memory_;
  double link_bytes_s_;
};

}  // namespace

std::unique_ptr<VramMemory> make_sim_vram(uint64_t bytes, double link_bytes_s) {
  return std::make_unique<SimVram>(bytes, link_bytes_s);
}

}  // namespace tierpack::device
