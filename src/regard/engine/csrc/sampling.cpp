#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "dice.h"

namespace regard {

namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr std::size_t kLogits = 1 << 22;  // that are held at once
constexpr int kBlock = 512;               // of a sum of exponentials

// Nothing but some tokens, which come in order.
void keep_only(float* logits, int size, const Ids& tokens) {
  float* next = logits;
  for (const std::int32_t token : tokens) {
    std::fill(next, logits + token, kNothing);
    next = logits + token + 1;
  }
  std::fill(next, logits + size, kNothing);
}

// The token that arrives first. A token whose tempered logit is x arrives at the time wait / exp(x);
// compared are the logarithms, of few: one that would be late whatever its wait is exactly, by a
// bound on it, is not computed.
class Race {
 public:
  Race(const float* logits, const float* shares, float most, double temperature,
       std::uint64_t key)
      : logits_(logits), shares_(shares), most_(most), temperature_(temperature), key_(key) {}

  void enter(std::int32_t token) {
    const std::uint64_t upper = random_bits(key_, static_cast<std::uint64_t>(token)) >> 12;
    // Shares are float32, so not quite exp(x); the bound is wider than that.
    if (static_cast<double>(static_cast<std::int64_t>(upper)) >
        static_cast<double>(shares_[token]) * limit_) {
      return;
    }
    const double x = (static_cast<double>(logits_[token]) - most_) / temperature_;
    const double ahead = x - std::log(wait_of(upper));
    if (!(ahead > best_)) return;
    best_ = ahead;
    first_ = token;
    limit_ = std::exp(-ahead) * 0x1p52 * 1.001;
  }

  std::int32_t first() const { return first_; }

 private:
  const float* logits_;
  const float* shares_;
  double most_;
  double temperature_;
  std::uint64_t key_;
  double best_ = -std::numeric_limits<double>::infinity();
  double limit_ = std::numeric_limits<double>::max();
  std::int32_t first_ = -1;
};

}  // namespace

Drawer::Drawer(const Linear& projection, const Sampling& sampling,
               std::vector<std::int32_t> never)
    : projection_(projection), sampling_(sampling), never_(std::move(never)) {
  std::erase_if(never_, [&](std::int32_t each) { return each < 0 || each >= projection.out(); });
}

void Drawer::choose(Work& work, const float* hidden, std::span<const Wish> wishes) {
  const std::size_t rows = wishes.size();
  const std::size_t width = static_cast<std::size_t>(projection_.out());
  const std::size_t most = std::max(kLogits / width, std::size_t{1});
  desks_.resize(static_cast<std::size_t>(work.team.size()));
  found_.resize(rows);
  counts_.assign(rows, 0);
  for (std::size_t first = 0; first < rows; first += most) {
    const std::size_t count = std::min(most, rows - first);
    float* logits = logits_.room(count * width);
    project(work, projection_, hidden + first * static_cast<std::size_t>(projection_.in()), count,
            logits);
    split_rows(work.team, count, width, [&](std::size_t begin, std::size_t end, int share) {
      for (std::size_t row = begin; row < end; ++row) {
        draw(logits + row * width, wishes[first + row], desks_[static_cast<std::size_t>(share)],
             first + row);
      }
    });
  }
}

std::span<const Candidate> Drawer::candidates(std::size_t row) const {
  return {found_.data() + row, counts_[row]};
}

void Drawer::draw(float* logits, const Wish& wish, Desk& desk, std::size_t row) const {
  const int size = projection_.out();
  if (wish.allowed != nullptr) keep_only(logits, size, wish.allowed->tokens);
  LogSumExp sum;
  for (int begin = 0; begin < size; begin += kBlock) {
    sum.add(logits + begin, std::min(kBlock, size - begin));
  }
  const double log_sum = sum.value();
  if (!std::isfinite(log_sum)) throw NotANumber();
  std::int32_t token = wish.forced;
  if (token < 0) {
    for (const std::int32_t each : never_) logits[each] = kNothing;
    for (const std::int32_t each : wish.blocked) logits[each] = kNothing;
    const float most = max(logits, size);
    if (most == kNothing) return;
    float* shares = desk.shares.room(static_cast<std::size_t>(size));
    for (int each = 0; each < size; ++each) {
      // Below exp(-80) nothing is ever drawn, and float32 has no use of it.
      const double x = (static_cast<double>(logits[each]) - most) / sampling_.temperature;
      shares[each] = static_cast<float>(std::max(x, -80.0));
    }
    exp(shares, size);
    // To the last bit, so that no min_p takes the likeliest away.
    for (int each = 0; each < size; ++each) {
      if (logits[each] == most) shares[each] = 1;
    }
    token = sampling_.top_p < 1 || (sampling_.top_k > 0 && sampling_.top_k < size)
                ? first_of_some(logits, shares, most, wish.key, desk)
                : first_of_all(logits, shares, most, wish.key);
  }
  if (token < 0 || logits[token] == kNothing) return;
  found_[row] = {std::min(static_cast<float>(logits[token] - log_sum), 0.0f), token};
  counts_[row] = 1;
}

std::int32_t Drawer::first_of_all(const float* logits, const float* shares, float most,
                                  std::uint64_t key) const {
  const int size = projection_.out();
  const float least = static_cast<float>(sampling_.min_p);
  Race race(logits, shares, most, sampling_.temperature, key);
  for (std::int32_t token = 0; token < size; ++token) {
    if (shares[token] >= least) race.enter(token);
  }
  return race.first();
}

std::int32_t Drawer::first_of_some(const float* logits, const float* shares, float most,
                                   std::uint64_t key, Desk& desk) const {
  take_likeliest(logits, shares, desk.order);
  const float least = static_cast<float>(sampling_.min_p);
  Race race(logits, shares, most, sampling_.temperature, key);
  for (const std::int32_t token : desk.order) {
    if (shares[token] >= least) race.enter(token);
  }
  return race.first();
}

// Fills `order` with the top_k likeliest, and of these as few as together have the share top_p.
void Drawer::take_likeliest(const float* logits, const float* shares,
                            std::vector<std::int32_t>& order) const {
  order.clear();
  for (std::int32_t token = 0; token < projection_.out(); ++token) {
    if (logits[token] > kNothing) order.push_back(token);
  }
  // Of equals the first is the likelier one.
  const auto likelier = [&](std::int32_t one, std::int32_t other) {
    return logits[one] != logits[other] ? logits[one] > logits[other] : one < other;
  };
  const std::size_t k = static_cast<std::size_t>(sampling_.top_k);
  if (k > 0 && k < order.size()) {
    std::nth_element(order.begin(), order.begin() + sampling_.top_k, order.end(), likelier);
    order.resize(k);
  }
  if (sampling_.top_p >= 1) return;
  double total = 0;
  for (const std::int32_t token : order) total += static_cast<double>(shares[token]);
  // A heap gives the likeliest ones in order, of which few are needed mostly.
  const auto less = [&](std::int32_t one, std::int32_t other) { return likelier(other, one); };
  std::make_heap(order.begin(), order.end(), less);
  double before = 0;
  auto end = order.end();
  while (end != order.begin() && before < sampling_.top_p * total) {
    std::pop_heap(order.begin(), end, less);
    before += static_cast<double>(shares[*--end]);
  }
  order.erase(order.begin(), end);
}

}  // namespace regard
