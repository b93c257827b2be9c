#include "sim/engine/event_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace headway {
namespace {

TEST(EventQueue, PopsByTime) {
  EventQueue queue(3);
  queue.schedule(0, 30);
  queue.schedule(1, 10);
  queue.schedule(2, 20);
  EXPECT_EQ(queue.next_time(), 10);
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), 0);
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, MovesAnIdThatIsScheduledAgain) {
  EventQueue queue(2);
  queue.schedule(0, 10);
  queue.schedule(1, 20);
  queue.schedule(0, 30);
  EXPECT_EQ(queue.pop(), 1);
  queue.schedule(0, 5);
  EXPECT_EQ(queue.next_time(), 5);
}

TEST(EventQueue, EqualsASortedMapUnderRandomCalls) {
  std::mt19937 random(3);
  EventQueue queue(50);
  std::map<int, std::int64_t> expected;
  for (int i = 0; i < 20000; ++i) {
    const int id = static_cast<int>(random() % 50);
    switch (random() % 4) {
      case 0:
      case 1: {
        const std::int64_t time = static_cast<std::int64_t>(random() % 100);
        queue.schedule(id, time);
        expected[id] = time;
        break;
      }
      case 2:
        queue.cancel(id);
        expected.erase(id);
        break;
      default:
        if (queue.empty()) break;
        const auto least =
            std::min_element(expected.begin(), expected.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        ASSERT_EQ(queue.next_time(), least->second);
        const int popped = queue.pop();
        ASSERT_EQ(expected.at(popped), least->second);
        expected.erase(popped);
    }
    ASSERT_EQ(queue.empty(), expected.empty());
  }
}

}  // namespace
}  // namespace headway
