// The loop of recurrences whose state is a hidden vector and a matrix, the memory; see `gyral.ops.fast_weights`.
//
// A cell is a class with `forward` and `backward` for one row and one step, derived from `Sequence`. Matrices of the
// workspace, and those in `memories`, have rows that are padded with zeros to whole registers; so have the vectors
// that a cell gets.

#pragma once

#include "native/run.hpp"
#include "native/vectors.hpp"

namespace fast_weights {

// Pointers are to Real unless noted otherwise, and null for absent tensors.
struct Arguments {
    Index steps, batch, size, parts_size, weight_rows, chunk, inner_steps, kind, threads;
    double keep_mean;         // zoneout in evaluation; 0: none
    double rate;              // of fast weights
    double epsilon;           // of layer normalization
    void* parts;              // (T, B, G); after forward: values for backward; after backward: the gradient
    void* w_hh;               // (R, N); the product is added to the first R columns of the parts
    void* norm;               // (2, N), gain and bias
    void* h0;                 // (B, N) before the first step
    void* a0;                 // (B, N, N) before the first step; null for zeros
    void* decays;             // (chunk + 1), powers of the decay of fast weights
    void* keep;               // (T, B, N)
    void* drop;               // (B, N): factors of the hidden vector in the product
    void* lengths;            // Index (B)
    void* starts;             // bool (T, B): whether a row is reset to zeros before step t
    void* outputs;            // (T, B, N)
    void* settled;            // (T, B, S, N): inputs of the normalizations of fast weights
    void* memories;           // (chunks, B, N, padded N): the memory before the first step of each chunk of steps
    void* final_hidden;       // (B, N)
    void* final_memory;       // (B, N, N)
    void* workspace;          // fast_weights_workspace(...) elements
    void* grad_outputs;       // (T, B, N), or null
    void* grad_h0;            // (B, N): gradient of the final hidden vector, on return that of the initial one
    void* grad_final_memory;  // (B, N, N), or null
    void* grad_a0;            // (B, N, N), or null if it is not needed
    void* grad_norm;          // (blocks, 2, N) zeros: one partial sum per block of rows
    void* grad_b;             // (blocks, G) zeros, likewise
};

namespace {

template <class Real> struct Sequence {
    const Arguments& given;
    const Index steps, batch, size, width, parts_size, chunk;  // width: padded size

    explicit Sequence(const Arguments& a)
        : given(a), steps(a.steps), batch(a.batch), size(a.size), width(padded<Real>(size)), parts_size(a.parts_size),
          chunk(a.chunk) {}

    Real* at(void* base, Index offset = 0) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Real* vector(void* base, Index count, Index t, Index row) const { return at(base, (t * batch + row) * count); }
    Real* parts(Index t, Index row) const { return vector(given.parts, parts_size, t, row); }
    // The memory before the first step of the chunk of step t.
    Real* saved_memory(Index t, Index row) const { return vector(given.memories, size * width, t / chunk, row); }
    Index length(Index row) const { return given.lengths ? static_cast<Index*>(given.lengths)[row] : steps; }
    bool begins(Index t, Index row) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * batch + row];
    }

    // The hidden vector before step t, padded.
    void read_hidden(Index t, Index row, Real* out) const {
        const bool zero = begins(t, row);
        const Real* from = t == 0 ? vector(given.h0, size, 0, row) : vector(given.outputs, size, t - 1, row);
        if (!zero) std::memcpy(out, from, size * sizeof(Real));
        std::fill(out + (zero ? 0 : size), out + width, Real(0));
    }

    // The matrix of a row of a tensor (B, N, N), padded.
    void read_matrix(void* tensor, Index row, Real* out) const {
        const Real* from = at(tensor, row * size * size);
        for (Index i = 0; i < size; ++i, out += width, from += size) {
            std::memcpy(out, from, size * sizeof(Real));
            std::fill(out + size, out + width, Real(0));
        }
    }

    void write_matrix(const Real* matrix, void* tensor, Index row) const {
        Real* to = at(tensor, row * size * size);
        for (Index i = 0; i < size; ++i) std::memcpy(to + i * size, matrix + i * width, size * sizeof(Real));
    }
};

