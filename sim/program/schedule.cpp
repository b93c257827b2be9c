#include "sim/program/schedule.hpp"

#include <charconv>
#include <cstddef>
#include <stdexcept>

#include "sim/program/pipeline/leaves.hpp"

namespace headway {
namespace {

constexpr std::string_view kKindLetters = "FBIW";        // in the order of ActionKind
constexpr std::string_view kPairSuffix = "OVERLAP_F_B";  // PyTorch's name of an overlapped pair

[[noreturn]] void refuse(std::string_view token) {
  throw std::invalid_argument(
      "\"" + std::string(token) +
      "\" is no action; expected <stage><F|B|I|W><micro-batch> such as \"2F0\" or a "
      "pair \"(0F3;3B1)\"");
}

// The number at the front of `text`, which is cut off; false where there is none.
bool take_number(std::string_view& text, int& number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 0 || text.front() == '-') return false;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return true;
}

Action parse_action(std::string_view text, std::string_view token) {
  Action action;
  if (!take_number(text, action.stage) || text.empty()) refuse(token);
  const std::size_t kind = kKindLetters.find(text.front());
  if (kind == std::string_view::npos) refuse(token);
  action.kind = static_cast<ActionKind>(kind);
  text.remove_prefix(1);
  if (!take_number(text, action.micro_batch) || !text.empty()) refuse(token);
  return action;
}

void parse_token(std::string_view token, std::vector<Action>& actions) {
  if (token.front() != '(') {
    actions.push_back(parse_action(token, token));
    return;
  }
  const std::size_t middle = token.find(';');
  const std::size_t end = token.find(')');
  if (middle == std::string_view::npos || end == std::string_view::npos || end < middle)
    refuse(token);
  const std::string_view suffix = token.substr(end + 1);
  if (!suffix.empty() && suffix != kPairSuffix) refuse(token);
  actions.push_back(parse_action(token.substr(1, middle - 1), token));
  actions.back().overlaps_next = true;
  actions.push_back(parse_action(token.substr(middle + 1, end - middle - 1), token));
}

}  // namespace

std::string to_text(const Action& action) {
  std::string text = std::to_string(action.stage);
  text += kKindLetters[static_cast<std::size_t>(action.kind)];
  return text + std::to_string(action.micro_batch);
}

std::string to_text(const std::vector<Action>& actions) {
  std::string text;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (i > 0) text += ' ';
    if (actions[i].overlaps_next && i + 1 < actions.size()) {
      text += "(" + to_text(actions[i]) + ";" + to_text(actions[i + 1]) + ")";
      text += kPairSuffix;
      ++i;
    } else {
      text += to_text(actions[i]);
    }
  }
  return text;
}

std::vector<Action> parse_actions(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<Action> actions;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const std::size_t end = text.find_first_of(kBlanks, at);
    parse_token(text.substr(at, end == std::string_view::npos ? end : end - at), actions);
    at = text.find_first_not_of(kBlanks, end);
  }
  return actions;
}

const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> table = {
      pipeline::one_f_one_b(), pipeline::gpipe(),      pipeline::interleaved(),
      pipeline::looped_bfs(),  pipeline::zb_h1(),      pipeline::zb_h2(),
      pipeline::zb_v(),        pipeline::v_half(),     pipeline::v_min(),
      pipeline::dualpipe(),    pipeline::dualpipe_v(), pipeline::chimera(),
      pipeline::pipedream(),
  };
  return table;
}

const Schedule* find_schedule(std::string_view name) {
  for (const Schedule& schedule : schedules()) {
    if (schedule.name == name) return &schedule;
  }
  return nullptr;
}

}  // namespace headway
