// What decoding does between its matrix products, for the CPU in float32.

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace {

constexpr float LOG2_E = 1.4426950408889634f;

// Classes whose largest logit is looked at before any one of them.
constexpr int32_t BLOCK = 64;

// Hypotheses of one sentence lie side by side and have most of their keys in common: one thread takes them together.
constexpr int64_t ROWS_TOGETHER = 4;

inline float largest_of(const float *x, int32_t length) {
    float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
    for (int32_t i = 0; i < length; ++i) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

inline float sum_of_exponentials(const float *__restrict x, int32_t length, float largest) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t i = 0; i < length; ++i) sum += exp2_of((x[i] - largest) * LOG2_E);
    return sum;
}

inline float dot(const float *__restrict a, const float *__restrict b, int32_t length) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t i = 0; i < length; ++i) sum += a[i] * b[i];
    return sum;
}

inline void add_scaled(float *__restrict to, const float *__restrict from, float factor, int32_t length) {
#pragma omp simd
    for (int32_t i = 0; i < length; ++i) to[i] += factor * from[i];
}

// One query against `length` keys and values; `key(t)` and `value(t)` are where they lie.
template <class Key, class Value>
inline void attend(const float *q, Key key, Value value, float *o, float *scores, int64_t length, int32_t row,
                   float scale) {
    for (int64_t t = 0; t < length; ++t) scores[t] = dot(q, key(t), row) * scale;
    const float largest = largest_of(scores, int32_t(length));
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t t = 0; t < int32_t(length); ++t) {
        scores[t] = exp2_of((scores[t] - largest) * LOG2_E);
        sum += scores[t];
    }
    for (int32_t i = 0; i < row; ++i) o[i] = 0.0f;
    for (int64_t t = 0; t < length; ++t) add_scaled(o, value(t), scores[t] / sum, row);
}

thread_local std::vector<float> scratch;

}  // namespace

// Attention of one new position to a cache (slots, key heads, room, row) that is never reordered: position t of
// hypothesis r lies in slot history[r][t]. `shape` is (rows, heads, key heads, length, row, stride of history);
// `strides` are slot, head and position of the cache, then row and head of q. o is (rows, heads, row).
extern "C" void attend_to_history(const float *q, const float *k, const float *v, float *o, const int64_t *history,
                                  const int64_t *shape, const int64_t *strides, float scale, int threads) {
    const int64_t rows = shape[0], heads = shape[1], group = shape[1] / shape[2], length = shape[3], row = shape[4];
#pragma omp parallel for num_threads(threads) schedule(static, ROWS_TOGETHER)
    for (int64_t r = 0; r < rows; ++r) {
        if (int64_t(scratch.size()) < length) scratch.resize(length + 64);
        const int64_t *slots = history + r * shape[5];
        for (int64_t h = 0; h < heads; ++h) {
            const int64_t head = (h / group) * strides[1];
            const auto place = [=](int64_t t) { return slots[t] * strides[0] + head + t * strides[2]; };
            attend(q + r * strides[3] + h * strides[4], [=](int64_t t) { return k + place(t); },
                   [=](int64_t t) { return v + place(t); }, o + (r * heads + h) * row, scratch.data(), length,
                   int32_t(row), scale);
        }
    }
}

// Attention of rows to memories (entries, key heads, room, row) that they share: row r looks at the first lengths[e]
// positions of entry e = entries[r]. `shape` is (rows, heads, key heads, longest, row, entries); `strides` are entry,
// head and position of the keys, row and head of q, then those of the values. Returns 1, having done nothing, where an
// entry does not exist or a length is beyond the longest.
extern "C" int attend_to_shared(const float *q, const float *k, const float *v, float *o, const int64_t *entries,
                                const int64_t *lengths, const int64_t *shape, const int64_t *strides, float scale,
                                int threads) {
    const int64_t rows = shape[0], heads = shape[1], group = shape[1] / shape[2], row = shape[4];
    for (int64_t r = 0; r < rows; ++r)
        if (entries[r] < 0 || entries[r] >= shape[5]) return 1;
    for (int64_t e = 0; e < shape[5]; ++e)
        if (lengths[e] < 0 || lengths[e] > shape[3]) return 1;
#pragma omp parallel for num_threads(threads) schedule(static, ROWS_TOGETHER)
    for (int64_t r = 0; r < rows; ++r) {
        if (int64_t(scratch.size()) < shape[3]) scratch.resize(shape[3] + 64);
        for (int64_t h = 0; h < heads; ++h) {
            const float *keys = k + entries[r] * strides[0] + (h / group) * strides[1];
            const float *values = v + entries[r] * strides[5] + (h / group) * strides[6];
            attend(q + r * strides[3] + h * strides[4], [=](int64_t t) { return keys + t * strides[2]; },
                   [=](int64_t t) { return values + t * strides[7]; }, o + (r * heads + h) * row, scratch.data(),
                   lengths[entries[r]], int32_t(row), scale);
        }
    }
    return 0;
}

// Of each row of logits the `wanted` likeliest, best first and of equal ones the first, as log-probabilities; and the
// logarithm of the sum of exponentials.
extern "C" void likeliest(const float *logits, int64_t rows, int64_t classes, int64_t wanted, float *values,
                          int64_t *places, float *lse, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r) {
        const float *z = logits + r * classes;
        float *best = values + r * wanted;
        int64_t *where = places + r * wanted;
        for (int64_t i = 0; i < wanted; ++i) best[i] = -INFINITY, where[i] = i;
        float largest = -INFINITY;
        for (int32_t start = 0; start < classes; start += BLOCK) {
            const int32_t length = int32_t(classes - start < BLOCK ? classes - start : BLOCK);
            const float largest_here = largest_of(z + start, length);
            largest = largest_here > largest ? largest_here : largest;
            if (!(largest_here > best[wanted - 1])) continue;
            for (int32_t i = start; i < start + length; ++i) {
                if (!(z[i] > best[wanted - 1])) continue;
                int64_t place = wanted - 1;
                for (; place > 0 && z[i] > best[place - 1]; --place)
                    best[place] = best[place - 1], where[place] = where[place - 1];
                best[place] = z[i], where[place] = i;
            }
        }
        lse[r] = largest + std::log(sum_of_exponentials(z, int32_t(classes), largest));
        for (int64_t i = 0; i < wanted; ++i) best[i] -= lse[r];
    }
}
