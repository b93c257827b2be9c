#include "sim/search/shared_work.hpp"

#include <cstring>
#include <exception>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/parallel.hpp"

namespace headway {

namespace {

// Alone, or one of several.
int rank_of(const SearchProcesses* processes) {
  return processes == nullptr ? 0 : processes->rank();
}
std::size_t size_of(const SearchProcesses* processes) {
  return processes == nullptr ? 1 : static_cast<std::size_t>(processes->size());
}

// What each process gives, by rank, behind whether it was told to stop and how it failed, if it
// did. The words of the first that failed; empty where none did.
std::string exchange(const std::string& mine, SearchProcesses& processes, bool& stop,
                     const std::exception_ptr& failure, std::vector<std::string>& of_all) {
  std::string words;
  if (failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      words = error.what();
    }
  }
  ByteWriter writer;
  writer.add(stop ? 1 : 0);
  writer.add(failure ? 1 : 0);
  writer.add(words);
  writer.add(mine);
  std::string failed;
  for (const std::string& bytes : processes.exchange(writer.bytes())) {
    ByteReader reader(bytes);
    stop = reader.number() != 0 || stop;
    const bool has_failed = reader.number() != 0;
    words = reader.text();
    if (has_failed && failed.empty())
      failed = "process " + std::to_string(of_all.size()) + ": " + words;
    of_all.push_back(reader.text());
  }
  return failed;
}

}  // namespace

void ByteWriter::add(std::int64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  bytes_.append(bytes, sizeof number);
}

void ByteWriter::add(const std::string& text) {
  add(static_cast<std::int64_t>(text.size()));
  bytes_ += text;
}

std::int64_t ByteReader::number() {
  std::int64_t number = 0;
  std::memcpy(&number, bytes_.data() + next_, sizeof number);
  next_ += sizeof number;
  return number;
}

std::string ByteReader::text() {
  const auto size = static_cast<std::size_t>(number());
  std::string text = bytes_.substr(next_, size);
  next_ += size;
  return text;
}

void share_out(std::size_t count, int threads, SearchProcesses* processes, bool& stop,
               const std::function<void(std::size_t, ByteWriter&)>& work,
               const std::function<void(std::size_t, ByteReader&)>& put) {
  const auto first = static_cast<std::size_t>(rank_of(processes));
  const std::size_t every = size_of(processes);
  std::vector<ByteWriter> mine(count > first ? (count - first + every - 1) / every : 0);
  std::exception_ptr failure;
  try {
    in_parallel(mine.size(), threads, [&](std::size_t i) { work(first + i * every, mine[i]); });
  } catch (...) {
    failure = std::current_exception();
  }
  ByteWriter together;
  for (const ByteWriter& one : mine) together.add(one.bytes());
  std::vector<std::string> of_all;
  std::string failed;
  if (processes == nullptr) {
    of_all.push_back(together.bytes());
  } else {
    failed = exchange(together.bytes(), *processes, stop, failure, of_all);
  }
  if (failure) std::rethrow_exception(failure);
  if (!failed.empty()) throw MachineFailure(failed);
  std::vector<ByteReader> readers(of_all.begin(), of_all.end());
  for (std::size_t i = 0; i < count; ++i) {
    const std::string bytes = readers[i % every].text();
    ByteReader reader(bytes);
    put(i, reader);
  }
}

}  // namespace headway
