// Networks of several recurrences per step, some of which share a state; see `gyral.ops.fast_slow`.
//
// Every subcell is a recurrence of gated.hpp or rum.hpp. The input that a subcell reads from an earlier one of the same
// step is a further product before its own step, with weights packed once per call. A thread runs its rows through all
// subcells of a step. After all steps, one product per subcell gives the gradients of all its weights.

#include <memory>
#include <utility>
#include <vector>

#include "gated/gated.hpp"
#include "rum/rum.hpp"

namespace fast_slow {

constexpr Index NOTHING = -1, INPUT = -2;

// W is the width of the input, G that of the parts. In Python a subcell is a row of integers.
struct SubCell {
    Index is_rum;
    Index source;     // the earlier subcell whose outputs it reads, INPUT or NOTHING
    Index state;      // index of its state, equal for subcells that share one
    void* arguments;  // gated::Arguments or rum::Arguments
    void* weight_ih;  // (G, W)
    void* bias;       // (G), or null
    void* mask;       // (T, B, W): factors of the input, or null
    void* grad_weight_ih;  // (G, W)
    void* grad_weight_hh;  // (R, H)
    void* grad_bias;       // (G)
};

// cpu.py gives these arguments by name.
struct Arguments {
    Index steps, batch, count, threads, input_size;
    Index product_threads;  // for the gradients of the weights
    void* subcells;         // SubCell (count)
    void* input;            // (T, B, input_size)
    void* grad_outputs;     // (T, B, H) of the last subcell
    void* grad_input;       // (T, B, input_size), or null
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
        this->updates_last = scan.given.final_hidden || scan.given.grad_h0;
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
        std::vector<Index> temporaries(given.count, 0);  // of each state: the largest of its subcells
        for (Index i = 0; i < given.count; ++i) {
            Index& own = temporaries[subcells[i].state];
            own = std::max(own, recurrences[i]->temporaries);
        }
        for (Index i = 0; i < given.count; ++i) {
            const Recurrence<Real>& recurrence = *recurrences[i];
            packed_own[i] = packed_size;
            packed_size += recurrence.packed_size;
            weight_bytes += recurrence.weight_bytes;
            if (buffer_offsets[subcells[i].state] < 0) {
                buffer_offsets[subcells[i].state] = buffer_size;
                buffer_size += temporaries[subcells[i].state];
            }
            widest_parts = std::max(widest_parts, padded<Real>(recurrence.parts_width));
            if (subcells[i].source == NOTHING) continue;
            const Index width = input_width(i), parts = recurrence.parts_width;
            packed_input[i] = packed_size;
            packed_size += std::max(width * padded<Real>(parts), parts * padded<Real>(width));
            weight_bytes += width * parts * Index(sizeof(Real));
            if (subcells[i].source != INPUT) {
                grad_offsets[subcells[i].source] = buffer_size;
                buffer_size += rows_a_thread * padded<Real>(width);
            }
            widest_input = std::max(widest_input, width);
        }
        products_offset = buffer_size;
        masked_offset = products_offset + rows_a_thread * std::max(widest_parts, padded<Real>(widest_input));
        buffer_size = masked_offset + rows_a_thread * widest_input;
        for (Index i = 0; i < given.count; ++i) {
            const Recurrence<Real>& own = *recurrences[i];
            const Index count = input_width(i) + own.outputs_width + 1;
            const Index vectors = padded<Real>(own.parts_width) / LANES<Real>;
            const Index columns = (vectors + given.product_threads - 1) / given.product_threads * LANES<Real>;
            products_size = std::max(products_size, DEPTH * (count + ROWS + columns) + count * (columns + 2));
        }
    }

