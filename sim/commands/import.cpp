#include <CLI/CLI.hpp>
#include <ostream>

#include "sim/commands/command.hpp"
#include "sim/formats/huggingface.hpp"

namespace headway {

int import_command(const CommandLine& line) {
  CLI::App app("Turns another tool's file into ours.", "headway import");
  std::string format, file, output = "-";
  app.add_option("format", format, "hf: Hugging Face config.json -> model")
      ->required()
      ->check(CLI::IsMember({"hf"}));
  app.add_option("file", file, "the file")->required();
  app.add_option("-o,--output", output, "where to write; - is standard output");
  app.footer("example: headway import hf config.json -o model.json");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  const HuggingFaceImport imported = import_huggingface(file);
  write_answer(output, imported.model_json, line);
  for (const std::string& key : imported.ignored) {
    line.err << "note: " << file << ": /" << key << " does not matter to cost and is ignored\n";
  }
  for (const std::string& what : imported.left_out) {
    line.err << "note: an inline model cannot state, so this is left out: " << what << '\n';
  }
  return kAnswered;
}

}  // namespace headway
