// qknorm::lp_normalize and its backward pass: Lp normalisation of rows, times g, turned by rotary positions where there
// are any, in one reading and one writing.
//
//   forward    N = (sum |x|^p)^(1/p),                  y = R g x / N
//   backward   dx = g (u - s (xhat . u)) / N,          s = sign(xhat) |xhat|^(p-1),  u = R' dy,  dg = sum of xhat . u
// A row whose norm is not above `floor` gives zeros in both directions. x is (..., heads, length, row), with any strides
// but contiguous rows. For the exponents and row lengths that people use, both are known to the compiler, which makes
// straight vector code of the loops; all others are read at run time. How a row is turned is asked by a pointer
// (lp_rotation.cpp), so that exponents and pairings do not multiply.

#include "lp_kernels.h"

namespace {

using namespace lp;

// The rotation of an operator's arguments.
struct Rotary {
    std::optional<Tensor> cos, sin;
    bool interleaved;
};

// None where no kernel does it: float64, half precision if the compiler does not know it, and long rows that are turned.
inline std::optional<Variant> variant_for(const Tensor &x, float p, const Rotary &rotary) {
    if (x.dim() == 0 || x.numel() == 0) return std::nullopt;
    const int64_t row = x.size(x.dim() - 1);
    if (rotary.cos && row > LONGEST_TURNED) return std::nullopt;
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
    const int64_t heads = x.dim() >= 3 ? x.size(x.dim() - 3) : 1;
    if (scale->dim() > 1 || (scale->dim() == 1 && scale->size(0) != 1 && scale->size(0) != heads))
        refuse("scale must have shape (), (1,) or (heads,), one per head, not " + shape_of(*scale));
}

// cos and sin: (length, dim) or, for an x of four dimensions, (batch or 1, length, dim), of an even dim up to the row.
inline bool fits(const Tensor &table, const Tensor &x) {
    if (x.dim() < 2 || (table.dim() != 2 && !(table.dim() == 3 && x.dim() == 4))) return false;
    const int64_t dim = table.size(table.dim() - 1), batch = table.dim() == 3 ? table.size(0) : 1;
    return table.size(table.dim() - 2) == x.size(x.dim() - 2) && dim > 0 && dim % 2 == 0 &&
           dim <= x.size(x.dim() - 1) && (batch == 1 || batch == x.size(0));
}

inline void require_fitting(const Rotary &rotary, const Tensor &x) {
    if (!rotary.cos && !rotary.sin) return;
    if (!rotary.cos || !rotary.sin) refuse("cos and sin belong together");
    require_real(*rotary.cos);
    require_real(*rotary.sin);
    if (!same_shape(*rotary.cos, *rotary.sin) || !fits(*rotary.cos, x))
        refuse("cos " + shape_of(*rotary.cos) + " and sin " + shape_of(*rotary.sin) + " do not fit to x " + shape_of(x));
}

inline Tensor as_floats(const Tensor &x) {
    const Tensor floats = is(x, ScalarType::Float) ? x : torch::stable::to(x, ScalarType::Float);
    return floats.is_contiguous() ? floats : torch::stable::contiguous(floats);
}

// What the loops read besides x. It owns the memory of the numbers in `task`.
class Prepared {
  public:
    Task task;

    Prepared(const Tensor &x, const std::optional<Tensor> &scale, double p, double eps, const Rotary &rotary)
        : task{x.size(0), x.size(1), x.size(2), x.size(3), float(p), floor_of(eps), &ONE, 0, x.stride(1) < x.stride(2), {}} {
        if (scale) read_scale(*scale);
        if (rotary.cos) read_rotation(x, rotary);
    }

  private:
    static constexpr float ONE = 1.0f;
    std::optional<Tensor> g, cos, sin;

    // The smallest norm that counts; well below the smallest normal number its inverse would overflow.
    static float floor_of(double eps) { return float(std::max(eps, 0.75 * double(SMALLEST_NORMAL))); }

    void read_scale(const Tensor &scale) {
        g = as_floats(scale);
        task.g = read<float>(*g);
        task.g_stride = g->numel() > 1;
    }

