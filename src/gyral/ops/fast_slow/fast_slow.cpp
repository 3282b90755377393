// Networks of several recurrences per step, some of which share a state; see `gyral.ops.fast_slow`.
//
// Every subcell is a recurrence of gated.hpp or rum.hpp. The input that a subcell reads from an earlier one of the same
// step is a further product before its own step, with weights packed once per call. A thread runs its rows through all
// subcells of a step.

#include <memory>
#include <vector>

#include "gated/gated.hpp"
#include "rum/rum.hpp"

namespace fast_slow {

// W is the width of the input, G that of the parts. In Python a subcell is a row of integers.
struct SubCell {
    Index is_rum;
    Index source;     // the earlier subcell whose outputs it reads, or -1
    Index state;      // index of its state, equal for subcells that share one
    Index projected;  // whether the parts already contain the projected input
    void* arguments;  // gated::Arguments or rum::Arguments
    void* weight_ih;  // (G, W), null without source
    void* bias;       // (G), or null
    void* mask;       // (T, B, W): factors of the input, or null
    void* grad_weight_ih;  // (G, W), null if there is no input
    void* grad_weight_hh;  // (R, H)
};

// cpu.py gives these arguments by name.
struct Arguments {
    Index steps, batch, count, threads, input_size;
    Index product_threads;  // for the gradients of the weights
    void* subcells;         // SubCell (count)
    void* input;            // (T, B, input_size)
    void* grad_outputs;     // (T, B, H) of the last subcell
    void* workspace;        // fast_slow_workspace(...) elements
};

namespace {

// The interface of a recurrence.
template <class Real> struct Recurrence {
    Index outputs_width, parts_width, packed_size, temporaries, weight_bytes, rows_a_thread;
    Index product_width, kept_width;  // of the recurrent product, and of its last columns, which are kept
    Real *outputs, *parts, *kept;     // `kept` is null without that part
    bool updates_last;  // whether it is the last one in a step that updates its state

    virtual ~Recurrence() = default;
    virtual void pack_weight(bool backward, Real* packed) const = 0;
    virtual void forward_step(Index t, Index first, Index last, const Real* packed, Real* buffer) const = 0;
    virtual void begin_backward(Index first, Index last, Real* buffer) const = 0;
    virtual void backward_step(Index t, Index first, Index last, const Real* outer, Index outer_row,
                               const Real* packed, Real* buffer) const = 0;
    virtual void end_backward(Index first, Index last, Real* buffer) const = 0;
    // The hidden vector of a row that the product of a step reads, in memory or in `buffer`.
    virtual const Real* read(Index t, Index row, Real* buffer) const = 0;
};

template <class Real, class Scan> struct RecurrenceOf final : Recurrence<Real> {
    Scan scan;

    explicit RecurrenceOf(const Scan& given) : scan(given) {
        this->outputs_width = scan.outputs_width();
        this->parts_width = scan.parts_width();
        this->packed_size = scan.packed_size();
        this->temporaries = scan.temporaries;
        this->weight_bytes = scan.weight_bytes();
        this->rows_a_thread = scan.rows_a_thread();
        this->outputs = scan.at(scan.given.outputs);
        this->parts = scan.at(scan.given.parts);
        this->product_width = scan.product_width();
        this->kept_width = scan.kept_width();
        this->kept = kept_of(scan.given);
        this->updates_last = scan.given.final_hidden || scan.given.grad_hidden;
    }
    void pack_weight(bool backward, Real* packed) const override { scan.pack_weight(backward, packed); }
    void forward_step(Index t, Index first, Index last, const Real* packed, Real* buffer) const override {
        scan.forward_step(t, first, last, packed, buffer);
    }
    void begin_backward(Index first, Index last, Real* buffer) const override {
        scan.begin_backward(first, last, buffer);
    }
    void backward_step(Index t, Index first, Index last, const Real* outer, Index outer_row, const Real* packed,
                       Real* buffer) const override {
        scan.backward_step(t, first, last, outer, outer_row, packed, buffer);
    }
    void end_backward(Index first, Index last, Real* buffer) const override { scan.end_backward(first, last, buffer); }
    const Real* read(Index t, Index row, Real* buffer) const override { return scan.read(t, row, buffer); }

    static Real* kept_of(const gated::Arguments& given) { return static_cast<Real*>(given.kept); }
    static Real* kept_of(const rum::Arguments&) { return nullptr; }
};

template <class Real> std::unique_ptr<Recurrence<Real>> make_recurrence(const SubCell& subcell) {
    const auto make = [](auto scan) -> std::unique_ptr<Recurrence<Real>> {
        return std::make_unique<RecurrenceOf<Real, decltype(scan)>>(scan);
    };
    if (subcell.is_rum) return rum::with_activation<Real>(*static_cast<const rum::Arguments*>(subcell.arguments), make);
    return gated::with_cell<Real>(*static_cast<const gated::Arguments*>(subcell.arguments), make);
}

template <class Real> struct Network {
    const Arguments& given;
    const SubCell* subcells;
    std::vector<std::unique_ptr<Recurrence<Real>>> recurrences;
    // offsets in the workspace: packed recurrent and input weights of each subcell
    std::vector<Index> packed_own, packed_input;
    // offsets in a thread's buffer: of each state, and of the gradient of each subcell's outputs (-1: none)
    std::vector<Index> buffer_offsets, grad_offsets;
    Index packed_size = 0, buffer_size = 0, products_offset = 0, masked_offset = 0, rows_a_thread = 0, weight_bytes = 0;
    Index products_size = 0;  // of a thread's buffer for the gradients of the weights

    explicit Network(const Arguments& a)
        : given(a), subcells(static_cast<const SubCell*>(a.subcells)), packed_own(a.count), packed_input(a.count),
          buffer_offsets(a.count, -1), grad_offsets(a.count, -1) {
        Index widest_parts = 0, widest_input = 0;
        for (Index i = 0; i < given.count; ++i) recurrences.push_back(make_recurrence<Real>(subcells[i]));
        rows_a_thread = recurrences[0]->rows_a_thread;
        for (Index i = 0; i < given.count; ++i) {
            const Recurrence<Real>& recurrence = *recurrences[i];
            packed_own[i] = packed_size;
            packed_size += recurrence.packed_size;
            weight_bytes += recurrence.weight_bytes;
            if (buffer_offsets[subcells[i].state] < 0) {
                buffer_offsets[subcells[i].state] = buffer_size;
                buffer_size += recurrence.temporaries;
            }
            if (subcells[i].source < 0) continue;
            const Index width = input_width(i), parts = recurrence.parts_width;
            packed_input[i] = packed_size;
            packed_size += std::max(width * padded<Real>(parts), parts * padded<Real>(width));
            weight_bytes += width * parts * Index(sizeof(Real));
            grad_offsets[subcells[i].source] = buffer_size;
            buffer_size += rows_a_thread * padded<Real>(width);
            widest_parts = std::max(widest_parts, padded<Real>(parts));
            widest_input = std::max(widest_input, width);
        }
        products_offset = buffer_size;
        masked_offset = products_offset + rows_a_thread * widest_parts;
        buffer_size = masked_offset + rows_a_thread * widest_input;
        for (Index i = 0; i < given.count; ++i) {
            const Recurrence<Real>& own = *recurrences[i];
            const Index rows = std::max(own.parts_width, own.kept_width) / given.product_threads + ROWS;
            const Index width = subcells[i].grad_weight_ih ? std::max(input_width(i), own.outputs_width) : own.outputs_width;
            products_size = std::max(products_size, (DEPTH + rows + 1) * padded<Real>(width));
        }
    }

    Index workspace() const {
        return std::max(packed_size + given.threads * buffer_size, given.product_threads * products_size);
    }
    Real* state_buffer(Index index, Real* buffer) const { return buffer + buffer_offsets[subcells[index].state]; }
    Index input_width(Index index) const {
        return subcells[index].projected ? given.input_size : recurrences[subcells[index].source]->outputs_width;
    }
    const Real* mask(Index index, Index t, Index row) const {
        const Real* masks = static_cast<const Real*>(subcells[index].mask);
        return masks ? masks + (t * given.batch + row) * input_width(index) : nullptr;
    }

    // The projected input of a subcell: the product with its input, if there is one, and the bias.
    void project_input(Index index, Index t, Index first, Index last, const Real* packed, Real* buffer) const {
        const Index rows = last - first, parts = recurrences[index]->parts_width;
        const Real* bias = static_cast<const Real*>(subcells[index].bias);
        Real* products = buffer + products_offset;
        const bool has_input = subcells[index].source >= 0;
        if (has_input) {
            const Index width = input_width(index);
            const Real* input = recurrences[subcells[index].source]->outputs + (t * given.batch + first) * width;
            if (const Real* factors = mask(index, t, first)) {
                Real* __restrict masked = buffer + masked_offset;
                for (Index i = 0; i < rows * width; ++i) masked[i] = factors[i] * input[i];
                input = masked;
            }
            multiply(rows, input, width, packed + packed_input[index], width, parts, products, padded<Real>(parts),
                     false);
        }
        for (Index row = 0; row < rows; ++row) {
            Real* __restrict out = recurrences[index]->parts + (t * given.batch + first + row) * parts;
            const Real* __restrict product = products + row * padded<Real>(parts);
            for (Index i = 0; i < parts; ++i) out[i] = (has_input ? product[i] : 0) + (bias ? bias[i] : 0);
        }
    }

    // The gradient of a subcell's input.
    void input_backward(Index index, Index t, Index first, Index last, const Real* packed, Real* buffer) const {
        const Index width = input_width(index), row_size = padded<Real>(width), parts = recurrences[index]->parts_width;
        Real* grad_input = buffer + grad_offsets[subcells[index].source];
        multiply(last - first, recurrences[index]->parts + (t * given.batch + first) * parts, parts,
                 packed + packed_input[index], parts, width, grad_input, row_size, false);
        if (const Real* factors = mask(index, t, first))
            for (Index row = 0; row < last - first; ++row)
                for (Index i = 0; i < width; ++i) grad_input[row * row_size + i] *= factors[row * width + i];
    }

    void forward(Index first, Index last, const Real* packed, Real* buffer) const {
        for (Index t = 0; t < given.steps; ++t)
            for (Index i = 0; i < given.count; ++i) {
                if (!subcells[i].projected) project_input(i, t, first, last, packed, buffer);
                recurrences[i]->forward_step(t, first, last, packed + packed_own[i], state_buffer(i, buffer));
            }
    }

    void backward(Index first, Index last, const Real* packed, Real* buffer) const {
        for (Index i = 0; i < given.count; ++i)
            if (recurrences[i]->updates_last) recurrences[i]->begin_backward(first, last, state_buffer(i, buffer));
        for (Index t = given.steps - 1; t >= 0; --t)
            for (Index i = given.count - 1; i >= 0; --i) {
                const Index width = recurrences[i]->outputs_width;
                const Real* outer = grad_offsets[i] < 0 ? nullptr : buffer + grad_offsets[i];
                Index outer_row = padded<Real>(width);
                if (i == given.count - 1) {
                    outer = static_cast<const Real*>(given.grad_outputs) + (t * given.batch + first) * width;
                    outer_row = width;
                }
                recurrences[i]->backward_step(t, first, last, outer, outer_row, packed + packed_own[i],
                                              state_buffer(i, buffer));
                if (subcells[i].source >= 0) input_backward(i, t, first, last, packed, buffer);
            }
        for (Index i = 0; i < given.count; ++i)
            if (recurrences[i]->updates_last) recurrences[i]->end_backward(first, last, state_buffer(i, buffer));
    }

    // The vector of one row that the input weights of a subcell multiply, in memory or in `buffer`.
    const Real* read_input(Index index, Index t, Index row, Real* buffer) const {
        const Index width = input_width(index);
        const Real* input = subcells[index].projected ? static_cast<const Real*>(given.input)
                                                      : recurrences[subcells[index].source]->outputs;
        input += (t * given.batch + row) * width;
        const Real* factors = mask(index, t, row);
        if (!factors) return input;
        for (Index i = 0; i < width; ++i) buffer[i] = factors[i] * input[i];
        return buffer;
    }

    // Writes rows `first` to `last` of the gradient of a weight, one sum over all rows of all steps. `gradient` is that
    // of the product, with row stride `width`; read(t, row, buffer) returns what the weight multiplies.
    template <class Read>
    void weight_gradient(const Real* gradient, Index width, Index first, Index last, Index columns, Real* out,
                         Real* buffer, Read read) const {
        const Index total = given.steps * given.batch, sums_row = padded<Real>(columns);
        Real *packed = buffer, *sums = packed + DEPTH * sums_row, *row_buffer = sums + (last - first) * sums_row;
        for (Index from = 0; from < total; from += DEPTH) {
            const Index depth = std::min(DEPTH, total - from);
            for (Index k = 0; k < depth; ++k)
                pack_row(read((from + k) / given.batch, (from + k) % given.batch, row_buffer), k, depth, columns, packed);
            multiply<Real, true>(last - first, gradient + from * width + first, width, packed, depth, columns, sums,
                                 sums_row, from > 0);
        }
        for (Index i = first; i < last; ++i)
            std::memcpy(out + i * columns, sums + (i - first) * sums_row, columns * sizeof(Real));
    }

    // The gradients of all weights, given those of all products. Each thread has some rows of each weight.
    void weight_gradients(Index thread, Real* buffer) const {
        for (Index i = 0; i < given.count; ++i) {
            const Recurrence<Real>& own = *recurrences[i];
            const auto rows_of = [&](const Real* gradient, Index width, Index rows, Index columns, Real* out, auto read) {
                const Index blocks = (rows + ROWS - 1) / ROWS, share = (blocks + given.product_threads - 1) /
                                                                       given.product_threads * ROWS;
                const Index first = std::min(rows, thread * share), last = std::min(rows, first + share);
                if (first < last) weight_gradient(gradient, width, first, last, columns, out, buffer, read);
            };
            Real* out = static_cast<Real*>(subcells[i].grad_weight_ih);
            if (out)
                rows_of(own.parts, own.parts_width, own.parts_width, input_width(i), out,
                        [&](Index t, Index row, Real* memory) { return read_input(i, t, row, memory); });
            const Index columns = own.outputs_width, added = own.product_width - own.kept_width;
            const auto read = [&](Index t, Index row, Real* memory) { return own.read(t, row, memory); };
            out = static_cast<Real*>(subcells[i].grad_weight_hh);
            rows_of(own.parts, own.parts_width, added, columns, out, read);
            rows_of(own.kept, own.kept_width, own.kept_width, columns, out + added * columns, read);
        }
    }

    void run(bool is_backward) const {
        Real* packed = static_cast<Real*>(given.workspace);
        for (Index i = 0; i < given.count; ++i) {
            recurrences[i]->pack_weight(is_backward, packed + packed_own[i]);
            if (subcells[i].source < 0) continue;
            const Real* weight = static_cast<const Real*>(subcells[i].weight_ih);
            const Index width = input_width(i), parts = recurrences[i]->parts_width;
            if (is_backward)
                pack(weight, width, 1, parts, width, packed + packed_input[i]);
            else
                pack(weight, 1, width, width, parts, packed + packed_input[i]);
        }
        for_all_rows(given.batch, rows_at_once(weight_bytes, rows_a_thread), given.threads, packed + packed_size,
                     buffer_size, [&](Index first, Index last, Real* buffer) {
                         is_backward ? backward(first, last, packed, buffer) : forward(first, last, packed, buffer);
                     });
        if (!is_backward) return;
#pragma omp parallel for num_threads(given.product_threads) schedule(static)
        for (Index thread = 0; thread < given.product_threads; ++thread)
            weight_gradients(thread, packed + thread * products_size);
    }
};

}  // namespace
}  // namespace fast_slow

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index fast_slow_arguments_size() { return sizeof(fast_slow::Arguments); }
Index fast_slow_block() { return BLOCK; }

Index fast_slow_workspace(const fast_slow::Arguments* given, Index is_double) {
    return is_double ? fast_slow::Network<double>(*given).workspace() : fast_slow::Network<float>(*given).workspace();
}

void fast_slow_run(const fast_slow::Arguments* given, Index is_double, Index backward) {
    is_double ? fast_slow::Network<double>(*given).run(backward) : fast_slow::Network<float>(*given).run(backward);
}
}
