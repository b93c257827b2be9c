#include "sim/simulate/lowering.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "sim/core/counter_bits.hpp"
#include "sim/simulate/encounters.hpp"
#include "sim/simulate/operation_pricer.hpp"
#include "sim/simulate/overlap_marks.hpp"

namespace headway {

namespace {

// The environment bit that a collective beside compute sets on its devices.
constexpr int kCollectiveEnvironment = 0;

// CPU time of launching a captured graph of 80 small kernels (CUDA.jl's manual, "Graphs": 10 steps
// of a Runge-Kutta method, 3.5 us).
constexpr double kGraphLaunchUs = 3.5;

// Rows of TaskGraph::slowdowns.
constexpr int kComputeBound = 0;
constexpr int kMemoryBound = 1;

// Slowdown factors are in 2^-20.
std::int64_t slowdown(double factor) { return std::llround(std::max(1.0, factor) * 1048576.0); }

// Whether a pass is a forward action of a stage: "2F", "2F_first".
bool is_forward(const Pass& pass) {
  const std::size_t letter = pass.name.find_first_not_of("0123456789");
  return pass.stage >= 0 && letter != std::string::npos && pass.name[letter] == 'F';
}

// What autograd runs: work of a backward pass, but for what of the forward pass runs in it again,
// which the framework issues as it did the first time.
bool is_of_gradients(const Operation& operation) {
  if (const auto* gemm = std::get_if<Gemm>(&operation)) return gemm->role != GemmRole::kForward;
  if (const auto* gemm = std::get_if<GroupedGemm>(&operation)) {
    return gemm->role != GemmRole::kForward;
  }
  const auto* attention = std::get_if<Attention>(&operation);
  return attention != nullptr && attention->backward;
}

bool is_multiplication(const Operation& operation) {
  return std::holds_alternative<Gemm>(operation) ||
         std::holds_alternative<GroupedGemm>(operation) ||
         std::holds_alternative<Attention>(operation);
}

bool runs_forward_again(const Template& of, const Operation& operation) {
  if (is_multiplication(operation)) return !is_of_gradients(operation);
  bool any = false;
  for (const TemplateOperation& each : of.operations) {
    if (is_of_gradients(each.operation)) return false;
    any = any || is_multiplication(each.operation);
  }
  return any;
}

// Adds a job's ranks, groups and loads; ranks and groups of different jobs are never alike.
void append(FoldingStructure& together, const FoldingStructure& job, std::size_t number) {
  const int first_rank = static_cast<int>(together.rank_colours.size());
  const int first_member = static_cast<int>(together.members.size());
  const int first_load = static_cast<int>(together.loads.size());
  const std::uint64_t own = static_cast<std::uint64_t>(number) * kCounterGamma;
  for (const std::uint64_t colour : job.rank_colours) together.rank_colours.push_back(colour + own);
  for (const int member : job.members) together.members.push_back(first_rank + member);
  together.loads.insert(together.loads.end(), job.loads.begin(), job.loads.end());
  for (FoldingStructure::Group group : job.groups) {
    group.colour += own;
    group.first_member += first_member;
    group.first_load += first_load;
    together.groups.push_back(group);
  }
}

// One job's part of a partition of several. Classes are numbered by their first member and jobs
// have none in common, so a job's classes stand together.
Partition part_of(const Partition& whole, int first_rank, std::size_t ranks, int first_group,
                  std::size_t groups) {
  const auto part = [](const std::vector<int>& classes, const std::vector<int>& representatives,
                       int first, std::size_t count, std::vector<int>& own_classes,
                       std::vector<int>& own_representatives) {
    if (count == 0) return std::pair{0, 0};
    const auto begin = classes.begin() + first, end = begin + static_cast<std::ptrdiff_t>(count);
    const int base = *begin, last = *std::max_element(begin, end);
    for (auto at = begin; at != end; ++at) own_classes.push_back(*at - base);
    for (int c = base; c <= last; ++c) {
      own_representatives.push_back(representatives[static_cast<std::size_t>(c)] - first);
    }
    return std::pair{base, last + 1};
  };
  Partition own;
  const auto [begin, end] = part(whole.rank_class, whole.rank_representative, first_rank, ranks,
                                 own.rank_class, own.rank_representative);
  part(whole.group_class, whole.group_representative, first_group, groups, own.group_class,
       own.group_representative);
  own.rank_multiplicity.assign(whole.rank_multiplicity.begin() + begin,
                               whole.rank_multiplicity.begin() + end);
  own.link_class = whole.link_class;
  own.link_representative = whole.link_representative;
  return own;
}

class Lowering {
 public:
  Lowering(const LoweringInput& input, NetworkLinks& links)
      : input_(input),
        program_(input.program),
        links_(links),
        encounters_(input.program, input.topology, input.software, input.machine, links,
                    input.first_gpu),
        own_prices_(input.prices == nullptr ? std::make_unique<PriceBook>(input.profile) : nullptr),
        pricer_(input.program, own_prices_ ? *own_prices_ : *input.prices, input.topology,
                input.software, encounters_) {}

