#include "tests/support/folders.hpp"

#include <cstdlib>

namespace headway {

// Tests that travel to another machine find their files where the environment says.
std::string source_dir() {
  const char* elsewhere = std::getenv("HEADWAY_SOURCE_DIR");
  return elsewhere == nullptr ? HEADWAY_SOURCE_DIR : elsewhere;
}

std::string binary_dir() { return HEADWAY_BINARY_DIR; }

}  // namespace headway
