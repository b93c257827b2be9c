// Work of a search shared out: among the threads of a process, and among processes that all run the
// same search. Each process does every n-th item and hears what the others made of theirs, so all
// of them know the same and decide the same, and the answer does not depend on how many there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headway {

// The processes of one search. What travels between them are bytes.
class SearchProcesses {
 public:
  virtual ~SearchProcesses() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Gives `mine` to all; what each gave, by rank. Every process calls it as often.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
};

// Texts and numbers of one machine's make, one behind the other.
class ByteWriter {
 public:
  void add(std::int64_t number);
  void add(const std::string& text);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// REQUIRES: reads what was written, in that order. The bytes outlive this.
class ByteReader {
 public:
  explicit ByteReader(const std::string& bytes) : bytes_(bytes) {}
  std::int64_t number();
  std::string text();
  bool at_end() const { return next_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  std::size_t next_ = 0;
};

// work(i) for every i below `count`, in the process that has it; what it wrote put(i, reader) then
// takes in every process, in the order of i. `stop` becomes true where it is true in any of them.
// What a process throws ends it; the others throw MachineFailure with its words.
void share_out(std::size_t count, int threads, SearchProcesses* processes, bool& stop,
               const std::function<void(std::size_t, ByteWriter&)>& work,
               const std::function<void(std::size_t, ByteReader&)>& put);

}  // namespace headway
