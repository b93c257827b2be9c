// Heaps on huge pages. A simulation fills some tens of MiB within milliseconds, so the page faults
// of small pages can cost more than the simulation itself (GPT-3 175B on 1,024 GPUs: 4,700 faults,
// 68 ms with them and 20 ms without, on a virtual machine). Where the system refuses, a heap stays
// as it was.
#pragma once

namespace headway {

// Lays the heap of the calling process on huge pages and keeps what was once taken. To be called by
// `main` before anything is allocated.
void use_huge_pages();

// Likewise the heap that a thread other than the first allocates from. To be called as it begins,
// after the process has called use_huge_pages().
void use_huge_pages_in_thread();

}  // namespace headway