  void add_demand(std::vector<double>& demand) {
    encounters_.add_demand([this](std::size_t group) { return pricer_.fastest(group); }, demand);
  }
  void renumber_links(const std::vector<int>& numbers) { encounters_.renumber_links(numbers); }
  const FoldingStructure& structure() const { return encounters_.structure(); }

  // `partition`: of this job's ranks and groups; links as all jobs number them.
  LoweredStep run(Partition partition) {
    step_.partition = std::move(partition);
    find_slowing_streams();
    build_devices();
    build_links();
    build_instances();
    build_slowdowns();
    step_.prices = pricer_.prices();
    return std::move(step_);
  }

 private:
  // -- Devices and links
  // -----------------------------------------------------------------------------

  void build_devices() {
    step_.device_rank = step_.partition.rank_representative;
    for (const int rank : step_.device_rank) {
      step_.device_kind.push_back(encounters_.kind_of(rank));
    }
    step_.graph.devices = static_cast<int>(step_.device_rank.size());
    step_.graph.host_cause = static_cast<int>(Cause::kHost);
    step_.graph.streams_per_device = static_cast<int>(program_.streams.size());
    const std::size_t group_classes = step_.partition.group_representative.size();
    distinct_classes_.resize(group_classes);
    for (std::size_t g = 0; g < group_classes; ++g) {
      std::set<int> classes;
      const auto& group =
          encounters_.structure()
              .groups[static_cast<std::size_t>(step_.partition.group_representative[g])];
      for (int i = 0; i < group.member_count; ++i) {
        const int member =
            encounters_.structure().members[static_cast<std::size_t>(group.first_member + i)];
        classes.insert(step_.partition.rank_class[static_cast<std::size_t>(member)]);
      }
      distinct_classes_[g] = static_cast<int>(classes.size());
    }
  }

  // The quotient network: what each group class puts on one link of each link class.
  void build_links() {
    const Partition& partition = step_.partition;
    const std::size_t link_classes = partition.link_representative.size();
    std::vector<std::map<int, std::int64_t>> loads(partition.group_representative.size());
    for (std::size_t g = 0; g < encounters_.structure().groups.size(); ++g) {
      const auto& group = encounters_.structure().groups[g];
      for (int i = 0; i < group.load_count; ++i) {
        const auto& load =
            encounters_.structure().loads[static_cast<std::size_t>(group.first_load + i)];
        const int link_class = partition.link_class[static_cast<std::size_t>(load.link)];
        if (partition.link_representative[static_cast<std::size_t>(link_class)] != load.link)
          continue;
        loads[static_cast<std::size_t>(partition.group_class[g])][link_class] += load.load;
      }
    }
    for (std::size_t l = 0; l < link_classes; ++l) {
      const auto first = static_cast<std::size_t>(partition.link_representative[l]);
      step_.graph.links.push_back({links_.capacities[first] * static_cast<double>(kNominalLoad)});
    }
    group_loads_.resize(loads.size());
    for (std::size_t g = 0; g < loads.size(); ++g) {
      group_loads_[g].first = static_cast<int>(step_.graph.loads.size());
      for (const auto& [link, load] : loads[g]) step_.graph.loads.push_back({link, load});
      group_loads_[g].count = static_cast<int>(step_.graph.loads.size()) - group_loads_[g].first;
    }
  }

  // -- Instances
  // -------------------------------------------------------------------------------------

