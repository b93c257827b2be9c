#include "sim/cost/fit.hpp"

#include <array>
#include <functional>

#include "sim/cost/recipes/recipe.hpp"

namespace headway {

namespace {

struct Entry {
  const char* name;
  std::function<Profile(const PointSet&)> make;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
      {"a100-sxm-40gb", recipes::a100_40gb},
      {"a100-sxm-80gb", recipes::a100_80gb},
      {"b200", recipes::b200},
      {"b300", recipes::b300},
      {"gb200", recipes::gb200},
      {"gb300", recipes::gb300},
      {"h100-96gb-500w", recipes::h100_96gb},
      {"h100-sxm", recipes::h100},
      {"h200", recipes::h200},
      {"h800", recipes::h800},
      {"host-cpu", recipes::host_cpu},
      {"mi300x", recipes::mi300x},
      {"v100-sxm2-16gb",
       [](const PointSet& points) { return recipes::v100(points, "v100-sxm2-16gb"); }},
      {"v100-sxm2-32gb",
       [](const PointSet& points) { return recipes::v100(points, "v100-sxm2-32gb"); }},
  };
  return kEntries;
}

}  // namespace

std::vector<std::string> fitted_profiles() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  return names;
}

Profile fit_profile(const std::string& name, const PointSet& points) {
  for (const Entry& entry : entries()) {
    if (name == entry.name) return entry.make(points);
  }
  throw InvalidInput(name, "",
                     "no recipe for this profile; there are " + any_of(fitted_profiles()));
}

}  // namespace headway
