// Jobs from and to torchtitan's TOML (torchtitan/config/job_config.py, 2024 to 2025: the sections
// [parallelism] and, before it, the degrees in [training] and [experimental]).
#pragma once

#include <string>
#include <string_view>

#include "sim/formats/job_draft.hpp"
#include "sim/plan/job.hpp"

namespace headway {

// Throws InvalidInput with every problem; `file` stands for the text in messages.
JobDraft import_torchtitan(std::string_view text, const std::string& file);

// Throws InvalidInput with every part of the job that torchtitan cannot do.
std::string export_torchtitan(const Job& job, const std::string& name);

}  // namespace headway
