#include "runtime/server/request_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tierpack::server {
namespace {

struct TestJob final : RequestQueue::Job {
  TestJob(RequestQueue::Place p, int n, std::vector<int>& l) : place(std::move(p)), name(n), log(l) {}
  void run() override { log.push_back(name); }
  void refuse() override { log.push_back(-name); }
  RequestQueue::Place place;
  int name;
  std::vector<int>& log;
};

struct QueueTest : ::testing::Test {
  RequestQueue queue{2};
  std::vector<int> log;
  std::shared_ptr<TestJob> add(int name) {
    auto place = queue.enter();
    if (!place) return nullptr;
    auto job = std::make_shared<TestJob>(std::move(*place), name, log);
    queue.push(job);
    return job;
  }
};

TEST_F(QueueTest, FirstComeFirstServedWithALimit) {
  add(1);
  add(2);
  add(3);
  EXPECT_EQ(add(4), nullptr);  // one runs, two wait
  for (int i = 0; i < 3; ++i) queue.pop()->run();
  EXPECT_EQ(log, (std::vector{1, 2, 3}));
  EXPECT_EQ(queue.running(), 1u);
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST_F(QueueTest, ARequestBeingPreparedHoldsItsPlace) {
  auto a = queue.enter(), b = queue.enter(), c = queue.enter();
  EXPECT_FALSE(queue.enter());
  EXPECT_EQ(queue.waiting(), 3u);
  b.reset();
  EXPECT_TRUE(queue.enter());
}

TEST_F(QueueTest, CancellingFreesThePlaceAtOnce) {
  add(1);
  std::shared_ptr<TestJob> second = add(2);
  add(3);
  queue.cancel(second);
  EXPECT_TRUE(second->cancelled());
  second.reset();
  EXPECT_NE(add(4), nullptr);
  for (int i = 0; i < 3; ++i) queue.pop()->run();
  EXPECT_EQ(log, (std::vector{1, 3, 4}));
}

TEST_F(QueueTest, AJobCancelledBeforeItsPushIsDropped) {
  auto place = queue.enter();
  auto job = std::make_shared<TestJob>(std::move(*place), 1, log);
  queue.cancel(job);
  queue.push(job);
  job.reset();
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST_F(QueueTest, ClosingRefusesThoseThatWait) {
  add(1);
  add(2);
  const auto running = queue.pop();
  queue.close();
  EXPECT_EQ(log, (std::vector{-2}));
  EXPECT_FALSE(queue.enter());
  queue.cancel_running();
  EXPECT_TRUE(running->cancelled());
  EXPECT_EQ(queue.pop(), nullptr);
}

TEST_F(QueueTest, PopWaitsForWorkFromOtherThreads) {
  std::thread worker([&] {
    while (const auto job = queue.pop()) job->run();
  });
  std::thread producer([&] {
    for (int i = 1; i <= 200; ++i) {
      while (add(i) == nullptr) std::this_thread::yield();
    }
  });
  producer.join();
  while (queue.waiting() + queue.running() > 0) std::this_thread::yield();
  queue.close();
  worker.join();
  EXPECT_EQ(log.size(), 200u);
}

}  // namespace
}  // namespace tierpack::server
