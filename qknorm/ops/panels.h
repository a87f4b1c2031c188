// Products of rows with matrices that were packed for them: columns lie side by side in panels. A row's numbers do not
// depend on the other rows: each column of it is summed from its first product to its last, whatever is done beside it.
//
// Two kinds: floats, and bytes with a scale for each column, whose rows are rounded to bytes too, each by its own
// largest number; sums of bytes are exact, so they are the same on every processor. Nothing of torch.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels.h"

namespace panels {

constexpr int64_t PANEL = 32;  // columns; qknorm/ops/beam_search.py packs them so
constexpr int64_t BYTES_TOGETHER = 4;

inline int64_t padded(int64_t columns) { return (columns + PANEL - 1) / PANEL * PANEL; }

// Memory that grows, is never smaller than what was asked for, and keeps its content.
template <class Element>
class Buffer {
  public:
    Buffer() = default;
    Buffer(Buffer &&other) noexcept : start(other.start), room(other.room) { other.start = nullptr, other.room = 0; }
    Buffer &operator=(Buffer &&other) noexcept {
        std::swap(start, other.start);
        std::swap(room, other.room);
        return *this;
    }
    ~Buffer() { release(start); }

    Element *of(int64_t elements) {
        if (elements > room) {
            const int64_t larger = std::max(elements, 2 * room);
            auto *made = static_cast<Element *>(::operator new(size_t(larger) * sizeof(Element), ALIGNMENT));
            if (room) std::memcpy(made, start, size_t(room) * sizeof(Element));
            release(start);
            start = made, room = larger;
        }
        return start;
    }
    Element *get() const { return start; }

  private:
    static constexpr std::align_val_t ALIGNMENT{64};
    static void release(Element *memory) { ::operator delete(memory, ALIGNMENT); }

    Element *start = nullptr;
    int64_t room = 0;
};

using Floats = Lanes<LANES>::Vector;
typedef int32_t Integers __attribute__((vector_size(LANES * sizeof(int32_t))));

struct OfFloats {
    using Word = float;
    using Sum = Floats;
    static Sum add(Sum sum, Word x, Sum weights) { return sum + x * weights; }
};

// A word is four bytes of a row, or of a column. What rows are rounded to, they may need to be without a sign.
struct OfBytes {
    using Word = int32_t;
    using Sum = Integers;
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
    static constexpr int32_t OFFSET = 128;
    static Sum add(Sum sum, Word x, Sum weights) {
        return Sum(_mm512_dpbusd_epi32(__m512i(sum), _mm512_set1_epi32(x), __m512i(weights)));
    }
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
    static constexpr int32_t OFFSET = 128;
    static Sum add(Sum sum, Word x, Sum weights) {
        return Sum(_mm256_dpbusd_avx_epi32(__m256i(sum), _mm256_set1_epi32(x), __m256i(weights)));
    }
#elif defined(__AVX2__) && !defined(__AVX512F__)
    // No sum of two products leaves 16 bits: bytes are from -127 to 127.
    static constexpr int32_t OFFSET = 0;
    static Sum add(Sum sum, Word x, Sum weights) {
        const __m256i bytes = _mm256_set1_epi32(x), signs = _mm256_sign_epi8(__m256i(weights), bytes);
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(bytes), signs);
        return sum + Sum(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
#elif defined(__AVX512BW__)
    static constexpr int32_t OFFSET = 0;
    static __m512i odd(__m512i bytes) { return _mm512_srai_epi16(bytes, 8); }
    static __m512i even(__m512i bytes) { return odd(_mm512_slli_epi16(bytes, 8)); }
    static Sum add(Sum sum, Word x, Sum weights) {
        const __m512i bytes = _mm512_set1_epi32(x), w = __m512i(weights);
        return sum + Sum(_mm512_madd_epi16(even(bytes), even(w))) + Sum(_mm512_madd_epi16(odd(bytes), odd(w)));
    }
#else
    static constexpr int32_t OFFSET = 0;
    static Sum add(Sum sum, Word x, Sum weights) {
        for (int shift = 24; shift >= 0; shift -= 8)
            sum += (int32_t(uint32_t(x) << shift) >> 24) * ((weights << shift) >> 24);
        return sum;
    }
#endif
};

// Where the words of a matrix lie: those of PANEL columns side by side, then `row` words further those of the next inputs.
template <class Word>
struct Panels {
    const Word *start;
    int64_t row, panel;
};

// `ROWS` rows with VECTORS * LANES columns from `column` on.
template <class Kind, int ROWS, int VECTORS>
inline void sums_of(const typename Kind::Word *x, int64_t stride, Panels<typename Kind::Word> w, int64_t column,
                    int64_t depth, typename Kind::Sum (&sums)[ROWS][VECTORS]) {
    using Word = typename Kind::Word;
    const Word *from[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
        const int64_t c = column + v * LANES;
        from[v] = w.start + c / PANEL * w.panel + c % PANEL;
    }
    for (int64_t k = 0; k < depth; ++k) {
        typename Kind::Sum weights[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; ++v) std::memcpy(&weights[v], from[v] + k * w.row, sizeof weights[v]);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v) sums[r][v] = Kind::add(sums[r][v], x[r * stride + k], weights[v]);
    }
}

// What becomes of sums.
enum class Then { STORE, RELU, ADD };

// A matrix and what belongs to its columns, each padded to whole panels. Of bytes: 4 products of words in each.
struct Matrix {
    const void *words;
    const float *bias, *scales;  // scales of the columns; none where it is of floats
    const int32_t *column_sums;
    int64_t inputs, outputs;

