#include "sim/cost/points.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/file.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using ::testing::HasSubstr;

class PointFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = binary_dir() + "/points_" + info->name();
    std::filesystem::create_directories(folder_);
    write("gemm.csv", kGemm);
    write("gemm-host-cpu.csv", kGemm);
    write("attention.csv",
          "gpu,dtype,kind,batch,heads,kv_heads,seq,head_dim_qk,head_dim_v,causal,impl,time_us,flag,"
          "source\nX,bf16,fwd,1,16,4,4096,128,128,1,FA2,444.49,,fa-readme-plot\n");
    write(
        "elementwise.csv",
        "gpu,op,dtype,shape,time_us,flag,source,note\nX,rms_norm,fp16,4096x8192,193,,vidur,fwd\n");
    write("collectives.csv",
          "gpu,op,nranks,gpus_per_node,nic,bytes,time_us,inplace,flag,source\n"
          "X,all_reduce,8,8,none(intra),1024,16.1,1,,aic-nccl\n");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& content) {
    write_file(folder_ + "/" + name, content);
  }
  std::string message() {
    try {
      read_points(folder_);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "no error";
  }

  const std::string kHeader = "gpu,dtype,m,n,k,layout,time_us,flag,source\n";
  const std::string kGemm = kHeader + "X,bf16,1024,2048,4096,NT,21.5,,simumax-b200\n";
  std::string folder_;
};

TEST_F(PointFiles, AreRead) {
  const PointSet set = read_points(folder_);
  ASSERT_EQ(set.gemm.size(), 2U);
  EXPECT_EQ(set.gemm[0].shape, (GemmShape{1024, 2048, 4096}));
  EXPECT_EQ(set.gemm[0].layout, "NT");
  EXPECT_DOUBLE_EQ(set.gemm[0].time_us, 21.5);
  ASSERT_EQ(set.attention.size(), 1U);
  EXPECT_EQ(set.attention[0].point.kv_heads, 4);
  EXPECT_TRUE(set.attention[0].point.causal);
  ASSERT_EQ(set.elementwise.size(), 1U);
  ASSERT_EQ(set.collectives.size(), 1U);
  EXPECT_TRUE(set.collectives[0].in_place);
}

TEST_F(PointFiles, RowsWithoutAShapeAreCeilingsAndLeftOut) {
  write("gemm.csv", kGemm + "X,bf16,,,,torch.matmul,,,stas00-mamf\n");
  EXPECT_EQ(read_points(folder_).gemm.size(), 2U);
}

TEST_F(PointFiles, NameTheLineOfABadNumber) {
  write("gemm.csv", kGemm + "X,bf16,1024,zwei,4096,TN,21.5,,aic\nX,bf16,1024,2,4096,TN,-1,,aic\n");
  const std::string text = message();
  EXPECT_THAT(text, HasSubstr("gemm.csv: line 3: n is 'zwei'; expected a positive number"));
  EXPECT_THAT(text, HasSubstr("line 4: time_us is '-1'"));
}

TEST_F(PointFiles, NameALineOfTheWrongLength) {
  write("gemm.csv", kGemm + "X,bf16,1024\n");
  EXPECT_THAT(message(), HasSubstr("line 3: 3 fields; expected 9"));
}

TEST_F(PointFiles, NameAMissingColumn) {
  write("collectives.csv", "gpu,op,nic,nranks\nX,all_reduce,none(intra),8\n");
  EXPECT_THAT(message(), HasSubstr("no column 'time_us'"));
}

TEST_F(PointFiles, AreKnownByTheirColumnsAlone) {
  write("mine.csv", "source,time_us,k,n,m,layout,dtype,gpu,flag\nme,21.5,64,32,16,NN,bf16,X,\n");
  write("p2p.csv",
        "gpu,link,kind,bytes,time_us,gbps_GB/s,source,note\n"
        "X,intra-node NVLink,nccl send/recv,2048,17,,vidur,\n");
  write("moe.csv", "gpu,kind,dtype,shape,nranks,source\nX,grouped_gemm_fwd,bf16,groups=8,1,me\n");
  PointSet set;
  Problems problems;
  for (const char* name : {"mine.csv", "p2p.csv", "moe.csv"}) {
    read_points_file(folder_ + "/" + name, set, problems);
  }
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(set.gemm.size(), 1U);
  EXPECT_EQ(set.gemm[0].shape, (GemmShape{16, 32, 64}));
  ASSERT_EQ(set.sends.size(), 1U);
  EXPECT_DOUBLE_EQ(set.sends[0].bytes, 2048);
  EXPECT_EQ(set.experts.size(), 1U);
  write("other.csv", "a,b\n1,2\n");
  read_points_file(folder_ + "/other.csv", set, problems);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems.list()[0].text(), HasSubstr("other.csv: line 1: no points"));
}

TEST_F(PointFiles, NameAnEmptyFile) {
  write("attention.csv", "");
  EXPECT_THAT(message(), HasSubstr("attention.csv: line 1: empty"));
}

TEST(Device, IsKnownByTheNamesOfPointsDriversAndProfiles) {
  EXPECT_EQ(device_of_gpu("A100-SXM4-80GB"), "a100-sxm-80gb");
  EXPECT_EQ(device_of_gpu("NVIDIA H100 80GB HBM3"), "h100-sxm");
  EXPECT_EQ(device_of_gpu("b200"), "b200");
  EXPECT_EQ(device_of_gpu("B200?"), std::nullopt);  // inferred by its compiler, not stated
}

TEST(Regime, FollowsFromTheSource) {
  EXPECT_EQ(regime_of("aic-trtllm1.3.0rc20"), Regime::kBurst);
  EXPECT_EQ(regime_of("simumax-b200"), Regime::kSustained);
  EXPECT_EQ(regime_of("ds-profile-train"), Regime::kInFramework);
  EXPECT_EQ(regime_of("somewhere"), std::nullopt);
}

}  // namespace
}  // namespace headway
