"""partition: what of the joint graph runs forward, what backward, and what is saved between them."""
