// The device layer over the CUDA runtime, linked statically: the program starts without a driver, and then there is no
// device. Streams, events and device buffers need one and fail with a sentence.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "base/memory_placement.h"
#include "runtime/device/cuda_error.h"
#include "runtime/device/device.h"

namespace tierpack::device {
namespace {

[[noreturn]] void fail_cuda(const char* what, cudaError_t status) {
  const ErrorKind kind = status == cudaErrorMemoryAllocation ? ErrorKind::kCapacity : ErrorKind::kCuda;
  fail(kind, "{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

void check(cudaError_t status, const char* what) { check_cuda(status, what); }

int count_devices(cudaError_t& status) {
  int count = 0;
  status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess ? count : 0;
}

// Whether pinned buffers are page-locked.
std::atomic<bool>& locks_pages() {
  static std::atomic<bool> locked = false;
  return locked;
}

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }

}  // namespace

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the failure is reported here; later calls must not see it again
  fail_cuda(what, status);
}

const char* backend_name() { return "cuda"; }

std::vector<DeviceInfo> enumerate() {
  std::vector<DeviceInfo> devices;
  cudaError_t status = cudaSuccess;
  const int count = count_devices(status);
  int current = 0;
  if (count > 0) check(cudaGetDevice(&current), "cannot read the current CUDA device");
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "cannot read the properties of a CUDA device");
    DeviceInfo info;
    info.index = index;
    info.name = properties.name;
    info.compute_major = properties.major;
    info.compute_minor = properties.minor;
    info.memory_bytes = properties.totalGlobalMem;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check(cudaSetDevice(index), "cannot select a CUDA device");
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cannot read the free memory of a CUDA device");
    info.free_bytes = free_bytes;
    info.pci_address = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
    devices.push_back(std::move(info));
  }
  if (count > 0) check(cudaSetDevice(current), "cannot select a CUDA device");
  return devices;
}

int device_count() {
  cudaError_t status = cudaSuccess;
  return count_devices(status);
}

std::string unavailable_reason() {
  cudaError_t status = cudaSuccess;
  if (count_devices(status) > 0) return {};
  if (status == cudaErrorInsufficientDriver) return "no NVIDIA driver, or one too old for this build's CUDA runtime";
  if (status == cudaErrorNoDevice || status == cudaSuccess) return "the NVIDIA driver reports no device";
  return fmt::format("the CUDA runtime cannot start: {} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

int compute_capability(int index) {
  int major = 0;
  int minor = 0;
  if (index < 0 || index >= device_count()) return 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "cannot read the properties of a CUDA device");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "cannot read the properties of a CUDA device");
  return 10 * major + minor;
}

void lock_pages(bool locked) { locks_pages() = locked; }

void leave_devices() { static_cast<void>(cudaDeviceReset()); }  // what it cannot give back goes with the process

void use_device(int index) { check(cudaSetDevice(index), "cannot select a CUDA device"); }

uint64_t free_device_bytes() {
  if (device_count() == 0) return 0;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cannot read the free memory of a CUDA device");
  return free_bytes;
}

PinnedBuffer::PinnedBuffer(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = allocate_placed(bytes);
  if (!data_) fail(ErrorKind::kCapacity, "cannot allocate {} bytes of host memory; lower the budget or free memory", bytes);
  if (!locks_pages()) return;
  // Where pages cannot be locked (limits of a container, say) copies go through the driver's own buffers: slower, and as right.
  registered_ = cudaHostRegister(data_, bytes, cudaHostRegisterPortable) == cudaSuccess;
  if (!registered_) static_cast<void>(cudaGetLastError());
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)),
      registered_(std::exchange(other.registered_, false)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(registered_, other.registered_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (registered_) static_cast<void>(cudaHostUnregister(data_));  // a destructor has no one to tell
  std::free(data_);
}

DeviceBuffer::DeviceBuffer(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    fail(ErrorKind::kCapacity, "cannot allocate {} bytes of GPU memory; lower --vram or free memory on the GPU", bytes);
  }
  check(status, "cannot allocate GPU memory");
  data_ = static_cast<std::byte*>(memory);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_) static_cast<void>(cudaFree(data_));
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a CUDA stream");
  handle_ = stream;
}

Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Stream::~Stream() {
  if (handle_) static_cast<void>(cudaStreamDestroy(stream_of(handle_)));
}

void Stream::copy_to_device(DeviceBuffer& to, uint64_t offset, Bytes from) {
  TIERPACK_CHECK(offset <= to.size() && from.size() <= to.size() - offset);
  if (from.empty()) return;
  check(cudaMemcpyAsync(to.address() + offset, from.data(), from.size(), cudaMemcpyHostToDevice, stream_of(handle_)),
        "cannot copy to the GPU");
}

