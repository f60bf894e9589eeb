"""Campaigns of runs: method × preset × seed, their results, and the published numbers beside them."""
