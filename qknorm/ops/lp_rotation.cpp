// Rotary positions (Su et al. 2021) of single rows, with either pairing: (i, i + dim/2) or (2i, 2i + 1).
//
//   y[a] = x[a] cos[a] - x[b] sin[a],  y[b] = x[b] cos[b] + x[a] sin[b]
// cos and sin are read for both entries of a pair, so that any table means here what it means in torch's operations.
// Entries beyond `dim` are not turned.

#include "lp_kernels.h"

namespace lp {

namespace {

struct Halves {
    static int64_t first(int64_t pair, int64_t) { return pair; }
    static int64_t second(int64_t pair, int64_t dim) { return pair + dim / 2; }
};

struct Neighbours {
    static int64_t first(int64_t pair, int64_t) { return 2 * pair; }
    static int64_t second(int64_t pair, int64_t) { return 2 * pair + 1; }
};

template <class Pairing, class Element, int DIM>
void turn(const void *from, void *to, Factors factors, Angles angles, int64_t runtime_dim, int64_t row) {
    const int64_t dim = DIM == ANY_LENGTH ? runtime_dim : DIM;
    const Element *__restrict x = static_cast<const Element *>(from);
    Element *__restrict y = static_cast<Element *>(to);
    const float *cos = angles.cos, *sin = angles.sin;
#pragma omp simd
    for (int64_t pair = 0; pair < dim / 2; ++pair) {
        const int64_t a = Pairing::first(pair, dim), b = Pairing::second(pair, dim);
        const float u = load(x[a]) * factors.first * factors.second, v = load(x[b]) * factors.first * factors.second;
        store(y[a], u * cos[a] - v * sin[a]);
        store(y[b], v * cos[b] + u * sin[b]);
    }
    if (dim < row) multiply_twice(x + dim, y + dim, factors, row - dim);
}

template <class Pairing, class Element, int DIM>
void turn_back(const void *from, float *__restrict turned, Angles angles, int64_t runtime_dim, int64_t row) {
    const int64_t dim = DIM == ANY_LENGTH ? runtime_dim : DIM;
    const Element *__restrict dy = static_cast<const Element *>(from);
    const float *cos = angles.cos, *sin = angles.sin;
#pragma omp simd
    for (int64_t pair = 0; pair < dim / 2; ++pair) {
        const int64_t a = Pairing::first(pair, dim), b = Pairing::second(pair, dim);
        const float u = load(dy[a]), v = load(dy[b]);
        turned[a] = u * cos[a] + v * sin[b];
        turned[b] = v * cos[b] - u * sin[a];
    }
    for (int64_t i = dim; i < row; ++i) turned[i] = load(dy[i]);
}

template <class Pairing, class Element, int DIM>
void use(Rotation &rotation) {
    rotation.turn = &turn<Pairing, Element, DIM>;
    rotation.turn_back = &turn_back<Pairing, Element, DIM>;
}

template <class Pairing, class Element>
void use_for_dim(Rotation &rotation) {
    if (rotation.dim == 64) return use<Pairing, Element, 64>(rotation);
    if (rotation.dim == 128) return use<Pairing, Element, 128>(rotation);
    return use<Pairing, Element, ANY_LENGTH>(rotation);
}

template <class Element>
void use_pairing(Rotation &rotation, bool interleaved) {
    return interleaved ? use_for_dim<Neighbours, Element>(rotation) : use_for_dim<Halves, Element>(rotation);
}

}  // namespace

void turn_floats(Rotation &rotation, bool interleaved) { use_pairing<float>(rotation, interleaved); }
void turn_bfloat16(Rotation &rotation, bool interleaved) { use_pairing<BFloat16>(rotation, interleaved); }
#ifdef HAS_HALF
void turn_half(Rotation &rotation, bool interleaved) { use_pairing<Half>(rotation, interleaved); }
#endif

}  // namespace lp
