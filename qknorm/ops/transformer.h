// The layers of the translator's encoder and decoder for inference. Rows are positions, of one or many sentences, one
// below the other without padding; what is computed of a row does not depend on the others.

#pragma once

#include <cmath>

#include "lp_kernels.h"
#include "panels.h"

namespace transformer {

using panels::Buffer;
using panels::Matrix;
using panels::multiply;
using panels::padded;
using panels::Rounded;
using panels::Then;

enum class NormKind { NONE, LAYER, RMS, LP };

struct Norm {
    NormKind kind;
    float p, eps;
    const float *weight, *bias;  // of LP: one g, or one for each head
    int64_t weights;
};

inline float *normalized_row(const Norm &norm, const float *x, float *y, int32_t width) {
    const bool centred = norm.kind == NormKind::LAYER;
    const float mean = centred ? sum_over(width, [=](int64_t i) { return x[i]; }) / float(width) : 0.0f;
    const float squares = sum_over(width, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
    const float factor = 1.0f / std::sqrt(squares / float(width) + norm.eps);
#pragma omp simd
    for (int32_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * factor * norm.weight[i];
    if (centred)
#pragma omp simd
        for (int32_t i = 0; i < width; ++i) y[i] += norm.bias[i];
    return y;
}

inline void lp_normalize(const Norm &norm, const float *x, int64_t x_stride, float *y, int64_t y_stride, int64_t rows,
                         int64_t heads, int64_t width) {
    static constexpr float ONE = 1.0f;
    thread_local Buffer<float> norms;
    const float floor = std::max(norm.eps, 0.75f * lp::SMALLEST_NORMAL), *g = norm.weight ? norm.weight : &ONE;
    const lp::Variant kernel = lp::of_float(norm.p, width);
    const int64_t together = std::max<int64_t>(ELEMENTS_PER_THREAD / (heads * width), 1);  // one thread's work
    for (int64_t r = 0; r < rows; r += together) {
        const int64_t many = std::min(rows - r, together);
        const lp::Task task{1, heads, many, width, norm.p, floor, g, norm.weights > 1, true, {}};
        kernel.forward(task, x + r * x_stride, {0, width, x_stride}, y + r * y_stride, {0, width, y_stride},
                       norms.of(many * heads));
    }
}

// Each of the `heads` parts of each row; y may be x.
inline void normalize(const Norm &norm, const float *x, int64_t x_stride, float *y, int64_t y_stride, int64_t rows,
                      int64_t heads, int64_t width) {
    if (norm.kind == NormKind::LP) return lp_normalize(norm, x, x_stride, y, y_stride, rows, heads, width);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t h = 0; h < heads; ++h) {
            const float *from = x + r * x_stride + h * width;
            float *to = y + r * y_stride + h * width;
            if (norm.kind != NormKind::NONE) normalized_row(norm, from, to, int32_t(width));
            else if (to != from) std::copy(from, from + width, to);
        }
}

// What is read soon, from places that no processor can guess.
inline void expect(const float *row, int64_t length) {
    for (int64_t i = 0; i < length; i += 16) __builtin_prefetch(row + i);
}

// scores = softmax(scale * scores)
inline void softmax(float *__restrict scores, int32_t length, float scale) {
    const float largest = maximum_of(scores, length) * scale;
#pragma omp simd
    for (int32_t t = 0; t < length; ++t) scores[t] = exp2_of((scores[t] * scale - largest) * LOG2_E);
    const float inverse = 1.0f / sum_over(length, [=](int64_t t) { return scores[t]; });
#pragma omp simd
    for (int32_t t = 0; t < length; ++t) scores[t] *= inverse;
}

struct Attention {
    Matrix in;      // queries, keys and values side by side; to a source: queries alone
    Matrix source;  // its keys and values
    Matrix out;     // from heads that are padded to whole panels
    Norm query, key, value;
    int64_t heads, width;  // of a head
    float scale;

    int64_t dim() const { return heads * width; }
    int64_t attended() const { return heads * padded(width); }
};

// Keys and values of one sentence, to be looked at by many rows: of each head, keys by column and values by row.
struct Memory {
    Buffer<float> keys, values;
    int64_t length = 0;

    // `keys_values`: rows with normalised keys, and values `values_at` further.
    void take(const Attention &attention, const float *keys_values, int64_t stride, int64_t values_at, int64_t rows) {
        length = rows;
        const int64_t room = padded(rows), heads = attention.heads, width = attention.width, wide = padded(width);
        float *k = keys.of(heads * width * room), *v = values.of(heads * rows * wide);
        std::fill(k, k + heads * width * room, 0.0f);
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t t = 0; t < rows; ++t) {
                const float *key = keys_values + t * stride + h * width, *value = key + values_at;
                for (int64_t i = 0; i < width; ++i) k[(h * width + i) * room + t] = key[i];
                float *to = std::copy(value, value + width, v + (h * rows + t) * wide);
                std::fill(to, to + (wide - width), 0.0f);
            }
    }

    // Rows of normalised queries, with their heads side by side, become what they attend to, each head padded.
    void attend(const Attention &attention, const float *queries, int64_t stride, int64_t rows, float *out,
                Buffer<float> &scratch) const {
        constexpr int64_t TOGETHER = 48;
        const int64_t room = padded(length), width = attention.width, wide = padded(width), all = attention.attended();
        float *scores = scratch.of(TOGETHER * room);
        for (int64_t start = 0; start < rows; start += TOGETHER)
            for (int64_t h = 0; h < attention.heads; ++h) {
                const int64_t many = std::min(rows - start, TOGETHER);
                const float *q = queries + start * stride + h * width;
                panels::multiply_plain(q, stride, many, keys.get() + h * width * room, width, room, scores, room);
                for (int64_t r = 0; r < many; ++r) softmax(scores + r * room, int32_t(length), attention.scale);
                panels::multiply_plain(scores, room, many, values.get() + h * length * wide, length, wide,
                                       out + start * all + h * wide, all);
            }
    }
};

// Keys and values of what the hypotheses of a sentence said, each position of each kept where it was first written.
struct Cache {
    static constexpr int64_t AHEAD = 4;

