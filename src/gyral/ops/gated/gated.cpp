// The recurrences of gated.hpp, each alone: see `gyral.ops.gated`.

#include "gated/gated.hpp"

extern "C" {

// bytes of `Arguments`, so that the caller can check that its mirror has the same fields
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
