// Deadlock: every parked cursor knows the one thing it waits for, so the cycle is read off.
#include <string>

#include "sim/engine/player.hpp"

namespace headway::engine {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

// Follows the waits from the first cursor that has not finished until they close.
std::vector<Wait> Player::find_deadlock() const {
  std::vector<Wait> chain;
  std::vector<int> place(cursors_.size(), kNoIndex);  // in the chain
  int id = 0;
  while (cursors_[at(id)].state == CursorState::kFinished) ++id;
  while (id != kNoIndex && cursors_[at(id)].state != CursorState::kFinished) {
    if (place[at(id)] != kNoIndex) {
      chain.erase(chain.begin(), chain.begin() + place[at(id)]);
      return chain;
    }
    place[at(id)] = static_cast<int>(chain.size());
    chain.push_back({cursors_[at(id)].device,
                     index_of(compiled_, cursors_[at(id)].device, *cursors_[at(id)].instance), 0,
                     ""});
    id = describe_wait(id, chain.back());
  }
  return chain;
}

// Says what a parked cursor waits for; the cursor that would have to do it, or kNoIndex.
int Player::describe_wait(int id, Wait& wait) const {
  const Cursor& cursor = cursors_[at(id)];
  const Step& step = *cursor.step;
  if (step.kind != StepKind::kHost) {
    wait.task = compiled_.stream_tasks[at(step.first_task)].task;
  }
  if (cursor.state == CursorState::kInActivity) {
    wait.what = "activity " + std::to_string(cursor.waits_for);
    return missing_member(cursor.waits_for);
  }
  if (cursor.waits_for < graph_.ports) {
    wait.what = "port " + std::to_string(cursor.waits_for);
    return releaser(cursor.waits_for);
  }
  const int slot = cursor.waits_for - cursor.slot_base;
  const int device = cursors_[at(id)].device;
  for (int stream = 0; stream < streams_; ++stream) {
    const Cursor& other = cursors_[at(device * streams_ + stream)];
    const StreamSteps& steps = other.by_variant[cursor.instance->variant];
    for (const Step* owner = steps.begin; owner != steps.end; ++owner) {
      if (owner->store_slot != slot) continue;
      if (step.kind == StepKind::kHost) {
        wait.task = compiled_.stream_tasks[at(owner->first_task + owner->task_count - 1)].task;
      }
      wait.what = stream == graph_.streams_per_device ? "host" : "stream " + std::to_string(stream);
      return device * streams_ + stream;
    }
  }
  return kNoIndex;
}

// A stream on which a member of the activity has not arrived.
int Player::missing_member(int activity) const {
  for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
    const Instance& instance = graph_.instances[i];
    for (const Task& task : graph_.templates[at(instance.task_template)].tasks) {
      if (task.activity == kNoIndex ||
          graph_.bound_activities[at(instance.first_activity + task.activity)] != activity) {
        continue;
      }
      const int id = instance.device * streams_ + task.stream;
      const Cursor& cursor = cursors_[at(id)];
      if (cursor.state != CursorState::kInActivity || cursor.waits_for != activity) return id;
    }
  }
  return kNoIndex;
}

int Player::releaser(int port) const {
  for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
    const Instance& instance = graph_.instances[i];
    for (const Task& task : graph_.templates[at(instance.task_template)].tasks) {
      for (const int slot : task.releases) {
        if (graph_.released_ports[at(instance.first_released + slot)] == port) {
          return instance.device * streams_ + task.stream;
        }
      }
    }
  }
  return kNoIndex;
}

}  // namespace headway::engine
