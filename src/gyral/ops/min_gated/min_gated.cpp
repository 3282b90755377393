// minGRU and minLSTM, forward and backward; see gyral/ops/min_gated/__init__.py.
//
// Activations are computed again in the backward pass, which takes less time than reading them from memory.

#include "native/rows.hpp"

namespace min_gated {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, size;  // T, B, N
    Index gates;               // 1: minGRU, 2: minLSTM
    void* projected;           // (T, B, (1 + gates) N), rows [c; k] or [c; f; i]
    void* h0;                  // (B, N) before the first step
    void* lengths;             // (B) Index
    void* starts;              // (T, B) bool
    void* outputs;             // (T, B, N)
    void* final;               // (B, N)
    Index threads;
    void* workspace;
    // of the backward pass
    void* grad_outputs;        // (T, B, N)
    void* grad_h0;             // (B, N): before it the gradient of the final state
    void* grad_projected;      // as projected
};

// The largest exponent of e: sums of two such powers and their inverses are normal numbers. A subnormal z may be flushed to
// zero, and then 1 - z would be, too. What is lost beyond is far below the precision of 1.
template <class Real> constexpr Real LARGEST = sizeof(Real) == 4 ? 80 : 700;
template <class Real> constexpr Real SMALLEST = 1e-30;  // of a divisor

template <class Real> inline Real positive(Real c) { return c >= 0 ? c + Real(0.5) : sigmoid(c); }

// z = 1 / (1 + e^-k)
template <class Real> struct GRU {
    static constexpr Index gates = 1;
    Real z, kept;  // z and 1 - z

    GRU(Real gate, Real) {
        const Real e = exponential(std::min(-gate, LARGEST<Real>));
        z = 1 / (1 + e);
        kept = e * z;
    }
    void backward(Real grad_z, Real& grad_gate, Real&) const { grad_gate = grad_z * z * kept; }
};

// With F = 1 + e^-f and I = 1 + e^-i: z = F / (F + I). If one of the powers is too large, F and I are multiplied by e^-shift,
// which makes their first terms negligible.
template <class Real> struct LSTM {
    static constexpr Index gates = 2;
    Real one, z, kept, forget, write;

    LSTM(Real f, Real i) {
        const Real shift = std::max(std::max(-f, -i) - LARGEST<Real>, Real(0));
        one = shift > 0 ? Real(0) : Real(1);  // e^-shift
        forget = one + std::max(exponential(-f - shift), SMALLEST<Real>);
        write = one + std::max(exponential(-i - shift), SMALLEST<Real>);
        const Real inverse = 1 / (forget + write);
        z = forget * inverse;
        kept = write * inverse;
    }
    void backward(Real grad_z, Real& grad_forget, Real& grad_write) const {
        const Real common = grad_z * z * kept;
        grad_forget = -common * (1 - one / forget);
        grad_write = common * (1 - one / write);
    }
};

template <class Real, class Gate> struct Scan {
    const Arguments& given;
    const Index size = given.size, width = (1 + Gate::gates) * size, last = Gate::gates * size;

    // Parts of a vector have pointers of their own: compilers vectorize the loops if they know that these do not overlap.
    // `second` is the last part; a minGRU does not use it.
    template <bool has_before>
    void forward(const Real* __restrict c, const Real* __restrict first, const Real* __restrict second,
                 const Real* __restrict before, Real* __restrict h) const {
        for (Index j = 0; j < size; ++j) {
            const Gate gate(first[j], second[j]);
            h[j] = gate.z * positive(c[j]) + (has_before ? gate.kept * before[j] : Real(0));
        }
    }

    template <bool has_before>
    void backward(const Real* __restrict c, const Real* __restrict first, const Real* __restrict second,
                  const Real* __restrict before, Real* __restrict g, Real* __restrict grad_c,
                  Real* __restrict grad_first, Real* __restrict grad_second) const {
        for (Index j = 0; j < size; ++j) {
            const Gate gate(first[j], second[j]);
            const Real value = positive(c[j]), grad = g[j];
            grad_c[j] = grad * gate.z * (c[j] >= 0 ? Real(1) : value * (1 - value));
            gate.backward(grad * (value - (has_before ? before[j] : Real(0))), grad_first[j], grad_second[j]);
            g[j] = has_before ? grad * gate.kept : Real(0);
        }
    }

    void forward_step(const Place& at) const {
        const Real *x = at.of<Real>(given.projected, width), *before = at.before<Real>(given, size);
        Real* h = at.of<Real>(given.outputs, size);
        if (at.has_ended)
            std::fill(h, h + size, Real(0));
        else
            at.is_start ? forward<false>(x, x + size, x + last, before, h)
                        : forward<true>(x, x + size, x + last, before, h);
        if (at.is_last) std::copy(h, h + size, at.row_of<Real>(given.final, size));
    }

    void backward_step(const Place& at) const {
        const Real *x = at.of<Real>(given.projected, width), *before = at.before<Real>(given, size);
        const Real* grad_output = at.of<Real>(given.grad_outputs, size);
        Real *g = at.row_of<Real>(given.grad_h0, size), *grad_x = at.of<Real>(given.grad_projected, width);
        if (at.has_ended) {
            std::fill(grad_x, grad_x + width, Real(0));
            return;
        }
        if (grad_output)
            for (Index j = 0; j < size; ++j) g[j] += grad_output[j];
        at.is_start ? backward<false>(x, x + size, x + last, before, g, grad_x, grad_x + size, grad_x + last)
                    : backward<true>(x, x + size, x + last, before, g, grad_x, grad_x + size, grad_x + last);
    }
};

template <class Real> void run(const Arguments& given, bool is_backward) {
    given.gates == 1 ? for_all_places(given, is_backward, Scan<Real, GRU<Real>>{given})
                     : for_all_places(given, is_backward, Scan<Real, LSTM<Real>>{given});
}

}  // namespace min_gated

extern "C" {
Index min_gated_arguments_size() { return sizeof(min_gated::Arguments); }
Index min_gated_block() { return 1; }  // rows that go through a step together
Index min_gated_workspace(const min_gated::Arguments*, Index) { return 0; }
void min_gated_run(const min_gated::Arguments* given, Index is_double, Index backward) {
    is_double ? min_gated::run<double>(*given, backward) : min_gated::run<float>(*given, backward);
}
}
