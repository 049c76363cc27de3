"""DQN on CartPole-v1."""
