// Products with block-diagonal matrices and with those of the gates; see gyral/ops/block_projections/naive.py.
//
// A register of products needs the values of the blocks that it is part of. Their weights are packed as a small dense
// matrix for each register, with zeros for the other blocks. A tile of rows stays in the cache through all products.

#include "native/run.hpp"
#include "native/matrices.hpp"

namespace block_projections {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index batch, rows;             // T B and B
    Index channels, size, heads;   // C, b, H
    Index gates_size;              // G
    void* convolved;               // (T, B, C)
    void* values;                  // (T, B, C)
    void* weight;                  // (3, ceil(C / b), b, b)
    void* weight_gates;            // (G, 3 C)
    void* bias_gates;              // (G)
    void* lengths;                 // (B) Index
    Index threads;
    void* workspace;
    void* q;                       // (T, B, C)
    void* k;                       // (T, B, C)
    void* v;                       // (T, B, H, C / H + 1)
    void* gates;                   // (T, B, G)
    // of the backward pass
    void* grad_q;                  // as those without grad_
    void* grad_k;
    void* grad_v;
    void* grad_gates;
    void* grad_convolved;
    void* grad_values;
    void* grad_weight;             // (blocks of rows, ...): sums over the rows of a block
    void* grad_weight_gates;
    void* grad_bias_gates;
};

constexpr Index ROWS_OF_BLOCK = 512;
constexpr Index TILE = 32;  // rows that go through all products together
constexpr Index PARTS = 3;  // q, k and v

