#include "sim/program/program.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "sim/core/error.hpp"
#include "sim/program/buffer_index.hpp"

namespace headway {

std::string_view name(BufferCategory category) {
  switch (category) {
    case BufferCategory::kParameter:
      return "parameter";
    case BufferCategory::kGradient:
      return "gradient";
    case BufferCategory::kOptimizer:
      return "optimizer";
    case BufferCategory::kActivation:
      return "activation";
    case BufferCategory::kCommunication:
      return "communication";
    case BufferCategory::kInput:
      return "input";
  }
  return "";
}

std::string_view name(Cause cause) {
  switch (cause) {
    case Cause::kCompute:
      return "compute";
    case Cause::kTensorParallel:
      return "tp";
    case Cause::kContextParallel:
      return "cp";
    case Cause::kExpertParallel:
      return "ep";
    case Cause::kPipelineParallel:
      return "pp";
    case Cause::kDataParallel:
      return "dp";
    case Cause::kOptimizer:
      return "optimizer";
    case Cause::kHost:
      return "host";
    case Cause::kOther:
      return "other";
  }
  return "";
}

int Program::kind_of(int rank) const {
  const int coordinate = grid.coordinate(rank, "pp");
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const std::vector<int>& stages = kinds[k].stages;
    if (std::find(stages.begin(), stages.end(), coordinate) != stages.end()) {
      return static_cast<int>(k);
    }
  }
  assert(false && "every pipeline coordinate stands in exactly one kind");
  return -1;
}

double Program::expert_load(int rank, int layer) const {
  if (expert_loads.empty()) return 1;
  // Behind the last layer, those of multi-token prediction: as the last one.
  const std::size_t row = std::min(expert_loads.size() - 1, static_cast<std::size_t>(layer));
  const std::vector<double>& loads = expert_loads[row];
  const std::size_t own = loads.size() / static_cast<std::size_t>(grid.axis_size("ep"));
  const auto first = loads.begin() + static_cast<std::ptrdiff_t>(own) * grid.coordinate(rank, "ep");
  return std::accumulate(first, first + static_cast<std::ptrdiff_t>(own), 0.0) /
         static_cast<double>(own);
}

namespace {

// Layers beyond this are a broken file, not a model; analyses keep tables over the layers named.
constexpr int kLayerLimit = 1 << 16;

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string pointer(std::string base, std::size_t index) {
  return std::move(base) + "/" + std::to_string(index);
}

bool is_point_to_point(const Collective& collective) {
  return collective.kind == CollectiveKind::kSend || collective.kind == CollectiveKind::kReceive;
}

// "attention.output of layer 3, micro-batch 7"
std::string describe(const Program& program, BufferRef buffer, int micro_batch) {
  const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
  std::string text = quoted(family.name);
  if (family.per_layer) text += " of layer " + std::to_string(buffer.layer);
  if (family.per_micro_batch) {
    text +=
        (family.per_layer ? ", micro-batch " : " of micro-batch ") + std::to_string(micro_batch);
  }
  return text;
}

// What can be said of each part alone: names, ranges, references.
class StructureCheck {
 public:
  StructureCheck(const Program& program, const std::string& file, Problems& problems)
      : program_(program), file_(file), problems_(problems) {}

