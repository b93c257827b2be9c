#include "kernels/execute/global_tensors.hpp"

#include <algorithm>
#include <cmath>

namespace headway {
namespace {

std::string global_name(const BufferFamily& family, const TensorPart& part, int layer) {
  return family.per_layer ? "layers." + std::to_string(layer) + "." + part.name : part.name;
}

// The share of a rank in a group: which of how many.
struct Share {
  std::int64_t index = 0, size = 1;
};
Share share_of(const Program& program, int rank, int group) {
  if (group < 0) return {};
  const GroupFamily& family = program.groups[static_cast<std::size_t>(group)];
  return {program.grid.index_in_group(family, rank), program.grid.group_size(family)};
}

// A block of a part: all of it where there is a single block.
void add_part(const Program& program, int rank, const BufferFamily& family, const TensorPart& part,
              int layer, std::int64_t block, std::int64_t& local, std::vector<Fragment>& out) {
  Share by_rows, by_columns = share_of(program, rank, part.cross_group);
  if (part.sharded_dimension == 0) by_rows = share_of(program, rank, part.group);
  if (part.sharded_dimension == 1) {
    by_rows = by_columns;
    by_columns = share_of(program, rank, part.group);
  }
  const std::int64_t whole = part.rows / family.blocks;
  const std::int64_t rows = whole / by_rows.size, columns = part.columns / by_columns.size;
  const std::int64_t first_row = block * whole + by_rows.index * rows;
  const std::int64_t first_column = by_columns.index * columns;
  const std::string name = global_name(family, part, layer);
  if (columns == part.columns) {
    out.push_back({name, part.rows, part.columns, local, first_row * columns, rows * columns});
  } else {
    for (std::int64_t row = 0; row < rows; ++row) {
      out.push_back({name, part.rows, part.columns, local + row * columns,
                     (first_row + row) * part.columns + first_column, columns});
    }
  }
  local += rows * columns;
}

// What [first, first + count) of `whole` holds, moved to begin at 0.
std::vector<Fragment> cut(const std::vector<Fragment>& whole, std::int64_t first,
                          std::int64_t count) {
  std::vector<Fragment> out;
  for (Fragment fragment : whole) {
    const std::int64_t begin = std::max(fragment.local, first);
    const std::int64_t end = std::min(fragment.local + fragment.count, first + count);
    if (begin >= end) continue;
    fragment.global += begin - fragment.local;
    fragment.local = begin - first;
    fragment.count = end - begin;
    out.push_back(fragment);
  }
  return out;
}

}  // namespace

std::vector<Fragment> fragments(const Program& program, int rank, const BufferInstance& buffer) {
  const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
  std::vector<Fragment> out;
  std::int64_t local = 0;
  const Share run = share_of(program, rank, family.block_group);
  const std::int64_t blocks = family.blocks / run.size;
  for (std::int64_t block = run.index * blocks; block < (run.index + 1) * blocks; ++block) {
    for (const TensorPart& part : family.parts) {
      add_part(program, rank, family, part, buffer.layer, block, local, out);
    }
  }
  if (family.mirrors.empty()) return out;
  for (const BufferRef& mirror : family.mirrors) {
    const BufferInstance mirrored = instance_of(program, mirror, buffer.layer, -1);
    for (Fragment fragment : fragments(program, rank, mirrored)) {
      fragment.local += local;
      out.push_back(fragment);
    }
    local += program.buffers[static_cast<std::size_t>(mirror.family)].elements();
  }
  const Share share = share_of(program, rank, family.row_group);
  return cut(out, share.index * family.elements(), family.elements());
}

void GlobalTensors::add(const std::vector<Fragment>& held, const std::vector<double>& values) {
  for (const Fragment& fragment : held) {
    GlobalTensor& tensor = tensors_[fragment.tensor];
    if (tensor.values.empty()) {
      tensor.rows = fragment.rows;
      tensor.columns = fragment.columns;
      tensor.values.resize(static_cast<std::size_t>(fragment.rows * fragment.columns));
      tensor.known.resize(tensor.values.size());
    }
    for (std::int64_t i = 0; i < fragment.count; ++i) {
      const auto at = static_cast<std::size_t>(fragment.global + i);
      const double value = values[static_cast<std::size_t>(fragment.local + i)];
      if (tensor.known[at]) {
        const double difference = std::fabs(tensor.values[at] - value);
        // A NaN on one side disagrees with everything, and stays to be seen.
        if (!(difference <= tensor.disagreement)) tensor.disagreement = difference;
      }
      if (!tensor.known[at] || std::isnan(value)) tensor.values[at] = value;
      tensor.known[at] = true;
    }
  }
}

double GlobalTensors::norm() const {
  double sum = 0;
  for (const auto& [name, tensor] : tensors_) {
    for (const double value : tensor.values) sum += value * value;
  }
  return std::sqrt(sum);
}

}  // namespace headway
