#include "sim/search/plan_space.hpp"

#include <algorithm>
#include <optional>

#include "sim/core/json_writer.hpp"
#include "sim/program/schedule.hpp"

namespace headway {

namespace {

using Texts = std::vector<std::string>;

// Keys that "auto" knows values of, in the order in which they are chosen: each depends on those
// before it only. micro_batch stands last, since memory ends its values.
const Texts kAutomatic = {"tp",
                          "cp",
                          "pp",
                          "ep",
                          "etp",
                          "cp_kind",
                          "schedule",
                          "vpp",
                          "overlap_p2p",
                          "vocabulary",
                          "sequence_parallel",
                          "tp_overlap",
                          "dp_kind",
                          "recompute",
                          "recompute_layers",
                          "micro_batch"};
const Texts kOpenByDefault = {
    "tp",      "pp",        "schedule",         "vpp",        "sequence_parallel",
    "dp_kind", "recompute", "recompute_layers", "micro_batch"};
const Texts kOpenWithExperts = {"ep", "etp"};
// Whose value is a list or an object itself.
const Texts kStructured = {"stage_layers", "recompute_modules", "recompute_keep", "offload", "moe"};

bool holds(const Texts& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

Texts divisors(std::int64_t number) {
  Texts result;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) result.push_back(std::to_string(d));
  }
  return result;
}

Texts divisors_up_to(std::int64_t number, std::int64_t limit) {
  Texts result;
  for (std::int64_t d = 1; d <= std::min(number, limit); ++d) {
    if (number % d == 0) result.push_back(std::to_string(d));
  }
  return result;
}

Texts quoted(const Texts& words) {
  Texts result;
  result.reserve(words.size());
  for (const std::string& word : words) result.push_back('"' + word + '"');
  return result;
}

std::optional<std::int64_t> integer_of(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos || text.size() > 9)
    return std::nullopt;
  return std::stoll(text);
}

}  // namespace

std::string as_json(const std::string& text) {
  try {
    return JsonNode::parse_text(text, "value").text();
  } catch (const InvalidInput&) {
    JsonWriter writer(0);
    writer.value(text);
    return writer.text();
  }
}

PlanSpace::PlanSpace(const OpenJob& job, const FrameworkReach& reach, const SpaceOptions& options,
                     Problems& problems)
    : job_(job), reach_(reach) {
  read_given(options, problems);
  if (open_.empty()) open_defaults();
  const auto place = [](const OpenKey& key) {
    const auto found = std::find(kAutomatic.begin(), kAutomatic.end(), key.key);
    // Keys without a rule of their own: after all but the micro-batch.
    if (found == kAutomatic.end()) return 2 * (kAutomatic.end() - kAutomatic.begin() - 1) - 1;
    return 2 * (found - kAutomatic.begin());
  };
  std::stable_sort(open_.begin(), open_.end(),
                   [&](const OpenKey& a, const OpenKey& b) { return place(a) < place(b); });
  for (const OpenKey& key : open_) keys_.push_back(key.key);
  micro_batches_end_ =
      !open_.empty() && open_.back().key == "micro_batch" && open_.back().automatic;
  exclude(options, problems);
}

void PlanSpace::read_given(const SpaceOptions& options, Problems& problems) {
  if (const auto& plan = job_.plan()) {
    for (const std::string& key : plan->keys()) {
      const JsonNode value = *plan->find(key);
      if (value.is_null()) continue;
      const bool fixed = std::any_of(options.fixed.begin(), options.fixed.end(),
                                     [&](const PlanValue& each) { return each.key == key; });
      const bool list = value.is_array() && !holds(kStructured, key);
      const bool range = value.is_object() && !holds(kStructured, key);
      const bool automatic = value.is_string() && value.string() == "auto";
      if (fixed) continue;
      if (list || range || automatic) {
        open(key, value, problems);
      } else {
        given_[key] = value.text();
      }
    }
  }
  for (const PlanValue& fixed : options.fixed) given_[fixed.key] = fixed.value;
}

void PlanSpace::open(const std::string& key, const JsonNode& value, Problems& problems) {
  OpenKey open_key;
  open_key.key = key;
  if (value.is_array()) {
    for (const JsonNode& element : value.elements()) open_key.listed.push_back(element.text());
    if (open_key.listed.empty())
      problems.add(value.file(), value.pointer(), "[] leaves nothing to choose from");
    if (key == "micro_batch") {
      std::stable_sort(open_key.listed.begin(), open_key.listed.end(),
                       [](const std::string& a, const std::string& b) {
                         return integer_of(a).value_or(0) < integer_of(b).value_or(0);
                       });
    }
  } else if (value.is_object()) {
    ObjectReader range(value, problems);
    open_key.min = range.require_integer("min", {.min = 0});
    open_key.max = range.require_integer("max", {.min = 0});
    if (open_key.min > open_key.max) range.problem("", "min is above max");
    range.finish();
    open_key.automatic = holds(kAutomatic, key);
    if (!open_key.automatic) {
      constexpr std::int64_t kMost = 4096;  // values of one key: more is a mistake
      if (open_key.max - open_key.min >= kMost) {
        range.problem("", "a range of more than " + std::to_string(kMost) + " values");
        return;
      }
      for (std::int64_t i = open_key.min; i <= open_key.max; ++i)
        open_key.listed.push_back(std::to_string(i));
    }
  } else {
    open_key.automatic = true;
    if (!holds(kAutomatic, key)) {
      problems.add(value.file(), value.pointer(),
                   "\"auto\" has no rule for " + key +
                       "; expected a list of values, or one; it has "
                       "rules for " +
                       any_of(kAutomatic));
    }
  }
  open_.push_back(std::move(open_key));
}

