// A GRU whose recurrent input is gathered along typed edges; see `gyral.ops.graph_gru`.
//
// The hidden vectors of all steps stay in `outputs`, those of earlier sequences in `memory`, so that an edge is an
// address. Backward walks back through the steps and adds gradients to those of the vectors that a step has gathered.

#include "gated/gated.hpp"

namespace graph_gru {

// Pointers are to Real unless noted otherwise, and null for absent tensors.
// A step gathers a row of G numbers: first the slice of type 0, then that of each of the E other types.
struct Arguments {
    Index steps, batch, hidden_size, past, capacity, gathered_size, first_size, edge_size, edge_types,
        edge_slots, shared, linked, threads;
    void* parts;              // (T, B, 3N); after forward: r, z and n; after backward: the gradient
    void* gathered;           // (T, B, G)
    void* product;            // (T, B, N): that of the candidate; after backward: its gradient
    void* w_hh;               // (3N, G)
    void* memory;             // (B, C, N), the latest vector last
    void* earlier;            // Index (T, B, E, D): distances; 0 or out of reach: no edge
    void* since;              // Index (T, B): the first step in reach
    void* lengths;            // Index (B)
    void* outputs;            // (T, B, N)
    void* final_memory;       // (B, C', N)
    void* workspace;          // graph_gru_workspace(...) elements
    void* grad_outputs;       // (T, B, N); overwritten with the gradients of the hidden vectors
    void* grad_final_memory;  // (B, C', N), or null
    void* grad_memory;        // (B, C, N) zeros, or null
};

namespace {

template <class Real> struct Graph {
    const Arguments& given;
    const Index steps, batch, hidden, gathered, types, slots;
    const Index products_row, gradients_row;

    explicit Graph(const Arguments& a)
        : given(a), steps(a.steps), batch(a.batch), hidden(a.hidden_size), gathered(a.gathered_size),
          types(a.edge_types), slots(a.edge_slots), products_row(padded<Real>(3 * hidden)),
          gradients_row(gathered + LANES<Real>) {}

    Real* at(void* base, Index offset = 0) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Real* vector(void* base, Index width, Index t, Index row) const { return at(base, (t * batch + row) * width); }
    Index length(Index row) const { return given.lengths ? static_cast<Index*>(given.lengths)[row] : steps; }
    Index since(Index t, Index row) const {
        return given.since ? static_cast<Index*>(given.since)[t * batch + row] : -given.past;
    }
    Index end_of_active(Index t, Index first, Index last) const {
        while (last > first && t >= length(last - 1)) --last;
        return last;
    }

    Index blocks() const { return (batch + BLOCK - 1) / BLOCK; }
    Index rows_a_thread() const { return (blocks() + given.threads - 1) / given.threads * BLOCK; }
    Index rows_together() const { return rows_at_once(3 * hidden * gathered * Index(sizeof(Real)), rows_a_thread()); }

    // Each type is a product of its own, which is left out where no row has an edge of that type: most steps have none.
    Index offset(Index type) const { return type ? given.first_size + (type - 1) * given.edge_size : 0; }  // in G
    Index width(Index type) const { return type ? given.edge_size : given.first_size; }
    Index source(Index type) const { return given.shared ? 0 : offset(type); }  // in N
    Index packed_size(Index width) const { return std::max(width * products_row, 3 * hidden * padded<Real>(width)); }
    Index packed_at(Index type) const {
        return type ? packed_size(given.first_size) + (type - 1) * packed_size(given.edge_size) : 0;
    }

    // elements of workspace per thread: products of a step and gradients of what it has gathered; a vector; zeros
    Index temporaries() const { return rows_together() * (products_row + gradients_row) + 2 * hidden; }
    Index workspace() const { return packed_at(types + 1) + given.threads * temporaries(); }

    void pack_weight(bool backward, Real* packed) const {
        for (Index type = 0; type <= types; ++type) {
            const Real* weight = at(given.w_hh, offset(type));
            Real* own = packed + packed_at(type);
            if (backward) {
                pack(weight, gathered, 1, 2 * hidden, width(type), own);
                pack(weight + 2 * hidden * gathered, gathered, 1, hidden, width(type),
                     own + 2 * hidden * padded<Real>(width(type)));
            } else {
                pack(weight, 1, gathered, width(type), 3 * hidden, own);
            }
        }
    }

    // ---------------------------------------------------------------- edges

    // The vector of a step, which is in `memory` if it is before step 0; null if it is out of reach.
    Real* vector_at(void* outputs, void* memory, Index t, Index distance, Index row, Index first) const {
        if (distance <= 0 || distance > t - first) return nullptr;
        const Index step = t - distance;
        return step >= 0 ? vector(outputs, hidden, step, row)
                         : at(memory, (row * given.past + given.past + step) * hidden);
    }
    const Real* hidden_at(Index t, Index distance, Index row) const {
        return vector_at(given.outputs, given.memory, t, distance, row, since(t, row));
    }
    // also null where no gradient is wanted
    Real* gradient_at(Index t, Index distance, Index row) const {
        return vector_at(given.grad_outputs, given.grad_memory, t, distance, row, since(t, row));
    }
    const Index* distances(Index t, Index row, Index type) const {
        return static_cast<const Index*>(given.earlier) + ((t * batch + row) * types + type - 1) * slots;
    }
    bool has_edge(Index t, Index row, Index type) const {
        if (type == 0) return true;
        const Index* distance = distances(t, row, type);
        for (Index slot = 0; slot < slots; ++slot)
            if (distance[slot]) return true;
        return false;
    }
    bool any_edge(Index t, Index first, Index last, Index type) const {
        for (Index row = first; row < last; ++row)
            if (has_edge(t, row, type)) return true;
        return false;
    }

    // Calls work(vector of the final memory, vector of its step or null) for the last C' steps of a row.
    template <class Work> void for_final_memory(Index row, void* final, void* outputs, void* memory, Work work) const {
        const Index end = length(row), first = since(end - 1, row);
        for (Index i = 0; i < given.capacity; ++i)
            work(at(final, (row * given.capacity + i) * hidden),
                 vector_at(outputs, memory, end, given.capacity - i, row, first));
    }

    // ---------------------------------------------------------------- forward

    void gather(Index t, Index row) const {
        Real* __restrict out = vector(given.gathered, gathered, t, row);
        if (const Real* old = hidden_at(t, 1, row))
            std::memcpy(out, old, given.first_size * sizeof(Real));
        else
            std::fill_n(out, given.first_size, Real(0));
        std::fill_n(out + given.first_size, gathered - given.first_size, Real(0));
        for (Index type = 1; type <= types; ++type) {
            const Index *distance = distances(t, row, type), size = width(type);
            Real* __restrict own = out + offset(type);
            for (Index slot = 0; slot < slots; ++slot)
                if (const Real* __restrict from = hidden_at(t, distance[slot], row)) {
                    from += source(type);
                    for (Index i = 0; i < size; ++i) own[i] += from[i];
                }
        }
    }

    // The vector that the update gate carries; `spare` holds N elements and N zeros.
    const Real* carried(Index t, Index row, Real* spare) const {
        if (!given.linked) {
            const Real* old = hidden_at(t, 1, row);
            return old ? old : spare + hidden;
        }
        const Real* own = vector(given.gathered, gathered, t, row);
        if (gathered >= hidden) return own;
        std::memcpy(spare, own, gathered * sizeof(Real));
        std::fill_n(spare + gathered, hidden - gathered, Real(0));
        return spare;
    }

    gated::Row<Real> row_at(Index t, Index row, Real* spare) const {
        return {hidden,  1,       vector(given.parts, 3 * hidden, t, row), vector(given.product, hidden, t, row),
                nullptr, carried(t, row, spare), nullptr, Real(0)};
    }

    void forward_step(Index t, Index first, Index last, const Real* packed, Real* products, Real* spare) const {
        const Index active = end_of_active(t, first, last);
        for (Index row = first; row < last; ++row) {
            if (t < length(row))
                gather(t, row);
            else
                std::fill_n(vector(given.gathered, gathered, t, row), gathered, Real(0));
        }
        for (Index type = 0; type <= types; ++type)
            if (any_edge(t, first, active, type))
                multiply(active - first, vector(given.gathered, gathered, t, first) + offset(type), gathered,
                         packed + packed_at(type), width(type), 3 * hidden, products, products_row, type > 0);
        for (Index row = first; row < last; ++row) {
            Real* out = vector(given.outputs, hidden, t, row);
            if (t < length(row))
                gated::Gru::forward(row_at(t, row, spare), products + (row - first) * products_row, out,
                                    static_cast<Real*>(nullptr));
            else
                std::fill_n(out, hidden, Real(0));
        }
    }

    void end_forward(Index first, Index last) const {
        const auto copy = [this](Real* to, const Real* from) {
            from ? void(std::memcpy(to, from, hidden * sizeof(Real))) : void(std::fill_n(to, hidden, Real(0)));
        };
        for (Index row = first; row < last; ++row)
            for_final_memory(row, given.final_memory, given.outputs, given.memory, copy);
    }

    // ---------------------------------------------------------------- backward

    static void add(Real* __restrict to, const Real* __restrict from, Index size) {
        if (to)
            for (Index i = 0; i < size; ++i) to[i] += from[i];
    }

    void begin_backward(Index first, Index last) const {
        if (!given.grad_final_memory) return;
        for (Index row = first; row < last; ++row)
            for_final_memory(row, given.grad_final_memory, given.grad_outputs, given.grad_memory,
                             [this](const Real* from, Real* to) { add(to, from, hidden); });
    }

    // Adds the gradient of what a step has gathered to those of the hidden vectors.
    void scatter(Index t, Index row, const Real* gradient) const {
        add(gradient_at(t, 1, row), gradient, given.first_size);
        for (Index type = 1; type <= types; ++type) {
            const Index* distance = distances(t, row, type);
            for (Index slot = 0; slot < slots; ++slot)
                if (Real* to = gradient_at(t, distance[slot], row))
                    add(to + source(type), gradient + offset(type), width(type));
        }
    }

    void backward_step(Index t, Index first, Index last, const Real* packed, Real* gradients, Real* spare) const {
        const Index active = end_of_active(t, first, last), rows = active - first;
        for (Index row = first; row < last; ++row) {
            Real *own = vector(given.grad_outputs, hidden, t, row),
                 *gradient = gradients + (row - first) * gradients_row;
            if (t >= length(row)) {
                std::fill_n(vector(given.parts, 3 * hidden, t, row), 3 * hidden, Real(0));
                std::fill_n(vector(given.product, hidden, t, row), hidden, Real(0));
                continue;
            }
            gated::Gru::backward<Real>(row_at(t, row, spare), nullptr, own, nullptr, nullptr, nullptr);
            if (given.linked)
                std::memcpy(gradient, own, gathered * sizeof(Real));
            else
                add(gradient_at(t, 1, row), own, hidden);
        }
        for (Index type = 0; type <= types; ++type) {
            if (!any_edge(t, first, active, type)) continue;
            const Index gates = 2 * hidden;
            const Real* weight = packed + packed_at(type);
            Real* to = gradients + offset(type);
            multiply(rows, vector(given.parts, 3 * hidden, t, first), 3 * hidden, weight, gates, width(type), to,
                     gradients_row, given.linked);
            multiply(rows, vector(given.product, hidden, t, first), hidden, weight + gates * padded<Real>(width(type)),
                     hidden, width(type), to, gradients_row, true);
        }
        for (Index row = first; row < active; ++row)
            if (t < length(row)) scatter(t, row, gradients + (row - first) * gradients_row);
    }

    void run(bool backward) const {
        Real* packed = at(given.workspace);
        pack_weight(backward, packed);
        for_all_rows(batch, rows_together(), given.threads, packed + packed_at(types + 1), temporaries(),
                     [&](Index first, Index last, Real* buffer) {
                         Real *gradients = buffer + rows_together() * products_row,
                              *spare = gradients + rows_together() * gradients_row;
                         std::fill_n(spare + hidden, hidden, Real(0));
                         if (backward) {
                             begin_backward(first, last);
                             for (Index t = steps - 1; t >= 0; --t)
                                 backward_step(t, first, last, packed, gradients, spare);
                         } else {
                             for (Index t = 0; t < steps; ++t) forward_step(t, first, last, packed, buffer, spare);
                             end_forward(first, last);
                         }
                     });
    }
};

}  // namespace
}  // namespace graph_gru

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index graph_gru_arguments_size() { return sizeof(graph_gru::Arguments); }
Index graph_gru_block() { return BLOCK; }

Index graph_gru_workspace(const graph_gru::Arguments* given, Index is_double) {
    return is_double ? graph_gru::Graph<double>(*given).workspace() : graph_gru::Graph<float>(*given).workspace();
}

void graph_gru_run(const graph_gru::Arguments* given, Index is_double, Index backward) {
    is_double ? graph_gru::Graph<double>(*given).run(backward) : graph_gru::Graph<float>(*given).run(backward);
}
}
