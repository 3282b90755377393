// The recurrences of recurrence.hpp, each alone: see `src/ops/recurrence.py`.

#include "recurrence.hpp"

extern "C" {

// bytes of `Arguments`, so that the caller can check that its mirror has the same fields
Index recurrence_arguments_size() { return sizeof(recurrence::Arguments); }
Index recurrence_block() { return BLOCK; }

Index recurrence_workspace(const recurrence::Arguments* given, Index is_double) {
    const auto elements = [](auto scan) { return workspace(scan); };
    return is_double ? recurrence::with_cell<double>(*given, elements) : recurrence::with_cell<float>(*given, elements);
}

void recurrence_run(const recurrence::Arguments* given, Index is_double, Index backward) {
    const auto all = [backward](auto scan) { run(scan, backward); };
    is_double ? recurrence::with_cell<double>(*given, all) : recurrence::with_cell<float>(*given, all);
}
}
