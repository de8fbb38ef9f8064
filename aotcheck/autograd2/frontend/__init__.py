"""Arguments, modules and captured tensors: what a call brings, where it is found, and what must hold for a compilation."""
