// qknorm::beam_search: the best translations of sentences by a whole model, from their pieces to hypotheses.
//
// Each thread of torch's has sentences of its own: it reads some, extends their hypotheses by a piece at a time, and
// reads the next ones when others have come to their end. Sentences are taken in the order in which they come.

#include <atomic>
#include <memory>

#include "beams.h"
#include "tensors.h"
#include "transformer.h"

namespace {

using namespace transformer;

// ---- The model, from lists of tensors and numbers that qknorm/ops/beam_search.py writes in this order

class Reader {
  public:
    Reader(const std::vector<Tensor> &tensors, const std::vector<int64_t> &integers, const std::vector<double> &numbers)
        : tensors(tensors), integers(integers), numbers(numbers) {}

    int64_t integer(int64_t least, int64_t most) {
        const int64_t value = next(integers, next_integer);
        if (value < least || value > most) refuse("the model of a beam search holds " + std::to_string(value) +
            " where a number from " + std::to_string(least) + " to " + std::to_string(most) + " is needed");
        return value;
    }
    float number() { return float(next(numbers, next_number)); }

    template <class Element>
    const Element *elements(ScalarType type, int64_t count) {
        const Tensor &tensor = next(tensors, next_tensor);
        require_memory(tensor);
        if (!is(tensor, type) || !tensor.is_contiguous() || tensor.numel() != count)
            refuse("the model of a beam search holds a tensor of shape " + shape_of(tensor) + " where " +
                   std::to_string(count) + " elements of another type or layout are needed");
        return read<Element>(tensor);
    }
    const float *floats(int64_t count) { return elements<float>(ScalarType::Float, count); }

    Norm norm(int64_t heads, int64_t width) {
        Norm made{NormKind(integer(0, int64_t(NormKind::LP))), number(), number(), nullptr, nullptr, 0};
        const bool affine = made.kind == NormKind::LAYER || made.kind == NormKind::RMS;
        if (made.kind == NormKind::LP) made.weights = integer(0, 1) ? (integer(0, 1) ? heads : 1) : 0;
        if (affine) made.weights = width;
        if (made.weights) made.weight = floats(made.weights);
        if (made.kind == NormKind::LAYER) made.bias = floats(width);
        if (made.kind == NormKind::LP && !(made.p >= 1.0f)) refuse("p must be a number from 1 to infinity");
        return made;
    }

    Matrix matrix(bool of_bytes, int64_t inputs, int64_t outputs) {
        const int64_t columns = padded(outputs);
        Matrix made{nullptr, nullptr, nullptr, nullptr, inputs, outputs};
        if (of_bytes) {
            const int64_t together = panels::BYTES_TOGETHER, rows = (inputs + together - 1) / together * together;
            made.words = elements<int8_t>(ScalarType::Char, rows * columns);
            made.scales = floats(columns);
            made.column_sums = elements<int32_t>(ScalarType::Int, columns);
        } else {
            made.words = floats(inputs * columns);
        }
        made.bias = floats(columns);
        return made;
    }

    bool is_read() const {
        return next_tensor == tensors.size() && next_integer == integers.size() && next_number == numbers.size();
    }

  private:
    const std::vector<Tensor> &tensors;
    const std::vector<int64_t> &integers;
    const std::vector<double> &numbers;
    size_t next_tensor = 0, next_integer = 0, next_number = 0;

