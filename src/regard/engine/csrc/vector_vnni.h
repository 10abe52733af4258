// 8-bit weights over a vector type V and D, an instruction that sums four products of bytes in 32
// bits at once: D::Integers, and functions on them. Like vector_linear.h, it includes nothing.

template <class V, class D>
struct VnniKernel : Scaled<V> {
  using Sum = typename D::Integers;
  static constexpr int width = V::width;

  struct Weight { Sum w; };
  struct Value { Sum x; };

  static const std::byte* row(const Input& input, std::size_t r) {
    return input.packed() + r * input.packed_stride();
  }
  // Inputs are 128 too large, so sums start at less.
  static Sum begin(const Linear& linear, int column) { return -D::load(linear.sums() + column); }
  static Weight weight(const std::byte* at) { return {D::load(at)}; }
  static Value value(const std::byte* row, int step) {
    int four;
    __builtin_memcpy(&four, row + static_cast<std::size_t>(step) * 4, sizeof four);
    return {D::set(four)};
  }
  static Sum more(Value x, Weight w, Sum sum) { return D::dot(sum, x.x, w.w); }
  static typename V::F end(Sum sum, typename Scaled<V>::Ends ends, const float* scales,
                           std::size_t row) {
    return Scaled<V>::end_with(D::floats(sum), ends, scales[row]);
  }
};
