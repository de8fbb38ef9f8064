"""Functions and classes of the suite's own that programs call or are given."""
