// The rotation scan, forward and backward; see gyral/ops/rotation_scan/__init__.py.
//
// A row runs through all steps alone, so that its memories stay in the cache. A step multiplies R by two reflections:
// two passes over d x d numbers, which is fewer operations than the chunk form of naive.py has for d up to about 64.
// The forward pass keeps R and h before every chunk of steps. The backward pass runs each chunk forward again, without
// keeping R: it undoes the reflections on the way back, because R_{t-1} = R_t H_{w1} H_{w2}.
//
// Memories are transposed: S = R^T, so that products with R add rows. The gradient of R has both layouts.

#include "native/vectors.hpp"

namespace rotation_scan {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, size, heads, width;  // T, B, N, H, d
    Index chunk;         // steps between the states that are kept
    Index double_angle;
    Index activation;    // relu, tanh, sigmoid, softsign
    void* parts;         // (T, B, 4, N): target, gate, query, embedded input
    void* lengths;       // (B) Index
    void* starts;        // (T, B) bool
    void* kept_memory;   // (chunks, B, H, d, d): S before the first step of each chunk
    void* kept_hidden;   // (chunks, B, N)
    Index threads;
    void* workspace;
    // of the forward pass
    void* final_memory;  // (B, H, d, d): before it S before the first step, after it the last one
    void* final_hidden;  // (B, N), likewise
    void* outputs;       // (T, B, N)
    // of the backward pass
    void* grad_outputs;  // (T, B, N)
    void* grad_memory;   // (B, H, d, d): before it the gradient of the final S, after it that of the first one
    void* grad_h0;       // (B, N), likewise
    void* grad_parts;    // (T, B, 4, N) zeros
};

enum Part { TARGET, GATE, QUERY, EMBEDDED };

// ---------------------------------------------------------------- products with several vectors at once

// `width` is a multiple of LANES. Writes out_k = sum over rows j of x_k[j] M[j].
template <class Real, int count, int vectors>
inline void accumulate_columns(const Real* matrix, Index rows, Index width, const Real* const* x, Real* const* out,
                               Index column) {
    Vector<Real> sums[count][vectors] = {};
    const Real* row = matrix + column;
    for (Index j = 0; j < rows; ++j, row += width)
        for (int v = 0; v < vectors; ++v) {
            const Vector<Real> loaded = load(row + v * LANES<Real>);
            for (int k = 0; k < count; ++k) sums[k][v] += x[k][j] * loaded;
        }
    for (int k = 0; k < count; ++k)
        for (int v = 0; v < vectors; ++v) store<Real>(out[k] + column + v * LANES<Real>, sums[k][v]);
}

// Adds to each row M[j] the sum of x_k[j] y_k.
template <class Real, int count, int vectors>
inline void update_columns(Real* matrix, Index rows, Index width, const Real* const* x, const Real* const* y,
                           Index column) {
    Vector<Real> factors[count][vectors];
    for (int k = 0; k < count; ++k)
        for (int v = 0; v < vectors; ++v) factors[k][v] = load(y[k] + column + v * LANES<Real>);
    Real* row = matrix + column;
    for (Index j = 0; j < rows; ++j, row += width)
        for (int v = 0; v < vectors; ++v) {
            Vector<Real> sum = load(row + v * LANES<Real>);
            for (int k = 0; k < count; ++k) sum += x[k][j] * factors[k][v];
            store<Real>(row + v * LANES<Real>, sum);
        }
}

template <class Real, int count> struct Vectors {
    Real* of[count];
};

template <class Real, int count>
inline void accumulate(const Real* matrix, Index rows, Index width, Vectors<const Real, count> x, Vectors<Real, count> out) {
    Index c = 0;
    for (; c + 4 * LANES<Real> <= width; c += 4 * LANES<Real>)
        accumulate_columns<Real, count, 4>(matrix, rows, width, x.of, out.of, c);
    for (; c + 2 * LANES<Real> <= width; c += 2 * LANES<Real>)
        accumulate_columns<Real, count, 2>(matrix, rows, width, x.of, out.of, c);
    if (c < width) accumulate_columns<Real, count, 1>(matrix, rows, width, x.of, out.of, c);
}

