#include "sim/formats/resolved_values.hpp"

namespace headway {

ResolvedValues::ResolvedValues(const Job& job) {
  add(JsonNode::parse_text(resolved_job_json(job, 0), "job"), "");
}

void ResolvedValues::add(const JsonNode& node, const std::string& key) {
  if (!node.is_object()) return;
  if (const auto value = node.find("value"); value && node.find("origin")) {
    values_.emplace(key, *value);
    return;
  }
  for (const std::string& name : node.keys())
    add(*node.find(name), key.empty() ? name : key + "." + name);
}

const JsonNode* ResolvedValues::find(const std::string& key) {
  asked_.insert(key);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> ResolvedValues::integer(const std::string& key) {
  const JsonNode* node = find(key);
  if (node == nullptr || !node->is_integer()) return std::nullopt;
  return node->integer();
}

bool ResolvedValues::truth(const std::string& key) {
  const JsonNode* node = find(key);
  return node != nullptr && node->is_boolean() && node->boolean();
}

std::string ResolvedValues::word(const std::string& key) {
  const JsonNode* node = find(key);
  return node != nullptr && node->is_string() ? node->string() : "";
}

std::vector<std::int64_t> ResolvedValues::integers(const std::string& key) {
  const JsonNode* node = find(key);
  return node == nullptr ? std::vector<std::int64_t>{}
                         : node->integers().value_or(std::vector<std::int64_t>{});
}

std::vector<std::string> ResolvedValues::words(const std::string& key) {
  const JsonNode* node = find(key);
  std::vector<std::string> words;
  if (node == nullptr || !node->is_array()) return words;
  for (const JsonNode& element : node->elements()) {
    if (element.is_string()) words.push_back(element.string());
  }
  return words;
}

std::string ResolvedValues::text(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second.text();
}

std::vector<std::string> ResolvedValues::left_over(const std::string& section) const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) {
    if (key.starts_with(section) && !asked_.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace headway