  void run() {
    if (program_.streams.empty()) fault("/streams", "there is no stream; the first is \"compute\"");
    names("/streams", program_.streams, [](const std::string& text) { return text; });
    names("/groups", program_.groups, [](const auto& item) { return item.name; });
    names("/buffers", program_.buffers, [](const auto& item) { return item.name; });
    names("/ports", program_.ports, [](const auto& item) { return item.name; });
    names("/templates", program_.templates, [](const auto& item) { return item.name; });
    if (program_.micro_batches < 1) fault("/micro_batches", "expected an integer from 1");
    groups();
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) buffer(b);
    for (std::size_t t = 0; t < program_.templates.size(); ++t) list(t);
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) kind(k);
    coverage();
  }

 private:
  void fault(std::string at, std::string message) {
    problems_.add(file_, std::move(at), std::move(message));
  }
  void in_range(const std::string& at, int index, std::size_t count, const char* what) {
    if (index >= 0 && static_cast<std::size_t>(index) < count) return;
    fault(at, std::to_string(index) + " is no " + what + "; there are " + std::to_string(count));
  }
  void layer_in_range(const std::string& at, int layer) {
    if (layer < -kLayerLimit || layer > kLayerLimit) {
      fault(at, "layer " + std::to_string(layer) + " is out of range");
    }
  }

  // A family without layers is only ever named at layer 0: one buffer, one spelling.
  template <typename Families>
  void layer_in_range(const std::string& at, int layer, const Families& families, int family) {
    layer_in_range(at, layer);
    if (layer == 0 || family < 0 || static_cast<std::size_t>(family) >= families.size()) return;
    const auto& named = families[static_cast<std::size_t>(family)];
    if (!named.per_layer) {
      fault(at, quoted(named.name) + " has no layers; here it is named at layer " +
                    std::to_string(layer));
    }
  }

  template <typename Items, typename NameOf>
  void names(const std::string& at, const Items& items, NameOf name_of) {
    std::map<std::string, std::size_t> seen;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string text = name_of(items[i]);
      if (text.empty()) fault(pointer(at, i), "has no name");
      if (text.find_first_of("[] \t\n") != std::string::npos) {
        fault(pointer(at, i), quoted(text) + " has a bracket or a space in it");
      }
      const auto [other, fresh] = seen.emplace(text, i);
      if (!fresh) {
        fault(pointer(at, i), quoted(text) + " is also the name of " + pointer(at, other->second));
      }
    }
  }

  void groups() {
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      const GroupFamily& family = program_.groups[g];
      if (family.only.empty()) continue;
      if (family.axes.size() != 1) {
        fault(pointer("/groups", g), "\"only\" needs a family along a single axis");
        continue;
      }
      for (const int coordinate : family.only) {
        if (coordinate < 0 || coordinate >= program_.grid.axis_size(family.axes[0])) {
          fault(pointer("/groups", g) + "/only",
                std::to_string(coordinate) + " is no coordinate of " + quoted(family.axes[0]));
        }
      }
    }
  }

  void optional_group(const std::string& at, int group) {
    if (group != -1) in_range(at, group, program_.groups.size(), "group");
  }

  void buffer(std::size_t b) {
    const BufferFamily& family = program_.buffers[b];
    const std::string at = pointer("/buffers", b);
    if (family.rows < 0 || family.columns < 0) fault(at, "a shape is never negative");
    optional_group(at + "/row_group", family.row_group);
    optional_group(at + "/column_group", family.column_group);
    optional_group(at + "/block_group", family.block_group);
    if (family.blocks < 1) fault(at + "/blocks", "expected an integer from 1");
    if (family.most_rows != 0 && family.most_rows < family.rows) {
      fault(at + "/most_rows", "fewer than the rows expected");
    }
    for (std::size_t p = 0; p < family.parts.size(); ++p) {
      const TensorPart& part = family.parts[p];
      const std::string part_at = pointer(at + "/parts", p);
      if (part.sharded_dimension < -1 || part.sharded_dimension > 1) {
        fault(part_at, "the sharded dimension is rows, columns or none");
      }
      optional_group(part_at + "/cross_group", part.cross_group);
      if (part.sharded_dimension >= 0) {
        in_range(part_at + "/group", part.group, program_.groups.size(), "group");
      } else {
        optional_group(part_at + "/group", part.group);
      }
    }
    for (std::size_t m = 0; m < family.mirrors.size(); ++m) {
      reference(pointer(at + "/mirrors", m), family.mirrors[m]);
    }
  }

  void reference(const std::string& at, const BufferRef& buffer) {
    in_range(at, buffer.family, program_.buffers.size(), "buffer");
    layer_in_range(at, buffer.layer, program_.buffers, buffer.family);
  }

  void list(std::size_t t) {
    const Template& list = program_.templates[t];
    const std::string at = pointer("/templates", t) + "/operations";
    names(at, list.operations, [](const auto& item) { return item.name; });
    for (std::size_t o = 0; o < list.operations.size(); ++o) {
      operation(pointer(at, o), list.operations[o], o);
    }
  }

  void operation(const std::string& at, const TemplateOperation& operation, std::size_t index) {
    in_range(at + "/stream", operation.stream, program_.streams.size(), "stream");
    for (std::size_t i = 0; i < operation.joins.size(); ++i) {
      in_range(pointer(at + "/joins", i), operation.joins[i], program_.streams.size(), "stream");
    }
    for (std::size_t i = 0; i < operation.reads.size(); ++i) {
      reference(pointer(at + "/reads", i), operation.reads[i]);
    }
    for (std::size_t i = 0; i < operation.writes.size(); ++i) {
      reference(pointer(at + "/writes", i), operation.writes[i]);
    }
    for (std::size_t i = 0; i < operation.after.size(); ++i) {
      if (operation.after[i] < 0 || static_cast<std::size_t>(operation.after[i]) >= index) {
        fault(pointer(at + "/after", i), "operation " + std::to_string(operation.after[i]) +
                                             " does not come before this one, " +
                                             std::to_string(index));
      }
    }
    port_references(at + "/awaits", operation.awaits);
    port_references(at + "/releases", operation.releases);
    const auto* collective = std::get_if<Collective>(&operation.operation);
    const auto* gemm = std::get_if<Gemm>(&operation.operation);
    if (gemm != nullptr && gemm->runs > 1) {
      in_range(at + "/group", operation.group, program_.groups.size(), "group");
    } else if (collective == nullptr) {
      if (operation.group != -1) {
        fault(at + "/group", "only a collective, or a GEMM of runs, has a group");
      }
    } else if (is_point_to_point(*collective)) {
      message(at, operation, *collective);
    } else {
      in_range(at + "/group", operation.group, program_.groups.size(), "group");
    }
  }

  void port_references(const std::string& at, const std::vector<PortRef>& ports) {
    for (std::size_t i = 0; i < ports.size(); ++i) {
      in_range(pointer(at, i), ports[i].family, program_.ports.size(), "port");
      layer_in_range(pointer(at, i), ports[i].layer, program_.ports, ports[i].family);
    }
  }

  void message(const std::string& at, const TemplateOperation& operation,
               const Collective& collective) {
    const int size = program_.grid.axis_size(operation.peer_axis);
    if (size < 2) {
      fault(at + "/peer_axis", quoted(operation.peer_axis) + " is no axis of two ranks or more");
    } else if (operation.peer_offset % size == 0) {
      fault(at + "/peer_offset", std::to_string(operation.peer_offset) +
                                     " leads back to the rank itself, along an axis of " +
                                     std::to_string(size));
    }
    const bool sends = collective.kind == CollectiveKind::kSend;
    const auto& carried = sends ? operation.reads : operation.writes;
    if (carried.size() != 1) {
      fault(at, std::string("a ") + (sends ? "send reads" : "receive writes") +
                    " the one buffer it carries; here are " + std::to_string(carried.size()));
    }
  }

  void kind(std::size_t k) {
    const RankKind& kind = program_.kinds[k];
    const std::string at = pointer("/kinds", k);
    for (std::size_t i = 0; i < kind.persistent.size(); ++i) {
      reference(pointer(at + "/persistent", i), kind.persistent[i]);
    }
    names(at + "/passes", kind.passes, [](const auto& item) { return item.name; });
    text_form(at + "/passes", kind.passes);
    for (std::size_t p = 0; p < kind.passes.size(); ++p) {
      const std::string pass_at = pointer(at + "/passes", p) + "/steps";
      for (std::size_t s = 0; s < kind.passes[p].steps.size(); ++s) {
        const Step& step = kind.passes[p].steps[s];
        in_range(pointer(pass_at, s), step.template_index, program_.templates.size(), "template");
        layer_in_range(pointer(pass_at, s), step.layer);
      }
    }
    for (std::size_t i = 0; i < kind.order.size(); ++i) {
      in_range(pointer(at + "/order", i), kind.order[i].pass, kind.passes.size(), "pass");
      if (kind.order[i].micro_batch < -1 || kind.order[i].micro_batch >= program_.micro_batches) {
        fault(pointer(at + "/order", i), "there is no micro-batch " +
                                             std::to_string(kind.order[i].micro_batch) + " of " +
                                             std::to_string(program_.micro_batches));
      }
    }
  }

  // An order is written as pass name + micro-batch, so "2F" and "2F1" must not both be passes.
  void text_form(const std::string& at, const std::vector<Pass>& passes) {
    std::set<std::string> all;
    for (const Pass& pass : passes) all.insert(pass.name);
    for (std::size_t p = 0; p < passes.size(); ++p) {
      std::string shorter = passes[p].name;
      while (!shorter.empty() && shorter.back() >= '0' && shorter.back() <= '9') {
        shorter.pop_back();
        if (all.contains(shorter)) {
          fault(pointer(at, p), quoted(passes[p].name) + " could be read as pass " +
                                    quoted(shorter) + " with a micro-batch");
        }
      }
    }
  }

  void coverage() {
    const int coordinates = program_.grid.axis_size("pp");
    std::vector<int> kinds(static_cast<std::size_t>(coordinates), 0);
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) {
      for (const int stage : program_.kinds[k].stages) {
        if (stage < 0 || stage >= coordinates) {
          fault(pointer("/kinds", k) + "/stages", std::to_string(stage) +
                                                      " is no coordinate along \"pp\"; there are " +
                                                      std::to_string(coordinates));
        } else {
          ++kinds[static_cast<std::size_t>(stage)];
        }
      }
    }
    for (std::size_t c = 0; c < kinds.size(); ++c) {
      if (kinds[c] == 0) {
        fault("/kinds",
              "the ranks of pipeline coordinate " + std::to_string(c) + " are in no kind");
      } else if (kinds[c] > 1) {
        fault("/kinds", "the ranks of pipeline coordinate " + std::to_string(c) + " are in " +
                            std::to_string(kinds[c]) + " kinds");
      }
    }
  }

  const Program& program_;
  const std::string& file_;
  Problems& problems_;
};

