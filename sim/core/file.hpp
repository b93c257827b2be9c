// Whole files, in and out. A file is written under a temporary name beside its target and renamed,
// so a reader never sees half of it and a failure leaves the old one.
#pragma once

#include <string>
#include <string_view>

namespace headway {

// Whether a word of an input names a file, by a slash or such an ending, rather than something that
// ships under a name.
bool is_path(std::string_view word, std::string_view ending = ".json");

// Throws InvalidInput naming the path and the system's reason.
std::string read_file(const std::string& path);

// Throws MachineFailure naming the path and the system's reason; the target is then untouched.
void write_file(const std::string& path, std::string_view content);

}  // namespace headway
