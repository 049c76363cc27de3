"""AlphaZero on Connect Four."""