    template <class Element>
    static const Element &next(const std::vector<Element> &all, size_t &place) {
        if (place >= all.size()) refuse("the model of a beam search is not complete");
        return all[place++];
    }
};

constexpr int64_t MOST = int64_t(1) << 20;  // of any one dimension

Model model_from(Reader reader) {
    Model model{};
    model.dim = reader.integer(1, MOST);
    const int64_t heads = reader.integer(1, model.dim), hidden = reader.integer(1, MOST);
    const bool of_bytes = reader.integer(0, 1);
    model.norm_first = reader.integer(0, 1);
    if (model.dim % heads) refuse("the heads of a beam search do not divide its dimension");
    const int64_t dim = model.dim, width = dim / heads, attended = heads * padded(width);
    model.pieces = reader.integer(1, MOST * 16);
    model.vectors = reader.floats(model.pieces * dim);
    model.source_room = reader.integer(1, MOST);
    model.source_positions = reader.floats(model.source_room * dim);
    model.target_room = reader.integer(1, MOST);
    model.target_positions = reader.floats(model.target_room * dim);

    const auto attention = [&](bool to_source) {
        Attention made{};
        made.heads = heads, made.width = width, made.scale = reader.number();
        made.in = reader.matrix(of_bytes, dim, to_source ? dim : 3 * dim);
        if (to_source) made.source = reader.matrix(of_bytes, dim, 2 * dim);
        made.out = reader.matrix(of_bytes, attended, dim);
        made.query = reader.norm(heads, width);
        made.key = reader.norm(heads, width);
        made.value = reader.norm(heads, width);
        return made;
    };
    for (const bool decodes : {false, true}) {
        auto &layers = decodes ? model.decoder : model.encoder;
        layers.resize(size_t(reader.integer(0, 1024)));
        for (Layer &layer : layers) {
            layer.attention_norm = reader.norm(1, dim);
            layer.attention = attention(false);
            if (decodes) layer.source_norm = reader.norm(1, dim), layer.source = attention(true);
            layer.feed_forward_norm = reader.norm(1, dim);
            layer.inner = reader.matrix(of_bytes, dim, hidden);
            layer.outer = reader.matrix(of_bytes, hidden, dim);
        }
        (decodes ? model.decoder_norm : model.encoder_norm) = reader.norm(1, dim);
    }
    const int64_t classes = reader.integer(1, model.pieces);
    model.output = reader.matrix(of_bytes, dim, classes);
    model.vocabulary = reader.elements<int64_t>(ScalarType::Long, classes);
    for (int64_t i = 0; i < classes; ++i)
        if (model.vocabulary[i] < 0 || model.vocabulary[i] >= model.pieces) refuse("a piece of the target is not known");
    model.end = reader.integer(0, classes - 1);
    if (!reader.is_read()) refuse("the model of a beam search holds more than it needs");
    return model;
}

// ---- The best pieces of each row, from logits of which only a part is there at a time

class Best {
  public:
    Best(int64_t many, int64_t end) : many(many), end(end) {}

    void start(int64_t rows) {
        std::fill_n(best.of(rows * many), rows * many, -INFINITY);
        std::fill_n(largest.of(rows), rows, -INFINITY);
        std::fill_n(sums.of(rows), rows, 0.0f);
        int64_t *place = places.of(rows * many);
        for (int64_t i = 0; i < rows * many; ++i) place[i] = i % many;
        endings.of(rows);
    }

    // The logits of classes `first` to `first + count` of a row.
    void take(int64_t row, const float *logits, int64_t first, int32_t count) {
        const float most = maximum_of(logits, count);
        if (most > best.get()[row * many + many - 1]) insert(row, logits, first, count);
        if (end >= first && end < first + count) endings.get()[row] = logits[end - first];
        float &scale = largest.get()[row], &sum = sums.get()[row];
        if (most > scale) sum *= exp2_of((scale - most) * LOG2_E), scale = most;
        const float shift = scale * LOG2_E;
        sum += sum_over(count, [=](int64_t i) { return exp2_of(logits[i] * LOG2_E - shift); });
    }

    // False where the sum of exponentials is not a number.
    bool candidates(int64_t row, beams::Candidates &found) {
        const float log_sum = largest.get()[row] + std::log(sums.get()[row]);
        float *of_row = best.get() + row * many;
        for (int64_t i = 0; i < many; ++i) of_row[i] -= log_sum;
        found = {of_row, places.get() + row * many, endings.get()[row] - log_sum};
        return std::isfinite(log_sum);
    }

  private:
    const int64_t many, end;
    Buffer<float> best, largest, sums, endings;
    Buffer<int64_t> places;

    void insert(int64_t row, const float *logits, int64_t first, int32_t count) {
        float *of_row = best.get() + row * many;
        int64_t *where = places.get() + row * many;
        for (int32_t i = 0; i < count; ++i) {
            if (!(logits[i] > of_row[many - 1])) continue;
            int64_t slot = many - 1;
            for (; slot > 0 && logits[i] > of_row[slot - 1]; --slot)
                of_row[slot] = of_row[slot - 1], where[slot] = where[slot - 1];
            of_row[slot] = logits[i], where[slot] = first + i;
        }
    }
};

// ---- Sentences at work

struct Task {
    const Model &model;
    const beams::Settings &settings;
    const int64_t *pieces, *starts, *limits, *wanted;
    int64_t sentences, together;
    int64_t bos;
    std::atomic<int64_t> next{0};
    std::vector<std::vector<beams::Hypothesis>> results{};
    std::vector<int32_t> broken{};
};

struct Sentence {
    int64_t number;
    beams::Beams beams;
    std::vector<Memory> memories;
    std::vector<Cache> caches;
    std::vector<std::vector<int32_t>> histories;
    int64_t first_row = 0;
};

class Worker {
  public:
    explicit Worker(Task &task)
        : task(task), model(task.model), space(model), best(task.settings.candidates, model.end) {}

