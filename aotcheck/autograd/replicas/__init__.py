"""Stand-ins for the tensors of a call, and what no dispatch shows of them."""
