#include <iostream>

#include "sim/commands/command.hpp"
#include "sim/core/heap.hpp"

int main(int argc, char** argv) {
  headway::use_huge_pages();
  return headway::run_command_line({{argv + 1, argv + argc}, std::cout, std::cerr});
}
