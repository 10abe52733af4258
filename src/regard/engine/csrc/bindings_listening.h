// Long work in C++ that Python's Ctrl-C stops.
#pragma once

#include <atomic>
#include <functional>

// Runs `work` on a thread of its own while this one listens for signals, which only Python's main
// thread may do; one that raises (Ctrl-C) sets `stop`, and is raised when the work has ended.
void run_listening(const std::function<void()>& work, std::atomic<bool>& stop);
