// qknorm::attention and its backward pass: attention with dropout in float32.
//
// Tensors are (batch, heads, length, row) with any strides but contiguous rows. One thread takes one batch entry and one
// key head at a time, and a block of queries after the other; the scores of a block stay in the cache and are never
// written out. The backward pass computes them again, and draws the same dropout again.
//   forward    s = scale q k',  P = softmax(s),  o = D(P) v            D: dropout
//   backward   dv = D(P)' do,  ds = P (D(do v') - sum P D(do v')),  dq = scale ds k,  dk = scale ds' q
// A query that may attend to nothing returns zeros.

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "tensors.h"

// Without it the compiler stops at the size of its callers, and a forward pass takes a third longer.
#define ALWAYS_INLINE [[gnu::always_inline]] inline

namespace {

// Queries handled together: 32 rows of 512 scores stay in the second-level cache.
constexpr int64_t BLOCK = 32;

#ifdef __AVX512F__
constexpr int WIDTH = 16, TILE_ROWS = 8;
#else
constexpr int WIDTH = 8, TILE_ROWS = 6;
#endif
typedef float Vector __attribute__((vector_size(WIDTH * 4)));
typedef float UnalignedVector __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

inline int64_t padded(int64_t n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

// A matrix as (start, distance between rows, distance between columns).
struct Matrix { const float *start; int64_t row, column; };

// C = A B or C += A B for ROWS rows and VECTORS vectors of columns, kept in registers over all `depth` products.
template <int ROWS, int VECTORS>
ALWAYS_INLINE void tile(Matrix a, const float *b, int64_t b_row, float *c, int64_t c_row, int64_t depth, bool add) {
    Vector sum[ROWS][VECTORS];
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v)
            sum[r][v] = add ? Vector(*(const UnalignedVector *)(c + r * c_row + v * WIDTH)) : Vector{};
    for (int64_t k = 0; k < depth; ++k) {
        Vector from[VECTORS];
        for (int v = 0; v < VECTORS; ++v) from[v] = *(const UnalignedVector *)(b + k * b_row + v * WIDTH);
        for (int r = 0; r < ROWS; ++r) {
            const float factor = a.start[r * a.row + k * a.column];
            for (int v = 0; v < VECTORS; ++v) sum[r][v] += factor * from[v];
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v) *(UnalignedVector *)(c + r * c_row + v * WIDTH) = sum[r][v];
}

template <int VECTORS>
ALWAYS_INLINE void tiles_below(int64_t rows, Matrix a, const float *b, int64_t b_row, float *c, int64_t c_row,
                               int64_t depth, bool add) {
    int64_t r = 0;
    const auto from = [&](int64_t row) { return Matrix{a.start + row * a.row, a.row, a.column}; };
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        tile<TILE_ROWS, VECTORS>(from(r), b, b_row, c + r * c_row, c_row, depth, add);
    for (; r + 4 <= rows; r += 4) tile<4, VECTORS>(from(r), b, b_row, c + r * c_row, c_row, depth, add);
    for (; r < rows; ++r) tile<1, VECTORS>(from(r), b, b_row, c + r * c_row, c_row, depth, add);
}

// C (rows, columns) = A (rows, depth) B (depth, columns), or C += A B.
ALWAYS_INLINE void multiply(int64_t rows, int64_t columns, int64_t depth, Matrix a, const float *b, int64_t b_row,
                            float *c, int64_t c_row, bool add) {
    int64_t n = 0;
    for (; n + 2 * WIDTH <= columns; n += 2 * WIDTH) tiles_below<2>(rows, a, b + n, b_row, c + n, c_row, depth, add);
    for (; n + WIDTH <= columns; n += WIDTH) tiles_below<1>(rows, a, b + n, b_row, c + n, c_row, depth, add);
    for (int64_t r = 0; n < columns && r < rows; ++r)
        for (int64_t i = n; i < columns; ++i) {
            float sum = add ? c[r * c_row + i] : 0.0f;
            for (int64_t k = 0; k < depth; ++k) sum += a.start[r * a.row + k * a.column] * b[k * b_row + i];
            c[r * c_row + i] = sum;
        }
}

// (rows, columns) to (columns, padded rows), the padding zero.
inline void transpose(const float *from, int64_t from_row, int64_t rows, int64_t columns, float *to) {
    const int64_t to_row = padded(rows);
    for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = rows; r < to_row; ++r) to[c * to_row + r] = 0.0f;
    for (int64_t r0 = 0; r0 < rows; r0 += 16)
        for (int64_t c = 0; c < columns; ++c)
            for (int64_t r = r0; r < rows && r < r0 + 16; ++r) to[c * to_row + r] = from[r * from_row + c];
}

struct Problem {
    int64_t batch, heads, key_heads, queries, keys, row;
    const uint8_t *mask;  // where a query may look, or null
    std::array<int64_t, 4> mask_strides;
    bool causal;
    float scale;
    Dropout dropout;

