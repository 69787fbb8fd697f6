"""Networks as torch.fx graphs: traced, run in parts, without branches, their feature maps within bounded memory."""
