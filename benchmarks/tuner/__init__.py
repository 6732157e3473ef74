"""The tuner against ground truth: the product's own procedure on simulated engines, beside searches."""