// `kept` are the elements of workspace of one row that the steps share, `scratch` those of one step.
template <class Real, class Cell> struct Scan : Cell {
    using Cell::at, Cell::batch, Cell::given, Cell::parts, Cell::parts_size, Cell::size, Cell::steps, Cell::vector,
        Cell::width;
    const Index product, products_row;
    const Index temporaries;  // elements of workspace per thread

    explicit Scan(const Arguments& a)
        : Cell(a), product(a.weight_rows), products_row(padded<Real>(product)),
          temporaries(BLOCK * (products_row + 3 * width + this->kept()) + width + this->scratch()) {}

    struct Buffers {  // the parts of a thread's workspace
        Real *carry, *products, *old, *entering, *kept, *direct, *scratch;
    };
    Buffers buffers(Real* buffer) const {
        Real *products = buffer + BLOCK * width, *old = products + BLOCK * products_row, *entering = old + BLOCK * width,
             *kept = entering + BLOCK * width, *direct = kept + BLOCK * this->kept();
        return {buffer, products, old, entering, kept, direct, direct + width};
    }

    Index rows_together() const { return BLOCK; }
    Index outputs_width() const { return size; }
    Index packed_size() const { return std::max(product * width, size * products_row); }
    void pack_weight(bool backward, Real* packed) const {
        if (backward)
            pack(at(given.w_hh), size, 1, product, size, packed);
        else
            pack(at(given.w_hh), 1, size, size, product, packed);
    }

    void forward_step(Index t, Index first, Index last, const Real* packed, Real* buffer) const {
        const Buffers own = buffers(buffer);
        Real* entering = given.drop ? own.entering : own.old;
        for (Index row = first; row < last; ++row) {
            Real* old = own.old + (row - first) * width;
            this->read_hidden(t, row, old);
            if (!given.drop) continue;
            const Real* drop = vector(given.drop, size, 0, row);
            for (Index i = 0; i < size; ++i) entering[(row - first) * width + i] = drop[i] * old[i];
        }
        multiply(last - first, entering, width, packed, size, product, own.products, products_row, false);
        for (Index row = first; row < last; ++row) {
            const Index place = row - first;
            Real *out = vector(given.outputs, size, t, row), *old = own.old + place * width;
            if (t >= this->length(row)) {
                std::fill_n(out, size, Real(0));
                continue;
            }
            Cell::forward(t, row, old, own.products + place * products_row, out, own.kept + place * this->kept(),
                          own.scratch);
            zone_out(out, old, vector(given.keep, size, t, row), Real(given.keep_mean), size);
            if (t == this->length(row) - 1)
                std::memcpy(vector(given.final_hidden, size, 0, row), out, size * sizeof(Real));
        }
    }

    void begin_backward(Index first, Index last, Real* buffer) const {
        std::fill_n(buffers(buffer).carry, (last - first) * width, Real(0));
    }

    // `outer`: gradients of the outputs with row stride `outer_row`, or null.
    void backward_step(Index t, Index first, Index last, const Real* outer, Index outer_row, const Real* packed,
                       Real* buffer) const {
        const Buffers own = buffers(buffer);
        for (Index row = first; row < last; ++row) {
            const Index place = row - first;
            Real *carry = own.carry + place * width, *old = own.old + place * width;
            if (t >= this->length(row)) {
                std::fill_n(parts(t, row), parts_size, Real(0));
                continue;
            }
            if (t == this->length(row) - 1)
                std::memcpy(carry, vector(given.grad_h0, size, 0, row), size * sizeof(Real));
            if (outer)
                for (Index i = 0; i < size; ++i) carry[i] += outer[place * outer_row + i];
            const Real* keep = vector(given.keep, size, t, row);
            const bool zoned = keep || given.keep_mean != 0;
            if (zoned) zone_out_backward(carry, own.direct, keep, Real(given.keep_mean), size);
            this->read_hidden(t, row, old);
            Cell::backward(t, row, old, carry, own.kept + place * this->kept(), own.scratch,
                           at(given.grad_norm, row / BLOCK * 2 * size));
            Real *sum = at(given.grad_b, row / BLOCK * parts_size), *part = parts(t, row);
#pragma omp simd
            for (Index i = 0; i < parts_size; ++i) sum[i] += part[i];
            if (zoned)
                for (Index i = 0; i < size; ++i) carry[i] += own.direct[i];
        }
        Real* entering = given.drop ? own.entering : own.carry;
        multiply(last - first, parts(t, first), parts_size, packed, product, size, entering, width, !given.drop);
        for (Index row = first; row < last; ++row) {
            const Index place = (row - first) * width;
            if (given.drop) {
                const Real* drop = vector(given.drop, size, 0, row);
                for (Index i = 0; i < size; ++i) own.carry[place + i] += drop[i] * entering[place + i];
            }
            if (t < this->length(row) && this->begins(t, row)) std::fill_n(own.carry + place, width, Real(0));
        }
    }

    void end_backward(Index first, Index last, Real* buffer) const {
        for (Index row = first; row < last; ++row)
            std::memcpy(vector(given.grad_h0, size, 0, row), buffers(buffer).carry + (row - first) * width,
                        size * sizeof(Real));
    }
};

}  // namespace
}  // namespace fast_weights
