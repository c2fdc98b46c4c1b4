"""What the machine has: GPUs and what is set up on them."""
