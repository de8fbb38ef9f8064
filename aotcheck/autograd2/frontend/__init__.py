"""What a call brings: arguments, modules and captured tensors, where they are found, and what they must be like."""
