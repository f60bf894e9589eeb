"""What finished runs and results show, one file per figure or table; nothing here trains a network."""
