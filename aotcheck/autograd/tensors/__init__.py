"""What is asked of tensors outside any trace: their memory, what wrappers hold, where captured ones are."""
