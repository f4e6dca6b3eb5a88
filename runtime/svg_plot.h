// A line plot as an SVG document: enough for rates over prompt lengths. No scripts, no outside resources.
#pragma once

#include <string>
#include <vector>

namespace tierpack {

struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;   // ends of the bar through the point; equal to y for none
  double high = 0;
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;  // ascending x
  bool dashed = false;            // a ceiling: no dots, no bars
};

struct Plot {
  std::string title;
  std::string x_label;  // the x axis is logarithmic; x > 0
  std::string y_label;  // the y axis begins at 0
  std::vector<PlotSeries> series;
  bool names_below = false;  // the series' names at the bottom right instead of the top right
};

std::string render_svg(const Plot& plot);

// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `value` / `steps`: the distance of tick marks.
double tick_step(double value, int steps);

}  // namespace tierpack
