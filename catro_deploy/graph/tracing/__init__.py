"""Forwards as torch.fx graphs: a module that cannot be traced is one call; sizes become numbers where one is needed."""
