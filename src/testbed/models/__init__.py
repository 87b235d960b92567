"""From a name to a network: model strings, weights, ready-made parts, and the classifier that attacks see."""
