// Mixes of each value with the one before it; see gyral/ops/token_shift/naive.py.

#include "native/rows.hpp"
#include "native/vectors.hpp"

namespace token_shift {

// Pointers are to Real unless another type is given, and null for absent tensors.
struct Arguments {
    Index steps, batch, channels;  // T, B, C
    void* values;                  // (T, B, C)
    void* mix;                     // (6, C)
    void* before;                  // (B, C)
    void* lengths;                 // (B) Index
    void* starts;                  // (T, B) bool
    Index threads;
    void* workspace;
    void* mixed1;                  // (T, B, C), as the others
    void* mixed2;
    void* mixed3;
    void* mixed4;
    void* mixed5;
    void* mixed6;
    // of the backward pass
    void* grad_mixed1;             // as those without grad_; null stands for zeros
    void* grad_mixed2;
    void* grad_mixed3;
    void* grad_mixed4;
    void* grad_mixed5;
    void* grad_mixed6;
    void* grad_values;
    void* grad_mix;                // (B, 6, C), zeros: sums of each row
    void* grad_before;             // (B, C) zeros; while the steps run, what the step after says of a value
};

constexpr Index MIXES = 6;

template <class Real> struct Shift {
    using Row = Vector<Real>;

    const Arguments& given;
    const Index channels = given.channels;
    void* const results[MIXES] = {given.mixed1, given.mixed2, given.mixed3, given.mixed4, given.mixed5, given.mixed6};
    void* const gradients[MIXES] = {given.grad_mixed1, given.grad_mixed2, given.grad_mixed3,
                                    given.grad_mixed4, given.grad_mixed5, given.grad_mixed6};
    const Real* mix = static_cast<const Real*>(given.mix);

    // The values before a step; null at a start.
    const Real* previous(const Place& at) const {
        if (at.is_start) return nullptr;
        return at.time ? at.of<Real>(given.values, channels) - at.batch * channels : at.row_of<Real>(given.before, channels);
    }

    void forward_step(const Place& at) const {
        const Real *values = at.of<Real>(given.values, channels), *last = previous(at);
        for_registers<Real>(channels, [&](Index i, Index count) {
            const Row x = load_first(values + i, count), change = (last ? load_first(last + i, count) : Row{}) - x;
#pragma GCC unroll 6
            for (Index m = 0; m < MIXES; ++m) {
                const Row found = at.has_ended ? Row{} : x + load_first(mix + m * channels + i, count) * change;
                store_first<Real>(at.of<Real>(results[m], channels) + i, count, found);
            }
        });
    }
    void backward_step(const Place& at) const {
        Real *to = at.of<Real>(given.grad_values, channels), *after = at.row_of<Real>(given.grad_before, channels);
        if (at.has_ended) return void(std::fill_n(to, channels, Real(0)));
        const Real *values = at.of<Real>(given.values, channels), *last = previous(at);
        Real* sums = at.row_of<Real>(given.grad_mix, MIXES * channels);
        for_registers<Real>(channels, [&](Index i, Index count) {
            const Row x = load_first(values + i, count), change = (last ? load_first(last + i, count) : Row{}) - x;
            Row total = load_first(after + i, count), passed = {};
#pragma GCC unroll 6
            for (Index m = 0; m < MIXES; ++m) {
                if (!gradients[m]) continue;
                const Row grad = load_first(at.of<Real>(gradients[m], channels) + i, count);
                const Row part = load_first(mix + m * channels + i, count) * grad;
                Real* sum = sums + m * channels + i;
                store_first<Real>(sum, count, load_first(sum, count) + grad * change);
                total += grad - part, passed += part;
            }
            store_first<Real>(to + i, count, total);
            store_first<Real>(after + i, count, last ? passed : Row{});
        });
    }
};

}  // namespace token_shift

extern "C" {
Index token_shift_arguments_size() { return sizeof(token_shift::Arguments); }
Index token_shift_block() { return 1; }
Index token_shift_workspace(const token_shift::Arguments*, Index) { return 0; }
void token_shift_run(const token_shift::Arguments* given, Index is_double, Index backward) {
    is_double ? for_all_places(*given, backward, token_shift::Shift<double>{*given})
              : for_all_places(*given, backward, token_shift::Shift<float>{*given});
}
}
