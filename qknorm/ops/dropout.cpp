// qknorm::dropout, qknorm::relu_dropout and its backward pass: each one pass over memory, without masks that are stored.

#include "kernels.h"
#include "tensors.h"

namespace {

// Elements that share one key of the dropout's random bits.
constexpr int64_t ROW = 1024;

// Each of these is one row. Copies of the dropout's numbers, which no store can change, let the loops become vector code.
template <class Element>
inline void drop_row(const Element *__restrict x, Element *__restrict out, int32_t length, Dropout drop, RowKey key) {
    const float factor = drop.factor;
#pragma omp simd
    for (int32_t i = 0; i < length; ++i)
        store(out[i], load(x[i]) * (drop.keeps(key, uint32_t(i)) ? factor : 0.0f));
}

template <class Element>
inline void add_dropped_row(const Element *__restrict x, const Element *__restrict residual, Element *__restrict out,
                            int32_t length, Dropout drop, RowKey key) {
    const float factor = drop.factor;
#pragma omp simd
    for (int32_t i = 0; i < length; ++i)
        store(out[i], load(residual[i]) + load(x[i]) * (drop.keeps(key, uint32_t(i)) ? factor : 0.0f));
}

template <class Element>
inline void relu_row(const Element *__restrict x, Element *__restrict out, int32_t length, Dropout drop, RowKey key) {
    const float factor = drop.factor;
#pragma omp simd
    for (int32_t i = 0; i < length; ++i) {
        const float value = load(x[i]);
        store(out[i], (value < 0.0f ? 0.0f : value) * (drop.keeps(key, uint32_t(i)) ? factor : 0.0f));
    }
}

template <class Element>
inline void relu_row_backward(const Element *__restrict out, const Element *__restrict d_out, Element *__restrict d_x,
                              int32_t length, float factor) {
#pragma omp simd
    for (int32_t i = 0; i < length; ++i) store(d_x[i], load(d_out[i]) * (load(out[i]) > 0.0f ? factor : 0.0f));
}

Dropout checked(double p, uint64_t seed) {
    require_probability("p", p);
    return Dropout(float(p), seed);
}

void require_alike(const Tensor &a, const Tensor &b) {
    if (!same_shape(a, b) || a.scalar_type() != b.scalar_type())
        refuse("tensors of one shape and type are needed, not " + shape_of(a) + " and " + shape_of(b));
}

// f(Element{}) for the type of x; false where no kernel takes it.
template <class F>
bool for_type(const Tensor &x, F f) {
    if (is(x, ScalarType::Float)) return f(float{}), true;
    if (is(x, ScalarType::BFloat16)) return f(BFloat16{}), true;
#ifdef HAS_HALF
    if (is(x, ScalarType::Half)) return f(Half{}), true;
#endif
    return false;
}

// f(start, length) for every row of so many elements.
template <class F>
void for_each_row(int64_t elements, F f) {
    in_parallel((elements + ROW - 1) / ROW, elements,
                [&](int64_t row) { f(row, row * ROW, int32_t(std::min(elements - row * ROW, ROW))); });
}

// D(x), or residual + D(x).
Tensor dropout(const Tensor &x_, const std::optional<Tensor> &residual_, double p, const Tensor &seed) {
    require_memory(x_, residual_, seed);
    require_real(x_);
    const Dropout drop = checked(p, seed_of(seed));
    if (residual_) require_alike(x_, *residual_);
    const Tensor x = torch::stable::contiguous(x_);
    const Tensor residual = residual_ ? torch::stable::contiguous(*residual_) : x;
    Tensor out = torch::stable::empty_like(x);
    const bool is_served = for_type(x, [&](auto type) {
        using Element = decltype(type);
        const Element *from = read<Element>(x), *beside = read<Element>(residual);
        Element *to = write<Element>(out);
        for_each_row(x.numel(), [&](int64_t row, int64_t start, int32_t length) {
            const RowKey key = drop.row_key(row);
            if (residual_) add_dropped_row(from + start, beside + start, to + start, length, drop, key);
            else drop_row(from + start, to + start, length, drop, key);
        });
    });
    return is_served ? out : call<1>("qknorm::dropout_plain", x_, residual_, p, seed)[0];
}

// D(max(x, 0)).
Tensor relu_dropout(const Tensor &x_, double p, const Tensor &seed) {
    require_memory(x_, seed);
    require_real(x_);
    const Dropout drop = checked(p, seed_of(seed));
    const Tensor x = torch::stable::contiguous(x_);
    Tensor out = torch::stable::empty_like(x);
    const bool is_served = for_type(x, [&](auto type) {
        using Element = decltype(type);
        const Element *from = read<Element>(x);
        Element *to = write<Element>(out);
        for_each_row(x.numel(), [&](int64_t row, int64_t start, int32_t length) {
            relu_row(from + start, to + start, length, drop, drop.row_key(row));
        });
    });
    return is_served ? out : call<1>("qknorm::relu_dropout_plain", x_, p, seed)[0];
}

// What was positive after D(max(x, 0)) was neither dropped nor negative, so `out` is all that has to be remembered.
Tensor relu_dropout_backward(const Tensor &d_out_, const Tensor &out_, double p) {
    require_memory(d_out_, out_);
    require_real(out_);
    require_real(d_out_);
    const float factor = checked(p, 0).factor;
    require_alike(d_out_, out_);
    const Tensor d_out = torch::stable::contiguous(d_out_), out = torch::stable::contiguous(out_);
    Tensor d_x = torch::stable::empty_like(out);
    const bool is_served = for_type(out, [&](auto type) {
        using Element = decltype(type);
        const Element *values = read<Element>(out), *gradients = read<Element>(d_out);
        Element *to = write<Element>(d_x);
        for_each_row(out.numel(), [&](int64_t, int64_t start, int32_t length) {
            relu_row_backward(values + start, gradients + start, to + start, length, factor);
        });
    });
    return is_served ? d_x : call<1>("qknorm::relu_dropout_backward_plain", d_out_, out_, p)[0];
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) {
    m.impl("dropout", TORCH_BOX(&dropout));
    m.impl("relu_dropout", TORCH_BOX(&relu_dropout));
    m.impl("relu_dropout_backward", TORCH_BOX(&relu_dropout_backward));
}
