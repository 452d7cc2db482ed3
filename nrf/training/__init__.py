"""Training: configuration, presets, losses, pre-training, loop, checkpoints, evaluation."""