    void run() {
        for (;;) {
            if (int64_t(active.size()) * 4 <= task.together * 3) read_more();
            if (active.empty()) return;
            extend();
            collect();
        }
    }

  private:
    static constexpr int64_t POSITIONS_TOGETHER = 2048;  // in the encoder
    static constexpr int64_t CLASSES_TOGETHER = 256;

    Task &task;
    const Model &model;
    Workspace space;
    Best best;
    Buffer<float> logits;
    std::vector<std::unique_ptr<Sentence>> active;

    void read_more() {
        std::vector<Sentence *> fresh;
        int64_t positions = 0;
        while (int64_t(active.size()) < task.together && positions < POSITIONS_TOGETHER) {
            const int64_t number = task.next++;
            if (number >= task.sentences) break;
            active.push_back(std::make_unique<Sentence>(Sentence{
                number, {task.settings, task.limits[number], task.wanted[number], task.bos}, {}, {}, {}}));
            fresh.push_back(active.back().get());
            positions += length_of(number);
        }
        if (fresh.empty()) return;
        encode(fresh, positions);
    }

    int64_t length_of(int64_t number) const { return task.starts[number + 1] - task.starts[number]; }

    void encode(const std::vector<Sentence *> &fresh, int64_t positions) {
        space.start(positions);
        int64_t row = 0;
        for (const Sentence *sentence : fresh)
            for (int64_t i = 0; i < length_of(sentence->number); ++i)
                space.set(row++, task.pieces[task.starts[sentence->number] + i], model.source_positions + i * model.dim);
        Memory memory;
        for (const Layer &layer : model.encoder) {
            space.residual(layer.attention_norm, [&](const float *x) {
                space.attention(layer.attention, x, true, [&](const float *projected, int64_t stride, float *out) {
                    const int64_t dim = layer.attention.dim();
                    for_each(fresh, [&](Sentence &, int64_t start, int64_t length) {
                        const float *queries = projected + start * stride;
                        memory.take(layer.attention, queries + dim, stride, dim, length);
                        memory.attend(layer.attention, queries, stride, length,
                                      out + start * layer.attention.attended(), space.scratch);
                    });
                });
            });
            space.residual(layer.feed_forward_norm, [&](const float *x) { space.feed_forward(layer, x); });
        }
        const float *encoded = space.finished(model.encoder_norm);
        for (Sentence *sentence : fresh) {
            sentence->memories.resize(model.decoder.size());
            sentence->caches.resize(model.decoder.size());
            sentence->histories.resize(size_t(task.settings.beams));
        }
        for (size_t i = 0; i < model.decoder.size(); ++i) {
            const Attention &attention = model.decoder[i].source;
            int64_t stride;
            const float *projected = space.keys_values(attention, encoded, stride);
            for_each(fresh, [&](Sentence &sentence, int64_t start, int64_t length) {
                sentence.memories[i].take(attention, projected + start * stride, stride, attention.dim(), length);
            });
        }
    }

    template <class F>
    void for_each(const std::vector<Sentence *> &fresh, F f) const {
        int64_t start = 0;
        for (Sentence *sentence : fresh) {
            const int64_t length = length_of(sentence->number);
            f(*sentence, start, length);
            start += length;
        }
    }

    // One more piece of all hypotheses.
    void extend() {
        int64_t rows = 0;
        for (auto &sentence : active) {
            sentence->first_row = rows;
            for (int64_t beam = 0; beam < task.settings.beams; ++beam) rows += sentence->beams.is_growing(beam);
        }
        space.start(rows);
        for (auto &sentence : active)
            for_growing(*sentence, [&](int64_t beam, int64_t) {
                expect(model.vectors + sentence->beams.last(beam) * model.dim, model.dim);
            });
        for (auto &sentence : active)
            for_growing(*sentence, [&](int64_t beam, int64_t row) {
                const float *position = model.target_positions + sentence->beams.length() * model.dim;
                space.set(row, sentence->beams.last(beam), position);
            });
        for (size_t i = 0; i < model.decoder.size(); ++i) decode(model.decoder[i], i);
        choose(space.finished(model.decoder_norm), rows);
        for (auto &sentence : active) grow(*sentence);
    }

