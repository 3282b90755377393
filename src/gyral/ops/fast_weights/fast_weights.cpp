// Entry points of the recurrences of sequence.hpp; see `gyral.ops.fast_weights`.

#include "fast_weights/attention.hpp"
#include "fast_weights/weinet.hpp"

namespace fast_weights {
namespace {

template <class Real, class Work> auto with_cell(const Arguments& given, Work work) {
    switch (given.kind) {
        case 0: return work(Scan<Real, Attention<Real, Relu>>(given));
        case 1: return work(Scan<Real, Attention<Real, Tanh>>(given));
        default: return work(Scan<Real, WeiNet<Real>>(given));
    }
}

}  // namespace
}  // namespace fast_weights

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index fast_weights_arguments_size() { return sizeof(fast_weights::Arguments); }
Index fast_weights_block() { return BLOCK; }

Index fast_weights_workspace(const fast_weights::Arguments* given, Index is_double) {
    const auto elements = [](auto scan) { return workspace(scan); };
    return is_double ? fast_weights::with_cell<double>(*given, elements)
                     : fast_weights::with_cell<float>(*given, elements);
}

void fast_weights_run(const fast_weights::Arguments* given, Index is_double, Index backward) {
    const auto all = [backward](auto scan) { run(scan, backward); };
    is_double ? fast_weights::with_cell<double>(*given, all) : fast_weights::with_cell<float>(*given, all);
}
}
