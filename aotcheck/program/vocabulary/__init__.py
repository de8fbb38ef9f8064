"""What programs are like, in one vocabulary, seen in an eager dry run."""
