"""Programs to Python source and back."""