  // A pass of a device, ready to be issued: its task template and what its instances must bind.
  struct PassBinding {
    int task_template = 0;
    // A task that is a member of activities: one for each time its pass is issued.
    struct Slot {
      int exchange = 0;      // what it takes part in
      bool message = false;  // matched by micro-batch; a collective by its order in the group
      Activity activity;
    };
    std::vector<Slot> slots;
    std::vector<int> awaited, released;  // rows of ports, by slot
    OverlapMarks::Events events;
  };

  void build_instances() {
    std::size_t issues = 0;
    for (const int kind : step_.device_kind) {
      issues += program_.kinds[static_cast<std::size_t>(kind)].order.size();
    }
    step_.graph.instances.reserve(issues);
    step_.instances.reserve(issues);
    step_.graph.bound_activities.reserve(issues);
    step_.graph.activities.reserve(issues / 2);
    issued_.resize(static_cast<std::size_t>(step_.graph.devices));
    OverlapMarks marks(program_.streams.size());
    for (int d = 0; d < step_.graph.devices; ++d) {
      const RankKind& kind =
          program_.kinds[static_cast<std::size_t>(step_.device_kind[static_cast<std::size_t>(d)])];
      std::vector<PassBinding> bindings;
      bindings.reserve(kind.passes.size());
      for (const Pass& pass : kind.passes) bindings.push_back(bind_pass(pass, d));
      marks.begin_device();
      for (std::size_t i = 0; i < kind.order.size(); ++i) {
        const Issue& issue = kind.order[i];
        const PassBinding& binding = bindings[static_cast<std::size_t>(issue.pass)];
        Instance& instance = add_instance(d, static_cast<int>(i), issue, binding);
        instance.moves_with_clock =
            marks.issue(binding.events, step_.graph.awaited_ports.data() + instance.first_awaited,
                        step_.graph.released_ports.data() + instance.first_released);
      }
    }
  }

  // The tasks of a pass depend on its templates and on the prices of its class: equal ones are
  // shared.
  PassBinding bind_pass(const Pass& pass, int device) {
    PassBinding binding;
    const int rank = step_.device_rank[static_cast<std::size_t>(device)];
    const bool backward = !is_forward(pass);
    std::vector<int> key{backward ? 1 : 0};
    std::vector<TaskOrigin> origins;
    std::vector<bool> as_activity;
    for (std::size_t s = 0; s < pass.steps.size(); ++s) {
      const Step& step = pass.steps[s];
      const Template& one = program_.templates[static_cast<std::size_t>(step.template_index)];
      key.push_back(step.template_index);
      for (std::size_t o = 0; o < one.operations.size(); ++o) {
        const TemplateOperation& operation = one.operations[o];
        const int price = pricer_.index(operation, rank, step.layer);
        const bool activity = needs_activity(operation, rank);
        origins.push_back({static_cast<int>(s), step.template_index, static_cast<int>(o), price});
        as_activity.push_back(activity);
        key.push_back(price * 2 + (activity ? 1 : 0));
        if (activity) binding.slots.push_back(make_slot(operation, step, rank, price));
        const std::size_t first_awaited = binding.awaited.size();
        const std::size_t first_released = binding.released.size();
        for (const PortRef& port : operation.awaits)
          binding.awaited.push_back(port_row(device, port, step.layer));
        for (const PortRef& port : operation.releases)
          binding.released.push_back(port_row(device, port, step.layer));
        note_overlap(operation, rank, first_awaited, first_released, binding);
      }
    }
    const auto [found, is_new] =
        task_templates_.try_emplace(key, static_cast<int>(step_.graph.templates.size()));
    binding.task_template = found->second;
    if (is_new) {
      step_.graph.templates.push_back(make_template(origins, as_activity, backward));
      step_.origins.push_back(std::move(origins));
    }
    return binding;
  }

  bool needs_activity(const TemplateOperation& operation, int rank) {
    const int index = encounters_.role_index(operation);
    if (index == kNoIndex) return false;
    const Role& mine = encounters_.role(rank, index);
    if (mine.group == kNoIndex) return false;
    const auto group =
        static_cast<std::size_t>(step_.partition.group_class[static_cast<std::size_t>(mine.group)]);
    if (distinct_classes_[group] > 1 || is_message(operation)) return true;
    return group_loads_[group].count > 0 || sets_environment(operation, rank);
  }

