// The JSON form of a Timeline: how an executor hands what it measured to whoever reports it. Times
// are integers in picoseconds; spans are one flat list of six numbers each (start, end, device,
// stream, instance, task). A text reads back equal.
#pragma once

#include "sim/core/json_reader.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/engine/timeline.hpp"

namespace headway {

// Writes the timeline as a value.
void write_timeline(JsonWriter& json, const Timeline& timeline);

// Problems are added; the timeline is then not to be used.
Timeline read_timeline(const JsonNode& node, Problems& problems);

}  // namespace headway
