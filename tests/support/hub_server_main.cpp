// The test hub as a program: hub_server --root DIR [--port N] [--print-port] [--faults FILE]
// Serves until it gets SIGINT or SIGTERM. --print-port writes the hub's port on stdout as a line of its own.
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>

#include "tests/support/hub_server.h"

int main(int argc, char** argv) {
  CLI::App app("A small hub on 127.0.0.1: Hugging Face, ModelScope, container registry and plain files from one directory.\n"
               "Repository ORG/NAME is ROOT/ORG/NAME, or ROOT itself if that does not exist. To make it misbehave, POST a JSON\n"
               "array of faults to /__control/faults (actions are listed in tests/support/hub_faults.cpp).");
  tierpack::support::HubOptions options;
  bool print_port = false;
  app.add_option("--root", options.root, "Directory to serve")->required()->check(CLI::ExistingDirectory);
  app.add_option("--port", options.port, "Port; 0 takes a free one")->capture_default_str();
  app.add_option("--page", options.page_entries, "Entries on a page of a file list")->capture_default_str();
  app.add_option("--url-seconds", options.url_seconds, "Life of signed URLs")->capture_default_str();
  app.add_option("--token", options.token, "Gate all repositories behind this token");
  app.add_flag("--registry-auth", options.registry_auth, "The registry asks for an anonymous token");
  app.add_flag("--print-port", print_port, "Print the port on stdout");
  CLI11_PARSE(app, argc, argv);

  // Blocked before any thread starts, so that only sigwait sees them.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const tierpack::support::HubServer hub(options);
    if (print_port) std::printf("%d\n", hub.port());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&stop, &signal);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
