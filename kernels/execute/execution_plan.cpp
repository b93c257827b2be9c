#include "kernels/execute/execution_plan.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace headway {
namespace {

const Collective* collective_of(const TemplateOperation& operation) {
  return std::get_if<Collective>(&operation.operation);
}

bool is_message(const Collective& collective) {
  return collective.kind == CollectiveKind::kSend || collective.kind == CollectiveKind::kReceive;
}

bool synchronises(const TemplateOperation& operation) {
  const auto* host = std::get_if<HostWork>(&operation.operation);
  return host != nullptr && host->kind == HostKind::kSynchronise;
}

// Lists the operations of a rank with what they wait for.
class RankPlanner {
 public:
  RankPlanner(const Program& program, int rank) : program_(program) {
    plan_.kind = program.kind_of(rank);
    plan_.streams.resize(program.streams.size());
  }

  RankPlan run(std::optional<int> swapped) {
    list_operations();
    if (swapped) {
      const auto first = static_cast<std::size_t>(*swapped);
      std::swap(listed_[first], listed_[first + 1]);
    }
    link();
    await_ports();
    bind_buffers();
    return std::move(plan_);
  }

 private:
  // An operation in the Program's own order, before anything is made of that order.
  struct Listed {
    PlannedOperation planned;
    int own = 0;                // its place in the Program's order
    int first_of_template = 0;  // that of its template's first operation
  };

  const RankKind& kind() const { return program_.kinds[static_cast<std::size_t>(plan_.kind)]; }

  void list_operations() {
    for (std::size_t i = 0; i < kind().order.size(); ++i) {
      const Issue& issue = kind().order[i];
      const Pass& pass = kind().passes[static_cast<std::size_t>(issue.pass)];
      int task = 0;
      for (std::size_t s = 0; s < pass.steps.size(); ++s) {
        const Step& step = pass.steps[s];
        const auto& operations =
            program_.templates[static_cast<std::size_t>(step.template_index)].operations;
        const int first = static_cast<int>(listed_.size());
        for (std::size_t o = 0; o < operations.size(); ++o) {
          Listed listed;
          listed.planned.operation = &operations[o];
          listed.planned.at = {static_cast<int>(i), static_cast<int>(s), static_cast<int>(o)};
          listed.planned.task = task++;
          listed.planned.layer = step.layer;
          listed.planned.micro_batch = issue.micro_batch;
          listed.own = static_cast<int>(listed_.size());
          listed.first_of_template = first;
          listed_.push_back(std::move(listed));
        }
      }
    }
  }

  void link() {
    std::vector<int> place(listed_.size());
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      place[static_cast<std::size_t>(listed_[i].own)] = static_cast<int>(i);
    }
    plan_.operations.reserve(listed_.size());
    for (Listed& listed : listed_) {
      std::vector<int> after;
      const auto first = static_cast<std::size_t>(listed.first_of_template);
      for (const int before : listed.planned.operation->after) {
        after.push_back(place[first + static_cast<std::size_t>(before)]);
      }
      add(std::move(listed.planned), after);
    }
  }

  void add(PlannedOperation planned, const std::vector<int>& after) {
    const TemplateOperation& operation = *planned.operation;
    const int index = static_cast<int>(plan_.operations.size());
    auto& stream = plan_.streams[static_cast<std::size_t>(operation.stream)];
    if (!stream.empty()) planned.waits.push_back({stream.back(), WaitKind::kStream});
    for (const int before : after) planned.waits.push_back({before, WaitKind::kAfter});
    for (std::size_t s = 0; s < plan_.streams.size(); ++s) {
      const bool joined =
          synchronises(operation) || std::find(operation.joins.begin(), operation.joins.end(),
                                               static_cast<int>(s)) != operation.joins.end();
      if (joined && !plan_.streams[s].empty()) {
        planned.waits.push_back({plan_.streams[s].back(), WaitKind::kJoin});
      }
    }
    if (host_stop_ >= 0) planned.waits.push_back({host_stop_, WaitKind::kHost});
    if (operation.host_waits || synchronises(operation)) host_stop_ = index;
    for (const PortRef& port : operation.releases) {
      released_[port_key(port, planned)] = index;
    }
    stream.push_back(index);
    plan_.operations.push_back(std::move(planned));
  }

  using PortKey = std::tuple<int, int, int>;
  PortKey port_key(const PortRef& port, const PlannedOperation& planned) const {
    const PortFamily& family = program_.ports[static_cast<std::size_t>(port.family)];
    return {port.family, family.per_layer ? port.layer + planned.layer : 0,
            family.per_micro_batch ? planned.micro_batch : 0};
  }

  void await_ports() {
    for (PlannedOperation& planned : plan_.operations) {
      for (const PortRef& port : planned.operation->awaits) {
        const auto found = released_.find(port_key(port, planned));
        if (found != released_.end()) planned.waits.push_back({found->second, WaitKind::kPort});
      }
    }
  }

  // The lifetimes of program.hpp, in whatever order the operations stand: what is written without
  // being read is a new allocation, and operands bind to the latest of their buffer. (A test holds
  // this equal to sim/program/lifetime.)
  void bind_buffers() {
    for (const BufferInstance& buffer : lifetimes(program_, kind()).persistent) {
      current_[buffer] = static_cast<int>(plan_.allocations.size());
      plan_.allocations.push_back({buffer, true, 0, -1});
    }
    for (std::size_t o = 0; o < plan_.operations.size(); ++o) {
      PlannedOperation& planned = plan_.operations[o];
      operation_ = static_cast<int>(o);
      const auto& reads = planned.operation->reads;
      for (const BufferRef& read : reads) planned.reads.push_back(bound(read, planned, false));
      for (const BufferRef& write : planned.operation->writes) {
        const bool fresh = std::find(reads.begin(), reads.end(), write) == reads.end();
        planned.writes.push_back(bound(write, planned, fresh));
      }
      std::vector<int> touched = planned.reads;
      touched.insert(touched.end(), planned.writes.begin(), planned.writes.end());
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      for (const int a : touched) ++plan_.allocations[static_cast<std::size_t>(a)].uses;
    }
  }

