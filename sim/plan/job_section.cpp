#include "sim/plan/job_section.hpp"

#include <algorithm>

namespace headway {
namespace {

JsonNode or_empty(std::optional<JsonNode> node, const std::string& file) {
  if (node) return *node;
  return JsonNode::parse_text("{}", file);
}

}  // namespace

JobSection::JobSection(std::string name, const JsonNode& job, std::optional<JsonNode> given,
                       std::optional<JsonNode> framework, Problems& problems,
                       std::map<std::string, Origin>& origins)
    : name_(std::move(name)),
      file_(job.file()),
      base_(job.pointer() + (name_.empty() ? "" : "/" + name_)),
      problems_(&problems),
      given_(or_empty(std::move(given), file_), problems),
      framework_(or_empty(std::move(framework), file_), problems),
      origins_(&origins) {}

std::string JobSection::pointer(std::string_view key) const {
  return base_ + "/" + std::string(key);
}

void JobSection::problem(std::string_view key, std::string message) {
  problems_->add(file_, key.empty() ? base_ : pointer(key), std::move(message));
}

bool JobSection::stated(std::string_view key) const {
  return given_.has(key) || framework_.has(key);
}

bool JobSection::left_open(std::string_view key) const {
  return std::find(open_.begin(), open_.end(), key) != open_.end();
}

void JobSection::check_range(const JsonNode& range) {
  ObjectReader reader(range, *problems_);
  const double low = reader.require_number("min");
  const double high = reader.require_number("max");
  if (reader.has("min") && reader.has("max") && low > high) reader.problem("", "min is above max");
  reader.finish();
}

bool JobSection::is_open(std::string_view key, bool list_is_value) {
  if (!may_be_open_ || !given_.has(key)) return false;
  const JsonNode value = *given_.any(key);
  const bool word = value.is_string() && value.string() == "auto";
  const bool list = value.is_array() && !list_is_value;
  if (!word && !list && !value.is_object()) return false;
  if (value.is_object()) check_range(value);
  if (list && value.elements().empty()) problem(key, "[] leaves nothing to choose from");
  if (!left_open(key)) open_.emplace_back(key);
  return true;
}

ObjectReader* JobSection::source(std::string_view key, bool list_is_value) {
  given_.any(key);  // known, whoever gives it
  framework_.any(key);
  const std::string full = (name_.empty() ? "" : name_ + ".") + std::string(key);
  if (given_.has(key)) {
    (*origins_)[full] = Origin::kGiven;
    return is_open(key, list_is_value) ? nullptr : &given_;
  }
  if (framework_.has(key)) {
    (*origins_)[full] = Origin::kFramework;
    return &framework_;
  }
  origins_->try_emplace(full, Origin::kDefault);
  return nullptr;
}

std::optional<std::int64_t> JobSection::integer(std::string_view key, IntegerRange range,
                                                std::int64_t otherwise) {
  if (ObjectReader* reader = source(key, false)) return reader->integer(key, range);
  if (left_open(key)) return std::nullopt;
  return otherwise;
}

std::optional<bool> JobSection::boolean(std::string_view key, bool otherwise) {
  if (ObjectReader* reader = source(key, false)) return reader->boolean(key);
  if (left_open(key)) return std::nullopt;
  return otherwise;
}

std::optional<std::string> JobSection::choice(std::string_view key,
                                              const std::vector<std::string>& allowed,
                                              const std::string& otherwise) {
  if (ObjectReader* reader = source(key, false)) return reader->choice(key, allowed);
  if (left_open(key)) return std::nullopt;
  return otherwise;
}

std::optional<std::string> JobSection::string(std::string_view key, const std::string& otherwise) {
  if (ObjectReader* reader = source(key, false)) return reader->string(key);
  if (left_open(key)) return std::nullopt;
  return otherwise;
}

std::optional<std::int64_t> JobSection::optional_integer(std::string_view key, IntegerRange range) {
  ObjectReader* reader = source(key, false);
  return reader == nullptr ? std::nullopt : reader->integer(key, range);
}

std::optional<Bytes> JobSection::optional_bytes(std::string_view key) {
  ObjectReader* reader = source(key, false);
  return reader == nullptr ? std::nullopt : reader->bytes(key);
}

std::optional<Time> JobSection::optional_time(std::string_view key) {
  ObjectReader* reader = source(key, false);
  return reader == nullptr ? std::nullopt : reader->time(key);
}

std::optional<std::vector<std::int64_t>> JobSection::optional_integers(std::string_view key,
                                                                       IntegerRange range) {
  ObjectReader* reader = source(key, true);
  return reader == nullptr ? std::nullopt : reader->integers(key, range);
}

std::optional<std::vector<std::string>> JobSection::optional_words(
    std::string_view key, const std::vector<std::string>& allowed) {
  ObjectReader* reader = source(key, true);
  if (reader == nullptr) return std::nullopt;
  auto words = reader->strings(key);
  if (!words) return std::nullopt;
  std::vector<std::string> quoted;
  quoted.reserve(allowed.size());
  for (const std::string& word : allowed) quoted.push_back('"' + word + '"');
  bool right = true;
  for (std::size_t i = 0; i < words->size(); ++i) {
    const std::string& word = (*words)[i];
    if (std::find(allowed.begin(), allowed.end(), word) != allowed.end()) continue;
    std::string message = '"' + word + "\" is not allowed; expected " + any_of(quoted);
    const std::string near = nearest(word, allowed);
    if (!near.empty()) message += "; did you mean \"" + near + "\"?";
    problem(std::string(key) + "/" + std::to_string(i), std::move(message));
    right = false;
  }
  if (!right) return std::nullopt;
  return words;
}

std::optional<JsonNode> JobSection::optional_object(std::string_view key) {
  const bool open_before = std::exchange(may_be_open_, false);  // an object is a value here
  ObjectReader* reader = source(key, true);
  may_be_open_ = open_before;
  return reader == nullptr ? std::nullopt : reader->object(key);
}

std::optional<JsonNode> JobSection::optional_any(std::string_view key) {
  const bool open_before = std::exchange(may_be_open_, false);
  ObjectReader* reader = source(key, true);
  may_be_open_ = open_before;
  return reader == nullptr ? std::nullopt : reader->any(key);
}

void JobSection::finish() {
  given_.finish();
  framework_.finish();
}

}  // namespace headway
