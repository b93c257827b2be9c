#include "sim/program/tensor/grid_2d.hpp"

namespace headway::grid_2d {

namespace {

using megatron_1d::ColumnParallel;
using megatron_1d::RowParallel;
using megatron_1d::SquareBuffers;

// One of the square's products, from the operands that a rank holds.
class Square {
 public:
  Square(ProgramBuilder& builder, OperationList& list, std::string name, ParameterId weight,
         DataType compute, const SquareBuffers& buffers)
      : builder_(builder),
        list_(list),
        name_(std::move(name)),
        weight_(builder.parameter(weight)),
        compute_(compute),
        buffers_(buffers),
        side_(builder.job().plan.tp_side),
        along_row_(builder.group({kTensorColumnAxis})),
        along_column_(builder.group({kTensorRowAxis})) {}

  // y = x . w^T
  void forward(BufferRef input, BufferRef output) {
    int arrived = broadcast_both("", 0, input);
    for (int step = 0; step < side_; ++step) {
      const int next = step + 1 < side_ ? broadcast_both("", step + 1, input) : -1;
      Gemm product = gemm(GemmRole::kForward);
      product.accumulate = step > 0;
      std::vector<BufferRef> reads = {in_turn(buffers_.tokens, step),
                                      in_turn(buffers_.weight, step)};
      if (step > 0) reads.push_back(output);
      list_.add(name_ + std::to_string(step), product, std::move(reads), {output});
      list_.last().after = {arrived};
      arrived = next;
    }
  }

  // dx = dy . w
  void backward_input(BufferRef output_gradient, BufferRef input_gradient) {
    int arrived = broadcast_weight("_dgrad", 0);
    for (int step = 0; step < side_; ++step) {
      const int next = step + 1 < side_ ? broadcast_weight("_dgrad", step + 1) : -1;
      list_.add(name_ + "_dgrad" + std::to_string(step), gemm(GemmRole::kInputGradient),
                {output_gradient, in_turn(buffers_.weight, step)}, {{buffers_.partial}});
      list_.last().after = {arrived};
      reduce(name_ + "_dgrad_reduce" + std::to_string(step), step, {buffers_.partial},
             input_gradient, along_row_);
      arrived = next;
    }
  }

  // dw = dy^T . x
  void backward_weight(BufferRef output_gradient, BufferRef input) {
    int arrived = broadcast_input("_wgrad", 0, input);
    for (int step = 0; step < side_; ++step) {
      const int next = step + 1 < side_ ? broadcast_input("_wgrad", step + 1, input) : -1;
      list_.add(name_ + "_wgrad" + std::to_string(step), gemm(GemmRole::kWeightGradient),
                {output_gradient, in_turn(buffers_.tokens, step)}, {{buffers_.partial_weight}});
      list_.last().after = {arrived};
      reduce(name_ + "_wgrad_reduce" + std::to_string(step), step, {buffers_.partial_weight},
             {weight_.scratch}, along_column_);
      arrived = next;
    }
    megatron_1d::accumulate(builder_, list_, name_ + "_accumulate", weight_);
  }

  // This rank's tokens, whole -> its columns of the tokens of its row of ranks.
  void enter(const std::string& suffix, BufferRef tokens, BufferRef block) {
    list_.add(name_ + suffix + "_split", columns(KernelKind::kSplitColumns), {tokens},
              {{buffers_.pieces}});
    exchange(name_ + suffix + "_exchange", {buffers_.pieces}, block);
  }
  // The way back.
  void leave(const std::string& suffix, BufferRef block, BufferRef tokens) {
    exchange(name_ + suffix + "_exchange", block, {buffers_.pieces});
    list_.add(name_ + suffix + "_join", columns(KernelKind::kJoinColumns), {{buffers_.pieces}},
              {tokens});
  }

 private:
  static BufferRef in_turn(const std::vector<int>& buffers, int step) {
    return {buffers[static_cast<std::size_t>(step % 2)]};
  }
  std::int64_t elements(BufferRef buffer) const {
    return builder_.program().buffers[static_cast<std::size_t>(buffer.family)].elements();
  }

  Gemm gemm(GemmRole role) const {
    Gemm result;
    result.role = role;
    result.m = builder_.shape().block_tokens;
    result.n = weight_.rows;
    result.k = weight_.columns;
    result.type = compute_;
    result.output = builder_.shape().storage;
    return result;
  }

  Kernel columns(KernelKind kind) const {
    Kernel kernel;
    kernel.kind = kind;
    kernel.rows = builder_.shape().local_tokens;
    kernel.columns = builder_.shape().hidden;
    kernel.type = kernel.output = builder_.shape().storage;
    return kernel;
  }

  int collective(const std::string& name, CollectiveKind kind, int root, int group,
                 std::int64_t elements, std::vector<BufferRef> reads, BufferRef write) {
    Collective collective;
    collective.kind = kind;
    collective.elements = elements;
    collective.type = builder_.shape().storage;
    collective.root = root;
    const int index =
        list_.add(name, collective, std::move(reads), {write}, Cause::kTensorParallel);
    list_.at(index).group = group;
    return index;
  }

