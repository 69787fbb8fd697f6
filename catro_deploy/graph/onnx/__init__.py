"""ONNX graphs: written, mapped back to layers, and resized."""
