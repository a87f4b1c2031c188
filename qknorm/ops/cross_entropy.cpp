// qknorm::cross_entropy: the losses of rows of logits, and the gradient of their weighted sum, in one go.

#include <cmath>

#include "kernels.h"
#include "tensors.h"

namespace {

void require_classes(const int64_t *target, int64_t rows, int64_t classes) {
    for (int64_t r = 0; r < rows; ++r)
        if (target[r] < 0 || target[r] >= classes)
            refuse("target holds class " + std::to_string(target[r]) + ", but the classes are 0 to " +
                   std::to_string(classes - 1));
}

// With label smoothing e over n classes: lse - (1 - e) z_target - e mean(z) for a row of logits z, and its gradient,
// softmax(z) - e/n - (1 - e) [target], times `weight`. Without smoothing an impossible class, of logit -infinity, is allowed.
float loss_of_row(const float *__restrict z, float *__restrict gradient, int64_t target, int32_t n, float smoothing,
                  float weight) {
    float largest = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : largest) reduction(+ : total)
    for (int32_t i = 0; i < n; ++i) {
        largest = z[i] > largest ? z[i] : largest;
        total += z[i];
    }
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t i = 0; i < n; ++i) {
        gradient[i] = exp2_of((z[i] - largest) * LOG2_E);
        sum += gradient[i];
    }
    const float factor = weight / sum, spread = weight * smoothing / float(n);
#pragma omp simd
    for (int32_t i = 0; i < n; ++i) gradient[i] = gradient[i] * factor - spread;
    gradient[target] -= weight * (1.0f - smoothing);
    const float smoothed = smoothing > 0.0f ? smoothing * total / float(n) : 0.0f;
    // NaN anywhere is in `total`, where the largest may have missed it.
    return largest + std::log(sum) - (1.0f - smoothing) * z[target] - smoothed + (total != total ? total : 0.0f);
}

std::tuple<Tensor, Tensor> cross_entropy(const Tensor &logits_, const Tensor &target, double smoothing, double weight) {
    require_memory(logits_, target);
    require_real(logits_);
    require_probability("label_smoothing", smoothing);
    if (logits_.dim() != 2 || target.dim() != 1 || target.size(0) != logits_.size(0) || !is(target, ScalarType::Long))
        refuse("the loss needs logits (rows, classes) and target (rows,) of type torch.int64, not " + shape_of(logits_) +
               " and " + shape_of(target));
    const int64_t rows = logits_.size(0), classes = logits_.size(1);
    const Tensor numbers = torch::stable::contiguous(target);
    const int64_t *targets = read<int64_t>(numbers);
    require_classes(targets, rows, classes);
    if (!is(logits_, ScalarType::Float)) {
        auto [losses, gradient] = call<2>("qknorm::cross_entropy_plain", logits_, target, smoothing, weight);
        return {losses, gradient};
    }
    const Tensor logits = torch::stable::contiguous(logits_);
    const std::array<int64_t, 1> sizes{rows};
    Tensor losses = torch::stable::new_empty(logits, sizes), gradient = torch::stable::empty_like(logits);
    const float *z = read<float>(logits);
    float *of_row = write<float>(losses), *of_logits = write<float>(gradient);
    in_parallel(rows, rows * classes, [&](int64_t r) {
        of_row[r] = loss_of_row(z + r * classes, of_logits + r * classes, targets[r], int32_t(classes), float(smoothing),
                                float(weight));
    });
    return {losses, gradient};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) { m.impl("cross_entropy", TORCH_BOX(&cross_entropy)); }
