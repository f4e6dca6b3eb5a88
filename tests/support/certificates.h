// A self-signed certificate for 127.0.0.1, made on the spot, for tests of TLS.
#pragma once

#include <filesystem>

namespace tierpack::support {

// Writes PEM files. `days` < 0 makes one that has expired; `address` goes into the subject alternative name.
void write_self_signed(const std::filesystem::path& certificate, const std::filesystem::path& key, int days = 1,
                       const char* address = "IP:127.0.0.1");

}  // namespace tierpack::support
