"""Whether what a training run left behind is what its attempts wrote."""
