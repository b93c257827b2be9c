#include "sim/core/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "sim/core/error.hpp"

namespace headway {

namespace {

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw MachineFailure(path + ": " + what + ": " + reason(error));
}

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  // Closing reports what a full disk or a lost server kept to itself so far.
  bool close() {
    const int number = number_;
    number_ = -1;
    return ::close(number) == 0;
  }

 private:
  int number_;
};

// False, with errno set, where the system refuses.
bool write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Devices and pipes cannot be replaced; they are written as they stand.
void write_in_place(const std::string& path, std::string_view content) {
  Descriptor descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (descriptor.number() < 0) fail(path, "cannot write", errno);
  if (!write_all(descriptor.number(), content)) fail(path, "cannot write", errno);
  if (!descriptor.close()) fail(path, "cannot write", errno);
}

// Behind links, so that a link stays one and its target is replaced.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string text = real;
  std::free(real);  // NOLINT: realpath allocates with malloc
  return text;
}

}  // namespace

bool is_path(std::string_view word, std::string_view ending) {
  return word.find('/') != std::string_view::npos || word.ends_with(ending);
}

std::string read_file(const std::string& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.number() < 0) throw InvalidInput(path, "", "cannot be read: " + reason(errno));
  struct stat status {};
  if (::fstat(descriptor.number(), &status) == 0 && S_ISDIR(status.st_mode)) {
    throw InvalidInput(path, "", "cannot be read: it is a directory");
  }
  std::string content;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = ::read(descriptor.number(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw InvalidInput(path, "", "cannot be read: " + reason(errno));
    if (count == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

void write_file(const std::string& path, std::string_view content) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) fail(path, "cannot write", EISDIR);
  if (exists && !S_ISREG(status.st_mode)) return write_in_place(path, content);

  // Unique in this process by the counter, among processes by the id.
  static std::atomic<unsigned> counter{0};
  const std::string target = exists ? resolved(path) : path;
  const std::string temporary =
      target + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1));
  const auto give_up = [&](int error) {
    ::unlink(temporary.c_str());
    fail(path, "cannot write", error);
  };
  Descriptor descriptor(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_t{0666}));
  if (descriptor.number() < 0) fail(path, "cannot write", errno);
  if (exists && ::fchmod(descriptor.number(), status.st_mode & mode_t{07777}) != 0) give_up(errno);
  if (!write_all(descriptor.number(), content)) give_up(errno);
  if (!descriptor.close()) give_up(errno);
  if (::rename(temporary.c_str(), target.c_str()) != 0) give_up(errno);
}

}  // namespace headway