  bool slows_compute(const TemplateOperation& operation) const {
    if (operation.stream == 0 || collective_of(operation) == nullptr || is_message(operation)) {
      return false;
    }
    return operation.cause == Cause::kDataParallel || operation.cause == Cause::kExpertParallel ||
           input_.profile.core_communicates;
  }
  // Collectives beside compute hold multiprocessors and memory bandwidth.
  bool sets_environment(const TemplateOperation& operation, int rank) {
    if (!slows_compute(operation)) return false;
    const int index = encounters_.role_index(operation);
    return encounters_.role(rank, index).placement.ranks > 1;
  }
  void find_slowing_streams() {
    std::set<int> sensitive;
    for (const Template& one : program_.templates) {
      for (const TemplateOperation& operation : one.operations) {
        if (slows_compute(operation)) slowing_streams_.insert(operation.stream);
        if (operation.stream != 0 && sensitivity(operation) != kNoIndex)
          sensitive.insert(operation.stream);
      }
    }
    // What can be slowed elsewhere may begin before the compute stream has waited: a port tells
    // it nothing. The one stream that slows waits for itself.
    if (slowing_streams_.size() == 1) sensitive.erase(*slowing_streams_.begin());
    ports_tell_ = sensitive.empty();
  }

  void note_overlap(const TemplateOperation& operation, int rank, std::size_t first_awaited,
                    std::size_t first_released, PassBinding& binding) {
    using Kind = OverlapMarks::Kind;
    OverlapMarks::Events& events = binding.events;
    const bool slowing = slowing_streams_.contains(operation.stream);
    if (operation.stream == 0) {
      for (const int stream : operation.joins) {
        if (slowing_streams_.contains(stream)) events.push_back({Kind::kJoins, stream, 0});
      }
      for (std::size_t a = first_awaited; ports_tell_ && a < binding.awaited.size(); ++a)
        events.push_back({Kind::kAwaits, 0, static_cast<int>(a)});
    }
    if (sets_environment(operation, rank)) events.push_back({Kind::kIssues, operation.stream, 0});
    for (std::size_t r = first_released; slowing && r < binding.released.size(); ++r)
      events.push_back({Kind::kReleases, operation.stream, static_cast<int>(r)});
  }

  static bool leads_graph(const Template& list, const TemplateOperation& operation) {
    const auto first = std::find_if(
        list.operations.begin(), list.operations.end(),
        [&](const TemplateOperation& other) { return other.graph == operation.graph; });
    return &*first == &operation;
  }

  // Whether a kernel is launched from within the call that launched the one before it: hops of a
  // product taken apart, beside the messages that carry its parts, and conversions to 8 bits
  // (Transformer Engine issues both from C++, one call for a whole product).
  static bool in_one_call(const Template& list, const TemplateOperation& operation) {
    if (const auto* kernel = std::get_if<Kernel>(&operation.operation)) {
      if (kernel->kind == KernelKind::kQuantise || kernel->kind == KernelKind::kAmax ||
          kernel->kind == KernelKind::kTranspose) {
        return true;
      }
    }
    return is_hop(list, operation) && &operation != &list.operations.front() &&
           is_hop(list, *(&operation - 1));
  }
  static bool is_hop(const Template& list, const TemplateOperation& operation) {
    if (std::holds_alternative<Gemm>(operation.operation)) return operation.group >= 0;
    const auto shifts = [](const TemplateOperation& other) {
      const Collective* collective = collective_of(other);
      return collective != nullptr && collective->kind == CollectiveKind::kShift &&
             other.cause == Cause::kTensorParallel;
    };
    // What arrives is added to what is there.
    const bool sums = std::holds_alternative<Kernel>(operation.operation) &&
                      std::any_of(operation.after.begin(), operation.after.end(), [&](int before) {
                        return shifts(list.operations[static_cast<std::size_t>(before)]);
                      });
    return sums || shifts(operation);
  }

