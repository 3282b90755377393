// The delta rule in chunks of steps, forward and backward; see gyral/ops/delta/naive.py for the chunk form.
//
// A row and a group of heads with the same keys are independent of all others. They run together, one after another in
// each chunk, so that memory is read in order. The forward pass keeps the memories before every chunk; the backward pass
// computes the rest of the chunk again. A start ends a chunk early, so that all steps of one belong together. Decays are multiplied step by step, never divided: no exponential of
// a sum of log decays can overflow. Matrices of the workspace have rows padded with zeros to whole registers.

#include "native/matrices.hpp"

namespace delta {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch;       // T, and B G: the rows times the groups of heads
    Index groups, heads;      // G, and the number of heads of a group
    Index micro, key, value;  // n, K, V
    Index chunk;              // steps of a chunk
    Index decays;             // numbers of a head's decay: 0 (none), 1 or K
    Index rates;              // whether `erase` is (T, B, n, G), rates of the keys
    Index unit;               // whether q and k are divided by their norms, and q by √K
    void* q;                  // (T, B, G, K)
    void* k;                  // (T, B, n, G, K)
    void* v;                  // (T, B, n, H, V)
    void* s0;                 // (B, H, K, V)
    void* decay;              // (T, B, H) or (T, B, H, K)
    void* erase;              // (T, B, n, G, K), or (T, B, n, G)
    void* write;              // (T, B, n, H), rates of the values
    void* lengths;            // (B) Index
    void* starts;             // (T, B) bool
    void* kept;               // (chunks, B, H, K, V), the memories before each chunk
    Index threads;
    void* workspace;
    // of the forward pass
    void* outputs;            // (T, B, H, V)
    void* final;              // (B, H, K, V)
    // of the backward pass
    void* grad_outputs;       // (T, B, H, V)
    void* grad_s0;            // (B, H, K, V): before it the gradient of the final memory
    void* grad_q;             // as q
    void* grad_k;             // as k
    void* grad_v;             // as v
    void* grad_decay;         // as decay
    void* grad_erase;         // as erase
    void* grad_write;         // as write
};

constexpr double UNIT_EPSILON = 1e-6;  // as in naive.py