    bool mask_is_the_same_for_all_queries() const {
        return !mask || ((heads == 1 || mask_strides[1] == 0) && (queries == 1 || mask_strides[2] == 0));
    }

    // 0 where query `i` may look, -infinity where not; the padding counts as where not.
    void write_bias(float *bias, int64_t b, int64_t h, int64_t i) const {
        for (int64_t j = 0; j < padded(keys); ++j) bias[j] = j < keys ? 0.0f : -INFINITY;
        if (!mask) return;
        const uint8_t *seen = mask + b * mask_strides[0] + h * mask_strides[1] + i * mask_strides[2];
        for (int64_t j = 0; j < keys; ++j) bias[j] = seen[j * mask_strides[3]] ? 0.0f : -INFINITY;
    }

    // How many keys the queries up to `i` look at.
    int64_t seen_until(int64_t i) const { return causal && i + 1 < keys ? i + 1 : keys; }

    RowKey row_key(int64_t b, int64_t h, int64_t i) const { return dropout.row_key((b * heads + h) * queries + i); }
};

// Calls f(j) for whole vectors of j: loops of a fixed length become straight vector code.
template <class F>
ALWAYS_INLINE void for_each(int32_t padded_length, F f) {
    for (int32_t j0 = 0; j0 < padded_length; j0 += WIDTH) {
#pragma omp simd
        for (int32_t j = j0; j < j0 + WIDTH; ++j) f(j);
    }
}

template <class F>
ALWAYS_INLINE float sum_over(int32_t padded_length, F f) {
    Vector sums{};
    for (int32_t j0 = 0; j0 < padded_length; j0 += WIDTH) {
        Vector terms;
#pragma omp simd
        for (int32_t lane = 0; lane < WIDTH; ++lane) terms[lane] = f(j0 + lane);
        sums += terms;
    }
    float sum = 0.0f;
    for (int32_t lane = 0; lane < WIDTH; ++lane) sum += sums[lane];
    return sum;
}

// NaN where any is NaN.
ALWAYS_INLINE float largest_of(const float *x, int32_t padded_length) {
    Vector largest = *(const UnalignedVector *)x;
    auto is_nan = largest != largest;
    for (int32_t j0 = WIDTH; j0 < padded_length; j0 += WIDTH) {
        const Vector next = *(const UnalignedVector *)(x + j0);
        is_nan |= next != next;
        largest = next > largest ? next : largest;
    }
    float result = -INFINITY;
    for (int32_t lane = 0; lane < WIDTH; ++lane) result = largest[lane] > result ? largest[lane] : result;
    for (int32_t lane = 0; lane < WIDTH; ++lane) result = is_nan[lane] ? NAN : result;
    return result;
}

// Scores to dropped-out probabilities, in place; returns log of the sum of exponentials.
ALWAYS_INLINE float softmax_row(const Problem &p, float *s, const float *bias, int32_t length, RowKey key) {
    const float to_log2 = p.scale * LOG2_E;
    for_each(length, [&](int32_t j) { s[j] = s[j] * to_log2 + bias[j]; });
    const float largest = largest_of(s, length);
    if (largest == -INFINITY) {
        std::memset(s, 0, length * sizeof(float));
        return INFINITY;
    }
    const float sum = sum_over(length, [&](int32_t j) { return s[j] = exp2_of(s[j] - largest); });
    const float inverse = p.dropout.factor / sum;
    if (p.dropout.active())
        for_each(length, [&](int32_t j) { s[j] = p.dropout.keeps(key, uint32_t(j)) ? s[j] * inverse : 0.0f; });
    else
        for_each(length, [&](int32_t j) { s[j] *= inverse; });
    return largest / LOG2_E + std::log(sum);
}

// Scores w and do v' in g become D(P) and ds.
ALWAYS_INLINE void softmax_row_backward(const Problem &p, float *w, float *g, const float *bias, int32_t length,
                                        float lse, RowKey key) {
    const float to_log2 = p.scale * LOG2_E, offset = lse * LOG2_E, factor = p.dropout.factor;
    for_each(length, [&](int32_t j) { w[j] = exp2_of(w[j] * to_log2 + bias[j] - offset); });
    if (!p.dropout.active()) {
        const float along = sum_over(length, [&](int32_t j) { return w[j] * g[j]; });
        for_each(length, [&](int32_t j) { g[j] = w[j] * (g[j] - along) * p.scale; });
        return;
    }
    // What is dropped has its sign bit set on the way.
    const float along = sum_over(length, [&](int32_t j) {
        const bool kept = p.dropout.keeps(key, uint32_t(j));
        g[j] = kept ? g[j] * factor : 0.0f;
        const float product = w[j] * g[j];
        w[j] = kept ? w[j] : -w[j];
        return product;
    });
    for_each(length, [&](int32_t j) {
        g[j] = __builtin_fabsf(w[j]) * (g[j] - along) * p.scale;
        w[j] = w[j] > 0.0f ? w[j] * factor : 0.0f;
    });
}

thread_local std::vector<float> scratch;

inline float *room(int64_t floats) {
    if (int64_t(scratch.size()) < floats) scratch.resize(floats);
    return scratch.data();
}

struct Strided {
    float *start;
    int64_t batch, head, position;
    float *at(int64_t b, int64_t h, int64_t l) const { return start + b * batch + h * head + l * position; }
    int64_t row() const { return position; }
};

inline Strided strided(const Tensor &x) {
    return {const_cast<float *>(read<float>(x)), x.stride(0), x.stride(1), x.stride(2)};
}

// The strides of a mask that is broadcast to (batch, heads, queries, keys).
inline std::array<int64_t, 4> broadcast_strides(const Tensor &mask) {
    std::array<int64_t, 4> strides{};
    for (int64_t i = 0; i < mask.dim(); ++i)
        strides[4 - mask.dim() + i] = mask.size(i) == 1 ? 0 : mask.stride(i);
    return strides;
}

inline bool is_broadcast(const Tensor &mask, const std::array<int64_t, 4> &sizes) {
    if (mask.dim() > 4) return false;
    for (int64_t i = 0; i < mask.dim(); ++i)
        if (mask.size(i) != 1 && mask.size(i) != sizes[4 - mask.dim() + i]) return false;
    return true;
}

// Whether this is a task for the kernel; what is not is left to the twin.
inline bool is_served(const Tensor &q, const Tensor &k) {
    return is(q, ScalarType::Float) && q.numel() && k.numel();
}

inline void require_possible(const Tensor &q, const Tensor &k, const Tensor &v, const std::optional<Tensor> &mask,
                             double dropout, const Tensor &seed) {
    require_memory(q, k, v, mask, seed);
    for (const Tensor *x : {&q, &k, &v}) require_real(*x);
    if (q.dim() != 4 || k.dim() != 4 || !same_shape(k, v) || q.size(0) != k.size(0) || q.size(3) != k.size(3) ||
        (k.size(1) ? q.size(1) % k.size(1) : q.size(1)) || q.scalar_type() != k.scalar_type() ||
        k.scalar_type() != v.scalar_type())
        refuse("query, key and value must be (batch, heads, length, head_dim) of one type, with as many key heads as query "
               "heads or a part of them, not " + shape_of(q) + ", " + shape_of(k) + " and " + shape_of(v));
    if (mask && (!is(*mask, ScalarType::Bool) || !is_broadcast(*mask, {q.size(0), q.size(1), q.size(2), k.size(2)})))
        refuse("mask must be boolean and fit to (batch, heads, queries, keys), not " + shape_of(*mask));
    require_probability("dropout_p", dropout);
    seed_of(seed);
}

inline Problem problem_of(const Tensor &q, const Tensor &k, const std::optional<Tensor> &mask, bool causal, double scale,
                          double dropout, const Tensor &seed) {
    return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3),
            mask ? read<uint8_t>(*mask) : nullptr, mask ? broadcast_strides(*mask) : std::array<int64_t, 4>{},
            causal, float(scale), Dropout(float(dropout), seed_of(seed))};
}

