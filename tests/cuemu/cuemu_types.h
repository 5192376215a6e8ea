/* Vector types of CUDA, with the alignment that kernels rely on, and dim3. */
#ifndef STINT_TESTS_CUEMU_CUEMU_TYPES_H
#define STINT_TESTS_CUEMU_CUEMU_TYPES_H

#define CUEMU_VECTORS(T, name)                                                                               \
  struct name##1 {                                                                                           \
    T x;                                                                                                     \
  };                                                                                                         \
  struct alignas(2 * sizeof(T)) name##2 {                                                                    \
    T x, y;                                                                                                  \
  };                                                                                                         \
  struct name##3 {                                                                                           \
    T x, y, z;                                                                                               \
  };                                                                                                         \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 {                                          \
    T x, y, z, w;                                                                                            \
  };                                                                                                         \
  static inline name##2 make_##name##2(const T x, const T y) { return {x, y}; }                              \
  static inline name##3 make_##name##3(const T x, const T y, const T z) { return {x, y, z}; }                \
  static inline name##4 make_##name##4(const T x, const T y, const T z, const T w) { return {x, y, z, w}; }

CUEMU_VECTORS(signed char, char)
CUEMU_VECTORS(unsigned char, uchar)
CUEMU_VECTORS(short, short)
CUEMU_VECTORS(unsigned short, ushort)
CUEMU_VECTORS(int, int)
CUEMU_VECTORS(unsigned, uint)
CUEMU_VECTORS(float, float)
CUEMU_VECTORS(double, double)
CUEMU_VECTORS(long long, longlong)
CUEMU_VECTORS(unsigned long long, ulonglong)
#undef CUEMU_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(const unsigned x_ = 1, const unsigned y_ = 1, const unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#endif
