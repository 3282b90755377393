// Skip connection, normalization and gate of heads in one pass; see gyral/ops/gated_norm/__init__.py.
//
// All steps of all rows are independent. The backward pass computes what it needs again: a vector is in the cache, and so
// nothing is kept.

#include "native/run.hpp"

namespace gated_norm {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index batch, rows;   // T B vectors, and B
    Index heads, value;  // H, V
    Index together;      // heads that are normalized together
    Index gains;         // P, or 0 without a normalization
    Index gate_first;    // whether the gate is applied before the normalization
    Index is_silu;       // else the gate is a sigmoid
    double epsilon;
    void* values;        // (T, B, H, V)
    void* gain;          // (P)
    void* gate;          // (T, B, H V)
    void* skip;          // (T, B, H, V)
    void* weight;        // (H)
    void* lengths;       // (B) Index
    Index threads;
    void* workspace;
    void* outputs;       // (T, B, H V)
    // of the backward pass
    void* grad_outputs;
    void* grad_values;
    void* grad_gate;
    void* grad_skip;
    void* grad_gain;     // (blocks, P): sums over the vectors of a block
    void* grad_weight;   // (blocks, H)
};

constexpr Index VECTORS_OF_BLOCK = 64;

template <class Real> struct Norm {
    using Row = Vector<Real>;
    const Arguments& given;
    const Index value = given.value, size = given.together * value, width = given.heads * value;
    const bool gates_before = given.gate && given.gate_first, gates_after = given.gate && !given.gate_first;

    Real* at(void* base, Index offset) const { return base ? static_cast<Real*>(base) + offset : nullptr; }
    bool has_ended(Index item) const {
        return given.lengths && item / given.rows >= static_cast<const Index*>(given.lengths)[item % given.rows];
    }
    // Calls work(c, count, head) for the registers of the heads that are normalized together.
    template <class Work> void for_heads(Index first, const Work& work) const {
        for (Index head = first; head < first + given.together; ++head)
            for_registers<Real>(value, [&](Index i, Index count) { work(head * value + i, count, head); });
    }
    // The numbers c … of a vector, with the skip connection.
    Row entered(Index item, Index c, Index count, Index head) const {
        const Row x = load_first(at(given.values, item * width) + c, count);
        if (!given.skip) return x;
        return x + *at(given.weight, head) * load_first(at(given.skip, item * width) + c, count);
    }
    Real scale_of(Row squares) const { return 1 / std::sqrt(sum_of<Real>(squares) / size + Real(given.epsilon)); }
    Row gain(Index c, Index count) const { return load_first(at(given.gain, c % given.gains), count); }

    void forward(Index item, Real* x) const {
        const Real* gate = at(given.gate, item * width);
        Real* outputs = at(given.outputs, item * width);
        if (has_ended(item)) return std::fill_n(outputs, width, Real(0)), void();
        const auto factor = [&](Index c, Index count) {
            const Row z = load_first(gate + c, count), opened = sigmoids<Real>(z);
            return given.is_silu ? z * opened : opened;
        };
        for (Index first = 0; first < given.heads; first += given.together) {
            Row squares = {};
            for_heads(first, [&](Index c, Index count, Index head) {
                Row found = entered(item, c, count, head);
                if (gates_before) found *= factor(c, count);
                squares += found * found;
                store_first<Real>(x + c, count, found);
            });
            const Real scale = given.gains ? scale_of(squares) : Real(1);
            for_heads(first, [&](Index c, Index count, Index) {
                Row found = load_first(x + c, count);
                if (given.gains) found *= scale * gain(c, count);
                if (gates_after) found *= factor(c, count);
                store_first<Real>(outputs + c, count, found);
            });
        }
    }

    // `x`, `grad_x`, `opened`: vectors of the workspace.
    void backward(Index item, Real* x, Real* grad_x, Real* opened, Real* grad_gain, Real* grad_weight) const {
        const Real *gate = at(given.gate, item * width), *grad = at(given.grad_outputs, item * width);
        const Real* skip = at(given.skip, item * width);
        Real *grad_values = at(given.grad_values, item * width), *grad_gate = at(given.grad_gate, item * width);
        Real* grad_skip = at(given.grad_skip, item * width);
        if (has_ended(item)) {
            for (Real* tensor : {grad_values, grad_gate, grad_skip})
                if (tensor) std::fill_n(tensor, width, Real(0));
            return;
        }
        const auto factor = [&](Index c, Index count, Row s) { return given.is_silu ? s * load_first(gate + c, count) : s; };
        const auto slope = [&](Index c, Index count, Row s) {
            const Row own = s * (1 - s);
            return given.is_silu ? s + load_first(gate + c, count) * own : own;
        };
        for (Index first = 0; first < given.heads; first += given.together) {
            Row squares = {}, alongs = {};
            for_heads(first, [&](Index c, Index count, Index head) {
                Row found = entered(item, c, count, head);
                if (gate) {
                    const Row s = sigmoids<Real>(load_first(gate + c, count));
                    store_first<Real>(opened + c, count, s);
                    if (gates_before) found *= factor(c, count, s);
                }
                squares += found * found;
                store_first<Real>(x + c, count, found);
            });
            const Real scale = given.gains ? scale_of(squares) : Real(1);
            for_heads(first, [&](Index c, Index count, Index) {
                Row d = load_first(grad + c, count), normal = load_first(x + c, count);
                const Row by = given.gains ? gain(c, count) : Row{} + 1;
                if (given.gains) normal *= scale;
                if (gates_after) {
                    const Row s = load_first(opened + c, count);
                    store_first<Real>(grad_gate + c, count, d * normal * by * slope(c, count, s));
                    d *= factor(c, count, s);
                }
                if (given.gains) {
                    Real* sum = grad_gain + c % given.gains;
                    store_first<Real>(sum, count, load_first(sum, count) + d * normal);
                    d *= by;
                    alongs += d * normal;
                }
                store_first<Real>(grad_x + c, count, d);
            });
            const Real along = given.gains ? sum_of<Real>(alongs) / size : Real(0);
            for (Index head = first; head < first + given.together; ++head) {
                Row sum = {};
                for_registers<Real>(value, [&](Index i, Index count) {
                    const Index c = head * value + i;
                    const Row found = load_first(x + c, count);
                    Row d = load_first(grad_x + c, count);
                    if (given.gains) d = scale * (d - along * scale * found);
                    if (gates_before) {
                        const Row s = load_first(opened + c, count);
                        const Row before = entered(item, c, count, head);
                        store_first<Real>(grad_gate + c, count, d * before * slope(c, count, s));
                        d *= factor(c, count, s);
                    }
                    store_first<Real>(grad_values + c, count, d);
                    if (!skip) return;
                    store_first<Real>(grad_skip + c, count, *at(given.weight, head) * d);
                    sum += d * load_first(skip + c, count);
                });
                if (skip) grad_weight[head] += sum_of<Real>(sum);
            }
        }
    }

    Index buffer() const { return 3 * padded<Real>(width); }
};

