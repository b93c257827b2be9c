#include "sim/plan/job_override.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "sim/core/json_writer.hpp"

namespace headway {
namespace {

// A document as a tree that can be changed: an object's members in order, or a value as JSON text.
struct Member;
struct Tree {
  bool object = false;
  std::string value;
  std::vector<Member> members;

  Tree* find(const std::string& key);
};
struct Member {
  std::string key;
  Tree value;
};

Tree* Tree::find(const std::string& key) {
  for (Member& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Tree tree_of(const JsonNode& node) {
  Tree tree;
  tree.object = node.is_object();
  if (!tree.object) {
    tree.value = node.text();
    return tree;
  }
  for (const std::string& key : node.keys())
    tree.members.push_back({key, tree_of(*node.find(key))});
  return tree;
}

void write(const Tree& tree, JsonWriter& writer) {
  if (!tree.object) {
    writer.raw(tree.value);
    return;
  }
  writer.begin_object();
  for (const auto& [key, member] : tree.members) {
    writer.key(key);
    write(member, writer);
  }
  writer.end_object();
}

JsonNode document(const Tree& tree, const std::string& file) {
  JsonWriter writer(0);
  write(tree, writer);
  return JsonNode::parse_text(writer.text(), file);
}

std::vector<std::string> path_of(const std::string& key) {
  std::vector<std::string> path;
  std::size_t at = 0;
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', at)) {
    path.push_back(key.substr(at, dot - at));
    at = dot + 1;
  }
  path.push_back(key.substr(at));
  return path;
}

// An option's value: JSON where it is JSON, else the bare word.
std::string json_of(const JobOverride& change) {
  try {
    return JsonNode::parse_text(change.value, change.option).text();
  } catch (const InvalidInput&) {
    JsonWriter writer(0);
    writer.value(change.value);
    return writer.text();
  }
}

std::string pointer_of(const JobOverride& change) {
  std::string pointer;
  for (const std::string& key : path_of(change.key)) pointer += "/" + key;
  return pointer;
}

bool covers(const std::string& outer, const std::string& inner) {
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '/');
}

}  // namespace

JsonNode with_overrides(const JsonNode& job, const std::vector<JobOverride>& overrides,
                        Problems& problems) {
  Tree root = tree_of(job);
  for (const JobOverride& change : overrides) {
    const std::vector<std::string> path = path_of(change.key);
    Tree* place = &root;
    for (std::size_t i = 0; i < path.size() && place != nullptr; ++i) {
      if (place->value == "null") *place = Tree{true, "", {}};  // null counts as absent
      if (!place->object) {
        problems.add(change.option, "",
                     "\"" + change.key + "\" leads into " + place->value + ", which is no object");
        place = nullptr;
        break;
      }
      Tree* next = place->find(path[i]);
      if (next == nullptr) {
        place->members.push_back({path[i], Tree{true, "", {}}});
        next = &place->members.back().value;
      }
      place = next;
    }
    if (place != nullptr) *place = tree_of(JsonNode::parse_text(json_of(change), change.option));
  }
  return document(root, job.file());
}

Problem at_origin(const Problem& problem, const JsonNode& job,
                  const std::vector<JobOverride>& overrides) {
  // Problems of other files (a preset, a topology) stay where they are; the last option wins.
  if (problem.file != job.file()) return problem;
  for (auto change = overrides.rbegin(); change != overrides.rend(); ++change) {
    const std::string pointer = pointer_of(*change);
    if (!covers(pointer, problem.pointer)) continue;
    return {change->option, problem.pointer.substr(pointer.size()), problem.message};
  }
  return {problem.file, job.pointer() + problem.pointer, problem.message};
}

JsonNode with_defaults(const JsonNode& node, const JsonNode& defaults) {
  Tree tree = tree_of(node);
  for (const std::string& key : defaults.keys()) {
    if (tree.find(key) == nullptr) tree.members.push_back({key, tree_of(*defaults.find(key))});
  }
  return document(tree, node.file());
}

}  // namespace headway
