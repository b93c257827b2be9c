// Bad input of every kind: exactly one clear message that names file and place, exit code 2,
// nothing on standard output, and no file.
#include <gmock/gmock.h>

#include "tests/commands/command_line.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class BadInput : public InFolder {
 protected:
  // The job with `piece` replaced is refused with one line: "FILE: place: ... said ...".
  void refuses(const std::string& piece, const std::string& by, const std::string& place,
               const std::string& said) {
    refuses_text(with(kSmallJob, piece, by), place, said);
  }
  void refuses_text(const std::string& text, const std::string& place, const std::string& said) {
    const std::string job = file("job.json", text);
    const Ran ran = run({"simulate", job, "--json", path("result.json"), "--trace",
                         path("trace.json"), "--program", path("program.json")});
    EXPECT_EQ(ran.exit_code, kBadInput) << ran.err;
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_EQ(lines_of(ran.err), 1) << ran.err;
    EXPECT_THAT(ran.err, AllOf(StartsWith("headway: " + job + ": " + place), HasSubstr(said)));
    EXPECT_THAT(files(), ElementsAre("job.json"));
  }
};

TEST_F(BadInput, UnknownKey) {
  refuses(R"("micro_batch")", R"("micro_bach")",
          "/plan/micro_bach: ", "did you mean \"micro_batch\"?");
}

TEST_F(BadInput, MisspeltValue) {
  refuses("megatron-2022", "megatron-2202", "/software/framework: ", "did you mean \"megatron-202");
  refuses("dgx-a100", "dgx-a10", "/cluster/topology: ", "did you mean \"dgx-a100\"?");
}

TEST_F(BadInput, NumberWithoutUnit) {
  refuses(R"("gpus": 8)", R"("gpus": 8, "links": {"nic": {"bandwidth": 200}})",
          "/cluster/links/nic/bandwidth: ", "200");
  refuses(R"("gpus": 8)", R"("gpus": 8, "links": {"nic": {"bandwidth": "200"}})",
          "/cluster/links/nic/bandwidth: ", "unit");
}

TEST_F(BadInput, TruncatedFile) {
  refuses_text(kSmallJob.substr(0, kSmallJob.size() / 2), "line 3", "not valid JSON");
  refuses_text("", "empty; expected JSON", "");
}

TEST_F(BadInput, IndivisibleDegree) {
  refuses(R"("tp": 2)", R"("tp": 3)",
          "/plan: ", "tp 3 x cp 1 x pp 2 = 6 does not divide the 8 GPUs");
  refuses(R"("global_batch": 16)", R"("global_batch": 15)", "/global_batch: ", "15");
}

TEST_F(BadInput, ZeroNegativeAndHuge) {
  for (const char* number : {"0", "-1", "2147483648", "1e999", "9223372036854775808"}) {
    const std::string place = std::string(number) == "1e999" ? "" : "/plan/tp: ";
    refuses(R"("tp": 2)", std::string(R"("tp": )") + number, place, "");
    refuses(R"("global_batch": 16)", std::string(R"("global_batch": )") + number,
            place.empty() ? "" : "/global_batch: ", "");
  }
}

TEST_F(BadInput, TooManyGpus) {
  refuses(R"("gpus": 8)", R"("gpus": 1000000)", "/cluster/topology: ", "too many GPUs: 1000000");
}

TEST_F(BadInput, MissingProfileEntry) {
  // The V100's profile has no bf16 matrix products: the device has none.
  const std::string job = file("job.json", with(kSmallJob, R"("topology": "dgx-a100", "gpus": 8)",
                                                R"("topology": "jean-zay-v100", "gpus": 8)"));
  const Ran ran = run({"simulate", job});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_THAT(ran.out, IsEmpty());
  EXPECT_EQ(lines_of(ran.err), 1) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("v100-sxm2-32gb"), HasSubstr("bf16")));
}

TEST_F(BadInput, NotANumber) {
  refuses(R"("tp": 2)", R"("tp": NaN)", "line 4", "");
  refuses(R"("tp": 2)", R"("tp": Infinity)", "line 4", "");
}

TEST_F(BadInput, DeepNesting) {
  refuses(R"("tp": 2)", R"("tp": )" + std::string(100000, '['), "", "");
}

TEST_F(BadInput, NoTextAtAll) {
  refuses_text(std::string("\xff\xfe\x00\x01", 4), "", "");
  refuses_text("[]", "", "");
  refuses_text("42", "", "");
}

TEST_F(BadInput, RulesThatAreNotBuilt) {
  refuses(R"("tp": 2)", R"("tp": 2, "tp_kind": "3d")",
          "/plan/tp_kind: ", "3d tensor parallelism is not built yet in this version");
}