    Buffer<float> keys, values;
    int64_t held = 0;

    int32_t add(const float *key, const float *value, int64_t dim) {
        std::copy(key, key + dim, keys.of((held + 1) * dim) + held * dim);
        std::copy(value, value + dim, values.of((held + 1) * dim) + held * dim);
        return int32_t(held++);
    }

    // One row of normalised queries against the positions `history`.
    void attend(const Attention &attention, const float *query, const int32_t *history, int64_t length, float *out,
                Buffer<float> &scratch) const {
        const int64_t width = attention.width, wide = padded(width), dim = attention.dim();
        float *scores = scratch.of(attention.heads * length);
        for (int64_t t = 0; t < length; ++t) {
            const float *key = keys.get() + history[t] * dim;
            expect(values.get() + history[t] * dim, dim);
            if (t + AHEAD < length) expect(keys.get() + history[t + AHEAD] * dim, dim);
            for (int64_t h = 0; h < attention.heads; ++h) {
                const float *q = query + h * width, *k = key + h * width;
                scores[h * length + t] = sum_over(width, [=](int64_t i) { return q[i] * k[i]; });
            }
        }
        std::fill(out, out + attention.attended(), 0.0f);
        for (int64_t h = 0; h < attention.heads; ++h) softmax(scores + h * length, int32_t(length), attention.scale);
        for (int64_t t = 0; t < length; ++t) {
            const float *value = values.get() + history[t] * dim;
            for (int64_t h = 0; h < attention.heads; ++h) {
                const float share = scores[h * length + t], *__restrict v = value + h * width;
                float *__restrict o = out + h * wide;
#pragma omp simd
                for (int32_t i = 0; i < int32_t(width); ++i) o[i] += share * v[i];
            }
        }
    }
};

struct Layer {
    Norm attention_norm, source_norm, feed_forward_norm;
    Attention attention, source;  // an encoder's layer has none to the source
    Matrix inner, outer;
};

struct Model {
    int64_t dim, pieces;
    bool norm_first;
    const float *vectors;  // (pieces, dim), as inputs
    const float *source_positions, *target_positions;
    int64_t source_room, target_room;
    std::vector<Layer> encoder, decoder;
    Norm encoder_norm, decoder_norm;
    Matrix output;
    const int64_t *vocabulary;
    int64_t end;  // its place in the vocabulary
};

// What one thread computes with.
class Workspace {
  public:
    const Model &model;
    int64_t rows = 0, width;
    Rounded rounded;
    Buffer<float> scratch;

