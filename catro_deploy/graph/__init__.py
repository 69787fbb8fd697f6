"""Networks as graphs: coupled channels, cuts, torch.fx and ONNX."""
