"""minLSTM: a recurrence with forget and input gates that do not read the state."""

from gyral.cells.min_gru import MinGRUCell


class MinLSTMCell(MinGRUCell):
    """minLSTM.

    minLSTM (Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, "Were RNNs all we needed?", 2024, appendix B).

        c_t = W_c x_t,  f_t = σ(W_f x_t),  i_t = σ(W_i x_t)
        h_t = (f_t ⊙ h_{t−1} + i_t ⊙ g(c_t)) / (f_t + i_t)        g(c) = c + ½ if c ≥ 0, else σ(c)

    This is a minGRU whose gate z_t = i_t / (f_t + i_t) is σ(log i_t − log f_t). The output is h_t.

    Parameter: `weight_ih` (3N, X), rows [W_c; W_f; W_i], uniform in ±1/√X as torch.nn.Linear. There is no bias.

    Example:
        >>> layer = MinLSTM(16, 64)
    """

    parts = 3