  // Beside the product of the step before, once that before it has read what is overwritten here.
  int broadcast(const std::string& name, int step, BufferRef from, BufferRef to, int group) {
    const int index =
        collective(name, CollectiveKind::kBroadcast, step, group, elements(from), {from}, to);
    list_.at(index).stream = builder_.stream("tp");
    list_.at(index).joins = {0};
    return index;
  }
  int broadcast_input(const std::string& suffix, int step, BufferRef input) {
    return broadcast(name_ + suffix + "_input" + std::to_string(step), step, input,
                     in_turn(buffers_.tokens, step), along_row_);
  }
  int broadcast_weight(const std::string& suffix, int step) {
    return broadcast(name_ + suffix + "_weight" + std::to_string(step), step, {weight_.family},
                     in_turn(buffers_.weight, step), along_column_);
  }
  int broadcast_both(const std::string& suffix, int step, BufferRef input) {
    broadcast_input(suffix, step, input);
    return broadcast_weight(suffix, step);
  }

  // Every rank is the root once: what it has of `sum` stays through the other steps.
  void reduce(const std::string& name, int step, BufferRef partial, BufferRef sum, int group) {
    std::vector<BufferRef> reads = {partial};
    if (step > 0) reads.push_back(sum);
    collective(name, CollectiveKind::kReduce, step, group, elements(partial), std::move(reads),
               sum);
  }

  void exchange(const std::string& name, BufferRef from, BufferRef to) {
    collective(name, CollectiveKind::kAllToAll, 0, along_row_, elements(from), {from}, to);
  }

  ProgramBuilder& builder_;
  OperationList& list_;
  std::string name_;
  const Parameter& weight_;
  DataType compute_;
  const SquareBuffers& buffers_;
  int side_;
  int along_row_, along_column_;  // groups: the ranks of one row of the square, of one column
};

template <typename Linear>
Square square_of(ProgramBuilder& builder, OperationList& list, const Linear& linear) {
  return {builder, list, linear.name, linear.weight, linear.compute, *linear.square};
}

int scratch(ProgramBuilder& builder, const std::string& name, std::int64_t rows,
            std::int64_t columns) {
  return builder.activation(name, builder.shape().storage, rows, columns, Copies::kScratch,
                            ProgramBuilder::Split::kNone, BufferCategory::kCommunication);
}

// `inner`: columns of a block of what stands between the pairs of matrices.
SquareBuffers make_square(ProgramBuilder& builder, const std::string& name, ParameterId id) {
  const Parameter& weight = builder.parameter(id);
  const std::int64_t tokens = builder.shape().block_tokens;
  const std::int64_t width = builder.shape().hidden / builder.job().plan.tp_side;
  SquareBuffers buffers;
  buffers.pieces = scratch(builder, name + "_pieces", tokens, width);
  buffers.block = scratch(builder, name + "_block", tokens, width);
  buffers.block_gradient = scratch(builder, name + "_block_gradient", tokens, width);
  for (const char* turn : {"0", "1"}) {
    buffers.tokens.push_back(scratch(builder, name + "_tokens" + turn, tokens, weight.columns));
    buffers.weight.push_back(
        scratch(builder, name + "_weight" + turn, weight.rows, weight.columns));
  }
  buffers.partial = scratch(builder, name + "_partial", tokens, weight.columns);
  buffers.partial_weight = scratch(builder, name + "_partial_weight", weight.rows, weight.columns);
  return buffers;
}

}  // namespace

void make_buffers(ProgramBuilder& builder, ColumnParallel& linear) {
  linear.square = make_square(builder, linear.name, linear.weight);
}
void make_buffers(ProgramBuilder& builder, RowParallel& linear) {
  linear.square = make_square(builder, linear.name, linear.weight);
}

void forward(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  Square square = square_of(builder, list, linear);
  square.enter("_input", {linear.input}, {linear.square->block});
  square.forward({linear.square->block}, {linear.output});
}

void backward(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  Square square = square_of(builder, list, linear);
  square.backward_input({linear.output_gradient}, {linear.square->block_gradient});
  square.leave("_input_gradient", {linear.square->block_gradient}, {linear.input_gradient});
  square.enter("_input_again", {linear.input}, {linear.square->block});
  square.backward_weight({linear.output_gradient}, {linear.square->block});
}

void forward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  Square square = square_of(builder, list, linear);
  square.forward({linear.input}, {linear.square->block});
  square.leave("_output", {linear.square->block}, {linear.output});
}

void backward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  Square square = square_of(builder, list, linear);
  square.enter("_output_gradient", linear.output_gradient, {linear.square->block_gradient});
  square.backward_input({linear.square->block_gradient}, {linear.input_gradient});
  square.backward_weight({linear.square->block_gradient}, {linear.input});
}

}  // namespace headway::grid_2d
