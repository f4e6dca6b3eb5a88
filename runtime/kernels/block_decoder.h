// The exact content of quantised weight rows: integer codes and scales, 32 elements at a time. One scalar decoder per
// type, shared by the reference and by every implementation that has no vector decoder of its own for a type; derived
// from the layouts in formats/dtype_blocks.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/dtype.h"

namespace tierpack::kernels {

// How a block's value is built from its fields; h = 0 for elements 0..15 and 1 for 16..31.
enum class BlockForm : uint8_t {
  kScale,           // code * scale
  kScaleOffset,     // code * scale + offset
  kSubScale,        // code * sub_scale[h] * scale
  kSubScaleOffset,  // code * sub_scale[h] * scale + sub_offset[h] * offset
  kTwoScales,       // code * (h ? scale_high : scale)
};

struct Block {
  int8_t code[32];
  int16_t sub_scale[2];
  int16_t sub_offset[2];
  float scale;
  float scale_high;
  float offset;
};

struct BlockFormat {
  DType type;
  BlockForm form;
  uint8_t blocks;       // 32-element blocks in one packed block, 1 to 8
  uint16_t bytes;       // of a packed block
  int16_t code_max;     // largest magnitude of a code
  // Decodes one packed block into `blocks` Blocks. Fields that the form does not use are left as they are.
  void (*decode)(const std::byte* packed, Block* out);
};

// The format of a quantised type; nullptr for plain numbers.
const BlockFormat* block_format(DType type);

inline constexpr uint32_t kBlocksMax = 8;
inline constexpr uint32_t kPackedBytesMax = 292;  // Q8_K

}  // namespace tierpack::kernels