// (batch, heads, queries, row) as the next projection reads it in order: heads of a position side by side.
inline Tensor by_position(const Tensor &q) {
    const std::array<int64_t, 4> sizes{q.size(0), q.size(2), q.size(1), q.size(3)};
    return torch::stable::transpose(torch::stable::new_empty(q, sizes), 1, 2);
}

// f(batch entry, key head) for all of them.
template <class F>
inline void for_each_key_head(const Problem &p, F f) {
    in_parallel(p.batch * p.key_heads, p.batch * p.heads * p.queries * p.row,
                [&](int64_t i) { f(i / p.key_heads, i % p.key_heads); });
}

// One batch entry and one key head. What it needs is passed by value: no store through a pointer can change it then.
void attend_to_key_head(const Problem p, const Strided q, const Strided k, const Strided v, const Strided o, float *lse,
                        int64_t b, int64_t kh) {
    const int64_t group = p.heads / p.key_heads, width = padded(p.keys);
    const bool one_mask = p.mask_is_the_same_for_all_queries();
    float *keys = room((p.row + BLOCK + 1) * width), *scores = keys + p.row * width;
    float *bias = scores + BLOCK * width;
    transpose(k.at(b, kh, 0), k.row(), p.keys, p.row, keys);
    p.write_bias(bias, b, kh * group, 0);
    for (int64_t h = kh * group; h < (kh + 1) * group; ++h)
        for (int64_t i0 = 0; i0 < p.queries; i0 += BLOCK) {
            const int64_t rows = std::min(p.queries - i0, BLOCK);
            const int64_t seen = p.seen_until(i0 + rows - 1), length = padded(seen);
            multiply(rows, length, p.row, {q.at(b, h, i0), q.row(), 1}, keys, width, scores, width, false);
            for (int64_t i = i0; i < i0 + rows; ++i) {
                float *s = scores + (i - i0) * width;
                if (!one_mask) p.write_bias(bias, b, h, i);
                for (int64_t j = p.seen_until(i); j < length; ++j) s[j] = -INFINITY;
                lse[(b * p.heads + h) * p.queries + i] =
                    softmax_row(p, s, bias, int32_t(length), p.row_key(b, h, i));
            }
            multiply(rows, p.row, seen, {scores, width, 1}, v.at(b, kh, 0), v.row(), o.at(b, h, i0), o.row(), false);
        }
}