// A message as both ends name it: from and to are coordinates along the axis, an index of the
// grid's.
struct Message {
  int axis = 0;
  int from = 0, to = 0;
  // Messages along other axes than "pp" stay within one pipeline coordinate; -1 along "pp".
  int pipeline_coordinate = -1;
  int family = 0, layer = 0;
  std::int64_t elements = 0;
  DataType type = DataType::kBf16;
  int micro_batch = 0;
  friend auto operator<=>(const Message&, const Message&) = default;
};

// A collective of a group whose members are of several kinds.
struct Meeting {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::int64_t elements = 0;
  DataType type = DataType::kBf16;
  friend bool operator==(const Meeting&, const Meeting&) = default;
};

// An operation of a pass, for messages.
struct Place {
  int step = 0, operation = 0;
};

// What one pass needs and gives, compiled once and then applied to each of its issues.
struct PassFacts {
  struct Use {
    int buffer = 0;
    Place place;
  };
  std::vector<Use> exposed;  // read before this pass writes it
  std::vector<int> written;
  struct Port {
    PortRef port;  // absolute layer
    bool released = false;
    Place place;
  };
  std::vector<Port> ports;  // in order
  struct Communication {
    Message message;  // without its ends
    int offset = 0;
    bool sends = false;
  };
  std::vector<Communication> messages;
  std::vector<std::pair<int, Meeting>> meetings;  // group, collective
  std::string per_micro_batch;                    // the first thing that needs a micro-batch
};

