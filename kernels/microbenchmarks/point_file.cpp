#include "kernels/microbenchmarks/point_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "sim/core/error.hpp"
#include "sim/core/file.hpp"
#include "sim/core/json_reader.hpp"
#include "sim/core/json_writer.hpp"

namespace headway {
namespace {

constexpr double kMicroseconds = 1e6;
// What a point has beside its counters.
constexpr const char* kOwnKeys[] = {"name",           "run_name",      "run_type", "real_time",
                                    "error_occurred", "error_message", "time_unit"};

bool is_own(const std::string& key) {
  return std::find(std::begin(kOwnKeys), std::end(kOwnKeys), key) != std::end(kOwnKeys);
}

}  // namespace

PointFile::PointFile(std::string path, std::map<std::string, std::string> context)
    : path_(std::move(path)), context_(std::move(context)) {
  if (std::filesystem::exists(path_)) read();
}

void PointFile::read() {
  const JsonNode document = JsonNode::parse_file(path_);
  const auto list = document.is_object() ? document.find("benchmarks") : std::nullopt;
  if (!list || !list->is_array()) {
    throw InvalidInput(path_, "/benchmarks", "missing; expected a file of measured points");
  }
  for (const JsonNode& node : list->elements()) {
    MeasuredPoint point;
    if (const auto name = node.find("name")) point.name = name->string();
    if (const auto error = node.find("error_message")) point.error = error->string();
    if (const auto time = node.find("real_time")) point.seconds = time->number() / kMicroseconds;
    for (const std::string& key : node.keys()) {
      const auto value = node.find(key);
      if (!is_own(key) && value->is_number()) point.counters[key] = value->number();
    }
    points_.push_back(std::move(point));
  }
}

bool PointFile::has(const std::string& name) const {
  return std::any_of(points_.begin(), points_.end(),
                     [&](const MeasuredPoint& point) { return point.name == name; });
}

void PointFile::add(MeasuredPoint point) {
  points_.push_back(std::move(point));
  write_file(path_, text());
}

std::string PointFile::text() const {
  JsonWriter json(1);
  json.begin_object().key("context").begin_object();
  for (const auto& [key, value] : context_) json.field(key, value);
  json.end_object().key("benchmarks").begin_array();
  for (const MeasuredPoint& point : points_) {
    json.begin_object(true).field("name", point.name).field("run_type", "iteration");
    if (!point.error.empty()) {
      json.field("error_occurred", true).field("error_message", point.error);
    } else {
      json.field("real_time", point.seconds * kMicroseconds).field("time_unit", "us");
    }
    for (const auto& [key, value] : point.counters) {
      if (std::isfinite(value)) json.field(key, value);
    }
    json.end_object();
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace headway