void attend_to_key_head_backward(const Problem p, const Strided q, const Strided k, const Strided v, const Strided d,
                                 const Strided dq, const Strided dk, const Strided dv, const float *lse, int64_t b,
                                 int64_t kh) {
    const int64_t group = p.heads / p.key_heads, width = padded(p.keys);
    const bool one_mask = p.mask_is_the_same_for_all_queries();
    float *keys = room((2 * p.row + 2 * BLOCK + 1) * width), *values = keys + p.row * width;
    float *weights = values + p.row * width, *gradients = weights + BLOCK * width;
    float *bias = gradients + BLOCK * width;
    transpose(k.at(b, kh, 0), k.row(), p.keys, p.row, keys);
    transpose(v.at(b, kh, 0), v.row(), p.keys, p.row, values);
    p.write_bias(bias, b, kh * group, 0);
    for (int64_t j = 0; j < p.keys; ++j) {
        std::memset(dk.at(b, kh, j), 0, p.row * sizeof(float));
        std::memset(dv.at(b, kh, j), 0, p.row * sizeof(float));
    }
    for (int64_t h = kh * group; h < (kh + 1) * group; ++h)
        for (int64_t i0 = 0; i0 < p.queries; i0 += BLOCK) {
            const int64_t rows = std::min(p.queries - i0, BLOCK);
            const int64_t seen = p.seen_until(i0 + rows - 1), length = padded(seen);
            multiply(rows, length, p.row, {q.at(b, h, i0), q.row(), 1}, keys, width, weights, width, false);
            multiply(rows, length, p.row, {d.at(b, h, i0), d.row(), 1}, values, width, gradients, width, false);
            for (int64_t i = i0; i < i0 + rows; ++i) {
                float *w = weights + (i - i0) * width, *g = gradients + (i - i0) * width;
                if (!one_mask) p.write_bias(bias, b, h, i);
                for (int64_t j = p.seen_until(i); j < length; ++j) w[j] = -INFINITY;
                softmax_row_backward(p, w, g, bias, int32_t(length), lse[(b * p.heads + h) * p.queries + i],
                                     p.row_key(b, h, i));
            }
            multiply(seen, p.row, rows, {weights, 1, width}, d.at(b, h, i0), d.row(), dv.at(b, kh, 0), dv.row(),
                     true);
            multiply(rows, p.row, seen, {gradients, width, 1}, k.at(b, kh, 0), k.row(), dq.at(b, h, i0), dq.row(),
                     false);
            multiply(seen, p.row, rows, {gradients, 1, width}, q.at(b, h, i0), q.row(), dk.at(b, kh, 0), dk.row(),
                     true);
        }
}

