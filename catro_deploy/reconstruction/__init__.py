"""Keeping what the network knows: after a cut, each layer's weights are solved for the original's feature maps."""
