#include "verify/pack_picture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/dtype.h"

namespace tierpack::verify {

namespace {

constexpr double kWidth = 960, kMargin = 24, kBar = 26, kGap = 14;
constexpr double kCellHeight = 9;
constexpr std::array kColours{"#1f4e79", "#c55a11", "#548235", "#7f6000", "#7030a0", "#767171", "#2e75b6", "#a9d18e", "#bf9000", "#c00000"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

struct Share {
  std::string name;
  uint64_t bytes = 0;
};

class Picture {
 public:
  std::string draw(const Inspection& model) {
    y_ = kMargin + 18;
    text(kMargin, y_, 18, fmt::format("{} · {}", model.metadata.string_or("general.name", model.path), format_size(model.bytes())));
    y_ += kGap;
    std::vector<Share> files;
    for (const InspectedFile& file : model.files) files.push_back({file.name, file.bytes});
    bar(model.is_pack ? "files of the pack" : "files", files);
    std::vector<Share> types;
    for (const auto& [type, item] : model.by_type) types.push_back({dtype_name(type), item.bytes});
    std::stable_sort(types.begin(), types.end(), [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
    bar("types of tensors", types);
    bar("access", {{"dense", model.dense.bytes}, {"experts", model.experts.bytes}, {"rows", model.rows.bytes}});
    if (!model.layers.empty()) grid(model);
    const double height = y_ + kMargin;
    return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" "
                       "font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
                       kWidth, height, kWidth, height, body_);
  }

 private:
  void text(double x, double y, double size, std::string_view content, const char* anchor = "start") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.0f}\" fill=\"#222222\" text-anchor=\"{}\">{}</text>\n", x, y, size, anchor,
                         escaped(content));
  }

  void box(double x, double y, double width, double height, std::string_view fill, std::string_view title) {
    body_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>{}</title></rect>\n", x, y, width, height,
                         fill, escaped(title));
  }

  // Bytes in proportion; names stand below, with those that are too small to see.
  void bar(std::string_view title, const std::vector<Share>& shares) {
    uint64_t total = 0;
    for (const Share& share : shares) total += share.bytes;
    if (total == 0) return;
    y_ += 16;
    text(kMargin, y_, 13, title);
    y_ += 6;
    const double full = kWidth - 2 * kMargin;
    double x = kMargin;
    for (size_t i = 0; i < shares.size(); ++i) {
      const double width = full * static_cast<double>(shares[i].bytes) / static_cast<double>(total);
      box(x, y_, width, kBar, kColours[i % kColours.size()], fmt::format("{}: {}", shares[i].name, format_size(shares[i].bytes)));
      x += width;
    }
    y_ += kBar + 14;
    x = kMargin;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i].bytes == 0) continue;
      const std::string label = fmt::format("{} {}", shares[i].name, format_size(shares[i].bytes));
      const double width = 22 + 6.2 * static_cast<double>(label.size());
      if (x + width > kWidth - kMargin) {
        x = kMargin;
        y_ += 16;
      }
      box(x, y_ - 9, 10, 10, kColours[i % kColours.size()], shares[i].name);
      text(x + 14, y_, 11, label);
      x += width;
    }
    y_ += kGap;
  }

  static std::string heat(double share) {
    const double t = std::clamp(share, 0.0, 1.0);
    const auto mix = [&](double from, double to) { return static_cast<int>(std::lround(from + (to - from) * t)); };
    return fmt::format("#{:02x}{:02x}{:02x}", mix(247, 165), mix(244, 15), mix(237, 21));
  }

  void grid(const Inspection& model) {
    uint32_t experts = 0;
    for (const ExpertLayer& layer : model.layers) experts = std::max(experts, layer.experts);
    uint64_t hottest = 0;
    if (model.profile) hottest = *std::max_element(model.profile->counts.begin(), model.profile->counts.end());
    y_ += 16;
    text(kMargin, y_, 13, model.profile ? fmt::format("uses by layer (rows) and expert (columns), {} tokens; darkest: {} uses",
                                                      format_count(model.profile->tokens()), format_count(hottest))
                                        : "experts by layer (rows); no profile");
    y_ += 8;
    const double left = kMargin + 34;
    const double cell = (kWidth - kMargin - left) / std::max(experts, 1u);
    for (const ExpertLayer& layer : model.layers) {
      if (layer.layer % 4 == 0) text(left - 6, y_ + kCellHeight - 1, 9, std::to_string(layer.layer), "end");
      // Neighbours of one colour are one box, so that models of thousands of experts stay small.
      for (uint32_t first = 0; first < layer.experts;) {
        const std::string fill = colour(model, layer, first, hottest);
        uint32_t end = first + 1;
        while (end < layer.experts && colour(model, layer, end, hottest) == fill) ++end;
        const std::string what = end == first + 1 ? fmt::format("layer {} expert {}: {} uses", layer.layer, first, uses(model, layer, first))
                                                  : fmt::format("layer {} experts {} to {}", layer.layer, first, end - 1);
        box(left + first * cell, y_, (end - first) * cell, kCellHeight - 1, fill, what);
        first = end;
      }
      y_ += kCellHeight;
    }
  }

  static uint64_t uses(const Inspection& model, const ExpertLayer& layer, uint32_t expert) {
    if (!model.profile || layer.layer >= model.profile->layers || expert >= model.profile->experts) return 0;
    return model.profile->count(layer.layer, expert);
  }

  static std::string colour(const Inspection& model, const ExpertLayer& layer, uint32_t expert, uint64_t hottest) {
    if (hottest == 0) return "#b7c9d9";
    return heat(std::log1p(static_cast<double>(uses(model, layer, expert))) / std::log1p(static_cast<double>(hottest)));
  }

  std::string body_;
  double y_ = 0;
};

}  // namespace

std::string pack_picture(const Inspection& model) { return Picture().draw(model); }

}  // namespace tierpack::verify
