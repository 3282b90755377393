// The memory of RWKV-7; see gyral/ops/rwkv7/__init__.py.
//
// A step costs a few products of the memory with vectors, no more than a chunk of steps would with matrices. The columns
// of a memory are independent of each other but for sums over them, so that a few columns of it stay in the cache through
// the steps of a chunk. The backward pass computes the memories of a chunk again from the one before it.

#include <utility>

#include "native/vectors.hpp"

namespace rwkv7 {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, heads;  // T, B H, H
    Index size, kept_row;       // V, and the numbers of a row in `kept`
    void* r;                    // (T, B, H V), as the next ones
    void* w;
    void* k;
    void* v;
    void* a;
    void* gate;
    void* k_k;                  // (H V), as the next ones
    void* k_a;
    void* r_k;
    void* gain;
    void* bias;
    void* s0;                   // (B, H, V, V)
    void* lengths;              // (B) Index
    void* starts;               // (T, B) bool
    Index threads;
    void* workspace;
    void* read;                 // (T, B, H V), Sᵀ r
    void* erased;               // (T, B, H V), Sᵀ κ
    void* kept;                 // (chunks, B, H, V, kept_row), the memories before each chunk
    // of the forward pass
    void* outputs;              // (T, B, H V)
    void* final;                // (B, H, V, V)
    // of the backward pass
    void* grad_outputs;         // (T, B, H V), null stands for zeros
    void* grad_s0;              // (B, H, V, V): before it the gradient of the final memory
    void* grad_r;               // (T, B, H V), as the next ones
    void* grad_w;
    void* grad_k;
    void* grad_v;
    void* grad_a;
    void* grad_gate;
    void* grad_k_k;             // (B, H V), as the next ones
    void* grad_k_a;
    void* grad_r_k;
    void* grad_gain;
    void* grad_bias;
};

constexpr Index CHUNK = 16;  // as in __init__.py
constexpr Index AHEAD = 3;   // steps whose memory is fetched ahead
constexpr double EPSILON = 64e-5;  // as in naive.py
constexpr double LEAST_NORM = 1e-12;  // that of torch.nn.functional.normalize
constexpr double DECAY = -0.60653065971263342360;  // −e^{−½}

// Numbers in a register whose i-th one is the sum of the i-th of LANES registers.
#if __has_builtin(__builtin_shufflevector)
template <class Real, std::size_t step, std::size_t... lanes>
inline Vector<Real> merge(const Vector<Real>& a, const Vector<Real>& b, std::index_sequence<lanes...>) {
    constexpr std::size_t N = LANES<Real>;
    return __builtin_shufflevector(a, b, (lanes & step ? N + lanes : lanes)...) +
           __builtin_shufflevector(a, b, (lanes & step ? N + (lanes ^ step) : (lanes ^ step))...);
}
template <class Real, std::size_t step = LANES<Real> / 2> inline Vector<Real> sums_of(const Vector<Real>* from) {
    if constexpr (step == 0)
        return from[0];
    else {
        Vector<Real> merged[step];
#pragma GCC unroll 8
        for (std::size_t i = 0; i < step; ++i)
            merged[i] = merge<Real, step>(from[i], from[i + step], std::make_index_sequence<LANES<Real>>());
        return sums_of<Real, step / 2>(merged);
    }
}
#else
template <class Real> inline Vector<Real> sums_of(const Vector<Real>* from) {
    Vector<Real> sums;
    for (int i = 0; i < LANES<Real>; ++i) sums[i] = sum_of<Real>(from[i]);
    return sums;
}
#endif