void PlanSpace::open_defaults() {
  by_default_ = true;
  Texts keys = kOpenByDefault;
  if (job_.model().num_experts > 0)
    keys.insert(keys.end(), kOpenWithExperts.begin(), kOpenWithExperts.end());
  for (const std::string& key : keys) {
    if (given_.contains(key)) continue;
    OpenKey open_key;
    open_key.key = key;
    open_key.automatic = true;
    open_.push_back(std::move(open_key));
  }
}

void PlanSpace::exclude(const SpaceOptions& options, Problems& problems) {
  for (const PlanValue& value : options.excluded) {
    if (!holds(keys_, value.key)) {
      problems.add(value.option, "",
                   "plan." + value.key + " is not open; open are " + any_of(keys_));
    }
    excluded_[value.key].push_back(value.value);
  }
}

std::string PlanSpace::text_of(const std::string& key, const PlanChoice& so_far) const {
  for (std::size_t i = 0; i < keys_.size() && i < so_far.size(); ++i) {
    if (keys_[i] == key) return so_far[i];
  }
  const auto found = given_.find(key);
  return found == given_.end() ? "" : found->second;
}

std::int64_t PlanSpace::number(const char* key, const PlanChoice& so_far,
                               std::int64_t otherwise) const {
  return integer_of(text_of(key, so_far)).value_or(otherwise);
}

std::string PlanSpace::word(const char* key, const PlanChoice& so_far,
                            const std::string& otherwise) const {
  const std::string text = text_of(key, so_far);
  if (text.size() < 2 || text.front() != '"') return otherwise;
  return text.substr(1, text.size() - 2);
}

// Layers of a virtual stage, rounded up.
std::int64_t PlanSpace::layers_of_a_stage(const PlanChoice& so_far) const {
  const Schedule* schedule = find_schedule(word("schedule", so_far, "1f1b"));
  const int fixed = schedule == nullptr ? 1 : schedule->fixed_stages_per_rank;
  std::int64_t stages = number("pp", so_far, 1);
  if (stages > 1) stages *= number("vpp", so_far, std::max(fixed, 1));
  if (schedule != nullptr && stages > 1) stages /= schedule->copies;
  stages = std::max<std::int64_t>(stages, 1);
  return (job_.model().num_hidden_layers + stages - 1) / stages;
}

// Whether a plan is another one for another value of the key.
bool PlanSpace::has_say(const std::string& key, const PlanChoice& so_far) const {
  const std::int64_t tp = number("tp", so_far, 1), pp = number("pp", so_far, 1),
                     cp = number("cp", so_far, 1);
  if (key == "sequence_parallel" || key == "tp_overlap" || key == "tp_kind") return tp > 1;
  if (key == "cp_kind") return cp > 1;
  if (key == "schedule" || key == "overlap_p2p" || key == "vocabulary") return pp > 1;
  if (key == "vpp") {
    const Schedule* schedule = find_schedule(word("schedule", so_far, "1f1b"));
    return pp > 1 && schedule != nullptr && schedule->fixed_stages_per_rank == 0;
  }
  if (key == "dp_kind") return job_.topology().gpus() > tp * pp;
  if (key == "recompute_layers") return word("recompute", so_far, "none") == "full";
  if (key == "ep" || key == "etp") return job_.model().num_experts > 0;
  return true;
}

std::vector<std::string> PlanSpace::values(std::size_t index, const PlanChoice& so_far) const {
  const OpenKey& key = open_[index];
  if (!has_say(key.key, so_far)) return {""};
  Texts result = key.automatic ? automatic_values(key.key, so_far) : key.listed;
  if (key.max >= key.min && key.automatic) {
    std::erase_if(result, [&](const std::string& text) {
      const auto value = integer_of(text);
      return value && (*value < key.min || *value > key.max);
    });
  }
  if (const auto excluded = excluded_.find(key.key); excluded != excluded_.end()) {
    std::erase_if(result, [&](const std::string& text) { return holds(excluded->second, text); });
  }
  return result;
}

