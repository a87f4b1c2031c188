// qknorm::lp_normalize and its backward pass: Lp normalisation of rows in one reading and one writing.
//
//   forward    N = (sum |x|^p)^(1/p),                  y = g x / N
//   backward   dx = g (dy - s (xhat . dy)) / N,        s = sign(xhat) |xhat|^(p-1),  dg = xhat . dy
// A row whose norm is not above `floor` gives zeros in both directions. x is (..., heads, length, row), with any strides
// but contiguous rows. For the exponents and row lengths that people use, both are known to the compiler, which makes
// straight vector code of the loops; all others are read at run time.

#include "lp_kernels.h"

namespace {

using namespace lp;

// None where no kernel does it: float64, and half precision if the compiler does not know it.
inline std::optional<Variant> variant_for(const Tensor &x, float p) {
    if (x.dim() == 0 || x.numel() == 0) return std::nullopt;
    const int64_t row = x.size(x.dim() - 1);
    if (is(x, ScalarType::Float)) return of_float(p, row);
    if (is(x, ScalarType::BFloat16)) return of_bfloat16(p);
#ifdef HAS_HALF
    if (is(x, ScalarType::Half)) return of_half(p);
#endif
    return std::nullopt;
}

// x as (batch, heads, length, row) with contiguous rows; a view wherever one exists.
inline Tensor four_dimensional(const Tensor &x) {
    Tensor four = x.dim() > 4 ? torch::stable::flatten(x, 0, x.dim() - 4) : x;
    while (four.dim() < 4) four = torch::stable::unsqueeze(four, 0);
    return with_contiguous_rows(four);
}

inline Strides strides_of(const Tensor &x) { return {x.stride(0), x.stride(1), x.stride(2)}; }

inline void require_possible(const Tensor &x, const std::optional<Tensor> &scale, double p) {
    require_real(x);
    if (!(p >= 1.0)) refuse("p must be a number from 1 to infinity, not " + std::to_string(p));
    if (x.dim() == 0) refuse("a tensor with at least one dimension is needed");
    if (!scale) return;
    require_real(*scale);
    const int64_t heads = x.dim() >= 3 ? x.size(x.dim() - 3) : -1;
    if (scale->dim() > 1 || (scale->dim() == 1 && scale->size(0) != heads))
        refuse("scale must have shape () or (heads,), one per head, not " + shape_of(*scale));
}

inline Tensor factors(const std::optional<Tensor> &scale) {
    if (!scale) return torch::stable::full({}, 1.0, ScalarType::Float);
    return torch::stable::contiguous(torch::stable::to(*scale, ScalarType::Float));
}

// The smallest norm that counts; well below the smallest normal number its inverse would overflow.
inline float floor_of(double eps) { return float(std::max(eps, 0.75 * double(SMALLEST_NORMAL))); }

inline Task task_of(const Tensor &x, const Tensor &g, double p, double eps) {
    return {x.size(0), x.size(1), x.size(2), x.size(3), float(p), floor_of(eps), read<float>(g), g.dim()};
}

inline Tensor one_per_row(const Tensor &x) {
    auto sizes = x.sizes();
    return torch::stable::new_empty(x, {sizes.data(), sizes.size() - 1}, ScalarType::Float);
}

inline Tensor shaped_like(const Tensor &y, const Tensor &x) { return x.dim() == 4 ? y : torch::stable::view(y, x.sizes()); }

std::tuple<Tensor, Tensor> lp_normalize(const Tensor &x, const std::optional<Tensor> &scale, double p, double eps) {
    require_memory(x, scale);
    require_possible(x, scale, p);
    const auto kernel = variant_for(x, float(p));
    if (!kernel) {
        auto [y, norms] = call<2>("qknorm::lp_normalize_plain", x, scale, p, eps);
        return {y, norms};
    }
    const Tensor in = four_dimensional(x), g = factors(scale);
    Tensor y = empty_with_contiguous_rows(in), norms = one_per_row(x);
    kernel->forward(task_of(in, g, p, eps), read<void>(in), strides_of(in), write<void>(y), strides_of(y),
                    write<float>(norms));
    return {shaped_like(y, x), norms};
}

std::tuple<Tensor, Tensor> lp_normalize_backward(const Tensor &dy, const Tensor &x, const std::optional<Tensor> &scale,
                                                 const Tensor &norms, double p, double eps) {
    require_memory(dy, x, scale, norms);
    require_possible(x, scale, p);
    require_real(dy);
    if (dy.sizes() != x.sizes() || norms.dim() != x.dim() - 1 || norms.numel() * x.size(x.dim() - 1) != x.numel() ||
        !is(norms, is(x, ScalarType::Double) ? ScalarType::Double : ScalarType::Float))
        refuse("the gradient " + shape_of(dy) + " or the norms " + shape_of(norms) + " do not fit to x " + shape_of(x));
    const auto kernel = variant_for(x, float(p));
    if (!kernel || dy.scalar_type() != x.scalar_type()) {
        auto [dx, dots] = call<2>("qknorm::lp_normalize_backward_plain", dy, x, scale, norms, p, eps);
        return {dx, dots};
    }
    const Tensor in = four_dimensional(x), out_gradient = four_dimensional(dy), g = factors(scale);
    const Tensor lengths = torch::stable::contiguous(norms);
    Tensor dx = empty_with_contiguous_rows(in), dots = one_per_row(x);
    kernel->backward(task_of(in, g, p, eps), read<void>(in), strides_of(in), read<void>(out_gradient),
                     strides_of(out_gradient), write<void>(dx), strides_of(dx), read<float>(lengths), write<float>(dots));
    return {shaped_like(dx, x), dots};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) {
    m.impl("lp_normalize", TORCH_BOX(&lp_normalize));
    m.impl("lp_normalize_backward", TORCH_BOX(&lp_normalize_backward));
}
