// Recurrences that take turns within a step, of which some share a state: see `gyral.ops.fast_slow`.
//
// Every turn is a recurrence of gated.hpp or rum.hpp. What a turn takes in from an earlier one of the same step is a
// further product before its own step, with weights packed once a call; a thread's rows go through all turns of a step.

#include <memory>
#include <vector>

#include "gated/gated.hpp"
#include "rum/rum.hpp"

namespace fast_slow {

// W: width of what is taken in, G: that of the parts. In Python a row of integers.
struct Turn {
    Index is_rum;
    Index source;     // the earlier turn whose outputs it takes in, or -1
    Index state;      // number of its state: turns that share one have the same
    Index projected;  // whether the parts hold the input's part already
    void* arguments;  // gated::Arguments or rum::Arguments
    void* weight_ih;  // (G, W), null without source
    void* bias;       // (G), or null
    void* mask;       // (T, B, W): what is taken in is multiplied with it, or null
};

// Mirrored field by field in fast_slow_cpu.py.
struct Arguments {
    Index steps, batch, count, threads;
    void* turns;         // Turn (count)
    void* grad_outputs;  // (T, B, H) of the last turn
    void* workspace;     // fast_slow_workspace(...) elements
};

namespace {

// Any recurrence.
template <class Real> struct Player {
    Index outputs_width, parts_width, packed_size, temporaries, weight_bytes, rows_a_thread;
    Real *outputs, *parts;
    bool ends;  // whether the final state is its own

    virtual ~Player() = default;
    virtual void pack_weight(bool backward, Real* packed) const = 0;
    virtual void forward_step(Index t, Index first, Index last, const Real* packed, Real* room) const = 0;
    virtual void begin_backward(Index first, Index last, Real* room) const = 0;
    virtual void backward_step(Index t, Index first, Index last, const Real* outer, Index outer_row,
                               const Real* packed, Real* room) const = 0;
    virtual void end_backward(Index first, Index last, Real* room) const = 0;
};

template <class Real, class Scan> struct PlayerOf final : Player<Real> {
    Scan scan;

    explicit PlayerOf(const Scan& given) : scan(given) {
        this->outputs_width = scan.outputs_width();
        this->parts_width = scan.parts_width();
        this->packed_size = scan.packed_size();
        this->temporaries = scan.temporaries;
        this->weight_bytes = scan.weight_bytes();
        this->rows_a_thread = scan.rows_a_thread();
        this->outputs = scan.at(scan.given.outputs);
        this->parts = scan.at(scan.given.parts);
        this->ends = scan.given.final_hidden || scan.given.grad_hidden;
    }
    void pack_weight(bool backward, Real* packed) const override { scan.pack_weight(backward, packed); }
    void forward_step(Index t, Index first, Index last, const Real* packed, Real* room) const override {
        scan.forward_step(t, first, last, packed, room);
    }
    void begin_backward(Index first, Index last, Real* room) const override { scan.begin_backward(first, last, room); }
    void backward_step(Index t, Index first, Index last, const Real* outer, Index outer_row, const Real* packed,
                       Real* room) const override {
        scan.backward_step(t, first, last, outer, outer_row, packed, room);
    }
    void end_backward(Index first, Index last, Real* room) const override { scan.end_backward(first, last, room); }
};

template <class Real> std::unique_ptr<Player<Real>> make_player(const Turn& turn) {
    const auto make = [](auto scan) -> std::unique_ptr<Player<Real>> {
        return std::make_unique<PlayerOf<Real, decltype(scan)>>(scan);
    };
    if (turn.is_rum) return rum::with_activation<Real>(*static_cast<const rum::Arguments*>(turn.arguments), make);
    return gated::with_cell<Real>(*static_cast<const gated::Arguments*>(turn.arguments), make);
}

template <class Real> struct Game {
    const Arguments& given;
    const Turn* turns;
    std::vector<std::unique_ptr<Player<Real>>> players;
    // offsets in the workspace: packed weights of each turn, own and of what is taken in
    std::vector<Index> packed_own, packed_input;
    // offsets in a thread's room: of each state, and of the gradient that each turn's outputs receive (-1: none)
    std::vector<Index> rooms, received;
    Index packed_size = 0, room_size = 0, taken = 0, dropped = 0, rows_a_thread = 0, weight_bytes = 0;

    explicit Game(const Arguments& a)
        : given(a), turns(static_cast<const Turn*>(a.turns)), packed_own(a.count), packed_input(a.count),
          rooms(a.count, -1), received(a.count, -1) {
        Index widest_parts = 0, widest_input = 0;
        for (Index i = 0; i < given.count; ++i) players.push_back(make_player<Real>(turns[i]));
        rows_a_thread = players[0]->rows_a_thread;
        for (Index i = 0; i < given.count; ++i) {
            const Player<Real>& player = *players[i];
            packed_own[i] = packed_size;
            packed_size += player.packed_size;
            weight_bytes += player.weight_bytes;
            if (rooms[turns[i].state] < 0) {
                rooms[turns[i].state] = room_size;
                room_size += player.temporaries;
            }
            if (turns[i].source < 0) continue;
            const Index width = input_width(i), parts = player.parts_width;
            packed_input[i] = packed_size;
            packed_size += std::max(width * padded<Real>(parts), parts * padded<Real>(width));
            weight_bytes += width * parts * Index(sizeof(Real));
            received[turns[i].source] = room_size;
            room_size += rows_a_thread * padded<Real>(width);
            widest_parts = std::max(widest_parts, padded<Real>(parts));
            widest_input = std::max(widest_input, width);
        }
        taken = room_size;
        dropped = taken + rows_a_thread * widest_parts;
        room_size = dropped + rows_a_thread * widest_input;
    }

    Index workspace() const { return packed_size + given.threads * room_size; }
    Index input_width(Index turn) const { return players[turns[turn].source]->outputs_width; }
    const Real* mask(Index turn, Index t, Index row) const {
        const Real* masks = static_cast<const Real*>(turns[turn].mask);
        return masks ? masks + (t * given.batch + row) * input_width(turn) : nullptr;
    }

    // the input's part of a turn: products with what is taken in, if anything is, and the bias
    void take_in(Index turn, Index t, Index first, Index last, const Real* packed, Real* room) const {
        const Index rows = last - first, parts = players[turn]->parts_width;
        const Real* bias = static_cast<const Real*>(turns[turn].bias);
        Real* products = room + taken;
        const bool any = turns[turn].source >= 0;
        if (any) {
            const Index width = input_width(turn);
            const Real* input = players[turns[turn].source]->outputs + (t * given.batch + first) * width;
            if (const Real* factors = mask(turn, t, first)) {
                Real* __restrict masked = room + dropped;
                for (Index i = 0; i < rows * width; ++i) masked[i] = factors[i] * input[i];
                input = masked;
            }
            multiply(rows, input, width, packed + packed_input[turn], width, parts, products, padded<Real>(parts),
                     false);
        }
        for (Index row = 0; row < rows; ++row) {
            Real* __restrict out = players[turn]->parts + (t * given.batch + first + row) * parts;
            const Real* __restrict product = products + row * padded<Real>(parts);
            for (Index i = 0; i < parts; ++i) out[i] = (any ? product[i] : 0) + (bias ? bias[i] : 0);
        }
    }

    // the gradient of what a turn has taken in
    void hand_back(Index turn, Index t, Index first, Index last, const Real* packed, Real* room) const {
        const Index width = input_width(turn), row_size = padded<Real>(width), parts = players[turn]->parts_width;
        Real* slopes = room + received[turns[turn].source];
        multiply(last - first, players[turn]->parts + (t * given.batch + first) * parts, parts,
                 packed + packed_input[turn], parts, width, slopes, row_size, false);
        if (const Real* factors = mask(turn, t, first))
            for (Index row = 0; row < last - first; ++row)
                for (Index i = 0; i < width; ++i) slopes[row * row_size + i] *= factors[row * width + i];
    }

    void forward(Index first, Index last, const Real* packed, Real* room) const {
        for (Index t = 0; t < given.steps; ++t)
            for (Index i = 0; i < given.count; ++i) {
                if (!turns[i].projected) take_in(i, t, first, last, packed, room);
                players[i]->forward_step(t, first, last, packed + packed_own[i], room + rooms[turns[i].state]);
            }
    }

    void backward(Index first, Index last, const Real* packed, Real* room) const {
        for (Index i = 0; i < given.count; ++i)
            if (players[i]->ends) players[i]->begin_backward(first, last, room + rooms[turns[i].state]);
        for (Index t = given.steps - 1; t >= 0; --t)
            for (Index i = given.count - 1; i >= 0; --i) {
                const Index width = players[i]->outputs_width;
                const Real* outer = received[i] < 0 ? nullptr : room + received[i];
                Index outer_row = padded<Real>(width);
                if (i == given.count - 1) {
                    outer = static_cast<const Real*>(given.grad_outputs) + (t * given.batch + first) * width;
                    outer_row = width;
                }
                players[i]->backward_step(t, first, last, outer, outer_row, packed + packed_own[i],
                                          room + rooms[turns[i].state]);
                if (turns[i].source >= 0) hand_back(i, t, first, last, packed, room);
            }
        for (Index i = 0; i < given.count; ++i)
            if (players[i]->ends) players[i]->end_backward(first, last, room + rooms[turns[i].state]);
    }

    void run(bool is_backward) const {
        Real* packed = static_cast<Real*>(given.workspace);
        for (Index i = 0; i < given.count; ++i) {
            players[i]->pack_weight(is_backward, packed + packed_own[i]);
            if (turns[i].source < 0) continue;
            const Real* weight = static_cast<const Real*>(turns[i].weight_ih);
            const Index width = input_width(i), parts = players[i]->parts_width;
            if (is_backward)
                pack(weight, width, 1, parts, width, packed + packed_input[i]);
            else
                pack(weight, 1, width, width, parts, packed + packed_input[i]);
        }
        share_out(given.batch, rows_at_once(weight_bytes, rows_a_thread), given.threads, packed + packed_size,
                  room_size, [&](Index first, Index last, Real* room) {
                      is_backward ? backward(first, last, packed, room) : forward(first, last, packed, room);
                  });
    }
};

}  // namespace
}  // namespace fast_slow

extern "C" {

// bytes of `Arguments`, so that the caller can check that its mirror has the same fields
Index fast_slow_arguments_size() { return sizeof(fast_slow::Arguments); }
Index fast_slow_block() { return BLOCK; }

Index fast_slow_workspace(const fast_slow::Arguments* given, Index is_double) {
    return is_double ? fast_slow::Game<double>(*given).workspace() : fast_slow::Game<float>(*given).workspace();
}

void fast_slow_run(const fast_slow::Arguments* given, Index is_double, Index backward) {
    is_double ? fast_slow::Game<double>(*given).run(backward) : fast_slow::Game<float>(*given).run(backward);
}
}
