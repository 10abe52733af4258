// The engine for Python: arrays and lists in, tuples out; nothing of the work itself.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings_kernels.h"
#include "engine.h"
#include "isa.h"

namespace py = pybind11;

namespace {

using FloatArray = py::array_t<float, py::array::c_style>;
using Ids = std::vector<std::int32_t>;
using Found = std::tuple<Ids, double, double, bool>;

template <class Value>
Value one_of(const py::dict& settings, const char* name,
             const std::vector<std::pair<const char*, Value>>& choices) {
  const auto given = settings[name].cast<std::string>();
  for (const auto& [word, value] : choices) {
    if (given == word) return value;
  }
  throw std::invalid_argument(std::string(name) + ": " + given + " is not known here");
}

regard::ModelConfig config_of(const py::dict& settings) {
  using namespace regard;
  ModelConfig config;
  const auto number = [&](const char* name) { return settings[name].cast<int>(); };
  const auto flag = [&](const char* name) { return settings[name].cast<bool>(); };
  config.source_vocabulary = number("source_vocabulary");
  config.target_vocabulary = number("target_vocabulary");
  config.d_model = number("d_model");
  config.num_heads = number("num_heads");
  config.num_kv_heads = number("num_kv_heads");
  config.d_k = number("d_k");
  config.d_v = number("d_v");
  config.d_ff = number("d_ff");
  config.encoder_layers = number("encoder_layers");
  config.decoder_layers = number("decoder_layers");
  config.attention_bias = flag("attention_bias");
  config.attention_output_bias = flag("attention_output_bias");
  config.feed_forward_bias = flag("feed_forward_bias");
  config.attention_scale = settings["attention_scale"].cast<double>();
  config.norm =
      one_of<NormKind>(settings, "norm", {{"layer", NormKind::layer}, {"rms", NormKind::rms}});
  config.norm_eps = settings["norm_eps"].cast<double>();
  config.norm_position = one_of<NormPosition>(
      settings, "norm_position", {{"post", NormPosition::post}, {"pre", NormPosition::pre}});
  config.feed_forward = one_of<FeedForwardKind>(settings, "feed_forward",
                                                {{"relu", FeedForwardKind::relu},
                                                 {"gelu", FeedForwardKind::gelu},
                                                 {"gelu_tanh", FeedForwardKind::gelu_tanh},
                                                 {"swish", FeedForwardKind::swish},
                                                 {"swiglu", FeedForwardKind::swiglu},
                                                 {"geglu", FeedForwardKind::geglu},
                                                 {"geglu_tanh", FeedForwardKind::geglu_tanh}});
  config.positions = one_of<PositionsKind>(settings, "positions",
                                           {{"none", PositionsKind::none},
                                            {"sinusoidal", PositionsKind::sinusoidal},
                                            {"learned", PositionsKind::learned},
                                            {"rotary", PositionsKind::rotary},
                                            {"alibi", PositionsKind::alibi},
                                            {"relative", PositionsKind::relative}});
  config.rotary_rates = settings["rotary_rates"].cast<std::vector<float>>();
  config.rotary_amplitude = settings["rotary_amplitude"].cast<float>();
  config.alibi_slopes = settings["alibi_slopes"].cast<std::vector<float>>();
  config.relative_buckets = number("relative_buckets");
  config.encoder_limits = settings["encoder_limits"].cast<std::vector<int>>();
  config.decoder_limits = settings["decoder_limits"].cast<std::vector<int>>();
  config.layout = one_of<Layout>(
      settings, "layout", {{"interleaved", Layout::interleaved}, {"halves", Layout::halves}});
  config.wavelengths = one_of<Wavelengths>(
      settings, "wavelengths", {{"paper", Wavelengths::paper}, {"full", Wavelengths::full}});
  config.max_positions = number("max_positions");
  config.tying = one_of<Tying>(
      settings, "tying",
      {{"none", Tying::none}, {"two_way", Tying::two_way}, {"three_way", Tying::three_way}});
  config.embedding_scale = flag("embedding_scale");
  config.embedding_norm = flag("embedding_norm");
  config.output_scale = flag("output_scale");
  config.output_bias = flag("output_bias");
  return config;
}

regard::Dtype dtype_of(const std::string& name) {
  if (name == "float32") return regard::Dtype::f32;
  if (name == "bfloat16") return regard::Dtype::bf16;
  if (name == "int8") return regard::Dtype::i8;
  throw std::invalid_argument("dtype: " + name + " is not known here");
}

std::unique_ptr<regard::Engine> make_engine(const py::dict& settings,
                                            const std::map<std::string, FloatArray>& arrays,
                                            const std::string& dtype, int threads) {
  regard::Weights weights;
  for (const auto& [name, array] : arrays) {
    weights[name] = {array.data(), {array.shape(), array.shape() + array.ndim()}};
  }
  const auto config = config_of(settings);
  py::gil_scoped_release others_may_run;
  return std::make_unique<regard::Engine>(config, weights, dtype_of(dtype), threads);
}

// Runs `work` on a thread of its own while this one listens for signals, which only Python's main
// thread may do; one that raises (Ctrl-C) sets `stop`, and is raised when the work has ended.
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

std::vector<std::vector<Found>> translate(const regard::Engine& engine,
                                          const std::vector<Ids>& sources,
                                          const std::vector<int>& max_tokens,
                                          const std::vector<Ids>& prefixes, std::int32_t bos,
                                          std::int32_t eos, const Ids& never, int beam, int n_best,
                                          double alpha, double coverage, int min_tokens,
                                          int no_repeat_ngram, std::size_t batch_tokens) {
  regard::SearchOptions options;
  options.bos = bos;
  options.eos = eos;
  options.never = never;
  options.beam = beam;
  options.n_best = n_best;
  options.alpha = alpha;
  options.coverage = coverage;
  options.min_tokens = min_tokens;
  options.no_repeat_ngram = no_repeat_ngram;
  options.batch_tokens = batch_tokens;
  std::atomic<bool> stop = false;
  std::vector<std::vector<regard::Hypothesis>> found;
  run_listening(
      [&] { found = engine.translate(sources, options, max_tokens, prefixes, &stop); }, stop);
  std::vector<std::vector<Found>> answers;
  answers.reserve(found.size());
  for (auto& hypotheses : found) {
    auto& answer = answers.emplace_back();
    for (auto& each : hypotheses) {
      answer.emplace_back(std::move(each.tokens), each.score, each.log_prob, each.finished);
    }
  }
  return answers;
}

using Judged = std::tuple<double, std::vector<float>, Ids, py::object>;

std::vector<Judged> score(const regard::Engine& engine, const std::vector<Ids>& sources,
                          const std::vector<Ids>& targets, std::int32_t bos, const Ids& never,
                          bool best, bool attention) {
  regard::ScoreOptions options;
  options.bos = bos;
  options.never = never;
  options.best = best;
  options.attention = attention;
  std::atomic<bool> stop = false;
  std::vector<regard::Scored> found;
  run_listening([&] { found = engine.score(sources, targets, options, &stop); }, stop);
  std::vector<Judged> answers;
  answers.reserve(found.size());
  for (std::size_t pair = 0; pair < found.size(); ++pair) {
    regard::Scored& each = found[pair];
    py::object weights = py::none();
    if (attention) {
      weights = FloatArray({targets[pair].size(), sources[pair].size()}, each.attention.data());
    }
    answers.emplace_back(each.log_prob, std::move(each.log_probs), std::move(each.best), std::move(weights));
  }
  return answers;
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "The engine's extension; regard.engine.engine is what to use.";
  module.def("isa", &regard::isa_name, "The instructions that the engine runs on.");
  bind_kernels(module);
  py::register_exception<regard::NotANumber>(module, "NotANumber", PyExc_ArithmeticError);
  py::class_<regard::Engine>(module, "Engine")
      .def(py::init(&make_engine), py::kw_only(), py::arg("config"), py::arg("weights"),
           py::arg("dtype"), py::arg("threads"))
      .def_property_readonly("bytes", &regard::Engine::bytes)
      .def_property_readonly("threads", &regard::Engine::threads)
      .def("translate", &translate, py::arg("sources"), py::kw_only(), py::arg("max_tokens"),
           py::arg("prefixes"), py::arg("bos"), py::arg("eos"), py::arg("never"), py::arg("beam"),
           py::arg("n_best"), py::arg("alpha"), py::arg("coverage"), py::arg("min_tokens"),
           py::arg("no_repeat_ngram"), py::arg("batch_tokens"))
      .def("score", &score, py::arg("sources"), py::arg("targets"), py::kw_only(), py::arg("bos"),
           py::arg("never"), py::arg("best"), py::arg("attention"));
}
