// Lp normalisation of half precision: the usual exponents, any row length.

#include "lp_kernels.h"

namespace lp {

namespace {

template <class Element>
Variant of(float p) {
    if (p == 1.0f) return variant<Element, 2, ANY_LENGTH>();
    if (p == 2.0f) return variant<Element, 4, ANY_LENGTH>();
    if (p == 3.0f) return variant<Element, 6, ANY_LENGTH>();
    if (p == 4.0f) return variant<Element, 8, ANY_LENGTH>();
    if (p == __builtin_inff()) return variant<Element, INFINITE, ANY_LENGTH>();
    return variant<Element, GENERAL, ANY_LENGTH>();
}

}  // namespace

Variant of_bfloat16(float p) { return of<BFloat16>(p); }
#ifdef HAS_HALF
Variant of_half(float p) { return of<Half>(p); }
#endif

}  // namespace lp