  // A graph costs its launch, and what puts its input where it was captured: a copy, issued as any
  // other kernel.
  Time host_time(const Template& list, const TemplateOperation& operation,
                 const OperationPrice& price, bool backward) const {
    const Software& software = input_.software;
    double factor = 1;
    if (!software.host_tp_jitter.empty()) {
      const int tp = std::max(1, program_.grid.axis_size("tp"));
      const auto index = std::min<std::size_t>(
          static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(tp))) - 1,
          software.host_tp_jitter.size() - 1);
      factor = software.host_tp_jitter[index];
    }
    if (const auto* host = std::get_if<HostWork>(&operation.operation)) {
      if (host->kind == HostKind::kMicroBatch) return software.host_per_micro_batch;
      if (host->kind == HostKind::kStep) return software.host_per_step;
      return Time::zero();
    }
    const Time each =
        backward ? software.host_per_kernel_backward : software.host_per_kernel_forward;
    if (software.launch == Launch::kCudaGraph && !software.graph_scope.any()) return Time::zero();
    if (operation.graph >= 0) {
      if (!leads_graph(list, operation)) return Time::zero();
      const Time launch = each + Time::from_microseconds(kGraphLaunchUs);
      return Time::from_seconds(launch.seconds() * factor);
    }
    if (in_one_call(list, operation)) {
      constexpr double kLaunchUs = 5;  // of a kernel alone, from C++: 4 to 6 us
      return std::min(each, Time::from_microseconds(kLaunchUs));
    }
    return Time::from_seconds(each.seconds() * price.launches * factor);
  }

  TaskTemplate make_template(const std::vector<TaskOrigin>& origins,
                             const std::vector<bool>& as_activity, bool backward) const {
    TaskTemplate result;
    result.tasks.reserve(origins.size());
    int first_of_step = 0;
    int step = 0;
    int activity_slot = 0, awaited_slot = 0, released_slot = 0;
    for (std::size_t i = 0; i < origins.size(); ++i) {
      const TaskOrigin& origin = origins[i];
      if (origin.step != step) {
        step = origin.step;
        first_of_step = static_cast<int>(i);
      }
      const Template& list = program_.templates[static_cast<std::size_t>(origin.template_index)];
      const TemplateOperation& operation =
          list.operations[static_cast<std::size_t>(origin.operation)];
      const OperationPrice& price = pricer_.price(origin.price);
      const bool autograd = backward && !runs_forward_again(list, operation.operation);
      Task task;
      task.stream = operation.stream;
      task.duration = price.price.time;
      task.host = host_time(list, operation, price, autograd);
      task.host_waits = host_waits(operation);
      task.label = static_cast<int>(i);
      task.cause = static_cast<int>(operation.cause);
      task.sensitivity = sensitivity(operation);
      for (const int before : operation.after) task.after.push_back(first_of_step + before);
      task.joins = operation.joins;
      for (std::size_t a = 0; a < operation.awaits.size(); ++a)
        task.awaits.push_back(awaited_slot++);
      for (std::size_t a = 0; a < operation.releases.size(); ++a) {
        task.releases.push_back(released_slot++);
      }
      if (as_activity[i]) task.activity = activity_slot++;
      result.tasks.push_back(std::move(task));
    }
    return result;
  }

  bool host_waits(const TemplateOperation& operation) const {
    const Software& software = input_.software;
    const auto* kernel = std::get_if<Kernel>(&operation.operation);
    if (kernel != nullptr && kernel->on_host) return true;  // the host itself is at work
    if (operation.host_waits || (software.launch_blocking && operation.stream == 0)) return true;
    const auto* host = std::get_if<HostWork>(&operation.operation);
    return software.data_synchronises && host != nullptr && host->kind == HostKind::kMicroBatch;
  }

  static int sensitivity(const TemplateOperation& operation) {
    if (HostCost::prices(operation.operation)) return kNoIndex;
    if (is_multiplication(operation.operation)) return kComputeBound;
    const bool memory = std::holds_alternative<Kernel>(operation.operation) ||
                        std::holds_alternative<Routing>(operation.operation);
    return memory ? kMemoryBound : kNoIndex;
  }

  Instance& add_instance(int device, int issue_index, const Issue& issue,
                         const PassBinding& binding) {
    TaskGraph& graph = step_.graph;
    Instance instance;
    instance.device = device;
    instance.task_template = binding.task_template;
    instance.label = issue_index;
    instance.first_awaited = static_cast<int>(graph.awaited_ports.size());
    for (const int row : binding.awaited) {
      graph.awaited_ports.push_back(port_id(row, issue.micro_batch));
    }
    instance.first_released = static_cast<int>(graph.released_ports.size());
    for (const int row : binding.released) {
      graph.released_ports.push_back(port_id(row, issue.micro_batch));
    }
    instance.first_activity = static_cast<int>(graph.bound_activities.size());
    for (const PassBinding::Slot& slot : binding.slots) {
      graph.bound_activities.push_back(activity_id(device, issue.micro_batch, slot));
    }
    step_.instances.push_back({device, issue_index});
    return graph.instances.emplace_back(instance);
  }

