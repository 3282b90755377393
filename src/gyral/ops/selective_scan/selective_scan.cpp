// The selective state space of Mamba, forward and backward; see gyral/ops/selective_scan/__init__.py.
//
// A row runs through all steps alone, so that its state (N, D) stays in the cache; loops over channels are vectorized.
// The forward pass keeps the state before every chunk of steps. The backward pass runs each chunk forward again.

#include "native/common.hpp"

namespace selective_scan {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, channels, size;  // T, B, D, N
    Index chunk;         // steps between the states that are kept
    void* u;             // (T, B, D)
    void* delta;         // (T, B, D)
    void* a;             // (N, D)
    void* b;             // (T, B, N)
    void* c;             // (T, B, N)
    void* lengths;       // (B) Index
    void* starts;        // (T, B) bool
    void* kept;          // (chunks, B, N, D), the states before the first step of each chunk
    Index threads;
    void* workspace;
    // of the forward pass
    void* final;         // (B, N, D): before it the state before the first step, after it the last one
    void* outputs;       // (T, B, D)
    // of the backward pass
    void* grad_outputs;  // (T, B, D)
    void* grad_h0;       // (B, N, D): before it the gradient of the final state
    void* grad_u;        // (T, B, D) zeros
    void* grad_delta;    // (T, B, D) zeros
    void* grad_a;        // (B, N, D) zeros: a partial sum for each row
    void* grad_b;        // (T, B, N) zeros
    void* grad_c;        // (T, B, N) zeros
};

