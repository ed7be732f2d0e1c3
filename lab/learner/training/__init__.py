"""What all training runs share: files, checkpoints, replay, DQN, imitation, workers."""
