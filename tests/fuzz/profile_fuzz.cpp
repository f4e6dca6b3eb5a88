// Profiles from arbitrary bytes: an Error, or a profile that survives being written and can be merged with itself.
#include <cstdlib>

#include "base/error.h"
#include "formats/profile.h"

using namespace tierpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Profile profile = parse_profile({reinterpret_cast<const char*>(data), size}, "fuzz");
    const size_t cells = size_t{profile.layers} * profile.experts;
    if (profile.counts.size() != cells || profile.weights.size() != cells) std::abort();
    const std::string written = encode_profile(profile);
    const Profile again = parse_profile(written, "again");
    if (encode_profile(again) != written || again.id() != profile.id()) std::abort();
    merge_profiles(profile, again);
  } catch (const Error& e) {
    if (std::string(e.what()).starts_with("again")) std::abort();
  }
  return 0;
}
