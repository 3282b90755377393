// The recurrence of M²RNN, forward and backward; see gyral/ops/m2rnn/__init__.py.
//
// The rows of a memory do not depend on each other: only their outputs are added up. In a chunk of steps, a strip of rows
// takes all steps before the next strip does, so that it stays in the cache. The forward pass keeps the memory before
// every chunk; the backward pass computes what is within the chunk again. Matrices of the workspace have rows padded with
// zeros to whole registers.

#include "native/matrices.hpp"

namespace m2rnn {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch;   // T, and B G: the rows times the groups of heads
    Index groups, heads;  // G, and the number of heads of a group
    Index key, value;     // K, V
    Index chunk;          // steps of a chunk
    double clip;          // the bound of the memory's gradient, or infinity
    void* q;              // (T, B, G, K)
    void* k;              // (T, B, G, K)
    void* v;              // (T, B, H, V)
    void* forget;         // (T, B, H)
    void* weight;         // (H, V, V)
    void* s0;             // (B, H, K, V)
    void* lengths;        // (B) Index
    void* starts;         // (T, B) bool
    void* kept;           // (chunks, B, H, K, V), the memories before each chunk
    Index threads;
    void* workspace;
    // of the forward pass
    void* outputs;        // (T, B, H, V)
    void* final;          // (B, H, K, V)
    // of the backward pass
    void* grad_outputs;   // (T, B, H, V)
    void* grad_s0;        // (B, H, K, V): before it the gradient of the final memory
    void* grad_q;         // as q, zeros, as the three below
    void* grad_k;
    void* grad_v;
    void* grad_forget;
    void* grad_weight;    // (B, H, V, V), one part for each row
};

constexpr Index STRIP = 32;  // rows