    void read_rotation(const Tensor &x, const Rotary &rotary) {
        cos = as_floats(*rotary.cos);
        sin = as_floats(*rotary.sin);
        const int64_t dim = cos->size(cos->dim() - 1), of_batch = cos->dim() == 3 && cos->size(0) > 1;
        task.rotation = {read<float>(*cos), read<float>(*sin), of_batch * x.size(2) * dim, dim, dim, nullptr, nullptr};
        if (is(x, ScalarType::Float)) turn_floats(task.rotation, rotary.interleaved);
        if (is(x, ScalarType::BFloat16)) turn_bfloat16(task.rotation, rotary.interleaved);
#ifdef HAS_HALF
        if (is(x, ScalarType::Half)) turn_half(task.rotation, rotary.interleaved);
#endif
    }
};

inline Tensor one_per_row(const Tensor &x) {
    const auto sizes = x.sizes();
    return empty({sizes.data(), sizes.size() - 1}, ScalarType::Float);
}

inline Tensor shaped_like(const Tensor &y, const Tensor &x) { return x.dim() == 4 ? y : torch::stable::view(y, x.sizes()); }

// The gradient of g from the sums of the blocks of rows, (batch, heads, blocks).
inline Tensor gradient_of_scale(const std::optional<Tensor> &scale, const Task &task, const std::vector<float> &sums) {
    Tensor gradient = scale ? empty(scale->sizes(), ScalarType::Float) : empty({}, ScalarType::Float);
    float *found = write<float>(gradient);
    const int64_t many = gradient.numel(), blocks = task.blocks() * task.heads / many;
    for (int64_t h = 0; h < many; ++h) {
        double total = 0.0;
        for (int64_t b = 0; b < task.batch; ++b)
            for (int64_t i = 0; i < blocks; ++i) total += double(sums[size_t((b * many + h) * blocks + i)]);
        found[h] = float(total);
    }
    const bool is_float = !scale || is(*scale, ScalarType::Float);
    return is_float ? gradient : torch::stable::to(gradient, scale->scalar_type());
}

std::tuple<Tensor, Tensor> lp_normalize(const Tensor &x, const std::optional<Tensor> &scale, double p, double eps,
                                        const std::optional<Tensor> &cos, const std::optional<Tensor> &sin,
                                        bool interleaved) {
    const Rotary rotary{cos, sin, interleaved};
    require_memory(x, scale, cos, sin);
    require_possible(x, scale, p);
    require_fitting(rotary, x);
    const auto kernel = variant_for(x, float(p), rotary);
    if (!kernel) {
        auto [y, norms] = call<2>("qknorm::lp_normalize_plain", x, scale, p, eps, cos, sin, interleaved);
        return {y, norms};
    }
    const Tensor in = four_dimensional(x);
    const Prepared prepared(in, scale, p, eps, rotary);
    Tensor y = empty_with_contiguous_rows(in), norms = one_per_row(x);
    kernel->forward(prepared.task, read<void>(in), strides_of(in), write<void>(y), strides_of(y), write<float>(norms));
    return {shaped_like(y, x), norms};
}

std::tuple<Tensor, Tensor> lp_normalize_backward(const Tensor &dy, const Tensor &x, const std::optional<Tensor> &scale,
                                                 const Tensor &norms, double p, double eps,
                                                 const std::optional<Tensor> &cos, const std::optional<Tensor> &sin,
                                                 bool interleaved) {
    const Rotary rotary{cos, sin, interleaved};
    require_memory(dy, x, scale, norms, cos, sin);
    require_possible(x, scale, p);
    require_fitting(rotary, x);
    require_real(dy);
    if (!same_shape(dy, x) || norms.dim() != x.dim() - 1 || norms.numel() * x.size(x.dim() - 1) != x.numel() ||
        !is(norms, is(x, ScalarType::Double) ? ScalarType::Double : ScalarType::Float))
        refuse("the gradient " + shape_of(dy) + " or the norms " + shape_of(norms) + " do not fit to x " + shape_of(x));
    const auto kernel = variant_for(x, float(p), rotary);
    if (!kernel || dy.scalar_type() != x.scalar_type()) {
        auto [dx, dg] = call<2>("qknorm::lp_normalize_backward_plain", dy, x, scale, norms, p, eps, cos, sin, interleaved);
        return {dx, dg};
    }
    const Tensor in = four_dimensional(x), out_gradient = four_dimensional(dy);
    const Tensor lengths = norms.is_contiguous() ? norms : torch::stable::contiguous(norms);
    const Prepared prepared(in, scale, p, eps, rotary);
    const Task &task = prepared.task;
    Tensor dx = empty_with_contiguous_rows(in);
    std::vector<float> sums(size_t(task.batch * task.heads * task.blocks()));
    kernel->backward(task, read<void>(in), strides_of(in), read<void>(out_gradient), strides_of(out_gradient),
                     write<void>(dx), strides_of(dx), read<float>(lengths), sums.data());
    return {shaped_like(dx, x), gradient_of_scale(scale, task, sums)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) {
    m.impl("lp_normalize", TORCH_BOX(&lp_normalize));
    m.impl("lp_normalize_backward", TORCH_BOX(&lp_normalize_backward));
}