template <class Real> void run(const Arguments& given, bool backward) {
    const Norm<Real> norm{given};
    for_all_rows<Real>(given.batch, VECTORS_OF_BLOCK, given.threads, static_cast<Real*>(given.workspace), norm.buffer(),
                       [&](Index first, Index last, Real* x) {
                           const Index block = first / VECTORS_OF_BLOCK;
                           Real *grad_x = x + padded<Real>(norm.width), *opened = grad_x + padded<Real>(norm.width);
                           Real* grad_gain = norm.at(given.grad_gain, block * given.gains);
                           Real* grad_weight = norm.at(given.grad_weight, block * given.heads);
                           for (Index item = first; item < last; ++item)
                               backward ? norm.backward(item, x, grad_x, opened, grad_gain, grad_weight)
                                        : norm.forward(item, x);
                       });
}

}  // namespace gated_norm

extern "C" {
Index gated_norm_arguments_size() { return sizeof(gated_norm::Arguments); }
Index gated_norm_block() { return gated_norm::VECTORS_OF_BLOCK; }
Index gated_norm_workspace(const gated_norm::Arguments* given, Index is_double) {
    return given->threads * (is_double ? gated_norm::Norm<double>{*given}.buffer() : gated_norm::Norm<float>{*given}.buffer());
}
void gated_norm_run(const gated_norm::Arguments* given, Index is_double, Index backward) {
    is_double ? gated_norm::run<double>(*given, backward) : gated_norm::run<float>(*given, backward);
}
}
