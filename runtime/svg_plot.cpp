#include "runtime/svg_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/core.h>

namespace tierpack {

namespace {

constexpr double kWidth = 640, kHeight = 400;
constexpr double kLeft = 76, kRight = 24, kTop = 44, kBottom = 56;
constexpr std::array<const char*, 7> kColours = {"#1f6feb", "#8b949e", "#d1570f", "#2da44e", "#bf3989", "#8250df", "#9a6700"};

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

std::string number(double value) { return fmt::format("{:.6g}", value); }

class Canvas {
 public:
  explicit Canvas(const Plot& plot) : plot_(plot) {
    double x_low = HUGE_VAL, x_high = 0, y_high = 0;
    for (const PlotSeries& series : plot.series) {
      for (const PlotPoint& p : series.points) {
        x_low = std::min(x_low, p.x), x_high = std::max(x_high, p.x);
        y_high = std::max({y_high, p.y, p.high});
      }
    }
    if (x_high <= 0) x_low = 1, x_high = 2;
    if (x_low == x_high) x_low /= 2, x_high *= 2;
    log_low_ = std::log2(x_low), log_high_ = std::log2(x_high);
    step_ = tick_step(y_high > 0 ? y_high : 1, 6);
    y_high_ = step_ * std::ceil(std::max(y_high, step_) / step_);
  }

  std::string render() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        kWidth, kHeight);
    text(kLeft, 24, "start", plot_.title, " font-size=\"15\" font-weight=\"bold\"");
    axes();
    for (size_t i = 0; i < plot_.series.size(); ++i) draw(plot_.series[i], kColours[i % kColours.size()], i);
    return out_ + "</svg>\n";
  }

 private:
  double px(double x) const {
    return kLeft + (std::log2(x) - log_low_) / (log_high_ - log_low_) * (kWidth - kLeft - kRight);
  }
  double py(double y) const { return kHeight - kBottom - y / y_high_ * (kHeight - kTop - kBottom); }

  void text(double x, double y, const char* anchor, std::string_view content, const char* more = "") {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more, escaped(content));
  }
  void line(double x1, double y1, double x2, double y2, const char* colour) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2, colour);
  }

  void axes() {
    for (int i = 0; i * step_ <= y_high_ * 1.0001; ++i) {
      const double y = i * step_;
      line(kLeft, py(y), kWidth - kRight, py(y), i == 0 ? "#24292f" : "#d8dee4");
      text(kLeft - 8, py(y) + 4, "end", number(y));
    }
    std::vector<double> marks;
    for (const PlotSeries& series : plot_.series) {
      for (const PlotPoint& p : series.points) marks.push_back(p.x);
    }
    std::sort(marks.begin(), marks.end());
    double last = -1e9;
    for (const double x : marks) {
      if (px(x) - last < 36) continue;
      last = px(x);
      line(last, kHeight - kBottom, last, kHeight - kBottom + 5, "#24292f");
      text(last, kHeight - kBottom + 20, "middle", number(x));
    }
    text((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", plot_.x_label);
    out_ += fmt::format("<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                        (kTop + kHeight - kBottom) / 2, escaped(plot_.y_label));
  }

  void draw(const PlotSeries& series, const char* colour, size_t index) {
    std::string path;
    for (const PlotPoint& p : series.points) path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", px(p.x), py(p.y));
    if (series.points.size() == 1) path += fmt::format(" h0.1");
    out_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", path, colour,
                        series.dashed ? " stroke-dasharray=\"6 4\"" : "");
    for (const PlotPoint& p : series.points) {
      if (series.dashed && series.points.size() > 1) break;
      if (p.high > p.low) line(px(p.x), py(p.low), px(p.x), py(p.high), colour);
      out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", px(p.x), py(p.y), colour);
    }
    // Names one line each, from the line of the title or up to the x axis.
    const double top = plot_.names_below ? kHeight - kBottom + 8 - 15 * static_cast<double>(plot_.series.size()) : 18;
    const double y = top + 15 * static_cast<double>(index);
    line(kWidth - kRight - 24, y - 4, kWidth - kRight, y - 4, colour);
    text(kWidth - kRight - 30, y, "end", series.name);
  }

  const Plot& plot_;
  double log_low_ = 0, log_high_ = 1, y_high_ = 1, step_ = 1;
  std::string out_;
};

}  // namespace

double tick_step(double value, int steps) {
  const double wanted = value / steps;
  const double power = std::pow(10.0, std::floor(std::log10(wanted)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= wanted * 0.999999) return factor * power;
  }
  return 10 * power;
}

std::string render_svg(const Plot& plot) { return Canvas(plot).render(); }

}  // namespace tierpack
