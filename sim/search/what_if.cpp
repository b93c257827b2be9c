#include "sim/search/what_if.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "sim/core/json_writer.hpp"
#include "sim/core/parallel.hpp"
#include "sim/core/quantity.hpp"
#include "sim/search/plan_space.hpp"
#include "sim/search/shared_work.hpp"
#include "sim/simulate/price_book.hpp"

namespace headway {

namespace {

constexpr std::size_t kMostRows = 100000;
constexpr int kMostDoublings = 64;

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// At commas outside of brackets and quotes.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
    if (c == ',' && depth == 0 && !quoted) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

// "100 Gbit/s" -> 100 and "Gbit/s"; nothing where it does not begin with a number.
struct Amount {
  double number = 0;
  std::string unit;
};
std::optional<Amount> amount_of(const std::string& text) {
  Amount amount;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, amount.number);
  if (error != std::errc()) return std::nullopt;
  amount.unit = trimmed(std::string(stop, end));
  return amount;
}

std::string text_of(double number, const std::string& unit) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, number);
  return std::string(text, error == std::errc() ? end : text) + (unit.empty() ? "" : " " + unit);
}

// "100..800 Gbit/s": every doubling, and the end.
std::optional<std::vector<std::string>> doublings(const std::string& text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) return std::nullopt;
  const auto first = amount_of(trimmed(text.substr(0, dots)));
  const auto last = amount_of(trimmed(text.substr(dots + 2)));
  if (!first || !last || !first->unit.empty() || first->number <= 0 || last->number < first->number)
    return std::nullopt;
  std::vector<std::string> values;
  double number = first->number;
  for (int i = 0; number < last->number && i < kMostDoublings; ++i, number *= 2)
    values.push_back(text_of(number, last->unit));
  values.push_back(text_of(last->number, last->unit));
  return values;
}

class Table {
 public:
  Table(const JsonNode& job, const std::vector<JobOverride>& overrides,
        const std::vector<Variation>& variations)
      : job_(job), overrides_(overrides), variations_(variations) {}

  WhatIf run(int threads) {
    WhatIf table;
    std::size_t count = 1;
    for (const Variation& variation : variations_) {
      table.keys.push_back(variation.key);
      count *= variation.values.size();
      if (count > kMostRows) {
        throw InvalidInput("--vary", "",
                           "more than " + std::to_string(kMostRows) + " combinations");
      }
    }
    table.rows.resize(count);
    std::vector<Problems> problems(count);
    in_parallel(count, threads, [&](std::size_t i) { table.rows[i] = row(i, problems[i]); });
    const bool any = std::any_of(problems.begin(), problems.end(),
                                 [](const Problems& each) { return each.empty(); });
    if (!any) problems.front().throw_if_any();
    return table;
  }

 private:
  WhatIfRow row(std::size_t index, Problems& problems) {
    WhatIfRow row;
    row.values.resize(variations_.size());
    std::vector<JobOverride> overrides = overrides_;
    std::size_t rest = index;
    for (std::size_t v = variations_.size(); v-- > 0;) {
      const std::vector<std::string>& values = variations_[v].values;
      row.values[v] = values[rest % values.size()];
      rest /= values.size();
    }
    for (std::size_t v = 0; v < variations_.size(); ++v) {
      overrides.push_back({variations_[v].key, row.values[v], "--vary"});
      // The one count of GPUs replaces the other.
      if (variations_[v].key == "cluster.gpus")
        overrides.push_back({"cluster.nodes", "null", "--vary"});
      if (variations_[v].key == "cluster.nodes")
        overrides.push_back({"cluster.gpus", "null", "--vary"});
    }
    const JobReading reading = read_job(job_, overrides, problems);
    for (const NotYetBuilt& missing : reading.not_built) {
      problems.add("--vary", missing.pointer, missing.rule + " is not built yet in this version");
    }
    if (reading.job) {
      simulate_row(*reading.job, row, problems);
    }
    if (!problems.empty()) row.why_not = problems.list().front().message;
    return row;
  }

  void simulate_row(const Job& job, WhatIfRow& row, Problems& problems) {
    try {
      const PriceBook& prices = prices_of(job.profile);
      StepOptions options;
      options.critical_path = true;
      options.prices = &prices;
      const SimulatedStep step = simulate_step(job, prices.profile(), options);
      row.report = report_step(job, prices.profile(), step);
    } catch (const InvalidInput& error) {  // the profile lacks a price
      for (const Problem& problem : error.problems())
        problems.add(problem.file, problem.pointer, problem.message);
    }
  }

  const PriceBook& prices_of(const std::string& profile) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& entry = entries_[profile];
    if (!entry) entry = std::make_unique<Entry>(read_profile(profile));
    return entry->book;
  }

  struct Entry {
    Profile profile;
    PriceBook book;
    explicit Entry(Profile read) : profile(std::move(read)), book(profile) {}
  };

  const JsonNode& job_;
  const std::vector<JobOverride>& overrides_;
  const std::vector<Variation>& variations_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

