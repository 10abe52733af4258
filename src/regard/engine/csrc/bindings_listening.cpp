#include "bindings_listening.h"

#include <pybind11/pybind11.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace py = pybind11;

void run_listening(const std::function<void()>& work, std::atomic<bool>& stop) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr failure;
  bool raised = false;
  {
    py::gil_scoped_release others_may_run;
    std::thread worker([&] {
      std::exception_ptr met;
      try {
        work();
      } catch (...) {
        met = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      failure = met;
      done = true;
      changed.notify_one();
    });
    std::unique_lock lock(mutex);
    while (!done) {
      changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; });
      if (done || raised) continue;
      lock.unlock();
      {
        py::gil_scoped_acquire python;
        raised = PyErr_CheckSignals() != 0;
        if (raised) stop = true;
      }
      lock.lock();
    }
    lock.unlock();
    worker.join();
  }
  if (raised) throw py::error_already_set();
  if (failure) std::rethrow_exception(failure);
}
