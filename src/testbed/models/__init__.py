"""From a model's name to its network: model strings, weights, ready-made parts, and the classifier that runs."""
