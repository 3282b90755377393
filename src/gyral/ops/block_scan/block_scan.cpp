// A linear recurrence with a block-diagonal matrix, forward and backward; see gyral/ops/block_scan/__init__.py.

#include "native/common.hpp"

namespace block_scan {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, size, block;  // T, B, N, b
    void* change;        // (T, B, N, b)
    void* values;        // (T, B, N), or (1, B, N) if only the first step can be a first one
    void* h0;            // (B, N), the state before the first step
    void* is_first;      // (T, B) bool
    void* lengths;       // (B) Index
    void* outputs;       // (T, B, N)
    Index threads;
    void* workspace;
    // of the forward pass
    void* final;         // (B, N)
    // of the backward pass
    void* grad_outputs;  // (T, B, N)
    void* grad_h0;       // (B, N): before it the gradient of the final state
    void* grad_change;   // (T, B, N, b)
    void* grad_values;   // like values, zeros
};

template <class Real> struct Scan {
    const Arguments& given;
    const Index size = given.size, block = given.block;

    Real* at(void* base, Index place, Index count) const { return static_cast<Real*>(base) + place * count; }
    Index length(Index row) const { return given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps; }
    bool is_first(Index place) const { return static_cast<const bool*>(given.is_first)[place]; }

    // Calls work(first, count) for each block, with its first unit and the number of its units: a constant for a whole
    // block of the default size, so that compilers unroll the loops over it.
    template <class Work> void for_blocks(Work work) const {
        for (Index first = 0; first < size; first += block) {
            const Index count = std::min(block, size - first);
            if (block == 4 && count == 4)
                work(first, std::integral_constant<Index, 4>());
            else
                work(first, count);
        }
    }

    void forward(Index row) const {
        const Real* before = at(given.h0, row, size);
        for (Index t = 0; t < given.steps; ++t) {
            const Index place = t * given.batch + row;
            Real* out = at(given.outputs, place, size);
            if (t >= length(row)) {
                std::fill(out, out + size, Real(0));
                continue;
            }
            if (is_first(place)) {
                std::copy_n(at(given.values, place, size), size, out);
            } else {
                const Real* change = at(given.change, place, size * block);
                for_blocks([&](Index first, auto count) {
                    for (Index i = first; i < first + count; ++i) {
                        Real sum = before[i];
                        for (Index j = 0; j < count; ++j) sum += change[i * block + j] * before[first + j];
                        out[i] = sum;
                    }
                });
            }
            before = out;
        }
        std::copy_n(before, size, at(given.final, row, size));
    }

    void backward(Index row, Real* sums) const {
        Real* grad = at(given.grad_h0, row, size);
        for (Index t = given.steps - 1; t >= 0; --t) {
            const Index place = t * given.batch + row;
            Real* grad_change = at(given.grad_change, place, size * block);
            if (t >= length(row)) {
                std::fill(grad_change, grad_change + size * block, Real(0));
                continue;
            }
            if (given.grad_outputs) {
                const Real* outer = at(given.grad_outputs, place, size);
                for (Index i = 0; i < size; ++i) grad[i] += outer[i];
            }
            if (is_first(place)) {
                std::copy_n(grad, size, at(given.grad_values, place, size));
                std::fill(grad, grad + size, Real(0));
                std::fill(grad_change, grad_change + size * block, Real(0));
                continue;
            }
            const Real* before = t ? at(given.outputs, place - given.batch, size) : at(given.h0, row, size);
            const Real* change = at(given.change, place, size * block);
            std::copy(grad, grad + size, sums);
            for_blocks([&](Index first, auto count) {
                for (Index i = first; i < first + count; ++i) {
                    const Real outer = grad[i];
                    Real* __restrict row = grad_change + i * block;
                    for (Index j = 0; j < count; ++j) row[j] = outer * before[first + j];
                    for (Index j = 0; j < count; ++j) sums[first + j] += outer * change[i * block + j];
                    std::fill_n(row + count, block - count, Real(0));
                }
            });
            std::copy(sums, sums + size, grad);
        }
    }

    void run(bool is_backward) const {
#pragma omp parallel for num_threads(given.threads) schedule(static)
        for (Index thread = 0; thread < given.threads; ++thread)
            for (Index row = thread; row < given.batch; row += given.threads)
                is_backward ? backward(row, at(given.workspace, thread, size)) : forward(row);
    }
};

}  // namespace block_scan

extern "C" {
Index block_scan_arguments_size() { return sizeof(block_scan::Arguments); }
Index block_scan_block() { return 1; }  // rows that go through a step together
Index block_scan_workspace(const block_scan::Arguments* given, Index) { return given->threads * given->size; }
void block_scan_run(const block_scan::Arguments* given, Index is_double, Index backward) {
    is_double ? block_scan::Scan<double>{*given}.run(backward) : block_scan::Scan<float>{*given}.run(backward);
}
}
