// A file of measured points in the form that Google Benchmark writes (and `headway calibrate`
// reads), kept whole on disk after every point: a run that ends at any moment loses nothing, and
// the next one goes on with the points that are missing.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace headway {

struct MeasuredPoint {
  std::string name;
  double seconds = 0;
  std::map<std::string, double> counters;
  std::string error;  // why it could not be measured; then there is no time
};

class PointFile {
 public:
  // Reads what is there. `context` is written with every point: which device, which software.
  // Throws InvalidInput where the file is something else.
  PointFile(std::string path, std::map<std::string, std::string> context);

  bool has(const std::string& name) const;
  // Throws MachineFailure where it cannot be written.
  void add(MeasuredPoint point);
  const std::vector<MeasuredPoint>& points() const { return points_; }

 private:
  void read();
  std::string text() const;

  std::string path_;
  std::map<std::string, std::string> context_;
  std::vector<MeasuredPoint> points_;
};

}  // namespace headway