// What shows only when a kind's order is walked. A fault that repeats from micro-batch to
// micro-batch is reported once. REQUIRES: the structure is sound.
class OrderCheck {
 public:
  OrderCheck(const Program& program, const std::string& file, Problems& problems)
      : program_(program), file_(file), problems_(problems) {}

  void run() {
    for (std::size_t k = 0; k < program_.kinds.size(); ++k) kind(k);
    match_messages();
    match_meetings();
  }

 private:
  struct Origin {
    std::size_t kind = 0, issue = 0;
  };
  struct End {
    Message message;
    bool sends = false;
    Origin origin;
  };

  void fault(std::size_t kind, std::string message) {
    problems_.add(file_, pointer("/kinds", kind) + "/order", std::move(message));
  }
  // "2F17 (issue 57): ..."
  void fault(Origin origin, const std::string& message) {
    const RankKind& kind = program_.kinds[origin.kind];
    const Issue issue = kind.order[origin.issue];
    std::string text = kind.passes[static_cast<std::size_t>(issue.pass)].name;
    if (issue.micro_batch >= 0) text += std::to_string(issue.micro_batch);
    fault(origin.kind, text + " (issue " + std::to_string(origin.issue) + "): " + message);
  }
  // "attention.qkv of layer.forward[3]"
  std::string text(Origin origin, Place place) const {
    const RankKind& kind = program_.kinds[origin.kind];
    const auto pass = static_cast<std::size_t>(kind.order[origin.issue].pass);
    const Step& step = kind.passes[pass].steps[static_cast<std::size_t>(place.step)];
    const Template& list = program_.templates[static_cast<std::size_t>(step.template_index)];
    return list.operations[static_cast<std::size_t>(place.operation)].name + " of " + list.name +
           "[" + std::to_string(step.layer) + "]";
  }

