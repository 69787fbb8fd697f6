"""Forwards as torch.fx graphs: modules that cannot be traced are one call, sizes are numbers where one is needed."""
