#include <iostream>

#include "sim/commands/command.hpp"

int main(int argc, char** argv) {
  return headway::run_command_line({{argv + 1, argv + argc}, std::cout, std::cerr});
}
