// Unicode case mappings as tables; unicode.cpp looks them up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tierpack::text {

// The characters first, first + step, ..., last map to themselves plus delta.
struct CaseRange {
  char32_t first, last;
  int32_t step, delta;
};

// A character that maps to several; 0 ends a shorter mapping.
struct CaseSpecial {
  char32_t code;
  char32_t mapped[3];
};

extern const CaseRange kUpperRanges[], kLowerRanges[], kTitleRanges[];
extern const size_t kUpperRangesSize, kLowerRangesSize, kTitleRangesSize;
extern const CaseSpecial kUpperSpecials[], kLowerSpecials[], kTitleSpecials[];
extern const size_t kUpperSpecialsSize, kLowerSpecialsSize, kTitleSpecialsSize;

}  // namespace tierpack::text
