// qknorm::likeliest: the best classes of each row of logits and the sum of exponentials, from one reading.

#include <cmath>

#include "kernels.h"
#include "tensors.h"

namespace {

// Classes whose largest logit is looked at before any one of them.
constexpr int32_t BLOCK = 64;

inline float sum_of_exponentials(const float *__restrict x, int32_t length, float largest) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t i = 0; i < length; ++i) sum += exp2_of((x[i] - largest) * LOG2_E);
    return sum;
}

// Best first, of equal ones the first, as log-probabilities; returns the logarithm of the sum of exponentials.
inline float likeliest_of_row(const float *z, int32_t classes, int64_t k, float *best, int64_t *where) {
    for (int64_t i = 0; i < k; ++i) best[i] = -INFINITY, where[i] = i;
    float largest = -INFINITY;
    for (int32_t start = 0; start < classes; start += BLOCK) {
        const int32_t length = std::min(classes - start, BLOCK);
        const float largest_here = maximum_of(z + start, length);
        largest = largest_here > largest ? largest_here : largest;
        if (!(largest_here > best[k - 1])) continue;
        for (int32_t i = start; i < start + length; ++i) {
            if (!(z[i] > best[k - 1])) continue;
            int64_t slot = k - 1;
            for (; slot > 0 && z[i] > best[slot - 1]; --slot)
                best[slot] = best[slot - 1], where[slot] = where[slot - 1];
            best[slot] = z[i], where[slot] = i;
        }
    }
    const float lse = std::isinf(largest) ? largest : largest + std::log(sum_of_exponentials(z, classes, largest));
    for (int64_t i = 0; i < k; ++i) best[i] -= lse;
    return lse;
}

std::tuple<Tensor, Tensor, Tensor> likeliest(const Tensor &logits, int64_t k) {
    require_memory(logits);
    require_real(logits);
    if (logits.dim() != 2 || k < 1 || k > logits.size(1))
        refuse("of logits of shape " + shape_of(logits) + " the likeliest " + std::to_string(k) +
               " of each row cannot be had");
    if (!is(logits, ScalarType::Float) || !logits.is_contiguous()) {
        auto [values, indices, sums] = call<3>("qknorm::likeliest_plain", logits, k);
        return {values, indices, sums};
    }
    const int64_t rows = logits.size(0), classes = logits.size(1);
    const std::array<int64_t, 2> each{rows, k};
    const std::array<int64_t, 1> one{rows};
    Tensor values = torch::stable::new_empty(logits, each), sums = torch::stable::new_empty(logits, one);
    Tensor indices = torch::stable::new_empty(logits, each, ScalarType::Long);
    const float *z = read<float>(logits);
    float *best = write<float>(values), *lse = write<float>(sums);
    int64_t *where = write<int64_t>(indices);
    in_parallel(rows, rows * classes, [&](int64_t r) {
        lse[r] = likeliest_of_row(z + r * classes, int32_t(classes), k, best + r * k, where + r * k);
    });
    return {values, indices, sums};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) { m.impl("likeliest", TORCH_BOX(&likeliest)); }
