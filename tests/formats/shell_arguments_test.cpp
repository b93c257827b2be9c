#include "sim/formats/shell_arguments.hpp"

#include <gmock/gmock.h>

#include "sim/core/error.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> read(std::string_view script) { return shell_arguments(script, "run.sh"); }

TEST(ShellArguments, ReadsABareList) {
  EXPECT_THAT(read("--tp 8\n--lr 1.0e-4 --bf16"),
              ElementsAre("--tp", "8", "--lr", "1.0e-4", "--bf16"));
}

TEST(ShellArguments, PutsInVariablesArraysAndProducts) {
  EXPECT_THAT(read(R"(#!/bin/bash
GPUS=8; NODES=${NODES:-4}
export WORLD=$(($GPUS*$NODES))
MODEL=(
    --num-layers 96   # a comment
    --world $WORLD
)
torchrun --nproc_per_node $GPUS --nnodes ${NODES} pretrain.py \
    ${MODEL[@]} "${MODEL[@]}" \
    --name "two words" 'as $it is'
)"),
              ElementsAre("--nproc_per_node", "8", "--nnodes", "4", "pretrain.py", "--num-layers",
                          "96", "--world", "32", "--num-layers", "96", "--world", "32", "--name",
                          "two words", "as $it is"));
}

TEST(ShellArguments, ReadsOptionsKeptInOneQuotedVariable) {
  EXPECT_THAT(read("OPTIONS=\" \\\n  --a 1 \\\n  --b \"\nOPTIONS+=' --c'\npython t.py $OPTIONS"),
              ElementsAre("--a", "1", "--b", "--c"));
}

TEST(ShellArguments, LeavesWhatOnlyTheShellKnows) {
  EXPECT_THAT(read("python t.py --data $1 --host $(hostname -s) --jobs $((N+1)) --x ${UNSET}"),
              ElementsAre("--data", "$1", "--host", "$(hostname -s)", "--jobs", "$((N+1))", "--x",
                          "${UNSET}"));
}

TEST(ShellArguments, LeavesOutTheScriptsOtherCommands) {
  EXPECT_THAT(read("mkdir --parents out && cd out\npython train.py --a 1 > log"),
              ElementsAre("--a", "1", ">", "log"));
  EXPECT_THAT(read("echo nothing"), IsEmpty());
}

TEST(ShellArguments, NamesTheLineOfAQuoteOrBracketWithoutEnd) {
  for (const char* script : {"--a\n--b \"c", "--a\n--b 'c", "X=1\nY=(1 2"}) {
    try {
      read(script);
      FAIL() << script;
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr("run.sh: line 2: "));
    }
  }
  EXPECT_THROW(read("--a ${X"), InvalidInput);
  EXPECT_THROW(read("--a $((1"), InvalidInput);
}

}  // namespace
}  // namespace headway
