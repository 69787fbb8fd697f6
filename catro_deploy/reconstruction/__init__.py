"""Reconstruction: after a cut, the weights of each layer are solved to reproduce the original's feature maps."""