template <class Real> struct Scan {
    const Arguments& given;
    const Index channels = given.channels, size = given.size, state = channels * size;

    Real* at(void* base, Index place, Index width) const { return static_cast<Real*>(base) + place * width; }
    Index length(Index row) const { return given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps; }
    bool is_start(Index place) const { return given.starts && static_cast<const bool*>(given.starts)[place]; }

    // Writes the state after a step, given that before it; adds to y, if it is not null.
    void step(Index place, const Real* before, Real* after, Real* drive, Real* y) const {
        const Real *u = at(given.u, place, channels), *delta = at(given.delta, place, channels);
        const Real *b = at(given.b, place, size), *c = at(given.c, place, size);
        for (Index d = 0; d < channels; ++d) drive[d] = delta[d] * u[d];
        for (Index n = 0; n < size; ++n) {
            const Index k = n * channels;
            update(delta, at(given.a, n, channels), drive, b[n], before + k, after + k);
            if (y) add(after + k, c[n], y);
        }
    }
    // `before` and `after` may be the same
    void update(const Real* __restrict delta, const Real* __restrict a, const Real* __restrict drive, Real b,
                const Real* before, Real* after) const {
#pragma omp simd
        for (Index d = 0; d < channels; ++d) after[d] = exponential(delta[d] * a[d]) * before[d] + drive[d] * b;
    }
    void add(const Real* __restrict h, Real c, Real* __restrict y) const {
        for (Index d = 0; d < channels; ++d) y[d] += h[d] * c;
    }

    void forward(Index row, Real* drive) const {
        Real* h = at(given.final, row, state);
        for (Index t = 0; t < given.steps; ++t) {
            const Index place = t * given.batch + row;
            Real* y = at(given.outputs, place, channels);
            std::fill(y, y + channels, Real(0));
            if (t % given.chunk == 0) std::copy(h, h + state, at(given.kept, t / given.chunk * given.batch + row, state));
            if (t >= length(row)) continue;
            if (is_start(place)) std::fill(h, h + state, Real(0));
            step(place, h, h, drive, y);
        }
    }

    // `states` is (2 chunk, N, D): the states before and after each step.
    void backward(Index row, Real* drive, Real* grad_drive, Real* states) const {
        Real* g = at(given.grad_h0, row, state);
        const Index end = length(row);
        for (Index first = (end - 1) / given.chunk * given.chunk; first >= 0; first -= given.chunk) {
            const Index last = std::min(end, first + given.chunk);
            const Real* h = at(given.kept, first / given.chunk * given.batch + row, state);
            for (Index t = first; t < last; ++t) {
                const Index place = t * given.batch + row;
                Real *before = states + 2 * (t - first) * state, *after = before + state;
                is_start(place) ? std::fill(before, before + state, Real(0))
                                : static_cast<void>(std::copy(h, h + state, before));
                step(place, before, after, drive, nullptr);
                h = after;
            }
            for (Index t = last - 1; t >= first; --t) {
                const Real* before = states + 2 * (t - first) * state;
                step_backward(t * given.batch + row, row, before, before + state, g, drive, grad_drive);
            }
        }
    }

    // Given the gradient g of the state after a step, adds all others, and replaces g by that of the state before it.
    void step_backward(Index place, Index row, const Real* before, const Real* after, Real* g, Real* drive,
                       Real* grad_drive) const {
        const Real *u = at(given.u, place, channels), *delta = at(given.delta, place, channels);
        Real *grad_u = at(given.grad_u, place, channels), *grad_delta = at(given.grad_delta, place, channels);
        for (Index d = 0; d < channels; ++d) {
            drive[d] = delta[d] * u[d];
            grad_drive[d] = 0;
        }
        for (Index n = 0; n < size; ++n) {
            const Index k = n * channels;
            of_number(at(given.grad_outputs, place, channels), delta, at(given.a, n, channels), drive,
                      *(at(given.b, place, size) + n), *(at(given.c, place, size) + n), before + k, after + k, g + k,
                      grad_drive, grad_delta, at(given.grad_a, row * size + n, channels),
                      *(at(given.grad_b, place, size) + n), *(at(given.grad_c, place, size) + n));
        }
        for (Index d = 0; d < channels; ++d) {
            grad_u[d] = grad_drive[d] * delta[d];
            grad_delta[d] += grad_drive[d] * u[d];
        }
        if (is_start(place)) std::fill(g, g + state, Real(0));
    }

    // The same for one of the N numbers of each channel.
    void of_number(const Real* __restrict grad_y, const Real* __restrict delta, const Real* __restrict a,
                   const Real* __restrict drive, Real b, Real c, const Real* __restrict before,
                   const Real* __restrict after, Real* __restrict g, Real* __restrict grad_drive,
                   Real* __restrict grad_delta, Real* __restrict grad_a, Real& grad_b, Real& grad_c) const {
        Real sum_b = 0, sum_c = 0;
#pragma omp simd reduction(+ : sum_b, sum_c)
        for (Index d = 0; d < channels; ++d) {
            const Real grad = g[d] + grad_y[d] * c;
            sum_c += grad_y[d] * after[d];
            sum_b += grad * drive[d];
            grad_drive[d] += grad * b;
            const Real passed = grad * exponential(delta[d] * a[d]);
            const Real exponent = passed * before[d];  // the gradient of delta * a
            grad_delta[d] += exponent * a[d];
            grad_a[d] += exponent * delta[d];
            g[d] = passed;
        }
        grad_b = sum_b;
        grad_c = sum_c;
    }
};

inline Index buffer(const Arguments& given) {
    return 2 * given.channels + 2 * given.chunk * given.channels * given.size;
}

template <class Real> void run(const Arguments& given, bool backward) {
    const Scan<Real> scan{given};
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        Real* own = static_cast<Real*>(given.workspace) + thread * buffer(given);
        for (Index row = thread; row < given.batch; row += given.threads)
            backward ? scan.backward(row, own, own + given.channels, own + 2 * given.channels) : scan.forward(row, own);
    }
}

}  // namespace selective_scan

extern "C" {
Index selective_scan_arguments_size() { return sizeof(selective_scan::Arguments); }
Index selective_scan_block() { return 1; }  // rows that go through a step together
Index selective_scan_workspace(const selective_scan::Arguments* given, Index) {
    return given->threads * selective_scan::buffer(*given);
}
void selective_scan_run(const selective_scan::Arguments* given, Index is_double, Index backward) {
    is_double ? selective_scan::run<double>(*given, backward) : selective_scan::run<float>(*given, backward);
}
}