    bool of_bytes() const { return scales != nullptr; }
};

template <class Kind>
struct Product {
    using Word = typename Kind::Word;
    const Word *x;
    int64_t x_stride, depth;
    Panels<Word> w;
    const float *row_scales;
    const Matrix *matrix;  // none: nothing but sums is stored
    Then then;
    float *y;
    int64_t y_stride;

    template <int ROWS, int VECTORS>
    [[gnu::noinline]] void tile(int64_t row, int64_t column) const {
        typename Kind::Sum sums[ROWS][VECTORS] = {};
        sums_of<Kind, ROWS, VECTORS>(x + row * x_stride, x_stride, w, column, depth, sums);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; ++v) finish(sums[r][v], row + r, column + v * LANES);
    }

    [[gnu::always_inline]] void finish(typename Kind::Sum sum, int64_t row, int64_t column) const {
        Floats result, other;
        float *to = y + row * y_stride + column;
        if constexpr (std::is_same_v<Kind, OfBytes>) {
            Integers of_column;
            std::memcpy(&of_column, matrix->column_sums + column, sizeof of_column);
            std::memcpy(&other, matrix->scales + column, sizeof other);
            result = __builtin_convertvector(sum - OfBytes::OFFSET * of_column, Floats) * (other * row_scales[row]);
        } else {
            result = sum;
        }
        if (matrix) {
            std::memcpy(&other, matrix->bias + column, sizeof other);
            result += other;
        }
        if (then == Then::RELU) result = result < 0.0f ? Floats{} : result;
        if (then == Then::ADD) {
            std::memcpy(&other, to, sizeof other);
            result += other;
        }
        std::memcpy(to, &result, sizeof result);
    }

    // Rows `row` to `row + count`, at most ROWS of them, with all columns of a tile.
    template <int ROWS, int VECTORS>
    void rows_of(int64_t row, int64_t count, int64_t column) const {
        if constexpr (ROWS > 0) {
            if (count == ROWS) tile<ROWS, VECTORS>(row, column);
            else rows_of<ROWS - 1, VECTORS>(row, count, column);
        }
    }

    // As many registers as there are hold sums: many rows with few columns, or few rows with many.
    void run(int64_t rows, int64_t columns) const {
        constexpr int MANY = LANES == 16 ? 12 : 6, FEW = LANES == 16 ? 6 : 3;
        if (rows <= FEW) {
            int64_t column = 0;
            for (; column + 4 * LANES <= columns; column += 4 * LANES) rows_of<FEW, 4>(0, rows, column);
            for (; column < columns; column += 2 * LANES) rows_of<FEW, 2>(0, rows, column);
            return;
        }
        const int64_t blocks = (rows + MANY - 1) / MANY, each = rows / blocks, longer = rows % blocks;
        for (int64_t column = 0; column < columns; column += 2 * LANES)
            for (int64_t i = 0, row = 0; i < blocks; row += each + (i < longer), ++i)
                rows_of<MANY, 2>(row, each + (i < longer), column);
    }
};

