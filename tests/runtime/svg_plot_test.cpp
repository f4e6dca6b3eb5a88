#include "runtime/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tierpack {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TickStep, IsARoundNumberThatIsLargeEnough) {
  EXPECT_DOUBLE_EQ(tick_step(6, 6), 1);
  EXPECT_DOUBLE_EQ(tick_step(7, 6), 2);
  EXPECT_DOUBLE_EQ(tick_step(13, 6), 2.5);
  EXPECT_DOUBLE_EQ(tick_step(1000, 6), 200);
  EXPECT_DOUBLE_EQ(tick_step(5900, 6), 1000);
  EXPECT_DOUBLE_EQ(tick_step(0.05, 5), 0.01);
}

TEST(SvgPlot, DrawsPointsBarsAndCeiling) {
  const std::string svg = render_svg({"speed", "tokens", "rate", {{"measured", {{512, 10, 8, 12}, {1024, 9, 9, 9}}, false},
                                                                  {"ceiling", {{512, 20, 20, 20}, {1024, 20, 20, 20}}, true}}});
  EXPECT_EQ(svg.find("<svg "), 0u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count_of(svg, "<circle"), 2u);
  EXPECT_EQ(count_of(svg, "<path"), 2u);
  EXPECT_EQ(count_of(svg, "stroke-dasharray"), 1u);
  EXPECT_THAT(svg, HasSubstr(">512</text>"));
  EXPECT_THAT(svg, HasSubstr(">1024</text>"));
  EXPECT_THAT(svg, HasSubstr(">ceiling</text>"));
  EXPECT_THAT(svg, HasSubstr(">20</text>"));  // the y axis reaches the ceiling
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(svg, HasSubstr("M76.0 194.0 L616.0 209.0"));  // 10 of 20 is half-way up
  EXPECT_THAT(svg, HasSubstr("M76.0 44.0 L616.0 44.0"));
}

TEST(SvgPlot, OnePointZerosAndNothingAreDrawable) {
  for (const Plot& plot : {Plot{"one", "x", "y", {{"a", {{4096, 3, 3, 3}}, false}}}, Plot{"zero", "x", "y", {{"a", {{1, 0, 0, 0}}, false}}},
                           Plot{"none", "x", "y", {}}}) {
    const std::string svg = render_svg(plot);
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_THAT(svg, Not(HasSubstr("nan"))) << plot.title;
    EXPECT_THAT(svg, Not(HasSubstr("inf"))) << plot.title;
  }
}

TEST(SvgPlot, NamesCannotBreakTheDocument) {
  const std::string svg = render_svg({"<script>&\"\n", "x", "y", {}});
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;&quot; "));
}

}  // namespace
}  // namespace tierpack
