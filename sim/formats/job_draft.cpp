#include "sim/formats/job_draft.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "sim/core/json_writer.hpp"

namespace headway {
namespace {

// The sections of a job in the order people write them; the empty one holds the job's own values.
constexpr std::string_view kSections[] = {"model", "cluster", "", "software", "plan"};

constexpr std::string_view kModelNeeds[] = {
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"};

template <typename Value>
std::string json_of(const Value& value) {
  return JsonWriter(0).value(value).text();
}

template <typename Value>
std::string list_of(const std::vector<Value>& values) {
  JsonWriter writer(0);
  writer.begin_array(true);
  for (const Value& value : values) writer.value(value);
  return writer.end_array().text();
}

// "plan" of "plan.tp", "" of "precision".
std::string section_of(const std::string& key) {
  const std::size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

bool is_section(std::string_view key) {
  return !key.empty() &&
         std::find(std::begin(kSections), std::end(kSections), key) != std::end(kSections);
}

void write_list(JsonWriter& writer, std::string_view key, const std::vector<std::string>& words) {
  if (words.empty()) return;
  writer.key(key).begin_array();
  for (const std::string& word : words) writer.value(word);
  writer.end_array();
}

// Members of one object, in the order their first values came: dotted keys nest.
struct Member {
  std::string name, json;  // a leaf has json
  std::vector<Member> members;
};

void insert(std::vector<Member>& members, std::string_view path, const std::string& json) {
  const std::size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  auto found = std::find_if(members.begin(), members.end(),
                            [&](const Member& member) { return member.name == name; });
  if (found == members.end()) found = members.insert(found, {name, "", {}});
  if (dot == std::string_view::npos) {
    found->json = json;
  } else {
    insert(found->members, path.substr(dot + 1), json);
  }
}

void write(JsonWriter& writer, const std::vector<Member>& members) {
  for (const Member& member : members) {
    writer.key(member.name);
    if (member.members.empty()) {
      writer.raw(member.json);
    } else {
      writer.begin_object();
      write(writer, member.members);
      writer.end_object();
    }
  }
}

}  // namespace

void JobDraft::put(const std::string& key, std::string json) {
  // A preset's name replaces a model told by its sizes.
  if (is_section(key))
    std::erase_if(values_, [&](const Value& value) { return section_of(value.key) == key; });
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const Value& value) { return value.key == key; });
  if (found != values_.end()) {
    found->json = std::move(json);
  } else {
    values_.push_back({key, std::move(json)});
  }
}

void JobDraft::set(const std::string& key, std::int64_t value) { put(key, json_of(value)); }
void JobDraft::set(const std::string& key, double value) { put(key, json_of(value)); }
void JobDraft::set(const std::string& key, bool value) { put(key, json_of(value)); }
void JobDraft::set(const std::string& key, std::string_view word) { put(key, json_of(word)); }
void JobDraft::set(const std::string& key, const std::vector<std::int64_t>& values) {
  put(key, list_of(values));
}
void JobDraft::set(const std::string& key, const std::vector<std::string>& words) {
  put(key, list_of(words));
}

void JobDraft::set_text(const std::string& key, const std::string& text) {
  try {
    put(key, JsonNode::parse_text(text, key).text());
  } catch (const InvalidInput&) {
    set(key, text);
  }
}

bool JobDraft::has(const std::string& key) const { return !text(key).empty(); }

std::string JobDraft::text(const std::string& key) const {
  for (const Value& value : values_) {
    if (value.key == key) return value.json;
  }
  return "";
}

bool JobDraft::has_any_of(std::string_view section) const {
  return std::any_of(values_.begin(), values_.end(), [&](const Value& value) {
    return value.key == section || section_of(value.key) == section;
  });
}

std::vector<std::string> JobDraft::missing() const {
  std::vector<std::string> keys;
  if (!has_any_of("model")) {
    keys.emplace_back("model");
  } else if (!has("model")) {
    for (const std::string_view name : kModelNeeds) {
      const std::string key = "model." + std::string(name);
      if (!has(key)) keys.push_back(key);
    }
  }
  if (!has("cluster") && !has("cluster.topology")) keys.emplace_back("cluster.topology");
  if (!has("cluster") && !has("cluster.gpus") && !has("cluster.nodes"))
    keys.emplace_back("cluster.gpus");
  if (!has("sequence_length") && !has("sequence_lengths.histogram") && !has("model"))
    keys.emplace_back("sequence_length");
  if (!has("global_batch")) keys.emplace_back("global_batch");
  return keys;
}

std::string JobDraft::json() const {
  std::vector<Member> members;
  for (const std::string_view section : kSections) {
    for (const Value& value : values_) {
      // "model" itself may be a preset's name: it stands with its section, not with the job's
      // values.
      const std::string home = is_section(value.key) ? value.key : section_of(value.key);
      if (home == section) insert(members, value.key, value.json);
    }
  }
  JsonWriter writer(2);
  writer.begin_object();
  write(writer, members);
  write_list(writer, "missing", missing());
  write_list(writer, "not_imported", lost_);
  write_list(writer, "ignored", ignored_);
  writer.end_object();
  return writer.text();
}

std::string lower_case(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

}  // namespace headway
