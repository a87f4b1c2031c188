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

// What a row is multiplied by: by one and then by the other, since their product may leave the range of floats.
struct Factors { float first, second; };

// cos and sin of one position.
struct Angles { const float *cos, *sin; };

// Rotary positions: the first `dim` entries of a row are turned in pairs, on the way out and, in the gradient, back.
struct Rotation {
    const float *cos, *sin;
    int64_t batch, position;  // strides
    int64_t dim;              // 0: nothing is turned
    void (*turn)(const void *x, void *y, Factors factors, Angles angles, int64_t dim, int64_t row);
    void (*turn_back)(const void *dy, float *turned, Angles angles, int64_t dim, int64_t row);

    Angles at(int64_t b, int64_t l) const {
        const int64_t place = b * batch + l * position;
        return {cos + place, sin + place};
    }
};

// A row of the gradient that is turned back lies on the stack.
constexpr int64_t LONGEST_TURNED = 1024;

struct Task {
    int64_t batch, heads, length, row;
    float p, floor;
    const float *g;
    int64_t g_stride;  // 0 where all heads have the same
    bool heads_first;  // the order of the blocks
    Rotation rotation;

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
    return sum_over(row, [=](int64_t i) { return power<TWICE_P>(__builtin_fabsf(load(x[i])) * factor, p); });
}

template <class Element>
inline void multiply(const Element *x, Element *y, float factor, int64_t row) {
#pragma omp simd
    for (int64_t i = 0; i < row; ++i) store(y[i], load(x[i]) * factor);
}

template <class Element>
[[gnu::noinline]] void multiply_twice(const Element *x, Element *y, Factors factors, int64_t row) {
#pragma omp simd
    for (int64_t i = 0; i < row; ++i) store(y[i], load(x[i]) * factors.first * factors.second);
}

// A row whose plain sum leaves the safe range: its entries are divided by the largest of them first. Seldom called, so
// it is made once for all row lengths.
template <int TWICE_P, class Element>
[[gnu::noinline]] Factors careful_factors(const Element *x, float *norm, float g, int64_t row, float p, float floor) {
    const float largest = largest_magnitude(x, row);
    const float inverse = largest < SMALLEST_NORMAL ? 0.0f : 1.0f / largest;
    const float ratio = TWICE_P == INFINITE ? 1.0f : root<TWICE_P>(sum_of_powers<TWICE_P>(x, row, inverse, p), p);
    *norm = largest < SMALLEST_NORMAL ? 0.0f : largest * ratio;
    return {inverse, *norm <= floor ? 0.0f * g : g / ratio};
}

// Consecutive rows of one head.
template <class Element>
struct Rows {
    Element *start;
    int64_t stride;

    Element *operator[](int64_t r) const { return start + r * stride; }
};

template <class Element>
inline Rows<Element> rows_at(Element *start, Strides strides, int64_t b, int64_t h, int64_t l) {
    return {start + b * strides.batch + h * strides.head + l * strides.position, strides.position};
}

inline bool is_safe(float sum) { return sum > SAFE_FROM && sum < SAFE_TO; }

// The rows of a block, multiplied and turned; made once for all row lengths.
template <int TWICE_P, class Element>
[[gnu::noinline]] void turn_block(const Task &task, Rows<const Element> x, Rows<Element> y, float *norms,
                                  const float *sums, const float *factors, float g, int64_t b, int64_t l) {
    const Rotation &rotation = task.rotation;
    for (int64_t r = 0; r < std::min(task.length - l, BLOCK); ++r) {
        const Factors both = is_safe(sums[r])
            ? Factors{1.0f, factors[r]}
            : careful_factors<TWICE_P>(x[r], norms + r, g, task.row, task.p, task.floor);
        rotation.turn(x[r], y[r], both, rotation.at(b, l + r), rotation.dim, task.row);
    }
}

template <class Element, int TWICE_P, int ROW>
struct Kernel {
    // The norms of some rows; what each has to be multiplied by is returned in `sums` and `factors`.
    static void measure(Rows<const Element> x, float *__restrict norms, float *__restrict sums,
                        float *__restrict factors, float g, int64_t rows, int64_t runtime_row, float p, float floor) {
        const int64_t row = ROW == ANY_LENGTH ? runtime_row : ROW;
        for (int64_t r = 0; r < rows; ++r) {
            if (r + AHEAD < rows) prefetch<0>(x[r + AHEAD], row);
            sums[r] = TWICE_P == INFINITE ? largest_magnitude(x[r], row) : sum_of_powers<TWICE_P>(x[r], row, 1.0f, p);
        }
#pragma omp simd
        for (int64_t r = 0; r < rows; ++r) {
            norms[r] = root<TWICE_P>(sums[r], p);
            factors[r] = norms[r] <= floor ? 0.0f * g : g / norms[r];
        }
    }

