// The memory of a differentiable neural computer at one step; the equations are those of dnc.py.

#pragma once

#include "slot_memory/weightings.hpp"

namespace slot_memory {
namespace {

// The parts of a state, of its gradient, or of what backward needs besides the states, one after the other.
template <class Real> struct DncState {
    Real *read_weights, *write_weights, *usage, *precedence, *links, *memory;  // (R, C), (C), (C), (C), (C, C), (W, C)

    DncState(Real* from, Index count, Index reads)
        : read_weights(from), write_weights(from + reads * count), usage(write_weights + count),
          precedence(usage + count), links(precedence + count), memory(links + count * count) {}
};

template <class Real> struct DncTrace {
    Real *content, *cosines, *backward, *forward;              // (R, C), of the read heads
    Real *norms, *old_norms;                                   // (C), inverse norms of the slots, after and before
    Real *write_content, *write_cosines, *allocation, *order;  // (C); `order` has slots from the least used

    DncTrace(Real* from, Index count, Index reads)
        : content(from), cosines(content + reads * count), backward(cosines + reads * count),
          forward(backward + reads * count), norms(forward + reads * count), old_norms(norms + count),
          write_content(old_norms + count), write_cosines(write_content + count), allocation(write_cosines + count),
          order(allocation + count) {}
};

// The outputs of the controller, or their gradients.
template <class Real> struct DncOutputs {
    Real *read_keys, *read_strengths, *write_key, *write_strength, *erase, *write, *free, *allocation_gate, *write_gate,
        *modes;

    DncOutputs(Real* from, Index width, Index reads)
        : read_keys(from), read_strengths(from + reads * width), write_key(read_strengths + reads),
          write_strength(write_key + width), erase(write_strength + 1), write(erase + width), free(write + width),
          allocation_gate(free + reads), write_gate(allocation_gate + 1), modes(write_gate + 1) {}
};

template <class Real> struct Dnc {
    const Slots<Real> slots;
    const Index count, width, reads;

    template <class Arguments>
    explicit Dnc(const Arguments& a)
        : slots{a.slots, a.width}, count(a.slots), width(a.width), reads(a.read_heads) {}

    Index outputs_size() const { return reads * (width + 5) + 3 * width + 3; }
    Index state_size() const { return (reads + 3 + count + width) * count; }
    Index trace_size() const { return (4 * reads + 6) * count; }
    Index scratch_size() const { return width + 5 * count; }

    DncState<Real> state(const Real* from) const { return {const_cast<Real*>(from), count, reads}; }
    DncOutputs<Real> split(const Real* from) const { return {const_cast<Real*>(from), width, reads}; }

    static Real raised(Real usage) { return Real(USAGE_EPSILON) + (1 - Real(USAGE_EPSILON)) * usage; }

    // Sorts the slots by their usage, and those of equal usage by their index. A NaN comes last.
    void sort(const Real* usage, Real* order) const {
        for (Index i = 0; i < count; ++i) order[i] = Real(i);
        const auto key = [usage](Real slot) {
            const Real value = raised(usage[Index(slot)]);
            return value == value ? value : std::numeric_limits<Real>::infinity();
        };
        std::sort(order, order + count, [key](Real a, Real b) {
            const Real left = key(a), right = key(b);
            return left < right || (left == right && a < b);
        });
    }

    void allocate(const Real* usage, const Real* order, Real* allocation) const {
        Real before = 1;
        for (Index place = 0; place < count; ++place) {
            const Index slot = Index(order[place]);
            const Real own = raised(usage[slot]);
            allocation[slot] = (1 - own) * before;
            before *= own;
            if (before < std::numeric_limits<Real>::min()) before = 0;  // no denormal numbers, which are slow
        }
    }

    // Adds to the gradient of the usage.
    void allocate_backward(const Real* usage, const Real* order, const Real* allocation, const Real* gradient,
                           Real* grad_usage, Real* scratch) const {
        Real before = 1, later = 0;  // `later` is the inner product of gradient and allocation of the slots that follow
        for (Index place = 0; place < count; ++place) {
            scratch[place] = before;
            before *= raised(usage[Index(order[place])]);
            if (before < std::numeric_limits<Real>::min()) before = 0;
        }
        for (Index place = count - 1; place >= 0; --place) {
            const Index slot = Index(order[place]);
            grad_usage[slot] +=
                (1 - Real(USAGE_EPSILON)) * (later / raised(usage[slot]) - gradient[slot] * scratch[place]);
            later += gradient[slot] * allocation[slot];
        }
    }

    void forward(const Real* outputs, const Real* before, Real* after, Real* reading, Real* trace, bool may_write,
                 Real* scratch) const {
        const auto raw = split(outputs);
        const auto old = state(before), own = state(after);
        const DncTrace<Real> kept(trace, count, reads);
        update_usage(raw, old, own.usage);

        sort(own.usage, kept.order);
        allocate(own.usage, kept.order, kept.allocation);
        slots.inverse_norms(old.memory, kept.old_norms);
        slots.content(old.memory, kept.old_norms, raw.write_key, 1 + softplus(*raw.write_strength), kept.write_cosines,
                      kept.write_content);
        const Real gate = may_write ? sigmoid(*raw.write_gate) : Real(0), allocated = sigmoid(*raw.allocation_gate);
        for (Index i = 0; i < count; ++i)
            own.write_weights[i] =
                gate * (kept.write_content[i] + allocated * (kept.allocation[i] - kept.write_content[i]));

        Real* erased = scratch + 5 * count;
        for (Index j = 0; j < width; ++j) erased[j] = sigmoid(raw.erase[j]);
        slots.write(old.memory, own.write_weights, erased, raw.write, own.memory);

        update_links(old, own);
        slots.inverse_norms(own.memory, kept.norms);
        for (Index head = 0; head < reads; ++head) {
            const Index first = head * count;
            const Real *weights = old.read_weights + first, *key = raw.read_keys + head * width;
            Real *content = kept.content + first, *linked_back = kept.backward + first, *linked = kept.forward + first;
            slots.content(own.memory, kept.norms, key, 1 + softplus(raw.read_strengths[head]), kept.cosines + first,
                          content);
            for (Index i = 0; i < count; ++i) linked[i] = inner(own.links + i * count, weights, count);
            for_slots<Real>(count, [&](auto lane, Index j) {
                auto sum = weights[0] * lane.at(own.links + j);
                for (Index i = 1; i < count; ++i) sum += weights[i] * lane.at(own.links + i * count + j);
                lane.at(linked_back + j) = sum;
            });
            Real mode[3];
            modes(raw, head, mode);
            Real* __restrict out = own.read_weights + first;
            for (Index i = 0; i < count; ++i)
                out[i] = mode[0] * linked_back[i] + mode[1] * content[i] + mode[2] * linked[i];
            slots.read(own.memory, out, reading + head * width);
        }
    }

    static void modes(const DncOutputs<Real>& raw, Index head, Real* mode) {
        std::memcpy(mode, raw.modes + 3 * head, 3 * sizeof(Real));
        softmax(mode, 3);
    }

    void update_usage(const DncOutputs<Real>& raw, const DncState<Real>& old, Real* __restrict usage) const {
        const Real *__restrict used = old.usage, *__restrict written = old.write_weights;
        for (Index i = 0; i < count; ++i) usage[i] = used[i] + written[i] - used[i] * written[i];
        for (Index head = 0; head < reads; ++head) retain(raw, old, head, usage);
    }

    // Also updates the precedence.
    void update_links(const DncState<Real>& old, const DncState<Real>& own) const {
        const Real *__restrict weights = own.write_weights, *__restrict precedence = old.precedence;
        Real total = 0;
        for (Index i = 0; i < count; ++i) {
            const Real* __restrict from = old.links + i * count;
            Real *__restrict to = own.links + i * count, weight = weights[i];
            for (Index j = 0; j < count; ++j) to[j] = (1 - weight - weights[j]) * from[j] + weight * precedence[j];
            to[i] = 0;
            total += weight;
        }
        for (Index i = 0; i < count; ++i) own.precedence[i] = (1 - total) * precedence[i] + weights[i];
    }

    // `gradient` is that of the state after the step, on return that of the state before it.
    void backward(const Real* outputs, const Real* before, const Real* after, const Real* grad_reading, Real* trace,
                  bool may_write, Real* gradient, Real* grad_outputs, Real* scratch) const {
        const auto raw = split(outputs), out = split(grad_outputs);
        const auto old = state(before), own = state(after), grad = state(gradient);
        const DncTrace<Real> kept(trace, count, reads);
        Real *spare = scratch, *erased = scratch + 5 * count;

        for (Index head = 0; head < reads; ++head)
            read_backward(raw, out, old, own, kept, head, grad_reading + head * width, grad, spare);
        links_backward(old, own, grad);

        for (Index j = 0; j < width; ++j) erased[j] = sigmoid(raw.erase[j]);
        slots.write_backward(old.memory, own.write_weights, erased, raw.write, grad.memory, grad.write_weights,
                             out.erase, out.write);
        for (Index j = 0; j < width; ++j) out.erase[j] *= erased[j] * (1 - erased[j]);
        slots.erase(own.write_weights, erased, grad.memory);

        address_write_backward(raw, out, old, own, kept, may_write, grad, spare);
        usage_backward(raw, out, old, grad, spare);
    }

    void read_backward(const DncOutputs<Real>& raw, const DncOutputs<Real>& out, const DncState<Real>& old,
                       const DncState<Real>& own, const DncTrace<Real>& kept, Index head, const Real* grad_reading,
                       const DncState<Real>& grad, Real* spare) const {
        const Index first = head * count;
        Real *__restrict grad_weights = grad.read_weights + first, *__restrict grad_content = spare,
             *__restrict grad_back = spare + count, *__restrict grad_forward = spare + 2 * count;
        slots.read_backward(own.memory, own.read_weights + first, grad_reading, grad.memory, grad_weights);
        Real mode[3], grad_mode[3];
        modes(raw, head, mode);
        grad_mode[0] = inner(grad_weights, kept.backward + first, count);
        grad_mode[1] = inner(grad_weights, kept.content + first, count);
        grad_mode[2] = inner(grad_weights, kept.forward + first, count);
        softmax_backward(mode, grad_mode, 3);
        std::memcpy(out.modes + 3 * head, grad_mode, sizeof grad_mode);
        for (Index i = 0; i < count; ++i) {
            grad_back[i] = mode[0] * grad_weights[i];
            grad_content[i] = mode[1] * grad_weights[i];
            grad_forward[i] = mode[2] * grad_weights[i];
        }
        const Real* weights = old.read_weights + first;
        for (Index i = 0; i < count; ++i) grad_weights[i] = inner(own.links + i * count, grad_back, count);
        for_slots<Real>(count, [&](auto lane, Index j) {
            auto sum = lane.at(grad_weights + j);
            const auto back = lane.at(grad_back + j), weight = lane.at(weights + j);
            for (Index i = 0; i < count; ++i) {
                sum += grad_forward[i] * lane.at(own.links + i * count + j);
                lane.at(grad.links + i * count + j) += weights[i] * back + grad_forward[i] * weight;
            }
            lane.at(grad_weights + j) = sum;
        });
        const Real strength = raw.read_strengths[head];
        out.read_strengths[head] =
            softplus_slope(strength) * slots.content_backward(own.memory, kept.norms, raw.read_keys + head * width,
                                                              1 + softplus(strength), kept.cosines + first,
                                                              kept.content + first, grad_content, grad.memory,
                                                              out.read_keys + head * width, spare + 3 * count);
    }

    // Also of the precedence.
    void links_backward(const DncState<Real>& old, const DncState<Real>& own, const DncState<Real>& grad) const {
        const Real *__restrict weights = own.write_weights, *__restrict precedence = old.precedence;
        Real *__restrict grad_weights = grad.write_weights, *__restrict grad_precedence = grad.precedence;
        const Real along = inner(grad_precedence, precedence, count);
        Real total = 0;
        for (Index i = 0; i < count; ++i) total += weights[i];
        for (Index i = 0; i < count; ++i) {
            grad_weights[i] += grad_precedence[i] - along;
            grad_precedence[i] *= 1 - total;
        }
        for (Index i = 0; i < count; ++i) {
            const Real *links = old.links + i * count, *grad_links = grad.links + i * count;
            grad.links[i * count + i] = 0;
            grad_weights[i] += sum_slots<Real>(count, [=](auto lane, Index j) {
                return lane.at(grad_links + j) * (lane.at(precedence + j) - lane.at(links + j));
            });
        }
        for_slots<Real>(count, [&](auto lane, Index j) {
            auto sum = lane.at(grad_precedence + j), against = lane.at(grad_weights + j);
            const auto kept = 1 - lane.at(weights + j);
            for (Index i = 0; i < count; ++i) {
                auto& gradient = lane.at(grad.links + i * count + j);
                sum += gradient * weights[i];
                against -= gradient * lane.at(old.links + i * count + j);
                gradient *= kept - weights[i];
            }
            lane.at(grad_precedence + j) = sum;
            lane.at(grad_weights + j) = against;
        });
    }

    // `grad.write_weights` is that of the new weighting; adds to the gradients of the usage and the memory.
    void address_write_backward(const DncOutputs<Real>& raw, const DncOutputs<Real>& out, const DncState<Real>& old,
                                const DncState<Real>& own, const DncTrace<Real>& kept, bool may_write,
                                const DncState<Real>& grad, Real* spare) const {
        const Real gate = sigmoid(*raw.write_gate), allocated = sigmoid(*raw.allocation_gate);
        const Real allowed = may_write ? Real(1) : Real(0);
        const Real *__restrict content = kept.write_content, *__restrict allocation = kept.allocation;
        Real *__restrict grad_content = spare, *__restrict grad_allocation = spare + count;
        Real grad_gate = 0, grad_allocated = 0;
#pragma omp simd reduction(+ : grad_gate, grad_allocated)
        for (Index i = 0; i < count; ++i) {
            const Real gradient = allowed * grad.write_weights[i], difference = allocation[i] - content[i];
            grad_gate += gradient * (content[i] + allocated * difference);
            grad_allocated += gradient * gate * difference;
            grad_allocation[i] = gradient * gate * allocated;
            grad_content[i] = gradient * gate * (1 - allocated);
        }
        *out.write_gate = grad_gate * gate * (1 - gate);
        *out.allocation_gate = grad_allocated * allocated * (1 - allocated);
        allocate_backward(own.usage, kept.order, allocation, grad_allocation, grad.usage, spare + 2 * count);
        *out.write_strength =
            softplus_slope(*raw.write_strength) *
            slots.content_backward(old.memory, kept.old_norms, raw.write_key, 1 + softplus(*raw.write_strength),
                                   kept.write_cosines, content, grad_content, grad.memory, out.write_key,
                                   spare + 2 * count);
    }

    // Overwrites `grad.write_weights`, and adds to `grad.read_weights`.
    void usage_backward(const DncOutputs<Real>& raw, const DncOutputs<Real>& out, const DncState<Real>& old,
                        const DncState<Real>& grad, Real* spare) const {
        const Real *__restrict used = old.usage, *__restrict written = old.write_weights;
        Real *__restrict others = spare, *__restrict grad_usage = grad.usage;
        for (Index head = 0; head < reads; ++head) {
            const Real *__restrict weights = old.read_weights + head * count, gate = sigmoid(raw.free[head]);
            Real *__restrict grad_weights = grad.read_weights + head * count, sum = 0;
            for (Index i = 0; i < count; ++i) others[i] = grad_usage[i] * (used[i] + written[i] - used[i] * written[i]);
            for (Index other = 0; other < reads; ++other)
                if (other != head) retain(raw, old, other, others);
#pragma omp simd reduction(+ : sum)
            for (Index i = 0; i < count; ++i) {
                sum -= others[i] * weights[i];
                grad_weights[i] -= others[i] * gate;
            }
            out.free[head] = sum * gate * (1 - gate);
        }
        for (Index head = 0; head < reads; ++head) retain(raw, old, head, grad_usage);
        for (Index i = 0; i < count; ++i) {
            grad.write_weights[i] = grad_usage[i] * (1 - used[i]);
            grad_usage[i] *= 1 - written[i];
        }
    }

    // values *= 1 - f w, of a read head
    void retain(const DncOutputs<Real>& raw, const DncState<Real>& old, Index head, Real* __restrict values) const {
        const Real gate = sigmoid(raw.free[head]), *__restrict weights = old.read_weights + head * count;
        for (Index i = 0; i < count; ++i) values[i] *= 1 - gate * weights[i];
    }
};

}  // namespace
}  // namespace slot_memory
