"""What the paper says, one idea per file: the words and the numbers of its equations."""