    template <class F>
    void for_growing(const Sentence &sentence, F f) const {
        int64_t row = sentence.first_row;
        for (int64_t beam = 0; beam < task.settings.beams; ++beam)
            if (sentence.beams.is_growing(beam)) f(beam, row++);
    }

    void decode(const Layer &layer, size_t number) {
        space.residual(layer.attention_norm, [&](const float *x) {
            space.attention(layer.attention, x, true, [&](const float *projected, int64_t stride, float *out) {
                for (auto &sentence : active) attend_to_history(*sentence, layer.attention, number, projected, stride, out);
            });
        });
        space.residual(layer.source_norm, [&](const float *x) {
            space.attention(layer.source, x, false, [&](const float *projected, int64_t stride, float *out) {
                for (auto &sentence : active) {
                    int64_t rows = 0;
                    for_growing(*sentence, [&](int64_t, int64_t) { ++rows; });
                    sentence->memories[number].attend(layer.source, projected + sentence->first_row * stride, stride, rows,
                                                      out + sentence->first_row * layer.source.attended(), space.scratch);
                }
            });
        });
        space.residual(layer.feed_forward_norm, [&](const float *x) { space.feed_forward(layer, x); });
    }

    void attend_to_history(Sentence &sentence, const Attention &attention, size_t layer, const float *projected,
                           int64_t stride, float *out) {
        Cache &cache = sentence.caches[layer];
        const int64_t dim = attention.dim();
        for_growing(sentence, [&](int64_t beam, int64_t row) {
            const float *key = projected + row * stride + dim;
            const int32_t entry = cache.add(key, key + dim, dim);
            if (layer == 0) sentence.histories[size_t(beam)].push_back(entry);
        });
        for_growing(sentence, [&](int64_t beam, int64_t row) {
            const std::vector<int32_t> &history = sentence.histories[size_t(beam)];
            cache.attend(attention, projected + row * stride, history.data(), int64_t(history.size()),
                         out + row * attention.attended(), space.scratch);
        });
    }

    void choose(const float *x, int64_t rows) {
        best.start(rows);
        const int64_t classes = model.output.outputs;
        float *some = logits.of(rows * CLASSES_TOGETHER);
        if (model.output.of_bytes()) space.rounded.take(x, space.width, rows, model.dim);
        for (int64_t first = 0; first < classes; first += CLASSES_TOGETHER) {
            const int64_t count = std::min(classes - first, CLASSES_TOGETHER);
            const Matrix part = panels::columns_of(model.output, first, count);
            panels::multiply_rounded(x, space.width, rows, part, some, CLASSES_TOGETHER, Then::STORE, space.rounded);
            for (int64_t r = 0; r < rows; ++r) best.take(r, some + r * CLASSES_TOGETHER, first, int32_t(count));
        }
    }

    void grow(Sentence &sentence) {
        std::vector<beams::Candidates> found(size_t(task.settings.beams));
        for_growing(sentence, [&](int64_t beam, int64_t row) {
            if (!best.candidates(row, found[size_t(beam)])) task.broken[size_t(sentence.number)] = 1;
        });
        if (task.broken[size_t(sentence.number)]) return;
        const auto &origins = sentence.beams.extend([&](int64_t beam) { return found[size_t(beam)]; });
        std::vector<std::vector<int32_t>> histories;
        for (const int64_t origin : origins) histories.push_back(sentence.histories[size_t(origin)]);
        sentence.histories.swap(histories);
    }

