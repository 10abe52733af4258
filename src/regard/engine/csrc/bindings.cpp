// The engine for Python: arrays and lists in, tuples out; nothing of the work itself.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings_config.h"
#include "bindings_families.h"
#include "bindings_kernels.h"
#include "bindings_listening.h"
#include "bindings_packed.h"
#include "bindings_shortlist.h"
#include "engine.h"
#include "isa.h"

namespace py = pybind11;

namespace {

using Ids = std::vector<std::int32_t>;
using Found = std::tuple<Ids, double, double, bool>;

std::unique_ptr<regard::Engine> make_engine(const py::dict& settings,
                                            const py::dict& arrays,
                                            const std::string& dtype, int threads) {
  const regard::Weights weights = weights_of(arrays);
  const auto config = config_of(settings);
  py::gil_scoped_release others_may_run;
  return std::make_unique<regard::Engine>(config, weights, dtype_of(dtype), threads);
}

std::vector<std::vector<Found>> translate(const regard::Engine& engine,
                                          const std::vector<Ids>& sources,
                                          const std::vector<int>& max_tokens,
                                          const std::vector<Ids>& prefixes, std::int32_t bos,
                                          std::int32_t eos, const Ids& never, int beam, int n_best,
                                          double alpha, double coverage, int min_tokens,
                                          int no_repeat_ngram, std::size_t batch_tokens,
                                          const std::optional<std::vector<std::uint64_t>>& seeds,
                                          double temperature, int top_k, double top_p,
                                          double min_p, const regard::Shortlist* shortlist) {
  regard::SearchOptions options;
  options.shortlist = shortlist;
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
  if (seeds) options.sampling = {true, *seeds, temperature, top_k, top_p, min_p};
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
  bind_families(module);
  bind_packed(module);
  bind_shortlist(module);
  py::register_exception<regard::NotANumber>(module, "NotANumber", PyExc_ArithmeticError);
  py::class_<regard::Engine>(module, "Engine")
      .def(py::init(&make_engine), py::kw_only(), py::arg("config"), py::arg("weights"),
           py::arg("dtype"), py::arg("threads"))
      .def_property_readonly("bytes", &regard::Engine::bytes)
      .def_property_readonly("threads", &regard::Engine::threads)
      .def("translate", &translate, py::arg("sources"), py::kw_only(), py::arg("max_tokens"),
           py::arg("prefixes"), py::arg("bos"), py::arg("eos"), py::arg("never"), py::arg("beam"),
           py::arg("n_best"), py::arg("alpha"), py::arg("coverage"), py::arg("min_tokens"),
           py::arg("no_repeat_ngram"), py::arg("batch_tokens"), py::arg("seeds"),
           py::arg("temperature"), py::arg("top_k"), py::arg("top_p"), py::arg("min_p"),
           py::arg("shortlist"))
      .def("score", &score, py::arg("sources"), py::arg("targets"), py::kw_only(), py::arg("bos"),
           py::arg("never"), py::arg("best"), py::arg("attention"));
}
