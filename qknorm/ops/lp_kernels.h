// The loops of Lp normalisation, as templates over element type, exponent and row length. See lp.cpp for the mathematics.

#pragma once

#include "kernels.h"
#include "tensors.h"

namespace lp {

constexpr int INFINITE = 0, GENERAL = -1;  // exponents are known as 2p: these are no such numbers
constexpr int ANY_LENGTH = 0;

// A row whose largest entry is below this counts as zero: the inverse would overflow.
constexpr float SMALLEST_NORMAL = 1.17549435e-38f;

// Between these a plain sum of powers in float has lost nothing: what underflowed is below rounding.
constexpr float SAFE_FROM = 1e-29f, SAFE_TO = 1e29f;

// Rows handled together: their roots are taken as one vector, and 64 rows of 64 floats stay in the first-level cache.
constexpr int64_t BLOCK = 64;

// How many rows ahead memory is asked for; 4, 8 and 16 measured alike, none at all 10 to 30 % slower.
constexpr int64_t AHEAD = 8;

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

template <int TWICE_P>
inline float root(float sum, float p) {
    if constexpr (TWICE_P == INFINITE || TWICE_P == 2) return sum;
    if constexpr (TWICE_P == 4) return __builtin_sqrtf(sum);
    if constexpr (TWICE_P == 8) return __builtin_sqrtf(__builtin_sqrtf(sum));
    return sum < 3e38f ? exp2_of(log2_of(sum) / p) : sum;  // infinite or NaN: as it came
}

// The strides of a tensor over batch, heads and length, in elements.
struct Strides { int64_t batch, head, position; };

struct Task {
    int64_t batch, heads, length, row;
    float p, floor;
    const float *g;
    int64_t g_stride;  // 0 where all heads have the same

    int64_t blocks() const { return (length + BLOCK - 1) / BLOCK; }
};

template <int FOR_WRITING, class Element>
inline void prefetch(const Element *row_start, int64_t row) {
    const char *start = reinterpret_cast<const char *>(row_start), *end = start + row * int64_t(sizeof(Element));
    for (const char *line = start; line < end; line += 64) __builtin_prefetch(line, FOR_WRITING);
}


// max|x|, NaN where the row holds one: as integers, the bits of non-negative floats keep their order, NaN on top.
template <class Element>
inline float largest_magnitude(const Element *x, int64_t row) {
    int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < row; ++i) {
        const int32_t bits = int32_t(float_to_bits(load(x[i])) & 0x7fffffffu);
        largest = bits > largest ? bits : largest;
    }
    return bits_to_float(uint32_t(largest));
}

template <int TWICE_P, class Element>
inline float sum_of_powers(const Element *x, int64_t row, float factor, float p) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < row; ++i) sum += power<TWICE_P>(__builtin_fabsf(load(x[i])) * factor, p);
    return sum;
}

// A row whose plain sum leaves the safe range: its entries are divided by the largest of them first. Seldom called, so
// it is made once for all row lengths.
template <int TWICE_P, class Element>
[[gnu::noinline]] void forward_row_scaled(const Element *x, Element *y, float *norm, float g, int64_t row, float p,
                                          float floor) {
    const float largest = largest_magnitude(x, row);
    const float inverse = largest < SMALLEST_NORMAL ? 0.0f : 1.0f / largest;
    const float ratio = TWICE_P == INFINITE ? 1.0f : root<TWICE_P>(sum_of_powers<TWICE_P>(x, row, inverse, p), p);
    *norm = largest < SMALLEST_NORMAL ? 0.0f : largest * ratio;
    const float factor = *norm <= floor ? 0.0f * g : g / ratio;
#pragma omp simd
    for (int64_t i = 0; i < row; ++i) store(y[i], load(x[i]) * inverse * factor);
}

