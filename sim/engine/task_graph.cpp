#include "sim/engine/task_graph.hpp"

#include <algorithm>

namespace headway {
namespace {

constexpr int kLargestCause = 254;
constexpr std::int64_t kLargestLoad = std::int64_t{1} << 16;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool within(int index, std::size_t size) { return index >= 0 && at(index) < size; }

// Collects sentences; each method checks one level of the graph and leaves alone what an earlier
// one has refused.
class Checker {
 public:
  explicit Checker(const TaskGraph& graph) : graph_(graph) {}

  std::vector<std::string> run() {
    if (graph_.devices < 0) add("devices", 0, "is negative");
    if (graph_.streams_per_device < 1) add("streams_per_device", 0, "is less than 1");
    for (std::size_t t = 0; t < graph_.templates.size(); ++t) check_template(static_cast<int>(t));
    check_links();
    check_activities();
    check_slowdowns();
    if (problems_.empty()) check_instances();
    return std::move(problems_);
  }

 private:
  void add(const std::string& what, std::size_t index, const std::string& problem) {
    problems_.push_back(what + " " + std::to_string(index) + ": " + problem);
  }

  void check_template(int index) {
    const auto& tasks = graph_.templates[at(index)].tasks;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      const Task& task = tasks[t];
      const std::string what = "template " + std::to_string(index) + " task";
      if (!within(task.stream, at(graph_.streams_per_device))) add(what, t, "no such stream");
      if (task.duration < Time::zero()) add(what, t, "negative duration");
      if (task.host < Time::zero()) add(what, t, "negative host time");
      if (task.cause < 0 || task.cause > kLargestCause) add(what, t, "cause is not 0..254");
      if (task.activity < kNoIndex) add(what, t, "no such activity slot");
      if (task.sensitivity != kNoIndex && !within(task.sensitivity, graph_.slowdowns.size())) {
        add(what, t, "no such sensitivity");
      }
      for (const int before : task.after) {
        if (!within(before, t)) add(what, t, "`after` does not point backwards");
      }
      for (const int stream : task.joins) {
        if (!within(stream, at(graph_.streams_per_device))) add(what, t, "joins no stream");
      }
      for (const int slot : task.awaits) {
        if (slot < 0) add(what, t, "awaits a negative slot");
      }
      for (const int slot : task.releases) {
        if (slot < 0) add(what, t, "releases a negative slot");
      }
    }
  }

  void check_links() {
    for (std::size_t l = 0; l < graph_.links.size(); ++l) {
      if (!(graph_.links[l].capacity > 0)) add("link", l, "capacity is not positive");
    }
    for (std::size_t l = 0; l < graph_.loads.size(); ++l) {
      const LinkLoad& load = graph_.loads[l];
      if (!within(load.link, graph_.links.size())) add("load", l, "no such link");
      if (load.load < 1 || load.load > kLargestLoad) add("load", l, "is not 1..65536");
    }
  }

  void check_activities() {
    for (std::size_t a = 0; a < graph_.activities.size(); ++a) {
      const Activity& activity = graph_.activities[a];
      if (activity.members < 1) add("activity", a, "has no members");
      if (activity.latency < Time::zero()) add("activity", a, "negative latency");
      if (activity.work < 0) add("activity", a, "negative work");
      if (activity.weight < 1) add("activity", a, "weight is less than 1");
      if (!(activity.rate_limit >= 0)) add("activity", a, "negative rate limit");
      if (activity.environment < kNoIndex || activity.environment >= kEnvironmentBits) {
        add("activity", a, "environment is not a bit 0..7");
      }
      if (activity.load_count < 0 || activity.first_load < 0 ||
          at(activity.first_load) + at(activity.load_count) > graph_.loads.size()) {
        add("activity", a, "its loads are out of range");
        continue;
      }
      if (activity.work > 0 && activity.load_count == 0 && !(activity.rate_limit > 0)) {
        add("activity", a, "has work but neither links nor a rate limit");
      }
      std::vector<int> links;
      links.reserve(at(activity.load_count));
      for (int l = 0; l < activity.load_count; ++l) {
        links.push_back(graph_.loads[at(activity.first_load + l)].link);
      }
      std::sort(links.begin(), links.end());
      if (std::adjacent_find(links.begin(), links.end()) != links.end()) {
        add("activity", a, "loads a link twice");
      }
    }
  }

  void check_slowdowns() {
    std::size_t rows = 1;  // environments that can occur
    for (const Activity& activity : graph_.activities) {
      while (activity.environment >= 0 && activity.environment < kEnvironmentBits &&
             rows < std::size_t{2} << activity.environment) {
        rows *= 2;
      }
    }
    for (std::size_t s = 0; s < graph_.slowdowns.size(); ++s) {
      const auto& row = graph_.slowdowns[s];
      if (row.size() < rows) add("slowdowns", s, "has no factor for some environments");
      for (const std::int64_t factor : row) {
        if (factor < kNoSlowdown) add("slowdowns", s, "has a factor below 2^20");
      }
    }
  }

  void check_instances() {
    std::vector<int> released(at(graph_.ports)), members(graph_.activities.size());
    for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
      const Instance& instance = graph_.instances[i];
      if (!within(instance.device, at(graph_.devices))) {
        add("instance", i, "no such device");
        continue;
      }
      if (!within(instance.task_template, graph_.templates.size())) {
        add("instance", i, "no such template");
        continue;
      }
      for (const Task& task : graph_.templates[at(instance.task_template)].tasks) {
        check_bindings(i, instance, task, released, members);
      }
    }
    for (std::size_t p = 0; p < released.size(); ++p) {
      if (released[p] != 1) {
        add("port", p, "is released by " + std::to_string(released[p]) + " tasks, not one");
      }
    }
    for (std::size_t a = 0; a < members.size(); ++a) {
      if (members[a] != graph_.activities[a].members) {
        add("activity", a,
            "is bound by " + std::to_string(members[a]) + " tasks, not " +
                std::to_string(graph_.activities[a].members));
      }
    }
  }

  void check_bindings(std::size_t i, const Instance& instance, const Task& task,
                      std::vector<int>& released, std::vector<int>& members) {
    for (const int slot : task.awaits) {
      const int place = instance.first_awaited + slot;
      if (!within(place, graph_.awaited_ports.size()) ||
          !within(graph_.awaited_ports[at(place)], at(graph_.ports))) {
        add("instance", i, "awaits no port");
      }
    }
    for (const int slot : task.releases) {
      const int place = instance.first_released + slot;
      if (!within(place, graph_.released_ports.size()) ||
          !within(graph_.released_ports[at(place)], at(graph_.ports))) {
        add("instance", i, "releases no port");
      } else {
        ++released[at(graph_.released_ports[at(place)])];
      }
    }
    if (task.activity == kNoIndex) return;
    const int place = instance.first_activity + task.activity;
    if (!within(place, graph_.bound_activities.size()) ||
        !within(graph_.bound_activities[at(place)], graph_.activities.size())) {
      add("instance", i, "is bound to no activity");
    } else {
      ++members[at(graph_.bound_activities[at(place)])];
    }
  }

  const TaskGraph& graph_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> check(const TaskGraph& graph) { return Checker(graph).run(); }

}  // namespace headway
