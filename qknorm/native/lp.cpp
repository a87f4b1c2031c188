// Lp normalisation of rows, forward and backward, for the CPU.
//
// lp.py compiles this file once for each variant that is asked for, with three definitions:
//   TWICE_P   2p for a small half-integer p; 0 for p = infinity; -1 for any other p (`p` is then read at run time)
//   ROW       the length of a row, or 0 where it is only known at run time
//   STORAGE   0 float, 1 bfloat16, 2 IEEE half; arithmetic is always float
//
// x is (batch, heads, length, row) with any strides but a contiguous last dimension.
//   forward    N = (sum |x|^p)^(1/p),                  y = g x / N
//   backward   dx = g (dy - s (xhat . dy)) / N,        s = sign(xhat) |xhat|^(p-1),  dg = xhat . dy
// A row whose norm is not above `floor` gives zeros in both directions.

#include <cstdint>

#include "kernels.h"

namespace {

constexpr int INFINITE = 0, GENERAL = -1;

// A row whose largest entry is below this counts as zero: the inverse would overflow.
constexpr float SMALLEST_NORMAL = 1.17549435e-38f;
constexpr float LARGEST = 3.40282347e38f;

// Between these a plain sum of powers in float has lost nothing: what underflowed is below rounding.
constexpr float SAFE_FROM = 1e-29f, SAFE_TO = 1e29f;

// Rows handled together: their roots are taken as one vector, and 64 rows of 64 floats stay in the first-level cache.
constexpr int64_t BLOCK = 64;

// How many rows ahead memory is asked for; 4, 8 and 16 measured alike, none at all 10 to 30 % slower.
constexpr int64_t AHEAD = 8;

struct BFloat16 { uint16_t bits; };

#if STORAGE == 0
using Element = float;
#elif STORAGE == 1
using Element = BFloat16;
#else
using Element = _Float16;
#endif

inline float load(float value) { return value; }
inline void store(float &target, float value) { target = value; }

inline float load(BFloat16 value) { return bits_to_float(uint32_t(value.bits) << 16); }
inline void store(BFloat16 &target, float value) {
    const uint32_t bits = float_to_bits(value);
    const uint32_t nearest_even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    target.bits = value != value ? uint16_t(0x7fc0) : uint16_t(nearest_even);
}

#if STORAGE == 2
inline float load(_Float16 value) { return float(value); }
inline void store(_Float16 &target, float value) { target = _Float16(value); }
#endif

template <int FOR_WRITING>
inline void prefetch(const Element *row_start, int64_t row) {
    const char *start = reinterpret_cast<const char *>(row_start), *end = start + row * int64_t(sizeof(Element));
    for (const char *line = start; line < end; line += 64) __builtin_prefetch(line, FOR_WRITING);
}

// r^(TWICE/2) for r >= 0: products, and a root where TWICE is odd.
template <int TWICE>
inline float power(float r, float exponent) {
    if constexpr (TWICE == GENERAL) {
        const float y = exp2_of(exponent * log2_of(r));
        return r > 0.0f ? y : r;  // log2(0) is not to be trusted; NaN passes through
    } else {
        float y = 1.0f;
        for (int i = 0; i < TWICE / 2; ++i) y *= r;
        if constexpr (TWICE % 2 == 1) y *= __builtin_sqrtf(r);
        return y;
    }
}

// max|x|, NaN where the row holds one: as integers, the bits of non-negative floats keep their order, NaN on top.
inline float largest_magnitude(const Element *x, int64_t row) {
    int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < row; ++i) {
        const int32_t bits = int32_t(float_to_bits(load(x[i])) & 0x7fffffffu);
        largest = bits > largest ? bits : largest;
    }
    return bits_to_float(uint32_t(largest));
}

inline float sum_of_powers(const Element *x, int64_t row, float factor, float p) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < row; ++i) sum += power<TWICE_P>(__builtin_fabsf(load(x[i])) * factor, p);
    return sum;
}

inline float root(float sum, float p) {
    if constexpr (TWICE_P == INFINITE || TWICE_P == 2) return sum;
    if constexpr (TWICE_P == 4) return __builtin_sqrtf(sum);
    if constexpr (TWICE_P == 8) return __builtin_sqrtf(__builtin_sqrtf(sum));
    return sum < 3e38f ? exp2_of(log2_of(sum) / p) : sum;  // infinite or NaN: as it came
}

// A row whose plain sum leaves the safe range: its entries are divided by the largest of them first.
inline void forward_row_scaled(const Element *x, Element *y, float *norm, float g, int64_t row, float p, float floor) {
    const float largest = largest_magnitude(x, row);
    const float inverse = largest < SMALLEST_NORMAL ? 0.0f : 1.0f / largest;
    const float ratio = TWICE_P == INFINITE ? 1.0f : root(sum_of_powers(x, row, inverse, p), p);
    *norm = largest < SMALLEST_NORMAL ? 0.0f : largest * ratio;
    const float factor = *norm <= floor ? 0.0f * g : g / ratio;
#pragma omp simd
    for (int64_t i = 0; i < row; ++i) store(y[i], load(x[i]) * inverse * factor);
}