template <class Real> struct Projections {
    static constexpr Index N = LANES<Real>;

    const Arguments& given;
    const bool backward = given.grad_convolved;
    const Index channels = given.channels, size = given.size, gates = given.gates_size;
    const Index C = padded<Real>(channels), G = padded<Real>(gates);  // of padded rows
    const Index share = channels / given.heads;
    const Index most = std::min(channels, N + 2 * size);  // values that a register of products needs, at most
    const Index part = C * most;                          // the packed numbers of a matrix

    Real* at(void* base, Index offset = 0) const { return base ? static_cast<Real*>(base) + offset : nullptr; }

    // The values that the products in a register from channel `first` on need.
    struct Register {
        Index first, begin, depth;
        Index offset;  // in the packed numbers
    };
    template <class Work> void for_products(const Work& work) const {
        for (Index first = 0; first < channels; first += N) {
            const Index begin = first / size * size, last = std::min(first + N, channels);
            const Index end = std::min((last + size - 1) / size * size, channels);
            work(Register{first, begin, end - begin, first * most});
        }
    }
    // Calls work(packed number, number of the tensor) for the weights of a matrix, or of its transpose.
    template <class Work> void for_weights(Index m, bool transposed, const Work& work) const {
        const Index blocks = (channels + size - 1) / size;
        for_products([&](const Register& now) {
            for (Index lane = 0; lane < std::min(N, channels - now.first); ++lane)
                for (Index j = 0; j < now.depth; ++j) {
                    const Index to = now.first + lane, from = now.begin + j, block = to / size;
                    if (from / size != block) continue;
                    const Index row = (transposed ? from : to) % size, column = (transposed ? to : from) % size;
                    work(now.offset + j * N + lane, ((m * blocks + block) * size + row) * size + column);
                }
        });
    }

    // What all threads read: the packed matrices, of the backward pass also their transposes, and the weights of the gates
    // as (3, C, G) and, of the backward pass, as (G, 3, C).
    Index packed_size() const {
        return PARTS * (part + channels * G) + G + (backward ? PARTS * (part + gates * C) : 0);
    }
    const Real* matrix(const Real* packed, Index m) const { return packed + m * part; }
    const Real* of_gates(const Real* packed, Index m) const { return packed + PARTS * part + m * channels * G; }
    const Real* bias(const Real* packed) const { return packed + PARTS * (part + channels * G); }
    const Real* transposed_matrix(const Real* packed, Index m) const { return bias(packed) + G + m * part; }
    const Real* to_parts(const Real* packed, Index m) const { return bias(packed) + G + PARTS * part + m * C; }

    void pack_weights(Real* packed) const {
        const auto mutable_ = [](const Real* x) { return const_cast<Real*>(x); };
        std::fill_n(packed, packed_size(), Real(0));
        for (Index m = 0; m < PARTS; ++m) {
            for_weights(m, false, [&](Index i, Index from) { mutable_(matrix(packed, m))[i] = *at(given.weight, from); });
            if (backward)
                for_weights(m, true, [&](Index i, Index from) {
                    mutable_(transposed_matrix(packed, m))[i] = *at(given.weight, from);
                });
            for (Index g = 0; g < gates; ++g)
                for (Index c = 0; c < channels; ++c) {
                    const Real weight = *at(given.weight_gates, (g * PARTS + m) * channels + c);
                    mutable_(of_gates(packed, m))[c * G + g] = weight;
                    if (backward) mutable_(to_parts(packed, m))[g * PARTS * C + c] = weight;
                }
        }
        std::copy_n(at(given.bias_gates), gates, mutable_(bias(packed)));
    }

    // The workspace of a thread: rows of a tile, and of the backward pass the sums over a block of rows.
    struct Buffers {
        Real *inputs[2], *parts[PARTS], *gates;                // (TILE, C), (TILE, C), (TILE, G)
        Real *grad_parts[PARTS], *grad_inputs[2];              // as those without grad_
        Real *grad_matrices, *grad_of_gates, *grad_bias;       // as the packed ones, (G, 3, C), (G)
    };
    template <class Take> Buffers allocate(const Take& take) const {
        Buffers b{};
        for (Real*& each : b.inputs) each = take(TILE * C);
        for (Real*& each : b.parts) each = take(TILE * C);
        b.gates = take(TILE * G);
        if (!backward) return b;
        for (Real*& each : b.grad_parts) each = take(TILE * C);
        for (Real*& each : b.grad_inputs) each = take(TILE * C);
        b.grad_matrices = take(PARTS * part), b.grad_of_gates = take(gates * PARTS * C), b.grad_bias = take(G);
        return b;
    }
    Index buffer_size() const {
        Index sum = 0;
        allocate([&](Index count) { return sum += count, static_cast<Real*>(nullptr); });
        return sum;
    }

    bool has_ended(Index row) const {
        return given.lengths && row / given.rows >= static_cast<const Index*>(given.lengths)[row % given.rows];
    }
    // A row of a padded matrix of the workspace: zeros beyond the length of the sequence, and for an absent tensor.
    void read(const void* tensor, Index row, Index width, Index padded_width, Real* to) const {
        if (!tensor || has_ended(row)) return void(std::fill_n(to, padded_width, Real(0)));
        const Real* from = static_cast<const Real*>(tensor) + row * width;
        for_registers<Real>(width, [&](Index i, Index count) { store<Real>(to + i, load_first(from + i, count)); });
    }
    void write(const Real* from, void* tensor, Index row, Index width) const {
        Real* to = at(tensor, row * width);
        has_ended(row) ? void(std::fill_n(to, width, Real(0))) : copy(from, width, to);
    }
    // Values of a row of heads, each with a number behind it.
    template <class Work> void for_heads(void* tensor, Index row, const Work& work) const {
        for (Index h = 0; h < given.heads; ++h)
            work(at(tensor, (row * given.heads + h) * (share + 1)), h * share);
    }

    void multiply_blocks(Index count, const Real* from, const Real* packed, Real* to, bool add) const {
        for_products([&](const Register& now) {
            product(count, N, now.depth, from + now.begin, C, packed + now.offset, N, to + now.first, C, add);
        });
    }
    void project(Index row, Index count, const Real* packed, const Buffers& b) const {
        for (Index i = 0; i < count; ++i) {
            read(given.convolved, row + i, channels, C, b.inputs[0] + i * C);
            read(given.values, row + i, channels, C, b.inputs[1] + i * C);
        }
        for (Index m = 0; m < PARTS; ++m) multiply_blocks(count, b.inputs[m == 2], matrix(packed, m), b.parts[m], false);
    }

    void forward(Index first, Index last, const Real* packed, const Buffers& b) const {
        for (Index row = first; row < last; row += TILE) {
            const Index count = std::min(TILE, last - row);
            project(row, count, packed, b);
            for (Index i = 0; i < count; ++i) std::copy_n(bias(packed), G, b.gates + i * G);
            for (Index m = 0; m < PARTS; ++m)
                product(count, gates, channels, b.parts[m], C, of_gates(packed, m), G, b.gates, G, true);
            for (Index i = 0; i < count; ++i) {
                write(b.parts[0] + i * C, given.q, row + i, channels);
                write(b.parts[1] + i * C, given.k, row + i, channels);
                write(b.gates + i * G, given.gates, row + i, gates);
                const bool ended = has_ended(row + i);
                for_heads(given.v, row + i, [&](Real* to, Index from) {
                    if (ended) return void(std::fill_n(to, share + 1, Real(0)));
                    copy(b.parts[2] + i * C + from, share, to);
                    to[share] = 1;
                });
            }
        }
    }

    void backward_rows(Index block, Index first, Index last, const Real* packed, const Buffers& b) const {
        std::fill_n(b.grad_matrices, PARTS * part, Real(0));
        std::fill_n(b.grad_of_gates, gates * PARTS * C, Real(0));
        std::fill_n(b.grad_bias, G, Real(0));
        for (Index row = first; row < last; row += TILE) {
            const Index count = std::min(TILE, last - row);
            project(row, count, packed, b);
            for (Index i = 0; i < count; ++i) {
                read(given.grad_q, row + i, channels, C, b.grad_parts[0] + i * C);
                read(given.grad_k, row + i, channels, C, b.grad_parts[1] + i * C);
                std::fill_n(b.grad_parts[2] + i * C, C, Real(0));
                if (given.grad_v && !has_ended(row + i))
                    for_heads(given.grad_v, row + i, [&](const Real* from, Index to) {
                        copy(from, share, b.grad_parts[2] + i * C + to);
                    });
                read(given.grad_gates, row + i, gates, G, b.gates + i * G);
                add(b.gates + i * G, gates, b.grad_bias);
            }
            for (Index m = 0; m < PARTS; ++m) {
                product<true>(gates, channels, count, b.gates, G, b.parts[m], C, b.grad_of_gates + m * C, PARTS * C, true);
                product(count, channels, gates, b.gates, G, to_parts(packed, m), PARTS * C, b.grad_parts[m], C, true);
                multiply_blocks(count, b.grad_parts[m], transposed_matrix(packed, m), b.grad_inputs[m == 2], m == 1);
                for_products([&](const Register& now) {
                    product<true>(now.depth, N, count, b.inputs[m == 2] + now.begin, C, b.grad_parts[m] + now.first, C,
                                  b.grad_matrices + m * part + now.offset, N, true);
                });
            }
            for (Index i = 0; i < count; ++i) {
                write(b.grad_inputs[0] + i * C, given.grad_convolved, row + i, channels);
                write(b.grad_inputs[1] + i * C, given.grad_values, row + i, channels);
            }
        }
        Real* grad_weight = at(given.grad_weight, block * PARTS * ((channels + size - 1) / size) * size * size);
        for (Index m = 0; m < PARTS; ++m) {
            for_weights(m, false, [&](Index i, Index to) { grad_weight[to] = b.grad_matrices[m * part + i]; });
            for (Index g = 0; g < gates; ++g)
                std::copy_n(b.grad_of_gates + (g * PARTS + m) * C, channels,
                            at(given.grad_weight_gates, ((block * gates + g) * PARTS + m) * channels));
        }
        std::copy_n(b.grad_bias, gates, at(given.grad_bias_gates, block * gates));
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Projections<Real> projections{given};
    Real* packed = static_cast<Real*>(given.workspace);
    projections.pack_weights(packed);
    for_all_rows<Real>(given.batch, ROWS_OF_BLOCK, given.threads, packed + projections.packed_size(),
                       projections.buffer_size(), [&](Index first, Index last, Real* buffer) {
                           const auto b = projections.allocate(
                               [&](Index count) { return std::exchange(buffer, buffer + count); });
                           backward ? projections.backward_rows(first / ROWS_OF_BLOCK, first, last, packed, b)
                                    : projections.forward(first, last, packed, b);
                       });
}

template <class Real> Index workspace(const Arguments& given) {
    const Projections<Real> projections{given};
    return projections.packed_size() + given.threads * projections.buffer_size();
}

}  // namespace block_projections

extern "C" {
Index block_projections_arguments_size() { return sizeof(block_projections::Arguments); }
Index block_projections_block() { return block_projections::ROWS_OF_BLOCK; }
Index block_projections_workspace(const block_projections::Arguments* given, Index is_double) {
    return is_double ? block_projections::workspace<double>(*given) : block_projections::workspace<float>(*given);
}
void block_projections_run(const block_projections::Arguments* given, Index is_double, Index backward) {
    is_double ? block_projections::run<double>(*given, backward) : block_projections::run<float>(*given, backward);
}
}
