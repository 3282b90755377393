"""Speed and memory in comparison with torch.nn."""
