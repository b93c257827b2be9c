// The arguments of a launch script, as far as they can be told without running it: the words of
// the commands that carry options, with the script's own variables, arrays and products put in.
// What only a running shell knows ("$1", "$(hostname)") stays as it is written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headway {

// The options of a script or of a bare list of arguments, in order: everything from a command's
// first word with a leading "--". Throws InvalidInput (with the line) for a quote or bracket that
// does not end.
std::vector<std::string> shell_arguments(std::string_view script, const std::string& file);

}  // namespace headway
