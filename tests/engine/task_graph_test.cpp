#include "sim/engine/task_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two devices, a message from one to the other, and a port each way.
TaskGraph well_formed() {
  TaskGraph graph;
  graph.devices = 2;
  Task work, message;
  work.releases = {0};
  message.after = {0};
  message.activity = 0;
  message.awaits = {0};
  graph.templates = {{{work, message}}};
  graph.instances = {Instance{.device = 0, .first_awaited = 0, .first_released = 0},
                     Instance{.device = 1, .first_awaited = 1, .first_released = 1}};
  graph.ports = 2;
  graph.released_ports = {0, 1};
  graph.awaited_ports = {1, 0};
  graph.bound_activities = {0};
  graph.activities = {Activity{.members = 2, .work = 1, .load_count = 1}};
  graph.loads = {{0, 1}};
  graph.links = {{1e9}};
  return graph;
}

TEST(TaskGraph, CheckFindsNothingWrongInAWellFormedGraph) {
  EXPECT_THAT(check(well_formed()), IsEmpty());
}

TEST(TaskGraph, CheckNamesWhatIsWrongInATemplate) {
  TaskGraph graph = well_formed();
  Task& task = graph.templates[0].tasks[1];
  task.stream = 1;
  task.duration = Time{-1};
  task.host = Time{-1};
  task.cause = 255;
  task.sensitivity = 0;
  task.after = {1};
  task.joins = {1};
  EXPECT_THAT(
      check(graph),
      ElementsAre("template 0 task 1: no such stream", "template 0 task 1: negative duration",
                  "template 0 task 1: negative host time", "template 0 task 1: cause is not 0..254",
                  "template 0 task 1: no such sensitivity",
                  "template 0 task 1: `after` does not point backwards",
                  "template 0 task 1: joins no stream"));
}

TEST(TaskGraph, CheckNamesWhatIsWrongInAnActivity) {
  TaskGraph graph = well_formed();
  graph.links[0].capacity = 0;
  graph.loads = {{0, 1 << 17}, {0, 1}};
  graph.activities[0] = {.members = 0,
                         .latency = Time{-1},
                         .work = -1,
                         .weight = 0,
                         .rate_limit = -1,
                         .load_count = 2,
                         .environment = 8};
  EXPECT_THAT(
      check(graph),
      ElementsAre("link 0: capacity is not positive", "load 0: is not 1..65536",
                  "activity 0: has no members", "activity 0: negative latency",
                  "activity 0: negative work", "activity 0: weight is less than 1",
                  "activity 0: negative rate limit", "activity 0: environment is not a bit 0..7",
                  "activity 0: loads a link twice"));
}

TEST(TaskGraph, CheckWantsAFactorForEachEnvironment) {
  TaskGraph graph = well_formed();
  graph.activities[0].environment = 1;
  graph.slowdowns = {{1 << 20, 1 << 20, 1 << 20}, {1 << 20, 1 << 20, 1 << 20, 1 << 19}};
  EXPECT_THAT(check(graph), ElementsAre("slowdowns 0: has no factor for some environments",
                                        "slowdowns 1: has a factor below 2^20"));
}

TEST(TaskGraph, CheckCountsReleasesAndMembers) {
  TaskGraph graph = well_formed();
  graph.released_ports = {0, 0};
  graph.activities[0].members = 3;
  EXPECT_THAT(check(graph), ElementsAre("port 0: is released by 2 tasks, not one",
                                        "port 1: is released by 0 tasks, not one",
                                        "activity 0: is bound by 2 tasks, not 3"));
}

TEST(TaskGraph, CheckRefusesBindingsOutOfRange) {
  TaskGraph graph = well_formed();
  graph.instances[1].first_awaited = 5;
  graph.instances[1].first_activity = 1;
  graph.activities[0].members = 1;
  EXPECT_THAT(check(graph),
              ElementsAre("instance 1: awaits no port", "instance 1: is bound to no activity"));
}

}  // namespace
}  // namespace headway
