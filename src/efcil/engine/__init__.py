"""The engine: one training loop, the model it trains, what a method sees of a task, and files that hold a model."""