  // The ports of a family and layer on a device.
  int port_row(int device, const PortRef& port, int layer) {
    const PortFamily& family = program_.ports[static_cast<std::size_t>(port.family)];
    const auto key = std::tuple(device, port.family, family.per_layer ? port.layer + layer : 0);
    const auto [found, is_new] = port_rows_.try_emplace(key, static_cast<int>(ports_.size()));
    if (is_new) ports_.push_back({family.per_micro_batch, {}});
    return found->second;
  }

  int port_id(int row, int micro_batch) {
    PortRow& ports = ports_[static_cast<std::size_t>(row)];
    const auto index = static_cast<std::size_t>(ports.per_micro_batch ? micro_batch + 1 : 0);
    if (index >= ports.ids.size()) ports.ids.resize(index + 1, kNoIndex);
    int& id = ports.ids[index];
    if (id == kNoIndex) id = step_.graph.ports++;
    return id;
  }

  // Messages of a group class are told apart by what they carry; its collectives are one sequence.
  PassBinding::Slot make_slot(const TemplateOperation& operation, const Step& step, int rank,
                              int price) {
    const Role& mine = encounters_.role(rank, encounters_.role_index(operation));
    const int group_class = step_.partition.group_class[static_cast<std::size_t>(mine.group)];
    PassBinding::Slot slot;
    slot.message = is_message(operation);
    slot.activity = make_activity(operation, rank, group_class, price);
    std::tuple<int, int, int> what{group_class, kNoIndex, 0};
    if (slot.message) {
      const BufferRef& carried =
          is_send(operation) ? operation.reads.front() : operation.writes.front();
      what = {group_class, carried.family, carried.layer + step.layer};
    }
    slot.exchange = exchanges_.try_emplace(what, static_cast<int>(exchanges_.size())).first->second;
    return slot;
  }

  // The activity that a slot is a member of this time; made by whichever member comes first.
  int activity_id(int device, int micro_batch, const PassBinding::Slot& slot) {
    const auto exchange = static_cast<std::size_t>(slot.exchange);
    std::size_t occurrence = static_cast<std::size_t>(micro_batch + 1);
    if (!slot.message) {
      // Collectives of a group match by their order, as in NCCL.
      std::vector<std::size_t>& issued = issued_[static_cast<std::size_t>(device)];
      if (issued.size() <= exchange) issued.resize(exchange + 1, 0);
      occurrence = issued[exchange]++;
    }
    if (activities_.size() <= exchange) activities_.resize(exchange + 1);
    std::vector<int>& ids = activities_[exchange];
    if (ids.size() <= occurrence) ids.resize(occurrence + 1, kNoIndex);
    if (ids[occurrence] == kNoIndex) {
      ids[occurrence] = static_cast<int>(step_.graph.activities.size());
      step_.graph.activities.push_back(slot.activity);
    }
    return ids[occurrence];
  }

  Activity make_activity(const TemplateOperation& operation, int rank, int group_class,
                         int price_slot) {
    const OperationPrice& price = pricer_.price(price_slot);
    const auto group = static_cast<std::size_t>(group_class);
    Activity activity;
    activity.members = is_message(operation) ? 2 : distinct_classes_[group];
    activity.environment = sets_environment(operation, rank) ? kCollectiveEnvironment : kNoIndex;
    // In units of the group's heaviest load.
    const double share = encounters_.share_of_load(operation);
    const double rate = rate_alone(price.collective) * share;
    if (group_loads_[group].count > 0 && rate > 0) {
      activity.latency = price.collective.latency;
      activity.work = std::llround(static_cast<double>(price.collective.wire_bytes) * share);
      activity.rate_limit = rate;
      activity.first_load = group_loads_[group].first;
      activity.load_count = group_loads_[group].count;
    } else {
      activity.latency = price.price.time;
    }
    return activity;
  }

  // The most that a collective beside compute holds.
  double held_multiprocessors() const {
    constexpr std::int64_t kChannels = 16;  // NCCL's default for a ring over NICs (facts 4.3)
    std::int64_t held = kChannels;
    for (const Template& one : program_.templates) {
      for (const TemplateOperation& operation : one.operations) {
        const Collective* collective = collective_of(operation);
        if (collective != nullptr && operation.stream != 0)
          held = std::max(held, collective->multiprocessors);
      }
    }
    return static_cast<double>(held);
  }

