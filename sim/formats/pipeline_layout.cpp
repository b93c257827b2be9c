#include "sim/formats/pipeline_layout.hpp"

#include <cctype>

#include "sim/core/error.hpp"

namespace headway {
namespace {

constexpr std::size_t kLongestLayout = 1 << 20;  // layers of any model, and some

[[noreturn]] void refuse(std::string_view layout, const std::string& why) {
  throw InvalidInput("", "", "\"" + std::string(layout) + "\" is no layout: " + why);
}

// Letters of the layout with repetitions written out.
class Expansion {
 public:
  explicit Expansion(std::string_view layout) : layout_(layout) {}

  std::string text() {
    std::string all = sequence(0);
    if (at_ < layout_.size()) refuse(layout_, "a bracket closes that none opened");
    return all;
  }

 private:
  std::string sequence(int depth) {
    std::string all;
    while (at_ < layout_.size() && layout_[at_] != ')') {
      const char c = layout_[at_++];
      std::string item(1, c);
      if (c == '(') {
        if (depth > 8) refuse(layout_, "brackets nest too deep");
        item = sequence(depth + 1);
        if (at_ == layout_.size()) refuse(layout_, "a bracket does not close");
        ++at_;
      } else if (c == ',' || c == ' ') {
        continue;
      } else if (std::string_view("EtmL|").find(c) == std::string_view::npos) {
        refuse(layout_, "'" + std::string(1, c) + "' is none of E, t, m, L, |");
      }
      append(all, item, times());
    }
    return all;
  }

  std::size_t times() {
    if (at_ == layout_.size() || layout_[at_] != '*') return 1;
    std::size_t count = 0, digits = 0;
    for (++at_; at_ < layout_.size() && std::isdigit(static_cast<unsigned char>(layout_[at_]));
         ++at_) {
      count = count * 10 + static_cast<std::size_t>(layout_[at_] - '0');
      if (++digits > 6) refuse(layout_, "too many layers");
    }
    if (digits == 0) refuse(layout_, "\"*\" without a number");
    return count;
  }

  void append(std::string& all, const std::string& item, std::size_t times) const {
    if (item.size() * times + all.size() > kLongestLayout) refuse(layout_, "too many layers");
    for (std::size_t i = 0; i < times; ++i) all += item;
  }

  std::string_view layout_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::int64_t> layers_of_layout(std::string_view layout) {
  std::vector<std::int64_t> layers = {0};
  for (const char c : Expansion(layout).text()) {
    if (c == '|') layers.push_back(0);
    if (c == 't') ++layers.back();
  }
  return layers;
}

std::string layout_of_layers(const std::vector<std::int64_t>& stage_layers) {
  std::string text = "E";
  for (std::size_t stage = 0; stage < stage_layers.size(); ++stage) {
    if (stage > 0) text += '|';
    if (stage_layers[stage] > 0) text += 't';
    if (stage_layers[stage] > 1) text += '*' + std::to_string(stage_layers[stage]);
  }
  return text + 'L';
}

}  // namespace headway