    static void forward_block(const Task &task, Rows<const Element> x, Rows<Element> y, float *norms, float g,
                              int64_t b, int64_t l) {
        const int64_t row = ROW == ANY_LENGTH ? task.row : ROW, rows = std::min(task.length - l, BLOCK);
        float sums[BLOCK], factors[BLOCK];
        measure(x, norms, sums, factors, g, rows, row, task.p, task.floor);
        if (task.rotation.dim) return turn_block<TWICE_P>(task, x, y, norms, sums, factors, g, b, l);
        for (int64_t r = 0; r < rows; ++r) {
            if (is_safe(sums[r])) multiply(x[r], y[r], factors[r], row);
            else multiply_twice(x[r], y[r], careful_factors<TWICE_P>(x[r], norms + r, g, row, task.p, task.floor), row);
        }
    }

    // The gradient of a row, and xhat . dy.
    template <class Gradient>
    static float backward_row(const Element *__restrict x, const Gradient *__restrict dy, Element *__restrict dx,
                              float norm, float g, int64_t runtime_row, float p, float floor) {
        const int64_t row = ROW == ANY_LENGTH ? runtime_row : ROW;
        const float inverse = norm <= floor ? 0.0f : 1.0f / norm;
        const float along = sum_over(row, [=](int64_t i) { return load(x[i]) * inverse * load(dy[i]); });
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
                if constexpr (TWICE_P == 2) s = unit != 0.0f ? __builtin_copysignf(1.0f, unit) : unit;
                else if constexpr (TWICE_P == 4) s = unit;
                else s = __builtin_copysignf(power < TWICE_P == GENERAL ? GENERAL : TWICE_P - 2 > (__builtin_fabsf(unit), p - 1), unit);
                store(dx[i], f * (load(dy[i]) - s * along));
            }
        }
        return along;
    }

    // The gradients of some rows, and the sum of their xhat . dy.
    static float backward_block(const Task &task, Rows<const Element> x, Rows<const Element> dy, Rows<Element> dx,
                                const float *norms, float g, int64_t b, int64_t l) {
        const int64_t row = ROW == ANY_LENGTH ? task.row : ROW, rows = std::min(task.length - l, BLOCK);
        const Rotation &rotation = task.rotation;
        alignas(64) float turned[ROW == ANY_LENGTH ? LONGEST_TURNED : ROW];
        float sum = 0.0f;
        const auto each_row = [&](auto gradient_of) {
            for (int64_t r = 0; r < rows; ++r) {
                if (l + r + AHEAD < task.length) {
                    prefetch<0>(x[r + AHEAD], row);
                    prefetch<0>(dy[r + AHEAD], row);
                    prefetch<1>(dx[r + AHEAD], row);
                }
                sum += backward_row(x[r], gradient_of(r), dx[r], norms[r], g, row, task.p, task.floor);
            }
        };
        if (rotation.dim) {
            each_row([&](int64_t r) {
                rotation.turn_back(dy[r], turned, rotation.at(b, l + r), rotation.dim, row);
                return static_cast<const float *>(turned);
            });
        } else {
            each_row([&](int64_t r) { return dy[r]; });
        }
        return sum;
    }

    static void forward(const Task &task, const void *x, Strides xs, void *y, Strides ys, float *norms) {
        each_block(task, [&](int64_t b, int64_t h, int64_t l) {
            forward_block(task, rows_at(static_cast<const Element *>(x), xs, b, h, l),
                          rows_at(static_cast<Element *>(y), ys, b, h, l), norms + (b * task.heads + h) * task.length + l,
                          task.g[h * task.g_stride], b, l);
        });
    }

    static void backward(const Task &task, const void *x, Strides xs, const void *dy, Strides dys, void *dx, Strides dxs,
                         const float *norms, float *sums) {
        each_block(task, [&](int64_t b, int64_t h, int64_t l) {
            sums[(b * task.heads + h) * task.blocks() + l / BLOCK] = backward_block(
                task, rows_at(static_cast<const Element *>(x), xs, b, h, l),
                rows_at(static_cast<const Element *>(dy), dys, b, h, l), rows_at(static_cast<Element *>(dx), dxs, b, h, l),
                norms + (b * task.heads + h) * task.length + l, task.g[h * task.g_stride], b, l);
        });
    }

    template <class F>
    static void each_block(const Task &task, F f) {
        const int64_t blocks = task.blocks(), heads = task.heads;
        in_parallel(task.batch * heads * blocks, task.batch * heads * task.length * task.row, [&](int64_t i) {
            if (task.heads_first) f(i / heads / blocks, i % heads, i / heads % blocks * BLOCK);
            else f(i / blocks / heads, i / blocks % heads, i % blocks * BLOCK);
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

// What turns rows of one type, for the pairing and the dimension of a rotation.
void turn_floats(Rotation &rotation, bool interleaved);
void turn_bfloat16(Rotation &rotation, bool interleaved);
#ifdef HAS_HALF
void turn_half(Rotation &rotation, bool interleaved);
#endif

}  // namespace lp
