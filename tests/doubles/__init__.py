"""Stand-ins for what the machine that runs the tests lacks: TensorRT's libraries and a GPU."""
