// Jobs from and to DeepSpeed's configuration JSON (deepspeed.ai, "DeepSpeed Configuration JSON").
// The file says how a model is trained, not which model on what: these are listed as missing.
#pragma once

#include <string>

#include "sim/core/json_reader.hpp"
#include "sim/formats/job_draft.hpp"
#include "sim/plan/job.hpp"

namespace headway {

// Throws InvalidInput with every problem. A value "auto" (Hugging Face fills it) counts as absent.
JobDraft import_deepspeed(const JsonNode& file);

// Throws InvalidInput with every part of the job that DeepSpeed's file cannot ask for.
std::string export_deepspeed(const Job& job, const std::string& name);

}  // namespace headway
