// What every operator does with torch's tensors: read their memory, refuse a wrong one, call another operator.
//
// Only the stable ABI of LibTorch (2.10 and later) is used, so a library that was built once keeps working when torch is
// replaced by a newer one, and building takes seconds.

#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Below this many elements a second thread costs more than it saves.
constexpr int64_t ELEMENTS_PER_THREAD = 8192;

// Python sees a ValueError.
[[noreturn]] inline void refuse(const std::string &sentence) { throw std::invalid_argument(sentence); }

inline std::string shape_of(const Tensor &x) {
    std::string shape = "(";
    for (int64_t i = 0; i < x.dim(); ++i) shape += (i ? ", " : "") + std::to_string(x.size(i));
    return shape + (x.dim() == 1 ? ",)" : ")");
}

inline bool same_shape(const Tensor &a, const Tensor &b) { return a.sizes().equals(b.sizes()); }

// A storage can be freed while tensors still refer to it, and torch's own operations read it then. So this is the first
// thing that an operator asks of each of its arguments.
inline void require_memory(const Tensor &x) {
    int64_t bytes = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(x.get(), &bytes));
    if (bytes == 0 && x.numel())
        refuse("the memory of a tensor of shape " + shape_of(x) + " was freed while it was needed");
}

inline void require_memory(const std::optional<Tensor> &x) {
    if (x) require_memory(*x);
}

template <class First, class... Others>
inline void require_memory(const First &first, const Others &...others) {
    require_memory(first);
    (require_memory(others), ...);
}

template <class Element>
inline const Element *read(const Tensor &x) { return static_cast<const Element *>(x.const_data_ptr()); }

template <class Element>
inline Element *write(Tensor &x) { return static_cast<Element *>(x.mutable_data_ptr()); }

inline bool is(const Tensor &x, ScalarType type) { return x.scalar_type() == type; }

inline void require_real(const Tensor &x) {
    if (!is(x, ScalarType::Float) && !is(x, ScalarType::Double) && !is(x, ScalarType::Half) && !is(x, ScalarType::BFloat16))
        refuse("a tensor of real floating-point numbers is needed");
}

inline void require_probability(const char *name, double p) {
    if (!(p >= 0.0 && p <= 1.0)) refuse(std::string(name) + " must be between 0 and 1, not " + std::to_string(p));
}

inline Tensor with_contiguous_rows(const Tensor &x) {
    return x.dim() == 0 || x.stride(x.dim() - 1) == 1 ? x : torch::stable::contiguous(x);
}

using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

// A new tensor; to ask torch's dispatcher for one takes a microsecond more.
inline Tensor empty_strided(Sizes sizes, Sizes strides, ScalarType type) {
    const auto code = torch::stable::detail::to<int32_t>(torch::stable::detail::from(type));
    AtenTensorHandle made;
    TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(int64_t(sizes.size()), sizes.data(), strides.data(), code,
                                                           aoti_torch_device_type_cpu(), 0, &made));
    return Tensor(made);
}

inline Tensor empty(Sizes sizes, ScalarType type) {
    std::vector<int64_t> strides(sizes.size());
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0; stride *= std::max<int64_t>(sizes[i], 1)) strides[i] = stride;
    return empty_strided(sizes, strides, type);
}

// Whether x fills its memory row by row: in the order of its dimensions, or as a projection leaves its heads.
inline bool is_filled_by_rows(const Tensor &x) {
    if (x.stride(x.dim() - 1) != 1) return false;
    if (x.is_contiguous()) return true;
    return x.dim() == 4 && x.stride(1) == x.size(3) && x.stride(2) == x.size(1) * x.size(3) &&
           x.stride(0) == x.size(2) * x.stride(2);
}

// A tensor like x, in its layout, with contiguous rows even where x is a view that overlaps itself.
inline Tensor empty_with_contiguous_rows(const Tensor &x) {
    if (is_filled_by_rows(x)) return empty_strided(x.sizes(), x.strides(), x.scalar_type());
    Tensor y = torch::stable::empty_like(x);
    return y.stride(y.dim() - 1) == 1 ? y : empty(x.sizes(), x.scalar_type());
}

// Another operator, found by its name: its arguments in, its `RESULTS` tensors out.
template <size_t RESULTS, class... Arguments>
inline std::array<Tensor, RESULTS> call(const char *name, const Arguments &...arguments) {
    std::array<StableIValue, std::max(RESULTS, sizeof...(Arguments))> stack{torch::stable::detail::from(arguments)...};
    TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, "", stack.data(), TORCH_ABI_VERSION));
    std::array<Tensor, RESULTS> results;
    for (size_t i = 0; i < RESULTS; ++i) results[i] = torch::stable::detail::to<Tensor>(stack[i]);
    return results;
}

// f(i) for every i below `count`, over threads where `elements`, the size of the whole task, is worth it.
template <class F>
inline void in_parallel(int64_t count, int64_t elements, F f) {
    if (count <= 0) return;
    const int64_t each = std::max<int64_t>(elements / count, 1);
    torch::stable::parallel_for(0, count, std::max<int64_t>(ELEMENTS_PER_THREAD / each, 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) f(i);
    });
}

// The seed of dropout, as torch's generator drew it.
inline uint64_t seed_of(const Tensor &seed) {
    if (!is(seed, ScalarType::Long) || seed.numel() != 1) refuse("seed must be one number of type torch.int64");
    return static_cast<uint64_t>(*read<int64_t>(seed));
}