template <class Real> struct Scan {
    static constexpr Index N = LANES<Real>;
    using Row = Vector<Real>;

    const Arguments& given;
    const Index heads = given.groups * given.heads, key = given.key, value = given.value;  // H, K, V
    const Index rows = given.batch / given.groups;                                         // B
    const Index V = padded<Real>(value);                                                   // of padded rows

    // The workspace of a thread.
    struct Buffers {
        Real *weight, *turned_weight;            // W (V, V) and its transpose
        Real* memory;                            // (K, V), or its gradient
        Real *before, *candidates;               // (C + 1, STRIP, V), (C, STRIP, V): of each step of a chunk
        Real *q, *k, *v, *y, *forget;            // (C, K), (C, K), (C, V), (C, V), (C); y or its gradient
        Real *grad_q, *grad_k, *grad_v, *grad_forget;
        Real* grad_weight;                       // (V, V)
        Real* sums;                              // (V) or (STRIP)
    };
    template <class Take> Buffers allocate(bool backward, const Take& take) const {
        const Index C = given.chunk, strip = STRIP * V;
        Buffers b{};
        b.weight = take(value * V), b.memory = take(key * V), b.sums = take(std::max(STRIP, V));
        b.candidates = take(backward ? C * strip : strip);
        b.q = take(C * key), b.k = take(C * key), b.v = take(C * V), b.y = take(C * V), b.forget = take(C);
        if (!backward) return b;
        b.turned_weight = take(value * V), b.grad_weight = take(value * V), b.before = take((C + 1) * strip);
        b.grad_q = take(C * key), b.grad_k = take(C * key), b.grad_v = take(C * V), b.grad_forget = take(C);
        return b;
    }
    Index size(bool backward) const {
        Index sum = 0;
        allocate(backward, [&](Index count) { return sum += padded<float>(count), static_cast<Real*>(nullptr); });
        return sum;
    }

    // ---------------------------------------------------------------- where values are

    struct Place {
        Index item, row, head, length;
    };
    Place place(Index item, Index head) const {  // a head of the group of an item
        const Index row = item / given.groups;
        const Index length = given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps;
        return {item, row, item % given.groups * given.heads + head, length};
    }
    bool is_start(const Place& at, Index t) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * rows + at.row];
    }
    Real* of_keys(void* base, const Place& at, Index t) const {  // of a tensor (T, B, G, K)
        return static_cast<Real*>(base) + (t * given.batch + at.item) * key;
    }
    Real* of_head(void* base, const Place& at, Index t, Index width) const {  // of a tensor (T, B, H, width)
        return static_cast<Real*>(base) + ((t * rows + at.row) * heads + at.head) * width;
    }
    Real* of_memory(void* base, const Place& at, Index chunk = 0) const {  // of a tensor (chunks, B, H, K, V)
        return of_head(base, at, chunk, key * value);
    }
    void read(const Real* from, Index count, Real* to) const {
        for (Index i = 0; i < count; ++i)
            for_registers<Real>(value, [&](Index j, Index some) {
                store<Real>(to + i * V + j, load_first(from + i * value + j, some));
            });
    }
    void write(const Real* from, Index count, Real* to) const {
        for (Index i = 0; i < count; ++i) copy(from + i * V, value, to + i * value);
    }
    static void zero(Real* to, Index count) { std::fill_n(to, count, Real(0)); }

    struct Chunk {
        Index first, steps;
    };
    struct Strip {
        Index first, count;
    };
    template <class Work> void for_strips(const Work& work) const {
        for (Index first = 0; first < key; first += STRIP) work(Strip{first, std::min(STRIP, key - first)});
    }
    // Calls work(i, j, place) for the registers of a strip: of row i, from column j on.
    template <class Work> void for_rows(const Strip& strip, const Work& work) const {
        // copies, because the compiler assumes that stores may change anything else
        const Index count = strip.count, row = V;
        for_panels<Real>(row, [&work, count, row](Index column, auto width) {
            Index place = column;
            for (Index i = 0; i < count; ++i, place += row)
                for (int j = 0; j < width; ++j) work(i, column + j * N, place + j * N);
        });
    }

    void read_chunk(const Place& at, const Chunk& now, const Buffers& b) const {
        for (Index i = 0; i < now.steps; ++i) {
            const Index t = now.first + i;
            std::copy_n(of_keys(given.q, at, t), key, b.q + i * key);
            std::copy_n(of_keys(given.k, at, t), key, b.k + i * key);
            read(of_head(given.v, at, t, value), 1, b.v + i * V);
            b.forget[i] = *of_head(given.forget, at, t, 1);
        }
    }

    // ---------------------------------------------------------------- steps

    // The candidates tanh(S W + k vᵀ) of step i, and the memory after it, which may take the place of the one before it.
    void step(const Strip& strip, Index i, const Buffers& b, const Real* before, Real* candidates, Real* after) const {
        const Real *k = b.k + i * key + strip.first, *v = b.v + i * V, forget = b.forget[i];
        product(strip.count, V, value, before, V, b.weight, V, candidates, V, false);
        for_rows(strip, [=](Index row, Index column, Index place) {
            const Row candidate = hyperbolic_tangents<Real>(load(candidates + place) + k[row] * load(v + column));
            store<Real>(candidates + place, candidate);
            store<Real>(after + place, forget * load(before + place) + (1 - forget) * candidate);
        });
    }

    void forward(const Place& at, const Buffers& b) const {
        read(static_cast<Real*>(given.weight) + at.head * value * value, value, b.weight);
        read(of_memory(given.s0, at), key, b.memory);
        for (Index first = 0; first < at.length; first += given.chunk) {
            const Chunk now{first, std::min(given.chunk, at.length - first)};
            write(b.memory, key, of_memory(given.kept, at, first / given.chunk));
            read_chunk(at, now, b);
            zero(b.y, now.steps * V);
            for_strips([&](const Strip& strip) {
                Real* memory = b.memory + strip.first * V;
                for (Index i = 0; i < now.steps; ++i) {
                    if (is_start(at, first + i)) zero(memory, strip.count * V);
                    step(strip, i, b, memory, b.candidates, memory);
                    transpose_times(memory, strip.count, V, b.q + i * key + strip.first, b.sums);
                    add(b.sums, V, b.y + i * V);
                }
            });
            for (Index i = 0; i < now.steps; ++i) write(b.y + i * V, 1, of_head(given.outputs, at, first + i, value));
        }
        for (Index t = at.length; t < given.steps; ++t) zero(of_head(given.outputs, at, t, value), value);
        write(b.memory, key, of_memory(given.final, at));
    }

    // ---------------------------------------------------------------- gradients

    static Row clipped(Row gradient, Real bound) {  // a NaN stays a NaN
        const Row high = Row{} + bound, low = -high;
        gradient = gradient < low ? low : gradient;
        return gradient > high ? high : gradient;
    }

    // Turns the gradient of the memory after step i into that of the memory before it, and candidates into the gradients of
    // S W + k vᵀ.
    void step_backward(const Strip& strip, Index i, const Buffers& b, const Real* before, Real* candidates,
                       Real* grad_memory) const {
        const Index own = i * key + strip.first;
        const Real *q = b.q + own, *y = b.y + i * V, forget = b.forget[i], clip = given.clip;
        Row of_forget = {};
        for_rows(strip, [=, &of_forget](Index row, Index column, Index place) {
            const Row candidate = load(candidates + place);
            const Row grad = clipped(load(grad_memory + place) + q[row] * load(y + column), clip);
            of_forget += grad * (load(before + place) - candidate);
            store<Real>(candidates + place, (1 - forget) * grad * (1 - candidate * candidate));
            store<Real>(grad_memory + place, forget * grad);
        });
        b.grad_forget[i] += sum_of<Real>(of_forget);
        matrix_times(candidates, strip.count, V, b.v + i * V, b.grad_k + own);
        transpose_times(candidates, strip.count, V, b.k + own, b.sums);
        add(b.sums, V, b.grad_v + i * V);
        product(strip.count, V, value, candidates, V, b.turned_weight, V, grad_memory, V, true);
    }

    void strip_backward(const Place& at, const Chunk& now, const Strip& strip, const Buffers& b) const {
        const Index size = strip.count * V;
        Real* grad_memory = b.memory + strip.first * V;
        read(of_memory(given.kept, at, now.first / given.chunk) + strip.first * value, strip.count, b.before);
        for (Index i = 0; i < now.steps; ++i) {
            Real *before = b.before + i * size, *after = before + size;
            if (is_start(at, now.first + i)) zero(before, size);
            step(strip, i, b, before, b.candidates + i * size, after);
            matrix_times(after, strip.count, V, b.y + i * V, b.grad_q + i * key + strip.first);
        }
        for (Index i = now.steps - 1; i >= 0; --i) {
            step_backward(strip, i, b, b.before + i * size, b.candidates + i * size, grad_memory);
            if (is_start(at, now.first + i)) zero(grad_memory, size);
        }
        product<true>(value, V, now.steps * strip.count, b.before, V, b.candidates, V, b.grad_weight, V, true);
    }

    void backward(const Place& at, const Buffers& b) const {
        read(static_cast<Real*>(given.weight) + at.head * value * value, value, b.weight);
        transpose(value, value, b.weight, V, b.turned_weight, V);
        zero(b.grad_weight, value * V);
        read(of_memory(given.grad_s0, at), key, b.memory);
        for (Index last = at.length; last > 0;) {
            const Index first = (last - 1) / given.chunk * given.chunk;
            const Chunk now{first, last - first};
            read_chunk(at, now, b);
            for (Index i = 0; i < now.steps; ++i) read(of_head(given.grad_outputs, at, first + i, value), 1, b.y + i * V);
            zero(b.grad_v, now.steps * V);
            zero(b.grad_forget, now.steps);
            for_strips([&](const Strip& strip) { strip_backward(at, now, strip, b); });
            for (Index i = 0; i < now.steps; ++i) {
                const Index t = first + i;
                add(b.grad_q + i * key, key, of_keys(given.grad_q, at, t));
                add(b.grad_k + i * key, key, of_keys(given.grad_k, at, t));
                write(b.grad_v + i * V, 1, of_head(given.grad_v, at, t, value));
                *of_head(given.grad_forget, at, t, 1) = b.grad_forget[i];
            }
            last = first;
        }
        write(b.memory, key, of_memory(given.grad_s0, at));
        write(b.grad_weight, value, of_head(given.grad_weight, at, 0, value * value));
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Scan<Real> scan{given};
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        Real* own = static_cast<Real*>(given.workspace) + thread * scan.size(backward);
        const auto b = scan.allocate(backward, [&](Index count) { return std::exchange(own, own + padded<float>(count)); });
        for (Index item = thread; item < given.batch; item += given.threads)
            for (Index head = 0; head < given.heads; ++head)
                backward ? scan.backward(scan.place(item, head), b) : scan.forward(scan.place(item, head), b);
    }
}

}  // namespace m2rnn

extern "C" {
Index m2rnn_arguments_size() { return sizeof(m2rnn::Arguments); }
Index m2rnn_block() { return 1; }  // rows that go through a step together
Index m2rnn_workspace(const m2rnn::Arguments* given, Index is_double) {
    const bool backward = given->grad_s0;
    return given->threads * (is_double ? m2rnn::Scan<double>{*given}.size(backward) : m2rnn::Scan<float>{*given}.size(backward));
}
void m2rnn_run(const m2rnn::Arguments* given, Index is_double, Index backward) {
    is_double ? m2rnn::run<double>(*given, backward) : m2rnn::run<float>(*given, backward);
}
}