  // A collective beside compute holds one multiprocessor per channel and moves its bytes through
  // memory: waves = ceil(CTAs / (SMs - channels)), bandwidth shared by demand. Not measured: graded
  // extrapolated (facts section 7: a GEMM of one full wave nearly doubles; most GEMMs have many).
  void build_slowdowns() {
    const Device& device = input_.profile.device;
    constexpr double kMemoryPassesPerByte = 3;  // a reducing ring step reads two and writes one
    const double channels = held_multiprocessors();
    double compute = 1, memory = 1;
    if (device.multiprocessors > 2 * channels) {
      compute = device.multiprocessors / (device.multiprocessors - channels);
    }
    const double nic = input_.topology.nodes() > 1
                           ? input_.topology.nic_bandwidth().bytes_per_second
                           : device.nvlink.bytes_per_second;
    const double bandwidth = device.memory_bandwidth.bytes_per_second;
    if (bandwidth > 0)
      memory = bandwidth / std::max(bandwidth / 2, bandwidth - kMemoryPassesPerByte * nic);
    // The one core moves the bytes: compute all but stops.
    constexpr double kStopped = 1000;
    if (input_.profile.core_communicates) compute = memory = kStopped;
    constexpr std::int64_t kUnslowed = 1 << 20;
    step_.graph.slowdowns = {{kUnslowed, slowdown(compute)}, {kUnslowed, slowdown(memory)}};
  }

  struct LoadRange {
    int first = 0, count = 0;
  };

  const LoweringInput& input_;
  const Program& program_;
  const NetworkLinks& links_;
  Encounters encounters_;
  std::unique_ptr<PriceBook> own_prices_;
  OperationPricer pricer_;
  LoweredStep step_;

  std::vector<int> distinct_classes_;
  std::vector<LoadRange> group_loads_;
  std::set<int> slowing_streams_;
  bool ports_tell_ = false;  // whether awaiting a port ends an overlap
  std::map<std::vector<int>, int> task_templates_;
  struct PortRow {
    bool per_micro_batch = false;
    std::vector<int> ids;  // by micro-batch, from -1 on; kNoIndex: not met yet
  };
  std::map<std::tuple<int, int, int>, int> port_rows_;  // (device, family, layer)
  std::vector<PortRow> ports_;
  std::map<std::tuple<int, int, int>, int> exchanges_;  // (group class, buffer, layer)
  std::vector<std::vector<int>> activities_;            // by exchange, by occurrence
  std::vector<std::vector<std::size_t>> issued_;  // collectives so far, by device, by exchange
};

}  // namespace

LoweredStep lower_to_tasks(const LoweringInput& input) {
  return std::move(lower_together({input}).front());
}

std::vector<LoweredStep> lower_together(const std::vector<LoweringInput>& inputs) {
  NetworkLinks links;
  std::vector<std::unique_ptr<Lowering>> jobs;
  for (const LoweringInput& input : inputs) {
    jobs.push_back(std::make_unique<Lowering>(input, links));
  }
  std::vector<double> demand;
  for (const auto& job : jobs) job->add_demand(demand);
  demand.resize(links.capacities.size(), 0);
  const std::vector<int> numbers = drop_links_that_cannot_bind(demand, links);
  FoldingStructure together;
  std::vector<std::pair<int, int>> firsts;  // rank and group of each job
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    jobs[j]->renumber_links(numbers);
    firsts.emplace_back(static_cast<int>(together.rank_colours.size()),
                        static_cast<int>(together.groups.size()));
    append(together, jobs[j]->structure(), j);
  }
  for (const double capacity : links.capacities) {
    together.link_colours.push_back(static_cast<std::uint64_t>(std::llround(capacity)));
  }
  const Partition partition = inputs.front().unfolded ? unfolded(together) : fold(together);
  std::vector<LoweredStep> steps;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const FoldingStructure& own = jobs[j]->structure();
    steps.push_back(jobs[j]->run(part_of(partition, firsts[j].first, own.rank_colours.size(),
                                         firsts[j].second, own.groups.size())));
  }
  return steps;
}

}  // namespace headway
