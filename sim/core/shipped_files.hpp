// The data files that the program ships (model presets, framework presets, topologies, profiles),
// compiled in so that it needs no search path. Made from the files at build time (core/embed.cmake).
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace headway {

struct ShippedFile {
  std::string_view path;  // "topologies/dgx-a100.json"
  std::string_view content;
};

// All of them, by path.
std::span<const ShippedFile> shipped_files();

// The file at the path; nullptr where there is none.
inline const ShippedFile* find_shipped_file(std::string_view path) {
  for (const ShippedFile& file : shipped_files()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

// The names (without folder and ".json") of the files in a folder such as "topologies/", sorted.
inline std::vector<std::string_view> shipped_names(std::string_view folder) {
  std::vector<std::string_view> names;
  for (const ShippedFile& file : shipped_files()) {
    if (!file.path.starts_with(folder) || !file.path.ends_with(".json")) continue;
    names.push_back(file.path.substr(folder.size(), file.path.size() - folder.size() - 5));
  }
  return names;
}

}  // namespace headway
