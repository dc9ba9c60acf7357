// Operations of a generated row step, as XLA defines them, where C++ leaves them open or defines them otherwise: in row_step.h,
// and in the kernels of the backend cuda, which NVRTC compiles without standard headers. DEVICE and MEMBER begin a function.
template <class T>
DEVICE T maximum(T a, T b) {  // NaN in, NaN out
  return a > b || a != a ? a : b;
}
template <class T>
DEVICE T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}

template <class T>
struct Integer;
#define SPARROW_INTEGER(SIGNED, UNSIGNED) \
  template <>                             \
  struct Integer<SIGNED> {                \
    typedef UNSIGNED U;                   \
    typedef SIGNED S;                     \
  };                                      \
  template <>                             \
  struct Integer<UNSIGNED> {              \
    typedef UNSIGNED U;                   \
    typedef SIGNED S;                     \
  };
SPARROW_INTEGER(int8_t, uint8_t)
SPARROW_INTEGER(int16_t, uint16_t)
SPARROW_INTEGER(int32_t, uint32_t)
SPARROW_INTEGER(int64_t, uint64_t)

template <class T>
DEVICE T least_integer() {
  return T(-1) < T(0) ? T(typename Integer<T>::U(1) << (sizeof(T) * 8 - 1)) : T(0);
}
// No number is below lowest() or above highest().
template <class T>
struct Ends {
  static MEMBER T lowest() { return least_integer<T>(); }
  static MEMBER T highest() { return T(~least_integer<T>()); }
};
template <>
struct Ends<bool> {
  static MEMBER bool lowest() { return false; }
  static MEMBER bool highest() { return true; }
};
template <>
struct Ends<float> {
  static MEMBER float lowest() { return -__builtin_inff(); }
  static MEMBER float highest() { return __builtin_inff(); }
};
template <>
struct Ends<double> {
  static MEMBER double lowest() { return -__builtin_inf(); }
  static MEMBER double highest() { return __builtin_inf(); }
};

template <class T>
DEVICE T sign(T x) {  // zeros and NaN stay as they are
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}
DEVICE bool is_finite(float x) { return fabsf(x) <= 3.4028234663852886e38f; }
DEVICE bool is_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }

// Shifts by the width or more leave zeros, or the sign.
template <class T>
DEVICE T shift_left(T x, T by) {
  typedef typename Integer<T>::U U;
  return U(by) < sizeof(T) * 8 ? T(U(x) << by) : T(0);
}
template <class T>
DEVICE T shift_right_logical(T x, T by) {
  typedef typename Integer<T>::U U;
  return U(by) < sizeof(T) * 8 ? T(U(x) >> by) : T(0);
}
template <class T>
DEVICE T shift_right_arithmetic(T x, T by) {
  typedef typename Integer<T>::U U;
  const T last = sizeof(T) * 8 - 1;
  return T(typename Integer<T>::S(x) >> (U(by) < U(last) ? by : last));
}

// Floating point to integer: NaN gives 0, numbers out of range the nearest end.
template <class To, class From>
DEVICE To to_integer(From x) {
  const To low = Ends<To>::lowest(), high = Ends<To>::highest();
  if (x != x) return To(0);
  if (x <= From(low)) return low;
  if (x >= From(high)) return high;
  return To(x);
}
