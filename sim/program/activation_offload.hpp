// What the backward pass needs of a layer, taken to the host behind its forward pass and brought
// back before its backward pass, each way on a stream of its own (Transformer Engine,
// cpu_offload.py). A layer's buffers leave the device once they have gone down, which the compute
// stream awaits behind the next layer's forward pass; they come back while the backward pass is at
// the layer behind it. So beside what is not offloaded two layers are on the device at once.
#pragma once

#include <map>
#include <vector>

#include "sim/program/program_builder.hpp"

namespace headway {

class ActivationOffload {
 public:
  explicit ActivationOffload(ProgramBuilder& builder) : builder_(builder) {}

  // Finds out what is saved of the layers [first, end): the steps of their forward pass and those
  // that go back over them, of all parts of the backward pass, decide.
  void note(const std::vector<Step>& forward, const std::vector<Step>& backward, int first,
            int end);

  // The steps of a forward pass with those that take to the host what is saved of the layers.
  std::vector<Step> going_down(const std::vector<Step>& steps, int first, int end);
  // The steps of the part of the backward pass that first reads it, with those that bring it up.
  std::vector<Step> coming_up(const std::vector<Step>& steps, int first, int end);

 private:
  // Templates of a layer, by what is saved of it; relative to the layer.
  struct Copies {
    int down = -1, release = -1, up = -1;
    PortRef port;
  };
  const Copies& copies(const std::vector<BufferRef>& saved);
  std::vector<BufferRef> saved_of(const std::vector<Step>& forward,
                                  const std::vector<Step>& backward, int layer) const;
  // Whether the operation of a step touches, or only reads, what is saved of the layer.
  bool touches(const TemplateOperation& operation, int step_layer, int layer, bool reads) const;
  int host_copy(int family);
  void add_copies(OperationList& list, const std::vector<BufferRef>& saved, bool to_host);

  ProgramBuilder& builder_;
  std::map<int, int> on_host_;  // by family
  std::map<std::vector<int>, Copies> templates_;
  std::map<int, std::vector<BufferRef>> saved_;  // by layer
};

}  // namespace headway
