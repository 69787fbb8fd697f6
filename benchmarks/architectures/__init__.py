"""Which networks of torchvision and timm can be pruned."""
