#include "sim/program/program.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "sim/core/error.hpp"
#include "tests/program/tiny_program.hpp"

namespace headway {
namespace {

// What check() says of two_stages() after `damage`.
std::string faults(const std::function<void(Program&)>& damage) {
  Program program = tiny::two_stages();
  damage(program);
  try {
    check(program, "program.json");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

TEST(Program, SoundOnesPass) {
  check(tiny::two_layers_on_one_rank(), "one.json");
  check(tiny::two_stages(), "two.json");
}

TEST(Program, TheKindOfARankFollowsItsPipelineCoordinate) {
  const Program program = tiny::two_stages();  // dp innermost: ranks 0 and 1 are the first stage
  EXPECT_EQ(program.kind_of(0), 0);
  EXPECT_EQ(program.kind_of(1), 0);
  EXPECT_EQ(program.kind_of(2), 1);
  EXPECT_EQ(program.kind_of(3), 1);
}

TEST(Program, ReferencesOutOfRangeAreNamedAllAtOnce) {
  EXPECT_EQ(
      faults([](Program& program) {
        program.templates[tiny::kLayer].operations[0].reads[0].family = 9;
        program.templates[tiny::kLayer].operations[1].stream = -1;
        program.templates[tiny::kLoss].operations[0].writes[0].layer = 1;
        program.kinds[0].passes[0].steps[1].template_index = 77;
        program.kinds[1].order[2].micro_batch = 2;
      }),
      "program.json: /templates/1/operations/0/reads/0: 9 is no buffer; there are 4\n"
      "program.json: /templates/1/operations/1/stream: -1 is no stream; there are 2\n"
      "program.json: /templates/2/operations/0/writes/0: \"gradient\" has no layers; here it is "
      "named at layer 1\n"
      "program.json: /kinds/0/passes/0/steps/1: 77 is no template; there are 9\n"
      "program.json: /kinds/1/order/2: there is no micro-batch 2 of 2");
}

TEST(Program, ADependencyOnALaterOperationIsAFault) {
  EXPECT_EQ(
      faults([](Program& program) { program.templates[tiny::kLayer].operations[0].after = {1}; }),
      "program.json: /templates/1/operations/0/after/0: operation 1 does not come before this "
      "one, 0");
}

TEST(Program, ABufferReadBeforeAnyWriteIsReportedOnceForAllMicroBatches) {
  EXPECT_EQ(
      faults([](Program& program) {
        program.kinds[0].passes[0].steps.erase(program.kinds[0].passes[0].steps.begin());
      }),
      "program.json: /kinds/0/order: 0F0 (issue 0): up of layer[0] reads \"hidden\" of layer 0, "
      "micro-batch 0, which nothing has written\n"
      "program.json: /kinds/0/order: 0B0 (issue 5): back of backward[0] reads \"hidden\" of "
      "layer 0, micro-batch 0, which nothing has written");
}

TEST(Program, AMessageNeedsItsPartner) {
  EXPECT_EQ(faults([](Program& program) {
              program.kinds[0].order.erase(program.kinds[0].order.begin() + 3);  // SEND_F 1
            }),
            "program.json: /kinds/1/order: 1RECV_F1 (issue 4): receives \"hidden\" of layer 1, "
            "micro-batch 1 (10 x bool) from pp 0 to pp 1, but the other end has no such send");
}

TEST(Program, BothEndsOfAMessageAgreeOnItsSize) {
  const std::string text = faults([](Program& program) {
    std::get<Collective>(program.templates[tiny::kSendForward].operations[0].operation).elements =
        9;
  });
  EXPECT_NE(text.find("sends \"hidden\" of layer 1, micro-batch 0 (9 x bool)"), std::string::npos);
  EXPECT_NE(text.find("receives \"hidden\" of layer 1, micro-batch 0 (10 x bool)"),
            std::string::npos);
}

TEST(Program, ARankDoesNotSendToItself) {
  EXPECT_EQ(faults([](Program& program) {
              program.templates[tiny::kSendForward].operations[0].peer_offset = 2;
              program.templates[tiny::kReceiveForward].operations[0].peer_axis = "tp";
            }),
            "program.json: /templates/4/operations/0/peer_offset: 2 leads back to the rank itself, "
            "along an axis of 2\n"
            "program.json: /templates/5/operations/0/peer_axis: \"tp\" is no axis of two ranks or "
            "more");
}

TEST(Program, APortIsReleasedOnceAndBeforeItIsAwaited) {
  const auto with_port = [](Program& program, bool released_in_loss) {
    program.ports = {{"ready", false, true}};
    if (released_in_loss) program.templates[tiny::kLoss].operations[0].releases = {{0, 0}};
    program.templates[tiny::kSendBackward].operations[0].awaits = {{0, 0}};
  };
  EXPECT_EQ(faults([&](Program& program) { with_port(program, true); }), "");
  EXPECT_EQ(
      faults([&](Program& program) { with_port(program, false); }),
      "program.json: /kinds/1/order: 1SEND_B0 (issue 3): send of send_backward[0] awaits port "
      "\"ready\", micro-batch 0, which nothing before it releases");
  EXPECT_EQ(faults([&](Program& program) {
              with_port(program, true);
              program.templates[tiny::kBackward].operations[0].releases = {{0, 0}};
            }),
            "program.json: /kinds/1/order: 1B0 (issue 2): back of backward[1] releases port "
            "\"ready\", micro-batch 0 again");
}

TEST(Program, WhatBelongsToAMicroBatchIsIssuedWithOne) {
  EXPECT_EQ(
      faults([](Program& program) {
        program.kinds[1].order.push_back({1, -1});
      }),
      "program.json: /kinds/1/order: 1F (issue 9): issued without a micro-batch, but there is "
      "one \"hidden\" for each");
}

TEST(Program, EveryPipelineCoordinateIsInOneKind) {
  EXPECT_EQ(faults([](Program& program) {
              program.kinds[1].stages = {0, 3};
            }),
            "program.json: /kinds/1/stages: 3 is no coordinate along \"pp\"; there are 2\n"
            "program.json: /kinds: the ranks of pipeline coordinate 0 are in 2 kinds\n"
            "program.json: /kinds: the ranks of pipeline coordinate 1 are in no kind");
}

TEST(Program, MembersOfAGroupAcrossStagesMeetEquallyOften) {
  EXPECT_EQ(
      faults([](Program& program) {
        program.groups[0].axes = {"dp", "pp"};
        program.kinds[0].order.push_back({4, -1});
      }),
      "program.json: /kinds/1/order: pipeline coordinate 1 meets group \"dp\" 1 times, pipeline "
      "coordinate 0 2 times");
}

TEST(Program, NamesAreUniqueAndReadableInAnOrder) {
  EXPECT_EQ(
      faults([](Program& program) {
        program.buffers[1].name = "weight";
        program.templates[0].name = "start[0]";
        program.kinds[0].passes[4].name = "0F1";
      }),
      "program.json: /buffers/1: \"weight\" is also the name of /buffers/0\n"
      "program.json: /templates/0: \"start[0]\" has a bracket or a space in it\n"
      "program.json: /kinds/0/passes/4: \"0F1\" could be read as pass \"0F\" with a micro-batch");
}

}  // namespace
}  // namespace headway
