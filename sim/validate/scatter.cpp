#include "sim/validate/scatter.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace headway {

namespace {

constexpr int kColumns = 4;
constexpr double kSide = 220;  // of a panel's plot
constexpr double kLeft = 46, kTop = 26, kRight = 14, kBottom = 34;
constexpr double kBand = 0.10;
constexpr double kDot = 2.2;

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string attributes(std::initializer_list<std::pair<const char*, double>> values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += std::string(" ") + name + "=\"" + text_of(value) + "\"";
  return text;
}

// "0.1", "100": a power of ten in seconds.
std::string seconds_text(int power) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", std::pow(10.0, power));
  return text;
}

// One source's plot; its axes go over whole decades.
class Panel {
 public:
  Panel(std::string title, std::vector<const PredictedRun*> runs)
      : title_(std::move(title)), runs_(std::move(runs)) {
    double least = 1e300, most = 1e-300;
    for (const PredictedRun* run : runs_) {
      least = std::min({least, *run->measured_s, *run->predicted_s});
      most = std::max({most, *run->measured_s, *run->predicted_s});
    }
    low_ = static_cast<int>(std::floor(std::log10(least)));
    high_ = std::max(low_ + 1, static_cast<int>(std::ceil(std::log10(most))));
  }

  std::string svg(double x, double y) const {
    std::string text = "<g transform=\"translate(" + text_of(x + kLeft) + "," + text_of(y + kTop) +
                       ")\">\n<rect class=\"frame\"" +
                       attributes({{"width", kSide}, {"height", kSide}}) + "/>\n";
    text += "<text class=\"title\"" + attributes({{"x", 0}, {"y", -9}}) + ">" + title_ + " (" +
            std::to_string(runs_.size()) + ")</text>\n";
    text += band() + ticks();
    for (const PredictedRun* run : runs_) text += dot(*run);
    return text + "</g>\n";
  }

 private:
  double at(double seconds) const { return kSide * (std::log10(seconds) - low_) / (high_ - low_); }

  // Between predictions 10 % short and 10 % long of the measurement.
  std::string band() const {
    const double up = kSide * std::log10(1 + kBand) / (high_ - low_);
    const double down = kSide * -std::log10(1 - kBand) / (high_ - low_);
    std::string points;
    const auto add = [&](double x, double y) {
      points += text_of(x) + "," + text_of(kSide - std::clamp(y, 0.0, kSide)) + " ";
    };
    add(0, 0), add(0, up), add(kSide - up, kSide), add(kSide, kSide), add(kSide, kSide - down);
    add(down, 0);
    return "<polygon class=\"band\" points=\"" + points + "\"/>\n";
  }

  std::string ticks() const {
    std::string text;
    for (int power = low_; power <= high_; ++power) {
      const double place = kSide * (power - low_) / (high_ - low_);
      text += "<text class=\"tick\" text-anchor=\"middle\"" +
              attributes({{"x", place}, {"y", kSide + 14}}) + ">" + seconds_text(power) +
              "</text>\n<text class=\"tick\" text-anchor=\"end\"" +
              attributes({{"x", -5}, {"y", kSide - place + 4}}) + ">" + seconds_text(power) +
              "</text>\n";
    }
    return text;
  }

  std::string dot(const PredictedRun& run) const {
    return std::string("<circle class=\"") + (run.used_in_fit ? "aside" : "run") + "\"" +
           attributes(
               {{"cx", at(*run.measured_s)}, {"cy", kSide - at(*run.predicted_s)}, {"r", kDot}}) +
           "/>\n";
  }

  std::string title_;
  std::vector<const PredictedRun*> runs_;
  int low_ = 0, high_ = 1;
};

}  // namespace

std::string scatter_svg(const std::vector<PredictedRun>& runs, bool low) {
  std::map<std::string, std::vector<const PredictedRun*>> by_source;
  for (const PredictedRun& run : runs) {
    if (!run.measured_s || !run.predicted_s) continue;
    if (run.reliability == Reliability::kLow && !low) continue;
    by_source[run.file].push_back(&run);
  }
  constexpr double kWidth = kLeft + kSide + kRight, kHeight = kTop + kSide + kBottom;
  const int count = static_cast<int>(by_source.size());
  const int rows = (count + kColumns - 1) / kColumns;
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\"" +
                     attributes({{"width", kColumns * kWidth}, {"height", rows * kHeight + 20}}) +
                     ">\n<style>text{font-family:sans-serif}.title{font-size:13px}"
                     ".tick{font-size:10px;fill:#555}.frame{fill:none;stroke:#999}"
                     ".band{fill:#2a7;fill-opacity:.18}.run{fill:#136;fill-opacity:.5}"
                     ".aside{fill:none;stroke:#136;stroke-opacity:.5}</style>\n"
                     "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  int index = 0;
  for (auto& [source, some] : by_source) {
    text +=
        Panel(source, std::move(some)).svg(index % kColumns * kWidth, index / kColumns * kHeight);
    ++index;
  }
  text += "<text class=\"tick\"" + attributes({{"x", kLeft}, {"y", rows * kHeight + 8}}) +
          ">predicted (up) over measured (right) step time in seconds; band: 10 % either way; "
          "hollow: set aside for fitting</text>\n";
  return text + "</svg>\n";
}

}  // namespace headway