template <class Real> struct Scan {
    static constexpr Index N = LANES<Real>;
    using Row = Vector<Real>;

    const Arguments& given;
    const Index micro = given.micro, heads = given.heads, key = given.key, value = given.value;
    const Index rows = given.batch / given.groups;  // B
    const bool erases = given.erase, decays = given.decays, is_vector = given.decays > 1;
    const Index most = given.chunk * micro;  // micro-steps of a chunk
    const Index K = padded<Real>(key), V = padded<Real>(value), M = padded<Real>(most);  // of padded rows
    const Index F = K + N;  // of a transposed memory: lines of a cache would collide if rows had a power of two of bytes
    const Index E = is_vector ? K : N;  // of rows whose numbers add up to the gradient of each decay

    // The workspace of a thread. Those marked with H have a matrix for each head, the others are used for one after another.
    struct Buffers {
        Real *memory, *grad_memory;                             // H (K, V)
        Real *q, *k, *r, *turned_k;                             // (C, K), (M, K), (M, K), (K, M)
        Real *q_scale, *k_scale;                                // (C), (M): what makes q and k unit vectors
        Real *reads, *erasures;                                 // q kᵀ (C, M), r kᵀ (M, M)
        Real *decay, *since, *until, *total;                    // (C, K): of a step, since and until the chunk's ends; (K)
        Real *between;                                          // (M, M): from one micro-step to another
        Real *attention, *system;                               // (C, M), (M, M)
        Real *q_in, *r_in, *k_out;                              // decayed from the chunk's begin, and to its end
        Real *faded, *faded_r;                                  // (M, K) or (K, M): decayed on the way
        Real *u, *turned_u, *turned_memory;                     // (M, V), (V, M), (V, F)
        Real *y, *grad_u;                                       // (C, V), (M, V); y or its gradient
        Real *grad_attention, *grad_system;                     // as those without grad_
        Real *grad_q, *grad_k, *grad_r, *grad_reads, *grad_erasures;  // sums over the heads
        Real *part_q, *part_k, *part_r;                         // of one head
        // parts of the gradients of log decays: of readers and keys of each step (C, E), of all steps (E); of the pairs with
        // each key (M), and of the pairs across each step (C), or (C, K) for decays of channels
        Real *of_readers, *of_keys, *of_all, *of_pairs, *across_step;
    };

    template <class Take> Buffers allocate(bool backward, const Take& take) const {
        const Index C = given.chunk, matrix = key * V;
        Buffers b{};
        b.memory = take(heads * matrix);
        b.q = take(C * K), b.k = take(most * K), b.turned_k = take(key * M);
        b.q_scale = take(C), b.k_scale = take(most);
        b.reads = take(C * M), b.attention = take(C * M);
        b.decay = take(C * K), b.since = take(C * K), b.until = take(C * K), b.total = take(K);
        b.between = take(most * M);
        b.q_in = take(C * K), b.k_out = take(most * K), b.u = take(most * V), b.y = take(C * V);
        b.faded = take(std::max(key * M, most * K));
        if (erases) {
            b.r = take(most * K), b.erasures = take(most * M), b.system = take(most * M), b.r_in = take(most * K);
            b.faded_r = take(most * K);
        }
        if (!backward) return b;
        b.grad_memory = take(heads * matrix);
        b.turned_u = take(value * M), b.turned_memory = take(value * F);
        b.grad_u = take(most * V);
        b.grad_attention = take(C * M);
        b.grad_q = take(C * K), b.grad_k = take(most * K), b.grad_reads = take(C * M);
        b.part_q = take(C * K), b.part_k = take(most * K);
        b.of_readers = take(C * E), b.of_keys = take(C * E), b.of_all = take(E);
        b.of_pairs = take(M), b.across_step = take(is_vector ? C * K : C);
        if (erases) {
            b.grad_system = take(most * M), b.grad_r = take(most * K), b.grad_erasures = take(most * M);
            b.part_r = take(most * K);
        }
        return b;
    }
    Index size(bool backward) const {
        Index sum = 0;
        allocate(backward, [&](Index count) { return sum += padded<float>(count), static_cast<Real*>(nullptr); });
        return sum;
    }

    // ---------------------------------------------------------------- where values are

    struct Place {
        Index item, row, group, length;
        Index first, last;  // the steps of the chunk that are within the length, before all of its starts
    };
    Place place(Index item, Index first) const {
        const Index row = item / given.groups;
        const Index length = given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps;
        return {item, row, item % given.groups, length, first, std::min(first + given.chunk, length)};
    }
    // Calls work(t) for the steps of a chunk that are beyond the length.
    template <class Work> void for_steps_beyond(const Place& at, const Work& work) const {
        const Index end = std::min(at.first + given.chunk, given.steps);
        for (Index t = std::max(at.first, at.length); t < end; ++t) work(t);
    }
    bool is_start(const Place& at, Index t) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * rows + at.row];
    }
    // A step of a tensor (T, B, G, ...), where `width` counts the numbers of a group.
    Real* of_step(void* base, const Place& at, Index t, Index width) const {
        return static_cast<Real*>(base) + (t * given.batch + at.item) * width;
    }
    // The micro-step m of a step of a tensor (T, B, n, G, ...).
    Real* of_micro_step(void* base, const Place& at, Index t, Index m, Index width) const {
        return static_cast<Real*>(base) + (((t * rows + at.row) * micro + m) * given.groups + at.group) * width;
    }
    Real* kept(const Place& at, Index t, Index head) const {
        return of_step(given.kept, at, t / given.chunk, heads * key * value) + head * key * value;
    }

    // Steps that run together: those of a chunk of the sequence up to the next start.
    struct Chunk {
        Index first, steps, count;  // count: micro-steps
        bool is_fresh;              // the memory before it counts as zero
    };
    Chunk chunk(const Place& at, Index first, Index last) const {
        return {first, last - first, (last - first) * micro, is_start(at, first)};
    }
    Chunk chunk_from(const Place& at, Index first) const {
        Index last = first + 1;
        while (last < at.last && !is_start(at, last)) ++last;
        return chunk(at, first, last);
    }
    Chunk chunk_until(const Place& at, Index last) const {
        Index first = last - 1;
        while (first > at.first && !is_start(at, first)) --first;
        return chunk(at, first, last);
    }

    // ---------------------------------------------------------------- rows

    template <class Work> static void for_rows(Index count, const Work& work) {
        for (Index i = 0; i < count; ++i) work(i);
    }
    // Calls work(i, t, m) for `each` rows i of each step t, which a division would find too, but slowly.
    template <class Work> static void for_rows(Index steps, Index each, const Work& work) {
        for (Index t = 0, i = 0; t < steps; ++t)
            for (Index m = 0; m < each; ++m, ++i) work(i, t, m);
    }
    // Work on the registers of a padded row.
    template <class Work> static void across(Index width, const Work& work) {
        for (Index c = 0; c < width; c += N) work(c);
    }
    static void read(const Real* from, Index size, Real* to) {
        for_registers<Real>(size, [&](Index i, Index count) { store<Real>(to + i, load_first(from + i, count)); });
    }
    // The steps of a chunk of a tensor (T, B, G, ...): `size` of the `width` numbers of a group, from `offset` on.
    void read_steps(const Place& at, const Chunk& now, void* base, Index width, Index offset, Index size, Real* to,
                    Index to_row) const {
        for_rows(now.steps, [&](Index t) {
            const Real* from = of_step(base, at, now.first + t, width) + offset;
            read(from, size, to + t * to_row);
            fetch(at, from, width, size);
        });
    }
    void write_steps(const Place& at, const Chunk& now, const Real* from, Index from_row, void* base, Index width,
                     Index offset, Index size) const {
        for_rows(now.steps, [&](Index t) {
            Real* to = of_step(base, at, now.first + t, width) + offset;
            copy(from + t * from_row, size, to);
            fetch<true>(at, to, width, size);
        });
    }
    // The micro-steps of a chunk of a tensor (T, B, n, G, ...).
    void read_micro_steps(const Place& at, const Chunk& now, void* base, Index width, Index offset, Index size, Real* to,
                          Index to_row) const {
        for_rows(now.steps, micro, [&](Index i, Index t, Index m) {
            const Real* from = of_micro_step(base, at, now.first + t, m, width) + offset;
            read(from, size, to + i * to_row);
            fetch(at, from, width, size);
        });
    }
    void write_micro_steps(const Place& at, const Chunk& now, const Real* from, Index from_row, void* base, Index width,
                           Index offset, Index size) const {
        for_rows(now.steps, micro, [&](Index i, Index t, Index m) {
            Real* to = of_micro_step(base, at, now.first + t, m, width) + offset;
            copy(from + i * from_row, size, to);
            fetch<true>(at, to, width, size);
        });
    }
    // Steps are far apart in memory: processors do not foresee that the next ones are beside those of this row or group.
    template <bool is_written = false> void fetch(const Place& at, const Real* row, Index width, Index size) const {
        if (at.item + 1 == given.batch) return;
        const char *from = reinterpret_cast<const char*>(row + width), *end = from + size * sizeof(Real);
        for (; from < end; from += 64) __builtin_prefetch(from, is_written, 2);
    }
    static void zero(Real* to, Index count) { std::fill_n(to, count, Real(0)); }
    // Some rows of memories.
    void read_rows(Index count, const Real* from, Real* to) const {
        for_rows(count, [&](Index i) { read(from + i * value, value, to + i * V); });
    }
    void write_rows(Index count, const Real* from, Real* to) const {
        for_rows(count, [&](Index i) { copy(from + i * V, value, to + i * value); });
    }

    // c += a b for a lower triangular a (count, M), whose row i ends with column (i + 1) * each
    void lower(Index count, Index each, Index columns, const Real* a, const Real* b, Index b_row, Real* c, Index c_row) const {
        lower_product(count, each, columns, a, M, b, b_row, c, c_row);
    }
    // c += aᵀ b for such an a, with `count` columns
    void upper(Index count, Index each, Index columns, const Real* a, const Real* b, Index b_row, Real* c, Index c_row) const {
        upper_product(count, each, columns, a, M, b, b_row, c, c_row);
    }
    // The part of a b on and below the diagonal of a matrix as in `lower`. The rest is undefined.
    void pairs(Index count, Index each, Index depth, const Real* a, Index a_row, const Real* b, Real* c) const {
        for (Index row = 0; row < count; row += ROWS) {
            const Index some = std::min<Index>(ROWS, count - row);
            product(some, (row + some) * each, depth, a + row * a_row, a_row, b, M, c + row * M, M, false);
        }
    }

    // ---------------------------------------------------------------- a chunk

    void read_group(const Place& at, const Chunk& now, const Buffers& b) const {
        read_steps(at, now, given.q, key, 0, key, b.q, K);
        read_micro_steps(at, now, given.k, key, 0, key, b.k, K);
        if (given.unit) {
            for_rows(now.steps, [&](Index t) { b.q_scale[t] = normalize(b.q + t * K, std::sqrt(Real(key))); });
            for_rows(now.count, [&](Index i) { b.k_scale[i] = normalize(b.k + i * K, Real(1)); });
        }
        if (given.rates)
            for_rows(now.steps, micro, [&](Index i, Index t, Index m) {
                const Real rate = *of_micro_step(given.erase, at, now.first + t, m, 1);
                across(K, [&](Index c) { store<Real>(b.r + i * K + c, rate * load(b.k + i * K + c)); });
            });
        else if (erases)
            read_micro_steps(at, now, given.erase, key, 0, key, b.r, K);
        transpose(now.count, key, b.k, K, b.turned_k, M);
        if (is_vector) return;
        pairs(now.steps, micro, key, b.q, K, b.turned_k, b.reads);
        if (erases) pairs(now.count, 1, key, b.r, K, b.turned_k, b.erasures);
    }

    // Divides a row by `divisor` times its norm, and returns the factor.
    Real normalize(Real* row, Real divisor) const {
        const Real factor = 1 / (divisor * std::sqrt(product_of(row, row) + Real(UNIT_EPSILON)));
        across(K, [&](Index c) { store<Real>(row + c, factor * load(row + c)); });
        return factor;
    }
    // Turns the gradient of such a row into that of the row before.
    void normalize_backward(const Real* row, Real factor, Real divisor, Real* grad) const {
        const Real along = divisor * divisor * product_of(row, grad);
        across(K, [&](Index c) { store<Real>(grad + c, factor * (load(grad + c) - along * load(row + c))); });
    }
    Real product_of(const Real* a, const Real* b) const {
        Row sum = {};
        across(K, [&](Index c) { sum += load(a + c) * load(b + c); });
        return sum_of<Real>(sum);
    }

    static void exponentials(Real* x, Index count) {
#pragma omp simd
        for (Index i = 0; i < count; ++i) x[i] = exponential(x[i]);
    }

    // The decays of a head in a chunk.
    void read_decays(const Place& at, const Chunk& now, Index head, const Buffers& b) const {
        const Index steps = now.steps, width = is_vector ? K : 1, last = (steps - 1) * width;
        zero(b.total, width);
        for_rows(steps, [&](Index t) {
            Real* decay = b.decay + t * width;
            const Real* logs = of_step(given.decay, at, now.first + t, heads * given.decays) + head * given.decays;
            if (is_vector)
                read(logs, key, decay);
            else
                *decay = decays ? *logs : 0;
            for (Index c = 0; c < width; ++c) b.total[c] += decay[c];  // products would round in each step of a sequence
        });
        exponentials(b.total, width);
        exponentials(b.decay, steps * width);
        std::copy_n(b.decay, width, b.since);
        std::fill_n(b.until + last, width, Real(1));
        for (Index i = 0; i < last; ++i) b.since[i + width] = b.since[i] * b.decay[i + width];
        for (Index i = last - 1; i >= 0; --i) b.until[i] = b.until[i + width] * b.decay[i + width];
    }

    // to = factor x, for `each` rows of a step, with the factors of the step
    void scale(Index steps, Index each, const Real* x, const Real* factors, Real sign, Real* to) const {
        for_rows(steps, each, [&](Index i, Index t, Index) {
            across(K, [&](Index c) {
                const Row row = load(x + i * K + c);
                store<Real>(to + i * K + c, is_vector ? sign * load(factors + t * K + c) * row : sign * factors[t] * row);
            });
        });
    }

    // The decays from one micro-step to another, and with them attention and system, for one decay of the whole memory.
    void weigh_pairs(const Chunk& now, const Buffers& b) const {
        Real* weight = b.between;
        zero(weight, M);
        for (Index t = 0, i = 0; t < now.steps; ++t) {
            for (Index m = 0; m < micro; ++m, ++i, weight += M) {
                const Real decay = m == 0 && t > 0 ? b.decay[t] : Real(1);
                if (i > 0) across(M, [&](Index c) { store<Real>(weight + c, decay * load(weight - M + c)); });
                weight[i] = 1;
                if (erases) weigh(b.erasures + i * M, weight, Real(-1), b.system + i * M);
            }
            weigh(b.reads + t * M, weight - M, Real(1), b.attention + t * M);
        }
    }
    // to = sign x weight, zero where the weight is zero, whatever x is
    void weigh(const Real* x, const Real* weight, Real sign, Real* to) const {
        across(M, [&](Index c) {
            const Row factor = load(weight + c), zeros = {};
            store<Real>(to + c, factor != 0 ? sign * factor * load(x + c) : zeros);
        });
    }

    // The same for one decay of each key channel: keys of earlier steps decay with each step.
    void weigh_channels(const Chunk& now, const Buffers& b) const {
        std::copy_n(b.turned_k, key * M, b.faded);
        const Row places = first_numbers();
        for (Index t = 0; t < now.steps; ++t) {
            const Index before = t * micro, after = before + micro;
            for (Index c = 0; c < M; c += N) {
                Real *attention = b.attention + t * M + c, *system = b.system + before * M + c;
                if (c >= after) {
                    store<Real>(attention, Row{});
                    continue;
                }
                const auto is_earlier = places < Real(before - c), is_read = places < Real(after - c);
                Row sums[4] = {}, erased[4] = {};
                const Real *decay = b.decay + t * K, *q = b.q + t * K, *r = erases ? b.r + before * K : q;
                for (Index d = 0; d < key; ++d) {
                    Row k = load(b.faded + d * M + c);
                    k = is_earlier ? decay[d] * k : k;
                    store<Real>(b.faded + d * M + c, k);
                    sums[d % 4] += q[d] * k;
                    erased[d % 4] += r[d] * k;
                }
                const Row read = sums[0] + sums[1] + (sums[2] + sums[3]), zeros = {};
                store<Real>(attention, is_read ? read : zeros);
                if (!erases) continue;
                store<Real>(system, -(erased[0] + erased[1] + (erased[2] + erased[3])));
                for (Index m = 1; m < micro; ++m) {
                    Row sum = {};
                    for (Index d = 0; d < key; ++d) sum += r[m * K + d] * load(b.faded + d * M + c);
                    store<Real>(system + m * M, -sum);
                }
            }
        }
    }
    static Row first_numbers() {
        Row numbers;
        for (int i = 0; i < N; ++i) numbers[i] = i;
        return numbers;
    }

    // Everything of a head up to its values u, given its memory before the chunk.
    void solve_chunk(const Place& at, const Chunk& now, Index head, const Real* memory, const Buffers& b) const {
        read_decays(at, now, head, b);
        is_vector ? weigh_channels(now, b) : weigh_pairs(now, b);
        scale(now.steps, 1, b.q, b.since, 1, b.q_in);
        scale(now.steps, micro, b.k, b.until, 1, b.k_out);
        read_micro_steps(at, now, given.v, heads * value, head * value, value, b.u, V);
        if (given.write)
            for_rows(now.steps, micro, [&](Index i, Index t, Index m) {
                const Real rate = of_micro_step(given.write, at, now.first + t, m, heads)[head];
                across(V, [&](Index c) { store<Real>(b.u + i * V + c, rate * load(b.u + i * V + c)); });
            });
        if (!erases) return;
        scale(now.steps, micro, b.r, b.since, -1, b.r_in);
        if (!now.is_fresh) product(now.count, V, key, b.r_in, K, memory, V, b.u, V, true);
        solve<false>(now.count, V, b.system, M, b.u, V);
    }

    // total x, or zeros behind a start
    void decay_memory(const Chunk& now, const Real* total, Real* x) const {
        for_rows(key, [&](Index i) {
            Real* row = x + i * V;
            if (now.is_fresh) return zero(row, V);
            const Real factor = total[is_vector ? i : 0];
            across(V, [&](Index c) { store<Real>(row + c, factor * load(row + c)); });
        });
    }

    void forward(Index item, Index first, Real* workspace) const {
        const Place at = place(item, first);
        for_steps_beyond(at, [&](Index t) { zero(of_step(given.outputs, at, t, heads * value), heads * value); });
        if (first >= at.last) return;
        const Buffers b = allocate(false, [&](Index count) { return std::exchange(workspace, workspace + padded<float>(count)); });
        const Index all = heads * key;  // rows of the memories
        Real *begin = kept(at, first, 0), *s0 = static_cast<Real*>(given.s0) + item * all * value;
        read_rows(all, first ? begin : s0, b.memory);
        if (!first) std::copy_n(s0, all * value, begin);
        for (Index t = first; t < at.last;) {
            const Chunk now = chunk_from(at, t);
            read_group(at, now, b);
            for (Index h = 0; h < heads; ++h) {
                Real *memory = b.memory + h * key * V, *y = b.y;
                solve_chunk(at, now, h, memory, b);
                if (now.is_fresh)
                    zero(y, now.steps * V);
                else
                    product(now.steps, V, key, b.q_in, K, memory, V, y, V, false);
                lower(now.steps, micro, V, b.attention, b.u, V, y, V);
                write_steps(at, now, y, V, given.outputs, heads * value, h * value, value);
                decay_memory(now, b.total, memory);
                product<true>(key, V, now.count, b.k_out, K, b.u, V, memory, V, true);
            }
            t += now.steps;
        }
        const bool is_last = at.last == at.length;
        write_rows(all, b.memory, is_last ? static_cast<Real*>(given.final) + item * all * value : kept(at, at.last, 0));
    }

    // ---------------------------------------------------------------- the gradients of a chunk

    void backward(Index item, Index first, Real* workspace) const {
        const Place at = place(item, first);
        for_steps_beyond(at, [&](Index t) {
            zero(of_step(given.grad_q, at, t, key), key);
            if (decays) zero(of_step(given.grad_decay, at, t, heads * given.decays), heads * given.decays);
            for (Index m = 0; m < micro; ++m) {
                zero(of_micro_step(given.grad_k, at, t, m, key), key);
                zero(of_micro_step(given.grad_v, at, t, m, heads * value), heads * value);
                const Index erased = given.rates ? 1 : key;
                if (erases) zero(of_micro_step(given.grad_erase, at, t, m, erased), erased);
                if (given.write) zero(of_micro_step(given.grad_write, at, t, m, heads), heads);
            }
        });
        if (first >= at.last) return;
        const Buffers b = allocate(true, [&](Index count) { return std::exchange(workspace, workspace + padded<float>(count)); });
        Real* const grad_s0 = static_cast<Real*>(given.grad_s0) + item * heads * key * value;
        read_rows(heads * key, grad_s0, b.grad_memory);
        for (Index t = at.last; t > first;) {
            const Chunk now = chunk_until(at, t);
            t = now.first;
            read_group(at, now, b);
            zero(b.grad_q, now.steps * K);
            zero(b.grad_k, now.count * K);
            zero(b.grad_reads, now.steps * M);
            if (erases) {
                zero(b.grad_r, now.count * K);
                zero(b.grad_erasures, now.count * M);
            }
            for (Index h = 0; h < heads; ++h) head_backward(at, now, h, b);
            if (!is_vector) {
                lower(now.steps, micro, K, b.grad_reads, b.k, K, b.grad_q, K);
                upper(now.count, micro, K, b.grad_reads, b.q, K, b.grad_k, K);
                if (erases) {
                    lower(now.count, 1, K, b.grad_erasures, b.k, K, b.grad_r, K);
                    upper(now.count, 1, K, b.grad_erasures, b.r, K, b.grad_k, K);
                }
            }
            if (given.rates)
                for_rows(now.steps, micro, [&](Index i, Index t, Index m) {
                    const Real rate = *of_micro_step(given.erase, at, now.first + t, m, 1);
                    Real *grad_k = b.grad_k + i * K, *grad_r = b.grad_r + i * K;
                    *of_micro_step(given.grad_erase, at, now.first + t, m, 1) = product_of(grad_r, b.k + i * K);
                    across(K, [&](Index c) { store<Real>(grad_k + c, load(grad_k + c) + rate * load(grad_r + c)); });
                });
            else if (erases)
                write_micro_steps(at, now, b.grad_r, K, given.grad_erase, key, 0, key);
            if (given.unit) {
                const Real divisor = std::sqrt(Real(key));
                for_rows(now.steps, [&](Index t) {
                    normalize_backward(b.q + t * K, b.q_scale[t], divisor, b.grad_q + t * K);
                });
                for_rows(now.count, [&](Index i) {
                    normalize_backward(b.k + i * K, b.k_scale[i], Real(1), b.grad_k + i * K);
                });
            }
            write_steps(at, now, b.grad_q, K, given.grad_q, key, 0, key);
            write_micro_steps(at, now, b.grad_k, K, given.grad_k, key, 0, key);
        }
        write_rows(heads * key, b.grad_memory, grad_s0);
    }

    void head_backward(const Place& at, const Chunk& now, Index head, const Buffers& b) const {
        const Index steps = now.steps, count = now.count;
        Real *memory = b.memory, *grad_memory = b.grad_memory + head * key * V, *x = b.grad_u;
        if (!now.is_fresh) read_rows(key, kept(at, now.first, head), memory);
        solve_chunk(at, now, head, memory, b);
        read_steps(at, now, given.grad_outputs, heads * value, head * value, value, b.y, V);
        transpose(count, value, b.u, V, b.turned_u, M);

        // the gradients of u, and of the values
        product(count, V, key, b.k_out, K, grad_memory, V, x, V, false);
        upper(count, micro, V, b.attention, b.y, V, x, V);
        if (erases) solve<true>(count, V, b.system, M, x, V);
        given.write ? write_values(at, now, head, x)
                    : write_micro_steps(at, now, x, V, given.grad_v, heads * value, head * value, value);

        // those of pairs
        pairs(steps, micro, value, b.y, V, b.turned_u, b.grad_attention);
        if (erases) pairs(count, 1, value, x, V, b.turned_u, b.grad_system);

        // those of what meets the memory before and after the chunk
        transpose(key, value, grad_memory, V, b.turned_memory, F);
        product(count, K, value, b.u, V, b.turned_memory, F, b.part_k, K, false);
        if (decays) memory_exponents(now, memory, grad_memory, b);
        decay_memory(now, b.total, grad_memory);
        if (now.is_fresh) {
            zero(b.part_q, steps * K);
            if (erases) zero(b.part_r, count * K);
        } else {
            transpose(key, value, memory, V, b.turned_memory, F);
            product(steps, K, value, b.y, V, b.turned_memory, F, b.part_q, K, false);
            product<true>(key, V, steps, b.q_in, K, b.y, V, grad_memory, V, true);
            if (erases) {
                product(count, K, value, x, V, b.turned_memory, F, b.part_r, K, false);
                product<true>(key, V, count, b.r_in, K, x, V, grad_memory, V, true);
            }
        }

        zero(b.of_readers, steps * E);
        zero(b.of_keys, steps * E);
        collect(steps, 1, b.q, b.since, 1, b.part_q, b.of_readers);
        collect(steps, micro, b.k, b.until, 1, b.part_k, b.of_keys);
        if (erases) collect(steps, micro, b.r, b.since, -1, b.part_r, b.of_readers);
        is_vector ? channels_backward(now, b) : pairs_backward(now, b);
        for_rows(steps * K / N, [&](Index i) { add_row(b.part_q + i * N, b.grad_q + i * N); });
        for_rows(count * K / N, [&](Index i) { add_row(b.part_k + i * N, b.grad_k + i * N); });
        if (erases) for_rows(count * K / N, [&](Index i) { add_row(b.part_r + i * N, b.grad_r + i * N); });
        if (decays) write_decays(at, now, head, b);
    }
    // The gradients of values and of their rates, for those of their products.
    void write_values(const Place& at, const Chunk& now, Index head, const Real* grad) const {
        for_rows(now.steps, micro, [&](Index i, Index t, Index m) {
            const auto values = [&](void* base) {
                return of_micro_step(base, at, now.first + t, m, heads * value) + head * value;
            };
            const auto rate = [&](void* base) { return of_micro_step(base, at, now.first + t, m, heads) + head; };
            const Real *row = grad + i * V, *from = values(given.v), by = *rate(given.write);
            Real* to = values(given.grad_v);
            Row sum = {};
            for_registers<Real>(value, [&](Index c, Index count) {
                sum += load(row + c) * load_first(from + c, count);
                store_first<Real>(to + c, count, by * load(row + c));
            });
            *rate(given.grad_write) = sum_of<Real>(sum);
        });
    }
    static void add_row(const Real* from, Real* to) { store<Real>(to, load(to) + load(from)); }

    // Turns the gradient of factor x into that of x, and adds that of the logarithm of the factor to `exponents` (C, E).
    void collect(Index steps, Index each, const Real* x, const Real* factors, Real sign, Real* grad, Real* exponents) const {
        scale(steps, each, grad, factors, sign, grad);
        if (!decays) return;
        for_rows(steps, each, [&](Index i, Index t, Index) {
            add_exponents(grad + i * K, x + i * K, exponents + t * E);
        });
    }
    // sums += grad x, of each channel, or in any order for one decay of the whole memory
    void add_exponents(const Real* grad, const Real* x, Real* sums) const {
        if (is_vector) {
            across(K, [&](Index c) { store<Real>(sums + c, load(sums + c) + load(grad + c) * load(x + c)); });
        } else {
            Row sum = {};
            across(K, [&](Index c) { sum += load(grad + c) * load(x + c); });
            store<Real>(sums, load(sums) + sum);
        }
    }
    // The gradient of the logarithm of the decay of the memory before the chunk to its end.
    void memory_exponents(const Chunk& now, const Real* memory, const Real* grad_memory, const Buffers& b) const {
        zero(b.of_all, E);
        if (now.is_fresh) return;
        Row all = {};
        for_rows(key, [&](Index d) {
            Row sum = {};
            across(V, [&](Index c) { sum += load(memory + d * V + c) * load(grad_memory + d * V + c); });
            if (is_vector)
                b.of_all[d] += b.total[d] * sum_of<Real>(sum);
            else
                all += sum;
        });
        store<Real>(b.of_all, load(b.of_all) + b.total[0] * all);
    }

    // Adds the gradients of the products of pairs, and of the decays between them.
    //
    // A decay lies between the pairs of a key before it and a reader behind it. From the last step backwards, `of_pairs` sums
    // the pairs of each key with the readers so far: no number is added that another one cancels.
    void pairs_backward(const Chunk& now, const Buffers& b) const {
        zero(b.of_pairs, M);
        for (Index t = now.steps - 1; t >= 0; --t) {
            pair_backward((t + 1) * micro - 1, 1, b.grad_attention + t * M, b.attention + t * M, b.grad_reads + t * M, b);
            for (Index i = t * micro; erases && i < (t + 1) * micro; ++i) {
                b.grad_system[i * M + i] = 0;
                pair_backward(i, -1, b.grad_system + i * M, b.system + i * M, b.grad_erasures + i * M, b);
            }
            Real sum = 0;
#pragma omp simd reduction(+ : sum)
            for (Index j = 0; j < t * micro; ++j) sum += b.of_pairs[j];
            b.across_step[t] = sum;
        }
    }
    void pair_backward(Index i, Real sign, const Real* grad, const Real* weighed, Real* sum, const Buffers& b) const {
        across(M, [&](Index c) {
            const Row weight = load(b.between + i * M + c), zeros = {}, found = weight != 0 ? load(grad + c) : zeros;
            store<Real>(sum + c, load(sum + c) + sign * weight * found);
            store<Real>(b.of_pairs + c, load(b.of_pairs + c) + found * load(weighed + c));
        });
    }

    // The same with a decay of each channel, for the queries, keys and erasing keys of the head. For each reader, the keys are
    // summed from the first step on, and each of these sums is what crosses the next step.
    void channels_backward(const Chunk& now, const Buffers& b) const {
        zero(b.across_step, now.steps * K);
        std::copy_n(b.k, now.count * K, b.faded);
        for (Index t = 0; t < now.steps; ++t) {
            const Index before = t * micro, after = before + micro;
            across(K, [&](Index c) {
                const Row decay = load(b.decay + t * K + c), q = load(b.q + t * K + c);
                Row sum = {};
                for (Index s = 1, j = 0; s <= t; ++s) {
                    for (; j < s * micro; ++j) {
                        const Row k = decay * load(b.faded + j * K + c);
                        store<Real>(b.faded + j * K + c, k);
                        sum += b.grad_attention[t * M + j] * k;
                    }
                    add(b.across_step + s * K + c, q * sum);
                }
                for (Index j = before; j < after; ++j) sum += b.grad_attention[t * M + j] * load(b.faded + j * K + c);
                add(b.part_q + t * K + c, sum);
                for (Index i = before; erases && i < after; ++i) {
                    const Row r = load(b.r + i * K + c);
                    sum = Row{};
                    Index j = 0;
                    for (Index s = 1; s <= t; ++s) {
                        for (; j < s * micro; ++j) sum -= b.grad_system[i * M + j] * load(b.faded + j * K + c);
                        add(b.across_step + s * K + c, r * sum);
                    }
                    for (; j < i; ++j) sum -= b.grad_system[i * M + j] * load(b.faded + j * K + c);
                    add(b.part_r + i * K + c, sum);
                }
            });
        }
        std::copy_n(b.q, now.steps * K, b.faded);
        if (erases) std::copy_n(b.r, now.count * K, b.faded_r);
        for (Index t = now.steps - 1; t >= 0; --t) {
            const Index before = t * micro, after = before + micro;
            across(K, [&](Index c) {
                const Row decay = load(b.decay + t * K + c);
                for (Index j = before; j < after; ++j) {
                    Row sum = {};
                    for (Index i = t; i < now.steps; ++i) sum += b.grad_attention[i * M + j] * load(b.faded + i * K + c);
                    for (Index i = j + 1; erases && i < now.count; ++i)
                        sum -= b.grad_system[i * M + j] * load(b.faded_r + i * K + c);
                    add(b.part_k + j * K + c, sum);
                }
                for (Index i = t; i < now.steps; ++i) fade(decay, b.faded + i * K + c);
                for (Index i = before; erases && i < now.count; ++i) fade(decay, b.faded_r + i * K + c);
            });
        }
    }
    static void fade(Row decay, Real* x) { store<Real>(x, decay * load(x)); }
    static void add(Real* sum, Row x) { store<Real>(sum, load(sum) + x); }

    // A log decay is in the factors of what is read at its step and later, of the keys before it, of pairs across it, and of
    // the memory before the chunk.
    void write_decays(const Place& at, const Chunk& now, Index head, const Buffers& b) const {
        Real* sums = b.of_all;
        for (Index t = now.steps - 1; t >= 0; --t) {
            across(E, [&](Index c) { add_row(b.of_readers + t * E + c, sums + c); });
            std::copy_n(sums, E, b.of_readers + t * E);
        }
        zero(sums, E);
        for (Index t = 0; t < now.steps; ++t) {
            Real *to = of_step(given.grad_decay, at, now.first + t, heads * given.decays) + head * given.decays;
            Real* found = b.of_readers + t * E;
            across(E, [&](Index c) { add_row(sums + c, found + c); });
            if (now.is_fresh && t == 0)
                zero(to, given.decays);
            else if (is_vector) {
                across(K, [&](Index c) { add_row(b.across_step + t * K + c, found + c); });
                copy(found, key, to);
            } else
                *to = b.across_step[t] + sum_of<Real>(load(found));
            across(E, [&](Index c) { add_row(b.of_keys + t * E + c, sums + c); });
        }
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Scan<Real> scan{given};
#pragma omp parallel for num_threads(given.threads) schedule(static)
    for (Index thread = 0; thread < given.threads; ++thread) {
        Real* own = static_cast<Real*>(given.workspace) + thread * scan.size(backward);
        const Index first = given.batch * thread / given.threads, last = given.batch * (thread + 1) / given.threads;
        const Index chunks = (given.steps + given.chunk - 1) / given.chunk;
        for (Index chunk = 0; chunk < chunks; ++chunk)
            for (Index item = first; item < last; ++item)
                backward ? scan.backward(item, (chunks - 1 - chunk) * given.chunk, own)
                         : scan.forward(item, chunk * given.chunk, own);
    }
}

}  // namespace delta

extern "C" {
Index delta_arguments_size() { return sizeof(delta::Arguments); }
Index delta_block() { return 1; }  // rows that go through a step together
Index delta_workspace(const delta::Arguments* given, Index is_double) {
    const bool backward = given->grad_s0;
    return given->threads * (is_double ? delta::Scan<double>{*given}.size(backward) : delta::Scan<float>{*given}.size(backward));
}
void delta_run(const delta::Arguments* given, Index is_double, Index backward) {
    is_double ? delta::run<double>(*given, backward) : delta::run<float>(*given, backward);
}
}
