#include "tests/support/folders.hpp"

namespace headway {

std::string source_dir() { return HEADWAY_SOURCE_DIR; }

std::string binary_dir() { return HEADWAY_BINARY_DIR; }

}  // namespace headway
