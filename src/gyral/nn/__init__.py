"""The time loop that runs cells over sequences, and layers with the interface of `torch.nn.GRU`."""
