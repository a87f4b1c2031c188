// The hypotheses of one sentence: what decoding/beam.py does with tensors for a whole batch, which is the definition.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace beams {

// The log-probability of an end that was forbidden, or all but impossible, where a sentence must end.
constexpr float LEAST = -1e4f;

struct Settings {
    int64_t beams, min_length, end;  // `end`: its place in the vocabulary
    const int64_t *vocabulary;
    int64_t candidates;             // of each hypothesis
    std::vector<double> penalties;  // by length
};

struct Hypothesis {
    std::vector<int64_t> pieces;  // without the end
    std::vector<float> scores;    // with it
    double score;
};

// The likeliest pieces of one hypothesis as log-probabilities, best first, their places in the vocabulary, and the end.
struct Candidates {
    const float *best;
    const int64_t *places;
    float ending;
};

class Beams {
  public:
    Beams(const Settings &settings, int64_t limit, int64_t wanted, int64_t first)
        : settings(&settings), limit(limit), wanted(wanted), rows(size_t(settings.beams)) {
        for (Row &row : rows) row = {-INFINITY, 0, first, false};
        rows[0].total = 0.0;  // all start alike, so only the first may be extended
    }

    int64_t length() const { return int64_t(steps.size()) / settings->beams; }
    bool is_growing(int64_t beam) const { return !rows[size_t(beam)].finished; }
    int64_t last(int64_t beam) const { return rows[size_t(beam)].last; }

    // One more piece for each; `of(beam)` are the candidates of a growing one. The beam that each continues is returned.
    template <class Of>
    const std::vector<int64_t> &extend(Of of) {
        options.clear();
        for (int64_t beam = 0; beam < settings->beams; ++beam) {
            if (!is_growing(beam)) stay(beam);
            else grow(beam, of(beam));
        }
        const auto better = [](const Option &a, const Option &b) { return a.score > b.score; };
        std::stable_sort(options.begin(), options.end(), better);
        std::vector<Row> next(rows.size());
        origins.resize(rows.size());
        for (size_t i = 0; i < rows.size(); ++i) {
            const Option &chosen = options[i];
            const Row &row = rows[size_t(chosen.beam)];
            const float piece_score = row.finished ? 0.0f : chosen.best;
            const int64_t piece = settings->vocabulary[chosen.place];
            next[i] = {row.total + double(piece_score), row.length + !row.finished, piece,
                       row.finished || chosen.place == settings->end};
            steps.push_back({chosen.beam, piece, piece_score});
            origins[i] = chosen.beam;
        }
        rows.swap(next);
        return origins;
    }

    // Whether as many as are wanted are finished, and no other can overtake them.
    bool is_done() {
        double reachable = -INFINITY;
        for (const Row &row : rows)
            if (!row.finished)
                reachable = std::max(reachable, row.total / std::max(penalty(limit + 1), penalty(row.length + 1)));
        const std::vector<int64_t> order = best_first();
        return score(order[size_t(wanted - 1)]) >= reachable;
    }

    std::vector<Hypothesis> best() const {
        std::vector<Hypothesis> found;
        for (int64_t beam : best_first())
            if (int64_t(found.size()) < wanted && score(beam) > -INFINITY) found.push_back(hypothesis(beam));
        return found;
    }

  private:
    struct Row {
        double total;
        int64_t length, last;
        bool finished;
    };
    struct Step {
        int64_t origin, piece;
        float score;
    };
    struct Option {
        double score;
        int64_t beam, place;
        float best;
    };

    const Settings *settings;
    int64_t limit, wanted;
    std::vector<Row> rows;
    std::vector<Step> steps;  // those of all beams, step by step
    std::vector<Option> options;
    std::vector<int64_t> origins;

    double penalty(int64_t length) const { return settings->penalties[size_t(length)]; }

    void stay(int64_t beam) {
        const Row &row = rows[size_t(beam)];
        options.push_back({row.total / penalty(row.length), beam, settings->end, 0.0f});
        for (int64_t i = 1; i < settings->candidates; ++i) options.push_back({-INFINITY, beam, settings->end, 0.0f});
    }

    void grow(int64_t beam, const Candidates &candidates) {
        const Row &row = rows[size_t(beam)];
        const bool must_end = length() >= limit, must_not_end = length() < settings->min_length;
        for (int64_t i = 0; i < settings->candidates; ++i) {
            int64_t place = candidates.places[i];
            float best = must_not_end && place == settings->end ? -INFINITY : candidates.best[i];
            if (must_end) place = settings->end, best = i ? -INFINITY : std::max(candidates.ending, LEAST);
            options.push_back({(row.total + double(best)) / penalty(row.length + 1), beam, place, best});
        }
    }

    double score(int64_t beam) const {
        const Row &row = rows[size_t(beam)];
        return row.finished ? row.total / penalty(row.length) : -INFINITY;
    }

    std::vector<int64_t> best_first() const {
        std::vector<int64_t> order(rows.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score(a) > score(b); });
        return order;
    }

    Hypothesis hypothesis(int64_t beam) const {
        const Row &row = rows[size_t(beam)];
        Hypothesis made{{}, {}, score(beam)};
        for (int64_t step = length() - 1, at = beam; step >= 0; --step) {
            const Step &taken = steps[size_t(step * settings->beams + at)];
            if (step < row.length) made.scores.push_back(taken.score);
            if (step < row.length - 1) made.pieces.push_back(taken.piece);
            at = taken.origin;
        }
        std::reverse(made.scores.begin(), made.scores.end());
        std::reverse(made.pieces.begin(), made.pieces.end());
        return made;
    }
};

}  // namespace beams
