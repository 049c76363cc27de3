"""Session hooks: progress, checkpoint saving, NaN guard, summaries, profiling, preemption."""
