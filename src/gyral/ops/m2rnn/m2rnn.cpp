// The recurrence of M²RNN, forward and backward; see gyral/ops/m2rnn/__init__.py.
//
// A row and a group of heads with the same keys are independent of all others. The memory of a head stays in the cache,
// and the forward pass keeps it before every chunk of steps; the backward pass computes the memories within the chunk
// again. Matrices of the workspace have rows padded with zeros to whole registers.

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

template <class Real> struct Scan {
    static constexpr Index N = LANES<Real>;
    using Row = Vector<Real>;

    const Arguments& given;
    const Index heads = given.heads, key = given.key, value = given.value;
    const Index rows = given.batch / given.groups;  // B
    const Index V = padded<Real>(value);            // of padded rows
    const Index matrix = key * V, square = value * V;

    // The workspace of a thread.
    struct Buffers {
        Real *weight, *turned_weight;       // W (V, V) and its transpose
        Real *zeros;                        // (K, V), the memory at a start
        Real *memories;                     // (C + 1, K, V): before the first step of a chunk, and after each
        Real *candidates;                   // (C, K, V), tanh(S W + k vᵀ)
        Real *v, *y;                        // (V); y or its gradient
        Real *grad_memory, *grad_products;  // (K, V), of S and of S W + k vᵀ
        Real *grad_weight;                  // (V, V)
        Real *grad_v;                       // (V)
    };
    template <class Take> Buffers allocate(bool backward, const Take& take) const {
        const Index chunk = backward ? given.chunk : 1;
        Buffers b{};
        b.weight = take(square), b.zeros = take(matrix);
        b.memories = take((chunk + 1) * matrix), b.candidates = take(chunk * matrix);
        b.v = take(V), b.y = take(V);
        if (!backward) return b;
        b.turned_weight = take(value * V);
        b.grad_memory = take(matrix), b.grad_products = take(matrix), b.grad_weight = take(square), b.grad_v = take(V);
        return b;
    }
    Index size(bool backward) const {
        Index sum = 0;
        allocate(backward, [&](Index count) { return sum += padded<float>(count), static_cast<Real*>(nullptr); });
        return sum;
    }

    // ---------------------------------------------------------------- where values are

    struct Place {
        Index item, row, head, length;  // head: of all H
    };
    Place place(Index item, Index head) const {
        const Index row = item / given.groups;
        const Index length = given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps;
        return {item, row, item % given.groups * heads + head, length};
    }
    bool is_start(const Place& at, Index t) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * rows + at.row];
    }
    Real* of_group(void* base, const Place& at, Index t) const {  // of a tensor (T, B, G, K)
        return static_cast<Real*>(base) + (t * given.batch + at.item) * key;
    }
    Real* of_head(void* base, const Place& at, Index t, Index width) const {  // of a tensor (T, B, H, width)
        return static_cast<Real*>(base) + ((t * rows + at.row) * given.groups * heads + at.head) * width;
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
    template <class Work> void across(const Work& work) const {
        for (Index j = 0; j < V; j += N) work(j);
    }

    // ---------------------------------------------------------------- a step

    // The memory after a step, the candidates, and the output if `y` is not null.
    void step(const Place& at, Index t, const Buffers& b, const Real* before, Real* candidates, Real* after, Real* y) const {
        const Real *k = of_group(given.k, at, t), *q = of_group(given.q, at, t);
        const Real forget = *of_head(given.forget, at, t, 1);
        read(of_head(given.v, at, t, value), 1, b.v);
        product(key, V, value, before, V, b.weight, V, candidates, V, false);
        for (Index i = 0; i < key; ++i)
            update(k[i], b.v, forget, before + i * V, candidates + i * V, after + i * V);
        if (y) transpose_times(after, key, V, q, y);
    }
    void update(Real k, const Real* __restrict v, Real forget, const Real* __restrict before, Real* __restrict candidate,
                Real* __restrict after) const {
#pragma omp simd
        for (Index j = 0; j < V; ++j) {
            candidate[j] = hyperbolic_tangent(candidate[j] + k * v[j]);
            after[j] = forget * before[j] + (1 - forget) * candidate[j];
        }
    }

    void forward(const Place& at, const Buffers& b) const {
        Real *memory = b.memories, *next = memory + matrix;
        read(static_cast<Real*>(given.weight) + at.head * value * value, value, b.weight);
        std::fill_n(b.zeros, matrix, Real(0));
        read(of_head(given.s0, at, 0, key * value), key, memory);
        for (Index t = 0; t < at.length; ++t) {
            if (t % given.chunk == 0) write(memory, key, of_head(given.kept, at, t / given.chunk, key * value));
            step(at, t, b, is_start(at, t) ? b.zeros : memory, b.candidates, next, b.y);
            write(b.y, 1, of_head(given.outputs, at, t, value));
            std::swap(memory, next);
        }
        for (Index t = at.length; t < given.steps; ++t)
            std::fill_n(of_head(given.outputs, at, t, value), value, Real(0));
        write(memory, key, of_head(given.final, at, 0, key * value));
    }

    // ---------------------------------------------------------------- the gradients of a step

    static Row clipped(Row gradient, Real bound) {  // a NaN stays a NaN
        const Row high = Row{} + bound, low = -high;
        gradient = gradient < low ? low : gradient;
        return gradient > high ? high : gradient;
    }

    // Turns the gradient of the memory after a step into that of the memory before it, and writes those of the rest.
    void step_backward(const Place& at, Index t, const Buffers& b, const Real* before, const Real* candidates,
                       const Real* after) const {
        const Real *k = of_group(given.k, at, t), *q = of_group(given.q, at, t);
        Real *grad_k = of_group(given.grad_k, at, t), *grad_q = of_group(given.grad_q, at, t);
        const Real forget = *of_head(given.forget, at, t, 1), clip = given.clip;
        read(of_head(given.v, at, t, value), 1, b.v);
        read(of_head(given.grad_outputs, at, t, value), 1, b.y);
        std::fill_n(b.grad_v, V, Real(0));
        Row of_forget = {};
        for (Index i = 0; i < key; ++i) {
            Row of_q = {}, of_k = {};
            across([&](Index j) {
                const Index place = i * V + j;
                const Row grad_y = load(b.y + j), candidate = load(candidates + place);
                of_q += grad_y * load(after + place);
                const Row grad = clipped(load(b.grad_memory + place) + q[i] * grad_y, clip);
                of_forget += grad * (load(before + place) - candidate);
                const Row inner = (1 - forget) * grad * (1 - candidate * candidate);
                of_k += inner * load(b.v + j);
                store<Real>(b.grad_v + j, load(b.grad_v + j) + k[i] * inner);
                store<Real>(b.grad_products + place, inner);
                store<Real>(b.grad_memory + place, forget * grad);
            });
            grad_q[i] += sum_of<Real>(of_q);
            grad_k[i] += sum_of<Real>(of_k);
        }
        *of_head(given.grad_forget, at, t, 1) = sum_of<Real>(of_forget);
        write(b.grad_v, 1, of_head(given.grad_v, at, t, value));
        product<true>(value, V, key, before, V, b.grad_products, V, b.grad_weight, V, true);
        product(key, V, value, b.grad_products, V, b.turned_weight, V, b.grad_memory, V, true);
    }

    void backward(const Place& at, const Buffers& b) const {
        read(static_cast<Real*>(given.weight) + at.head * value * value, value, b.weight);
        transpose(value, value, b.weight, V, b.turned_weight, V);
        std::fill_n(b.zeros, matrix, Real(0));
        std::fill_n(b.grad_weight, square, Real(0));
        read(of_head(given.grad_s0, at, 0, key * value), key, b.grad_memory);
        for (Index last = at.length; last > 0;) {
            const Index first = (last - 1) / given.chunk * given.chunk;
            const auto memory = [&](Index t) { return b.memories + (t - first) * matrix; };
            const auto before = [&](Index t) { return is_start(at, t) ? b.zeros : memory(t); };
            const auto candidates = [&](Index t) { return b.candidates + (t - first) * matrix; };
            read(of_head(given.kept, at, first / given.chunk, key * value), key, memory(first));
            for (Index t = first; t < last; ++t) step(at, t, b, before(t), candidates(t), memory(t + 1), nullptr);
            for (Index t = last - 1; t >= first; --t) {
                step_backward(at, t, b, before(t), candidates(t), memory(t + 1));
                if (is_start(at, t)) std::fill_n(b.grad_memory, matrix, Real(0));
            }
            last = first;
        }
        write(b.grad_memory, key, of_head(given.grad_s0, at, 0, key * value));
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
