// The JSON form of a Program: what travels to another machine, what people read, what tests
// compare. Everything is named, nothing is numbered: buffers, ports, groups, streams and templates
// by their names, with the layer in brackets ("attention.output[+1]" relative,
// "attention.output[7]" absolute), the order as runs of pass name + micro-batch ("0F0 0F1 1F0").
// What has its default value is left out. Equal Programs give byte-equal texts, and a text reads
// back equal.
#pragma once

#include <string>

#include "sim/core/json_reader.hpp"
#include "sim/program/program.hpp"

namespace headway {

// REQUIRES: check(program) passes.
std::string to_json(const Program& program);

// Throws InvalidInput with every fault of the text, each at its JSON pointer; where there is none,
// with what check() finds.
Program read_program(const JsonNode& node);

}  // namespace headway
