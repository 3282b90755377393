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
    void* hidden;              // (B, N) before the first step
    void* lengths;             // (B) Index
    void* starts;              // (T, B) bool
    void* outputs;             // (T, B, N)
    void* final;               // (B, N)
    Index threads;
    void* workspace;
    // of the backward pass
    void* grad_outputs;        // (T, B, N), or null for zeros
    void* grad_hidden;         // (B, N): before it the gradient of the final state
    void* grad_projected;      // as projected
};

// e^-x, for a double without infinity: the quotients below would be NaN
template <class Real> inline Real exponential_of_minus(Real x) { return exponential(std::min(-x, Real(700))); }

template <class Real> inline Real positive(Real c) { return c >= 0 ? c + Real(0.5) : sigmoid(c); }

// z = 1 / (1 + e^-k)
template <class Real> struct GRU {
    static constexpr Index gates = 1;
    Real z, kept;  // z and 1 - z

    GRU(const Real* gate, Index) {
        const Real e = exponential_of_minus(*gate);
        z = 1 / (1 + e);
        kept = e * z;
    }
    void backward(Real grad_z, Real* grad, Index) const { *grad = grad_z * z * kept; }
};

// With F = 1 + e^-f and I = 1 + e^-i: z = F / (F + I)
template <class Real> struct LSTM {
    static constexpr Index gates = 2;
    Real z, kept, forget, write;

    LSTM(const Real* gate, Index size) {
        forget = 1 + exponential_of_minus(gate[0]);
        write = 1 + exponential_of_minus(gate[size]);
        const Real inverse = 1 / (forget + write);
        z = forget * inverse;
        kept = write * inverse;
    }
    void backward(Real grad_z, Real* grad, Index size) const {
        const Real common = grad_z * z * kept;
        grad[0] = -common * (1 - 1 / forget);
        grad[size] = common * (1 - 1 / write);
    }
};

template <class Real, class Gate> struct Scan {
    const Arguments& given;
    const Index size = given.size, width = (1 + Gate::gates) * size;

    template <bool has_before>
    void forward(const Real* __restrict x, const Real* __restrict before, Real* __restrict h) const {
        for (Index j = 0; j < size; ++j) {
            const Gate gate(x + size + j, size);
            h[j] = gate.z * positive(x[j]) + (has_before ? gate.kept * before[j] : Real(0));
        }
    }

    template <bool has_before>
    void backward(const Real* __restrict x, const Real* __restrict before, const Real* __restrict grad_output,
                  Real* __restrict g, Real* __restrict grad_x) const {
        if (grad_output)
            for (Index j = 0; j < size; ++j) g[j] += grad_output[j];
        for (Index j = 0; j < size; ++j) {
            const Gate gate(x + size + j, size);
            const Real value = positive(x[j]);
            const Real slope = x[j] >= 0 ? Real(1) : value * (1 - value);
            const Real grad = g[j];
            grad_x[j] = grad * gate.z * slope;
            gate.backward(grad * (value - (has_before ? before[j] : Real(0))), grad_x + size + j, size);
            g[j] = has_before ? grad * gate.kept : Real(0);
        }
    }

    void forward_step(const Place& at) const {
        const Real *x = at.of<Real>(given.projected, width), *before = at.before<Real>(given, size);
        Real* h = at.of<Real>(given.outputs, size);
        if (at.has_ended)
            std::fill(h, h + size, Real(0));
        else
            at.is_start ? forward<false>(x, before, h) : forward<true>(x, before, h);
        if (at.is_last) std::copy(h, h + size, at.row_of<Real>(given.final, size));
    }

    void backward_step(const Place& at) const {
        const Real *x = at.of<Real>(given.projected, width), *before = at.before<Real>(given, size);
        const Real* grad_output = at.of<Real>(given.grad_outputs, size);
        Real *g = at.row_of<Real>(given.grad_hidden, size), *grad_x = at.of<Real>(given.grad_projected, width);
        if (at.has_ended)
            std::fill(grad_x, grad_x + width, Real(0));
        else if (at.is_start)
            backward<false>(x, before, grad_output, g, grad_x);
        else
            backward<true>(x, before, grad_output, g, grad_x);
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
