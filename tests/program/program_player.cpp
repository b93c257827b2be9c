#include "tests/program/program_player.hpp"

#include <map>
#include <tuple>

namespace headway {

namespace {

class Player {
 public:
  explicit Player(const Program& program) : program_(program) {}

  PlayedProgram run() {
    for (int rank = 0; rank < program_.grid.size(); ++rank) list(rank);
    // An event is one operation or one meeting; it happens when nothing it waits for is left.
    std::vector<int> left(event_count_, 0);
    std::vector<std::vector<int>> followers(event_count_);
    for (const Operation& operation : operations_) {
      for (const int before : operation.before) {
        const int from = event_[static_cast<std::size_t>(before)];
        followers[static_cast<std::size_t>(from)].push_back(operation.event);
        ++left[static_cast<std::size_t>(operation.event)];
      }
    }
    std::vector<int> ready;
    std::vector<bool> done(event_count_, false);
    for (std::size_t e = 0; e < event_count_; ++e) {
      if (left[e] == 0) ready.push_back(static_cast<int>(e));
    }
    while (!ready.empty()) {
      const auto event = static_cast<std::size_t>(ready.back());
      ready.pop_back();
      done[event] = true;
      for (const int next : followers[event]) {
        if (--left[static_cast<std::size_t>(next)] == 0) ready.push_back(next);
      }
    }
    PlayedProgram played;
    int last_rank = -1;
    for (const Operation& operation : operations_) {
      ++played.operations;
      if (done[static_cast<std::size_t>(operation.event)] || operation.rank == last_rank) continue;
      last_rank = operation.rank;
      played.stuck.push_back(operation.text);
    }
    return played;
  }

 private:
  struct Operation {
    int rank = 0;
    int event = 0;
    std::vector<int> before;  // operations
    std::string text;
  };

  int meeting(const std::string& key) {
    const auto [found, fresh] = meetings_.try_emplace(key, static_cast<int>(event_count_));
    if (fresh) ++event_count_;
    return found->second;
  }

  void list(int rank) {
    const RankKind& kind = program_.kinds[static_cast<std::size_t>(program_.kind_of(rank))];
    std::vector<int> last(program_.streams.size(), -1);
    std::map<std::tuple<int, int, int>, int> released;
    std::map<std::vector<int>, int> met;
    int host = -1;
    for (const Issue& issue : kind.order) {
      const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
      for (const Step& step : pass.steps) {
        const Template& list = program_.templates[static_cast<std::size_t>(step.template_index)];
        const int first = static_cast<int>(operations_.size());
        for (const TemplateOperation& item : list.operations) {
          Operation operation;
          const auto wait = [&](int index) {
            if (index >= 0) operation.before.push_back(index);
          };
          operation.rank = rank;
          operation.text = "rank " + std::to_string(rank) + ", " + pass.name +
                           std::to_string(issue.micro_batch) + ", " + list.name + ": " + item.name;
          auto& stream_last = last[static_cast<std::size_t>(item.stream)];
          wait(stream_last);
          wait(host);
          for (const int after : item.after) wait(first + after);
          for (const int stream : item.joins) wait(last[static_cast<std::size_t>(stream)]);
          const auto key = [&](const PortRef& port) {
            const PortFamily& family = program_.ports[static_cast<std::size_t>(port.family)];
            return std::make_tuple(port.family, family.per_layer ? step.layer + port.layer : 0,
                                   family.per_micro_batch ? issue.micro_batch : -1);
          };
          for (const PortRef& port : item.awaits) wait(released.at(key(port)));
          const int index = static_cast<int>(operations_.size());
          for (const PortRef& port : item.releases) released[key(port)] = index;
          operation.event = event_of(rank, item, step.layer, issue.micro_batch, met);
          stream_last = index;
          if (item.host_waits) host = index;
          event_.push_back(operation.event);
          operations_.push_back(std::move(operation));
        }
      }
    }
  }

  int event_of(int rank, const TemplateOperation& item, int layer, int micro_batch,
               std::map<std::vector<int>, int>& met) {
    const auto* collective = std::get_if<Collective>(&item.operation);
    if (collective == nullptr) return static_cast<int>(event_count_++);
    std::string key;
    if (item.group < 0) {
      const bool sends = collective->kind == CollectiveKind::kSend;
      const int peer = program_.grid.shifted(rank, item.peer_axis, item.peer_offset);
      const BufferRef carried = sends ? item.reads[0] : item.writes[0];
      key = std::to_string(sends ? rank : peer) + ">" + std::to_string(sends ? peer : rank) + ":" +
            std::to_string(carried.family) + "," + std::to_string(carried.layer + layer) + "," +
            std::to_string(micro_batch);
    } else {
      const std::vector<int> members =
          program_.grid.members(program_.groups[static_cast<std::size_t>(item.group)], rank);
      const int count = met[members]++;
      for (const int member : members) key += std::to_string(member) + "+";
      key += "#" + std::to_string(count);
    }
    return meeting(key);
  }

  const Program& program_;
  std::vector<Operation> operations_;
  std::vector<int> event_;  // by operation
  std::size_t event_count_ = 0;
  std::map<std::string, int> meetings_;
};

}  // namespace

PlayedProgram play(const Program& program) { return Player(program).run(); }

}  // namespace headway
