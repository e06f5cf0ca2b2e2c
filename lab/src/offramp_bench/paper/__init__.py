"""Every rival and every figure of the paper, on the same cached features, splits and costs."""