std::tuple<Tensor, Tensor> attention(const Tensor &query, const Tensor &key, const Tensor &value, double scale,
                                     const std::optional<Tensor> &mask, bool is_causal, double dropout,
                                     const Tensor &seed) {
    require_possible(query, key, value, mask, dropout, seed);
    if (!is_served(query, key)) {
        auto [out, lse] =
            call<2>("qknorm::attention_plain", query, key, value, scale, mask, is_causal, dropout, seed);
        return {out, lse};
    }
    const Tensor q_ = with_contiguous_rows(query), k_ = with_contiguous_rows(key), v_ = with_contiguous_rows(value);
    const Problem p = problem_of(q_, k_, mask, is_causal, scale, dropout, seed);
    Tensor out = by_position(q_), lse_ = torch::stable::new_empty(q_, {q_.sizes().data(), 3});
    const Strided q = strided(q_), k = strided(k_), v = strided(v_), o = strided(out);
    float *lse = write<float>(lse_);
    for_each_key_head(p, [&](int64_t b, int64_t kh) { attend_to_key_head(p, q, k, v, o, lse, b, kh); });
    return {out, lse_};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor &d_out, const Tensor &query, const Tensor &key,
                                                      const Tensor &value, const Tensor &lse_, double scale,
                                                      const std::optional<Tensor> &mask, bool is_causal, double dropout,
                                                      const Tensor &seed) {
    require_memory(d_out, lse_);
    require_possible(query, key, value, mask, dropout, seed);
    if (!same_shape(d_out, query) || lse_.dim() != 3 || lse_.numel() * query.size(3) != query.numel() ||
        d_out.scalar_type() != query.scalar_type() || lse_.scalar_type() != query.scalar_type())
        refuse("the gradient " + shape_of(d_out) + " or the sums " + shape_of(lse_) + " do not fit to queries " +
               shape_of(query));
    if (!is_served(query, key)) {
        auto [dq, dk, dv] = call<3>("qknorm::attention_backward_plain", d_out, query, key, value, lse_, scale, mask,
                                    is_causal, dropout, seed);
        return {dq, dk, dv};
    }
    const Tensor q_ = with_contiguous_rows(query), k_ = with_contiguous_rows(key), v_ = with_contiguous_rows(value);
    const Tensor d_ = with_contiguous_rows(d_out);
    const Problem p = problem_of(q_, k_, mask, is_causal, scale, dropout, seed);
    Tensor d_query = empty_with_contiguous_rows(q_), d_key = empty_with_contiguous_rows(k_);
    Tensor d_value = empty_with_contiguous_rows(v_);
    const Strided q = strided(q_), k = strided(k_), v = strided(v_), d = strided(d_);
    const Strided dq = strided(d_query), dk = strided(d_key), dv = strided(d_value);
    const Tensor sums = torch::stable::contiguous(lse_);
    const float *lse = read<float>(sums);
    for_each_key_head(
        p, [&](int64_t b, int64_t kh) { attend_to_key_head_backward(p, q, k, v, d, dq, dk, dv, lse, b, kh); });
    return {d_query, d_key, d_value};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) {
    m.impl("attention", TORCH_BOX(&attention));
    m.impl("attention_backward", TORCH_BOX(&attention_backward));
}
