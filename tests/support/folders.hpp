#pragma once

#include <string>

// Where the tests' inputs lie and where they may write. The paths are compiled into one file, so
// that clones of the project share every other object.

namespace headway {

/// The root of the source tree: golden files, jobs, published runs.
std::string source_dir();

/// The root of the build tree: files a test writes.
std::string binary_dir();

}  // namespace headway
