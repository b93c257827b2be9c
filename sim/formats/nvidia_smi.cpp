#include "sim/formats/nvidia_smi.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <vector>

#include "sim/core/error.hpp"

namespace headway {

namespace {

struct Matrix {
  std::vector<std::string> names;               // of rows and columns: GPU0, NIC0
  std::vector<std::vector<std::string>> cells;  // by row
  std::vector<std::string> affinity;            // CPUs of each GPU row, where printed
};

bool names_device(const std::string& word) {
  return (word.starts_with("GPU") || word.starts_with("NIC") || word.starts_with("mlx")) &&
         word.size() > 3;
}
bool names_gpu(const std::string& word) { return word.starts_with("GPU"); }

// Words of a line without the terminal's underlining.
std::vector<std::string> words_of(const std::string& line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else {
      plain += line[i];
    }
  }
  std::istringstream stream(plain);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The links of "NV12"; 0: no such word.
int nvlinks(const std::string& cell) {
  int links = 0;
  if (!cell.starts_with("NV")) return 0;
  const char* const end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data() + 2, end, links);
  return error == std::errc() && stop == end && links > 0 ? links : 0;
}

bool is_cell(const std::string& word) {
  static const std::set<std::string> kWords = {"X", "SYS", "NODE", "PHB", "PXB", "PIX"};
  return kWords.contains(word) || nvlinks(word) > 0;
}

bool through_switches(const std::string& cell) { return cell == "PIX" || cell == "PXB"; }

[[noreturn]] void fail(const std::string& file, int line, const std::string& what) {
  throw InvalidInput(file, "", "line " + std::to_string(line) + ": " + what);
}

Matrix read_matrix(std::string_view text, const std::string& file) {
  Matrix matrix;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    if (matrix.names.empty()) {
      // The heading: devices, then "CPU Affinity" and more.
      if (!names_gpu(words[0]) || (words.size() > 1 && is_cell(words[1]))) continue;
      for (const std::string& word : words) {
        if (!names_device(word)) break;
        matrix.names.push_back(word);
      }
      continue;
    }
    const std::size_t row = matrix.cells.size();
    if (row == matrix.names.size()) break;
    if (!names_device(words[0])) fail(file, number, "expected the row of " + matrix.names[row]);
    if (words[0] != matrix.names[row]) {
      fail(file, number, "the row of " + words[0] + "; expected " + matrix.names[row]);
    }
    if (words.size() < 1 + matrix.names.size()) {
      fail(file, number,
           "the row of " + words[0] + " has " + std::to_string(words.size() - 1) +
               " entries; expected " + std::to_string(matrix.names.size()));
    }
    std::vector<std::string> cells(
        words.begin() + 1, words.begin() + 1 + static_cast<std::ptrdiff_t>(matrix.names.size()));
    for (std::size_t column = 0; column < cells.size(); ++column) {
      if (!is_cell(cells[column]) || (cells[column] == "X") != (column == row)) {
        fail(file, number,
             "\"" + cells[column] + "\" between " + words[0] + " and " + matrix.names[column] +
                 "; expected NV#, PIX, PXB, PHB, NODE or SYS, and X on the diagonal");
      }
    }
    matrix.affinity.push_back(words.size() > 1 + cells.size() ? words[1 + cells.size()] : "");
    matrix.cells.push_back(std::move(cells));
  }
  if (matrix.names.empty()) {
    throw InvalidInput(file, "", "no matrix of GPUs; expected what `nvidia-smi topo -m` prints");
  }
  if (matrix.cells.size() < matrix.names.size()) {
    fail(file, number, "ends before the row of " + matrix.names[matrix.cells.size()]);
  }
  return matrix;
}