  PassFacts compile(const Pass& pass, BufferIndex& index) const {
    PassFacts facts;
    std::set<int> written, exposed;
    for (std::size_t s = 0; s < pass.steps.size(); ++s) {
      const Step& step = pass.steps[s];
      const Template& list = program_.templates[static_cast<std::size_t>(step.template_index)];
      for (std::size_t o = 0; o < list.operations.size(); ++o) {
        const TemplateOperation& operation = list.operations[o];
        const Place place{static_cast<int>(s), static_cast<int>(o)};
        for (const BufferRef& read : operation.reads) {
          const int buffer = index.number(read, step.layer);
          note_micro_batch(facts, program_.buffers[static_cast<std::size_t>(read.family)]);
          if (!written.contains(buffer) && exposed.insert(buffer).second) {
            facts.exposed.push_back({buffer, place});
          }
        }
        for (const BufferRef& write : operation.writes) {
          const int buffer = index.number(write, step.layer);
          note_micro_batch(facts, program_.buffers[static_cast<std::size_t>(write.family)]);
          if (written.insert(buffer).second) facts.written.push_back(buffer);
        }
        ports(facts, operation, step.layer, place);
        communication(facts, operation, step.layer);
      }
    }
    return facts;
  }

  template <typename Family>
  static void note_micro_batch(PassFacts& facts, const Family& family) {
    if (family.per_micro_batch && facts.per_micro_batch.empty())
      facts.per_micro_batch = family.name;
  }

  void ports(PassFacts& facts, const TemplateOperation& operation, int layer, Place place) const {
    const auto add = [&](const PortRef& port, bool released) {
      const PortFamily& family = program_.ports[static_cast<std::size_t>(port.family)];
      note_micro_batch(facts, family);
      facts.ports.push_back(
          {{port.family, family.per_layer ? port.layer + layer : 0}, released, place});
    };
    for (const PortRef& port : operation.awaits) add(port, false);
    for (const PortRef& port : operation.releases) add(port, true);
  }

  int axis_index(const std::string& axis) const {
    const std::vector<Axis>& axes = program_.grid.axes();
    const auto found = std::find_if(axes.begin(), axes.end(),
                                    [&](const Axis& other) { return other.name == axis; });
    return static_cast<int>(found - axes.begin());
  }

  void communication(PassFacts& facts, const TemplateOperation& operation, int layer) const {
    const auto* collective = std::get_if<Collective>(&operation.operation);
    if (collective == nullptr) return;
    if (!is_point_to_point(*collective)) {
      facts.meetings.push_back(
          {operation.group, {collective->kind, collective->elements, collective->type}});
      return;
    }
    const bool sends = collective->kind == CollectiveKind::kSend;
    const BufferRef carried = sends ? operation.reads[0] : operation.writes[0];
    const BufferFamily& family = program_.buffers[static_cast<std::size_t>(carried.family)];
    Message message;
    message.axis = axis_index(operation.peer_axis);
    message.family = carried.family;
    message.layer = family.per_layer ? carried.layer + layer : 0;
    message.micro_batch = family.per_micro_batch ? 0 : -1;
    message.elements = collective->elements;
    message.type = collective->type;
    facts.messages.push_back({message, operation.peer_offset, sends});
  }

