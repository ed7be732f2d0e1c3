"""``marl-dqn`` and the central baseline: features, networks' inputs, rewards."""
