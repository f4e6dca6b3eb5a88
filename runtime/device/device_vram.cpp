#include "runtime/device/device.h"
#include "runtime/device/vram_memory.h"

namespace tierpack::device {

namespace {

class DeviceVram final : public VramMemory {
 public:
  DeviceVram(uint64_t bytes, int index) : index_(index), memory_(bytes) {}

  uint64_t size() const override { return memory_.size(); }
  void copy_in(uint64_t offset, Bytes from) override {
    use_device(index_);
    stream_.copy_to_device(memory_, offset, from);
    stream_.synchronize();
  }
  void copy_out(uint64_t offset, MutableBytes to) override {
    use_device(index_);
    stream_.copy_to_host(to, memory_, offset);
    stream_.synchronize();
  }
  const std::byte* address(uint64_t offset) const override { return memory_.address() + offset; }
  bool host_readable() const override { return false; }
  const char* name() const override { return backend_name(); }

 private:
  int index_;
  DeviceBuffer memory_;
  Stream stream_;
};

}  // namespace

std::unique_ptr<VramMemory> make_device_vram(uint64_t bytes, int index) {
  use_device(index);
  return std::make_unique<DeviceVram>(bytes, index);
}

}  // namespace tierpack::device
