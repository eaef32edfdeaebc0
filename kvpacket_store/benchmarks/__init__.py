"""The figures, with peers in the same run. Never asserts; ratios and medians, the machine named."""