    explicit Workspace(const Model &model) : model(model), width(padded(model.dim)) {}

    // Room for so many rows, each of which starts as a vector of a piece at a position.
    void start(int64_t many) { rows = many, state = states.of(rows * width); }
    void set(int64_t row, int64_t piece, const float *position) {
        const float *vector = model.vectors + piece * model.dim;
        for (int64_t i = 0; i < model.dim; ++i) state[row * width + i] = vector[i] + position[i];
    }

    // A sublayer, which is given its input, and adds its output to the states.
    template <class Sublayer>
    void residual(const Norm &norm, Sublayer sublayer) {
        if (model.norm_first) return sublayer(normal(norm));
        sublayer(state);
        normalize(norm, state, width, state, width, rows, 1, model.dim);
    }

    const float *normal(const Norm &norm) {
        float *to = inputs.of(rows * width);
        normalize(norm, state, width, to, width, rows, 1, model.dim);
        return to;
    }

    // Attention: `attend` is given projected and normalised queries (and keys and values, where `in` has them).
    template <class Attend>
    void attention(const Attention &attention, const float *x, bool with_keys, Attend attend) {
        const int64_t stride = padded(attention.in.outputs), dim = attention.dim();
        float *projected = projections.of(rows * stride), *out = attended.of(rows * attention.attended());
        multiply(x, width, rows, attention.in, projected, stride, Then::STORE, rounded);
        normalize_heads(attention.query, attention, projected, stride, rows);
        if (with_keys) normalize_keys_values(attention, projected + dim, stride, rows);
        attend(projected, stride, out);
        multiply(out, attention.attended(), rows, attention.out, state, width, Then::ADD, rounded);
    }

    void feed_forward(const Layer &layer, const float *x) {
        constexpr int64_t TOGETHER = 96;  // what is between both products stays in the second-level cache
        const int64_t stride = padded(layer.inner.outputs);
        float *hidden = projections.of(TOGETHER * stride);
        for (int64_t start = 0; start < rows; start += TOGETHER) {
            const int64_t many = std::min(rows - start, TOGETHER);
            multiply(x + start * width, width, many, layer.inner, hidden, stride, Then::RELU, rounded);
            multiply(hidden, stride, many, layer.outer, state + start * width, width, Then::ADD, rounded);
        }
    }

    // Keys and values of the source, for attention to it: `stride` floats for each row.
    const float *keys_values(const Attention &attention, const float *x, int64_t &stride) {
        stride = padded(attention.source.outputs);
        float *projected = projections.of(rows * stride);
        multiply(x, width, rows, attention.source, projected, stride, Then::STORE, rounded);
        normalize_keys_values(attention, projected, stride, rows);
        return projected;
    }

    const float *finished(const Norm &norm) { return model.norm_first ? normal(norm) : state; }

  private:
    Buffer<float> states, inputs, projections, attended;
    float *state = nullptr;

    static void normalize_heads(const Norm &norm, const Attention &attention, float *x, int64_t stride, int64_t rows) {
        if (norm.kind != NormKind::NONE) normalize(norm, x, stride, x, stride, rows, attention.heads, attention.width);
    }

    static void normalize_keys_values(const Attention &attention, float *keys, int64_t stride, int64_t rows) {
        normalize_heads(attention.key, attention, keys, stride, rows);
        normalize_heads(attention.value, attention, keys + attention.dim(), stride, rows);
    }
};

}  // namespace transformer
