// External memories with slots and a controller; see `gyral.ops.slot_memory`.
//
// The rows of a batch go through all steps in blocks, for the products of the controller. A record of each step keeps
// the state of a row after it and what else backward needs. Backward overwrites saved values with gradients.

#include "gated/gated.hpp"
#include "slot_memory/dnc.hpp"
#include "slot_memory/ntm.hpp"

namespace slot_memory {

// Pointers are to Real unless noted otherwise, and null for absent tensors.
// N is the size of h, G that of the gates of the controller, V that of what their product reads: h, if the controller
// is recurrent, and the read vectors (R W). A state of S numbers is these V numbers and then the rest: the state of the
// memory and, of an LSTM, c (N). K numbers are the outputs of the controller for the memory.
struct Arguments {
    Index steps, batch, hidden_size, memory, controller, slots, width, read_heads, write_heads, max_shift, kept_steps,
        threads;
    void* parts;              // (T, B, G); after forward: values for backward; after backward: the gradient
    void* w;                  // (G, V)
    void* interface_weight;   // (K, N)
    void* interface_bias;     // (K)
    void* seen;               // (T, B, V): what the product reads
    void* interface;          // (T, B, K); after backward: the gradient
    void* records;            // (kept steps, B, slot_memory_record_size(...)); kept steps: T, or 2 without backward
    void* state;              // (B, S) before the first step
    void* write;              // bool (T, B): where the memory may be written
    void* lengths;            // Index (B)
    void* starts;             // bool (T, B): whether a row is reset to `fresh`
    void* fresh;              // (S), given with `starts`
    void* outputs;            // (T, B, N + R W): h and the read vectors
    void* final_state;        // (B, S)
    void* workspace;          // slot_memory_workspace(...) elements
    void* grad_outputs;       // (T, B, N + R W), or null
    void* grad_state;         // (B, S): gradient of the final state, on return that of the initial one
    void* grad_fresh;         // (blocks, S) zeros: one partial sum per block of rows; or null
};

namespace {

enum Controller { LSTM, FEEDFORWARD_TANH, FEEDFORWARD_RELU };
enum Kind { NTM, DNC };

template <class Real, class Memory> struct Scan {
    const Arguments& given;
    const Memory memory;
    const Index steps, batch, hidden, gates, offset, seen, cell, outputs, controlled, rest;
    const Index rest_row, record, products_row, carry_row;  // rows of whole registers, whose loads cross no cache line

    explicit Scan(const Arguments& a)
        : given(a), memory(a), steps(a.steps), batch(a.batch), hidden(a.hidden_size),
          gates(recurrent() ? 4 * hidden : hidden), offset(recurrent() ? 0 : hidden),
          seen(hidden - offset + a.read_heads * a.width), cell(memory.state_size()),
          outputs(hidden + a.read_heads * a.width), controlled(memory.outputs_size()),
          rest(cell + (recurrent() ? hidden : 0)), rest_row(padded<Real>(rest)),
          record(rest_row + padded<Real>(memory.trace_size())),
          products_row(std::max(padded<Real>(gates), padded<Real>(controlled))),
          carry_row(padded<Real>(offset) + padded<Real>(std::max(hidden, seen))) {}

    bool recurrent() const { return given.controller == LSTM; }
    Real* at(void* base, Index offset = 0) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Real* vector(void* base, Index size, Index t, Index row) const { return at(base, (t * batch + row) * size); }
    Index length(Index row) const { return given.lengths ? static_cast<Index*>(given.lengths)[row] : steps; }
    bool flag(void* mask, Index t, Index row) const { return static_cast<const bool*>(mask)[t * batch + row]; }
    bool begins(Index t, Index row) const { return given.starts && flag(given.starts, t, row); }
    bool writes(Index t, Index row) const { return !given.write || flag(given.write, t, row); }
    Index end_of_active(Index t, Index first, Index last) const {
        while (last > first && t >= length(last - 1)) --last;
        return last;
    }

    Real* record_at(Index t, Index row) const { return vector(given.records, record, t % given.kept_steps, row); }
    const Real* initial(Index t, Index row) const {
        return begins(t, row) ? at(given.fresh) : at(given.state, row * (seen + rest));
    }
    bool is_first(Index t, Index row) const { return t == 0 || begins(t, row); }
    const Real* seen_before(Index t, Index row) const {
        return is_first(t, row) ? initial(t, row) : vector(given.outputs, outputs, t - 1, row) + offset;
    }
    const Real* rest_before(Index t, Index row) const {
        return is_first(t, row) ? initial(t, row) + seen : record_at(t - 1, row);
    }

    Index blocks() const { return (batch + BLOCK - 1) / BLOCK; }
    Index rows_a_thread() const { return (blocks() + given.threads - 1) / given.threads * BLOCK; }
    Index weight_bytes() const { return (gates * seen + controlled * hidden) * Index(sizeof(Real)); }
    Index rows_together() const { return rows_at_once(weight_bytes(), rows_a_thread()); }
    Index packed_weight() const { return std::max(seen * padded<Real>(gates), gates * padded<Real>(seen)); }
    Index packed_size() const {
        return packed_weight() + std::max(hidden * padded<Real>(controlled), controlled * padded<Real>(hidden));
    }
    // elements of workspace per thread: products and gradients of all rows, and values of a single row
    Index temporaries() const {
        return rows_together() * (products_row + carry_row + rest_row) +
               padded<Real>(memory.scratch_size()) + padded<Real>(controlled);
    }
    Index workspace() const { return packed_size() + given.threads * temporaries(); }

    // ---------------------------------------------------------------- the controller

    gated::Row<Real> controller(Index t, Index row) const {
        return {hidden,  1,       vector(given.parts, gates, t, row), nullptr,
                nullptr, nullptr, rest_before(t, row) + cell,         Real(0)};
    }

    void control(Index t, Index row, const Real* product) const {
        Real *h = vector(given.outputs, outputs, t, row), *c = record_at(t, row) + cell;
        if (recurrent()) return gated::Lstm::forward(controller(t, row), product, h, c);
        if (given.controller == FEEDFORWARD_TANH)
            return gated::Elman<Tanh>::forward(controller(t, row), product, h, c);
        gated::Elman<Relu>::forward(controller(t, row), product, h, c);
    }

    // `gradient` is that of h, on return zeros, and `grad_cell` that of c.
    void control_backward(Index t, Index row, Real* gradient, Real* grad_cell) const {
        const auto values = controller(t, row);
        Real* none = nullptr;
        if (recurrent()) return gated::Lstm::backward<Real>(values, none, gradient, grad_cell, none, none);
        if (given.controller == FEEDFORWARD_TANH)
            return gated::Elman<Tanh>::backward<Real>(values, none, gradient, none, none, none);
        gated::Elman<Relu>::backward<Real>(values, none, gradient, none, none, none);
    }

    // ---------------------------------------------------------------- forward

    void forward_step(Index t, Index first, Index last, const Real* packed, Real* products, Real* scratch) const {
        const Index active = end_of_active(t, first, last);
        for (Index row = first; row < last; ++row) {
            Real* from = vector(given.seen, seen, t, row);
            if (t < length(row))
                std::memcpy(from, seen_before(t, row), seen * sizeof(Real));
            else
                std::fill_n(from, seen, Real(0));  // a factor of the gradient of the weight
        }
        multiply(active - first, vector(given.seen, seen, t, first), seen, packed, seen, gates, products, products_row,
                 false);
        for (Index row = first; row < last; ++row) {
            if (t < length(row))
                control(t, row, products + (row - first) * products_row);
            else
                std::fill_n(vector(given.outputs, outputs, t, row), outputs, Real(0));
        }
        multiply(active - first, vector(given.outputs, outputs, t, first), outputs, packed + packed_weight(), hidden,
                 controlled, products, products_row, false);
        for (Index row = first; row < active; ++row) {
            if (t >= length(row)) continue;
            Real *__restrict emitted = vector(given.interface, controlled, t, row), *own = record_at(t, row);
            const Real *__restrict product = products + (row - first) * products_row,
                       *__restrict bias = at(given.interface_bias);
            for (Index i = 0; i < controlled; ++i) emitted[i] = product[i] + bias[i];
            Real* output = vector(given.outputs, outputs, t, row);
            memory.forward(emitted, rest_before(t, row), own, output + hidden, own + rest_row, writes(t, row), scratch);
            if (t == length(row) - 1) {
                Real* final = at(given.final_state, row * (seen + rest));
                std::memcpy(final, output + offset, seen * sizeof(Real));
                std::memcpy(final + seen, own, rest * sizeof(Real));
            }
        }
    }

    // ---------------------------------------------------------------- backward

    // Row by row, `carries` has the gradients of h and of the read vectors, `rests` those of the rest of the state.
    void backward_step(Index t, Index first, Index last, const Real* packed, Real* carries, Real* rests,
                       Real* scratch) const {
        const Index active = end_of_active(t, first, last);
        Real* grad_interface = scratch + padded<Real>(memory.scratch_size());
        for (Index row = first; row < last; ++row) {
            Real *emitted = vector(given.interface, controlled, t, row), *carry = carries + (row - first) * carry_row,
                 *remaining = rests + (row - first) * rest_row, *own = record_at(t, row);
            if (t >= length(row)) {
                std::fill_n(vector(given.parts, gates, t, row), gates, Real(0));
                std::fill_n(emitted, controlled, Real(0));
                continue;
            }
            if (t == length(row) - 1) {
                const Real* gradient = at(given.grad_state, row * (seen + rest));
                std::memcpy(carry + offset, gradient, seen * sizeof(Real));
                std::memcpy(remaining, gradient + seen, rest * sizeof(Real));
            }
            if (given.grad_outputs) accumulate(carry, Real(1), vector(given.grad_outputs, outputs, t, row), outputs);
            memory.backward(emitted, rest_before(t, row), own, carry + hidden, own + rest_row, writes(t, row),
                            remaining, grad_interface, scratch);
            std::memcpy(emitted, grad_interface, controlled * sizeof(Real));
        }
        // beyond the columns of h, the padding adds to the gradient of the read vectors, which has been used
        multiply(active - first, vector(given.interface, controlled, t, first), controlled, packed + packed_weight(),
                 controlled, hidden, carries, carry_row, true);
        for (Index row = first; row < active; ++row)
            if (t < length(row))
                control_backward(t, row, carries + (row - first) * carry_row, rests + (row - first) * rest_row + cell);
        multiply(active - first, vector(given.parts, gates, t, first), gates, packed, gates, seen, carries + offset,
                 carry_row, false);
        for (Index row = first; row < active; ++row) {
            if (t >= length(row) || !begins(t, row)) continue;
            Real *carry = carries + (row - first) * carry_row + offset, *remaining = rests + (row - first) * rest_row;
            if (Real* sum = at(given.grad_fresh, row / BLOCK * (seen + rest))) {
                accumulate(sum, Real(1), carry, seen);
                accumulate(sum + seen, Real(1), remaining, rest);
            }
            std::fill_n(carry, seen, Real(0));
            std::fill_n(remaining, rest, Real(0));
        }
    }

    void backward(Index first, Index last, const Real* packed, Real* carries, Real* rests, Real* scratch) const {
        std::fill_n(carries, (last - first) * carry_row, Real(0));
        for (Index t = steps - 1; t >= 0; --t) backward_step(t, first, last, packed, carries, rests, scratch);
        for (Index row = first; row < last; ++row) {
            Real* gradient = at(given.grad_state, row * (seen + rest));
            std::memcpy(gradient, carries + (row - first) * carry_row + offset, seen * sizeof(Real));
            std::memcpy(gradient + seen, rests + (row - first) * rest_row, rest * sizeof(Real));
        }
    }

    void run(bool is_backward) const {
        Real *packed = at(given.workspace), *packed_interface = packed + packed_weight();
        const Real *weight = at(given.w), *interface_weight = at(given.interface_weight);
        if (is_backward) {
            pack(weight, seen, 1, gates, seen, packed);
            pack(interface_weight, hidden, 1, controlled, hidden, packed_interface);
        } else {
            pack(weight, 1, seen, seen, gates, packed);
            pack(interface_weight, 1, hidden, hidden, controlled, packed_interface);
        }
        for_all_rows(batch, rows_together(), given.threads, packed + packed_size(), temporaries(),
                     [&](Index first, Index last, Real* products) {
                         Real *carries = products + rows_together() * products_row,
                              *rests = carries + rows_together() * carry_row,
                              *scratch = rests + rows_together() * rest_row;
                         if (is_backward) return backward(first, last, packed, carries, rests, scratch);
                         for (Index t = 0; t < steps; ++t) forward_step(t, first, last, packed, products, scratch);
                     });
    }
};

// Calls work(scan) for the memory and the dtype of a call.
template <class Work> auto with_scan(const Arguments& given, bool is_double, Work work) {
    if (given.memory == NTM)
        return is_double ? work(Scan<double, Ntm<double>>(given)) : work(Scan<float, Ntm<float>>(given));
    return is_double ? work(Scan<double, Dnc<double>>(given)) : work(Scan<float, Dnc<float>>(given));
}

}  // namespace
}  // namespace slot_memory

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index slot_memory_arguments_size() { return sizeof(slot_memory::Arguments); }
Index slot_memory_block() { return BLOCK; }

Index slot_memory_record_size(const slot_memory::Arguments* given, Index is_double) {
    return slot_memory::with_scan(*given, is_double, [](const auto& scan) { return scan.record; });
}

Index slot_memory_workspace(const slot_memory::Arguments* given, Index is_double) {
    return slot_memory::with_scan(*given, is_double, [](const auto& scan) { return scan.workspace(); });
}

void slot_memory_run(const slot_memory::Arguments* given, Index is_double, Index backward) {
    slot_memory::with_scan(*given, is_double, [&](const auto& scan) { scan.run(backward); });
}
}
