// A simulation of what the shim uses of libtorch's CUDA half, on the CPU: one device with its streams, and CUDAGraph, whose functions
// have the names that they have in libtorch 2.11. Both write what is called to a log.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <stdexcept>
#include <string>
#include <utility>

enum cudaStreamCaptureMode : unsigned {};

namespace {

std::string calls;
std::string failing;
int64_t current = 0;
unsigned long long pools = 0;

// Logs a call, or fails instead.
void call(const std::string& name, const std::string& what = "") {
  if (name == failing) throw std::runtime_error(name + " fails\nwith a stack of calls");
  calls += name + what + "\n";
}

struct Streams final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {c10::kCUDA, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::UNSAFE, device, current); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 7);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = getStream(stream.device());
    current = stream.id();
    call("stream ", std::to_string(current));
    return before;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    call("wait for ", std::to_string(stream.id()));
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Streams)

std::string on_stream() { return " on stream " + std::to_string(current); }

}  // namespace

namespace at::cuda {

struct CUDAGraph {
  explicit CUDAGraph(bool keep_graph);
  ~CUDAGraph();
  void capture_begin(std::pair<unsigned long long, unsigned long long> pool, cudaStreamCaptureMode mode);
  void capture_end();
  void replay();

  bool keep_graph;
  unsigned long long pool = 0;
};

CUDAGraph::CUDAGraph(bool keep_graph) : keep_graph(keep_graph) {}
CUDAGraph::~CUDAGraph() { calls += "free graph of pool " + std::to_string(pool) + "\n"; }
void CUDAGraph::capture_begin(std::pair<unsigned long long, unsigned long long> own, cudaStreamCaptureMode mode) {
  pool = own.second;
  const auto numbers = std::to_string(own.first) + " " + std::to_string(pool) + ", mode " + std::to_string(mode);
  call("begin", " in pool " + numbers + on_stream());
}
void CUDAGraph::capture_end() { call("end", on_stream()); }
void CUDAGraph::replay() { call("replay", on_stream()); }

std::pair<unsigned long long, unsigned long long> graph_pool_handle() { return {0, ++pools}; }

}  // namespace at::cuda

extern "C" {

void fail_in(const char* name) { failing = name; }

// Returns the calls since the last time.
const char* take_calls() {
  static std::string taken;
  taken = std::exchange(calls, {});
  return taken.c_str();
}

int64_t current_stream() { return current; }

}  // extern "C"
