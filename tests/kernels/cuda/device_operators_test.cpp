#include "kernels/cuda/device_operators.hpp"

#include "tests/kernels/cuda/both_backends.hpp"

namespace headway {
namespace {

constexpr std::int64_t kVocabulary = 12;

// A letter for each operand of a kernel over [rows, columns]:
//   x [rows, columns], d [rows, 2 columns], w [1, columns], s fp32 [rows, 1], t fp32 [rows, 2],
//   i tokens [rows, 1], v [vocabulary, columns], p [sequence, columns], m bool [rows, columns],
//   o fp64 [1, 1], h fp32 [1, 1]
// and a digit for one that shares the memory of an earlier one, through reads and writes.
struct Row {
  KernelKind kind;
  const char* reads;
  const char* writes;
  bool bias = false;
};

const Row kRows[] = {
    {KernelKind::kEmbeddingForward, "iv", "x"},
    {KernelKind::kEmbeddingBackward, "ixv", "2"},
    {KernelKind::kPositionForward, "xp", "0"},
    {KernelKind::kPositionBackward, "xp", "1"},
    {KernelKind::kRmsNormForward, "xw", "xs"},
    {KernelKind::kRmsNormBackward, "xxwsw", "x4"},
    {KernelKind::kLayerNormForward, "xww", "xt"},
    {KernelKind::kLayerNormBackward, "xxwtww", "x45"},
    {KernelKind::kRotaryForward, "x", "0"},
    {KernelKind::kRotaryBackward, "x", "0"},
    {KernelKind::kRotaryForward, "x", "x"},
    {KernelKind::kGeluForward, "x", "x"},
    {KernelKind::kGeluForward, "xw", "x", true},
    {KernelKind::kGeluBackward, "xx", "x"},
    {KernelKind::kGeluBackward, "xxww", "x3", true},
    {KernelKind::kSwigluForward, "d", "x"},
    {KernelKind::kSwigluBackward, "xd", "d"},
    {KernelKind::kReluForward, "x", "x"},
    {KernelKind::kReluBackward, "xx", "x"},
    {KernelKind::kBiasAdd, "xw", "0"},
    {KernelKind::kBiasBackward, "xw", "1"},
    {KernelKind::kDropoutForward, "x", "xm"},
    {KernelKind::kDropoutBackward, "xm", "x"},
    {KernelKind::kResidualAdd, "xx", "x"},
    {KernelKind::kResidualAdd, "xwx", "x"},
    {KernelKind::kBiasDropoutAddForward, "xx", "xm"},
    {KernelKind::kBiasDropoutAddForward, "xwx", "xm"},
    {KernelKind::kBiasDropoutAddBackward, "xm", "x"},
    {KernelKind::kBiasDropoutAddBackward, "xmw", "x2"},
    {KernelKind::kGradientAdd, "xx", "0"},
    {KernelKind::kGradientAccumulate, "xx", "0"},
    {KernelKind::kCrossEntropyMaximum, "x", "s"},
    {KernelKind::kCrossEntropySums, "xsi", "ss0"},
    {KernelKind::kCrossEntropyShift, "sss", "0"},
    {KernelKind::kCrossEntropyBackward, "xsi", "0"},
    {KernelKind::kCrossEntropyInputGradient, "xxs", "0"},
    {KernelKind::kFusedCrossEntropyForward, "xi", "ss"},
    {KernelKind::kFusedCrossEntropyBackward, "xis", "x"},
    {KernelKind::kLossSum, "so", "1"},
    {KernelKind::kCast, "x", "x"},
    {KernelKind::kAmax, "x", "h"},
    {KernelKind::kScale, "x", "0"},
    {KernelKind::kZero, "", "x"},
    {KernelKind::kCopy, "xw", "d"},
    {KernelKind::kSplitColumns, "d", "xx"},
    {KernelKind::kJoinColumns, "xx", "d"},
    {KernelKind::kSplitSequence, "xx", "w"},
    {KernelKind::kSgd, "xww", "0"},
    {KernelKind::kAdam, "xwwxx", "034"},
    {KernelKind::kCastParameters, "x", "x"},
};

Shape shape_of(char letter, DataType type, std::int64_t rows, std::int64_t columns) {
  switch (letter) {
    case 'x':
      return {type, rows, columns};
    case 'd':
      return {type, rows, 2 * columns};
    case 'w':
      return {type, 1, columns};
    case 's':
      return {type == DataType::kFp64 ? type : DataType::kFp32, rows, 1};
    case 't':
      return {type == DataType::kFp64 ? type : DataType::kFp32, rows, 2};
    case 'i':
      return {DataType::kInt64, rows, 1, -1, kVocabulary - 1};
    case 'v':
      return {type, kVocabulary, columns};
    case 'p':
      return {type, rows, columns};
    case 'm':
      return {DataType::kBool, rows, columns};
    case 'o':
      return {DataType::kFp64, 1, 1};
    case 'h':
      return {DataType::kFp32, 1, 1};
    default:
      return {type, 0, 0, letter - '0'};
  }
}

// Variances and sums of exponentials are positive.
void make_positive(const Row& row, std::vector<Shape>& reads) {
  const bool divides = row.kind == KernelKind::kCrossEntropyBackward ||
                       row.kind == KernelKind::kCrossEntropyInputGradient ||
                       row.kind == KernelKind::kAdam;
  for (std::size_t i = 0; divides && i < reads.size(); ++i) {
    const bool is_second_moment = row.kind == KernelKind::kAdam && i == reads.size() - 1;
    if (reads[i].columns != 1 && !is_second_moment) continue;
    if (reads[i].below > 0) continue;
    for (std::int64_t e = 0; e < reads[i].rows * reads[i].columns; ++e) {
      reads[i].values.push_back(0.5 + 0.01 * static_cast<double>(e % 50));
    }
  }
}

Placement placement_of(std::int64_t rows) {
  Placement placement;
  placement.seed = 3;
  placement.site = "layers.2.mlp.dropout";
  placement.first_token = 40;
  placement.map.length = rows;
  placement.vocabulary = kVocabulary - 1;  // the last column of the narrowest logits is padding
  placement.dropout = 0.3;
  placement.learning_rate = 0.1;
  placement.clip_norm = 0.5;
  placement.step = 3;
  return placement;
}

double difference(const Row& row, DataType type, std::int64_t rows, std::int64_t columns) {
  Kernel kernel;
  kernel.kind = row.kind;
  kernel.rows = rows;
  kernel.columns = columns;
  kernel.type = kernel.output = type;
  kernel.bias = row.bias;
  kernel.head_dim = 4;
  kernel.scale = 0.25;
  std::vector<Shape> reads, writes;
  for (const char* letter = row.reads; *letter != 0; ++letter) {
    reads.push_back(shape_of(*letter, type, rows, columns));
  }
  for (const char* letter = row.writes; *letter != 0; ++letter) {
    writes.push_back(shape_of(*letter, type, rows, columns));
  }
  make_positive(row, reads);
  return BothBackends().run(kernel, reads, writes, placement_of(rows));
}

class DeviceKernels : public testing::TestWithParam<Row> {};

// By fours (12, and 300 columns: more than a block has threads) and one at a time (an odd width).
TEST_P(DeviceKernels, WriteWhatTheCpuWrites) {
  SKIP_WITHOUT_DEVICE();
  const bool turns = GetParam().kind == KernelKind::kRotaryForward ||
                     GetParam().kind == KernelKind::kRotaryBackward;
  for (const DataType type : {DataType::kFp64, DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    EXPECT_LT(difference(GetParam(), type, 6, 12), tolerance(type)) << name(type);
  }
  EXPECT_LT(difference(GetParam(), DataType::kFp32, 5, 300), tolerance(DataType::kFp32));
  if (turns) return;
  EXPECT_LT(difference(GetParam(), DataType::kFp32, 7, 15), tolerance(DataType::kFp32));
  EXPECT_LT(difference(GetParam(), DataType::kBf16, 7, 15), tolerance(DataType::kBf16));
}

INSTANTIATE_TEST_SUITE_P(Table, DeviceKernels, testing::ValuesIn(kRows),
                         [](const testing::TestParamInfo<Row>& row) {
                           return std::string(name(row.param.kind)) + "_" + row.param.reads + "_" +
                                  row.param.writes;
                         });

TEST(DeviceOperators, RotationLeavesTheColumnsBehindItAlone) {
  SKIP_WITHOUT_DEVICE();
  Kernel kernel;
  kernel.kind = KernelKind::kRotaryForward;
  kernel.rows = 6;
  kernel.columns = 8;
  kernel.head_dim = 4;
  const Shape x{DataType::kFp32, 6, 11};
  EXPECT_LT(BothBackends().run(kernel, {x}, {x}, placement_of(6)), 1e-6);
}

TEST(DeviceOperators, LatentHeadsArePackedAndUnpacked) {
  SKIP_WITHOUT_DEVICE();
  Kernel kernel;
  kernel.kind = KernelKind::kLatentForward;
  kernel.rows = 5;
  kernel.columns = 3;  // heads
  kernel.plain_dim = 6;
  kernel.head_dim = 4;
  kernel.value_dim = 5;
  const DataType type = DataType::kFp64;
  const Shape query{type, 5, 30}, key_value{type, 5, 33}, key_rope{type, 5, 4}, packed{type, 5, 75};
  BothBackends backends;
  EXPECT_LT(backends.run(kernel, {query, key_value, key_rope}, {packed}, placement_of(5)), 1e-12);
  kernel.kind = KernelKind::kLatentBackward;
  EXPECT_LT(backends.run(kernel, {packed}, {query, key_value, key_rope}, placement_of(5)), 1e-12);
}

TEST(DeviceOperators, AttentionMergeAddsTheBlocksShare) {
  SKIP_WITHOUT_DEVICE();
  Kernel kernel;
  kernel.kind = KernelKind::kAttentionMerge;
  kernel.rows = 5;
  kernel.columns = 12;
  kernel.head_dim = 4;
  const Shape context{DataType::kFp32, 5, 12};
  Shape nothing_new{DataType::kFp32, 5, 3};
  for (int i = 0; i < 15; ++i) nothing_new.values.push_back(i % 4 == 0 ? -INFINITY : 0.1 * i);
  const Shape statistics{DataType::kFp32, 5, 3};
  EXPECT_LT(BothBackends().run(kernel, {context, nothing_new, context, statistics},
                               {{DataType::kFp32, 0, 0, 2}, {DataType::kFp32, 0, 0, 3}}),
            1e-6);
}

TEST(DeviceOperators, NormAndClipTakeSeveralBuffersAsOne) {
  SKIP_WITHOUT_DEVICE();
  Kernel kernel;
  kernel.kind = KernelKind::kSquaredNorm;
  const Shape total{DataType::kFp64, 1, 1, -1, 0, {0.5}};
  const Shape a{DataType::kBf16, 40, 30}, b{DataType::kFp32, 1, 7};
  EXPECT_LT(BothBackends().run(kernel, {a, b, total}, {{DataType::kFp64, 0, 0, 2}}), 1e-12);
  kernel.kind = KernelKind::kClip;
  EXPECT_LT(
      BothBackends().run(kernel, {total, a, b},
                         {{DataType::kBf16, 0, 0, 1}, {DataType::kFp32, 0, 0, 2}}, placement_of(1)),
      1e-2);
}

TEST(DeviceOperators, ANormOverTheLimitIsRefused) {
  SKIP_WITHOUT_DEVICE();
  Kernel kernel;
  kernel.kind = KernelKind::kValidateNorm;
  BothBackends backends;
  const DeviceMemory total(8), validated(8);
  const Operand read{DataType::kFp64, 1, 1, total.data()};
  const Operand write{DataType::kFp64, 1, 1, validated.data()};
  upload(read, {4.0}, backends.stream());
  Placement placement;
  placement.clip_norm = 1.5;
  EXPECT_THROW(compute_on_device(kernel, std::vector{read}, std::vector{write}, placement,
                                 backends.stream()),
               std::invalid_argument);
  placement.clip_norm = 2;
  compute_on_device(kernel, std::vector{read}, std::vector{write}, placement, backends.stream());
  EXPECT_THAT(download(write, backends.stream()), testing::ElementsAre(4.0));
}

TEST(DeviceOperators, QuantisersAreRefusedWithTheReason) {
  SKIP_WITHOUT_DEVICE();
  Kernel kernel;
  kernel.kind = KernelKind::kQuantise;
  EXPECT_NE(not_on_device(kernel), "");
  BothBackends backends;
  EXPECT_THROW(compute_on_device(kernel, {}, {}, {}, backends.stream()), std::invalid_argument);
}

// -- Matrix multiplications ---------------------------------------------------------------------

double gemm_difference(GemmRole role, DataType type, DataType output, bool bias, bool accumulate) {
  Gemm gemm;
  gemm.role = role;
  gemm.m = 6;
  gemm.n = 10;
  gemm.k = 7;
  gemm.type = type;
  gemm.output = output;
  gemm.bias = bias;
  gemm.accumulate = accumulate;
  const Shape x{type, 6, 7}, y{type, 6, 10}, w{type, 10, 7};
  switch (role) {
    case GemmRole::kForward:
      return bias ? BothBackends().run(gemm, {x, w, {output, 1, 10}}, {{output, 6, 10}})
                  : BothBackends().run(gemm, {x, w}, {{output, 6, 10}});
    case GemmRole::kInputGradient:
      return BothBackends().run(gemm, {y, w}, {{output, 6, 7}});
    case GemmRole::kWeightGradient:
      return accumulate ? BothBackends().run(gemm, {y, x, {output, 10, 7}}, {{output, 0, 0, 2}})
                        : BothBackends().run(gemm, {y, x}, {{output, 10, 7}});
  }
  return INFINITY;
}

TEST(DeviceGemm, AllRolesMultiplyRowMajorMatrices) {
  SKIP_WITHOUT_DEVICE();
  for (const DataType type : {DataType::kFp64, DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const GemmRole role :
         {GemmRole::kForward, GemmRole::kInputGradient, GemmRole::kWeightGradient}) {
      EXPECT_LT(gemm_difference(role, type, type, false, false), tolerance(type))
          << name(role) << ' ' << name(type);
    }
    EXPECT_LT(gemm_difference(GemmRole::kForward, type, type, true, false), tolerance(type));
  }
}

TEST(DeviceGemm, WeightGradientsOfNarrowTypesAreAddedInFp32) {
  SKIP_WITHOUT_DEVICE();
  for (const bool accumulate : {false, true}) {
    EXPECT_LT(gemm_difference(GemmRole::kWeightGradient, DataType::kBf16, DataType::kFp32, false,
                              accumulate),
              1e-5);
  }
}

TEST(DeviceGemm, GroupsHaveTheRowsOfTheirCounts) {
  SKIP_WITHOUT_DEVICE();
  GroupedGemm gemm;
  gemm.groups = 3;
  gemm.m = 8;
  gemm.n = 4;
  gemm.k = 5;
  gemm.type = gemm.output = DataType::kFp64;
  const DataType type = DataType::kFp64;
  const Shape counts{DataType::kInt32, 2, 3, -1, 0, {2, 0, 1, 1, 0, 3}};  // one row is not used
  const Shape x{type, 8, 5}, y{type, 8, 4}, w{type, 12, 5};
  BothBackends backends;
  EXPECT_LT(backends.run(gemm, {x, w, counts}, {y}), 1e-12);
  gemm.role = GemmRole::kInputGradient;
  EXPECT_LT(backends.run(gemm, {y, w, counts}, {x}), 1e-12);
  gemm.role = GemmRole::kWeightGradient;
  EXPECT_LT(backends.run(gemm, {y, x, counts}, {w}), 1e-12);
  gemm.accumulate = true;
  EXPECT_LT(backends.run(gemm, {y, x, counts, w}, {{type, 0, 0, 3}}), 1e-12);
}

// -- Mixtures of experts ------------------------------------------------------------------------

TEST(DeviceRouting, ChoicesAreTheHostsAndRowsMove) {
  SKIP_WITHOUT_DEVICE();
  Routing routing;
  routing.tokens = 4;
  routing.experts = 3;
  routing.per_token = 2;
  routing.columns = 8;
  const DataType type = DataType::kFp32;
  const Shape logits{type, 4, 3}, choice{DataType::kInt32, 4, 2}, weights{type, 4, 2};
  BothBackends backends;
  EXPECT_LT(backends.run(routing, {logits}, {choice, weights, logits}), 1e-6);
  // Where each choice stands; the third is dropped.
  const Shape rows{DataType::kInt32, 4, 2, -1, 0, {3, 0, -1, 5, 1, 4, 2, 6}};
  const Shape tokens{type, 4, 8}, sent{type, 8, 8};
  routing.kind = RoutingKind::kPermute;
  EXPECT_LT(backends.run(routing, {tokens, rows}, {sent}), 1e-6);
  routing.kind = RoutingKind::kPermuteBackward;
  EXPECT_LT(backends.run(routing, {sent, rows}, {tokens}), 1e-6);
  routing.kind = RoutingKind::kCombine;
  EXPECT_LT(backends.run(routing, {sent, rows, weights}, {tokens}), 1e-6);
  routing.kind = RoutingKind::kCombineBackward;
  EXPECT_LT(backends.run(routing, {tokens, sent, rows, weights}, {sent, weights}), 1e-6);
  routing.parts = 2;
  routing.local_experts = 2;
  const Shape counts{DataType::kInt32, 2, 2, -1, 0, {2, 1, 1, 3}};
  for (const RoutingKind kind : {RoutingKind::kSort, RoutingKind::kUnsort}) {
    routing.kind = kind;
    EXPECT_LT(backends.run(routing, {sent, counts}, {sent}), 1e-6) << name(kind);
  }
}

}  // namespace
}  // namespace headway