// Returns whether g or a row holds something that is not a finite number. Such rows never take the quick way, so that
// asking costs nothing.
inline int forward_block(const Element *__restrict x, int64_t x_stride, Element *__restrict y, int64_t y_stride,
                         float *__restrict norms, float g, int64_t rows, int64_t runtime_row, float p, float floor) {
    const int64_t row = ROW ? ROW : runtime_row;
    int is_broken = !(__builtin_fabsf(g) <= LARGEST);
    float sums[BLOCK], factors[BLOCK];
    for (int64_t r = 0; r < rows; ++r) {
        const Element *in = x + r * x_stride;
        if (r + AHEAD < rows) prefetch<0>(in + AHEAD * x_stride, row);
        prefetch<1>(y + r * y_stride, row);
        sums[r] = TWICE_P == INFINITE ? largest_magnitude(in, row) : sum_of_powers(in, row, 1.0f, p);
    }
#pragma omp simd
    for (int64_t r = 0; r < rows; ++r) {
        norms[r] = root(sums[r], p);
        factors[r] = norms[r] <= floor ? 0.0f * g : g / norms[r];
    }
    for (int64_t r = 0; r < rows; ++r) {
        const Element *in = x + r * x_stride;
        Element *out = y + r * y_stride;
        const float factor = factors[r];
        if (sums[r] > SAFE_FROM && sums[r] < SAFE_TO) {
#pragma omp simd
            for (int64_t i = 0; i < row; ++i) store(out[i], load(in[i]) * factor);
        } else {
            forward_row_scaled(in, out, norms + r, g, row, p, floor);
            is_broken |= !(norms[r] <= LARGEST);
        }
    }
    return is_broken;
}

inline void backward_row(const Element *__restrict x, const Element *__restrict dy, Element *__restrict dx, float norm,
                         float g, float *dot, int64_t runtime_row, float p, float floor) {
    const int64_t row = ROW ? ROW : runtime_row;
    const float inverse = norm <= floor ? 0.0f : 1.0f / norm;
    float along = 0.0f;  // xhat . dy
#pragma omp simd reduction(+ : along)
    for (int64_t i = 0; i < row; ++i) along += load(x[i]) * inverse * load(dy[i]);
    *dot = along;
    const float f = g * inverse;
    if constexpr (TWICE_P == INFINITE) {
#pragma omp simd
        for (int64_t i = 0; i < row; ++i) store(dx[i], f * load(dy[i]));
        int32_t first = int32_t(row);  // the first of the largest, as torch.argmax has it
#pragma omp simd reduction(min : first)
        for (int64_t i = 0; i < row; ++i) {
            const int32_t here = __builtin_fabsf(load(x[i])) == norm ? int32_t(i) : int32_t(row);
            first = here < first ? here : first;
        }
        if (first < row)
            store(dx[first], f * (load(dy[first]) - (load(x[first]) < 0.0f ? -along : along)));
    } else {
#pragma omp simd
        for (int64_t i = 0; i < row; ++i) {
            const float unit = load(x[i]) * inverse;
            float s;
            if constexpr (TWICE_P == 2) s = unit > 0.0f ? 1.0f : unit < 0.0f ? -1.0f : unit;
            else if constexpr (TWICE_P == 4) s = unit;
            else s = __builtin_copysignf(power<TWICE_P == GENERAL ? GENERAL : TWICE_P - 2>(__builtin_fabsf(unit), p - 1), unit);
            store(dx[i], f * (load(dy[i]) - s * along));
        }
    }
}

}  // namespace

// `layout` is (batch, heads, length, row), the stride of g over heads (0 for one value), then for each tensor in the
// order of the arguments its strides over batch, heads and length, in elements.
// Returns whether x or g holds something that is not a finite number.
extern "C" int lp_forward(const Element *x, Element *y, float *norms, const float *g, const int64_t *layout, float p,
                          float floor, int threads) {
    const int64_t batch = layout[0], heads = layout[1], length = layout[2], row = layout[3], g_stride = layout[4];
    const int64_t *x_strides = layout + 5, *y_strides = layout + 8;
    int is_broken = 0;
#pragma omp parallel for collapse(3) num_threads(threads) reduction(| : is_broken)
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t l = 0; l < length; l += BLOCK)
                is_broken |= forward_block(x + b * x_strides[0] + h * x_strides[1] + l * x_strides[2], x_strides[2],
                                           y + b * y_strides[0] + h * y_strides[1] + l * y_strides[2], y_strides[2],
                                           norms + (b * heads + h) * length + l, g[h * g_stride],
                                           length - l < BLOCK ? length - l : BLOCK, row, p, floor);
    return is_broken;
}

// `dots` receives xhat . dy of every row, whose sum is the gradient of g.
extern "C" void lp_backward(const Element *x, const Element *dy, Element *dx, const float *norms, float *dots,
                            const float *g, const int64_t *layout, float p, float floor, int threads) {
    const int64_t batch = layout[0], heads = layout[1], length = layout[2], row = layout[3], g_stride = layout[4];
    const int64_t *x_strides = layout + 5, *dy_strides = layout + 8, *dx_strides = layout + 11;
#pragma omp parallel for collapse(3) num_threads(threads)
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t block = 0; block < length; block += BLOCK)
                for (int64_t l = block; l < length && l < block + BLOCK; ++l) {
                    const Element *in = x + b * x_strides[0] + h * x_strides[1] + l * x_strides[2];
                    const Element *out_gradient = dy + b * dy_strides[0] + h * dy_strides[1] + l * dy_strides[2];
                    Element *in_gradient = dx + b * dx_strides[0] + h * dx_strides[1] + l * dx_strides[2];
                    if (l + AHEAD < length) {
                        prefetch<0>(in + AHEAD * x_strides[2], row);
                        prefetch<0>(out_gradient + AHEAD * dy_strides[2], row);
                        prefetch<1>(in_gradient + AHEAD * dx_strides[2], row);
                    }
                    const int64_t r = (b * heads + h) * length + l;
                    backward_row(in, out_gradient, in_gradient, norms[r], g[h * g_stride], dots + r, row, p, floor);
                }
}
