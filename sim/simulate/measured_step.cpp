#include "sim/simulate/measured_step.hpp"

#include <cassert>
#include <map>
#include <tuple>
#include <utility>

namespace headway {
namespace {

class MeasuredLowering {
 public:
  explicit MeasuredLowering(const Program& program) : program_(program) {}

  LoweredStep run(const Timeline& timeline) {
    step_.graph.devices = program_.grid.size();
    step_.graph.streams_per_device = static_cast<int>(program_.streams.size());
    for (int rank = 0; rank < program_.grid.size(); ++rank) add_rank(rank);
    add_prices(timeline);
    return std::move(step_);
  }

 private:
  void add_rank(int rank) {
    const int kind_index = program_.kind_of(rank);
    step_.device_rank.push_back(rank);
    step_.device_kind.push_back(kind_index);
    step_.partition.rank_class.push_back(rank);
    step_.partition.rank_representative.push_back(rank);
    step_.partition.rank_multiplicity.push_back(1);
    const RankKind& kind = program_.kinds[static_cast<std::size_t>(kind_index)];
    const int first_template = static_cast<int>(step_.graph.templates.size());
    for (const Pass& pass : kind.passes) add_template(pass);
    for (std::size_t i = 0; i < kind.order.size(); ++i) {
      const Issue& issue = kind.order[i];
      Instance instance;
      instance.device = rank;
      instance.task_template = first_template + issue.pass;
      instance.label = static_cast<int>(i);
      instance.first_activity = static_cast<int>(step_.graph.bound_activities.size());
      bind_messages(rank, kind.passes[static_cast<std::size_t>(issue.pass)], issue.micro_batch);
      step_.graph.instances.push_back(instance);
      step_.instances.push_back({rank, static_cast<int>(i)});
    }
  }

  const TemplateOperation& operation_of(const TaskOrigin& origin) const {
    return program_.templates[static_cast<std::size_t>(origin.template_index)]
        .operations[static_cast<std::size_t>(origin.operation)];
  }

  void add_template(const Pass& pass) {
    TaskTemplate list;
    std::vector<TaskOrigin> origins;
    int slot = 0;
    for (std::size_t s = 0; s < pass.steps.size(); ++s) {
      const int index = pass.steps[s].template_index;
      const auto& operations = program_.templates[static_cast<std::size_t>(index)].operations;
      for (std::size_t o = 0; o < operations.size(); ++o) {
        origins.push_back({static_cast<int>(s), index, static_cast<int>(o),
                           static_cast<int>(step_.prices.size())});
        OperationPrice price;
        if (operations[o].group >= 0) {
          price.group_size = program_.grid.group_size(
              program_.groups[static_cast<std::size_t>(operations[o].group)]);
        } else if (is_message(operations[o])) {
          price.group_size = 2;
        }
        step_.prices.push_back(price);
        Task task;
        task.stream = operations[o].stream;
        task.label = static_cast<int>(list.tasks.size());
        task.cause = static_cast<int>(operations[o].cause);
        if (is_message(operations[o])) task.activity = slot++;
        list.tasks.push_back(std::move(task));
      }
    }
    step_.graph.templates.push_back(std::move(list));
    step_.origins.push_back(std::move(origins));
  }

  // A send and the receive of the same buffer between the same ranks are one activity.
  void bind_messages(int rank, const Pass& pass, int micro_batch) {
    for (const Step& step : pass.steps) {
      for (const TemplateOperation& operation :
           program_.templates[static_cast<std::size_t>(step.template_index)].operations) {
        if (!is_message(operation)) continue;
        const bool sends = collective_of(operation)->kind == CollectiveKind::kSend;
        const BufferRef& carried = sends ? operation.reads.front() : operation.writes.front();
        const int peer = program_.grid.shifted(rank, operation.peer_axis, operation.peer_offset);
        const auto key = std::tuple(carried.family, carried.layer + step.layer, micro_batch,
                                    sends ? rank : peer, sends ? peer : rank);
        const auto [found, fresh] =
            messages_.try_emplace(key, static_cast<int>(step_.graph.activities.size()));
        if (fresh) step_.graph.activities.emplace_back().members = 2;
        step_.graph.bound_activities.push_back(found->second);
      }
    }
  }

  void add_prices(const Timeline& timeline) {
    std::vector<std::int64_t> plays(step_.prices.size());
    for (const Span& span : timeline.spans) {
      const Instance& instance = step_.graph.instances[static_cast<std::size_t>(span.instance)];
      assert(instance.device == span.device);
      const TaskOrigin& origin = step_.origins[static_cast<std::size_t>(instance.task_template)]
                                              [static_cast<std::size_t>(span.task)];
      const auto price = static_cast<std::size_t>(origin.price);
      step_.prices[price].price.time += span.end - span.start;
      ++plays[price];
    }
    for (std::size_t p = 0; p < plays.size(); ++p) {
      if (plays[p] > 0) step_.prices[p].price.time.picoseconds /= plays[p];
    }
  }

  const Program& program_;
  LoweredStep step_;
  std::map<std::tuple<int, int, int, int, int>, int> messages_;
};

}  // namespace

SimulatedStep measured_step(Program program, Timeline timeline) {
  SimulatedStep step;
  step.program = std::move(program);
  step.lowered = MeasuredLowering(step.program).run(timeline);
  step.timeline = std::move(timeline);
  return step;
}

}  // namespace headway
