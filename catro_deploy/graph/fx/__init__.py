"""Networks as torch.fx graphs: traced, run in parts, without branches, with feature maps in bounded memory."""
