#include "tests/support/cuda_on_cpu/work_queue.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu/device_memory.h"

namespace tierpack::cuda_on_cpu {
namespace {

std::mutex& device_lock() {
  static std::mutex lock;
  return lock;
}

std::vector<WorkQueue*>& queues() {
  static std::vector<WorkQueue*> all;
  return all;
}

}  // namespace

WorkQueue::WorkQueue() {
  const std::lock_guard lock(device_lock());
  queues().push_back(this);
}

WorkQueue::~WorkQueue() {
  const std::lock_guard lock(device_lock());
  run_all();
  std::erase(queues(), this);
  if (failure_ == nullptr || failure_->told || std::uncaught_exceptions() > 0) return;
  try {
    failure_->tell();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cuda_on_cpu: a stream ends with a failure that no one waited for: %s\n", e.what());
  }
  std::abort();
}

void WorkQueue::add(const char* what, std::function<void()> work) {
  const std::lock_guard lock(device_lock());
  items_.push_back({what, std::move(work), nullptr, nullptr});
}

std::shared_ptr<Record> WorkQueue::record() {
  const std::lock_guard lock(device_lock());
  const auto record = std::make_shared<Record>();
  record->queue = this;
  items_.push_back({"record", nullptr, record, nullptr});
  return record;
}

void WorkQueue::wait(std::shared_ptr<Record> record) {
  const std::lock_guard lock(device_lock());
  items_.push_back({"wait", nullptr, nullptr, std::move(record)});
}

void WorkQueue::synchronize() {
  const std::lock_guard lock(device_lock());
  run_all();
  if (failure_ != nullptr) failure_->tell();
}

void WorkQueue::reach(Record& record) {
  const std::lock_guard lock(device_lock());
  if (!record.done) {
    const DeviceAccess access;
    record.queue->run_to(record);
  }
  if (record.failure != nullptr) record.failure->tell();
}

bool WorkQueue::approach(Record& record) {
  const std::lock_guard lock(device_lock());
  WorkQueue* queue = record.queue;
  while (!record.done) {
    const std::shared_ptr<Record> wait_for = queue->items_.front().wait_for;
    if (wait_for != nullptr && !wait_for->done) {
      queue = wait_for->queue;
      continue;
    }
    const bool worked = queue->items_.front().work != nullptr;
    const DeviceAccess access;
    queue->run_first();
    if (worked) break;
    queue = record.queue;
  }
  if (record.failure != nullptr) record.failure->tell();
  return record.done;
}

void WorkQueue::drain_all() {
  const std::lock_guard lock(device_lock());
  for (WorkQueue* const queue : queues()) queue->run_all();
}

void WorkQueue::run_all() {
  if (items_.empty()) return;
  const DeviceAccess access;
  while (!items_.empty()) run_first();
}

void WorkQueue::run_to(const Record& record) {
  while (!record.done) run_first();
}

// Failures stay in the queue and its records.
void WorkQueue::run_first() {
  const Item item = std::move(items_.front());
  items_.pop_front();
  if (failure_ == nullptr) {
    try {
      if (item.wait_for != nullptr) {
        if (!item.wait_for->done) item.wait_for->queue->run_to(*item.wait_for);
        failure_ = item.wait_for->failure;
      }
      if (item.work) item.work();
    } catch (...) {
      failure_ = std::make_shared<Failure>(Failure{std::current_exception()});
    }
  }
  if (item.record != nullptr) {
    item.record->failure = failure_;
    item.record->when = std::chrono::steady_clock::now();
    item.record->done = true;
  }
}

}  // namespace tierpack::cuda_on_cpu