  void kind(std::size_t k) {
    const RankKind& kind = program_.kinds[k];
    BufferIndex index(program_, kind);
    std::vector<PassFacts> facts;
    facts.reserve(kind.passes.size());
    for (const Pass& pass : kind.passes) facts.push_back(compile(pass, index));

    // A buffer with an initial value may be read at once; any other only after its first write.
    std::vector<std::vector<bool>> defined(static_cast<std::size_t>(index.size()));
    for (int b = 0; b < index.size(); ++b) {
      const BufferFamily& family =
          program_.buffers[static_cast<std::size_t>(index.buffer(b).family)];
      const auto copies =
          family.per_micro_batch ? static_cast<std::size_t>(program_.micro_batches) : 1;
      defined[static_cast<std::size_t>(b)].assign(copies,
                                                  family.initial != InitialValue::kUndefined);
    }
    reported_.clear();
    released_.clear();
    for (std::size_t i = 0; i < kind.order.size(); ++i) {
      const Issue issue = kind.order[i];
      const PassFacts& pass = facts[static_cast<std::size_t>(issue.pass)];
      const Origin origin{k, i};
      if (issue.micro_batch < 0 && !pass.per_micro_batch.empty()) {
        if (once(issue.pass, "issue", 0, 0)) {
          fault(origin, "issued without a micro-batch, but there is one " +
                            quoted(pass.per_micro_batch) + " for each");
        }
        continue;
      }
      const auto slot = [&](int buffer) -> std::vector<bool>::reference {
        std::vector<bool>& states = defined[static_cast<std::size_t>(buffer)];
        const bool own = states.size() > 1 && issue.micro_batch > 0;
        return states[own ? static_cast<std::size_t>(issue.micro_batch) : 0];
      };
      for (const PassFacts::Use& use : pass.exposed) {
        if (slot(use.buffer) || !once(issue.pass, "read", use.buffer, 0)) continue;
        fault(origin, text(origin, use.place) + " reads " +
                          describe(program_, index.buffer(use.buffer), issue.micro_batch) +
                          ", which nothing has written");
      }
      for (const int buffer : pass.written) slot(buffer) = true;
      walk_ports(pass, issue, origin);
      walk_communication(kind, pass, issue, origin);
    }
    for (const int stage : kind.stages) coordinate_kinds_[stage] = k;
  }

  bool once(int pass, const char* what, int a, int b) {
    return reported_.insert({pass, what, a, b}).second;
  }

  void walk_ports(const PassFacts& facts, const Issue& issue, Origin origin) {
    for (const PassFacts::Port& port : facts.ports) {
      const PortFamily& family = program_.ports[static_cast<std::size_t>(port.port.family)];
      const int micro_batch = family.per_micro_batch ? issue.micro_batch : -1;
      const auto key = std::make_tuple(port.port.family, port.port.layer, micro_batch);
      const bool wrong = port.released ? !released_.insert(key).second : !released_.contains(key);
      if (!wrong) continue;
      if (!once(issue.pass, port.released ? "release" : "await", port.port.family,
                port.port.layer)) {
        continue;
      }
      std::string which = "port " + quoted(family.name);
      if (family.per_layer) which += " of layer " + std::to_string(port.port.layer);
      if (micro_batch >= 0) which += ", micro-batch " + std::to_string(micro_batch);
      fault(origin,
            text(origin, port.place) +
                (port.released ? " releases " + which + " again"
                               : " awaits " + which + ", which nothing before it releases"));
    }
  }

