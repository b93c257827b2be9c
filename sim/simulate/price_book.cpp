#include "sim/simulate/price_book.hpp"

#include <mutex>

namespace headway {

namespace {

// Of what tells operations apart most; equality compares the rest.
class Mixer {
 public:
  Mixer& operator<<(std::int64_t value) {
    hash_ = (hash_ ^ static_cast<std::size_t>(value)) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 29U;
    return *this;
  }
  std::size_t hash() const { return hash_; }

 private:
  std::size_t hash_ = 0x2545f4914f6cdd1dULL;
};

std::size_t hash_of(const Gemm& gemm) {
  return (Mixer() << static_cast<int>(gemm.role) << gemm.m << gemm.n << gemm.k
                  << static_cast<int>(gemm.type))
      .hash();
}
std::size_t hash_of(const GroupedGemm& gemm) {
  return (Mixer() << static_cast<int>(gemm.role) << gemm.groups << gemm.m << gemm.n << gemm.k
                  << static_cast<int>(gemm.type))
      .hash();
}
std::size_t hash_of(const Routing& routing) {
  return (Mixer() << static_cast<int>(routing.kind) << routing.tokens << routing.rows).hash();
}
std::size_t hash_of(const Attention& attention) {
  return (Mixer() << (attention.backward ? 1 : 0) << attention.batch << attention.heads
                  << attention.kv_heads << attention.sequence_q << attention.sequence_kv)
      .hash();
}
std::size_t hash_of(const Kernel& kernel) {
  return (Mixer() << static_cast<int>(kernel.kind) << kernel.rows << kernel.columns).hash();
}
std::size_t hash_of(const Collective& collective) {
  return (Mixer() << static_cast<int>(collective.kind) << collective.elements).hash();
}
std::size_t hash_of(const HostWork& work) {
  return (Mixer() << static_cast<int>(work.kind)).hash();
}

}  // namespace

std::size_t PriceBook::Hash::operator()(const Operation& operation) const {
  return std::visit([](const auto& each) { return hash_of(each); }, operation);
}

Time PriceBook::corrected(Time time, Cause cause) const {
  const double factor = correction_.factor(cause);
  return factor == 1 ? time : Time::from_seconds(time.seconds() * factor);
}

Price PriceBook::corrected(Price price, Cause cause) const {
  if (correction_.factor(cause) == 1) return price;
  price.time = corrected(price.time, cause);
  price.grade = Grade::kAnchored;
  return price;
}

PriceBook::Entry PriceBook::price(const Operation& operation) const {
  {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(operation);
    if (found != entries_.end()) return found->second;
  }
  const Entry entry = {cost_.price(operation), cost_.launches(operation)};
  const std::unique_lock lock(mutex_);
  return entries_.try_emplace(operation, entry).first->second;
}

}  // namespace headway
