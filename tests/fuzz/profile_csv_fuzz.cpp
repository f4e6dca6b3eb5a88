// CSV files of counts from arbitrary bytes: an Error, or a profile of the model that can be written and read again.
#include <cstdlib>

#include "base/error.h"
#include "formats/profile_import.h"

using namespace tierpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ProfileTarget target;
  target.model = "fuzz.tierpack";
  target.blocks = 3;
  target.identity.architecture = "qwen4exp";
  target.identity.layers = 2;
  target.identity.experts = 4;
  target.identity.used = 2;
  target.identity.counts.assign(8, 0);
  target.identity.weights.assign(8, 0);
  target.layers = {{0, {}}, {1, {}}, {2, {}}};
  Profile profile;
  try {
    profile = import_csv_counts(target, {reinterpret_cast<const char*>(data), size}, "fuzz", "fuzz").profile;
  } catch (const Error&) {
    return 0;
  }
  if (profile.tokens() == 0 || parse_profile(encode_profile(profile), "again").counts != profile.counts) std::abort();
  return 0;
}
