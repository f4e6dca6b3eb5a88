// A block of accelerator memory as the expert store's fastest tier sees it: of a device, or `sim`, which stands in for it on a machine
// without a GPU: host memory of a chosen size behind a link of a chosen speed.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"

namespace tierpack::device {

class VramMemory {
 public:
  virtual ~VramMemory() = default;
  virtual uint64_t size() const = 0;
  // Both return when the copy is complete. One thread at a time.
  virtual void copy_in(uint64_t offset, Bytes from) = 0;
  virtual void copy_out(uint64_t offset, MutableBytes to) = 0;
  // The memory as kernels of the device read it; the host may read it too only if host_readable.
  virtual const std::byte* address(uint64_t offset) const = 0;
  virtual bool host_readable() const = 0;
  virtual const char* name() const = 0;
};

// Memory of device `index` of enumerate(), copied to and from on a stream of its own. Throws kCapacity.
std::unique_ptr<VramMemory> make_device_vram(uint64_t bytes, int index);

// Copies take at least bytes / link_bytes_s; 0 = as fast as memory allows. Throws kCapacity when there is no such memory.
std::unique_ptr<VramMemory> make_sim_vram(uint64_t bytes, double link_bytes_s);

}  // namespace tierpack::device
