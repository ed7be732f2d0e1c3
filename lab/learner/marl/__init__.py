"""Training of ``marl-dqn``, its published variant and the single DQN."""