void Stream::copy_to_host(MutableBytes to, const DeviceBuffer& from, uint64_t offset) {
  TIERPACK_CHECK(offset <= from.size() && to.size() <= from.size() - offset);
  if (to.empty()) return;
  check(cudaMemcpyAsync(to.data(), from.address() + offset, to.size(), cudaMemcpyDeviceToHost, stream_of(handle_)),
        "cannot copy from the GPU");
}

void Stream::copy_to_device(void* to, Bytes from) {
  if (from.empty()) return;
  check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_of(handle_)), "cannot copy to the GPU");
}

void Stream::copy_to_host(MutableBytes to, const void* from) {
  if (to.empty()) return;
  check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_of(handle_)), "cannot copy from the GPU");
}

void Stream::copy_on_device(void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(handle_)), "cannot copy on the GPU");
}

void Stream::clear(void* to, uint64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(to, 0, bytes, stream_of(handle_)), "cannot clear memory of the GPU");
}

void Stream::record(Event& event) {
  check(cudaEventRecord(event_of(event.handle_), stream_of(handle_)), "cannot record a CUDA event");
}

void Stream::wait(const Event& event) {
  check(cudaStreamWaitEvent(stream_of(handle_), event_of(event.handle_), 0), "cannot wait for a CUDA event");
}

void Stream::synchronize() { check(cudaStreamSynchronize(stream_of(handle_)), "work on a CUDA stream failed"); }

Event::Event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cannot create a CUDA event");
  handle_ = event;
}

Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_) static_cast<void>(cudaEventDestroy(event_of(handle_)));
}

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(event_of(handle_));
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // an answer, not a failure of what comes next
    return false;
  }
  check(status, "cannot query a CUDA event");
  return true;
}

double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, event_of(earlier.handle_), event_of(handle_)), "cannot read the time between CUDA events");
  return static_cast<double>(milliseconds) * 1e-3;
}

void Event::synchronize() const { check(cudaEventSynchronize(event_of(handle_)), "work before a CUDA event failed"); }

namespace {

struct Executables {
  static constexpr size_t kMost = 16;
  struct One {
    uint64_t shape = 0;
    cudaGraphExec_t graph = nullptr;
  };
  std::vector<One> all;
};

}  // namespace

WorkGraph::WorkGraph() : handle_(new Executables) {}

WorkGraph::~WorkGraph() {
  auto* const made = static_cast<Executables*>(handle_);
  for (const Executables::One& one : made->all) static_cast<void>(cudaGraphExecDestroy(one.graph));
  delete made;
}

void WorkGraph::record(Stream& stream) {
  check(cudaStreamBeginCapture(stream_of(stream.handle()), cudaStreamCaptureModeThreadLocal), "cannot record a CUDA graph");
}

void WorkGraph::finish(Stream& stream, uint64_t shape) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_of(stream.handle()), &graph), "cannot record a CUDA graph");
  std::vector<Executables::One>& all = static_cast<Executables*>(handle_)->all;
  auto found = std::find_if(all.begin(), all.end(), [&](const Executables::One& one) { return one.shape == shape; });
  cudaError_t status = cudaSuccess;
  if (found != all.end()) {
    cudaGraphExecUpdateResultInfo changed{};
    if (cudaGraphExecUpdate(found->graph, graph, &changed) != cudaSuccess) {  // other kernels than the last time
      static_cast<void>(cudaGetLastError());
      static_cast<void>(cudaGraphExecDestroy(found->graph));
      all.erase(found);
      found = all.end();
    }
  }
  if (found == all.end()) {
    if (all.size() == Executables::kMost) {
      static_cast<void>(cudaGraphExecDestroy(all.front().graph));
      all.erase(all.begin());
    }
    cudaGraphExec_t made = nullptr;
    status = cudaGraphInstantiate(&made, graph, 0);
    if (status == cudaSuccess) {
      all.push_back({shape, made});
      found = all.end() - 1;
    }
  }
  static_cast<void>(cudaGraphDestroy(graph));
  check(status, "cannot make a CUDA graph");
  check(cudaGraphLaunch(found->graph, stream_of(stream.handle())), "cannot start a CUDA graph");
}

void WorkGraph::abandon(Stream& stream) noexcept {
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream_of(stream.handle()), &graph));
  static_cast<void>(cudaGetLastError());
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
}

}  // namespace tierpack::device