TEST_F(BadInput, FileThatIsNotThere) {
  const Ran ran = run({"simulate", path("no.json"), "--json", path("result.json")});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_EQ(ran.err,
            "headway: " + path("no.json") + ": cannot be read: No such file or directory\n");
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_EQ(run({"simulate", path(".")}).exit_code, kBadInput);
}

TEST_F(BadInput, OptionsAreNamedInPlaceOfTheFile) {
  const std::string job = file("job.json", kSmallJob);
  const auto said = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"simulate", job});
    const Ran ran = run(options);
    EXPECT_EQ(ran.exit_code, kBadInput);
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_EQ(lines_of(ran.err), 1) << ran.err;
    return ran.err;
  };
  EXPECT_THAT(said({"--tp", "0"}), StartsWith("headway: --tp: 0 is not allowed; expected"));
  EXPECT_THAT(said({"--tp", "three"}), StartsWith("headway: --tp: \"three\" is not allowed"));
  EXPECT_THAT(said({"--tp="}), StartsWith("headway: --tp: "));
  EXPECT_THAT(said({"--set", "plan.micro_bach=2"}),
              AllOf(StartsWith("headway: --set: "), HasSubstr("micro_batch")));
  EXPECT_THAT(said({"--set", "plan"}), StartsWith("headway: --set: 'plan' is no KEY=VALUE"));
  EXPECT_THAT(said({"--detail", "atoms"}), StartsWith("headway: --detail: "));
  EXPECT_THAT(said({"--degrade", "nic"}),
              StartsWith("headway: --degrade: 'nic' is no NAME=NUMBER"));
  EXPECT_THAT(said({"--degrade", "nic=-1"}), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(said({"--degrade", "nic=nan"}), StartsWith("headway: --degrade: "));
  EXPECT_THAT(said({"--degrade", "nicht=0.5"}),
              HasSubstr("no links named 'nicht'; expected a kind ("));
  EXPECT_THAT(said({"--slow", "8=1.5"}),
              StartsWith("headway: --slow: '8' is no rank; expected 0 to 7"));
  EXPECT_THAT(said({"--slow", "-1=1.5"}), HasSubstr("is no rank"));
  EXPECT_THAT(said({"--jitter", "0"}),
              StartsWith("headway: --jitter: expected a number above 0, up to 1"));
  EXPECT_THAT(said({"--draws", "3"}), StartsWith("headway: --draws: needs --jitter"));
  EXPECT_THAT(said({"--seed", "3"}), StartsWith("headway: --seed: needs --jitter"));
  EXPECT_THAT(said({"--jitter", "0.1", "--draws", "0"}),
              StartsWith("headway: --draws: expected 1 to "));
  EXPECT_THAT(said({"--background", job}),
              HasSubstr("is no JOB.json@GPU with the number of a GPU"));
  EXPECT_THAT(said({"--background", job + "@0"}),
              HasSubstr("GPUs 0 to 7 are taken by the job, which has GPUs 0 to 7"));
  EXPECT_THAT(said({"--background", job + "@12"}),
              HasSubstr("must begin and end with whole nodes"));
  EXPECT_THAT(said({"--background", job + "@8", "--background", job + "@8"}),
              HasSubstr("GPUs 8 to 15 and GPUs 8 to 15 meet"));
  EXPECT_THAT(said({"--background", job + "@8", "--cluster", "dgx-h100"}),
              HasSubstr("is on dgx-a100, and the job on dgx-h100; expected one cluster"));
  EXPECT_THAT(said({"--json", "-", "--trace", "-"}), StartsWith("headway: --trace: - is taken"));
}

TEST_F(BadInput, EveryProblemIsReportedAtOnce) {
  const std::string job = file("job.json", with(with(kSmallJob, R"("tp": 2)", R"("tp": 0)"),
                                                "\"global_batch\"", "\"batch\""));
  const Ran ran = run({"simulate", job, "--precision", "bf61"});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("/plan/tp: 0"), HasSubstr("/batch: unknown key"),
                             HasSubstr("/global_batch: missing"), HasSubstr("--precision: ")));
}

TEST_F(BadInput, MeasuredRunsAreReadStrictly) {
  const auto said = [&](const std::string& text) {
    const std::string runs = file("runs.json", text);
    const Ran ran = run({"validate", runs, "--json", path("errors.json")});
    EXPECT_EQ(ran.exit_code, kBadInput);
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(files(), ElementsAre("runs.json"));
    EXPECT_THAT(ran.err, StartsWith("headway: " + runs + ": "));
    return ran.err;
  };
  EXPECT_THAT(said("{\"runs\": ["), HasSubstr("line 1"));
  EXPECT_THAT(said("{\"runs\": [], \"rums\": []}"), HasSubstr("did you mean \"runs\"?"));
}

}  // namespace
}  // namespace headway