std::vector<std::string> PlanSpace::automatic_values(const std::string& key,
                                                     const PlanChoice& so_far) const {
  const Transformer& model = job_.model();
  const std::int64_t gpus = job_.topology().gpus();
  const std::int64_t tp = number("tp", so_far, 1), cp = number("cp", so_far, 1),
                     pp = number("pp", so_far, 1);
  const std::int64_t layers = model.num_hidden_layers;
  if (key == "tp") {
    Texts degrees = divisors(std::min<std::int64_t>(gpus, job_.topology().gpus_per_domain()));
    std::erase_if(degrees, [&](const std::string& text) {
      const std::int64_t d = *integer_of(text);
      return model.num_attention_heads % d != 0 || model.intermediate_size % d != 0 ||
             gpus % d != 0;
    });
    return degrees;
  }
  if (key == "cp") {
    Texts degrees = divisors(std::max<std::int64_t>(1, gpus / tp));
    std::erase_if(degrees, [&](const std::string& text) {
      const std::int64_t d = *integer_of(text);
      return d > 1 && job_.sequence_length() % (2 * d) != 0;
    });
    return degrees;
  }
  if (key == "pp") return divisors_up_to(std::max<std::int64_t>(1, gpus / (tp * cp)), layers);
  if (key == "ep") {
    Texts degrees = divisors(std::max<std::int64_t>(1, model.num_experts));
    const std::int64_t ranks = gpus / (tp * pp) * tp;
    std::erase_if(degrees, [&](const std::string& text) { return ranks % *integer_of(text) != 0; });
    return degrees;
  }
  if (key == "etp") return tp > 1 ? Texts{"1", std::to_string(tp)} : Texts{"1"};
  if (key == "cp_kind") return quoted({"ring", "ulysses"});
  if (key == "schedule") return quoted(reach_.schedules);
  if (key == "vpp") {
    Texts stages, uneven;
    for (std::int64_t v = 2; v * pp <= layers + 2; ++v) {
      if (layers % (v * pp) == 0 || (layers + 2) % (v * pp) == 0)
        stages.push_back(std::to_string(v));
    }
    // Layers that no number divides are dealt out unevenly, where the framework can.
    for (std::int64_t v = 2; stages.empty() && !reach_.even_stages && v * pp <= layers; v *= 2)
      uneven.push_back(std::to_string(v));
    return stages.empty() ? uneven : stages;
  }
  if (key == "overlap_p2p" || key == "sequence_parallel") return {"true"};
  if (key == "vocabulary") return quoted({"last-stage"});
  if (key == "tp_overlap") return quoted(reach_.tp_overlaps);
  if (key == "dp_kind") return quoted(automatic_dp_kinds());
  if (key == "recompute") return quoted({"none", "selective", "full"});
  if (key == "recompute_layers") {
    Texts counts;
    for (std::int64_t count = 1; count < layers_of_a_stage(so_far); count *= 2)
      counts.push_back(std::to_string(count));
    counts.emplace_back();  // all of them
    return counts;
  }
  // micro_batch
  const std::int64_t dp = std::max<std::int64_t>(1, gpus / (tp * cp * pp));
  Texts sizes;
  for (std::int64_t size = 1; size == 1 || size * dp <= job_.global_batch(); size *= 2)
    sizes.push_back(std::to_string(size));
  return sizes;
}

// zero++ rounds what it sends: another algorithm, not another way to compute the same step.
std::vector<std::string> PlanSpace::automatic_dp_kinds() const {
  Texts kinds = reach_.dp_kinds;
  std::erase_if(kinds, [&](const std::string& kind) {
    return kind == "zero++" || (kind == "hsdp" && !given_.contains("shard"));
  });
  return kinds;
}

// Depth first through the keys; the micro-batch, which stands last, is left to micro_batches().
class PlanSpace::Enumeration {
 public:
  Enumeration(const PlanSpace& space, const std::function<bool(const PlanChoice&)>& visit)
      : space_(space), visit_(visit) {
    depth_ = space.keys_.size();
    if (depth_ > 0 && space.keys_.back() == "micro_batch") --depth_;
  }

  bool run() {
    if (choice_.size() == depth_) {
      PlanChoice row = choice_;
      row.resize(space_.keys_.size());
      return visit_(row);
    }
    for (const std::string& value : space_.values(choice_.size(), choice_)) {
      choice_.push_back(value);
      const bool goes_on = run();
      choice_.pop_back();
      if (!goes_on) return false;
    }
    return true;
  }

 private:
  const PlanSpace& space_;
  const std::function<bool(const PlanChoice&)>& visit_;
  std::size_t depth_ = 0;
  PlanChoice choice_;
};

void PlanSpace::for_each_row(const std::function<bool(const PlanChoice& row)>& visit) const {
  Enumeration(*this, visit).run();
}

std::vector<std::string> PlanSpace::micro_batches(const PlanChoice& row) const {
  if (keys_.empty() || keys_.back() != "micro_batch") return {""};
  return values(keys_.size() - 1, {row.begin(), row.end() - 1});
}

std::string PlanSpace::plan_text(const PlanChoice& choice) const {
  JsonWriter writer(0);
  writer.begin_object();
  for (const auto& [key, value] : given_) writer.key(key).raw(value);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (!choice[i].empty()) writer.key(keys_[i]).raw(choice[i]);
  }
  writer.end_object();
  return writer.text();
}

}  // namespace headway