  void walk_communication(const RankKind& kind, const PassFacts& facts, const Issue& issue,
                          Origin origin) {
    for (const PassFacts::Communication& entry : facts.messages) {
      const Axis& axis = program_.grid.axes()[static_cast<std::size_t>(entry.message.axis)];
      const bool pipeline = axis.name == "pp";
      for (const int stage : kind.stages) {
        for (int own = 0; own < (pipeline ? 1 : axis.size); ++own) {
          Message message = entry.message;
          const int self = pipeline ? stage : own;
          const int peer = ((self + entry.offset) % axis.size + axis.size) % axis.size;
          message.from = entry.sends ? self : peer;
          message.to = entry.sends ? peer : self;
          message.pipeline_coordinate = pipeline ? -1 : stage;
          if (message.micro_batch >= 0) message.micro_batch = issue.micro_batch;
          ends_.push_back({message, entry.sends, origin});
        }
      }
    }
    for (const auto& [group, meeting] : facts.meetings) {
      const GroupFamily& family = program_.groups[static_cast<std::size_t>(group)];
      if (std::find(family.axes.begin(), family.axes.end(), "pp") == family.axes.end()) continue;
      for (const int stage : kind.stages) meetings_[group][stage].push_back(meeting);
    }
  }

  void match_messages() {
    std::stable_sort(ends_.begin(), ends_.end(),
                     [](const End& a, const End& b) { return a.message < b.message; });
    Message reported;  // but for the micro-batch
    reported.axis = -1;
    for (auto first = ends_.begin(); first != ends_.end();) {
      const auto last = std::find_if(first, ends_.end(),
                                     [&](const End& end) { return end.message != first->message; });
      const auto sends = std::count_if(first, last, [](const End& end) { return end.sends; });
      const auto receives = last - first - sends;
      Message alike = first->message;
      alike.micro_batch = 0;
      if (sends != receives && alike != reported) {
        reported = alike;
        report_message(first, last, sends > receives);
      }
      first = last;
    }
  }

  void report_message(std::vector<End>::iterator first, std::vector<End>::iterator last,
                      bool unheard) {
    const Message& message = first->message;
    const auto end = std::find_if(first, last, [&](const End& e) { return e.sends == unheard; });
    const Axis& axis = program_.grid.axes()[static_cast<std::size_t>(message.axis)];
    fault(end->origin,
          std::string(unheard ? "sends " : "receives ") +
              describe(program_, {message.family, message.layer}, message.micro_batch) + " (" +
              std::to_string(message.elements) + " x " + std::string(name(message.type)) +
              ") from " + axis.name + " " + std::to_string(message.from) + " to " + axis.name +
              " " + std::to_string(message.to) + ", but the other end has no such " +
              (unheard ? "receive" : "send"));
  }

  void match_meetings() {
    for (const auto& [group, by_stage] : meetings_) {
      const GroupFamily& family = program_.groups[static_cast<std::size_t>(group)];
      const auto& [first, reference] = *by_stage.begin();
      for (int c = 0; c < program_.grid.axis_size("pp"); ++c) {
        const bool member = family.only.empty() || std::find(family.only.begin(), family.only.end(),
                                                             c) != family.only.end();
        const auto found = by_stage.find(c);
        const std::size_t count = found == by_stage.end() ? 0 : found->second.size();
        const std::size_t own = coordinate_kinds_.at(c);
        const std::string who = "pipeline coordinate " + std::to_string(c);
        if (!member) {
          if (count > 0)
            fault(own, who + " is no member of group " + quoted(family.name) + " it meets");
        } else if (count != reference.size()) {
          fault(own, who + " meets group " + quoted(family.name) + " " + std::to_string(count) +
                         " times, pipeline coordinate " + std::to_string(first) + " " +
                         std::to_string(reference.size()) + " times");
        } else if (found->second != reference) {
          fault(own, who + " meets group " + quoted(family.name) +
                         " in another order or with other sizes than pipeline coordinate " +
                         std::to_string(first));
        }
      }
    }
  }

  const Program& program_;
  const std::string& file_;
  Problems& problems_;
  std::set<std::tuple<int, std::string, int, int>> reported_;  // of the kind being walked
  std::set<std::tuple<int, int, int>> released_;  // likewise: family, layer, micro-batch
  std::vector<End> ends_;
  std::map<int, std::map<int, std::vector<Meeting>>> meetings_;  // by group and pipeline coordinate
  std::map<int, std::size_t> coordinate_kinds_;
};

}  // namespace

void check(const Program& program, const std::string& file) {
  Problems problems;
  StructureCheck(program, file, problems).run();
  problems.throw_if_any();
  OrderCheck(program, file, problems).run();
  problems.throw_if_any();
}

}  // namespace headway
