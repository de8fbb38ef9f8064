"""What runs at each call: compiled graphs, autograd Functions, and generated code around them."""
