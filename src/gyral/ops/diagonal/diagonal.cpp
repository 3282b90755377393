// The linear recurrence h_t = a_t * h_{t-1} + b_t, forward and backward; see gyral/ops/diagonal/__init__.py.

#include "native/rows.hpp"

namespace diagonal {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, width;     // T, B, W; W = 2N for N complex numbers, real parts first
    Index is_complex, is_constant;
    void* values;                  // b (T, B, W)
    void* decay;                   // a (T, B, W), or (W) if it is constant
    void* h0;                      // (B, W) before the first step
    void* lengths;                 // (B) Index
    void* starts;                  // (T, B) bool
    void* outputs;                 // (T, B, W)
    void* final;                   // (B, W)
    Index threads;
    void* workspace;
    // of the backward pass
    void* grad_outputs;            // (T, B, W)
    void* grad_h0;                 // (B, W): before it the gradient of the final state
    void* grad_values;             // (T, B, W)
    void* grad_decay;              // (T, B, W), or (B, W) zeros if it is constant: a partial sum for each row
};

template <class Real> struct Numbers {
    static void forward(Index n, const Real* __restrict a, const Real* __restrict b, const Real* __restrict before,
                        Real* __restrict h) {
        for (Index i = 0; i < n; ++i) h[i] = a[i] * before[i] + b[i];
    }

    // Given the gradient g of h_t, writes or adds that of a_t, if it is wanted, and replaces g by that of h_{t-1}.
    template <bool add>
    static void backward(Index n, const Real* __restrict a, const Real* __restrict before, Real* __restrict g,
                         Real* __restrict grad_a) {
        if (grad_a)
            for (Index i = 0; i < n; ++i) grad_a[i] = (add ? grad_a[i] : 0) + g[i] * before[i];
        for (Index i = 0; i < n; ++i) g[i] *= a[i];
    }
};

// Pointers to real and imaginary parts: compilers vectorize the loops if they know that the two do not overlap.
template <class Real> struct ComplexNumbers {
    static void forward(Index width, const Real* a, const Real* b, const Real* before, Real* h) {
        const Index n = width / 2;
        forward(n, a, a + n, b, b + n, before, before + n, h, h + n);
    }
    static void forward(Index n, const Real* __restrict a, const Real* __restrict ai, const Real* __restrict b,
                        const Real* __restrict bi, const Real* __restrict before, const Real* __restrict beforei,
                        Real* __restrict h, Real* __restrict hi) {
        for (Index i = 0; i < n; ++i) {
            h[i] = a[i] * before[i] - ai[i] * beforei[i] + b[i];
            hi[i] = a[i] * beforei[i] + ai[i] * before[i] + bi[i];
        }
    }

    template <bool add> static void backward(Index width, const Real* a, const Real* before, Real* g, Real* grad_a) {
        const Index n = width / 2;
        if (grad_a) of_factor<add>(n, before, before + n, g, g + n, grad_a, grad_a + n);
        of_state(n, a, a + n, g, g + n);
    }
    template <bool add>
    static void of_factor(Index n, const Real* __restrict before, const Real* __restrict beforei,
                          const Real* __restrict g, const Real* __restrict gi, Real* __restrict grad_a,
                          Real* __restrict grad_ai) {
        for (Index i = 0; i < n; ++i) {
            grad_a[i] = (add ? grad_a[i] : 0) + g[i] * before[i] + gi[i] * beforei[i];
            grad_ai[i] = (add ? grad_ai[i] : 0) + gi[i] * before[i] - g[i] * beforei[i];
        }
    }
    static void of_state(Index n, const Real* __restrict a, const Real* __restrict ai, Real* __restrict g,
                         Real* __restrict gi) {
        for (Index i = 0; i < n; ++i) {
            const Real real = g[i];
            g[i] = a[i] * real + ai[i] * gi[i];
            gi[i] = a[i] * gi[i] - ai[i] * real;
        }
    }
};

template <class Real, class Kind> struct Scan {
    const Arguments& given;
    const Index width = given.width;

    const Real* decay(const Place& at) const {
        return given.is_constant ? static_cast<const Real*>(given.decay) : at.of<Real>(given.decay, width);
    }

    void forward_step(const Place& at) const {
        const Real* b = at.of<Real>(given.values, width);
        Real* h = at.of<Real>(given.outputs, width);
        if (at.has_ended)
            std::fill(h, h + width, Real(0));
        else if (at.is_start)
            std::copy(b, b + width, h);
        else
            Kind::forward(width, decay(at), b, at.before<Real>(given, width), h);
        if (at.is_last) std::copy(h, h + width, at.row_of<Real>(given.final, width));
    }

    void backward_step(const Place& at) const {
        Real *g = at.row_of<Real>(given.grad_h0, width), *grad_b = at.of<Real>(given.grad_values, width);
        Real* grad_a = given.is_constant ? at.row_of<Real>(given.grad_decay, width)
                                         : at.of<Real>(given.grad_decay, width);
        if (grad_a && !given.is_constant && (at.has_ended || at.is_start)) std::fill(grad_a, grad_a + width, Real(0));
        if (at.has_ended) {
            std::fill(grad_b, grad_b + width, Real(0));
            return;
        }
        if (const Real* more = at.of<Real>(given.grad_outputs, width))
            for (Index i = 0; i < width; ++i) g[i] += more[i];
        std::copy(g, g + width, grad_b);
        if (at.is_start)
            std::fill(g, g + width, Real(0));
        else if (given.is_constant)
            Kind::template backward<true>(width, decay(at), at.before<Real>(given, width), g, grad_a);
        else
            Kind::template backward<false>(width, decay(at), at.before<Real>(given, width), g, grad_a);
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    given.is_complex ? for_all_places(given, backward, Scan<Real, ComplexNumbers<Real>>{given})
                     : for_all_places(given, backward, Scan<Real, Numbers<Real>>{given});
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
