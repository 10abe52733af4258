#include "language_model.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace regard {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kMostTokens = 1 << 20;
constexpr int kMostPlaces = 1 << 29;

// Rows of one pass through the decoder: together they stay near the cache.
constexpr std::size_t kRows = 256;

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

int checked_threads(int threads) {
  require(threads >= 1 && threads <= kMostThreads,
          "threads = " + std::to_string(threads) + " is not between 1 and " +
              std::to_string(kMostThreads));
  return threads;
}

// So that the tables of positions grow seldom.
int rounded_up(int positions) {
  int rounded = 64;
  while (rounded < positions) rounded *= 2;
  return rounded;
}

}  // namespace

LanguageModel::LanguageModel(const ModelConfig& config, const Weights& weights, Dtype dtype,
                             int threads)
    : model_(config, weights, dtype), workshop_(checked_threads(threads)) {
  require(config.family == Family::language, "it is no language model");
}

Texts::Texts(LanguageModel& model, int rows) : model_(model) {
  require(rows >= 0 && rows <= kMostTokens, "rows = " + std::to_string(rows) + " is no number of texts");
  for (int row = 0; row < rows; ++row) {
    rows_.push_back({std::make_shared<Past>(model_.workshop_.together.pool, model_.model_), {}});
  }
}

Texts::~Texts() {
  const std::lock_guard lock(model_.mutex_);  // the caches go back to the pool of all
  rows_.clear();
}

int Texts::check(std::span<const int> rows,
                 const std::vector<std::vector<std::int32_t>>& tokens) const {
  const ModelConfig& config = model_.model_.config;
  require(rows.size() == tokens.size(), std::to_string(tokens.size()) + " lists of tokens for " +
                                            std::to_string(rows.size()) + " rows");
  std::vector<bool> named(rows_.size());
  std::size_t longest = 0;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    require(rows[at] >= 0 && rows[at] < this->rows(),
            "there is no row " + std::to_string(rows[at]));
    const std::size_t row = static_cast<std::size_t>(rows[at]);
    require(!named[row], "row " + std::to_string(row) + " is named twice");
    named[row] = true;
    require(!tokens[at].empty(), "there is no token for row " + std::to_string(row));
    for (const std::int32_t id : tokens[at]) {
      require(id >= 0 && id < config.target_vocabulary,
              "the id " + std::to_string(id) + " is not below the vocabulary's " +
                  std::to_string(config.target_vocabulary));
    }
    longest = std::max(longest, rows_[row].places.size() + tokens[at].size());
    require(rows_[row].past->used <=
                kMostPlaces - static_cast<int>(std::min<std::size_t>(tokens[at].size(), kMostPlaces)),
            "the texts are too long");
  }
  const int most = config.positions == PositionsKind::learned ? config.max_positions : kMostTokens;
  require(longest <= static_cast<std::size_t>(most),
          "a text of " + std::to_string(longest) + " tokens is longer than the " +
              std::to_string(most) + " positions of the model");
  return static_cast<int>(longest);
}

void Texts::advance(std::span<const int> rows,
                    const std::vector<std::vector<std::int32_t>>& tokens, float* logits) {
  const std::lock_guard lock(model_.mutex_);
  const int longest = check(rows, tokens);
  model_.model_.reach(rounded_up(longest));
  std::vector<LiveRow> live;
  std::vector<std::size_t> last;  // of each text among the rows of a pass
  std::size_t done = 0;           // texts whose logits are there
  const auto flush = [&] {
    if (live.empty()) return;
    run(live, last, logits == nullptr ? nullptr
                                      : logits + done * static_cast<std::size_t>(model_.vocabulary()));
    done += last.size();
    live.clear();
    last.clear();
  };
  for (std::size_t at = 0; at < rows.size(); ++at) {
    Row& row = rows_[static_cast<std::size_t>(rows[at])];
    // A list that grows would move from under the rows that read it.
    const std::size_t size = row.places.size() + tokens[at].size();
    if (size > row.places.capacity()) row.places.reserve(std::max(size, 2 * row.places.size()));
    for (std::size_t place = 0; place < tokens[at].size(); ++place) {
      row.places.push_back(row.past->used++);
      LiveRow next;
      next.past = &row.past->cache;
      next.places = row.places.data();
      next.length = static_cast<int>(row.places.size());
      next.token = tokens[at][place];
      live.push_back(next);
      if (place + 1 == tokens[at].size()) last.push_back(live.size() - 1);
      if (live.size() == kRows) flush();
    }
  }
  flush();
}

void Texts::run(std::span<const LiveRow> live, std::span<const std::size_t> last, float* logits) {
  Work& work = model_.workshop_.together;
  const Model& model = model_.model_;
  const std::vector<LiveRow> rows(live.begin(), live.end());
  for (const LiveRow& row : rows) row.past->reach(row.places[row.length - 1] + 1);
  const float* hidden = decode(work, model, rows);
  if (logits == nullptr || last.empty()) return;
  const std::size_t width = static_cast<std::size_t>(model.config.d_model);
  float* wanted = work.normed.room(last.size() * width);
  for (std::size_t text = 0; text < last.size(); ++text) {
    std::copy_n(hidden + last[text] * width, width, wanted + text * width);
  }
  project(work, model.projection, wanted, last.size(), logits);
}

void Texts::select(std::span<const int> rows) {
  const std::lock_guard lock(model_.mutex_);
  for (const int row : rows) {
    require(row >= 0 && row < this->rows(), "there is no row " + std::to_string(row));
  }
  std::vector<Row> kept;
  kept.reserve(rows.size());
  for (const int row : rows) kept.push_back(rows_[static_cast<std::size_t>(row)]);
  rows_ = std::move(kept);
}

}  // namespace regard
