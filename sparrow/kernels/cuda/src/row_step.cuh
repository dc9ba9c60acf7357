// How the parts of a reduction are joined, and the functions that generated row steps call.
struct Sum {
  template <class T>
  MEMBER T operator()(T a, T b) const { return T(a + b); }
};
struct Product {
  template <class T>
  MEMBER T operator()(T a, T b) const { return T(a * b); }
};
struct Maximum {
  template <class T>
  MEMBER T operator()(T a, T b) const { return maximum(a, b); }
};
struct Minimum {
  template <class T>
  MEMBER T operator()(T a, T b) const { return minimum(a, b); }
};

namespace math {
#define SPARROW_MATH_1(NAME)                       \
  DEVICE float NAME(float x) { return NAME##f(x); } \
  DEVICE double NAME(double x) { return ::NAME(x); }
#define SPARROW_MATH_2(NAME)                                     \
  DEVICE float NAME(float x, float y) { return NAME##f(x, y); }   \
  DEVICE double NAME(double x, double y) { return ::NAME(x, y); }
SPARROW_MATH_1(sqrt) SPARROW_MATH_1(cbrt) SPARROW_MATH_1(exp) SPARROW_MATH_1(exp2) SPARROW_MATH_1(expm1)
SPARROW_MATH_1(log) SPARROW_MATH_1(log1p) SPARROW_MATH_1(sin) SPARROW_MATH_1(cos) SPARROW_MATH_1(tan)
SPARROW_MATH_1(asin) SPARROW_MATH_1(acos) SPARROW_MATH_1(atan) SPARROW_MATH_2(atan2) SPARROW_MATH_1(sinh)
SPARROW_MATH_1(cosh) SPARROW_MATH_1(tanh) SPARROW_MATH_1(asinh) SPARROW_MATH_1(acosh) SPARROW_MATH_1(atanh)
SPARROW_MATH_1(erf) SPARROW_MATH_1(erfc) SPARROW_MATH_1(lgamma) SPARROW_MATH_1(floor) SPARROW_MATH_1(ceil)
SPARROW_MATH_2(nextafter) SPARROW_MATH_2(pow) SPARROW_MATH_2(fmod) SPARROW_MATH_1(nearbyint) SPARROW_MATH_1(round)
DEVICE float abs(float x) { return fabsf(x); }
DEVICE double abs(double x) { return fabs(x); }
template <class T>
DEVICE T abs(T x) { return x < T(0) ? T(-x) : x; }
}  // namespace math
