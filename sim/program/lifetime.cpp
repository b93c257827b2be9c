#include "sim/program/lifetime.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>
#include <utility>

#include "sim/program/buffer_index.hpp"

namespace headway {

BufferInstance instance_of(const Program& program, BufferRef reference, int layer,
                           int micro_batch) {
  const BufferFamily& family = program.buffers[static_cast<std::size_t>(reference.family)];
  return {reference.family, family.per_layer ? reference.layer + layer : 0,
          family.per_micro_batch ? micro_batch : -1};
}

Bytes total(const BytesByCategory& bytes) {
  Bytes sum;
  for (const Bytes part : bytes) sum += part;
  return sum;
}

Bytes rounded_block(Bytes bytes) {
  return {(bytes.count + kBlockRounding - 1) / kBlockRounding * kBlockRounding};
}

namespace {

// Calls touch(reference, fresh) once for each buffer of an operation: fresh where it is written
// without being read.
template <typename Touch>
void for_each_touch(const TemplateOperation& operation, Touch touch) {
  std::set<std::pair<int, int>> seen;
  for (const BufferRef& read : operation.reads) {
    if (seen.insert({read.family, read.layer}).second) touch(read, false);
  }
  for (const BufferRef& write : operation.writes) {
    if (seen.insert({write.family, write.layer}).second) touch(write, true);
  }
}

std::vector<BufferInstance> persistent_instances(const Program& program, const RankKind& kind) {
  std::vector<BufferInstance> result;
  for (const BufferRef& reference : kind.persistent) {
    const BufferFamily& family = program.buffers[static_cast<std::size_t>(reference.family)];
    const std::int64_t copies = family.per_micro_batch ? program.micro_batches : 1;
    for (int m = 0; m < copies; ++m) result.push_back(instance_of(program, reference, 0, m));
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace

Lifetimes lifetimes(const Program& program, const RankKind& kind) {
  Lifetimes result;
  result.persistent = persistent_instances(program, kind);
  std::map<BufferInstance, IssuePosition> last_use;  // of those that live
  for (std::size_t i = 0; i < kind.order.size(); ++i) {
    const Issue issue = kind.order[i];
    const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
    for (std::size_t s = 0; s < pass.steps.size(); ++s) {
      const Step step = pass.steps[s];
      const auto& operations =
          program.templates[static_cast<std::size_t>(step.template_index)].operations;
      for (std::size_t o = 0; o < operations.size(); ++o) {
        const IssuePosition here{static_cast<int>(i), static_cast<int>(s), static_cast<int>(o)};
        for_each_touch(operations[o], [&](BufferRef reference, bool fresh) {
          const BufferInstance buffer =
              instance_of(program, reference, step.layer, issue.micro_batch);
          if (std::binary_search(result.persistent.begin(), result.persistent.end(), buffer))
            return;
          const auto [entry, first] = last_use.emplace(buffer, here);
          if (!first && fresh) result.frees.push_back({entry->second, buffer});
          if (first || fresh) result.allocations.push_back({here, buffer});
          entry->second = here;
        });
      }
    }
  }
  for (const auto& [buffer, use] : last_use) result.frees.push_back({use, buffer});
  std::sort(result.allocations.begin(), result.allocations.end());
  std::sort(result.frees.begin(), result.frees.end());
  return result;
}

namespace {

enum class NextTouch : std::uint8_t { kNone, kFresh, kUse };

// A buffer's allocation or free inside a pass.
struct PassEvent {
  enum class When : std::uint8_t {
    kAlways,
    kUnlessNeeded,  // a free: not if an issue to come uses the buffer before writing it anew
    kIfFirst,       // an allocation by use: only if no issue before has touched the buffer
  };
  int operation = 0;  // counted through the steps of the pass
  int buffer = 0;
  bool allocates = false;
  When when = When::kAlways;
};

// A pass, compiled: its events, and what it does first to each buffer it touches.
struct CompiledPass {
  std::vector<PassEvent> events;  // by operation, allocations before frees
  std::vector<int> step_starts;   // number of the first operation of each step
  struct FirstTouch {
    int buffer = 0;
    NextTouch kind = NextTouch::kNone;
  };
  std::vector<FirstTouch> first_touches;
  // Those of buffers that all micro-batches share and that may live from one issue to another.
  std::vector<FirstTouch> crossing;
};

// What an issue does to memory. All issues that play the same pass, before the same future of their
// micro-batch, share one.
struct Variant {
  int pass = 0;
  std::vector<PassEvent> events;
  BytesByCategory net{};
  BytesByCategory at_peak{};  // relative to the issue's start
  std::int64_t net_bytes = 0, peak_bytes = 0;
  std::int64_t net_rounded = 0, peak_rounded = 0;
  std::int64_t net_host = 0, peak_host = 0;
  int peak_operation = 0;
};

// The order of one rank kind, each issue resolved to its variant.
//
// Whether a buffer that belongs to a micro-batch is still needed when a pass ends depends only on
// the passes that this micro-batch has before it. Walking the order backwards, these futures form a
// tree, and as micro-batches go through the same passes, the tree is tiny. Buffers that all
// micro-batches share are mostly rewritten by whoever needs them (scratch); those that are not are
// followed issue by issue.
class OrderAnalysis {
 public:
  OrderAnalysis(const Program& program, const RankKind& kind)
      : program_(program), kind_(kind), index_(program, kind) {
    mark_persistent();
    passes_.reserve(kind.passes.size());
    for (const Pass& pass : kind.passes) passes_.push_back(compile(pass));
    describe_buffers();
    find_crossing();
    resolve();
  }

  const std::vector<int>& variant_of_issue() const { return variant_of_issue_; }
  const std::vector<Variant>& variants() const { return variants_; }
  BufferRef buffer(int number) const { return index_.buffer(number); }
  bool per_micro_batch(int number) const { return traits_[at(number)].per_micro_batch; }
  // The position of an operation counted through the steps of a pass.
  IssuePosition position(int issue, int pass, int operation) const {
    const auto& starts = passes_[at(pass)].step_starts;
    const auto after = std::upper_bound(starts.begin(), starts.end(), operation);
    const auto step = static_cast<int>(after - starts.begin()) - 1;
    return {issue, std::max(step, 0), step < 0 ? 0 : operation - starts[at(step)]};
  }

 private:
  struct Traits {
    std::int64_t bytes = 0, rounded = 0;
    std::size_t category = 0;
    bool per_micro_batch = false;
    bool initialised = false;
    bool crossing = false;
    bool on_host = false;
  };
  // What micro-batches have before them (or behind them), as a tree: a node is a sequence of
  // passes, and knows of each buffer the nearest (or the first) touch in it. Node 0 is the empty
  // sequence.
  class Tree {
   public:
    Tree(std::size_t buffers, const std::vector<CompiledPass>& passes)
        : buffers_(buffers), passes_(passes) {
      next_.assign(buffers, NextTouch::kNone);
      children_.assign(passes.size(), -1);
    }
    // The node of `node`'s sequence and one pass more; `nearest` tells whether the pass' own
    // touches hide those of the node.
    int child(int node, int pass, bool nearest) {
      const std::size_t slot = at(node) * passes_.size() + at(pass);
      if (children_[slot] >= 0) return children_[slot];
      const int added = static_cast<int>(parents_.size());
      children_[slot] = added;
      parents_.push_back(node);
      children_.resize(children_.size() + passes_.size(), -1);
      next_.resize(next_.size() + buffers_);
      std::copy_n(next_.begin() + static_cast<std::ptrdiff_t>(at(node) * buffers_), buffers_,
                  next_.end() - static_cast<std::ptrdiff_t>(buffers_));
      NextTouch* own = next_.data() + at(added) * buffers_;
      for (const auto& touch : passes_[at(pass)].first_touches) {
        NextTouch& next = own[at(touch.buffer)];
        if (nearest || next == NextTouch::kNone) next = touch.kind;
      }
      return added;
    }
    // The sequence that a node adds its pass to.
    int parent(int node) const { return parents_[at(node)]; }
    NextTouch next(int node, int buffer) const { return next_[at(node) * buffers_ + at(buffer)]; }

   private:
    std::size_t buffers_;
    const std::vector<CompiledPass>& passes_;
    std::vector<int> parents_ = {0};
    std::vector<int> children_;    // by node and pass; -1: none yet
    std::vector<NextTouch> next_;  // by node and buffer
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void mark_persistent() {
    for (const BufferRef& reference : kind_.persistent) {
      const int number = index_.number(reference, 0);
      persistent_.resize(std::max(persistent_.size(), at(number) + 1), false);
      persistent_[at(number)] = true;
    }
  }

  CompiledPass compile(const Pass& pass) {
    CompiledPass compiled;
    std::vector<PassEvent> events;
    std::vector<int> touched;  // in order of first touch
    int operation = 0;
    const auto touch = [&](BufferRef reference, int layer, bool fresh) {
      const int buffer = index_.number(reference, layer);
      if (at(buffer) < persistent_.size() && persistent_[at(buffer)]) return;
      if (at(buffer) >= last_touch_.size()) last_touch_.resize(at(buffer) + 1, -1);
      int& last = last_touch_[at(buffer)];
      if (last == operation) return;  // an operand named twice, or read before it is written
      if (last < 0) {
        touched.push_back(buffer);
        compiled.first_touches.push_back({buffer, fresh ? NextTouch::kFresh : NextTouch::kUse});
        events.push_back({operation, buffer, true,
                          fresh ? PassEvent::When::kAlways : PassEvent::When::kIfFirst});
      } else if (fresh) {
        events.push_back({last, buffer, false, PassEvent::When::kAlways});
        events.push_back({operation, buffer, true, PassEvent::When::kAlways});
      }
      last = operation;
    };
    for (const Step& step : pass.steps) {
      compiled.step_starts.push_back(operation);
      for (const TemplateOperation& entry :
           program_.templates[at(step.template_index)].operations) {
        for (const BufferRef& read : entry.reads) touch(read, step.layer, false);
        for (const BufferRef& write : entry.writes) touch(write, step.layer, true);
        ++operation;
      }
    }
    for (const int buffer : touched) {
      events.push_back({last_touch_[at(buffer)], buffer, false, PassEvent::When::kUnlessNeeded});
      last_touch_[at(buffer)] = -1;
    }
    compiled.events = in_order(events, operation);
    return compiled;
  }

  // Counting sort by operation, allocations before frees, otherwise as found.
  static std::vector<PassEvent> in_order(const std::vector<PassEvent>& events, int operations) {
    const auto slot = [](const PassEvent& event) {
      return 2 * at(event.operation) + (event.allocates ? 0 : 1);
    };
    std::vector<int> starts(2 * at(operations) + 1, 0);
    for (const PassEvent& event : events) ++starts[slot(event) + 1];
    for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
    std::vector<PassEvent> sorted(events.size());
    for (const PassEvent& event : events) sorted[at(starts[slot(event)]++)] = event;
    return sorted;
  }

  void describe_buffers() {
    traits_.resize(at(index_.size()));
    for (int b = 0; b < index_.size(); ++b) {
      const BufferFamily& family = program_.buffers[at(index_.buffer(b).family)];
      Traits& traits = traits_[at(b)];
      traits.bytes = family.size().count;
      traits.rounded = rounded_block(family.size()).count;
      traits.category = static_cast<std::size_t>(family.category);
      traits.per_micro_batch = family.per_micro_batch;
      traits.on_host = family.on_host;
      traits.initialised = family.initial != InitialValue::kUndefined;
    }
  }

  void find_crossing() {
    for (const CompiledPass& pass : passes_) {
      for (const auto& touch : pass.first_touches) {
        Traits& traits = traits_[at(touch.buffer)];
        if (touch.kind == NextTouch::kUse && !traits.per_micro_batch) traits.crossing = true;
        if (touch.kind == NextTouch::kUse && traits.per_micro_batch && traits.initialised) {
          needs_past_ = true;
        }
      }
    }
    for (CompiledPass& pass : passes_) {
      for (const auto& touch : pass.first_touches) {
        if (traits_[at(touch.buffer)].crossing) pass.crossing.push_back(touch);
      }
    }
  }

  // The tree node of each issue: its own pass, and what its micro-batch has before it (or behind
  // it).
  std::vector<int> walk(Tree& tree, bool backwards) const {
    const std::size_t count = kind_.order.size();
    std::vector<int> node_of(static_cast<std::size_t>(program_.micro_batches), 0);
    std::vector<int> nodes(count);
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = backwards ? count - 1 - k : k;
      const Issue issue = kind_.order[i];
      if (issue.micro_batch < 0) {
        nodes[i] = tree.child(0, issue.pass, backwards);
      } else {
        int& node = node_of[at(issue.micro_batch)];
        node = tree.child(node, issue.pass, backwards);
        nodes[i] = node;
      }
    }
    return nodes;
  }

  // For each issue whose pass touches crossing buffers: for each of them, whether it is needed
  // afterwards, and whether it was touched before.
  struct Crossing {
    std::vector<bool> needed, touched;
    friend auto operator<=>(const Crossing&, const Crossing&) = default;
  };
  std::vector<int> follow_crossing(std::vector<Crossing>& kinds) const {
    const std::size_t count = kind_.order.size();
    std::vector<int> result(count, -1);
    const bool any = std::any_of(passes_.begin(), passes_.end(),
                                 [](const CompiledPass& pass) { return !pass.crossing.empty(); });
    if (!any) return result;
    std::vector<Crossing> of_issue(count);
    std::vector<NextTouch> next(traits_.size(), NextTouch::kNone);
    for (std::size_t i = count; i-- > 0;) {
      const auto& crossing = passes_[at(kind_.order[i].pass)].crossing;
      for (const auto& touch : crossing) {
        of_issue[i].needed.push_back(next[at(touch.buffer)] == NextTouch::kUse);
      }
      for (const auto& touch : crossing) next[at(touch.buffer)] = touch.kind;
    }
    std::vector<bool> touched(traits_.size(), false);
    std::map<Crossing, int> known;
    for (std::size_t i = 0; i < count; ++i) {
      const auto& crossing = passes_[at(kind_.order[i].pass)].crossing;
      if (crossing.empty()) continue;
      for (const auto& touch : crossing) of_issue[i].touched.push_back(touched[at(touch.buffer)]);
      for (const auto& touch : crossing) touched[at(touch.buffer)] = true;
      const auto [entry, fresh] = known.emplace(of_issue[i], static_cast<int>(kinds.size()));
      if (fresh) kinds.push_back(of_issue[i]);
      result[i] = entry->second;
    }
    return result;
  }

  // Finds or makes the variant of every issue.
  void resolve() {
    Tree future(traits_.size(), passes_);
    Tree past(traits_.size(), passes_);
    const std::vector<int> future_of = walk(future, true);
    const std::vector<int> past_of =
        needs_past_ ? walk(past, false) : std::vector<int>(kind_.order.size(), 0);
    std::vector<Crossing> crossings;
    const std::vector<int> crossing_of = follow_crossing(crossings);

    struct Known {
      int past, crossing, variant;
    };
    std::vector<std::vector<Known>> known;  // by future node: nearly always one
    variant_of_issue_.reserve(kind_.order.size());
    for (std::size_t i = 0; i < kind_.order.size(); ++i) {
      if (at(future_of[i]) >= known.size()) known.resize(at(future_of[i]) + 1);
      std::vector<Known>& here = known[at(future_of[i])];
      const auto found = std::find_if(here.begin(), here.end(), [&](const Known& entry) {
        return entry.past == past_of[i] && entry.crossing == crossing_of[i];
      });
      if (found != here.end()) {
        variant_of_issue_.push_back(found->variant);
        continue;
      }
      const int variant = static_cast<int>(variants_.size());
      here.push_back({past_of[i], crossing_of[i], variant});
      variant_of_issue_.push_back(variant);
      const int pass = kind_.order[i].pass;
      const int after = future.parent(future_of[i]);
      const int before = past.parent(past_of[i]);
      set_crossing(pass, crossing_of[i] < 0 ? nullptr : &crossings[at(crossing_of[i])]);
      variants_.push_back(make_variant(pass, [&](const PassEvent& event) {
        const Traits& traits = traits_[at(event.buffer)];
        const bool own = traits.per_micro_batch;
        if (event.when == PassEvent::When::kUnlessNeeded) {
          return own ? future.next(after, event.buffer) != NextTouch::kUse
                     : !(traits.crossing && needed_[at(event.buffer)]);
        }
        // Where nothing has an initial value, a use is never the first touch.
        if (own) return needs_past_ && past.next(before, event.buffer) == NextTouch::kNone;
        return !touched_[at(event.buffer)];
      }));
    }
  }

  void set_crossing(int pass, const Crossing* crossing) {
    needed_.resize(traits_.size());
    touched_.resize(traits_.size());
    const auto& touches = passes_[at(pass)].crossing;
    for (std::size_t c = 0; c < touches.size(); ++c) {
      needed_[at(touches[c].buffer)] = crossing->needed[c];
      touched_[at(touches[c].buffer)] = crossing->touched[c];
    }
  }

  template <typename Happens>
  Variant make_variant(int pass, Happens happens) const {
    Variant variant;
    variant.pass = pass;
    for (const PassEvent& event : passes_[at(pass)].events) {
      if (event.when != PassEvent::When::kAlways && !happens(event)) continue;
      variant.events.push_back(event);
    }
    for (std::size_t e = 0; e < variant.events.size(); ++e) {
      const PassEvent& event = variant.events[e];
      const Traits& traits = traits_[at(event.buffer)];
      const std::int64_t sign = event.allocates ? 1 : -1;
      if (traits.on_host) {
        variant.net_host += sign * traits.bytes;
        variant.peak_host = std::max(variant.peak_host, variant.net_host);
      } else {
        variant.net[traits.category].count += sign * traits.bytes;
        variant.net_bytes += sign * traits.bytes;
        variant.net_rounded += sign * traits.rounded;
      }
      const bool last_allocation =
          event.allocates && (e + 1 == variant.events.size() || !variant.events[e + 1].allocates ||
                              variant.events[e + 1].operation != event.operation);
      if (!last_allocation) continue;
      if (variant.net_bytes > variant.peak_bytes) {
        variant.peak_bytes = variant.net_bytes;
        variant.at_peak = variant.net;
        variant.peak_operation = event.operation;
      }
      variant.peak_rounded = std::max(variant.peak_rounded, variant.net_rounded);
    }
    return variant;
  }

  const Program& program_;
  const RankKind& kind_;
  BufferIndex index_;
  std::vector<bool> persistent_;  // by buffer; those beyond its end are not
  std::vector<int> last_touch_;   // scratch of compile
  std::vector<CompiledPass> passes_;
  std::vector<Traits> traits_;  // by buffer
  bool needs_past_ = false;
  std::vector<bool> needed_, touched_;  // of the crossing buffers of the variant being made
  std::vector<Variant> variants_;
  std::vector<int> variant_of_issue_;
};

}  // namespace

MemoryUse memory_use(const Program& program, const RankKind& kind, bool with_timeline) {
  MemoryUse use;
  std::int64_t rounded = 0;
  for (const BufferInstance& buffer : persistent_instances(program, kind)) {
    const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
    if (family.on_host) {
      use.host_peak += family.size();
      continue;
    }
    use.persistent[static_cast<std::size_t>(family.category)] += family.size();
    rounded += rounded_block(family.size()).count;
  }
  const std::int64_t persistent = total(use.persistent).count;
  use.at_peak = use.persistent;
  use.peak = {persistent};
  use.rounded_peak = {rounded};
  if (kind.order.empty()) return use;

  const OrderAnalysis analysis(program, kind);
  const std::vector<int>& issues = analysis.variant_of_issue();
  std::int64_t live = persistent;
  std::int64_t on_host = use.host_peak.count;
  std::int64_t peak = -1;
  std::size_t peak_issue = 0;
  for (std::size_t i = 0; i < issues.size(); ++i) {
    const Variant& variant = analysis.variants()[static_cast<std::size_t>(issues[i])];
    if (live + variant.peak_bytes > peak) {
      peak = live + variant.peak_bytes;
      peak_issue = i;
    }
    use.rounded_peak.count = std::max(use.rounded_peak.count, rounded + variant.peak_rounded);
    use.host_peak.count = std::max(use.host_peak.count, on_host + variant.peak_host);
    on_host += variant.net_host;
    if (with_timeline) use.during_issue.push_back({live + variant.peak_bytes});
    live += variant.net_bytes;
    rounded += variant.net_rounded;
    if (with_timeline) use.after_issue.push_back({live});
  }
  use.peak = {peak};
  for (std::size_t i = 0; i <= peak_issue; ++i) {
    const Variant& variant = analysis.variants()[static_cast<std::size_t>(issues[i])];
    const BytesByCategory& change = i < peak_issue ? variant.net : variant.at_peak;
    for (std::size_t c = 0; c < kBufferCategories; ++c) use.at_peak[c] += change[c];
  }
  const Variant& variant = analysis.variants()[static_cast<std::size_t>(issues[peak_issue])];
  use.peak_at =
      analysis.position(static_cast<int>(peak_issue), variant.pass, variant.peak_operation);
  return use;
}

void replay(const Program& program, const RankKind& kind, int issues,
            const std::function<void(const BufferInstance&, bool allocated)>& event) {
  const OrderAnalysis analysis(program, kind);
  for (int i = 0; i < issues; ++i) {
    const auto issue = static_cast<std::size_t>(i);
    const int micro_batch = kind.order[issue].micro_batch;
    const auto variant = static_cast<std::size_t>(analysis.variant_of_issue()[issue]);
    for (const PassEvent& entry : analysis.variants()[variant].events) {
      const BufferRef buffer = analysis.buffer(entry.buffer);
      event(
          {buffer.family, buffer.layer, analysis.per_micro_batch(entry.buffer) ? micro_batch : -1},
          entry.allocates);
    }
  }
}

}  // namespace headway
