#include "sim/core/file.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "sim/core/error.hpp"

namespace headway {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// A folder of its own for each test.
class File : public testing::Test {
 protected:
  File() : folder_(fs::path(testing::TempDir()) / name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~File() override { fs::remove_all(folder_); }
  std::string path(const char* file) const { return (folder_ / file).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

 private:
  static std::string name() {
    return std::string("headway_file_") +
           testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  fs::path folder_;
};

// No file may grow beyond the limit while this lives: a full disk, as far as write() can tell.
class FullDisk {
 public:
  explicit FullDisk(rlim_t limit) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = limit;
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    (void)std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(File, ReadsBackEveryByte) {
  std::string content(300000, 'x');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7);
  write_file(path("a"), content);
  EXPECT_EQ(read_file(path("a")), content);
  write_file(path("a"), "");
  EXPECT_EQ(read_file(path("a")), "");
  EXPECT_EQ(files(), 1U);
}

TEST_F(File, LeavesTheTargetAndNothingElseWhenTheDiskIsFull) {
  write_file(path("result.json"), "old");
  {
    const FullDisk full(1000);
    EXPECT_THROW(
        {
          try {
            write_file(path("result.json"), std::string(5000, 'n'));
          } catch (const MachineFailure& error) {
            EXPECT_THAT(error.what(), HasSubstr("result.json: cannot write: File too large"));
            throw;
          }
        },
        MachineFailure);
  }
  EXPECT_EQ(read_file(path("result.json")), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(File, NamesThePathItCannotWrite) {
  EXPECT_THROW(write_file(path("no/such/folder/x"), "a"), MachineFailure);
  EXPECT_THROW(write_file(path("."), "a"), MachineFailure);
  EXPECT_EQ(files(), 0U);
}

TEST_F(File, RefusesToReadWhatIsNoFile) {
  EXPECT_THROW(read_file(path("absent")), InvalidInput);
  EXPECT_THROW(read_file(path(".")), InvalidInput);
  EXPECT_THROW(read_file(""), InvalidInput);
}

TEST_F(File, WritesThroughALinkAndKeepsTheModeOfTheTarget) {
  write_file(path("target"), "old");
  fs::permissions(path("target"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(path("target"), path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("target")), "new");
  EXPECT_EQ(fs::status(path("target")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(File, WritesToADeviceWithoutReplacingIt) {
  write_file("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace headway
