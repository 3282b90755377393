// The memory of a neural Turing machine at one step; the equations are those of ntm.py.

#pragma once

#include "slot_memory/weightings.hpp"

namespace slot_memory {
namespace {

// State: weightings of the read heads and of the write heads (C each), memory (W, C). Trace, what backward needs
// besides the states: inverse norms of the slots (C), and of each head content weighting, cosines and logarithms (C each).
template <class Real> struct Ntm {
    const Slots<Real> slots;
    const Index count, width, reads, writes, heads, largest, shifts, head_size;

    template <class Arguments>
    explicit Ntm(const Arguments& a)
        : slots{a.slots, a.width}, count(a.slots), width(a.width), reads(a.read_heads), writes(a.write_heads),
          heads(reads + writes), largest(a.max_shift), shifts(2 * largest + 1), head_size(width + 3 + shifts) {}

    Index outputs_size() const { return heads * head_size + writes * 2 * width; }
    Index state_size() const { return (heads + width) * count; }
    Index trace_size() const { return (1 + 3 * heads) * count; }
    Index scratch_size() const { return 6 * count + 4 * largest + 2 * shifts + writes * width + width * count; }

    // The outputs of the controller for one head, after their activations; `share` gets the weights of the shifts.
    struct Head {
        const Real *raw, *key;
        Real strength, gate, power, *share;

        Head(const Real* from, Index width, Index shifts, Real* to)
            : raw(from + width), key(from), strength(softplus(raw[0])), gate(sigmoid(raw[1])),
              power(1 + softplus(raw[2 + shifts])), share(to) {
            std::memcpy(share, raw + 2, shifts * sizeof(Real));
            softmax(share, shifts);
        }
    };

    // Parts of the trace of a head.
    Real* trace_of(Real* trace, Index head) const { return trace + (1 + 3 * head) * count; }

    const Real* write_vectors(const Real* outputs, Index write) const {
        return outputs + heads * head_size + write * 2 * width;
    }

    // Continues a circular vector whose C elements are at `values + largest` by `largest` elements at both ends.
    void wrap(Real* values) const {
        Real* own = values + largest;
        for (Index i = 1; i <= largest; ++i) {
            own[-i] = own[(count - i % count) % count];
            own[count - 1 + i] = own[(i - 1) % count];
        }
    }

    // mixed: w^g, wrapped; shifted: the circular convolution of w^g and s, plus epsilon
    void shift(const Head& head, const Real* __restrict before, const Real* __restrict content, Real* __restrict mixed,
               Real* __restrict shifted) const {
        Real* __restrict own = mixed + largest;
        const Real gate = head.gate;
        for (Index i = 0; i < count; ++i) own[i] = before[i] + gate * (content[i] - before[i]);
        wrap(mixed);
        std::fill_n(shifted, count, Real(LOG_EPSILON));
        for (Index d = 0; d < shifts; ++d) accumulate(shifted, head.share[d], mixed + 2 * largest - d, count);
    }

    void address(const Head& head, const Real* memory, const Real* norms, const Real* before, Real* trace,
                 Real* weights, Real* scratch) const {
        Real *content = trace, *cosines = trace + count, *__restrict logarithms = trace + 2 * count;
        Real *__restrict shifted = scratch, *mixed = scratch + count, *__restrict out = weights;
        slots.content(memory, norms, head.key, head.strength, cosines, content);
        shift(head, before, content, mixed, shifted);
        const Real power = head.power;
#pragma omp simd
        for (Index i = 0; i < count; ++i) {
            logarithms[i] = logarithm(shifted[i]);
            out[i] = power * logarithms[i];
        }
        softmax(weights, count);
    }

    // `gradient` is that of the new weighting, on return that of the one before; adds to the gradient of the memory
    // before the step, and writes that of the outputs.
    void address_backward(const Head& head, const Real* memory, const Real* norms, const Real* before,
                          const Real* trace, const Real* weights, Real* __restrict gradient, Real* grad_memory, Real* grad_outputs,
                          Real* scratch) const {
        const Real *content = trace, *cosines = trace + count, *logarithms = trace + 2 * count;
        Real *shifted = scratch, *grad_mixed = shifted + count, *spare = grad_mixed + count, *mixed = spare + count,
             *grad_shifted = mixed + count + 2 * largest, *grad_share = grad_shifted + count + 2 * largest;
        shift(head, before, content, mixed, shifted);
        softmax_backward(weights, gradient, count);
        const Real power = head.power, gate = head.gate, grad_power = inner(gradient, logarithms, count);
        Real* __restrict own = grad_shifted + largest;
        for (Index i = 0; i < count; ++i) own[i] = power * gradient[i] / shifted[i];
        for (Index d = 0; d < shifts; ++d) grad_share[d] = inner(own, mixed + 2 * largest - d, count);
        wrap(grad_shifted);
        std::fill_n(grad_mixed, count, Real(0));
        for (Index d = 0; d < shifts; ++d) accumulate(grad_mixed, head.share[d], grad_shifted + d, count);
        Real grad_gate = 0;
#pragma omp simd reduction(+ : grad_gate)
        for (Index i = 0; i < count; ++i) {
            grad_gate += grad_mixed[i] * (content[i] - before[i]);
            gradient[i] = (1 - gate) * grad_mixed[i];
            grad_mixed[i] *= gate;
        }
        const Real grad_strength = slots.content_backward(memory, norms, head.key, head.strength, cosines, content,
                                                          grad_mixed, grad_memory, grad_outputs, spare);
        softmax_backward(head.share, grad_share, shifts);
        Real* out = grad_outputs + width;
        out[0] = grad_strength * softplus_slope(head.raw[0]);
        out[1] = grad_gate * gate * (1 - gate);
        std::memcpy(out + 2, grad_share, shifts * sizeof(Real));
        out[2 + shifts] = grad_power * softplus_slope(head.raw[2 + shifts]);
    }

    void forward(const Real* outputs, const Real* before, Real* after, Real* reading, Real* trace, bool may_write,
                 Real* scratch) const {
        const Real* old = before + heads * count;
        Real *memory = after + heads * count, *share = scratch + scratch_size() - shifts, *erased = share - width;
        slots.inverse_norms(old, trace);
        for (Index head = 0; head < (may_write ? heads : reads); ++head)
            address(Head(outputs + head * head_size, width, shifts, share), old, trace, before + head * count,
                    trace_of(trace, head), after + head * count, scratch);
        if (!may_write) {
            std::memcpy(memory, old, width * count * sizeof(Real));
            std::memcpy(after + reads * count, before + reads * count, writes * count * sizeof(Real));
        }
        for (Index write = 0; may_write && write < writes; ++write) {
            const Real *vectors = write_vectors(outputs, write), *weights = after + (reads + write) * count;
            for (Index j = 0; j < width; ++j) erased[j] = sigmoid(vectors[j]);
            if (writes == 1) {
                slots.write(old, weights, erased, vectors + width, memory);
            } else {
                if (write == 0) std::memcpy(memory, old, width * count * sizeof(Real));
                slots.erase(weights, erased, memory);
            }
        }
        for (Index write = 0; may_write && writes > 1 && write < writes; ++write)
            slots.add(after + (reads + write) * count, write_vectors(outputs, write) + width, memory);
        for (Index head = 0; head < reads; ++head) slots.read(memory, after + head * count, reading + head * width);
    }

    // `gradient` is that of the state after the step, on return that of the state before it.
    void backward(const Real* outputs, const Real* before, const Real* after, const Real* grad_reading, Real* trace,
                  bool may_write, Real* gradient, Real* grad_outputs, Real* scratch) const {
        const Real *old = before + heads * count, *memory = after + heads * count;
        Real *grad_memory = gradient + heads * count, *share = scratch + scratch_size() - shifts;
        for (Index head = 0; head < reads; ++head)
            slots.read_backward(memory, after + head * count, grad_reading + head * width, grad_memory,
                                gradient + head * count);
        if (may_write)
            write_backward(outputs, old, after + reads * count, grad_memory, gradient + reads * count,
                           grad_outputs + heads * head_size, scratch);
        else
            std::fill_n(grad_outputs + reads * head_size, outputs_size() - reads * head_size, Real(0));
        for (Index head = 0; head < (may_write ? heads : reads); ++head)
            address_backward(Head(outputs + head * head_size, width, shifts, share), old, trace, before + head * count,
                             trace_of(trace, head), after + head * count, gradient + head * count, grad_memory,
                             grad_outputs + head * head_size, scratch);
    }

    // `weights` and their gradient are those of the write heads.
    void write_backward(const Real* outputs, const Real* old, const Real* weights, Real* grad_memory,
                        Real* grad_weights, Real* grad_vectors, Real* scratch) const {
        Real *kept = scratch, *erased = scratch + width * count;
        for (Index write = 0; write < writes; ++write)
            for (Index j = 0; j < width; ++j) erased[write * width + j] = sigmoid(write_vectors(outputs, write)[j]);
        for (Index write = 0; write < writes; ++write) {
            const Real *own = erased + write * width, *others = old;
            if (writes > 1) {  // what the other heads leave
                std::memcpy(kept, old, width * count * sizeof(Real));
                for (Index other = 0; other < writes; ++other)
                    if (other != write) slots.erase(weights + other * count, erased + other * width, kept);
                others = kept;
            }
            Real* out = grad_vectors + write * 2 * width;
            slots.write_backward(others, weights + write * count, own, write_vectors(outputs, write) + width,
                                 grad_memory, grad_weights + write * count, out, out + width);
            for (Index j = 0; j < width; ++j) out[j] *= own[j] * (1 - own[j]);
        }
        for (Index write = 0; write < writes; ++write)
            slots.erase(weights + write * count, erased + write * width, grad_memory);
    }
};

}  // namespace
}  // namespace slot_memory
