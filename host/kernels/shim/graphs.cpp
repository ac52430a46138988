// Streams, CUDA graphs and pinned memory of libtorch, which torch-sys lacks.
//
// libtorch's CUDA half is loaded at run time and its headers need CUDA's, so nothing of it is compiled in or linked:
// streams are reached through the interface that all devices implement, graphs by the names of their symbols.

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

namespace {

// Functions of at::cuda::CUDAGraph by their names in libtorch 2.11. A member function takes its object first.
struct Symbols {
  void (*construct)(void* graph, bool keep_graph);
  void (*destroy)(void* graph);
  void (*capture_begin)(void* graph, c10::MempoolId_t pool, unsigned mode);
  void (*capture_end)(void* graph);
  void (*replay)(void* graph);
  c10::MempoolId_t (*pool_handle)();
};

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (!function) throw std::runtime_error(std::string("libtorch_cuda.so has no symbol ") + name);
}

const Symbols& symbols() {
  static const Symbols found = [] {
    Symbols all;
    find(all.construct, "_ZN2at4cuda9CUDAGraphC1Eb");
    find(all.destroy, "_ZN2at4cuda9CUDAGraphD1Ev");
    find(all.capture_begin, "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode");
    find(all.capture_end, "_ZN2at4cuda9CUDAGraph11capture_endEv");
    find(all.replay, "_ZN2at4cuda9CUDAGraph6replayEv");
    find(all.pool_handle, "_ZN2at4cuda17graph_pool_handleEv");
    return all;
  }();
  return found;
}

// cudaStreamCaptureModeThreadLocal: other threads may allocate memory and wait for the device meanwhile.
constexpr unsigned THREAD_LOCAL = 1;

// A CUDAGraph, which has 104 bytes in libtorch 2.11.
struct Graph {
  c10::Device device;
  alignas(16) unsigned char object[512];
};

c10::Device cuda(int device) { return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)); }

c10::impl::VirtualGuardImpl streams() { return c10::impl::VirtualGuardImpl(c10::kCUDA); }

// Runs `work`. False on an exception, with the reason in `reason`.
template <class Work>
bool caught(char* reason, size_t size, Work work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    std::snprintf(reason, size, "%s", error.what());
  } catch (...) {
    std::snprintf(reason, size, "an unknown exception");
  }
  return false;
}

}  // namespace

extern "C" {

// All functions that can fail return false on failure, with the reason in `reason`.

// Sets `stream` to the driver's handle of the thread's current stream on a device.
bool pl_current_stream(int device, void** stream, char* reason, size_t size) {
  return caught(reason, size, [&] {
    const auto all = streams();
    *stream = all.getStreamNativeHandle(all.getStream(cuda(device)));
  });
}

// Sets `id` to that of a stream of libtorch's pool. Fails if this libtorch has no graphs.
bool pl_graph_stream(int device, int64_t* id, char* reason, size_t size) {
  return caught(reason, size, [&] {
    symbols();
    *id = streams().getStreamFromGlobalPool(cuda(device)).id();
  });
}

// Makes another stream the thread's current one and sets `earlier` to the id of the one before.
bool pl_exchange_stream(int device, int64_t id, int64_t* earlier, char* reason, size_t size) {
  return caught(reason, size, [&] {
    *earlier = streams().exchangeStream(c10::Stream(c10::Stream::UNSAFE, cuda(device), id)).id();
  });
}

// Waits for the work of a stream.
bool pl_wait_for_stream(int device, int64_t id, char* reason, size_t size) {
  return caught(reason, size, [&] {
    streams().synchronizeStream(c10::Stream(c10::Stream::UNSAFE, cuda(device), id));
  });
}

// Sets the two numbers of a new pool of memory for graphs.
bool pl_graph_pool(unsigned long long* first, unsigned long long* second, char* reason, size_t size) {
  return caught(reason, size, [&] {
    const auto pool = symbols().pool_handle();
    *first = pool.first;
    *second = pool.second;
  });
}

// Starts to capture the thread's current stream, which must not be the default one. Sets `graph`, for which the caller calls
// pl_graph_end.
bool pl_graph_begin(int device, unsigned long long first, unsigned long long second, void** graph, char* reason,
                    size_t size) {
  return caught(reason, size, [&] {
    const c10::DeviceGuard guard(cuda(device));
    auto made = std::make_unique<Graph>(Graph{cuda(device), {}});
    symbols().construct(made->object, /*keep_graph=*/false);
    // Never freed after a failure: the allocator may have a reference to it.
    auto* kept = made.release();
    symbols().capture_begin(kept->object, {first, second}, THREAD_LOCAL);
    *graph = kept;
  });
}

// Ends the capture. After a failure the graph must not be used, and is never freed: the allocator has a reference to it.
bool pl_graph_end(void* graph, char* reason, size_t size) {
  return caught(reason, size, [&] {
    auto* own = static_cast<Graph*>(graph);
    const c10::DeviceGuard guard(own->device);
    symbols().capture_end(own->object);
  });
}

// Launches a graph on the thread's current stream.
bool pl_graph_replay(void* graph, char* reason, size_t size) {
  return caught(reason, size, [&] { symbols().replay(static_cast<Graph*>(graph)->object); });
}

void pl_graph_free(void* graph) {
  auto* own = static_cast<Graph*>(graph);
  char reason[1024];
  // Its destructor warns instead of throwing.
  caught(reason, sizeof reason, [&] { symbols().destroy(own->object); });
  delete own;
}

// Sets `pinned` to a copy of a CPU's tensor in pinned memory, which the caller owns.
bool pl_pin_memory(const at::Tensor* tensor, at::Tensor** pinned, char* reason, size_t size) {
  return caught(reason, size, [&] { *pinned = new at::Tensor(tensor->pin_memory()); });
}

}  // extern "C"