    void collect() {
        const auto is_left = [&](std::unique_ptr<Sentence> &sentence) {
            if (task.broken[size_t(sentence->number)]) return true;
            if (!sentence->beams.is_done()) return false;
            task.results[size_t(sentence->number)] = sentence->beams.best();
            return true;
        };
        active.erase(std::remove_if(active.begin(), active.end(), is_left), active.end());
    }
};

// ---- The operator

const int64_t *numbers(const char *name, const Tensor &x, int64_t count) {
    require_memory(x);
    if (!is(x, ScalarType::Long) || !x.is_contiguous() || x.dim() != 1 || x.numel() != count)
        refuse(std::string(name) + " must be " + std::to_string(count) + " numbers of type torch.int64, not " + shape_of(x));
    return read<int64_t>(x);
}

void require_possible(const Task &task) {
    const Model &model = task.model;
    for (int64_t s = 0; s < task.sentences; ++s) {
        const int64_t length = task.starts[s + 1] - task.starts[s];
        if (length < 1 || length > model.source_room || task.limits[s] < 0 || task.limits[s] >= model.target_room ||
            task.wanted[s] < 1 || task.wanted[s] > task.settings.beams)
            refuse("sentence " + std::to_string(s) + " has no pieces, too many, or an impossible limit");
        for (int64_t i = task.starts[s]; i < task.starts[s + 1]; ++i)
            if (task.pieces[i] < 0 || task.pieces[i] >= model.pieces) refuse("a piece of a source is not known");
    }
}

template <class Element>
Tensor tensor_of(const std::vector<Element> &elements, ScalarType type) {
    Tensor made = empty({int64_t(elements.size())}, type);
    if (!elements.empty()) std::copy(elements.begin(), elements.end(), write<Element>(made));
    return made;
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Results tensors_of(const Task &task) {
    std::vector<int64_t> counts, lengths, pieces;
    std::vector<double> scores;
    std::vector<float> piece_scores;
    for (int64_t s = 0; s < task.sentences; ++s) {
        counts.push_back(task.broken[size_t(s)] ? -1 : int64_t(task.results[size_t(s)].size()));
        for (const beams::Hypothesis &found : task.results[size_t(s)]) {
            lengths.push_back(int64_t(found.pieces.size()));
            scores.push_back(found.score);
            pieces.insert(pieces.end(), found.pieces.begin(), found.pieces.end());
            piece_scores.insert(piece_scores.end(), found.scores.begin(), found.scores.end());
        }
    }
    return {tensor_of(counts, ScalarType::Long), tensor_of(lengths, ScalarType::Long), tensor_of(scores, ScalarType::Double),
            tensor_of(pieces, ScalarType::Long), tensor_of(piece_scores, ScalarType::Float)};
}

std::vector<double> penalties(int64_t most, double exponent) {
    std::vector<double> by_length;
    for (int64_t length = 0; length <= most; ++length) by_length.push_back(std::pow((5.0 + double(length)) / 6.0, exponent));
    return by_length;
}

void work_in_threads(Task &task, int64_t threads) {
    std::atomic<bool> failed{false};
    torch::stable::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
        try {
            for (int64_t i = begin; i < end; ++i) Worker(task).run();
        } catch (const std::exception &) {
            failed = true;
        }
    });
    if (failed) refuse("a beam search ran out of memory");
}

// pieces: those of all sources, each with its end; starts: (sentences + 1,), where each begins. together: how many
// sentences a thread works on.
Results beam_search(const std::vector<Tensor> &tensors, const std::vector<int64_t> &integers, const std::vector<double> &floats,
                    const Tensor &pieces, const Tensor &starts, const Tensor &limits, const Tensor &wanted, int64_t bos,
                    int64_t beam_size, int64_t min_length, double length_penalty, int64_t together) {
    const Model model = model_from(Reader(tensors, integers, floats));
    const int64_t sentences = limits.numel();
    if (beam_size < 1 || beam_size > MOST || together < 1 || bos < 0 || bos >= model.pieces)
        refuse("the settings of a beam search are impossible");
    const beams::Settings settings{beam_size, min_length, model.end, model.vocabulary,
                                   std::min(beam_size + 2, model.output.outputs),
                                   penalties(model.target_room + 2, length_penalty)};
    const int64_t *from = numbers("starts", starts, sentences + 1);
    if (from[0] != 0) refuse("starts must begin with 0");
    Task task{model, settings, numbers("pieces", pieces, from[sentences]), from, numbers("limits", limits, sentences),
              numbers("wanted", wanted, sentences), sentences, together, bos};
    task.results.resize(size_t(sentences)), task.broken.resize(size_t(sentences));
    require_possible(task);
    const int64_t threads = std::min<int64_t>(torch::stable::get_num_threads(), sentences);
    task.together = std::max<int64_t>(std::min(together, (sentences + threads - 1) / std::max<int64_t>(threads, 1)), 1);
    work_in_threads(task, threads);
    return tensors_of(task);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(qknorm, CPU, m) { m.impl("beam_search", TORCH_BOX(&beam_search)); }
