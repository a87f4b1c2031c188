// Lp normalisation of float32: every usual exponent with every usual head dimension.

#include "lp_kernels.h"

namespace lp {

namespace {

template <int TWICE_P>
Variant for_row(int64_t row) {
    if (row == 16) return variant<float, TWICE_P, 16>();
    if (row == 32) return variant<float, TWICE_P, 32>();
    if (row == 64) return variant<float, TWICE_P, 64>();
    if (row == 128) return variant<float, TWICE_P, 128>();
    return variant<float, TWICE_P, ANY_LENGTH>();
}

}  // namespace

Variant of_float(float p, int64_t row) {
    if (p == 1.0f) return for_row<2>(row);
    if (p == 1.5f) return for_row<3>(row);
    if (p == 2.0f) return for_row<4>(row);
    if (p == 2.5f) return for_row<5>(row);
    if (p == 3.0f) return for_row<6>(row);
    if (p == 3.5f) return for_row<7>(row);
    if (p == 4.0f) return for_row<8>(row);
    if (p == __builtin_inff()) return for_row<INFINITE>(row);
    return variant<float, GENERAL, ANY_LENGTH>();
}

}  // namespace lp
