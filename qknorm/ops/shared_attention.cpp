// qknorm::attend_to_history and qknorm::attend_to_shared: single queries against keys and values that several of them have
// in common, without a copy for each. float32, for inference.

#include <cmath>
#include <vector>

#include "kernels.h"
#include "tensors.h"

namespace {

// Hypotheses of one sentence lie side by side and have most of their keys in common: one thread takes them together.
constexpr int64_t ROWS_TOGETHER = 4;

inline float dot(const float *__restrict a, const float *__restrict b, int32_t length) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t i = 0; i < length; ++i) sum += a[i] * b[i];
    return sum;
}

inline void add_scaled(float *__restrict to, const float *__restrict from, float factor, int32_t length) {
#pragma omp simd
    for (int32_t i = 0; i < length; ++i) to[i] += factor * from[i];
}

// One query against `length` keys and values; `key(t)` and `value(t)` are where they lie.
template <class Key, class Value>
inline void attend(const float *q, Key key, Value value, float *o, float *scores, int64_t length, int32_t row,
                   float scale) {
    for (int64_t t = 0; t < length; ++t) scores[t] = dot(q, key(t), row) * scale;
    const float largest = maximum_of(scores, int32_t(length));
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int32_t t = 0; t < int32_t(length); ++t) {
        scores[t] = exp2_of((scores[t] - largest) * LOG2_E);
        sum += scores[t];
    }
    for (int32_t i = 0; i < row; ++i) o[i] = 0.0f;
    for (int64_t t = 0; t < length; ++t) add_scaled(o, value(t), scores[t] / sum, row);
}

thread_local std::vector<float> scratch;

inline float *room(int64_t floats) {
    if (int64_t(scratch.size()) < floats) scratch.resize(floats + 64);
    return scratch.data();
}

// Keys and values (entries, key heads, room, row) with contiguous rows.
struct Memory {
    const float *start;
    int64_t entry, head, position;
    const float *at(int64_t e, int64_t h) const { return start + e * entry + h * head; }
};

inline Memory memory_of(const Tensor &x) { return {read<float>(x), x.stride(0), x.stride(1), x.stride(2)}; }

// Whether this is a task for the kernels; what is not is left to the twins.
inline bool is_served(const Tensor &q, const Tensor &k, const Tensor &v) {
    for (const Tensor *x : {&q, &k, &v})
        if (!is(*x, ScalarType::Float) || x->numel() == 0) return false;
    return same_shape(k, v) && k.stride(3) == 1 && v.stride(3) == 1;
}

inline void require_possible(const Tensor &q, const Tensor &k, const Tensor &v) {
    require_memory(q, k, v);
    for (const Tensor *x : {&q, &k, &v}) require_real(*x);
    if (q.dim() != 4 || q.size(2) != 1 || k.dim() != 4 || v.dim() != 4 || q.size(3) != k.size(3) ||
        (k.size(1) ? q.size(1) % k.size(1) : q.size(1)) || k.size(0) != v.size(0) || k.size(1) != v.size(1) ||
        k.size(2) != v.size(2))
        refuse("query must be (rows, heads, 1, head_dim), keys and values (entries, key heads, length, head_dim) of the "
               "same positions, not " + shape_of(q) + ", " + shape_of(k) + " and " + shape_of(v));
}

inline Tensor numbers(const char *name, const Tensor &x, int64_t dim) {
    if (!is(x, ScalarType::Long) || x.dim() != dim)
        refuse(std::string(name) + " must hold whole numbers of type torch.int64 in " + std::to_string(dim) + " dimensions");
    return torch::stable::contiguous(x);
}

inline void require_entry(const char *name, int64_t number, int64_t end) {
    if (number < 0 || number >= end)
        refuse(std::string(name) + " holds " + std::to_string(number) + ", but the memory has the entries 0 to " +
               std::to_string(end - 1));
}

// f(row, head) for all of them: rows side by side share most of their keys, so that one thread takes them together.
template <class F>
inline void for_each_query(const Tensor &q, int64_t length, F f) {
    const int64_t rows = q.size(0), heads = q.size(1), groups = (rows + ROWS_TOGETHER - 1) / ROWS_TOGETHER;
    in_parallel(groups, rows * heads * length * q.size(3), [&](int64_t group) {
        for (int64_t r = group * ROWS_TOGETHER; r < std::min(rows, (group + 1) * ROWS_TOGETHER); ++r)
            for (int64_t h = 0; h < heads; ++h) f(r, h);
    });
}

