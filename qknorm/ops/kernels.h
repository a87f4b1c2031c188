// What the CPU kernels compute with: element types, powers of two, logarithms, and dropout that is drawn again instead of
// being stored. Nothing of torch.

#pragma once

#include <cstdint>

inline float bits_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t float_to_bits(float value) { return __builtin_bit_cast(uint32_t, value); }

// Numbers as they lie in memory. Arithmetic is always in float.
struct BFloat16 { uint16_t bits; };

inline float load(float value) { return value; }
inline void store(float &target, float value) { target = value; }

inline float load(BFloat16 value) { return bits_to_float(uint32_t(value.bits) << 16); }
inline void store(BFloat16 &target, float value) {
    const uint32_t bits = float_to_bits(value);
    const uint32_t nearest_even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    target.bits = value != value ? uint16_t(0x7fc0) : uint16_t(nearest_even);
}

#if defined(__aarch64__)
using Half = __fp16;
#define HAS_HALF
#elif defined(__FLT16_MANT_DIG__)
using Half = _Float16;
#define HAS_HALF
#endif  // any other compiler knows none, and half precision is left to the twins

#ifdef HAS_HALF
inline float load(Half value) { return float(value); }
inline void store(Half &target, float value) { target = Half(value); }
#endif

// log2 and exp2 without branches or tables, so that the loops around them become vector code.
// log2(m) = 2/ln2 atanh((m-1)/(m+1)) with m in [sqrt 1/2, sqrt 2): the first term left out is below 4e-10.
inline float log2_of(float a) {
    const int32_t bits = int32_t(float_to_bits(a));
    const int32_t exponent = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3 is sqrt(1/2)
    const float m = bits_to_float(uint32_t(bits - int32_t(uint32_t(exponent) << 23)));
    const float t = (m - 1.0f) / (m + 1.0f), t2 = t * t;
    const float series = t * (1.0f + t2 * (1.0f / 3 + t2 * (1.0f / 5 + t2 * (1.0f / 7 + t2 * (1.0f / 9)))));
    return float(exponent) + series * 2.8853900817779268f;
}

// exp2(n + f) = 2^n e^(f ln2) with |f| <= 1/2: the first term left out is below 6e-9. Ends at 0 and at 2^127.
inline float exp2_of(float a) {
    const float clamped = a < -126.0f ? -126.0f : a > 127.0f ? 127.0f : a;
    const float n = __builtin_nearbyintf(clamped), x = (clamped - n) * 0.6931471805599453f;
    const float e = 1 + x * (1 + x * (1.0f / 2 + x * (1.0f / 6 + x * (1.0f / 24 + x * (1.0f / 120
                    + x * (1.0f / 720 + x * (1.0f / 5040)))))));
    const float scaled = e * bits_to_float(uint32_t(int32_t(n) + 127) << 23);
    return a < -126.0f ? 0.0f : scaled;
}

constexpr float LOG2_E = 1.4426950408889634f;

// Floats that are added side by side: as many as a register of this processor holds.
#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

template <int MANY>
struct Lanes { typedef float Vector __attribute__((vector_size(MANY * sizeof(float)))); };

template <int MANY>
inline float sum_of_lanes(typename Lanes<MANY>::Vector lanes) {
    if constexpr (MANY == 1) {
        return lanes[0];
    } else {
        typename Lanes<MANY / 2>::Vector halves[2];
        __builtin_memcpy(halves, &lanes, sizeof lanes);
        return sum_of_lanes<MANY / 2>(halves[0] + halves[1]);
    }
}

// The sum of term(0) ... term(length - 1). The compiler would add up the lanes of its vector one after the other, which
// for short rows takes longer than all the rest; here it is halves, quarters and so on.
template <class F>
inline float sum_over(int64_t length, F term) {
    typename Lanes<LANES>::Vector total = {};
    const int64_t whole = length - length % LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        float terms[LANES];
#pragma omp simd
        for (int j = 0; j < LANES; ++j) terms[j] = term(i + j);
        typename Lanes<LANES>::Vector lanes;
        __builtin_memcpy(&lanes, terms, sizeof terms);
        total += lanes;
    }
    float sum = sum_of_lanes<LANES>(total);
    for (int64_t i = whole; i < length; ++i) sum += term(i);
    return sum;
}

// NaN is passed over.
inline float maximum_of(const float *x, int32_t length) {
    float maximum = -__builtin_inff();
#pragma omp simd reduction(max : maximum)
    for (int32_t i = 0; i < length; ++i) maximum = x[i] > maximum ? x[i] : maximum;
    return maximum;
}

struct RowKey { uint32_t low, high; };

// Whether an element is dropped is a function of the seed, its row and its place alone: a keyed mixing of bits.
struct Dropout {
    uint64_t seed;
    uint32_t keep_below;  // an element is kept where its 32 random bits are below this
    float factor;         // what is kept is multiplied by 1 / (1 - p)

    Dropout(float p, uint64_t seed) : seed(seed), keep_below(0xffffffffu), factor(1.0f) {
        if (p > 0.0f) {
            const double share = (1.0 - double(p)) * 4294967296.0;
            keep_below = share < 4294967295.0 ? uint32_t(share) : 0xffffffffu;
            factor = float(1.0 / (1.0 - double(p)));
        }
    }

    bool active() const { return factor != 1.0f; }

    // The finaliser of splitmix64 (Steele et al. 2014).
    RowKey row_key(int64_t row) const {
        uint64_t z = seed + uint64_t(row + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        return {uint32_t(z), uint32_t(z >> 32)};
    }

    // Multiply and shift as in murmur3, with the constants of Wellons' search for little bias.
    bool keeps(RowKey key, uint32_t place) const {
        uint32_t x = place + key.low;
        x ^= x >> 16;
        x *= 0x7feb352du;
        x ^= x >> 15;
        x ^= key.high;
        x *= 0x846ca68bu;
        x ^= x >> 16;
        return x < keep_below;
    }
};
