// Entry points of RUM over a whole sequence; see rum.hpp and `gyral.ops.rum`.

#include "rum/rum.hpp"

extern "C" {

// size of `Arguments` in bytes, with which the caller checks its own definition of the structure
Index rum_arguments_size() { return sizeof(rum::Arguments); }

Index rum_scalars() { return rum::SCALARS; }
Index rum_block() { return BLOCK; }
Index rum_padded(Index size, Index is_double) { return is_double ? padded<double>(size) : padded<float>(size); }

Index rum_workspace(const rum::Arguments* given, Index is_double) {
    const auto elements = [](auto scan) { return workspace(scan); };
    return is_double ? rum::with_activation<double>(*given, elements) : rum::with_activation<float>(*given, elements);
}

void rum_run(const rum::Arguments* given, Index is_double, Index backward) {
    const auto all = [backward](auto scan) { run(scan, backward); };
    is_double ? rum::with_activation<double>(*given, all) : rum::with_activation<float>(*given, all);
}
}
