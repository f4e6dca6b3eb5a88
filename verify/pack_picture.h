// A picture of a pack or model: what it is made of, and how often each expert is used.
#pragma once

#include <string>

#include "verify/inspection.h"

namespace tierpack::verify {

// SVG, self-contained: a bar of the files' bytes in proportion, one of the bytes by tensor type, and a grid of layers (rows) and experts
// (columns). With a profile a cell is as dark as its expert is often used (logarithmic, the hottest expert is 1); without, all cells are alike.
std::string pack_picture(const Inspection& model);

}  // namespace tierpack::verify
