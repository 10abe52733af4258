// What encoder and decoder are both put together from: projections, norms, residuals.
#pragma once

#include <cstddef>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "model.h"
#include "threads.h"

namespace regard {

// A team with the memory that it needs between one layer and the next.
struct Work {
  explicit Work(Team& given) : team(given), scores(static_cast<std::size_t>(given.size())) {}

  Team& team;
  Pool pool;
  Input input;
  Buffer hidden;
  Buffer normed;
  Buffer branch;
  Buffer projected;
  Buffer context;
  Buffer inner;
  std::vector<Buffer> scores;  // one a thread
};

// Calls work(begin, end, share) for parts of `rows`, on one thread where there is little to do.
template <class Part>
void split_rows(Team& team, std::size_t rows, std::size_t cost_of_row, Part&& part) {
  constexpr std::size_t kLittle = 1 << 15;
  if (team.size() == 1 || rows < 2 || rows * cost_of_row < kLittle) {
    part(std::size_t{0}, rows, 0);
    return;
  }
  team.run([&](int share) {
    const std::size_t shares = static_cast<std::size_t>(team.size());
    const std::size_t number = static_cast<std::size_t>(share);
    part(rows * number / shares, rows * (number + 1) / shares, share);
  });
}

// y = x W^T + b over rows that lie one after the other. The second one reads `work.input`, which
// the first has made ready.
void project(Work& work, const Linear& linear, const float* x, std::size_t rows, float* y);
void make_ready(Work& work, Dtype dtype, const float* x, std::size_t rows, int in);
void project_ready(Work& work, const Linear& linear, float* y);

void normalise(const Norm& norm, const float* x, float* y, int width);
void normalise(Work& work, const Norm& norm, const float* x, float* y, std::size_t rows,
               int width);

// x += branch, then the norm over x in place when there is one.
void join(Work& work, const Norm* norm, const float* branch, float* x, std::size_t rows,
          int width);

void feed_forward(Work& work, const ModelConfig& config, const FeedForward& layer, const float* x,
                  std::size_t rows, float* y);

// x = norm(x + sublayer(x)), or x + sublayer(norm(x)); sublayer(in, out) fills out.
template <class Sublayer>
void residual(Work& work, const ModelConfig& config, const Norm& norm, float* x, std::size_t rows,
              Sublayer&& sublayer) {
  const std::size_t size = rows * static_cast<std::size_t>(config.d_model);
  float* branch = work.branch.room(size);
  if (config.norm_position == NormPosition::pre) {
    float* normed = work.normed.room(size);
    normalise(work, norm, x, normed, rows, config.d_model);
    sublayer(normed, branch);
    join(work, nullptr, branch, x, rows, config.d_model);
  } else {
    sublayer(x, branch);
    join(work, &norm, branch, x, rows, config.d_model);
  }
}

// One row of the embedding at its position.
void embed(const Model& model, const Embedding& embedding, int id, int position, float* row);

}  // namespace regard