  int bound(const BufferRef& reference, const PlannedOperation& planned, bool fresh) {
    const BufferInstance buffer =
        instance_of(program_, reference, planned.layer, planned.micro_batch);
    const auto found = current_.find(buffer);
    if (found != current_.end()) {
      const bool persistent = plan_.allocations[static_cast<std::size_t>(found->second)].persistent;
      if (persistent || !fresh) return found->second;
    }
    const int made = static_cast<int>(plan_.allocations.size());
    plan_.allocations.push_back({buffer, false, 0, operation_});
    current_[buffer] = made;
    return made;
  }

  const Program& program_;
  RankPlan plan_;
  std::vector<Listed> listed_;
  int host_stop_ = -1;
  int operation_ = 0;  // whose operands are being bound
  std::map<PortKey, int> released_;
  std::map<BufferInstance, int> current_;
};

// Who meets whom: collectives of a group by their order on each rank, as in NCCL; messages by what
// they carry, the n-th send of it with the n-th receive.
class MeetingPlanner {
 public:
  explicit MeetingPlanner(ExecutionPlan& plan) : plan_(plan), program_(*plan.program) {}

  void run() {
    for (std::size_t r = 0; r < plan_.ranks.size(); ++r) {
      const int rank = static_cast<int>(r);
      std::map<int, int> sequence;
      std::map<std::tuple<int, int, int, int, int>, int> repetitions;
      for (std::size_t o = 0; o < plan_.ranks[r].operations.size(); ++o) {
        PlannedOperation& planned = plan_.ranks[r].operations[o];
        const Collective* collective = collective_of(*planned.operation);
        if (collective == nullptr) continue;
        const Meeting::Member member{rank, static_cast<int>(o)};
        if (is_message(*collective)) {
          const Message message = message_of(*collective, planned, rank);
          const int repetition = repetitions[{message.family, message.layer, message.micro_batch,
                                              message.from, message.to}]++;
          join({2, message.family, message.layer, message.micro_batch, message.from, message.to,
                repetition},
               {message.from, message.to}, member, planned);
          continue;
        }
        const int group = planned.operation->group;
        if (group < 0) {
          join({0, rank, static_cast<int>(o)}, {rank}, member, planned);
        } else {
          const auto members =
              program_.grid.members(program_.groups[static_cast<std::size_t>(group)], rank);
          join({1, group, members.front(), sequence[group]++}, members, member, planned);
        }
      }
    }
  }

 private:
  struct Message {
    int family = 0, layer = 0, micro_batch = 0, from = 0, to = 0;
  };

  Message message_of(const Collective& collective, const PlannedOperation& planned,
                     int rank) const {
    const TemplateOperation& operation = *planned.operation;
    const bool sends = collective.kind == CollectiveKind::kSend;
    const BufferInstance carried =
        instance_of(program_, sends ? operation.reads.front() : operation.writes.front(),
                    planned.layer, planned.micro_batch);
    const int peer = program_.grid.shifted(rank, operation.peer_axis, operation.peer_offset);
    return {carried.family, carried.layer, carried.micro_batch, sends ? rank : peer,
            sends ? peer : rank};
  }

  void join(std::vector<int> key, const std::vector<int>& ranks, Meeting::Member member,
            PlannedOperation& planned) {
    const auto [found, fresh] =
        index_.try_emplace(std::move(key), static_cast<int>(plan_.meetings.size()));
    if (fresh) plan_.meetings.push_back({{}, ranks});
    Meeting& meeting = plan_.meetings[static_cast<std::size_t>(found->second)];
    // Ranks come in order, but the sender of a message goes first.
    const auto* collective = collective_of(*planned.operation);
    if (collective->kind == CollectiveKind::kSend) {
      meeting.members.insert(meeting.members.begin(), member);
    } else {
      meeting.members.push_back(member);
    }
    planned.meeting = found->second;
  }

  ExecutionPlan& plan_;
  const Program& program_;
  std::map<std::vector<int>, int> index_;
};

}  // namespace

ExecutionPlan::ExecutionPlan(const Program& of, std::optional<SwappedOperations> swapped)
    : program(&of) {
  for (int rank = 0; rank < of.grid.size(); ++rank) {
    std::optional<int> first;
    if (swapped && swapped->rank == rank) first = swapped->first;
    ranks.push_back(RankPlanner(of, rank).run(first));
  }
  MeetingPlanner(*this).run();
}

std::string ExecutionPlan::words(int rank, int operation) const {
  const RankPlan& plan = ranks[static_cast<std::size_t>(rank)];
  const PlannedOperation& planned = plan.operations[static_cast<std::size_t>(operation)];
  const RankKind& kind = program->kinds[static_cast<std::size_t>(plan.kind)];
  const Issue& issue = kind.order[static_cast<std::size_t>(planned.at.issue)];
  std::string text = "rank " + std::to_string(rank) + ", " +
                     kind.passes[static_cast<std::size_t>(issue.pass)].name;
  if (issue.micro_batch >= 0) text += std::to_string(issue.micro_batch);
  return text + ", " + planned.operation->name + " (layer " + std::to_string(planned.layer) + ")";
}

}  // namespace headway
