// The product with a matrix F_L ... F_1 of layers of plane rotations, in O(L N); see `gyral.ops.unitary.Rotations`.
//
// Layer l maps x to own[l] x + other[l] x[partner[l]], entry by entry. A partner's partner is the entry itself. Layers
// (L, W) and vectors (W) are real, W = N, or complex, W = 2N with real parts before imaginary parts.

#pragma once

#include "native/common.hpp"

namespace gated {
namespace {

template <class Real> struct Rotations {
    Index layers, units, width;
    const Real* own;
    const Real* other;
    const Index* partner;  // (L, N)

    // Elements of `values` in `forward` and `backward`.
    Index space() const { return (layers + 1) * width; }

    // Writes the vectors before each layer to `values`, after the last one to `product`.
    void forward(const Real* x, Real* values, Real* product) const {
        rotate_to_last(x, values);
        rotate(layers - 1, values + (layers - 1) * width, product);
    }

    void rotate_to_last(const Real* x, Real* values) const {
        std::memcpy(values, x, width * sizeof(Real));
        for (Index l = 0; l + 1 < layers; ++l) rotate(l, values + l * width, values + (l + 1) * width);
    }

    void rotate(Index layer, const Real* __restrict x, Real* __restrict y) const {
        const Real *__restrict a = own + layer * width, *__restrict b = other + layer * width;
        const Index* __restrict p = partner + layer * units;
        const Index n = units;
        if (width == n) {
#pragma omp simd
            for (Index i = 0; i < n; ++i) y[i] = a[i] * x[i] + b[i] * x[p[i]];
            return;
        }
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real re = x[p[i]], im = x[n + p[i]];
            y[i] = a[i] * x[i] - a[n + i] * x[n + i] + b[i] * re - b[n + i] * im;
            y[n + i] = a[i] * x[n + i] + a[n + i] * x[i] + b[i] * im + b[n + i] * re;
        }
    }

    // Writes other[l][partner[l]], which `backward` reads.
    void pack(Real* packed) const {
        for (Index l = 0; l < layers; ++l)
            for (Index i = 0; i < width; ++i)
                packed[l * width + i] = other[l * width + i / units * units + partner[l * units + i % units]];
    }

    // Given the gradient of the product, adds that of x to `grad_x`, and those of the layers to `grad_own` and
    // `grad_other`.
    void backward(const Real* x, const Real* grad_product, const Real* packed, Real* values, Real* grad_x,
                  Real* grad_own, Real* grad_other) const {
        rotate_to_last(x, values);
        Real* gradient = values + layers * width;
        std::memcpy(gradient, grad_product, width * sizeof(Real));
        for (Index l = layers - 1; l >= 0; --l) {
            Real* before = values + l * width;
            add_gradients(partner + l * units, before, gradient, grad_own + l * width, grad_other + l * width);
            // the values before this layer are not needed any more
            rotate_back(own + l * width, packed + l * width, partner + l * units, gradient, before);
            gradient = before;
        }
        for (Index i = 0; i < width; ++i) grad_x[i] += gradient[i];
    }

    void add_gradients(const Index* __restrict p, const Real* __restrict x, const Real* __restrict g,
                       Real* __restrict grad_own, Real* __restrict grad_other) const {
        const Index n = units;
        if (width == n) {
#pragma omp simd
            for (Index i = 0; i < n; ++i) {
                grad_own[i] += x[i] * g[i];
                grad_other[i] += x[p[i]] * g[i];
            }
            return;
        }
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real re = x[p[i]], im = x[n + p[i]];
            grad_own[i] += x[i] * g[i] + x[n + i] * g[n + i];
            grad_own[n + i] += x[i] * g[n + i] - x[n + i] * g[i];
            grad_other[i] += re * g[i] + im * g[n + i];
            grad_other[n + i] += re * g[n + i] - im * g[i];
        }
    }

    // The adjoint of `rotate`; `b` is a row of `packed`.
    void rotate_back(const Real* __restrict a, const Real* __restrict b, const Index* __restrict p,
                     const Real* __restrict g, Real* __restrict x) const {
        const Index n = units;
        if (width == n) {
#pragma omp simd
            for (Index i = 0; i < n; ++i) x[i] = a[i] * g[i] + b[i] * g[p[i]];
            return;
        }
#pragma omp simd
        for (Index i = 0; i < n; ++i) {
            const Real re = g[p[i]], im = g[n + p[i]];
            x[i] = a[i] * g[i] + a[n + i] * g[n + i] + b[i] * re + b[n + i] * im;
            x[n + i] = a[i] * g[n + i] - a[n + i] * g[i] + b[i] * im - b[n + i] * re;
        }
    }
};

}  // namespace
}  // namespace gated
