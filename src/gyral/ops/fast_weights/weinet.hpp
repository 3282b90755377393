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

    Index kept() const { return (chunk + 1) * size * width; }
    Index scratch() const { return 8 * width; }

    // The gates of one step: of rows, f and p = i ⊙ v, and of columns, f' and p' = i' ⊙ k, padded.
    struct Gates {
        const Real* forget;
        Real *put, *forget_column, *put_column;
    };
    Gates gates_of(const Real* own, Real* buffer) const {
        Real *__restrict put = buffer, *__restrict forget_column = put + width,
             *__restrict put_column = forget_column + width;
        std::fill_n(put, 3 * width, Real(0));
        for (Index i = 0; i < size; ++i) {
            put[i] = own[2 * size + i] * own[4 * size + i];
            forget_column[i] = own[size + i];
            put_column[i] = own[3 * size + i] * own[5 * size + i];
        }
        return {own, put, forget_column, put_column};
    }

    template <class Work> void for_rows(Work work) const {
        Index r = 0;
        for (; r + TOGETHER <= size; r += TOGETHER) work(std::integral_constant<int, TOGETHER>(), r);
        for (; r < size; ++r) work(std::integral_constant<int, 1>(), r);
    }

    // Writes the memory after a step to `after`, which may be `before`; adds its product with `old` to `sum` if given.
    void update(const Gates& gates, const Real* before, Real* after, const Real* old, Real* sum) const {
        for_rows([&](auto rows, Index r) {
            Vector<Real> products[rows] = {};
            for (Index c = 0; c < width; c += LANES<Real>) {
                const Vector<Real> column = load(gates.forget_column + c), put = load(gates.put_column + c);
                for (int i = 0; i < rows; ++i) {
                    const Index place = (r + i) * width + c;
                    const Vector<Real> value =
                        gates.forget[r + i] * column * load(before + place) + gates.put[r + i] * put;
                    store<Real>(after + place, value);
                    if (sum) products[i] += value * load(old + c);
                }
            }
            if (sum)
                for (int i = 0; i < rows; ++i) sum[r + i] += sum_of<Real>(products[i]);
        });
    }

    // The memory before the first step of a sequence.
    void first_memory(Index row, Real* memory) const {
        if (given.memory)
            this->read_matrix(given.memory, row, memory);
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
        update(gates_of(own, scratch), memory, memory, old, y);
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
        Real *gradient = kept, *memories = gradient + size * width;
        if (t == length(row) - 1) {
            if (given.grad_final_memory)
                this->read_matrix(given.grad_final_memory, row, gradient);
            else
                std::fill_n(gradient, size * width, Real(0));
        }
        if (t == length(row) - 1 || (t + 1) % chunk == 0) {
            std::memcpy(memories, this->saved_memory(first, row), size * width * sizeof(Real));
            for (Index step = first; step < t; ++step) {
                const Real* before = memories + (step - first) * size * width;
                Real* after = memories + (step + 1 - first) * size * width;
                if (begins(step + 1, row))
                    std::fill_n(after, size * width, Real(0));
                else
                    update(gates_of(parts(step, row), scratch), before, after, nullptr, nullptr);
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

        const Real* before = memories + (t - first) * size * width;
        Real *value = own + 4 * size, *key = own + 5 * size, along = 0;
        for (Index i = 0; i < size; ++i) along += gates.put[i] * push[i];
        for_rows([&](auto rows, Index r) {
            Vector<Real> to_forget[rows] = {}, to_put[rows] = {};
            for (Index c = 0; c < width; c += LANES<Real>) {
                const Vector<Real> column = load(gates.forget_column + c), put = load(gates.put_column + c);
                const Vector<Real> hidden = load(old + c);
                Vector<Real> sum_old = load(to_old + c), sum_column = load(to_column + c), sum_key = load(to_key + c);
                for (int i = 0; i < rows; ++i) {
                    const Index place = (r + i) * width + c;
                    const Real forget = gates.forget[r + i];
                    const Vector<Real> memory = load(before + place);
                    const Vector<Real> here = load(gradient + place) + push[r + i] * hidden, through = here * memory;
                    sum_old += (push[r + i] * forget) * memory;
                    sum_column += forget * through;
                    sum_key += gates.put[r + i] * here;
                    to_forget[i] += column * through;
                    to_put[i] += put * here;
                    store<Real>(gradient + place, forget * column * here);
                }
                store<Real>(to_old + c, sum_old);
                store<Real>(to_column + c, sum_column);
                store<Real>(to_key + c, sum_key);
            }
            for (int i = 0; i < rows; ++i) {
                const Real forget = own[r + i], write = own[2 * size + r + i];
                const Real slope = sum_of<Real>(to_put[i]);
                own[r + i] = sum_of<Real>(to_forget[i]) * forget * (1 - forget);
                own[2 * size + r + i] = slope * value[r + i] * write * (1 - write);
                value[r + i] = slope * write;
            }
        });
        for (Index i = 0; i < size; ++i) {
            const Real forget = gates.forget_column[i], write = own[3 * size + i];
            g[i] = forget * to_old[i] + along * gates.put_column[i];
            own[size + i] = to_column[i] * forget * (1 - forget);
            own[3 * size + i] = to_key[i] * key[i] * write * (1 - write);
            key[i] = to_key[i] * write;
        }
        if (begins(t, row)) std::fill_n(gradient, size * width, Real(0));
        if (t == 0 && given.grad_memory) this->write_matrix(gradient, given.grad_memory, row);
    }
};

}  // namespace
}  // namespace fast_weights
