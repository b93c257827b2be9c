#include "sim/commands/command.hpp"

#include <gmock/gmock.h>

#include "sim/report/step_report.hpp"
#include "tests/commands/command_line.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(CommandLine, HelpOfEachCommandHasAnExample) {
  for (const Command& command : commands()) {
    for (const char* option : {"--help", "-h"}) {
      const Ran ran = run({command.name, option});
      EXPECT_EQ(ran.exit_code, kAnswered) << command.name;
      EXPECT_THAT(ran.out, HasSubstr("example: headway " + command.name)) << command.name;
      EXPECT_THAT(ran.err, IsEmpty());
    }
  }
}

TEST(CommandLine, HelpListsEveryCommand) {
  const Ran ran = run({"--help"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  for (const Command& command : commands()) {
    EXPECT_THAT(ran.out, HasSubstr("  " + command.name + " "));
  }
  EXPECT_THAT(ran.out, HasSubstr("\nexample: headway simulate "));
}

TEST(CommandLine, SaysItsVersion) {
  const Ran ran = run({"--version"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_EQ(ran.out, std::string("headway ") + HEADWAY_VERSION + "\n");
}

TEST(CommandLine, RefusesAnUnknownCommandWithTheNearest) {
  const Ran ran = run({"simulat", "job.json"});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_THAT(ran.err,
              AllOf(StartsWith("headway: there is no command 'simulat'; expected simulate"),
                    HasSubstr("did you mean simulate?")));
  EXPECT_THAT(ran.out, IsEmpty());
  EXPECT_EQ(run({}).exit_code, kBadInput);
}

TEST(CommandLine, RefusesCommandsOfLaterVersions) {
  for (const char* command : {"goodput", "plan", "whatif", "explain", "calibrate", "compare"}) {
    EXPECT_EQ(run({command}).exit_code, kBadInput) << command;
  }
}

TEST(CommandLine, RefusesAnUnknownOptionWithTheNearest) {
  const Ran ran = run({"simulate", "job.json", "--jsn", "-"});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_EQ(ran.err,
            "headway: there is no option --jsn (did you mean --json?); headway simulate --help "
            "lists them\n");
  EXPECT_THAT(ran.out, IsEmpty());
}

TEST(CommandLine, RefusesOptionsOfLaterVersions) {
  for (const std::vector<std::string>& later :
       {std::vector<std::string>{"--report", "page.html"}}) {
    std::vector<std::string> line = {"simulate", "job.json"};
    line.insert(line.end(), later.begin(), later.end());
    const Ran ran = run(line);
    EXPECT_EQ(ran.exit_code, kBadInput) << later.front();
    EXPECT_THAT(ran.err, StartsWith("headway: there is no option " + later.front()));
  }
}

TEST(CommandLine, RefusesAWordTooMuch) {
  const Ran ran = run({"simulate", "job.json", "another.json"});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_THAT(ran.err, StartsWith("headway: 'another.json' has no place here"));
  EXPECT_EQ(lines_of(ran.err), 1);
}

TEST(CommandLine, SaysWhatIsMissing) {
  EXPECT_EQ(run({"topology"}).err, "headway: cluster is required\n");
  EXPECT_THAT(run({"simulate"}).err, StartsWith("headway: command line: a job is missing"));
  EXPECT_EQ(run({"simulate"}).exit_code, kBadInput);
}

TEST(CommandLine, ADeadlockIsAFailedCheck) {
  StepReport report;
  EXPECT_EQ(exit_code_of(report, true), kAnswered);
  report.memory.fits = false;
  EXPECT_EQ(exit_code_of(report, false), kAnswered);
  EXPECT_EQ(exit_code_of(report, true), kDoesNotFit);
  report.deadlock = {"pipeline rank 0, 0F0: waits for activity 1"};
  EXPECT_EQ(exit_code_of(report, false), kCheckFailed);
  EXPECT_EQ(exit_code_of(report, true), kCheckFailed);
}

TEST(CommandLine, AFullStandardOutputIsTheMachinesFailure) {
  std::ostringstream err;
  std::ostream full(nullptr);  // every write fails
  EXPECT_EQ(run_command_line({{"list", "models"}, full, err}), kMachineFailed);
  EXPECT_EQ(err.str(), "headway: standard output: writing failed\n");
}

TEST(List, NamesWhatShipsWithSources) {
  EXPECT_THAT(run({"list", "models"}).out, AllOf(HasSubstr("gpt3-175b "), HasSubstr("llama3-405b "),
                                                 HasSubstr("arXiv 2205.05198")));
  EXPECT_THAT(run({"list", "clusters"}).out, AllOf(HasSubstr("dgx-a100 "), HasSubstr("host-cpu ")));
  EXPECT_THAT(run({"list", "profiles"}).out,
              AllOf(HasSubstr("a100-sxm-80gb "), HasSubstr("h100-sxm ")));
  EXPECT_THAT(run({"list", "schedules"}).out, AllOf(HasSubstr("1f1b "), HasSubstr("interleaved ")));
  EXPECT_THAT(run({"list", "frameworks"}).out, HasSubstr("megatron-2022 "));
  for (const char* what : {"models", "clusters", "profiles", "schedules", "frameworks"}) {
    const Ran ran = run({"list", what});
    EXPECT_EQ(ran.exit_code, kAnswered);
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_THAT(line, testing::EndsWith("]")) << "no source";
    }
  }
  EXPECT_EQ(run({"list", "cars"}).exit_code, kBadInput);
}

TEST(Doctor, SaysWhatIsThereAndHowToGetWhatIsNot) {
  const Ran ran = run({"doctor"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  for (const char* what : {"cores: ", "NVIDIA GPU: ", "nvcc: ", "NCCL: ", "OpenBLAS: ", "MPI: "}) {
    EXPECT_THAT(ran.out, HasSubstr(what));
  }
  EXPECT_THAT(ran.err, IsEmpty());
}

}  // namespace
}  // namespace headway