    Index workspace() const {
        return std::max(packed_size + given.threads * buffer_size, given.product_threads * products_size);
    }
    Real* state_buffer(Index index, Real* buffer) const { return buffer + buffer_offsets[subcells[index].state]; }
    Index input_width(Index index) const {
        const Index source = subcells[index].source;
        return source == NOTHING ? 0 : source == INPUT ? given.input_size : recurrences[source]->outputs_width;
    }
    const Real* input(Index index, Index t, Index row) const {
        const Index source = subcells[index].source;
        const Real* all = source == INPUT ? static_cast<const Real*>(given.input) : recurrences[source]->outputs;
        return all + (t * given.batch + row) * input_width(index);
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
        const bool has_input = subcells[index].source != NOTHING;
        if (has_input) {
            const Index width = input_width(index);
            const Real* read = input(index, t, first);
            if (const Real* factors = mask(index, t, first)) {
                Real* __restrict masked = buffer + masked_offset;
                for (Index i = 0; i < rows * width; ++i) masked[i] = factors[i] * read[i];
                read = masked;
            }
            multiply(rows, read, width, packed + packed_input[index], width, parts, products, padded<Real>(parts),
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
        const bool of_network = subcells[index].source == INPUT;
        Real* grad_input = buffer + (of_network ? products_offset : grad_offsets[subcells[index].source]);
        multiply(last - first, recurrences[index]->parts + (t * given.batch + first) * parts, parts,
                 packed + packed_input[index], parts, width, grad_input, row_size, false);
        if (const Real* factors = mask(index, t, first))
            for (Index row = 0; row < last - first; ++row)
                for (Index i = 0; i < width; ++i) grad_input[row * row_size + i] *= factors[row * width + i];
        if (!of_network) return;
        Real* out = static_cast<Real*>(given.grad_input) + (t * given.batch + first) * width;
        for (Index row = 0; row < last - first; ++row) copy(grad_input + row * row_size, width, out + row * width);
    }
    bool has_input_backward(Index index) const {
        const Index source = subcells[index].source;
        return source == INPUT ? given.grad_input != nullptr : source != NOTHING;
    }

    void forward(Index first, Index last, const Real* packed, Real* buffer) const {
        for (Index t = 0; t < given.steps; ++t)
            for (Index i = 0; i < given.count; ++i) {
                project_input(i, t, first, last, packed, buffer);
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
                if (has_input_backward(i)) input_backward(i, t, first, last, packed, buffer);
            }
        for (Index i = 0; i < given.count; ++i)
            if (recurrences[i]->updates_last) recurrences[i]->end_backward(first, last, state_buffer(i, buffer));
    }

    // The vector that the input weights of a subcell multiply in one of T B rows, in memory or in `buffer`.
    const Real* read_input(Index index, Index row, Real* buffer) const {
        const Index width = input_width(index);
        const Real *read = input(index, 0, row), *factors = mask(index, 0, row);
        if (!factors) return read;
        for (Index i = 0; i < width; ++i) buffer[i] = factors[i] * read[i];
        return buffer;
    }

    // Returns sums (count, last - first) over T B rows: the `count` numbers that read(row, buffer) returns, times
    // columns `first` to `last` of gradients (T B, width).
    template <class Read>
    const Real* sum_products(const Real* gradients, Index width, Index first, Index last, Index count, Real* buffer,
                             Read read) const {
        const Index total = given.steps * given.batch, sums_row = padded<Real>(last - first);
        Real *left = buffer, *right = left + DEPTH * (count + ROWS), *sums = right + DEPTH * sums_row;
        for (Index from = 0; from < total; from += DEPTH) {
            const Index depth = std::min(DEPTH, total - from);
            for (Index k = 0; k < depth; ++k) {
                pack_left_row(read(from + k, sums + count * sums_row), k, depth, count, left);
                pack_row(gradients + (from + k) * width + first, k, depth, last - first, right);
            }
            multiply<Real, true>(count, left, ROWS, right, depth, last - first, sums, sums_row, from > 0);
        }
        return sums;
    }

    // Writes columns `first` to `last` of sums (count, padded columns) to rows of a weight (..., count).
    static void write_rows(const Real* sums, Index sums_row, Index first, Index last, Index count, Real* weight) {
        for (Index j = first; j < last; ++j)
            for (Index i = 0; i < count; ++i) weight[j * count + i] = sums[i * sums_row + j - first];
    }

    // A thread's part of the gradients of a subcell's weights and bias, given those of its products.
    void weight_gradients(Index index, Index thread, Real* buffer) const {
        const SubCell& subcell = subcells[index];
        const Recurrence<Real>& own = *recurrences[index];
        const Index inputs = input_width(index), hidden = own.outputs_width;
        const Index added = own.product_width - own.kept_width;
        Real* grad_weight_hh = static_cast<Real*>(subcell.grad_weight_hh);
        const auto read_hidden = [&](Index row, Real* memory) {
            return own.read(row / given.batch, row % given.batch, memory);
        };
        // inputs, hidden vector and 1 are one vector
        const auto read_all = [&](Index row, Real* memory) {
            Real* all = memory + std::max(inputs, hidden);
            if (inputs) copy(read_input(index, row, memory), inputs, all);
            copy(read_hidden(row, memory), hidden, all + inputs);
            all[inputs + hidden] = 1;
            return all;
        };
        const auto [first, last] = share(own.parts_width, thread);
        const Index sums_row = padded<Real>(last - first);
        if (first < last) {
            const Real* sums =
                sum_products(own.parts, own.parts_width, first, last, inputs + hidden + 1, buffer, read_all);
            write_rows(sums, sums_row, first, last, inputs, static_cast<Real*>(subcell.grad_weight_ih));
            sums += inputs * sums_row;
            write_rows(sums, sums_row, first, std::min(last, added), hidden, grad_weight_hh);
            std::memcpy(static_cast<Real*>(subcell.grad_bias) + first, sums + hidden * sums_row,
                        (last - first) * sizeof(Real));
        }
        const auto [first_kept, last_kept] = share(own.kept_width, thread);
        if (first_kept < last_kept) {
            const Real* sums =
                sum_products(own.kept, own.kept_width, first_kept, last_kept, hidden, buffer, read_hidden);
            write_rows(sums, padded<Real>(last_kept - first_kept), first_kept, last_kept, hidden,
                       grad_weight_hh + added * hidden);
        }
    }

    // The columns of a product that a thread computes.
    std::pair<Index, Index> share(Index columns, Index thread) const {
        const Index vectors = padded<Real>(columns) / LANES<Real>;
        const auto begin = [&](Index index) {
            return std::min(columns, vectors * index / given.product_threads * LANES<Real>);
        };
        return {begin(thread), begin(thread + 1)};
    }

    void run(bool is_backward) const {
        Real* packed = static_cast<Real*>(given.workspace);
        for (Index i = 0; i < given.count; ++i) {
            recurrences[i]->pack_weight(is_backward, packed + packed_own[i]);
            if (subcells[i].source == NOTHING) continue;
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
            for (Index i = 0; i < given.count; ++i) weight_gradients(i, thread, packed + thread * products_size);
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
