// A linear recurrence whose matrix has one number in each column, forward and backward; see
// gyral/ops/permutation_scan/__init__.py.
//
// A row runs through all steps alone. The backward pass computes the scores again, so that those of all steps, N x N
// numbers each, are never in memory.

#include "native/common.hpp"

namespace permutation_scan {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, size, matrices;  // T, B, N, K
    void* selection;        // (T, B, K)
    void* dictionary;       // (K, N, N)
    void* decay;            // (T, B, 2N)
    void* values;           // (T, B, 2N)
    void* h0;               // (B, 2N), the state before the first step
    void* lengths;          // (B) Index
    void* starts;           // (T, B) bool
    void* outputs;          // (T, B, 2N)
    Index threads;
    void* workspace;
    // of the forward pass
    void* final;            // (B, 2N)
    // of the backward pass
    void* grad_outputs;     // (T, B, 2N)
    void* grad_h0;          // (B, 2N): before it the gradient of the final state
    void* grad_selection;   // (T, B, K) zeros
    void* grad_dictionary;  // (B, K, N, N) zeros: a partial sum for each row
    void* grad_decay;       // (T, B, 2N) zeros
    void* grad_values;      // (T, B, 2N) zeros
};

template <class Real> struct Scan {
    const Arguments& given;
    const Index size = given.size, matrix = size * size, pair = 2 * size;

    Real* at(void* base, Index place, Index count) const { return static_cast<Real*>(base) + place * count; }
    Index length(Index row) const { return given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps; }
    bool is_start(Index place) const { return given.starts && static_cast<const bool*>(given.starts)[place]; }

    // Writes the scores (N, N) of a step, their largest values in each column, and the rows of these.
    void set_scores(Index place, Real* __restrict scores, Real* __restrict largest, Real* __restrict rows) const {
        const Real* selection = at(given.selection, place, given.matrices);
        std::fill(scores, scores + matrix, Real(0));
        Index k = 0;
        for (; k + 4 <= given.matrices; k += 4)
            add_four(selection + k, at(given.dictionary, k, matrix), scores);
        for (; k < given.matrices; ++k) {
            const Real* __restrict entries = at(given.dictionary, k, matrix);
            const Real factor = selection[k];
#pragma omp simd
            for (Index j = 0; j < matrix; ++j) scores[j] += factor * entries[j];
        }
        std::copy_n(scores, size, largest);
        std::fill(rows, rows + size, Real(0));
        for (Index i = 1; i < size; ++i) {
            const Real* __restrict own = scores + i * size;
            const Real row = static_cast<Real>(i);
#pragma omp simd
            for (Index j = 0; j < size; ++j) {
                rows[j] = own[j] > largest[j] ? row : rows[j];
                largest[j] = own[j] > largest[j] ? own[j] : largest[j];
            }
        }
    }
    // Four matrices at once share the loads and stores of the scores.
    void add_four(const Real* factors, const Real* __restrict entries, Real* __restrict scores) const {
        const Real a = factors[0], b = factors[1], c = factors[2], d = factors[3];
#pragma omp simd
        for (Index j = 0; j < matrix; ++j)
            scores[j] += (a * entries[j] + b * entries[matrix + j]) +
                         (c * entries[2 * matrix + j] + d * entries[3 * matrix + j]);
    }

    // The product of two complex vectors (2N).
    void multiply(const Real* __restrict a, const Real* __restrict b, Real* __restrict out) const {
        for (Index j = 0; j < size; ++j) {
            out[j] = a[j] * b[j] - a[size + j] * b[size + j];
            out[size + j] = a[j] * b[size + j] + a[size + j] * b[j];
        }
    }

    void forward(Index row, Real* scores) const {
        Real *largest = scores + matrix, *rows = largest + size, *scaled = rows + size;
        const Real* before = at(given.h0, row, pair);
        for (Index t = 0; t < given.steps; ++t) {
            const Index place = t * given.batch + row;
            Real* out = at(given.outputs, place, pair);
            if (t >= length(row)) {
                std::fill(out, out + pair, Real(0));
                continue;
            }
            std::copy_n(at(given.values, place, pair), pair, out);
            if (!is_start(place)) {
                set_scores(place, scores, largest, rows);
                multiply(at(given.decay, place, pair), before, scaled);
                for (Index j = 0; j < size; ++j) {
                    const Index to = static_cast<Index>(rows[j]);
                    out[to] += scaled[j];
                    out[size + to] += scaled[size + j];
                }
            }
            before = out;
        }
        std::copy_n(before, pair, at(given.final, row, pair));
    }

    void backward(Index row, Real* scores) const {
        Real *largest = scores + matrix, *rows = largest + size, *scaled = rows + size, *sent = scaled + pair;
        Real* grad = at(given.grad_h0, row, pair);
        for (Index t = length(row) - 1; t >= 0; --t) {
            const Index place = t * given.batch + row;
            if (given.grad_outputs) {
                const Real* outer = at(given.grad_outputs, place, pair);
                for (Index j = 0; j < pair; ++j) grad[j] += outer[j];
            }
            std::copy_n(grad, pair, at(given.grad_values, place, pair));
            if (is_start(place)) {
                std::fill(grad, grad + pair, Real(0));
                continue;
            }
            const Real* before = t ? at(given.outputs, place - given.batch, pair) : at(given.h0, row, pair);
            const Real* decay = at(given.decay, place, pair);
            set_scores(place, scores, largest, rows);
            for (Index j = 0; j < size; ++j) {
                const Index to = static_cast<Index>(rows[j]);
                sent[j] = grad[to];
                sent[size + j] = grad[size + to];
            }
            multiply(decay, before, scaled);
            scores_backward(place, row, scores, largest, rows, scaled, grad);
            multiply_backward(sent, before, at(given.grad_decay, place, pair));
            multiply_backward(sent, decay, grad);
        }
    }

    // Given the gradient of a ⊙ b, writes that of a.
    void multiply_backward(const Real* __restrict outer, const Real* __restrict b, Real* __restrict grad) const {
        for (Index j = 0; j < size; ++j) {
            grad[j] = outer[j] * b[j] + outer[size + j] * b[size + j];
            grad[size + j] = outer[size + j] * b[j] - outer[j] * b[size + j];
        }
    }

    // Adds the gradients of selection and dictionary, given that of the state: those of a softmax of the columns of the
    // scores, which it overwrites. `sums` and `alongs` (N) are buffers; `largest` is the first one.
    void scores_backward(Index place, Index row, Real* __restrict scores, Real* __restrict largest,
                         Real* __restrict alongs, const Real* __restrict scaled, const Real* __restrict grad) const {
        Real* __restrict sums = alongs + 2 * pair + size;
        std::fill(sums, sums + size, Real(0));
        std::fill(alongs, alongs + size, Real(0));
        for (Index i = 0; i < size; ++i) {
            Real* __restrict own = scores + i * size;
            const Real real = grad[i], imaginary = grad[size + i];
#pragma omp simd
            for (Index j = 0; j < size; ++j) {
                own[j] = exponential(own[j] - largest[j]);
                sums[j] += own[j];
                alongs[j] += own[j] * (real * scaled[j] + imaginary * scaled[size + j]);
            }
        }
        for (Index j = 0; j < size; ++j) {
            sums[j] = 1 / sums[j];
            alongs[j] *= sums[j];
        }
        for (Index i = 0; i < size; ++i) {
            Real* __restrict own = scores + i * size;
            const Real real = grad[i], imaginary = grad[size + i];
#pragma omp simd
            for (Index j = 0; j < size; ++j)
                own[j] *= sums[j] * (real * scaled[j] + imaginary * scaled[size + j] - alongs[j]);
        }
        const Real* selection = at(given.selection, place, given.matrices);
        Real* grad_selection = at(given.grad_selection, place, given.matrices);
        for (Index k = 0; k < given.matrices; ++k)
            grad_selection[k] = add_matrix(scores, at(given.dictionary, k, matrix), selection[k],
                                           at(given.grad_dictionary, row * given.matrices + k, matrix));
    }
    // Adds factor * scores to `to`, and returns the inner product of scores and entries.
    Real add_matrix(const Real* __restrict scores, const Real* __restrict entries, Real factor,
                    Real* __restrict to) const {
        Real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (Index j = 0; j < matrix; ++j) {
            sum += scores[j] * entries[j];
            to[j] += factor * scores[j];
        }
        return sum;
    }

    Index buffer() const { return matrix + 7 * size; }

    void run(bool is_backward) const {
#pragma omp parallel for num_threads(given.threads) schedule(static)
        for (Index thread = 0; thread < given.threads; ++thread) {
            Real* own = at(given.workspace, thread, buffer());
            for (Index row = thread; row < given.batch; row += given.threads)
                is_backward ? backward(row, own) : forward(row, own);
        }
    }
};

}  // namespace permutation_scan

extern "C" {
Index permutation_scan_arguments_size() { return sizeof(permutation_scan::Arguments); }
Index permutation_scan_block() { return 1; }  // rows that go through a step together
Index permutation_scan_workspace(const permutation_scan::Arguments* given, Index) {
    return given->threads * permutation_scan::Scan<float>{*given}.buffer();
}
void permutation_scan_run(const permutation_scan::Arguments* given, Index is_double, Index backward) {
    is_double ? permutation_scan::Scan<double>{*given}.run(backward) : permutation_scan::Scan<float>{*given}.run(backward);
}
}
