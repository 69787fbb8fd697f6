"""ONNX graphs: written, followed back to layers, and resized."""