// Rows of numbers as bytes, four in a word, padded with zeros: round(127 x / max|x|).
struct Rounded {
    Buffer<int32_t> words;
    Buffer<float> scales;
    int64_t depth = 0;

    void take(const float *x, int64_t stride, int64_t rows, int64_t inputs) {
        depth = (inputs + BYTES_TOGETHER - 1) / BYTES_TOGETHER;
        auto *bytes = reinterpret_cast<uint8_t *>(words.of(rows * depth));
        float *scale = scales.of(rows);
        for (int64_t r = 0; r < rows; ++r) {
            scale[r] = take_row(x + r * stride, bytes + r * depth * BYTES_TOGETHER, int32_t(inputs));
            for (int64_t i = inputs; i < depth * BYTES_TOGETHER; ++i)
                bytes[r * depth * BYTES_TOGETHER + i] = uint8_t(OfBytes::OFFSET);
        }
    }

  private:
    // A row with a number that is none, or infinite, has such a scale, and so has what comes of it.
    static float take_row(const float *__restrict x, uint8_t *__restrict bytes, int32_t length) {
        int32_t largest = 0;  // as bits, which keep the order of floats, with those that are no numbers on top
#pragma omp simd reduction(max : largest)
        for (int32_t i = 0; i < length; ++i) {
            const int32_t bits = int32_t(float_to_bits(x[i]) & 0x7fffffffu);
            largest = bits > largest ? bits : largest;
        }
        const float most = bits_to_float(uint32_t(largest)), inverse = most > 1e-35f && most < 3e38f ? 127.0f / most : 0.0f;
#pragma omp simd
        for (int32_t i = 0; i < length; ++i) {
            const int32_t nearest = int32_t(__builtin_nearbyintf(x[i] * inverse));
            bytes[i] = uint8_t(nearest + OfBytes::OFFSET);
        }
        return most / 127.0f;
    }
};

// Columns `first` (a multiple of PANEL) to `first + count` of a matrix.
inline Matrix columns_of(const Matrix &matrix, int64_t first, int64_t count) {
    const int64_t words = matrix.of_bytes() ? (matrix.inputs + BYTES_TOGETHER - 1) / BYTES_TOGETHER : matrix.inputs;
    Matrix part = matrix;
    part.words = static_cast<const int32_t *>(matrix.words) + first * words, part.bias += first, part.outputs = count;
    if (matrix.of_bytes()) part.scales += first, part.column_sums += first;
    return part;
}

// y = x w + bias, then what is to become of it; y has room for whole panels. `rounded` holds x, if w is of bytes.
inline void multiply_rounded(const float *x, int64_t x_stride, int64_t rows, const Matrix &matrix, float *y,
                             int64_t y_stride, Then then, const Rounded &rounded) {
    const int64_t columns = padded(matrix.outputs);
    if (matrix.of_bytes()) {
        const Panels<int32_t> w{static_cast<const int32_t *>(matrix.words), PANEL, PANEL * rounded.depth};
        const float *scales = rounded.scales.get();
        Product<OfBytes>{rounded.words.get(), rounded.depth, rounded.depth, w, scales, &matrix, then, y, y_stride}
            .run(rows, columns);
    } else {
        const Panels<float> w{static_cast<const float *>(matrix.words), PANEL, PANEL * matrix.inputs};
        Product<OfFloats>{x, x_stride, matrix.inputs, w, nullptr, &matrix, then, y, y_stride}.run(rows, columns);
    }
}

inline void multiply(const float *x, int64_t x_stride, int64_t rows, const Matrix &matrix, float *y, int64_t y_stride,
                     Then then, Rounded &rounded) {
    if (matrix.of_bytes()) rounded.take(x, x_stride, rows, matrix.inputs);
    multiply_rounded(x, x_stride, rows, matrix, y, y_stride, then, rounded);
}

// y = x w for a matrix that lies row by row, `width` floats each, a multiple of PANEL.
inline void multiply_plain(const float *x, int64_t x_stride, int64_t rows, const float *w, int64_t depth, int64_t width,
                           float *y, int64_t y_stride) {
    Product<OfFloats>{x, x_stride, depth, {w, width, PANEL}, nullptr, nullptr, Then::STORE, y, y_stride}
        .run(rows, width);
}

}  // namespace panels
