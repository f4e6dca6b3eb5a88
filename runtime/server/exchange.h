// The Exchange of an HttpConnection: carries calls from any thread to the HTTP thread. Internal to the HTTP layer.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "runtime/server/http_connection.h"

namespace tierpack::server {

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::weak_ptr<HttpConnection> connection, uint64_t serial, boost::asio::any_io_executor executor)
      : connection_(std::move(connection)), serial_(serial), executor_(std::move(executor)) {}

  void respond(HttpResponse response) override {
    post([response = std::move(response)](HttpConnection& c, uint64_t serial) { c.respond(serial, response); });
  }
  void begin_stream(std::string type, std::string heartbeat) override {
    post([type = std::move(type), heartbeat = std::move(heartbeat)](HttpConnection& c, uint64_t serial) {
      c.begin_stream(serial, type, heartbeat);
    });
  }
  void send(std::string data) override {
    post([data = std::move(data)](HttpConnection& c, uint64_t serial) { c.send(serial, data); });
  }
  void end_stream() override {
    post([](HttpConnection& c, uint64_t serial) { c.end_stream(serial); });
  }
  void on_gone(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      if (!gone_) {
        callback_ = std::move(callback);
        return;
      }
    }
    callback();
  }
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

  // On the HTTP thread: the client left, or the answer is complete. Either lets go of the callback.
  void client_left() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      callback.swap(callback_);
    }
    if (callback) callback();
  }
  void complete() {
    std::function<void()> callback;
    const std::lock_guard lock(mutex_);
    done_ = true;
    callback.swap(callback_);
  }

 private:
  template <typename Call>
  void post(Call call) {
    boost::asio::post(executor_, [connection = connection_, serial = serial_, call = std::move(call)] {
      if (const auto self = connection.lock()) call(*self, serial);
    });
  }

  std::weak_ptr<HttpConnection> connection_;
  uint64_t serial_;
  boost::asio::any_io_executor executor_;
  mutable std::mutex mutex_;
  std::function<void()> callback_;
  bool gone_ = false;
  bool done_ = false;
};

}  // namespace tierpack::server