// A cache that is never reordered: position t of row r lies in entry history[r][t].
Tensor attend_to_history(const Tensor &query, const Tensor &keys, const Tensor &values, const Tensor &history,
                         double scale) {
    require_possible(query, keys, values);
    require_memory(history);
    const Tensor slots = numbers("history", history, 2);
    const int64_t length = slots.size(1);
    if (slots.size(0) != query.size(0) || length > keys.size(2))
        refuse("history " + shape_of(history) + " does not fit to queries " + shape_of(query) + " and keys " + shape_of(keys));
    const int64_t *slot = read<int64_t>(slots);
    for (int64_t i = 0; i < slots.numel(); ++i) require_entry("history", slot[i], keys.size(0));
    if (!is_served(query, keys, values))
        return call<1>("qknorm::attend_to_history_plain", query, keys, values, history, scale)[0];
    const Tensor q_ = with_contiguous_rows(query);
    Tensor out = torch::stable::new_empty(q_, q_.sizes());
    const Memory q = memory_of(q_), k = memory_of(keys), v = memory_of(values);
    const int64_t heads = q_.size(1), group = heads / keys.size(1), row = q_.size(3);
    float *o = write<float>(out);
    for_each_query(q_, length, [&](int64_t r, int64_t h) {
        const auto place = [&](const Memory &memory, int64_t t) {
            return memory.at(slot[r * length + t], h / group) + t * memory.position;
        };
        attend(q.at(r, h), [&](int64_t t) { return place(k, t); }, [&](int64_t t) { return place(v, t); },
               o + (r * heads + h) * row, room(length), length, int32_t(row), float(scale));
    });
    return out;
}

// Memories that rows share: row r looks at the first lengths[e] positions of entry e = entries[r].
Tensor attend_to_shared(const Tensor &query, const Tensor &keys, const Tensor &values, const Tensor &entries,
                        const Tensor &lengths, double scale) {
    require_possible(query, keys, values);
    require_memory(entries, lengths);
    const Tensor entries_ = numbers("entries", entries, 1), lengths_ = numbers("lengths", lengths, 1);
    if (entries_.size(0) != query.size(0) || lengths_.size(0) != keys.size(0))
        refuse("entries " + shape_of(entries) + " and lengths " + shape_of(lengths) + " do not fit to queries " +
               shape_of(query) + " and keys " + shape_of(keys));
    const int64_t *entry = read<int64_t>(entries_), *length = read<int64_t>(lengths_), longest = keys.size(2);
    for (int64_t r = 0; r < entries_.size(0); ++r) require_entry("entries", entry[r], keys.size(0));
    for (int64_t e = 0; e < lengths_.size(0); ++e)
        if (length[e] < 0 || length[e] > longest)
            refuse("lengths holds " + std::to_string(length[e]) + ", but a memory here has 0 to " +
                   std::to_string(longest) + " positions");
    if (!is_served(query, keys, values))
        return call<1>("qknorm::attend_to_shared_plain", query, keys, values, entries, lengths, scale)[0];
    const Tensor q_ = with_contiguous_rows(query);
    Tensor out = torch::stable::new_empty(q_, q_.sizes());
    const Memory q = memory_of(q_), k = memory_of(keys), v = memory_of(values);
    const int64_t heads = q_.size(1), group = heads / keys.size(1), row = q_.size(3);
    float *o = write<float>(out);
    for_each_query(q_, longest, [&](int64_t r, int64_t h) {
        const float *first_key = k.at(entry[r], h / group), *first_value = v.at(entry[r], h / group);
        attend(q.at(r, h), [&](int64_t t) { return first_key + t * k.position; },
               [&](int64_t t) { return first_value + t * v.position; }, o + (r * heads + h) * row, room(longest),
               length[entry[r]], int32_t(row), float(scale));
    });
    return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) {
    m.impl("attend_to_history", TORCH_BOX(&attend_to_history));
    m.impl("attend_to_shared", TORCH_BOX(&attend_to_shared));
}
