// The linear recurrence h_t = a_t * h_{t-1} + b_t, forward and backward; see gyral/ops/diagonal/__init__.py.
//
// All steps of some rows run on one thread, a step of all its rows before the next: memory is read in order.

#include "native/common.hpp"

namespace diagonal {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, width;     // T, B, W; W = 2N for N complex numbers, real parts first
    Index is_complex, is_constant;
    void* values;                  // b (T, B, W)
    void* decay;                   // a (T, B, W), or (W) if it is constant
    void* hidden;                  // (B, W) before the first step
    void* lengths;                 // (B) Index
    void* starts;                  // (T, B) bool
    void* outputs;                 // (T, B, W)
    void* final;                   // (B, W)
    Index threads;
    void* workspace;
    // of the backward pass
    void* grad_outputs;            // (T, B, W), or null for zeros
    void* grad_hidden;             // (B, W): before it the gradient of the final state
    void* grad_values;             // (T, B, W)
    void* grad_decay;              // (T, B, W), or (B, W) zeros if it is constant: a partial sum for each row
};

template <class Real>
void forward_step(bool complex, Index width, const Real* __restrict a, const Real* __restrict b,
                  const Real* __restrict before, Real* __restrict h) {
    if (!complex) {
        for (Index i = 0; i < width; ++i) h[i] = a[i] * before[i] + b[i];
        return;
    }
    const Index n = width / 2;
    for (Index i = 0; i < n; ++i) {
        h[i] = a[i] * before[i] - a[n + i] * before[n + i] + b[i];
        h[n + i] = a[i] * before[n + i] + a[n + i] * before[i] + b[n + i];
    }
}

// Given the gradient g of h_t, adds that of a_t, or writes it, and replaces g by the gradient of h_{t-1}.
template <class Real, bool add>
void backward_step(bool complex, Index width, const Real* __restrict a, const Real* __restrict before,
                   Real* __restrict g, Real* __restrict grad_a) {
    const Index n = complex ? width / 2 : width;
    if (grad_a && !complex)
        for (Index i = 0; i < n; ++i) grad_a[i] = (add ? grad_a[i] : 0) + g[i] * before[i];
    if (grad_a && complex)
        for (Index i = 0; i < n; ++i) {
            grad_a[i] = (add ? grad_a[i] : 0) + g[i] * before[i] + g[n + i] * before[n + i];
            grad_a[n + i] = (add ? grad_a[n + i] : 0) + g[n + i] * before[i] - g[i] * before[n + i];
        }
    if (!complex)
        for (Index i = 0; i < n; ++i) g[i] *= a[i];
    else
        for (Index i = 0; i < n; ++i) {
            const Real real = g[i];
            g[i] = a[i] * real + a[n + i] * g[n + i];
            g[n + i] = a[i] * g[n + i] - a[n + i] * real;
        }
}

template <class Real> struct Scan {
    const Arguments& given;
    const Index width = given.width, batch = given.batch;

    Real* at(void* base, Index offset) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Index length(Index row) const { return given.lengths ? static_cast<Index*>(given.lengths)[row] : given.steps; }
    bool starts(Index place) const { return given.starts && static_cast<const bool*>(given.starts)[place]; }
    const Real* decay(Index place) const { return at(given.decay, given.is_constant ? 0 : place * width); }
    const Real* before(Index t, Index row) const {
        return t ? at(given.outputs, ((t - 1) * batch + row) * width) : at(given.hidden, row * width);
    }

    void forward(Index t, Index row) const {
        const Index place = t * batch + row;
        const Real* b = at(given.values, place * width);
        Real* h = at(given.outputs, place * width);
        if (t >= length(row)) {
            std::fill(h, h + width, Real(0));
            return;
        }
        if (starts(place))
            std::copy(b, b + width, h);
        else
            forward_step(given.is_complex, width, decay(place), b, before(t, row), h);
        if (t + 1 == length(row)) std::copy(h, h + width, at(given.final, row * width));
    }

    void backward(Index t, Index row) const {
        const Index place = t * batch + row;
        Real* grad_b = at(given.grad_values, place * width);
        Real* grad_a = at(given.grad_decay, (given.is_constant ? row : place) * width);
        if (t >= length(row) || starts(place)) {
            if (grad_a && !given.is_constant) std::fill(grad_a, grad_a + width, Real(0));
        }
        if (t >= length(row)) {
            std::fill(grad_b, grad_b + width, Real(0));
            return;
        }
        Real* g = at(given.grad_hidden, row * width);
        if (const Real* more = at(given.grad_outputs, place * width))
            for (Index i = 0; i < width; ++i) g[i] += more[i];
        std::copy(g, g + width, grad_b);
        if (starts(place))
            std::fill(g, g + width, Real(0));
        else if (given.is_constant)
            backward_step<Real, true>(given.is_complex, width, decay(place), before(t, row), g, grad_a);
        else
            backward_step<Real, false>(given.is_complex, width, decay(place), before(t, row), g, grad_a);
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Scan<Real> scan{given};
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        const Index first = given.batch * thread / given.threads, last = given.batch * (thread + 1) / given.threads;
        for (Index step = 0; step < given.steps; ++step)
            for (Index row = first; row < last; ++row)
                backward ? scan.backward(given.steps - 1 - step, row) : scan.forward(step, row);
    }
}

}  // namespace diagonal

extern "C" {
Index diagonal_arguments_size() { return sizeof(diagonal::Arguments); }
Index diagonal_block() { return 1; }  // rows that go through a step together
Index diagonal_workspace(const diagonal::Arguments*, Index) { return 0; }
void diagonal_run(const diagonal::Arguments* given, Index is_double, Index backward) {
    is_double ? diagonal::run<double>(*given, backward) : diagonal::run<float>(*given, backward);
}
}
