"""The paper's tables, ours beside the published numbers: layouts, what fills them, and the ways to write them."""
