// What training does between its matrix products, each in one pass over memory, for the CPU in float32.

#include <cmath>
#include <cstdint>

#include "kernels.h"

namespace {

// Elements that share one key of the dropout's random bits.
constexpr int64_t ROW = 1024;

inline int32_t row_length(int64_t elements, int64_t start) { return int32_t(elements - start < ROW ? elements - start : ROW); }

// Each of these is one row. Copies of the dropout's numbers, which no store can change, let the loops become vector code.
inline void drop_row(const float *__restrict x, float *__restrict out, int32_t length, Dropout drop, RowKey key) {
    const float factor = drop.factor;
#pragma omp simd
    for (int32_t i = 0; i < length; ++i) out[i] = x[i] * (drop.keeps(key, uint32_t(i)) ? factor : 0.0f);
}

inline void add_dropped_row(const float *__restrict x, const float *__restrict residual, float *__restrict out,
                            int32_t length, Dropout drop, RowKey key) {
    const float factor = drop.factor;
#pragma omp simd
    for (int32_t i = 0; i < length; ++i) out[i] = residual[i] + x[i] * (drop.keeps(key, uint32_t(i)) ? factor : 0.0f);
}

inline void relu_row(const float *__restrict x, float *__restrict out, int32_t length, Dropout drop, RowKey key) {
    const float factor = drop.factor;
#pragma omp simd
    for (int32_t i = 0; i < length; ++i)
        out[i] = (x[i] < 0.0f ? 0.0f : x[i]) * (drop.keeps(key, uint32_t(i)) ? factor : 0.0f);
}

inline void relu_row_backward(const float *__restrict out, const float *__restrict d_out, float *__restrict d_x,
                              int32_t length, float factor) {
#pragma omp simd
    for (int32_t i = 0; i < length; ++i) d_x[i] = d_out[i] * (out[i] > 0.0f ? factor : 0.0f);
}

}  // namespace

// out = D(x), or residual + D(x). Of the gradient, D is its own backward pass.
extern "C" void dropout(const float *x, const float *residual, float *out, int64_t elements, float p, uint64_t seed,
                        int threads) {
    const Dropout drop(p, seed);
#pragma omp parallel for num_threads(threads)
    for (int64_t start = 0; start < elements; start += ROW) {
        const RowKey key = drop.row_key(start / ROW);
        const int32_t length = row_length(elements, start);
        if (residual) add_dropped_row(x + start, residual + start, out + start, length, drop, key);
        else drop_row(x + start, out + start, length, drop, key);
    }
}

// out = D(max(x, 0)).
extern "C" void relu_dropout(const float *x, float *out, int64_t elements, float p, uint64_t seed, int threads) {
    const Dropout drop(p, seed);
#pragma omp parallel for num_threads(threads)
    for (int64_t start = 0; start < elements; start += ROW)
        relu_row(x + start, out + start, row_length(elements, start), drop, drop.row_key(start / ROW));
}

// What was positive after D(max(x, 0)) was neither dropped nor negative, so `out` is all that has to be remembered.
extern "C" void relu_dropout_backward(const float *out, const float *d_out, float *d_x, int64_t elements, float p,
                                      int threads) {
    const float factor = Dropout(p, 0).factor;
#pragma omp parallel for num_threads(threads)
    for (int64_t start = 0; start < elements; start += ROW)
        relu_row_backward(out + start, d_out + start, d_x + start, row_length(elements, start), factor);
}

// Cross-entropy with label smoothing e over n classes: lse - (1 - e) z_wanted - e mean(z) for each row of logits z.
// The logits become their gradient, softmax(z) - e/n - (1 - e) [wanted], times `weight`. Returns 1, having done nothing,
// where a row wants a class that does not exist.
extern "C" int cross_entropy(float *logits, const int64_t *wanted, float *losses, int64_t rows, int64_t classes,
                             float smoothing, float weight, int threads) {
    for (int64_t r = 0; r < rows; ++r)
        if (wanted[r] < 0 || wanted[r] >= classes) return 1;
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r) {
        float *z = logits + r * classes;
        const int32_t n = int32_t(classes);
        float largest = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : largest) reduction(+ : total)
        for (int32_t i = 0; i < n; ++i) {
            largest = z[i] > largest ? z[i] : largest;
            total += z[i];
        }
        const float of_wanted = z[wanted[r]];
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int32_t i = 0; i < n; ++i) {
            z[i] = exp2_of((z[i] - largest) * 1.4426950408889634f);
            sum += z[i];
        }
        losses[r] = largest + std::log(sum) - (1.0f - smoothing) * of_wanted - smoothing * total / float(n);
        const float factor = weight / sum, spread = weight * smoothing / float(n);
#pragma omp simd
        for (int32_t i = 0; i < n; ++i) z[i] = z[i] * factor - spread;
        z[wanted[r]] -= weight * (1.0f - smoothing);
    }
    return 0;
}
