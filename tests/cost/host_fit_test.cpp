#include "sim/cost/host_fit.hpp"

#include <gmock/gmock.h>

#include "sim/core/file.hpp"
#include "sim/cost/compute_cost.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/measured_host.hpp"

namespace headway {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string file(const std::string& text) {
  const std::string path = binary_dir() + "/tests/cost/measured_host.json";
  write_file(path, text);
  return path;
}

const Profile& profile() {
  static const Profile kProfile =
      fit_host(read_host_measurements({file(measured_host_json())}), "mpi", "a test");
  return kProfile;
}

TEST(HostFit, PricesMeasuredShapesWithTheirIssue) {
  const ComputeCost cost(profile());
  Gemm gemm;
  gemm.m = gemm.n = gemm.k = 256;
  gemm.type = gemm.output = DataType::kFp32;
  // 2 x 256^3 / 50 GFLOP/s and a microsecond to issue.
  EXPECT_NEAR(cost.price(gemm).time.microseconds(), 671.1 + 1, 7);
  EXPECT_EQ(cost.price(gemm).grade, Grade::kMeasured);
  Kernel copy;
  copy.kind = KernelKind::kCopy;
  copy.rows = 512;
  copy.columns = 1024;
  copy.type = copy.output = DataType::kFp32;
  EXPECT_NEAR(cost.price(copy).time.microseconds(), 419.4 + 1, 0.1);
  // Nobody measured it: it moves its bytes as a copy does.
  Kernel scale = copy;
  scale.kind = KernelKind::kScale;
  EXPECT_NEAR(cost.price(scale).time.microseconds(), 419.4 + 1, 0.1);
}

TEST(HostFit, AttentionHasOneRateWhateverItIsCalled) {
  const ComputeCost cost(profile());
  Attention attention;
  attention.batch = 1;
  attention.heads = attention.kv_heads = 4;
  attention.sequence_q = attention.sequence_kv = 256;
  attention.head_dim = attention.head_dim_v = 64;
  attention.type = DataType::kFp32;
  // 2 x 4 x 256^2 x 128 / 2 at 10 GFLOP/s.
  for (const AttentionKernel kernel : {AttentionKernel::kFlash2, AttentionKernel::kFlash3}) {
    attention.kernel = kernel;
    EXPECT_NEAR(cost.price(attention).time.microseconds(), 3355.4 + 1, 0.03 * 3355);
  }
}

TEST(HostFit, CollectivesAndMessagesAreCurves) {
  std::map<CollectiveKind, double> at_64_kib;
  for (const CollectiveCurve& curve : profile().collectives) {
    EXPECT_EQ(curve.ranks, 2);
    at_64_kib[curve.kind] = curve.time_us.at(65536);
  }
  EXPECT_NEAR(at_64_kib.at(CollectiveKind::kAllReduce), 20 + 32.768, 1e-3);
  EXPECT_NEAR(at_64_kib.at(CollectiveKind::kSend), 20 + 32.768, 1e-3);
  EXPECT_TRUE(profile().core_communicates);
}

TEST(HostFit, TheProfileReadsBackEqual) {
  const std::string text = profile_text(profile());
  EXPECT_EQ(profile_text(parse_profile(text, "profile")), text);
}

TEST(HostFit, WhatIsNotUnderstoodIsNamed) {
  EXPECT_THAT([] { read_host_measurements({file("[]")}); },
              ThrowsMessage<InvalidInput>(HasSubstr("Google Benchmark")));
  const std::string text =
      R"({"benchmarks": [{"name": "gemm/sideways/fp32/1/1/1", "real_time": 1, "time_unit": "us"},
                         {"name": "kernel/copy/fp32/1/1", "real_time": 1, "time_unit": "weeks"}]})";
  EXPECT_THAT([&] { read_host_measurements({file(text)}); },
              ThrowsMessage<InvalidInput>(testing::AllOf(
                  HasSubstr("/benchmarks/0: 'gemm/sideways/fp32/1/1/1' is no benchmark"),
                  HasSubstr("/benchmarks/1"))));
  EXPECT_THAT([] { fit_host({}, "mpi", ""); },
              ThrowsMessage<InvalidInput>(HasSubstr("no gemm/*/fp32 benchmark")));
}

}  // namespace
}  // namespace headway