template <class Element, int TWICE_P, int ROW>
struct Kernel {
    static void forward_block(const Element *__restrict x, int64_t x_stride, Element *__restrict y, int64_t y_stride,
                              float *__restrict norms, float g, int64_t rows, int64_t runtime_row, float p,
                              float floor) {
        const int64_t row = ROW == ANY_LENGTH ? runtime_row : ROW;
        float sums[BLOCK], factors[BLOCK];
        for (int64_t r = 0; r < rows; ++r) {
            const Element *in = x + r * x_stride;
            if (r + AHEAD < rows) prefetch<0>(in + AHEAD * x_stride, row);
            prefetch<1>(y + r * y_stride, row);
            sums[r] = TWICE_P == INFINITE ? largest_magnitude(in, row) : sum_of_powers<TWICE_P>(in, row, 1.0f, p);
        }
#pragma omp simd
        for (int64_t r = 0; r < rows; ++r) {
            norms[r] = root<TWICE_P>(sums[r], p);
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
                forward_row_scaled<TWICE_P>(in, out, norms + r, g, row, p, floor);
            }
        }
    }

    static void backward_row(const Element *__restrict x, const Element *__restrict dy, Element *__restrict dx,
                             float norm, float g, float *dot, int64_t runtime_row, float p, float floor) {
        const int64_t row = ROW == ANY_LENGTH ? runtime_row : ROW;
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
            if (first < row) store(dx[first], f * (load(dy[first]) - (load(x[first]) < 0.0f ? -along : along)));
        } else {
#pragma omp simd
            for (int64_t i = 0; i < row; ++i) {
                const float unit = load(x[i]) * inverse;
                float s;
                if constexpr (TWICE_P == 2) s = unit > 0.0f ? 1.0f : unit < 0.0f ? -1.0f : unit;
                else if constexpr (TWICE_P == 4) s = unit;
                else s = __builtin_copysignf(power < TWICE_P == GENERAL ? GENERAL : TWICE_P - 2 > (__builtin_fabsf(unit), p - 1), unit);
                store(dx[i], f * (load(dy[i]) - s * along));
            }
        }
    }

    static void forward(const Task &task, const void *x_, Strides xs, void *y_, Strides ys, float *norms) {
        const Element *x = static_cast<const Element *>(x_);
        Element *y = static_cast<Element *>(y_);
        const int64_t blocks = task.blocks();
        in_parallel(task.batch * task.heads * blocks, task.batch * task.heads * task.length * task.row, [&](int64_t i) {
            const int64_t l = i % blocks * BLOCK, h = i / blocks % task.heads, b = i / blocks / task.heads;
            forward_block(x + b * xs.batch + h * xs.head + l * xs.position, xs.position,
                          y + b * ys.batch + h * ys.head + l * ys.position, ys.position,
                          norms + (b * task.heads + h) * task.length + l, task.g[h * task.g_stride],
                          std::min(task.length - l, BLOCK), task.row, task.p, task.floor);
        });
    }

    static void backward(const Task &task, const void *x_, Strides xs, const void *dy_, Strides dys, void *dx_,
                         Strides dxs, const float *norms, float *dots) {
        const Element *x = static_cast<const Element *>(x_), *dy = static_cast<const Element *>(dy_);
        Element *dx = static_cast<Element *>(dx_);
        const int64_t blocks = task.blocks(), row = task.row;
        in_parallel(task.batch * task.heads * blocks, task.batch * task.heads * task.length * row, [&](int64_t i) {
            const int64_t start = i % blocks * BLOCK, h = i / blocks % task.heads, b = i / blocks / task.heads;
            for (int64_t l = start; l < std::min(task.length, start + BLOCK); ++l) {
                const Element *in = x + b * xs.batch + h * xs.head + l * xs.position;
                const Element *out_gradient = dy + b * dys.batch + h * dys.head + l * dys.position;
                Element *in_gradient = dx + b * dxs.batch + h * dxs.head + l * dxs.position;
                if (l + AHEAD < task.length) {
                    prefetch<0>(in + AHEAD * xs.position, row);
                    prefetch<0>(out_gradient + AHEAD * dys.position, row);
                    prefetch<1>(in_gradient + AHEAD * dxs.position, row);
                }
                const int64_t r = (b * task.heads + h) * task.length + l;
                backward_row(in, out_gradient, in_gradient, norms[r], task.g[h * task.g_stride], dots + r, row, task.p,
                             task.floor);
            }
        });
    }
};

struct Variant {
    decltype(&Kernel<float, GENERAL, ANY_LENGTH>::forward) forward;
    decltype(&Kernel<float, GENERAL, ANY_LENGTH>::backward) backward;
};

template <class Element, int TWICE_P, int ROW>
constexpr Variant variant() {
    return {&Kernel<Element, TWICE_P, ROW>::forward, &Kernel<Element, TWICE_P, ROW>::backward};
}

// The loops for elements of one type: those for this exponent and row length, or more general ones.
Variant of_float(float p, int64_t row);
Variant of_bfloat16(float p);
#ifdef HAS_HALF
Variant of_half(float p);
#endif

}  // namespace lp
