// Lie-access memories with an LSTM as controller; see `gyral.ops.lie_access`.
//
// The memory of a row is a log: a write appends an entry, and a step reads the entries of a window [begin, end). What
// is forgotten, or belongs to the sequence before a start, is before the window. So nothing that backward needs is ever
// overwritten, and the memory of a sequence is linear in its steps. The log has one row for each of: x and y of the
// keys, strengths, and the elements of the vectors, so that all functions of the entries are functions of vectors.

#include <array>

#include "gated/gated.hpp"
#include "native/vectors.hpp"

namespace lie_access {

// Pointers are to Real unless noted otherwise, and null for absent tensors.
// A flat state of D = 2N + W + 8 numbers is the state of a row: h (N), read vector (W), key and step of the read head,
// key and step of the write head (2 each), c (N).
struct Arguments {
    Index steps, batch, hidden_size, width, capacity, log_size, forget, group, normalizes, softmax, read_first, threads;
    void* parts;              // (T, B, 4N); after forward: values for backward; after backward: the gradient
    void* w;                  // (4N, N + W), of h and of the read vector
    void* head_weight;        // (K, N)
    void* head_bias;          // (K)
    void* heads;              // (T, B, K); after forward: outputs of the heads; after backward: their gradient
    void* flat_states;        // (T, B, D) before each step
    void* log;                // (B, 3 + W, log_size)
    void* windows;            // Index (T, B, 2): begin and end after each step
    void* flat_state;         // (B, D) before the first step
    void* keys;               // (B, C, 2)
    void* vectors;            // (B, C, W)
    void* strengths;          // (B, C)
    void* count;              // Index (B): number of entries before the first step
    void* write;              // bool (T, B): where an entry is appended
    void* lengths;            // Index (B)
    void* starts;             // bool (T, B): whether a row is reset to `fresh` and an empty memory
    void* fresh;              // (D), given with `starts`
    void* outputs;            // (T, B, N)
    void* final_flat_state;   // (B, D)
    void* final_keys;         // (B, C, 2)
    void* final_vectors;      // (B, C, W)
    void* final_strengths;    // (B, C)
    void* final_count;        // Index (B)
    void* is_full;            // Index (1), 0: becomes 1 if an entry is appended to `capacity` ones and `forget` is 0
    void* workspace;          // lie_access_workspace(...) elements
    void* grad_outputs;       // (T, B, N), or null
    void* grad_flat_state;    // (B, D): gradient of the final flat state, on return that of the initial one
    void* grad_final_keys;    // (B, C, 2), or null, as the next five
    void* grad_final_vectors;
    void* grad_final_strengths;
    void* grad_keys;          // (B, C, 2)
    void* grad_vectors;
    void* grad_strengths;
    void* grad_fresh;         // (blocks, D) zeros: one partial sum per block of rows; or null
};

namespace {

constexpr double NORM_EPSILON = 1e-12;     // EPSILON of groups.py
constexpr double DISTANCE_EPSILON = 1e-9;  // EPSILON and MIN_TEMPERATURE of read.py
constexpr double MIN_TEMPERATURE = 1e-4;

enum Group { TRANSLATION, ROTATION, SCALING_ROTATION };

// Rows of the log before those of the elements of the vectors.
enum Row { X, Y, STRENGTH, VECTOR };

// Offsets in the outputs of the heads. The read head follows the vector, the temperature the read head.
enum Output { KEY = 0, KEY_GATE = 2, STEP = 3, STEP_GATE = 5, HEAD_SIZE = 6 };

// Offsets in a flat state behind h and the read vector.
enum Place { READ = 0, WRITE = 4, CELL = 8 };

inline double decay(double x) { return std::exp(x); }
inline float decay(float x) { return x < -87.0f ? 0.0f : exponential(x); }  // no denormal numbers, which are slow

// ---------------------------------------------------------------- points of the plane

template <class Real> struct Point {
    Real x, y;
};
template <class Real> inline Point<Real> point(const Real* from) { return {from[0], from[1]}; }
template <class Real> inline void put(Real* to, Point<Real> a) { to[0] = a.x, to[1] = a.y; }
template <class Real> inline Point<Real> operator+(Point<Real> a, Point<Real> b) { return {a.x + b.x, a.y + b.y}; }
template <class Real> inline Point<Real> operator-(Point<Real> a, Point<Real> b) { return {a.x - b.x, a.y - b.y}; }
template <class Real> inline Point<Real> operator*(Real a, Point<Real> b) { return {a * b.x, a * b.y}; }
template <class Real> inline Real inner(Point<Real> a, Point<Real> b) { return a.x * b.x + a.y * b.y; }
template <class Real> inline Point<Real> product(Point<Real> a, Point<Real> b) {  // of complex numbers
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
template <class Real> inline Point<Real> conjugate(Point<Real> a) { return {a.x, -a.y}; }
template <class Real> inline Real inverse_length(Point<Real> a) {
    return 1 / std::sqrt(inner(a, a) + Real(NORM_EPSILON));
}
template <class Real> inline Point<Real> normalize(Point<Real> a) { return inverse_length(a) * a; }
template <class Real> inline Point<Real> normalize_backward(Point<Real> a, Point<Real> gradient) {
    const Real inverse = inverse_length(a);
    return inverse * (gradient - (inner(a, gradient) * inverse * inverse) * a);
}

// The addressing of a head at one step.
template <class Real> struct Head {
    bool normalizes, rotates, multiplies;
    Real key_gate, step_gate;
    Point<Real> old_key, old_step, raw_key, raw_step, normal_step, element, mixed, step, moved, key;

    Head(const Arguments& given, const Real* output, const Real* old)
        : normalizes(given.normalizes), rotates(given.group == ROTATION), multiplies(given.group != TRANSLATION),
          key_gate(sigmoid(output[KEY_GATE])), step_gate(sigmoid(output[STEP_GATE])), old_key(point(old)),
          old_step(point(old + 2)), raw_key(point(output + KEY)), raw_step(point(output + STEP)) {
        normal_step = normalizes ? normalize(raw_step) : raw_step;
        element = rotates ? normalize(normal_step) : normal_step;
        mixed = old_step + step_gate * (element - old_step);
        step = rotates ? normalize(mixed) : mixed;
        moved = old_key + key_gate * (raw_key - old_key);
        key = multiplies ? product(step, moved) : moved + step;
    }

    // `gradient` is that of key and step after the head has moved, on return that before; `outputs` gets that of the
    // outputs of the head.
    void backward(Real* gradient, Real* outputs) const {
        const Point<Real> grad_key = point(gradient);
        Point<Real> grad_step = point(gradient + 2), grad_moved = grad_key;
        if (multiplies) {
            grad_step = grad_step + product(grad_key, conjugate(moved));
            grad_moved = product(grad_key, conjugate(step));
        } else {
            grad_step = grad_step + grad_key;
        }
        put(gradient, (1 - key_gate) * grad_moved);
        put(outputs + KEY, key_gate * grad_moved);
        outputs[KEY_GATE] = inner(grad_moved, raw_key - old_key) * key_gate * (1 - key_gate);

        if (rotates) grad_step = normalize_backward(mixed, grad_step);
        put(gradient + 2, (1 - step_gate) * grad_step);
        outputs[STEP_GATE] = inner(grad_step, element - old_step) * step_gate * (1 - step_gate);
        Point<Real> grad_element = step_gate * grad_step;
        if (rotates) grad_element = normalize_backward(normal_step, grad_element);
        if (normalizes) grad_element = normalize_backward(raw_step, grad_element);
        put(outputs + STEP, grad_element);
    }
};

// ---------------------------------------------------------------- the recurrence

template <class Real> struct Memory {
    const Arguments& given;
    const Index steps, batch, hidden, width, seen, gates, outputs, flat_state, capacity, log_size;
    const Index products_row, carry_row, entries;

    explicit Memory(const Arguments& a)
        : given(a), steps(a.steps), batch(a.batch), hidden(a.hidden_size), width(a.width), seen(hidden + width),
          gates(4 * hidden), outputs(13 + width + a.softmax), flat_state(seen + CELL + hidden), capacity(a.capacity),
          log_size(a.log_size), products_row(std::max(padded<Real>(gates), padded<Real>(outputs))),
          carry_row(padded<Real>(seen)), entries((VECTOR + width) * log_size) {}

    Real* at(void* base, Index offset = 0) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    Real* vector(void* base, Index size, Index t, Index row) const { return at(base, (t * batch + row) * size); }
    Real* flat_state_at(Index t, Index row) const { return vector(given.flat_states, flat_state, t, row); }
    Real* log_of(Index row) const { return at(given.log, row * entries); }
    Index* window(Index t, Index row) const { return static_cast<Index*>(given.windows) + (t * batch + row) * 2; }
    Index length(Index row) const { return given.lengths ? static_cast<Index*>(given.lengths)[row] : steps; }
    Index initial_count(Index row) const { return static_cast<Index*>(given.count)[row]; }
    bool flag(void* mask, Index t, Index row) const { return static_cast<const bool*>(mask)[t * batch + row]; }
    bool begins(Index t, Index row) const { return given.starts && flag(given.starts, t, row); }
    bool writes(Index t, Index row) const { return !given.write || flag(given.write, t, row); }
    Index end_of_active(Index t, Index first, Index last) const {
        while (last > first && t >= length(last - 1)) --last;
        return last;
    }

    Index blocks() const { return (batch + BLOCK - 1) / BLOCK; }
    Index rows_a_thread() const { return (blocks() + given.threads - 1) / given.threads * BLOCK; }
    Index weight_bytes() const { return (gates * seen + outputs * hidden) * Index(sizeof(Real)); }
    Index rows_together() const { return rows_at_once(weight_bytes(), rows_a_thread()); }
    Index packed_weight() const { return std::max(seen * padded<Real>(gates), gates * padded<Real>(seen)); }
    Index packed_head_weight() const {
        return std::max(hidden * padded<Real>(outputs), outputs * padded<Real>(hidden));
    }
    Index packed_size() const { return packed_weight() + packed_head_weight(); }
    // elements of workspace per thread: values of the entries of one row; values and gradients of the log of all rows
    Index temporaries() const {
        return 5 * log_size + width + rows_together() * (products_row + carry_row + CELL + hidden + entries);
    }
    Index workspace() const { return packed_size() + given.threads * temporaries(); }

    gated::Row<Real> controller(Index t, Index row) const {
        const Real* before = flat_state_at(t, row);
        return {hidden,  1,      vector(given.parts, gates, t, row), nullptr,
                nullptr, before, before + seen + CELL,               Real(0)};
    }

    Real temperature(const Real* output) const {
        if (!given.softmax) return 1;
        const Real raw = output[13 + width];
        return (raw > 20 ? raw : std::log1p(std::exp(raw))) + Real(MIN_TEMPERATURE);  // 20: the threshold of torch
    }

    // Values of the entries of a window, from its first one. They are followed by zeros up to a whole register.
    struct Weights {
        Real *distances, *factors, *weights, *shares, *dots;

        Weights(Real* buffer, Index size)
            : distances(buffer), factors(buffer + size), weights(factors + size), shares(weights + size),
              dots(shares + size) {}
    };

    // Computes squared distances, factors q_i and weights w_i = s_i q_i; returns the inverse of the sum of the weights.
    Real weigh(const Real* entry, Index count, Point<Real> key, Real temperature, const Weights& values) const {
        const Real *__restrict x = entry + X * log_size, *__restrict y = entry + Y * log_size,
                   *__restrict strength = entry + STRENGTH * log_size;
        Real *__restrict distance = values.distances, *__restrict factor = values.factors,
             *__restrict weight = values.weights;
        Real sum = 0;
        if (given.softmax) {
            Real nearest = std::numeric_limits<Real>::infinity();
#pragma omp simd reduction(min : nearest)
            for (Index i = 0; i < count; ++i) {
                const Real dx = key.x - x[i], dy = key.y - y[i];
                distance[i] = dx * dx + dy * dy;
                nearest = distance[i] < nearest ? distance[i] : nearest;
            }
            if (std::isinf(nearest)) nearest = 0;
#pragma omp simd reduction(+ : sum)
            for (Index i = 0; i < count; ++i) {
                distance[i] -= nearest;
                factor[i] = decay(-distance[i] / temperature);
                weight[i] = strength[i] * factor[i];
                sum += weight[i];
            }
        } else {
#pragma omp simd reduction(+ : sum)
            for (Index i = 0; i < count; ++i) {
                const Real dx = key.x - x[i], dy = key.y - y[i];
                factor[i] = 1 / (dx * dx + dy * dy + Real(DISTANCE_EPSILON));
                weight[i] = strength[i] * factor[i];
                sum += weight[i];
            }
        }
        for (Index i = count; i < padded<Real>(count); ++i) factor[i] = weight[i] = distance[i] = 0;
        return sum < std::numeric_limits<Real>::min() ? Real(1) : 1 / sum;
    }

    // out = scale Σ w_i m_i
    template <int together = 4>
    void mean(const Real* vectors, Index count, const Real* weights, Real scale, Real* out) const {
        const Index width = this->width, log_size = this->log_size;  // in registers, whatever `out` points to
        for (Index first = 0; first < width; first += together) {
            Vector<Real> sums[together] = {};
            // the last ones again where fewer than `together` are left
            const Real* from[together];
            for (int j = 0; j < together; ++j) from[j] = vectors + std::min(first + j, width - 1) * log_size;
            for (Index i = 0; i < count; i += LANES<Real>) {
                const Vector<Real> weight = load(weights + i);
                for (int j = 0; j < together; ++j) sums[j] += weight * load(from[j] + i);
            }
            for (int j = 0; j < together; ++j) out[std::min(first + j, width - 1)] = scale * sum_of<Real>(sums[j]);
        }
    }

    // dots_i = g · m_i, and adds p_i g to the gradient of m_i
    void mean_backward(const Real* vectors, Real* gradients, Index count, const Real* shares, const Real* g,
                       Real* dots) const {
        const Index width = this->width, log_size = this->log_size;
        for (Index i = 0; i < count; i += LANES<Real>) {
            const Vector<Real> share = load(shares + i);
            Vector<Real> sum = {};
            const Real* from = vectors + i;
            Real* to = gradients + i;
            for (Index j = 0; j < width; ++j, from += log_size, to += log_size) {
                sum += g[j] * load(from);
                store<Real>(to, load(to) + g[j] * share);
            }
            store<Real>(dots + i, sum);
        }
    }

    // ---------------------------------------------------------------- forward

    void begin_forward(Index first, Index last) const {
        for (Index row = first; row < last; ++row) {
            Real* log = log_of(row);
            std::fill_n(log, entries, Real(0));
            add_memory(row, initial_count(row), log, leaves(given.keys, given.vectors, given.strengths));
            std::memcpy(flat_state_at(0, row), vector(given.flat_state, flat_state, 0, row), flat_state * sizeof(Real));
        }
    }

    // A tensor (B, C, width) of a memory, or null, and its first row in a log.
    struct Leaf {
        void* tensor;
        Index first, width;
    };
    std::array<Leaf, 3> leaves(void* keys, void* vectors, void* strengths) const {
        return {{{keys, X, 2}, {vectors, VECTOR, width}, {strengths, STRENGTH, 1}}};
    }

    // Adds the first entries of a memory to a log.
    void add_memory(Index row, Index count, Real* log, const std::array<Leaf, 3>& memory) const {
        for (const Leaf& leaf : memory) {
            const Real* from = at(leaf.tensor, row * capacity * leaf.width);
            if (!from) continue;
            for (Index i = 0; i < count; ++i)
                for (Index j = 0; j < leaf.width; ++j) log[(leaf.first + j) * log_size + i] += from[i * leaf.width + j];
        }
    }

    // Copies entries of a log to a memory, with zeros behind them.
    void extract_memory(Index row, Index count, const Real* log, const std::array<Leaf, 3>& memory) const {
        for (const Leaf& leaf : memory) {
            Real* to = at(leaf.tensor, row * capacity * leaf.width);
            if (!to) continue;
            for (Index i = 0; i < count; ++i)
                for (Index j = 0; j < leaf.width; ++j) to[i * leaf.width + j] = log[(leaf.first + j) * log_size + i];
            std::fill(to + leaf.width * count, to + leaf.width * capacity, Real(0));
        }
    }

    // The number of entries that step t reads: with read_first, all but the one that it writes.
    Index readable(Index t, Index row) const {
        return window(t, row)[1] - window(t, row)[0] - (given.read_first && writes(t, row));
    }

    // `after` is the flat state after the step.
    void forward_memory(Index t, Index row, Real* after, Real* buffer) const {
        const Real *before = flat_state_at(t, row) + seen, *output = vector(given.heads, outputs, t, row);
        Real *own = after + seen, *log = log_of(row);
        Index begin = t ? window(t - 1, row)[0] : 0, end = t ? window(t - 1, row)[1] : initial_count(row);
        if (begins(t, row)) begin = end;
        if (writes(t, row)) {
            const Head<Real> head(given, output, before + WRITE);
            put(own + WRITE, head.key);
            put(own + WRITE + 2, head.step);
            if (end - begin >= capacity) {
                begin += given.forget;
                if (!given.forget) {
#pragma omp atomic write
                    *static_cast<Index*>(given.is_full) = 1;
                }
            }
            Real *__restrict content = buffer + 5 * log_size, *entry = log + end;
            const Real* __restrict raw = output + HEAD_SIZE + 1;
#pragma omp simd
            for (Index j = 0; j < width; ++j) content[j] = hyperbolic_tangent(raw[j]);
            entry[X * log_size] = head.key.x;
            entry[Y * log_size] = head.key.y;
            const Real strength = sigmoid(output[HEAD_SIZE]);  // without denormal numbers, whose inverse overflows
            entry[STRENGTH * log_size] = strength < std::numeric_limits<Real>::min() ? Real(0) : strength;
            for (Index j = 0; j < width; ++j) entry[(VECTOR + j) * log_size] = content[j];
            ++end;
        } else {
            std::memcpy(own + WRITE, before + WRITE, 4 * sizeof(Real));
        }
        window(t, row)[0] = begin, window(t, row)[1] = end;

        const Head<Real> head(given, output + HEAD_SIZE + 1 + width, before + READ);
        put(own + READ, head.key);
        put(own + READ + 2, head.step);
        const Weights values(buffer, log_size);
        const Index count = readable(t, row);
        const Real scale = weigh(log + begin, count, head.key, temperature(output), values);
        mean(log + VECTOR * log_size + begin, count, values.weights, scale, after + hidden);
    }

    void forward_step(Index t, Index first, Index last, const Real* packed, Real* buffer) const {
        const Index active = end_of_active(t, first, last);
        Real* products = buffer + 5 * log_size + width;
        for (Index row = first; row < active; ++row)
            if (begins(t, row)) std::memcpy(flat_state_at(t, row), given.fresh, flat_state * sizeof(Real));
        multiply(active - first, flat_state_at(t, first), flat_state, packed, seen, gates, products, products_row, false);
        for (Index row = first; row < last; ++row) {
            Real* h = vector(given.outputs, hidden, t, row);
            if (t >= length(row)) {
                std::fill_n(h, hidden, Real(0));
                std::fill_n(flat_state_at(t, row), flat_state, Real(0));  // a factor of the gradient of the weights
                continue;
            }
            Real* after = record_after(t, row);
            gated::Lstm::forward(controller(t, row), products + (row - first) * products_row, h, after + seen + CELL);
            std::memcpy(after, h, hidden * sizeof(Real));
        }
        multiply(active - first, vector(given.outputs, hidden, t, first), hidden, packed + packed_weight(), hidden,
                 outputs, products, products_row, false);
        for (Index row = first; row < active; ++row) {
            if (t >= length(row)) continue;
            Real* __restrict output = vector(given.heads, outputs, t, row);
            const Real* __restrict product = products + (row - first) * products_row;
            const Real* __restrict bias = at(given.head_bias);
            for (Index i = 0; i < outputs; ++i) output[i] = product[i] + bias[i];
            forward_memory(t, row, record_after(t, row), buffer);
            if (t == length(row) - 1) end_forward(t, row);
        }
    }

    Real* record_after(Index t, Index row) const {
        return t == length(row) - 1 ? vector(given.final_flat_state, flat_state, 0, row) : flat_state_at(t + 1, row);
    }

    void end_forward(Index t, Index row) const {
        const Index begin = window(t, row)[0], count = std::min(window(t, row)[1] - begin, capacity);
        static_cast<Index*>(given.final_count)[row] = count;
        extract_memory(row, count, log_of(row) + begin,
                       leaves(given.final_keys, given.final_vectors, given.final_strengths));
    }

    // ---------------------------------------------------------------- backward

    // `carry` holds the gradients of h and of the read vector after the step, `rest` those of what is behind them in a
    // flat state; on return, those of the heads' keys and steps are the gradients before the step.
    void backward_memory(Index t, Index row, Real* carry, Real* rest, Real* grad_log, Real* buffer) const {
        const Real *before = flat_state_at(t, row) + seen, *log = log_of(row);
        Real *output = vector(given.heads, outputs, t, row), *raw_read = output + HEAD_SIZE + 1 + width;
        const Index begin = window(t, row)[0], end = window(t, row)[1], count = readable(t, row);
        const Weights values(buffer, log_size);
        const Head<Real> read(given, raw_read, before + READ);
        const Real softness = temperature(output), *entry = log + begin;
        const Real scale = weigh(entry, count, read.key, softness, values);
        Real *grad_entry = grad_log + begin, *grad_reading = carry + hidden;
        for (Index i = 0; i < padded<Real>(count); ++i) values.shares[i] = values.weights[i] * scale;
        mean_backward(entry + VECTOR * log_size, grad_entry + VECTOR * log_size, count, values.shares, grad_reading,
                      values.dots);
        const Real along = dot(values.shares, values.dots, count);
        const Real *__restrict x = entry + X * log_size, *__restrict y = entry + Y * log_size,
                   *__restrict distance = values.distances, *__restrict factor = values.factors,
                   *__restrict share = values.shares, *__restrict dots = values.dots;
        Real *__restrict grad_x = grad_entry + X * log_size, *__restrict grad_y = grad_entry + Y * log_size,
             *__restrict grad_strength = grad_entry + STRENGTH * log_size;
        Real sum_x = 0, sum_y = 0, sum_scaled = 0;
        const Real sharpness = 1 / softness;
        const bool softmax = given.softmax;
#pragma omp simd reduction(+ : sum_x, sum_y, sum_scaled)
        for (Index i = 0; i < count; ++i) {
            const Real difference = dots[i] - along, change = difference * share[i];
            grad_strength[i] += difference * scale * factor[i];
            const Real outward = -2 * change * (softmax ? sharpness : factor[i]);
            const Real gx = outward * (read.key.x - x[i]), gy = outward * (read.key.y - y[i]);
            grad_x[i] -= gx;
            grad_y[i] -= gy;
            sum_x += gx;
            sum_y += gy;
            sum_scaled += softmax ? change * distance[i] : Real(0);
        }
        if (softmax) {
            const Real raw = output[13 + width];
            output[13 + width] = sum_scaled * sharpness * sharpness * (raw > 20 ? Real(1) : sigmoid(raw));
        }
        rest[READ] += sum_x;
        rest[READ + 1] += sum_y;
        read.backward(rest + READ, raw_read);

        if (!writes(t, row)) {
            std::fill_n(output, HEAD_SIZE + 1 + width, Real(0));
            return;
        }
        const Head<Real> head(given, output, before + WRITE);
        const Real *written = log + end - 1, *grad_written = grad_log + end - 1;
        const Real strength = written[STRENGTH * log_size];
        output[HEAD_SIZE] = grad_written[STRENGTH * log_size] * strength * (1 - strength);
        for (Index j = 0; j < width; ++j) {
            const Real content = written[(VECTOR + j) * log_size];
            output[HEAD_SIZE + 1 + j] = grad_written[(VECTOR + j) * log_size] * (1 - content * content);
        }
        rest[WRITE] += grad_written[X * log_size];
        rest[WRITE + 1] += grad_written[Y * log_size];
        head.backward(rest + WRITE, output);
    }

    void begin_row_backward(Index t, Index row, Real* carry, Real* rest, Real* grad_log) const {
        const Real* gradient = vector(given.grad_flat_state, flat_state, 0, row);
        std::memcpy(carry, gradient, seen * sizeof(Real));
        std::memcpy(rest, gradient + seen, (CELL + hidden) * sizeof(Real));
        std::fill_n(grad_log, entries, Real(0));
        const Index begin = window(t, row)[0], count = std::min(window(t, row)[1] - begin, capacity);
        add_memory(row, count, grad_log + begin,
                   leaves(given.grad_final_keys, given.grad_final_vectors, given.grad_final_strengths));
    }

    void backward(Index first, Index last, const Real* packed, Real* buffer) const {
        const Index rest_row = CELL + hidden;
        Real *carries = buffer + 5 * log_size + width + rows_together() * products_row,
             *rests = carries + rows_together() * carry_row, *grad_logs = rests + rows_together() * rest_row;
        std::fill_n(carries, (last - first) * carry_row, Real(0));
        for (Index t = steps - 1; t >= 0; --t) {
            const Index active = end_of_active(t, first, last), rows = active - first;
            for (Index row = first; row < last; ++row) {
                Real *carry = carries + (row - first) * carry_row, *rest = rests + (row - first) * rest_row,
                     *grad_log = grad_logs + (row - first) * entries;
                if (t >= length(row)) {
                    std::fill_n(vector(given.parts, gates, t, row), gates, Real(0));
                    std::fill_n(vector(given.heads, outputs, t, row), outputs, Real(0));
                    continue;
                }
                if (t == length(row) - 1) begin_row_backward(t, row, carry, rest, grad_log);
                if (given.grad_outputs) {
                    const Real* outer = vector(given.grad_outputs, hidden, t, row);
                    for (Index i = 0; i < hidden; ++i) carry[i] += outer[i];
                }
                backward_memory(t, row, carry, rest, grad_log, buffer);
            }
            // the gradient of h; beyond its columns, the padding adds to that of the read vector, which has been used
            multiply(rows, vector(given.heads, outputs, t, first), outputs, packed + packed_weight(), outputs, hidden,
                     carries, carry_row, true);
            for (Index row = first; row < active; ++row)
                if (t < length(row))
                    gated::Lstm::backward<Real>(controller(t, row), nullptr, carries + (row - first) * carry_row,
                                                rests + (row - first) * rest_row + CELL, nullptr, nullptr);
            multiply(rows, vector(given.parts, gates, t, first), gates, packed, gates, seen, carries, carry_row, false);
            for (Index row = first; row < active; ++row)
                if (t < length(row) && begins(t, row)) {
                    Real *carry = carries + (row - first) * carry_row, *rest = rests + (row - first) * rest_row;
                    if (Real* sum = at(given.grad_fresh, row / BLOCK * flat_state)) {
                        for (Index i = 0; i < seen; ++i) sum[i] += carry[i];
                        for (Index i = 0; i < rest_row; ++i) sum[seen + i] += rest[i];
                    }
                    std::fill_n(carry, seen, Real(0));
                    std::fill_n(rest, rest_row, Real(0));
                }
        }
        for (Index row = first; row < last; ++row) {
            Real* gradient = vector(given.grad_flat_state, flat_state, 0, row);
            std::memcpy(gradient, carries + (row - first) * carry_row, seen * sizeof(Real));
            std::memcpy(gradient + seen, rests + (row - first) * rest_row, rest_row * sizeof(Real));
            extract_memory(row, initial_count(row), grad_logs + (row - first) * entries,
                           leaves(given.grad_keys, given.grad_vectors, given.grad_strengths));
        }
    }

    void run(bool is_backward) const {
        Real* packed = at(given.workspace);
        const Real *weight = at(given.w), *head_weight = at(given.head_weight);
        if (is_backward) {
            pack(weight, seen, 1, gates, seen, packed);
            pack(head_weight, hidden, 1, outputs, hidden, packed + packed_weight());
        } else {
            pack(weight, 1, seen, seen, gates, packed);
            pack(head_weight, 1, hidden, hidden, outputs, packed + packed_weight());
        }
        for_all_rows(batch, rows_together(), given.threads, packed + packed_size(), temporaries(),
                     [&](Index first, Index last, Real* buffer) {
                         if (is_backward) return backward(first, last, packed, buffer);
                         begin_forward(first, last);
                         for (Index t = 0; t < steps; ++t) forward_step(t, first, last, packed, buffer);
                     });
    }
};

}  // namespace
}  // namespace lie_access

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index lie_access_arguments_size() { return sizeof(lie_access::Arguments); }
Index lie_access_block() { return BLOCK; }

Index lie_access_workspace(const lie_access::Arguments* given, Index is_double) {
    return is_double ? lie_access::Memory<double>(*given).workspace() : lie_access::Memory<float>(*given).workspace();
}

void lie_access_run(const lie_access::Arguments* given, Index is_double, Index backward) {
    is_double ? lie_access::Memory<double>(*given).run(backward) : lie_access::Memory<float>(*given).run(backward);
}
}