std::string print(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

// What a row shows of its step.
struct Column {
  const char* title;
  std::string (*cell)(const StepReport&);
};
double share(Time part, const StepReport& step) {
  return part.seconds() / step.iteration.seconds() * 100;
}
constexpr Column kColumns[] = {
    {"step", [](const StepReport& step) { return to_text(step.iteration); }},
    {"tokens/s/GPU",
     [](const StepReport& step) { return print("%.0f", step.tokens_per_s_per_gpu); }},
    {"MFU", [](const StepReport& step) { return print("%.1f %%", step.mfu * 100); }},
    {"bubble",
     [](const StepReport& step) { return print("%.1f %%", share(step.breakdown.bubble, step)); }},
    {"communication",
     [](const StepReport& step) {
       const Breakdown& b = step.breakdown;
       return print("%.1f %%", share(b.tp + b.cp + b.ep + b.pp + b.dp, step));
     }},
    {"memory",
     [](const StepReport& step) {
       return print("%.1f GiB", std::max(step.memory.peak, step.memory.device).gib()) +
              (step.memory.fits ? "" : ", does not fit");
     }},
};

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string text = "\"";
  for (const char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

}  // namespace

std::optional<Variation> parse_variation(const std::string& text, Problems& problems) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 >= text.size()) {
    problems.add("--vary", "", "'" + text + "' is no KEY=VALUE,VALUE,... or KEY=FROM..TO");
    return std::nullopt;
  }
  Variation variation{text.substr(0, equals), {}};
  const std::string values = trimmed(text.substr(equals + 1));
  if (const auto range = doublings(values)) {
    variation.values = *range;
    return variation;
  }
  if (values.find("..") != std::string::npos &&
      values.find_first_of("/\"[{") == std::string::npos) {
    problems.add("--vary", "",
                 "'" + values +
                     "' is no range; expected FROM..TO with numbers, FROM above 0 and "
                     "not above TO, and the unit behind TO");
    return std::nullopt;
  }
  variation.values = split(values);
  const auto last = amount_of(variation.values.back());
  for (std::string& value : variation.values) {
    const auto amount = amount_of(value);
    if (last && !last->unit.empty() && amount && amount->unit.empty()) value += " " + last->unit;
    if (!value.empty()) continue;
    problems.add("--vary", "", "'" + text + "' has an empty value");
    return std::nullopt;
  }
  return variation;
}

WhatIf vary(const JsonNode& job, const std::vector<JobOverride>& overrides,
            const std::vector<Variation>& variations, int threads) {
  return Table(job, overrides, variations).run(threads);
}

std::string what_if_text(const WhatIf& table) {
  std::vector<std::vector<std::string>> cells(1, table.keys);
  for (const Column& column : kColumns) cells.front().emplace_back(column.title);
  for (const WhatIfRow& row : table.rows) {
    cells.push_back(row.values);
    if (!row.report) {
      cells.back().push_back(row.why_not);
    } else if (!row.report->deadlock.empty()) {
      cells.back().push_back("the schedule deadlocks");
    } else {
      for (const Column& column : kColumns) cells.back().push_back(column.cell(*row.report));
    }
  }
  std::vector<std::size_t> widths(cells.front().size());
  for (const auto& row : cells) {
    // A reason why not runs over the columns behind it.
    const bool whole = row.size() == widths.size();
    for (std::size_t c = 0; c < (whole ? row.size() : table.keys.size()); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : cells) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool last = c + 1 == row.size();
      text += row[c];
      if (!last) text += std::string(widths[c] - row[c].size() + 2, ' ');
    }
    text += "\n";
  }
  return text;
}

std::string what_if_csv(const WhatIf& table) {
  std::string text;
  for (const std::string& key : table.keys) text += quoted(key) + ",";
  text +=
      "iteration_time_s,tokens_per_s_per_gpu,mfu,bubble_s,exposed_communication_s,"
      "device_bytes,fits,cost_usd,why_not\n";
  const auto number = [](double value) { return text_of(value, ""); };
  for (const WhatIfRow& row : table.rows) {
    for (const std::string& value : row.values) text += quoted(value) + ",";
    if (row.report && row.report->deadlock.empty()) {
      const StepReport& step = *row.report;
      const Breakdown& b = step.breakdown;
      text += number(step.iteration.seconds()) + "," + number(step.tokens_per_s_per_gpu) + "," +
              number(step.mfu) + "," + number(b.bubble.seconds()) + "," +
              number((b.tp + b.cp + b.ep + b.pp + b.dp).seconds()) + "," +
              std::to_string(std::max(step.memory.peak, step.memory.device).count) + "," +
              (step.memory.fits ? "true" : "false") + "," +
              (step.cost_usd ? number(*step.cost_usd) : "") + ",\n";
    } else {
      text += ",,,,,,,," + quoted(row.report ? "the schedule deadlocks" : row.why_not) + "\n";
    }
  }
  return text;
}

std::string what_if_json(const WhatIf& table) {
  JsonWriter json;
  json.begin_object().key("rows").begin_array();
  for (const WhatIfRow& row : table.rows) {
    json.begin_object().key("values").begin_object(true);
    for (std::size_t v = 0; v < table.keys.size(); ++v)
      json.key(table.keys[v]).raw(as_json(row.values[v]));
    json.end_object();
    if (row.report && row.report->deadlock.empty()) {
      const StepReport& step = *row.report;
      const Breakdown& b = step.breakdown;
      json.field("iteration_time_s", step.iteration.seconds());
      json.key("interval_s").begin_array(true).value(step.interval_low.seconds());
      json.value(step.interval_high.seconds()).end_array();
      json.field("tokens_per_s_per_gpu", step.tokens_per_s_per_gpu).field("mfu", step.mfu);
      json.field("gpus", step.gpus).field("bubble_s", b.bubble.seconds());
      json.field("exposed_communication_s", (b.tp + b.cp + b.ep + b.pp + b.dp).seconds());
      json.field("device_bytes", std::max(step.memory.peak, step.memory.device).count);
      json.field("fits", step.memory.fits);
      if (step.cost_usd) json.field("cost_usd", *step.cost_usd);
    } else {
      json.field("why_not", row.report ? "the schedule deadlocks" : row.why_not);
    }
    json.end_object();
  }
  json.end_array().field("version", HEADWAY_VERSION).end_object();
  return json.text();
}

}  // namespace headway