template <class Real, int count>
inline void update(Real* matrix, Index rows, Index width, Vectors<const Real, count> x, Vectors<const Real, count> y) {
    Index c = 0;
    for (; c + 4 * LANES<Real> <= width; c += 4 * LANES<Real>)
        update_columns<Real, count, 4>(matrix, rows, width, x.of, y.of, c);
    for (; c + 2 * LANES<Real> <= width; c += 2 * LANES<Real>)
        update_columns<Real, count, 2>(matrix, rows, width, x.of, y.of, c);
    if (c < width) update_columns<Real, count, 1>(matrix, rows, width, x.of, y.of, c);
}

// ---------------------------------------------------------------- the recurrence

// What the backward pass needs of a step of one head; y2 = -2 R_{t-1} w2 and y1 = -2 (R_{t-1} H_{w2}) w1.
template <class Real> struct Record {
    Real *w2, *w1, *y2, *y1, *candidate, *before, *gate;  // `before` is h_{t-1}
    Real* scalars;
};
enum Scalar { INVERSE_TARGET, INVERSE_EMBEDDED, INVERSE_TOTAL, SCALARS };
constexpr Index VECTORS_OF_RECORD = 7;

template <class Real, class Activation> struct Scan {
    const Arguments& given;
    const Index size = given.size, heads = given.heads, width = given.width;
    const Index row_width = padded<Real>(width), matrix = width * row_width;
    const Index record_size = VECTORS_OF_RECORD * row_width + padded<Real>(SCALARS);

    Real* at(void* base, Index place, Index count) const {
        return base ? static_cast<Real*>(base) + place * count : nullptr;
    }
    Index length(Index row) const { return given.lengths ? static_cast<const Index*>(given.lengths)[row] : given.steps; }
    bool is_start(Index t, Index row) const {
        return given.starts && static_cast<const bool*>(given.starts)[t * given.batch + row];
    }
    Index count(Index head) const { return std::max<Index>(0, std::min(width, size - head * width)); }
    const Real* part(Index place, Index which, Index head) const {
        return at(given.parts, place, 4 * size) + which * size + head * width;
    }

    Record<Real> record(Real* buffer) const {
        Real* v[VECTORS_OF_RECORD];
        for (Index i = 0; i < VECTORS_OF_RECORD; ++i) v[i] = buffer + i * row_width;
        return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], buffer + VECTORS_OF_RECORD * row_width};
    }

    void load_padded(const Real* from, Index entries, Real* to) const {
        std::copy(from, from + entries, to);
        std::fill(to + entries, to + row_width, Real(0));
    }
    void load_matrix(const Real* from, Real* to) const {
        for (Index j = 0; j < width; ++j) load_padded(from + j * width, width, to + j * row_width);
    }
    void store_matrix(const Real* from, Real* to) const {
        for (Index j = 0; j < width; ++j) std::copy_n(from + j * row_width, width, to + j * width);
    }
    void set_identity(Real* s) const {
        std::fill(s, s + matrix, Real(0));
        for (Index j = 0; j < width; ++j) s[j * row_width + j] = 1;
    }
    void transpose(const Real* from, Real* to) const {
        std::fill(to, to + matrix, Real(0));
        for (Index i = 0; i < width; ++i)
            for (Index j = 0; j < width; ++j) to[j * row_width + i] = from[i * row_width + j];
    }
    // S <- (3I - S S^T) S / 2, given a matrix and two vectors as buffers
    void correct(Real* s, Real* old, Real* overlaps, Real* sum) const {
        std::copy(s, s + matrix, old);
        for (Index j = 0; j < width; ++j) {
            matrix_times(old, width, row_width, old + j * row_width, overlaps);
            transpose_times(old, width, row_width, overlaps, sum);
            for (Index i = 0; i < row_width; ++i)
                s[j * row_width + i] = Real(1.5) * old[j * row_width + i] - Real(0.5) * sum[i];
        }
    }

    // The unit normals of a step.
    void set_normals(Index place, Index head, const Record<Real>& step) const {
        const Index entries = count(head);
        load_padded(part(place, TARGET, head), entries, step.w2);
        load_padded(part(place, EMBEDDED, head), entries, step.w1);
        Real inverse_target = inverse_norm(dot(step.w2, step.w2, row_width));
        Real inverse_embedded = inverse_norm(dot(step.w1, step.w1, row_width));
        if (inverse_target == 0 || inverse_embedded == 0) {
            // what is not finite spoils the memory up to the next start
            const bool usable = is_finite(step.w2, row_width) && is_finite(step.w1, row_width);
            const Real normal = usable ? Real(0) : std::numeric_limits<Real>::quiet_NaN();
            inverse_target = inverse_embedded = 0;
            std::fill_n(step.w2, row_width, normal);
            std::fill_n(step.w1, row_width, normal);
        } else {
            for (Index i = 0; i < row_width; ++i) {
                step.w2[i] *= inverse_target;
                step.w1[i] *= inverse_embedded;
            }
        }
        step.scalars[INVERSE_TARGET] = inverse_target;
        step.scalars[INVERSE_EMBEDDED] = inverse_embedded;
        step.scalars[INVERSE_TOTAL] = 0;
        if (given.double_angle || inverse_target == 0) return;
        for (Index i = 0; i < row_width; ++i) step.w2[i] += step.w1[i];
        const Real squared = dot(step.w2, step.w2, row_width), limit = 8 * std::numeric_limits<Real>::epsilon();
        if (squared < limit * limit) {
            perpendicular(step.w1, step.w2);
        } else {
            const Real inverse = step.scalars[INVERSE_TOTAL] = 1 / std::sqrt(squared);
            for (Index i = 0; i < row_width; ++i) step.w2[i] *= inverse;
        }
    }
    // The axis of the smallest coordinate of a unit vector, orthogonalized.
    void perpendicular(const Real* unit, Real* out) const {
        Index smallest = 0;
        for (Index i = 1; i < width; ++i)
            if (std::fabs(unit[i]) < std::fabs(unit[smallest])) smallest = i;
        for (Index i = 0; i < row_width; ++i) out[i] = (i == smallest) - unit[i] * unit[smallest];
        const Real inverse = 1 / std::sqrt(dot(out, out, row_width));
        for (Index i = 0; i < row_width; ++i) out[i] *= inverse;
    }

    // Takes a step of a head: updates S and h, and fills the record. `query` is a buffer.
    void step_forward(Index place, Index head, Real* __restrict s, Real* __restrict h, const Record<Real>& step,
                      Real* __restrict query) const {
        const Index entries = count(head);
        set_normals(place, head, step);
        load_padded(part(place, QUERY, head), entries, query);
        accumulate<Real, 3>(s, width, row_width, {step.w2, step.w1, query}, {step.y2, step.y1, step.candidate});
        const Real overlap = dot(step.w2, step.w1, row_width);
        const Real along2 = dot(step.w2, query, row_width), along1 = dot(step.w1, query, row_width);
        for (Index i = 0; i < row_width; ++i) {
            step.y2[i] *= -2;
            step.y1[i] = -2 * (step.y1[i] + overlap * step.y2[i]);
            step.candidate[i] += along2 * step.y2[i] + along1 * step.y1[i];
        }
        update<Real, 2>(s, width, row_width, {step.w2, step.w1}, {step.y2, step.y1});
        const Real *embedded = part(place, EMBEDDED, head), *gate = part(place, GATE, head);
        std::copy(h, h + row_width, step.before);
        std::fill(step.gate + entries, step.gate + row_width, Real(1));
#pragma omp simd
        for (Index i = 0; i < entries; ++i) {
            step.candidate[i] = Activation::value(embedded[i] + step.candidate[i]);
            step.gate[i] = sigmoid(gate[i]);
            h[i] = step.candidate[i] + step.gate[i] * (h[i] - step.candidate[i]);
        }
    }

    Index forward_buffer() const { return heads * (matrix + row_width) + matrix + record_size + 2 * row_width; }

    void forward(Index row, Real* buffer) const {
        Real *s = buffer, *h = s + heads * matrix, *spare = h + heads * row_width;
        const Record<Real> step = record(spare + matrix);
        Real* query = spare + matrix + record_size;
        Real *memory = at(given.final_memory, row, heads * width * width), *hidden = at(given.final_hidden, row, size);
        for (Index head = 0; head < heads; ++head) {
            load_matrix(memory + head * width * width, s + head * matrix);
            load_padded(hidden + head * width, count(head), h + head * row_width);
        }
        const Index end = length(row);
        for (Index t = 0; t < end; ++t) {
            const Index place = t * given.batch + row;
            for (Index head = 0; head < heads; ++head) {
                Real *own_s = s + head * matrix, *own_h = h + head * row_width;
                if (t % given.chunk == 0) {
                    const Index kept = t / given.chunk * given.batch + row;
                    if (t > 0) correct(own_s, spare, query, query + row_width);
                    store_matrix(own_s, at(given.kept_memory, kept, heads * width * width) + head * width * width);
                    std::copy_n(own_h, count(head), at(given.kept_hidden, kept, size) + head * width);
                }
                if (is_start(t, row)) {
                    set_identity(own_s);
                    std::fill(own_h, own_h + row_width, Real(0));
                }
                step_forward(place, head, own_s, own_h, step, query);
                std::copy_n(own_h, count(head), at(given.outputs, place, size) + head * width);
            }
        }
        for (Index t = end; t < given.steps; ++t) {
            Real* outputs = at(given.outputs, t * given.batch + row, size);
            std::fill(outputs, outputs + size, Real(0));
        }
        for (Index head = 0; head < heads; ++head) {
            store_matrix(s + head * matrix, memory + head * width * width);
            std::copy_n(h + head * row_width, count(head), hidden + head * width);
        }
    }

    // ---------------------------------------------------------------- backward

    static constexpr Index TEMPORARIES = 16;
    Index backward_buffer() const { return 4 * matrix + TEMPORARIES * row_width + given.chunk * record_size; }

    // S, R = S^T after a step, the gradient of R in the layouts of S and R, and that of h.
    struct State {
        Real *s, *r, *grad_s, *grad_r, *grad_h;
    };

    void backward(Index row, Real* buffer) const {
        Real* temporary = buffer + 4 * matrix;
        Real *h = temporary, *query = h + row_width;
        Real* records = temporary + TEMPORARIES * row_width;
        const State state{buffer, buffer + matrix, buffer + 2 * matrix, buffer + 3 * matrix, query + row_width};
        // a segment is within a chunk and does not go beyond a start
        for (Index end = length(row), first; end > 0; end = first) {
            const Index border = first = (end - 1) / given.chunk * given.chunk;
            for (Index t = end - 1; t >= border; --t)
                if (is_start(t, row)) {
                    first = t;
                    break;
                }
            for (Index head = 0; head < heads; ++head) {
                const Index entries = count(head), kept = border / given.chunk * given.batch + row;
                const Index block = (row * heads + head) * width * width;
                if (is_start(first, row)) {
                    set_identity(state.s);
                    std::fill(h, h + row_width, Real(0));
                } else {
                    load_matrix(at(given.kept_memory, kept, heads * width * width) + head * width * width, state.s);
                    load_padded(at(given.kept_hidden, kept, size) + head * width, entries, h);
                }
                for (Index t = first; t < end; ++t)
                    step_forward(t * given.batch + row, head, state.s, h, record(records + (t - first) * record_size),
                                 query);
                transpose(state.s, state.r);
                Real *grad_memory = at(given.grad_memory, block, 1);
                Real *grad_hidden = at(given.grad_h0, row, size) + head * width;
                load_matrix(grad_memory, state.grad_s);
                transpose(state.grad_s, state.grad_r);
                load_padded(grad_hidden, entries, state.grad_h);
                for (Index t = end - 1; t >= first; --t)
                    step_backward(t * given.batch + row, head, state, record(records + (t - first) * record_size),
                                  state.grad_h + row_width);
                if (is_start(first, row)) {
                    std::fill(state.grad_s, state.grad_s + matrix, Real(0));
                    std::fill(state.grad_h, state.grad_h + row_width, Real(0));
                }
                store_matrix(state.grad_s, grad_memory);
                std::copy_n(state.grad_h, entries, grad_hidden);
            }
        }
    }

    // Given the gradients after a step, writes those of its parts, and replaces the state by that before the step.
    void step_backward(Index place, Index head, const State& state, const Record<Real>& step, Real* buffer) const {
        Real* v[12];
        for (Index i = 0; i < 12; ++i) v[i] = buffer + i * row_width;
        Real *query = v[0], *grad_rotated = v[1], *g1 = v[2], *g2 = v[3], *p1 = v[4], *p2 = v[5];
        Real *grad_query = v[6], *b1 = v[7], *b2 = v[8], *minus_y2 = v[9], *minus_y1 = v[10];
        const Index entries = count(head);
        Real* grad_parts = at(given.grad_parts, place, 4 * size) + head * width;
        const Real *w1 = step.w1, *w2 = step.w2;

        load_padded(part(place, QUERY, head), entries, query);
        add_outputs(place, head, entries, state.grad_h);
        output_backward(entries, step, state.grad_h, grad_rotated, grad_parts + GATE * size);

        // G is the gradient of R_t without that of R_t q_t, which is grad_rotated queryᵀ
        accumulate<Real, 2>(state.grad_s, width, row_width, {w1, w2}, {g1, g2});            // G w1, G w2
        accumulate<Real, 2>(state.grad_r, width, row_width, {step.y1, step.y2}, {p1, p2});  // Gᵀy1, Gᵀy2
        const Real query1 = dot(query, w1, row_width), query2 = dot(query, w2, row_width);
        const Real rotated1 = dot(grad_rotated, step.y1, row_width), rotated2 = dot(grad_rotated, step.y2, row_width);
        const Real overlap = dot(w1, w2, row_width);
        for (Index i = 0; i < row_width; ++i) {
            g1[i] = -2 * (g1[i] + grad_rotated[i] * query1);
            g2[i] = -2 * (g2[i] + grad_rotated[i] * query2 + overlap * g1[i]);  // -2 (G H_{w1}) w2
        }
        const Real across = dot(g1, step.y2, row_width);
        for (Index i = 0; i < row_width; ++i) {
            p1[i] += query[i] * rotated1;
            p2[i] += query[i] * rotated2 + w1[i] * across;
        }
        accumulate<Real, 3>(state.r, width, row_width, {grad_rotated, g1, g2}, {grad_query, b1, b2});
        const Real along = 2 * dot(w1, b2, row_width);
        for (Index i = 0; i < row_width; ++i) {
            p1[i] += b1[i];                    // the gradient of w1, and of w2, but for a part along each
            p2[i] += b2[i] - along * w1[i];
            minus_y2[i] = -step.y2[i];
            minus_y1[i] = -step.y1[i];
        }
        std::copy_n(grad_query, entries, grad_parts + QUERY * size);

        update<Real, 2>(state.s, width, row_width, {w2, w1}, {minus_y2, minus_y1});
        update<Real, 2>(state.r, width, row_width, {minus_y2, minus_y1}, {w2, w1});
        update<Real, 3>(state.grad_s, width, row_width, {query, w1, w2}, {grad_rotated, g1, g2});
        update<Real, 3>(state.grad_r, width, row_width, {grad_rotated, g1, g2}, {query, w1, w2});
        normals_backward(entries, step, p1, p2, grad_rotated, grad_parts);
    }

    void add_outputs(Index place, Index head, Index entries, Real* grad_h) const {
        if (!given.grad_outputs) return;
        const Real* from = at(given.grad_outputs, place, size) + head * width;
        for (Index i = 0; i < entries; ++i) grad_h[i] += from[i];
    }

    // Replaces the gradient of h_t by that of h_{t-1}; writes those of R_t q_t and of the gate.
    void output_backward(Index entries, const Record<Real>& step, Real* __restrict grad_h, Real* __restrict grad_rotated,
                         Real* __restrict grad_gate) const {
        std::fill(grad_rotated + entries, grad_rotated + row_width, Real(0));
#pragma omp simd
        for (Index i = 0; i < entries; ++i) {
            const Real gate = step.gate[i], candidate = step.candidate[i];
            grad_gate[i] = grad_h[i] * (step.before[i] - candidate) * gate * (1 - gate);
            grad_rotated[i] = grad_h[i] * (1 - gate) * Activation::slope(candidate);
            grad_h[i] *= gate;
        }
    }

    // Writes the gradients of target and embedded input, given those of w1 and w2, which it overwrites.
    void normals_backward(Index entries, const Record<Real>& step, Real* grad1, Real* grad2, const Real* grad_rotated,
                          Real* grad_parts) const {
        const Real *w1 = step.w1, *w2 = step.w2;
        Real* goal = step.y1;  // the unit vector of the target; y1 is not needed any more
        std::copy(w2, w2 + row_width, goal);
        if (!given.double_angle) {
            const Real inverse = step.scalars[INVERSE_TOTAL], norm = inverse == 0 ? 0 : 1 / inverse;
            const Real along = dot(w2, grad2, row_width);
            for (Index i = 0; i < row_width; ++i) {
                goal[i] = w2[i] * norm - w1[i];
                grad2[i] = (grad2[i] - w2[i] * along) * inverse;  // of the sum of both unit vectors
                grad1[i] += grad2[i];
            }
        }
        const Real along1 = dot(w1, grad1, row_width), along2 = dot(goal, grad2, row_width);
        const Real inverse1 = step.scalars[INVERSE_EMBEDDED], inverse2 = step.scalars[INVERSE_TARGET];
        for (Index i = 0; i < entries; ++i) {
            grad_parts[TARGET * size + i] = (grad2[i] - goal[i] * along2) * inverse2;
            grad_parts[EMBEDDED * size + i] = grad_rotated[i] + (grad1[i] - w1[i] * along1) * inverse1;
        }
    }

    Index buffer() const { return std::max(forward_buffer(), backward_buffer()); }

    void run(bool is_backward) const {
#pragma omp parallel for num_threads(given.threads) schedule(static)
        for (Index thread = 0; thread < given.threads; ++thread) {
            Real* own = static_cast<Real*>(given.workspace) + thread * buffer();
            for (Index row = thread; row < given.batch; row += given.threads)
                is_backward ? backward(row, own) : forward(row, own);
        }
    }
};

template <class Real, class Work> auto with_activation(const Arguments& given, Work work) {
    switch (given.activation) {
        case 0: return work(Scan<Real, Relu>{given});
        case 1: return work(Scan<Real, Tanh>{given});
        case 2: return work(Scan<Real, Sigmoid>{given});
        default: return work(Scan<Real, Softsign>{given});
    }
}

}  // namespace rotation_scan

extern "C" {
Index rotation_scan_arguments_size() { return sizeof(rotation_scan::Arguments); }
Index rotation_scan_block() { return 1; }  // rows that go through a step together
Index rotation_scan_workspace(const rotation_scan::Arguments* given, Index is_double) {
    const auto size = [given](const auto& scan) { return given->threads * scan.buffer(); };
    return is_double ? rotation_scan::with_activation<double>(*given, size)
                     : rotation_scan::with_activation<float>(*given, size);
}
void rotation_scan_run(const rotation_scan::Arguments* given, Index is_double, Index backward) {
    const auto run = [backward](const auto& scan) { scan.run(backward); };
    is_double ? rotation_scan::with_activation<double>(*given, run) : rotation_scan::with_activation<float>(*given, run);
}
}