// NVLinks between GPUs: as many between all of them, or none.
void read_fabric(const Matrix& matrix, const std::string& file, std::size_t gpus,
                 NodeDraft& draft) {
  std::set<int> counts;
  std::set<int> sums;
  bool cube = gpus == 8;
  for (std::size_t a = 0; a < gpus; ++a) {
    int sum = 0, peers = 0;
    for (std::size_t b = 0; b < gpus; ++b) {
      if (a == b) continue;
      const int links = nvlinks(matrix.cells[a][b]);
      if (links != nvlinks(matrix.cells[b][a])) {
        throw InvalidInput(
            file, "",
            matrix.names[a] + " and " + matrix.names[b] + " do not agree on what is between them");
      }
      counts.insert(links);
      sum += links;
      peers += links > 0 ? 1 : 0;
    }
    sums.insert(sum);
    cube = cube && peers == 4;
  }
  constexpr int kMostLinks = 18;  // of a GPU, up to Blackwell
  if (counts.empty() || counts == std::set<int>{0}) {
    draft.fabric = "pcie";
  } else if (counts.size() == 1) {
    const int each = *counts.begin(), direct = each * static_cast<int>(gpus - 1);
    // A switch gives every peer all links; more than a GPU has cannot go to each directly.
    draft.fabric = direct > kMostLinks ? "nvswitch" : "all-to-all";
    draft.links = direct > kMostLinks ? each : direct;
  } else if (cube && sums == std::set<int>{6}) {
    draft.fabric = "hybrid-cube-mesh";
    draft.links = 6;
  } else {
    throw InvalidInput(file, "",
                       "its GPUs are joined by NVLink as no generator joins them: neither as many "
                       "links between any two, nor a hybrid cube mesh of eight");
  }
}

}  // namespace

NodeDraft import_nvidia_smi(std::string_view text, const std::string& file) {
  const Matrix matrix = read_matrix(text, file);
  const auto gpus =
      static_cast<std::size_t>(std::count_if(matrix.names.begin(), matrix.names.end(), names_gpu));
  NodeDraft draft;
  draft.source = file;
  draft.format = "nvidia-smi topo -m";
  draft.gpus = static_cast<int>(gpus);
  read_fabric(matrix, file, gpus, draft);
  // NICs behind the switches of GPUs, where there are such.
  std::vector<std::size_t> near, far;
  for (std::size_t n = gpus; n < matrix.names.size(); ++n) {
    bool any = false;
    for (std::size_t g = 0; g < gpus; ++g) any = any || through_switches(matrix.cells[g][n]);
    (any ? near : far).push_back(n);
  }
  if (near.empty()) near.swap(far);
  for (const std::size_t n : far) {
    draft.left_out.push_back(matrix.names[n] + ", which no GPU is near");
  }
  draft.nics = static_cast<int>(near.size());
  if (draft.nics > 0 && draft.gpus % draft.nics != 0 && draft.nics % draft.gpus != 0) {
    throw InvalidInput(file, "",
                       std::to_string(draft.nics) + " NICs cannot be divided among " +
                           std::to_string(draft.gpus) + " GPUs");
  }
  // GPUs behind one switch have the same NICs, or see each other through it.
  std::set<std::vector<std::size_t>> switches;
  for (std::size_t g = 0; g < gpus; ++g) {
    std::vector<std::size_t> behind;
    for (std::size_t other = 0; other < matrix.names.size(); ++other) {
      if (other == g ? draft.fabric == "pcie" : through_switches(matrix.cells[g][other])) {
        behind.push_back(other);
      }
    }
    if (behind.size() > (draft.fabric == "pcie" ? 1U : 0U)) switches.insert(behind);
  }
  if (!switches.empty()) {
    draft.pcie_switches = static_cast<int>(switches.size());
  } else if (draft.fabric == "pcie") {
    draft.pcie_switches = 0;
  }
  std::set<std::string> sockets(matrix.affinity.begin(),
                                matrix.affinity.begin() + static_cast<std::ptrdiff_t>(gpus));
  draft.sockets = sockets.size() > 1 ? 2 : 1;
  return draft;
}

}  // namespace headway
