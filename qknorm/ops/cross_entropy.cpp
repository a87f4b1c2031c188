// qknorm::cross_entropy_: the losses of rows of logits, which become their own gradient where they lie.

#include <cmath>

#include "kernels.h"
#include "tensors.h"

namespace {

void require_classes(const int64_t *wanted, int64_t rows, int64_t classes) {
    for (int64_t r = 0; r < rows; ++r)
        if (wanted[r] < 0 || wanted[r] >= classes)
            refuse("wanted holds class " + std::to_string(wanted[r]) + ", but the classes are 0 to " +
                   std::to_string(classes - 1));
}

// With label smoothing e over n classes: lse - (1 - e) z_wanted - e mean(z) for a row of logits z, which become their
// gradient, softmax(z) - e/n - (1 - e) [wanted], times `weight`.
float loss_of_row(float *z, int64_t wanted, int32_t n, float smoothing, float weight) {
    float largest = -INFINITY, total = 0.0f;
#pragma omp simd reduction(max : largest) reduction(+ : total)
    for (int32_t i = 0; i < n; ++i) {
        largest = z[i] > largest ? z[i] : largest;
        total += z[i];
    }
    const float of_wanted = z[wanted];
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t i = 0; i < n; ++i) {
        z[i] = exp2_of((z[i] - largest) * 1.4426950408889634f);
        sum += z[i];
    }
    const float factor = weight / sum, spread = weight * smoothing / float(n);
#pragma omp simd
    for (int32_t i = 0; i < n; ++i) z[i] = z[i] * factor - spread;
    z[wanted] -= weight * (1.0f - smoothing);
    return largest + std::log(sum) - (1.0f - smoothing) * of_wanted - smoothing * total / float(n);
}

Tensor cross_entropy_(Tensor logits, const Tensor &wanted, double smoothing, double weight) {
    if (logits.dim() != 2 || wanted.dim() != 1 || wanted.size(0) != logits.size(0) || !is(wanted, ScalarType::Long))
        refuse("the loss needs logits (rows, classes) and wanted (rows,) of type torch.int64, not " + shape_of(logits) +
               " and " + shape_of(wanted));
    const int64_t rows = logits.size(0), classes = logits.size(1);
    const Tensor numbers = torch::stable::contiguous(wanted);
    const int64_t *places = read<int64_t>(numbers);
    require_classes(places, rows, classes);
    if (!is(logits, ScalarType::Float) || !logits.is_contiguous())
        return call<1>("qknorm::cross_entropy__plain", logits, wanted, smoothing, weight)[0];
    const std::array<int64_t, 1> sizes{rows};
    Tensor losses = torch::stable::new_empty(logits, sizes);
    float *z = write<float>(logits), *of_row = write<float>(losses);
    in_parallel(rows, rows * classes, [&](int64_t r) {
        of_row[r] = loss_of_row(z + r * classes, places[r], int32_t(classes), float(smoothing), float(weight));
    });
    return losses;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) { m.impl("cross_entropy_", TORCH_BOX(&cross_entropy_)); }
