#include "bindings_families.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings_config.h"
#include "bindings_listening.h"
#include "language_model.h"
#include "text_encoder.h"

namespace py = pybind11;

namespace {

using Ids = std::vector<std::int32_t>;

template <class Model>
std::unique_ptr<Model> make(const py::dict& settings,
                            const py::dict& arrays,
                            const std::string& dtype, int threads) {
  const regard::Weights weights = weights_of(arrays);
  const regard::ModelConfig config = config_of(settings);
  py::gil_scoped_release others_may_run;
  return std::make_unique<Model>(config, weights, dtype_of(dtype), threads);
}

// Texts keep the model that they came of; Python's `keep_alive` sees to that.
struct TextsOf {
  TextsOf(regard::LanguageModel& model, int rows)
      : vocabulary(model.vocabulary()), texts(model, rows) {}

  int vocabulary;
  regard::Texts texts;
};

py::object advance(TextsOf& self, const std::vector<int>& rows, const std::vector<Ids>& tokens,
                   bool logits) {
  FloatArray out({logits ? rows.size() : 0, static_cast<std::size_t>(self.vocabulary)});
  float* data = logits ? out.mutable_data() : nullptr;
  {
    py::gil_scoped_release others_may_run;
    self.texts.advance(rows, tokens, data);
  }
  return logits ? py::object(std::move(out)) : py::none();
}

regard::Pooling pooling_of(const std::string& name) {
  if (name == "mean") return regard::Pooling::mean;
  if (name == "cls") return regard::Pooling::first;
  throw std::invalid_argument("pooling: " + name + " is not known here");
}

FloatArray pool(regard::TextEncoder& self, const std::vector<Ids>& texts,
                const std::string& pooling) {
  FloatArray out({texts.size(), static_cast<std::size_t>(self.config().d_model)});
  float* data = out.mutable_data();
  const regard::Pooling how = pooling_of(pooling);
  std::atomic<bool> stop = false;
  run_listening([&] { self.pool(texts, how, data, &stop); }, stop);
  return out;
}

FloatArray classify(regard::TextEncoder& self, const std::vector<Ids>& texts,
                    const std::string& pooling) {
  FloatArray out({texts.size(), static_cast<std::size_t>(self.config().classes)});
  float* data = out.mutable_data();
  const regard::Pooling how = pooling_of(pooling);
  std::atomic<bool> stop = false;
  run_listening([&] { self.classify(texts, how, data, &stop); }, stop);
  return out;
}

FloatArray predict(regard::TextEncoder& self, const Ids& text, const std::vector<int>& places) {
  FloatArray out({places.size(), static_cast<std::size_t>(self.config().source_vocabulary)});
  float* data = out.mutable_data();
  py::gil_scoped_release others_may_run;
  self.predict(text, places, data);
  return out;
}

}  // namespace

void bind_families(py::module_& module) {
  py::class_<regard::LanguageModel>(module, "LanguageModel")
      .def(py::init(&make<regard::LanguageModel>), py::kw_only(), py::arg("config"),
           py::arg("weights"), py::arg("dtype"), py::arg("threads"))
      .def_property_readonly("bytes", &regard::LanguageModel::bytes)
      .def_property_readonly("threads", &regard::LanguageModel::threads);
  py::class_<TextsOf>(module, "Texts")
      .def(py::init<regard::LanguageModel&, int>(), py::arg("model"), py::arg("rows"),
           py::keep_alive<1, 2>())
      .def("advance", &advance, py::arg("rows"), py::arg("tokens"), py::kw_only(),
           py::arg("logits"))
      .def("select", [](TextsOf& self, const std::vector<int>& rows) { self.texts.select(rows); });
  py::class_<regard::TextEncoder>(module, "TextEncoder")
      .def(py::init(&make<regard::TextEncoder>), py::kw_only(), py::arg("config"),
           py::arg("weights"), py::arg("dtype"), py::arg("threads"))
      .def_property_readonly("bytes", &regard::TextEncoder::bytes)
      .def_property_readonly("threads", &regard::TextEncoder::threads)
      .def("pool", &pool, py::arg("texts"), py::kw_only(), py::arg("pooling"))
      .def("classify", &classify, py::arg("texts"), py::kw_only(), py::arg("pooling"))
      .def("predict", &predict, py::arg("text"), py::arg("places"));
}
