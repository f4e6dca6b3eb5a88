// The queue behind a Stream of device_on_cpu.cpp. Work runs when something waits for it, never before; two queues are ordered by
// events alone. A queue whose work failed drops the rest and fails everyone who waits for it.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>

#include "runtime/device/device.h"

namespace tierpack::cuda_on_cpu {

class WorkQueue;

// Of a queue, shared by everyone who waited for its work.
struct Failure {
  std::exception_ptr exception;
  bool told = false;  // to someone
  [[noreturn]] void tell() {
    told = true;
    std::rethrow_exception(exception);
  }
};

// A place in a queue, recorded by an event.
struct Record {
  WorkQueue* queue = nullptr;  // valid until done
  bool done = false;
  std::shared_ptr<Failure> failure;
  std::chrono::steady_clock::time_point when{};
};

// Every function takes the lock of the device, under which all work of all queues runs.
class WorkQueue {
 public:
  WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();  // runs the rest; a failure that no one was told ends the program

  // `what` names the work in errors.
  void add(const char* what, std::function<void()> work);
  std::shared_ptr<Record> record();
  void wait(std::shared_ptr<Record> record);
  void synchronize();
  // Runs what lies before the record; throws if it failed.
  static void reach(Record& record);
  // Runs one piece of work on the way to the record, and returns whether it has been reached.
  static bool approach(Record& record);
  // Runs everything, as freeing device memory does; failures stay for those who wait.
  static void drain_all();

 private:
  struct Item {
    const char* what;
    std::function<void()> work;
    std::shared_ptr<Record> record;    // of record()
    std::shared_ptr<Record> wait_for;  // of wait()
  };
  void run_all();
  void run_first();
  void run_to(const Record& record);

  std::deque<Item> items_;
  std::shared_ptr<Failure> failure_;
};

WorkQueue& queue_of(device::Stream& stream);

}  // namespace tierpack::cuda_on_cpu
