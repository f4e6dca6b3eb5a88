// Shared memory of a block: arrays that know their name and size, and pointers into them that check every access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tierpack::cuda_on_cpu {

struct SharedArray;

// The array that a declaration means in the running block. `site` tells declarations apart; null: the dynamic shared memory.
SharedArray* shared_array(const void* site, const char* name, size_t element_bytes, size_t count);
// Checks an access of `bytes` at `offset` of the array, and returns where it lies.
std::byte* read_shared(SharedArray* array, int64_t offset, size_t bytes);
std::byte* write_shared(SharedArray* array, int64_t offset, size_t bytes);
// Both at once, in one step for every thread.
std::byte* update_shared(SharedArray* array, int64_t offset, size_t bytes);

// An element. Only a temporary converts to its value, so that `auto x = array[i]`, which would read later, does not compile.
template <typename Element>
class SharedReference {
 public:
  using T = std::remove_const_t<Element>;
  SharedReference(SharedArray* array, int64_t offset) : array_(array), offset_(offset) {}
  SharedReference(const SharedReference&) = default;
  operator T() const&& { return get(); }
  T operator=(T value) const {
    static_assert(!std::is_const_v<Element>);
    std::memcpy(write_shared(array_, offset_, sizeof(T)), &value, sizeof(T));
    return value;
  }
  T operator=(const SharedReference& other) const { return *this = other.get(); }
  T operator+=(T value) const { return *this = static_cast<T>(get() + value); }
  T operator-=(T value) const { return *this = static_cast<T>(get() - value); }
  T operator*=(T value) const { return *this = static_cast<T>(get() * value); }
  T operator|=(T value) const { return *this = static_cast<T>(get() | value); }
  T operator&=(T value) const { return *this = static_cast<T>(get() & value); }
  T operator^=(T value) const { return *this = static_cast<T>(get() ^ value); }
  T operator++() const { return *this += T{1}; }
  T operator--() const { return *this -= T{1}; }
  T operator++(int) const {
    const T before = get();
    *this = static_cast<T>(before + 1);
    return before;
  }
  auto operator&() const;

 private:
  T get() const {
    T value;
    std::memcpy(&value, read_shared(array_, offset_, sizeof(T)), sizeof(T));
    return value;
  }
  SharedArray* array_;
  int64_t offset_;  // bytes
};

template <typename T>
class SharedPointer {
 public:
  SharedPointer() = default;
  SharedPointer(std::nullptr_t) {}
  SharedPointer(SharedArray* array, int64_t offset) : array_(array), offset_(offset) {}
  operator SharedPointer<const T>() const requires(!std::is_const_v<T>) { return {array_, offset_}; }
  SharedReference<T> operator[](int64_t i) const { return {array_, offset_ + i * static_cast<int64_t>(sizeof(T))}; }
  SharedReference<T> operator*() const { return (*this)[0]; }
  SharedPointer operator+(int64_t i) const { return {array_, offset_ + i * static_cast<int64_t>(sizeof(T))}; }
  SharedPointer operator-(int64_t i) const { return *this + -i; }
  int64_t operator-(const SharedPointer& other) const { return (offset_ - other.offset_) / static_cast<int64_t>(sizeof(T)); }
  SharedPointer& operator+=(int64_t i) { return *this = *this + i; }
  SharedPointer& operator-=(int64_t i) { return *this = *this - i; }
  SharedPointer& operator++() { return *this += 1; }
  bool operator==(const SharedPointer&) const = default;
  explicit operator bool() const { return array_ != nullptr; }
  SharedArray* array() const { return array_; }
  int64_t offset() const { return offset_; }

 private:
  SharedArray* array_ = nullptr;
  int64_t offset_ = 0;  // bytes
};

template <typename Element>
auto SharedReference<Element>::operator&() const {
  return SharedPointer<Element>(array_, offset_);
}

void check_shared_alignment(SharedArray* array, int64_t offset, size_t bytes);
void copy_async(SharedArray* array, int64_t offset, const void* from);
void commit_copies();
void wait_for_copies(unsigned pending);

}  // namespace tierpack::cuda_on_cpu

namespace tierpack::kernels::cuda {

using cuda_on_cpu::SharedPointer;

#define TIERPACK_SHARED(T, name, count)                                                                                     \
  static constexpr char tierpack_site_of_##name = 0;                                                                        \
  const ::tierpack::cuda_on_cpu::SharedPointer<T> name(                                                                     \
      ::tierpack::cuda_on_cpu::shared_array(&tierpack_site_of_##name, #name, sizeof(T), count), 0)
#define TIERPACK_DYNAMIC_SHARED(T, name) \
  const ::tierpack::cuda_on_cpu::SharedPointer<T> name(::tierpack::cuda_on_cpu::shared_array(nullptr, #name, sizeof(T), 0), 0)

template <typename V, typename T>
V load_shared(SharedPointer<T> array, uint32_t index) {
  const SharedPointer<T> first = array + index;
  cuda_on_cpu::check_shared_alignment(first.array(), first.offset(), sizeof(V));
  V value;
  std::memcpy(&value, cuda_on_cpu::read_shared(first.array(), first.offset(), sizeof(V)), sizeof(V));
  return value;
}
template <typename V, typename T>
void store_shared(SharedPointer<T> array, uint32_t index, V value) {
  const SharedPointer<T> first = array + index;
  cuda_on_cpu::check_shared_alignment(first.array(), first.offset(), sizeof(V));
  std::memcpy(cuda_on_cpu::write_shared(first.array(), first.offset(), sizeof(V)), &value, sizeof(V));
}

template <typename T>
void copy_async_16(SharedPointer<T> array, uint32_t index, const void* from) {
  const SharedPointer<T> first = array + index;
  cuda_on_cpu::copy_async(first.array(), first.offset(), from);
}
inline void copy_async_commit() { cuda_on_cpu::commit_copies(); }
template <int Pending>
void copy_async_wait() {
  cuda_on_cpu::wait_for_copies(Pending);
}

}  // namespace tierpack::kernels::cuda
