// WeiNet: A_t = (f f'ᵀ) ⊙ A_{t-1} + (i ⊙ v)(i' ⊙ k)ᵀ, h_t = tanh(LN(A_t h_{t-1} + input)).
//
// Forward stores A once per chunk of steps. Backward computes the matrices of a chunk again.
// Parts: gates f, f', i, i', then value, key and input, N each. After forward: values of the gates, value, key, input of
// the normalization.

#pragma once

#include "fast_weights/sequence.hpp"

namespace fast_weights {
namespace {

template <class Real> struct WeiNet : Sequence<Real> {
    using Base = Sequence<Real>;
    using Base::at, Base::begins, Base::chunk, Base::given, Base::length, Base::parts, Base::size, Base::vector,
        Base::width;
    static constexpr Index TOGETHER = 4;  // rows of a matrix that share what is loaded of vectors

    explicit WeiNet(const Arguments& a) : Base(a) {}

    Index kept() const { return (chunk + 2) * size * width; }
    Index scratch() const { return 8 * width; }

    // The gates of one step: of rows, f and p = i ⊙ v, and of columns, f' and p' = i' ⊙ k, padded.
    struct Gates {
        const Real *forget, *put, *forget_column, *put_column;
    };
    Gates gates_of(const Real* own, Real* buffer) const {
        Real *put = buffer, *forget_column = put + width, *put_column = forget_column + width;
        for (Real* padded : {put, forget_column, put_column}) std::fill(padded + size, padded + width, Real(0));
#pragma omp simd
        for (Index i = 0; i < size; ++i) {
            put[i] = own[2 * size + i] * own[4 * size + i];
            forget_column[i] = own[size + i];
            put_column[i] = own[3 * size + i] * own[5 * size + i];
        }
        return {own, put, forget_column, put_column};
    }

    // Calls work(rows, r) for the rows r, …, r + rows - 1 of a matrix together, until all are done.
    template <class Work> void for_rows(Work work) const {
        Index r = 0;
        for (; r + TOGETHER <= size; r += TOGETHER) work(std::integral_constant<int, TOGETHER>(), r);
        for (; r < size; ++r) work(std::integral_constant<int, 1>(), r);
    }

    // Updates the memory. Writes the part that is not forgotten, (f f'ᵀ) ⊙ A, to `kept` if given; else adds the product of
    // the new memory and `old` to `sum`.
    template <bool keeps> void update(const Gates& gates, Real* memory, Real* kept, const Real* old, Real* sum) const {
        for_rows([=](auto rows, Index first) {
            // copies of all that the loop reads: the compiler assumes that stores may change anything else
            const Real *forget_column = gates.forget_column, *put_column = gates.put_column;
            Real forget[rows], put[rows], *own = memory + first * width, *rest = kept + (keeps ? first * width : 0);
            const Index stride = width;
            for (int i = 0; i < rows; ++i) forget[i] = gates.forget[first + i], put[i] = gates.put[first + i];
            Vector<Real> products[rows] = {};
            for (Index c = 0; c < stride; c += LANES<Real>) {
                const Vector<Real> column = load(forget_column + c), added = load(put_column + c);
                for (int i = 0; i < rows; ++i) {
                    const Index place = i * stride + c;
                    const Vector<Real> left = forget[i] * column * load(own + place), value = left + put[i] * added;
                    store<Real>(own + place, value);
                    if (keeps)
                        store<Real>(rest + place, left);
                    else
                        products[i] += value * load(old + c);
                }
            }
            if (!keeps)
                for (int i = 0; i < rows; ++i) sum[first + i] += sum_of<Real>(products[i]);
        });
    }

    // The memory before the first step of a sequence.
    void first_memory(Index row, Real* memory) const {
        if (given.a0)
            this->read_matrix(given.a0, row, memory);
        else
            std::fill_n(memory, size * width, Real(0));
    }

    Real normalized(const Real* y, Index i, Real mean, Real rstd) const {
        const Real *gain = at(given.norm), *bias = gain + size;
        return gain ? (y[i] - mean) * rstd * gain[i] + bias[i] : y[i];
    }

    void forward(Index t, Index row, const Real* old, const Real* product, Real* h, Real* memory, Real* scratch) const {
        Real *own = parts(t, row), *y = own + 6 * size;
#pragma omp simd
        for (Index i = 0; i < 4 * size; ++i) own[i] = sigmoid(own[i] + product[i]);
        if (t == 0) first_memory(row, memory);
        if (begins(t, row)) std::fill_n(memory, size * width, Real(0));
        if (t % chunk == 0 && given.memories)
            std::memcpy(this->saved_memory(t, row), memory, size * width * sizeof(Real));
        update<false>(gates_of(own, scratch), memory, nullptr, old, y);
        Real mean = 0, rstd = 1;
        if (given.norm) mean_and_rstd(y, size, mean, rstd, given.epsilon);
#pragma omp simd
        for (Index i = 0; i < size; ++i) h[i] = hyperbolic_tangent(normalized(y, i, mean, rstd));
        if (t == length(row) - 1) this->write_matrix(memory, given.final_memory, row);
    }

    // `g` is the gradient of the new hidden vector, on return that of the old one without the path through the product.
    void backward(Index t, Index row, const Real* old, Real* __restrict g, Real* kept, Real* scratch,
                  Real* grad_norm) const {
        const Index first = t / chunk * chunk;
        Real *gradient = kept, *memory = gradient + size * width, *memories = memory + size * width;
        if (t == length(row) - 1) {
            if (given.grad_final_memory)
                this->read_matrix(given.grad_final_memory, row, gradient);
            else
                std::fill_n(gradient, size * width, Real(0));
        }
        if (t == length(row) - 1 || (t + 1) % chunk == 0) {
            std::memcpy(memory, this->saved_memory(first, row), size * width * sizeof(Real));
            for (Index step = first; step <= t; ++step) {
                if (begins(step, row)) std::fill_n(memory, size * width, Real(0));
                const Gates gates = gates_of(parts(step, row), scratch);
                update<true>(gates, memory, memories + (step - first) * size * width, nullptr, nullptr);
            }
        }

        Real *own = parts(t, row), *y = own + 6 * size;
        const Gates gates = gates_of(own, scratch);
        Real *__restrict push = scratch + 3 * width, *__restrict to_old = push + width,
             *__restrict to_column = to_old + width, *__restrict to_key = to_column + width;
        Real mean = 0, rstd = 1;
        if (given.norm) mean_and_rstd(y, size, mean, rstd, given.epsilon);
#pragma omp simd
        for (Index i = 0; i < size; ++i) {
            const Real squashed = hyperbolic_tangent(normalized(y, i, mean, rstd));
            push[i] = g[i] * (1 - squashed * squashed);
        }
        if (given.norm) {
            for (Index i = 0; i < size; ++i) y[i] = (y[i] - mean) * rstd;
            norm_backward(push, y, at(given.norm), rstd, size, grad_norm, grad_norm + size);
        }
        std::memcpy(y, push, size * sizeof(Real));
        std::fill_n(to_old, 3 * width, Real(0));

        const Real* left = memories + (t - first) * size * width;  // (f f'ᵀ) ⊙ A
        Real *value = own + 4 * size, *key = own + 5 * size, along = 0;
        for (Index i = 0; i < size; ++i) along += gates.put[i] * push[i];
        for_rows([=](auto rows, Index first) {
            // copies of all that the loop reads, as above
            const Real *forget_column = gates.forget_column, *put_column = gates.put_column, *hidden = old;
            const Real* entries = left + first * width;
            Real *slopes = gradient + first * width, *sum_old = to_old, *sum_column = to_column, *sum_key = to_key;
            Real forget[rows], put[rows], pushed[rows];
            const Index stride = width;
            for (int i = 0; i < rows; ++i)
                forget[i] = gates.forget[first + i], put[i] = gates.put[first + i], pushed[i] = push[first + i];
            Vector<Real> to_forget[rows] = {}, to_put[rows] = {};
            for (Index c = 0; c < stride; c += LANES<Real>) {
                const Vector<Real> column = load(forget_column + c), added = load(put_column + c);
                const Vector<Real> factor = load(hidden + c);
                Vector<Real> all_old = load(sum_old + c), all_column = load(sum_column + c), all_key = load(sum_key + c);
                for (int i = 0; i < rows; ++i) {
                    const Vector<Real> entry = load(entries + i * stride + c);
                    const Vector<Real> slope = load(slopes + i * stride + c) + pushed[i] * factor;
                    const Vector<Real> through = slope * entry;
                    all_old += pushed[i] * entry;
                    all_column += through;
                    all_key += put[i] * slope;
                    to_forget[i] += through;
                    to_put[i] += added * slope;
                    store<Real>(slopes + i * stride + c, forget[i] * column * slope);
                }
                store<Real>(sum_old + c, all_old);
                store<Real>(sum_column + c, all_column);
                store<Real>(sum_key + c, all_key);
            }
            for (int i = 0; i < rows; ++i) {
                const Index r = first + i;
                const Real write = own[2 * size + r], slope = sum_of<Real>(to_put[i]);
                own[r] = sum_of<Real>(to_forget[i]) * (1 - forget[i]);
                own[2 * size + r] = slope * value[r] * write * (1 - write);
                value[r] = slope * write;
            }
        });
#pragma omp simd
        for (Index i = 0; i < size; ++i) {
            const Real write = own[3 * size + i], slope = to_key[i];
            g[i] = to_old[i] + along * gates.put_column[i];
            own[size + i] = to_column[i] * (1 - own[size + i]);
            own[3 * size + i] = slope * key[i] * write * (1 - write);
            key[i] = slope * write;
        }
        if (begins(t, row)) std::fill_n(gradient, size * width, Real(0));
        if (t == 0 && given.grad_a0) this->write_matrix(gradient, given.grad_a0, row);
    }
};

}  // namespace
}  // namespace fast_weights
