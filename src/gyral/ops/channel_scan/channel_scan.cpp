// A constant diagonal state space for each channel, forward and backward; see gyral/ops/channel_scan/__init__.py.
//
// A tile of channels of one row runs through all steps alone, so that its state stays in the cache. The forward pass
// keeps the state before every chunk of steps. The backward pass runs each chunk forward again.

#include "native/common.hpp"

namespace channel_scan {

constexpr Index TILE = 16;  // channels of a tile

// Pointers are to Real unless another type is given, and null for absent tensors. States are packed: (tiles, 2, P, TILE).
struct Arguments {
    Index steps, batch, channels, size;  // T, B, N, P
    Index chunk;         // steps between the states that are kept
    void* x;             // (T, B, N)
    void* decay;         // packed
    void* readout;       // packed
    void* lengths;       // (B) Index
    void* starts;        // (T, B) bool
    void* kept;          // (chunks, B, packed), the states before the first step of each chunk
    Index threads;
    void* workspace;
    // of the forward pass
    void* final;         // (B, packed): before it the state before the first step, after it the last one
    void* outputs;       // (T, B, N)
    // of the backward pass
    void* grad_outputs;  // (T, B, N)
    void* grad_h0;       // (B, packed): before it the gradient of the final state
    void* grad_x;        // (T, B, N) zeros
    void* grad_decay;    // (B, packed) zeros: a partial sum for each row
    void* grad_readout;  // (B, packed) zeros: a partial sum for each row
};

// The scan of one tile of channels of one row.
template <class Real> struct Tile {
    const Arguments& given;
    const Index row, tile;
    const Index tiles = (given.channels + TILE - 1) / TILE, half = given.size * TILE, state = 2 * half;
    const Index first = tile * TILE, width = std::min(TILE, given.channels - first);  // channels of the tensors
    const Index length = given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps;
    const Real* a = static_cast<const Real*>(given.decay) + tile * state;
    const Real* w = static_cast<const Real*>(given.readout) + tile * state;

    Real* packed(void* base, Index outer = 0) const {
        return static_cast<Real*>(base) + ((outer * given.batch + row) * tiles + tile) * state;
    }
    Real* values(void* base, Index t) const {
        return static_cast<Real*>(base) + (t * given.batch + row) * given.channels + first;
    }
    bool is_start(Index t) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * given.batch + row];
    }
    void read(const Real* from, Real* vector) const {
        for (Index i = 0; i < TILE; ++i) vector[i] = i < width ? from[i] : Real(0);
    }

    // Writes the state after a step, which may be in the place of that before it, and y if it is not null.
    void step(Index t, const Real* before, Real* after, Real* y) const {
        Real x[TILE], sum[TILE] = {};
        read(values(given.x, t), x);
        for (Index k = 0; k < half; k += TILE) {
            Real real[TILE], imag[TILE];
            for (Index i = 0; i < TILE; ++i) {
                real[i] = a[k + i] * before[k + i] - a[half + k + i] * before[half + k + i] + x[i];
                imag[i] = a[k + i] * before[half + k + i] + a[half + k + i] * before[k + i];
                sum[i] += w[k + i] * real[i] - w[half + k + i] * imag[i];
            }
            std::copy(real, real + TILE, after + k);
            std::copy(imag, imag + TILE, after + half + k);
        }
        if (y) std::copy(sum, sum + width, y);
    }

    void forward() const {
        Real* h = packed(given.final);
        for (Index t = 0; t < given.steps; ++t) {
            if (t % given.chunk == 0) std::copy(h, h + state, packed(given.kept, t / given.chunk));
            Real* y = values(given.outputs, t);
            if (t >= length) {
                std::fill(y, y + width, Real(0));
                continue;
            }
            if (is_start(t)) std::fill(h, h + state, Real(0));
            step(t, h, h, y);
        }
    }

    // `states` is (2 chunk, state): the states before and after each step.
    void backward(Real* states) const {
        Real* g = packed(given.grad_h0);
        for (Index begin = (length - 1) / given.chunk * given.chunk; begin >= 0; begin -= given.chunk) {
            const Index end = std::min(length, begin + given.chunk);
            const Real* h = packed(given.kept, begin / given.chunk);
            for (Index t = begin; t < end; ++t) {
                Real *before = states + 2 * (t - begin) * state, *after = before + state;
                if (is_start(t))
                    std::fill(before, before + state, Real(0));
                else
                    std::copy(h, h + state, before);
                step(t, before, after, nullptr);
                h = after;
            }
            for (Index t = end - 1; t >= begin; --t) {
                const Real* before = states + 2 * (t - begin) * state;
                step_backward(t, before, before + state, g, packed(given.grad_decay), packed(given.grad_readout));
                if (is_start(t)) std::fill(g, g + state, Real(0));
            }
        }
    }

    // Given the gradient g of the state after a step, adds all others, and replaces g by that of the state before it.
    void step_backward(Index t, const Real* __restrict before, const Real* __restrict after, Real* __restrict g,
                       Real* __restrict grad_a, Real* __restrict grad_w) const {
        Real grad_y[TILE], grad_x[TILE] = {};
        read(values(given.grad_outputs, t), grad_y);
        for (Index k = 0; k < half; k += TILE) {
            const Index j = half + k;
            Real real[TILE], imag[TILE];
            for (Index i = 0; i < TILE; ++i) {
                real[i] = g[k + i] + grad_y[i] * w[k + i];
                imag[i] = g[j + i] - grad_y[i] * w[j + i];
                grad_x[i] += real[i];
            }
            for (Index i = 0; i < TILE; ++i) {
                grad_w[k + i] += grad_y[i] * after[k + i];
                grad_w[j + i] -= grad_y[i] * after[j + i];
            }
            for (Index i = 0; i < TILE; ++i) {
                grad_a[k + i] += real[i] * before[k + i] + imag[i] * before[j + i];
                grad_a[j + i] += imag[i] * before[k + i] - real[i] * before[j + i];
            }
            for (Index i = 0; i < TILE; ++i) {
                g[k + i] = a[k + i] * real[i] + a[j + i] * imag[i];
                g[j + i] = a[k + i] * imag[i] - a[j + i] * real[i];
            }
        }
        std::copy(grad_x, grad_x + width, values(given.grad_x, t));
    }
};

inline Index buffer(const Arguments& given) { return 4 * given.chunk * given.size * TILE; }

template <class Real> void run(const Arguments& given, bool backward) {
    const Index tiles = (given.channels + TILE - 1) / TILE;
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        Real* own = static_cast<Real*>(given.workspace) + thread * buffer(given);
        for (Index row = thread; row < given.batch; row += given.threads)
            for (Index tile = 0; tile < tiles; ++tile) {
                const Tile<Real> scan{given, row, tile};
                backward ? scan.backward(own) : scan.forward();
            }
    }
}

}  // namespace channel_scan

extern "C" {
Index channel_scan_arguments_size() { return sizeof(channel_scan::Arguments); }
Index channel_scan_block() { return 1; }  // rows that go through a step together
Index channel_scan_workspace(const channel_scan::Arguments* given, Index) {
    return given->threads * channel_scan::buffer(*given);
}
void channel_scan_run(const channel_scan::Arguments* given, Index is_double, Index backward) {
    is_double ? channel_scan::run<double>(*given, backward) : channel_scan::run<float>(*given, backward);
}
}
