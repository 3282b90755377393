// Fast weights A_t = λ A_{t-1} + η h hᵀ, which are read S times per step.
//
// Steps run in chunks. Within a chunk, A_t q = λ^k A q + η Σ_j λ^{k-1-j} h_j (h_j · q), with A before the chunk and the k
// vectors h_j since then: the matrix is built once per chunk. A reset ends the chunk of its row, and the next one begins
// with A = 0. A sequence of one chunk from A = 0 builds no matrix before the final one.

#pragma once

#include "fast_weights/sequence.hpp"

namespace fast_weights {
namespace {

template <class Real, class Activation> struct Attention : Sequence<Real> {
    using Base = Sequence<Real>;
    using Base::at, Base::begins, Base::chunk, Base::given, Base::length, Base::parts, Base::size, Base::vector,
        Base::width;
    const Index reads;  // S

    explicit Attention(const Arguments& a) : Base(a), reads(a.inner_steps) {}

    Index most_weights() const { return std::max(2 * reads * chunk, width); }
    Index kept() const { return (2 + 2 * reads) * chunk * width + size * width; }
    Index scratch() const {
        const Index terms = std::max(reads * chunk, size);  // of a product that builds a matrix, or uses one
        return (2 * reads + 4) * width + reads + most_weights() + 2 * terms * width + size * width;
    }

    // The first and last step of the chunk of a row.
    Index first_of(Index t, Index row) const {
        const Index least = t / chunk * chunk;
        if (given.starts)
            while (t > least && !begins(t, row)) --t;
        return given.starts ? t : least;
    }
    Index last_of(Index t, Index row) const {
        const Index end = std::min((t / chunk + 1) * chunk, length(row));
        if (given.starts)
            while (t + 1 < end && !begins(t + 1, row)) ++t;
        return given.starts ? t : end - 1;
    }
    // A before step `first`, the first one of a chunk; null for zeros.
    const Real* matrix(Index first, Index row) const {
        return begins(first, row) || (first == 0 && !given.a0) ? nullptr : this->saved_memory(first, row);
    }
    Real decay(Index count) const { return static_cast<Real*>(given.decays)[count]; }
    Real weight(Index age) const { return Real(given.rate) * decay(age); }

    // out = A_t q, or its transpose times q, given the vectors of the chunk up to step first + k.
    void read(const Real* vectors, Index k, const Real* before, bool transposed, const Real* q, Real* weights,
              Real* out) const {
        matrix_times(vectors, k + 1, width, q, weights);
        for (Index j = 0; j <= k; ++j) weights[j] *= weight(k - j);
        transpose_times(vectors, k + 1, width, weights, out);
        if (!before) return;
        if (transposed) {
            transpose_times(before, size, width, q, weights);
        } else {
            matrix_times(before, size, width, q, weights);
        }
        const Real scale = decay(k + 1);
        for (Index i = 0; i < size; ++i) out[i] += scale * weights[i];
    }

    // c (N, N) = scale c + Σ_r factor(r) left_r right_rᵀ, with rows left_r and right_r of width `stride`
    template <class Factor>
    void add_products(Real* c, Real scale, const Real* left, const Real* right, Index stride, Index count, Factor factor,
                      Real* buffer) const {
        Real *columns = buffer, *packed = buffer + size * count;
        for (Index r = 0; r < count; ++r) {
            const Real weight = factor(r);
            for (Index i = 0; i < size; ++i) columns[i * count + r] = weight * left[r * stride + i];
        }
        pack(right, stride, 1, count, size, packed);
        if (scale != 0)
            for (Index i = 0; i < size * width; ++i) c[i] *= scale;
        multiply(size, columns, count, packed, count, size, c, width, scale != 0);
    }

    void forward(Index t, Index row, const Real* old, const Real* product, Real* __restrict h, Real* vectors,
                 Real* scratch) const {
        const Index first = first_of(t, row), k = t - first;
        Real *__restrict q = scratch, *__restrict y = q + width, *weights = y + width, *rest = weights + most_weights();
        if (t == 0 && given.a0) this->read_matrix(given.a0, row, this->saved_memory(0, row));
        const Real* before = matrix(first, row);
        std::memcpy(vectors + k * width, old, width * sizeof(Real));

        Real* __restrict drive = parts(t, row);
        std::fill_n(q, width, Real(0));
        for (Index i = 0; i < size; ++i) {
            drive[i] += product[i];
            q[i] = Activation::value(drive[i]);
        }
        const Real *__restrict gain = at(given.norm), *__restrict bias = gain + size;
        for (Index s = 0; s < reads; ++s) {
            read(vectors, k, before, false, q, weights, y);
            Real mean, rstd;
            for (Index i = 0; i < size; ++i) y[i] += drive[i];
            if (given.settled)
                std::memcpy(vector(given.settled, reads * size, t, row) + s * size, y, size * sizeof(Real));
            mean_and_rstd(y, size, mean, rstd, given.epsilon);
            for (Index i = 0; i < size; ++i) q[i] = Activation::value((y[i] - mean) * rstd * gain[i] + bias[i]);
        }
        std::memcpy(h, q, size * sizeof(Real));

        const bool ends = t == length(row) - 1;
        if (!ends && ((t + 1) % chunk != 0 || begins(t + 1, row))) return;
        Real* after = ends ? rest : this->saved_memory(t + 1, row);
        if (before) std::memcpy(after, before, size * width * sizeof(Real));
        add_products(after, before ? decay(k + 1) : Real(0), vectors, vectors, width, k + 1,
                     [=](Index j) { return weight(k - j); }, rest + size * width);
        if (ends) this->write_matrix(after, given.final_memory, row);
    }

    // `g` is the gradient of the new hidden vector, on return that of the old one without the path through the product.
    void backward(Index t, Index row, const Real*, Real* __restrict g, Real* kept, Real* scratch,
                  Real* grad_norm) const {
        const Index first = first_of(t, row), last = last_of(t, row), k = t - first;
        // of the chunk: the vectors, their gradients through later chunks, and pairs of the gradient of a read and its q
        Real *vectors = kept, *later = vectors + chunk * width, *pairs = later + chunk * width;
        Real* gradient = pairs + 2 * reads * chunk * width;  // of the memory after the chunk
        Real *q = scratch, *normalized = q + (reads + 1) * width, *rstd = normalized + reads * width;
        Real *__restrict to_drive = rstd + reads, *other = to_drive + width, *weights = other + width;
        Real* rest = weights + most_weights();
        const bool has_later = last == length(row) - 1 ? given.grad_final_memory != nullptr : !begins(last + 1, row);
        if (t == last) begin_chunk(first, last, row, has_later, vectors, later, gradient, rest);

        Real* __restrict drive = parts(t, row);
        const Real *__restrict gain = at(given.norm), *__restrict bias = gain + size;
        std::fill_n(q, (reads + 1) * width, Real(0));
        for (Index i = 0; i < size; ++i) q[i] = Activation::value(drive[i]);
        for (Index s = 0; s < reads; ++s) {
            const Real* __restrict y = vector(given.settled, reads * size, t, row) + s * size;
            Real *__restrict normal = normalized + s * width, *__restrict next = q + (s + 1) * width;
            Real mean;
            mean_and_rstd(y, size, mean, rstd[s], given.epsilon);
            const Real scale = rstd[s];
            for (Index i = 0; i < size; ++i) {
                normal[i] = (y[i] - mean) * scale;
                next[i] = Activation::value(normal[i] * gain[i] + bias[i]);
            }
        }

        const Real* before = matrix(first, row);
        std::fill_n(to_drive, width, Real(0));
        for (Index s = reads - 1; s >= 0; --s) {
            const Real* __restrict next = q + (s + 1) * width;
            for (Index i = 0; i < size; ++i) g[i] *= Activation::slope(next[i]);
            norm_backward(g, normalized + s * width, gain, rstd[s], size, grad_norm, grad_norm + size);
            Real* pair = pairs + 2 * (k * reads + s) * width;
            std::memcpy(pair, g, width * sizeof(Real));
            std::memcpy(pair + width, q + s * width, width * sizeof(Real));
            for (Index i = 0; i < size; ++i) to_drive[i] += g[i];
            read(vectors, k, before, true, pair, weights, g);
        }
        for (Index i = 0; i < size; ++i) drive[i] = to_drive[i] + g[i] * Activation::slope(q[i]);

        // the vector that this step appends: each later read adds η λ^age ((h · q) g + (h · g) q)
        const Index count = (last - t + 1) * reads;
        const Real* seen = pairs + 2 * k * reads * width;
        matrix_times(seen, 2 * count, width, vectors + k * width, weights);
        for (Index r = 0; r < count; ++r) {
            const Real scale = weight(r / reads), along = weights[2 * r];
            weights[2 * r] = scale * weights[2 * r + 1];
            weights[2 * r + 1] = scale * along;
        }
        transpose_times(seen, 2 * count, width, weights, g);
        if (has_later) {
            const Real scale = weight(last - t);
            for (Index i = 0; i < size; ++i) g[i] += scale * later[k * width + i];
        }

        if (t > first) return;
        const bool is_needed = !begins(t, row) && (t > 0 || given.grad_a0);
        if (is_needed) {
            const Index now = reads;
            add_products(gradient, has_later ? decay(last - first + 1) : Real(0), pairs, pairs + width, 2 * width,
                         (last - first + 1) * reads, [=](Index r) { return decay(r / now + 1); }, rest);
        }
        if (t > 0 || !given.grad_a0) return;
        if (is_needed)
            this->write_matrix(gradient, given.grad_a0, row);
        else
            std::fill_n(at(given.grad_a0, row * size * size), size * size, Real(0));
    }

    // Reads the vectors of a chunk, and computes their gradients through the memory after it, without their weights.
    void begin_chunk(Index first, Index last, Index row, bool has_later, Real* vectors, Real* later, Real* gradient,
                     Real* buffer) const {
        for (Index t = first; t <= last; ++t) this->read_hidden(t, row, vectors + (t - first) * width);
        if (!has_later) return;
        if (last == length(row) - 1) this->read_matrix(given.grad_final_memory, row, gradient);
        Real *sum = buffer, *packed = buffer + size * width;
        for (Index i = 0; i < size; ++i)
            for (Index j = 0; j < size; ++j) sum[i * width + j] = gradient[i * width + j] + gradient[j * width + i];
        pack(sum, width, 1, size, size, packed);
        multiply(last - first + 1, vectors, width, packed, size, size, later, width, false);
    }
};

}  // namespace
}  // namespace fast_weights
