"""Speed and memory, side by side with torch.nn."""
