// Normalized and gated outputs of heads; see gyral/ops/gated_heads/naive.py. The backward pass computes them again.

#include "native/run.hpp"

namespace gated_heads {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index batch, rows;      // T B and B
    Index heads, value;     // H, V
    Index silu;             // whether the gates pass SiLU
    double epsilon;
    void* outputs;          // (T, B, H, V + 1)
    void* least;            // (T, B, H)
    void* gate;             // (T, B, H V)
    void* gain;             // (H V)
    void* skip;             // (H V)
    void* skipped;          // (T, B, H V)
    void* lengths;          // (B) Index
    Index threads;
    void* workspace;
    void* y;                // (T, B, H V)
    // of the backward pass
    void* grad_y;           // as those without grad_
    void* grad_outputs;
    void* grad_least;
    void* grad_gate;
    void* grad_skipped;
    void* grad_gain;        // (blocks of rows, H V): sums over the rows of a block
    void* grad_skip;
};

constexpr Index ROWS_OF_BLOCK = 256;
constexpr double EPSILON = 1e-6;  // added to the denominator, as in normalized_heads/naive.py

template <class Real> struct Heads {
    using Row = Vector<Real>;

    const Arguments& given;
    const Index heads = given.heads, value = given.value, width = heads * value;

    Real* at(void* base, Index offset) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    bool has_ended(Index row) const {
        return given.lengths && row / given.rows >= static_cast<const Index*>(given.lengths)[row % given.rows];
    }
    // of a thread: the normalized values of a head, and their gradient
    Index size() const { return 2 * padded<Real>(value); }

    // A head of a row: what it has read, and what its outputs are divided by.
    struct Head {
        Index place, channel;  // of the row and head, and the first of the V numbers among those of all rows
        Index first;           // the first of the V numbers among those of a row
        const Real* outputs;
        Real norm, least, inverse, rstd;
    };
    // Writes the normalized values.
    Head normalize(Index row, Index h, Real* normal) const {
        Head head{row * heads + h, row * width + h * value, h * value};
        head.outputs = at(given.outputs, head.place * (value + 1));
        head.norm = head.outputs[value], head.least = *at(given.least, head.place);
        const Real size = std::fabs(head.norm);
        const Real larger = size > head.least || size != size ? size : head.least;  // a NaN stays a NaN
        head.inverse = 1 / (larger + Real(EPSILON));
        for_registers<Real>(value, [&](Index i, Index count) __attribute__((always_inline)) {
            store<Real>(normal + i, head.inverse * load_first(head.outputs + i, count));
        });
        Real mean;
        mean_and_rstd(normal, value, mean, head.rstd, given.epsilon);
        for_registers<Real>(value, [&](Index i, Index) {
            store<Real>(normal + i, head.rstd * (load(normal + i) - mean));
        });
        return head;
    }
    Row gain(const Head& head, Index i, Index count) const { return load_first(at(given.gain, head.first + i), count); }
    Row skip(const Head& head, Index i, Index count) const { return load_first(at(given.skip, head.first + i), count); }
    Row skipped(const Head& head, Index i, Index count) const {
        return load_first(at(given.skipped, head.channel + i), count);
    }
    Row gate(const Head& head, Index i, Index count) const { return load_first(at(given.gate, head.channel + i), count); }
    Row before_gate(const Head& head, Row normal, Index i, Index count) const {
        const Row found = normal * gain(head, i, count);
        return given.skip ? found + skip(head, i, count) * skipped(head, i, count) : found;
    }

    void forward(Index first, Index last, Real* normal) const {
        for (Index row = first; row < last; ++row) {
            if (has_ended(row)) {
                std::fill_n(at(given.y, row * width), width, Real(0));
                continue;
            }
            for (Index h = 0; h < heads; ++h) {
                const Head head = normalize(row, h, normal);
                for_registers<Real>(value, [&](Index i, Index count) __attribute__((always_inline)) {
                    const Row z = gate(head, i, count), sigmoid = sigmoids<Real>(z);
                    const Row found = before_gate(head, load(normal + i), i, count) * (given.silu ? z * sigmoid : sigmoid);
                    store_first<Real>(at(given.y, head.channel + i), count, found);
                });
            }
        }
    }

    void backward(Index block, Index first, Index last, Real* normal) const {
        Real *grad = normal + padded<Real>(value), *sums = at(given.grad_gain, block * width);
        Real* skip_sums = at(given.grad_skip, block * width);
        for (Index row = first; row < last; ++row) {
            if (has_ended(row)) {
                std::fill_n(at(given.grad_outputs, row * heads * (value + 1)), heads * (value + 1), Real(0));
                std::fill_n(at(given.grad_least, row * heads), heads, Real(0));
                std::fill_n(at(given.grad_gate, row * width), width, Real(0));
                if (given.grad_skipped) std::fill_n(at(given.grad_skipped, row * width), width, Real(0));
                continue;
            }
            for (Index h = 0; h < heads; ++h) {
                const Head head = normalize(row, h, normal);
                Row total = {}, along = {};
                for_registers<Real>(value, [&](Index i, Index count) __attribute__((always_inline)) {
                    const Row z = gate(head, i, count), sigmoid = sigmoids<Real>(z), known = load(normal + i);
                    const Row outer = load_first(at(given.grad_y, head.channel + i), count);
                    const Row slope = given.silu ? sigmoid * (1 + z * (1 - sigmoid)) : sigmoid * (1 - sigmoid);
                    const Row inner = outer * (given.silu ? z * sigmoid : sigmoid);
                    const Row grad_gate = outer * before_gate(head, known, i, count) * slope;
                    store_first<Real>(at(given.grad_gate, head.channel + i), count, grad_gate);
                    Real* sum = sums + head.first + i;
                    store_first<Real>(sum, count, load_first(sum, count) + inner * known);
                    if (given.skip) {
                        Real* skip_sum = skip_sums + head.first + i;
                        store_first<Real>(skip_sum, count, load_first(skip_sum, count) + inner * skipped(head, i, count));
                        store_first<Real>(at(given.grad_skipped, head.channel + i), count, inner * skip(head, i, count));
                    }
                    const Row found = inner * gain(head, i, count);
                    store<Real>(grad + i, found);
                    total += found;
                    along += found * known;
                });
                const Real mean = sum_of<Real>(total) / value, slope = sum_of<Real>(along) / value;
                Real* to = at(given.grad_outputs, head.place * (value + 1));
                for_registers<Real>(value, [&](Index i, Index count) __attribute__((always_inline)) {
                    const Row found = load(grad + i) - mean - slope * load(normal + i);
                    store_first<Real>(to + i, count, head.inverse * head.rstd * found);
                });
                // Of the denominator, the larger one of two numbers: its factor of h has no effect but through epsilon. The
                // sum of products of h and its gradient is this number, and would lose all digits in float.
                const Real denominator = -head.inverse * value * slope * Real(given.epsilon) * head.rstd * head.rstd;
                const Real size = std::fabs(head.norm);
                const Real share = size > head.least ? Real(1) : size == head.least ? Real(0.5) : Real(0);
                const Real sign = head.norm > 0 ? Real(1) : head.norm < 0 ? Real(-1) : Real(0);
                to[value] = denominator * share * sign;
                *at(given.grad_least, head.place) = denominator * (1 - share);
            }
        }
    }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Heads<Real> heads{given};
    for_all_rows<Real>(given.batch, ROWS_OF_BLOCK, given.threads, static_cast<Real*>(given.workspace), heads.size(),
                       [&](Index first, Index last, Real* buffer) {
                           backward ? heads.backward(first / ROWS_OF_BLOCK, first, last, buffer)
                                    : heads.forward(first, last, buffer);
                       });
}

}  // namespace gated_heads

extern "C" {
Index gated_heads_arguments_size() { return sizeof(gated_heads::Arguments); }
Index gated_heads_block() { return gated_heads::ROWS_OF_BLOCK; }
Index gated_heads_workspace(const gated_heads::Arguments* given, Index is_double) {
    return given->threads * (is_double ? gated_heads::Heads<double>{*given}.size() : gated_heads::Heads<float>{*given}.size());
}
void gated_heads_run(const gated_heads::Arguments* given, Index is_double, Index backward) {
    is_double ? gated_heads::run<double>(*given, backward) : gated_heads::run<float>(*given, backward);
}
}
