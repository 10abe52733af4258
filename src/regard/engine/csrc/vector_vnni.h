// 8-bit weights over a vector type V and D, an instruction that sums four products of bytes in 32
// bits at once: D::Integers, and functions on them. Like vector_linear.h, it includes nothing.

template <class V, class D>
struct VnniKernel {
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
  static typename V::F end(Sum sum, const Linear& linear, const Input& input, std::size_t r,
                           int column) {
    const typename V::F scale =
        V::mul(V::set(input.scale()[r]), V::load(linear.scale() + column));
    return V::add(V::mul(D::floats(sum), scale), V::load(linear.bias() + column));
  }
};
