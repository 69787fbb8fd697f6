"""Stand-ins for what is not on the machine that tests run on: TensorRT's libraries and a GPU."""
