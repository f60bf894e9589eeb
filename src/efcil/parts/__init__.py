"""What other methods are made of: shared classifiers, compensators, attacks, inversion, distillation."""
