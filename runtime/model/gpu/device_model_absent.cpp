// The program without CUDA.
#include "base/error.h"
#include "runtime/device/device.h"
#include "runtime/model/gpu/device_model.h"

namespace tierpack::model {

std::unique_ptr<Model> make_device_model(DeviceModelParts) { fail(ErrorKind::kCuda, "no model runs on a GPU: {}", device_model_problem(0)); }

std::string device_model_problem(int) { return device::unavailable_reason(); }

}  // namespace tierpack::model
