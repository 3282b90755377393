// Entry points of the recurrences of gated.hpp; see `gyral.ops.gated`.

#include "gated/gated.hpp"

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index gated_arguments_size() { return sizeof(gated::Arguments); }
Index gated_block() { return BLOCK; }

Index gated_workspace(const gated::Arguments* given, Index is_double) {
    const auto elements = [](auto scan) { return workspace(scan); };
    return is_double ? gated::with_cell<double>(*given, elements) : gated::with_cell<float>(*given, elements);
}

void gated_run(const gated::Arguments* given, Index is_double, Index backward) {
    const auto all = [backward](auto scan) { run(scan, backward); };
    is_double ? gated::with_cell<double>(*given, all) : gated::with_cell<float>(*given, all);
}
}