template <class Real> struct Memory {
    static constexpr Index N = LANES<Real>;
    static constexpr Index COLUMNS = 8 * N;  // that go through the steps of a chunk together, at most
    static constexpr int SUMS = 5;           // over the columns, of each step in the backward pass
    using Row = Vector<Real>;

    const Arguments& given;
    const Index size = given.size, heads = given.heads, rows = given.batch / heads;
    const Index V = padded<Real>(size);  // of padded rows
    const Index matrix = size * V;

    // The workspace of a thread; vectors (V) of each step of a chunk, (CHUNK, V) each.
    struct Buffers {
        Real *r, *v, *decay, *rate, *unit, *written, *erasing, *inverse;  // e^γ, α, κ, k̄, −α ⊙ κ, (CHUNK) 1/‖k ⊙ k_k‖
        Real *read, *erased;                                              // Sᵀ r, Sᵀ κ
        Real* memory;              // (V, V) in parts of up to COLUMNS columns, one after the other, as all matrices
        Real *states, *zeros;      // of a part: the memories before and after each step of a chunk, and zeros
        Real* grad_memory;         // (V, V)
        Real *grad_read, *grad_v, *sums;  // (CHUNK, V), (CHUNK, V), (SUMS, CHUNK, V)
        Real *grad_erased, *lanes;        // (V), (SUMS, V, N): sums over the columns in pieces
        Real *totals;                     // (5, V): the gradients of the parameters
    };
    template <class Take> Buffers allocate(bool backward, const Take& take) const {
        const Index part = size * std::min(COLUMNS, V);
        Buffers b{};
        for (Real** each : {&b.r, &b.v, &b.decay, &b.rate, &b.unit, &b.written, &b.erasing, &b.read, &b.erased})
            *each = take(CHUNK * V);
        b.inverse = take(CHUNK);
        b.memory = take(matrix);
        if (!backward) return b;
        b.states = take((CHUNK + 1) * part), b.zeros = take(part);
        b.grad_memory = take(matrix);
        b.grad_read = take(CHUNK * V), b.grad_v = take(CHUNK * V), b.sums = take(SUMS * CHUNK * V);
        b.grad_erased = take(V), b.lanes = take(SUMS * V * N);
        b.totals = take(5 * V);
        return b;
    }
    Index buffer_size(bool backward) const {
        Index sum = 0;
        allocate(backward, [&](Index count) { return sum += padded<float>(count), static_cast<Real*>(nullptr); });
        return sum;
    }

    struct Place {
        Index item, row, head, length;
    };
    Place place(Index item) const {
        const Index row = item / heads;
        return {item, row, item % heads, given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps};
    }
    bool is_start(const Place& at, Index t) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * rows + at.row];
    }
    Real* of_step(void* base, const Place& at, Index t) const {
        return static_cast<Real*>(base) + (t * given.batch + at.item) * size;
    }
    const Real* of_head(void* base, const Place& at) const { return static_cast<Real*>(base) + at.head * size; }
    Real* kept(const Place& at, Index t) const {
        return static_cast<Real*>(given.kept) + (t / CHUNK * given.batch + at.item) * size * given.kept_row;
    }
    // Steps are far apart in memory: processors do not foresee which one is next. Few of them are fetched ahead, since all
    // may have the same place in the cache. Always inline: GCC drops calls of a function that has no effect but prefetching.
    template <bool is_written = false>
    [[gnu::always_inline]] void fetch(void* base, const Place& at, Index t) const {
        if (!base || t < 0 || t >= given.steps) return;
        const char *from = reinterpret_cast<const char*>(of_step(base, at, t)), *end = from + size * sizeof(Real);
        for (; from < end; from += 64) __builtin_prefetch(from, is_written, 2);
    }

    static void zero(Real* to, Index count) { std::fill_n(to, count, Real(0)); }
    void read_row(const Real* from, Real* to) const {
        for_registers<Real>(size, [&](Index i, Index count) { store<Real>(to + i, load_first(from + i, count)); });
    }
    // Calls work(first column, padded columns, its place in a matrix) for the parts of a matrix.
    template <class Work> void for_parts(const Work& work) const {
        for (Index first = 0; first < V; first += COLUMNS) work(first, std::min(COLUMNS, V - first), first * size);
    }
    void read_matrix(const Real* from, Real* to) const {
        for_parts([&](Index first, Index width, Index place) {
            for (Index d = 0; d < size; ++d)
                for (Index c = 0; c < width; ++c)
                    to[place + d * width + c] = first + c < size ? from[d * size + first + c] : Real(0);
        });
    }
    void write_matrix(const Real* from, Real* to) const {
        for_parts([&](Index first, Index width, Index place) {
            for (Index d = 0; d < size; ++d)
                copy(from + place + d * width, std::min(width, size - first), to + d * size + first);
        });
    }

    // Decays, rates and keys of the steps of a chunk.
    void prepare(const Place& at, Index begin, Index end, const Buffers& b) const {
        const Real *k_k = of_head(given.k_k, at), *k_a = of_head(given.k_a, at);
        for (Index t = begin; t < end; ++t) {
            for (void* base : {given.r, given.w, given.k, given.v, given.a}) fetch(base, at, t + AHEAD);
            const Index i = (t - begin) * V;
            read_row(of_step(given.r, at, t), b.r + i);
            read_row(of_step(given.v, at, t), b.v + i);
            const Real *w = of_step(given.w, at, t), *k = of_step(given.k, at, t), *a = of_step(given.a, at, t);
            Real *decay = b.decay + i, *rate = b.rate + i, *unit = b.unit + i, *written = b.written + i;
            Real *erasing = b.erasing + i, squares = 0;
#pragma omp simd
            for (Index d = 0; d < size; ++d) {
                decay[d] = exponential(Real(DECAY) * sigmoid(w[d]));
                rate[d] = sigmoid(a[d]);
                written[d] = k[d] + k_a[d] * (k[d] * rate[d] - k[d]);
                unit[d] = k[d] * k_k[d];
            }
#pragma omp simd reduction(+ : squares)
            for (Index d = 0; d < size; ++d) squares += unit[d] * unit[d];
            const Real norm = std::sqrt(squares), inverse = 1 / (norm < Real(LEAST_NORM) ? Real(LEAST_NORM) : norm);
            b.inverse[t - begin] = norm < Real(LEAST_NORM) ? -inverse : inverse;  // negative: a constant
#pragma omp simd
            for (Index d = 0; d < size; ++d) {
                unit[d] *= inverse;
                erasing[d] = -rate[d] * unit[d];
            }
        }
    }

    // Calls work(column, number of registers as a constant) for the columns of a part.
    template <class Work> static void for_columns(Index width, const Work& work) {
        Index c = 0;
        for (; c + 2 * N <= width; c += 2 * N) work(c, std::integral_constant<int, 2>());
        if (c < width) work(c, std::integral_constant<int, 1>());
    }

    // to = e^γ ⊙ from − (α ⊙ κ) erasedᵀ + k̄ vᵀ, and read = toᵀ r, for a part. `i`: where the vectors of the step begin.
    template <bool reads>
    void update(const Buffers& b, Index i, Index first, Index width, const Real* from, Real* to) const {
        const Real *decay = b.decay + i, *erasing = b.erasing + i, *written = b.written + i, *r = b.r + i;
        for_columns(width, [&](Index c, auto count) {
            constexpr int n = decltype(count)::value;
            Row erased[n], v[n], sum[n] = {};
            for (int j = 0; j < n; ++j) {
                erased[j] = load(b.erased + i + first + c + j * N);
                v[j] = load(b.v + i + first + c + j * N);
            }
            for (Index d = 0; d < size; ++d)
                for (int j = 0; j < n; ++j) {
                    const Index at = d * width + c + j * N;
                    const Row x = decay[d] * load(from + at) + erasing[d] * erased[j] + written[d] * v[j];
                    store<Real>(to + at, x);
                    if (reads) sum[j] += r[d] * x;
                }
            if (reads)
                for (int j = 0; j < n; ++j) store<Real>(b.read + i + first + c + j * N, sum[j]);
        });
    }

    // The normalized outputs of a head, and what they are multiplied by.
    struct Normal {
        Real mean, rstd, current;
    };
    Normal normalize(const Place& at, const Buffers& b, Index i) const {
        Normal now;
        mean_and_rstd(b.read + i, size, now.mean, now.rstd, EPSILON);
        const Real *r_k = of_head(given.r_k, at), *r = b.r + i, *written = b.written + i;
        Real current = 0;
#pragma omp simd reduction(+ : current)
        for (Index d = 0; d < size; ++d) current += r[d] * written[d] * r_k[d];
        now.current = current;
        return now;
    }

    void forward(Index item, Real* workspace) const {
        const Place at = place(item);
        const Buffers b = allocate(false, [&](Index count) { return std::exchange(workspace, workspace + padded<float>(count)); });
        const Real *gain = of_head(given.gain, at), *bias = of_head(given.bias, at);
        read_matrix(static_cast<Real*>(given.s0) + item * size * size, b.memory);
        for (Index begin = 0; begin < at.length; begin += CHUNK) {
            const Index end = std::min(begin + CHUNK, at.length);
            prepare(at, begin, end, b);
            std::copy_n(b.memory, matrix, kept(at, begin));
            for_parts([&](Index first, Index width, Index place) {
                Real* memory = b.memory + place;
                for (Index t = begin; t < end; ++t) {
                    const Index i = (t - begin) * V;
                    if (is_start(at, t)) zero(memory, size * width);
                    transpose_times(memory, size, width, b.unit + i, b.erased + i + first);
                    update<true>(b, i, first, width, memory, memory);
                }
            });
            for (Index t = begin; t < end; ++t) {
                const Index i = (t - begin) * V;
                fetch(given.gate, at, t + AHEAD);
                for (void* base : {given.read, given.erased, given.outputs}) fetch<true>(base, at, t + AHEAD);
                const Normal now = normalize(at, b, i);
                copy(b.read + i, size, of_step(given.read, at, t));
                copy(b.erased + i, size, of_step(given.erased, at, t));
                const Real *gate = of_step(given.gate, at, t), *read = b.read + i, *v = b.v + i;
                Real* to = of_step(given.outputs, at, t);
#pragma omp simd
                for (Index d = 0; d < size; ++d)
                    to[d] = ((read[d] - now.mean) * now.rstd * gain[d] + bias[d] + now.current * v[d]) * gate[d];
            }
        }
        for (Index t = at.length; t < given.steps; ++t) zero(of_step(given.outputs, at, t), size);
        write_matrix(b.memory, static_cast<Real*>(given.final) + item * size * size);
    }

    // ---------------------------------------------------------------- gradients

    // Adds to the numbers of a row, of `count` that follow each other.
    template <int n> static void add_lanes(Real* to, const Row (&x)[n], const Row (&y)[n], bool add) {
        Row sum = add ? load(to) : Row{};
        for (int j = 0; j < n; ++j) sum += x[j] * y[j];
        store<Real>(to, sum);
    }

    // Given the gradient of the memory after a step but for that of its own output: completes it, and finds what it says
    // of r, v, k̄, α ⊙ κ and Sᵀ κ.
    void after_step(const Buffers& b, Index i, Index first, Index width, const Real* memory, Real* grad_memory) const {
        const Real *r = b.r + i, *written = b.written + i, *erasing = b.erasing + i;
        for_columns(width, [&](Index c, auto count) {
            constexpr int n = decltype(count)::value;
            const bool add = c > 0;
            Row grad_read[n], v[n], erased[n], grad_v[n], grad_erased[n] = {};
            for (int j = 0; j < n; ++j) {
                const Index at = i + first + c + j * N;
                grad_read[j] = load(b.grad_read + at), v[j] = load(b.v + at), erased[j] = load(b.erased + at);
                grad_v[j] = load(b.grad_v + at);
            }
            Real* lanes = b.lanes;
            for (Index d = 0; d < size; ++d, lanes += SUMS * N) {
                Row grad[n], state[n];
                for (int j = 0; j < n; ++j) {
                    const Index at = d * width + c + j * N;
                    grad[j] = load(grad_memory + at) + r[d] * grad_read[j];
                    store<Real>(grad_memory + at, grad[j]);
                    state[j] = load(memory + at);
                    grad_v[j] += written[d] * grad[j];
                    grad_erased[j] += erasing[d] * grad[j];
                }
                add_lanes<n>(lanes, state, grad_read, add);
                add_lanes<n>(lanes + N, grad, v, add);
                add_lanes<n>(lanes + 2 * N, grad, erased, add);
            }
            for (int j = 0; j < n; ++j) {
                const Index at = first + c + j * N;
                store<Real>(b.grad_v + i + at, grad_v[j]);
                store<Real>(b.grad_erased + at, grad_erased[j]);
            }
        });
    }
    // Turns the gradient of the memory after a step into that before it, and finds what it says of e^γ and κ.
    void before_step(const Buffers& b, Index i, Index first, Index width, const Real* memory, Real* grad_memory) const {
        const Real *decay = b.decay + i, *unit = b.unit + i;
        for_columns(width, [&](Index c, auto count) {
            constexpr int n = decltype(count)::value;
            const bool add = c > 0;
            Row grad_erased[n];
            for (int j = 0; j < n; ++j) grad_erased[j] = load(b.grad_erased + first + c + j * N);
            Real* lanes = b.lanes + 3 * N;
            for (Index d = 0; d < size; ++d, lanes += SUMS * N) {
                Row grad[n], state[n];
                for (int j = 0; j < n; ++j) {
                    const Index at = d * width + c + j * N;
                    grad[j] = load(grad_memory + at), state[j] = load(memory + at);
                    store<Real>(grad_memory + at, decay[d] * grad[j] + unit[d] * grad_erased[j]);
                }
                add_lanes<n>(lanes, grad, state, add);
                add_lanes<n>(lanes + N, state, grad_erased, add);
            }
        });
    }
    // Adds up the pieces of the sums of a step, and adds them to those of the parts before.
    void add_up(const Buffers& b, Index i, bool add) const {
        for (Index d = 0; d < size; d += N)
            for (int sum = 0; sum < SUMS; ++sum) {
                Row pieces[N] = {};
                for (Index j = 0; j < std::min(N, size - d); ++j) pieces[j] = load(b.lanes + ((d + j) * SUMS + sum) * N);
                Real* to = b.sums + sum * CHUNK * V + i + d;
                store<Real>(to, sums_of<Real>(pieces) + (add ? load(to) : Row{}));
            }
    }

    // From the gradient of the outputs of a step: that of Sᵀ r, and the first parts of those of v and the gate.
    Real gate_backward(const Place& at, Index t, Index i, const Buffers& b) const {
        const Normal now = normalize(at, b, i);
        const Real *gain = of_head(given.gain, at), *bias = of_head(given.bias, at), *gate = of_step(given.gate, at, t);
        const Real *read = b.read + i, *v = b.v + i, *grad = of_step(given.grad_outputs, at, t);
        Real *grad_gate = of_step(given.grad_gate, at, t), *grad_read = b.grad_read + i, *grad_v = b.grad_v + i;
        Real *grad_gain = b.totals, *grad_bias = b.totals + V, sum = 0, along = 0, grad_current = 0;
#pragma omp simd reduction(+ : sum, along, grad_current)
        for (Index d = 0; d < size; ++d) {
            const Real normal = (read[d] - now.mean) * now.rstd, inner = grad[d] * gate[d], found = inner * gain[d];
            grad_gate[d] = grad[d] * (normal * gain[d] + bias[d] + now.current * v[d]);
            grad_v[d] = inner * now.current;
            grad_gain[d] += inner * normal;
            grad_bias[d] += inner;
            grad_read[d] = found;
            sum += found, along += found * normal, grad_current += inner * v[d];
        }
        sum /= size, along /= size;
#pragma omp simd
        for (Index d = 0; d < size; ++d)
            grad_read[d] = now.rstd * (grad_read[d] - sum - (read[d] - now.mean) * now.rstd * along);
        return grad_current;
    }

    // The gradients of a step for those of the vectors of its recurrence.
    void write_step(const Place& at, Index t, Index begin, Real grad_current, const Buffers& b) const {
        const Index i = (t - begin) * V, next = CHUNK * V;
        const Real *k_k = of_head(given.k_k, at), *k_a = of_head(given.k_a, at), *r_k = of_head(given.r_k, at);
        const Real *w = of_step(given.w, at, t), *k = of_step(given.k, at, t);
        const Real *r = b.r + i, *decay = b.decay + i, *rate = b.rate + i, *unit = b.unit + i, *written = b.written + i;
        const Real *of_r = b.sums + i, *of_written = of_r + next, *of_erasing = of_written + next;
        const Real *of_decay = of_erasing + next, *of_unit = of_decay + next;
        Real *grad_r = of_step(given.grad_r, at, t), *grad_w = of_step(given.grad_w, at, t);
        Real *grad_k = of_step(given.grad_k, at, t), *grad_a = of_step(given.grad_a, at, t);
        Real *grad_k_k = b.totals + 2 * V, *grad_k_a = b.totals + 3 * V, *grad_r_k = b.totals + 4 * V;
        copy(b.grad_v + i, size, of_step(given.grad_v, at, t));
        Real along = 0;
#pragma omp simd reduction(+ : along)
        for (Index d = 0; d < size; ++d) along += (of_unit[d] - of_erasing[d] * rate[d]) * unit[d];
        const Real inverse = std::fabs(b.inverse[t - begin]);
        if (b.inverse[t - begin] < 0) along = 0;
#pragma omp simd
        for (Index d = 0; d < size; ++d) {
            const Real grad_written = of_written[d] + grad_current * r[d] * r_k[d];
            const Real grad_key = (of_unit[d] - of_erasing[d] * rate[d] - along * unit[d]) * inverse;
            const Real grad_rate = grad_written * k[d] * k_a[d] - of_erasing[d] * unit[d], open = sigmoid(w[d]);
            grad_r[d] = of_r[d] + grad_current * written[d] * r_k[d];
            grad_w[d] = of_decay[d] * decay[d] * Real(DECAY) * open * (1 - open);
            grad_a[d] = grad_rate * rate[d] * (1 - rate[d]);
            grad_k[d] = grad_written * (1 + (rate[d] - 1) * k_a[d]) + grad_key * k_k[d];
            grad_k_k[d] += grad_key * k[d];
            grad_k_a[d] += grad_written * k[d] * (rate[d] - 1);
            grad_r_k[d] += grad_current * r[d] * written[d];
        }
    }

    void backward(Index item, Real* workspace) const {
        const Place at = place(item);
        const Buffers b = allocate(true, [&](Index count) { return std::exchange(workspace, workspace + padded<float>(count)); });
        Real* grad_s0 = static_cast<Real*>(given.grad_s0) + item * size * size;
        read_matrix(grad_s0, b.grad_memory);
        zero(b.zeros, size * std::min(COLUMNS, V));
        zero(b.totals, 5 * V);
        // behind the last number of a vector
        for (Real* each : {b.grad_read, b.grad_v}) zero(each, CHUNK * V);
        void* const gradients[] = {given.grad_r, given.grad_w, given.grad_k, given.grad_v, given.grad_a, given.grad_gate};
        for (Index t = at.length; t < given.steps; ++t)
            for (void* each : gradients) zero(of_step(each, at, t), size);
        for (Index end = at.length; end > 0;) {
            const Index begin = (end - 1) / CHUNK * CHUNK;
            Real grad_current[CHUNK];
            prepare(at, begin, end, b);
            std::copy_n(kept(at, begin), matrix, b.memory);
            for (Index t = begin; t < end; ++t) {
                const Index i = (t - begin) * V;
                for (void* base : {given.read, given.erased, given.grad_outputs, given.gate}) fetch(base, at, t + AHEAD);
                fetch<true>(given.grad_gate, at, t + AHEAD);
                read_row(of_step(given.read, at, t), b.read + i);
                read_row(of_step(given.erased, at, t), b.erased + i);
                if (given.grad_outputs) {
                    grad_current[t - begin] = gate_backward(at, t, i, b);
                } else {
                    grad_current[t - begin] = 0;
                    zero(b.grad_read + i, V), zero(b.grad_v + i, V), zero(of_step(given.grad_gate, at, t), size);
                }
            }
            for_parts([&](Index first, Index width, Index place) {
                const Index part = size * width;
                std::copy_n(b.memory + place, part, b.states);
                const auto before = [&](Index t) { return is_start(at, t) ? b.zeros : b.states + (t - begin) * part; };
                for (Index t = begin; t < end; ++t)
                    update<false>(b, (t - begin) * V, first, width, before(t), b.states + (t - begin + 1) * part);
                Real* grad_memory = b.grad_memory + place;
                for (Index t = end - 1; t >= begin; --t) {
                    const Index i = (t - begin) * V;
                    after_step(b, i, first, width, b.states + (t - begin + 1) * part, grad_memory);
                    before_step(b, i, first, width, before(t), grad_memory);
                    if (is_start(at, t)) zero(grad_memory, part);
                    add_up(b, i, first > 0);
                }
            });
            for (Index t = begin; t < end; ++t) {
                for (void* base : {given.w, given.k}) fetch(base, at, t + AHEAD);
                for (void* base : {given.grad_r, given.grad_w, given.grad_k, given.grad_v, given.grad_a})
                    fetch<true>(base, at, t + AHEAD);
                write_step(at, t, begin, grad_current[t - begin], b);
            }
            end = begin;
        }
        write_matrix(b.grad_memory, grad_s0);
        void* const totals[] = {given.grad_gain, given.grad_bias, given.grad_k_k, given.grad_k_a, given.grad_r_k};
        for (Index each = 0; each < 5; ++each)
            copy(b.totals + each * V, size, static_cast<Real*>(totals[each]) + item * size);
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Memory<Real> memory{given};
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        Real* own = static_cast<Real*>(given.workspace) + thread * memory.buffer_size(backward);
        for (Index item = thread; item < given.batch; item += given.threads)
            backward ? memory.backward(item, own) : memory.forward(item, own);
    }
}

}  // namespace rwkv7

extern "C" {
Index rwkv7_arguments_size() { return sizeof(rwkv7::Arguments); }
Index rwkv7_block() { return 1; }
Index rwkv7_workspace(const rwkv7::Arguments* given, Index is_double) {
    const bool backward = given->grad_s0;
    return given->threads * (is_double ? rwkv7::Memory<double>{*given}.buffer_size(backward)
                                       : rwkv7::Memory<float>{*given}.buffer_size(backward));
}
void rwkv7_run(const rwkv7::Arguments* given, Index is_double, Index backward) {
    is_double ? rwkv7::run<double>(*given, backward) : rwkv7::run<float>(*given, backward);
}
}
